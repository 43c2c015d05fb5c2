"""`dibs doctor --prove`: run the hooks of the clients here as the clients would.

The commands are read from the clients' own files. Those files come with the repository, so only
commands that `dibs init` writes are run; one that somebody has changed is reported. The events
belong to a made-up session and a file that does not exist; the end of the session frees its claims.
"""

from __future__ import annotations

import json
import os
from time import perf_counter

from dibs.clients import Client, client_of
from dibs.setup import Setup
from dibs.setup.files import Refusal
from dibs.setup.jsonc import parse
from dibs.setup.parts import Hook, JsonFile, handlers, is_ours, line, words
from dibs.setup.targets import OwnFile
from dibs.surroundings.occasion import AFTER, BEFORE, END, MEANINGS, PROVE, SEEN, START, STOP
from dibs.surroundings.who import of_client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from dibs.dibs import Dibs

    Command = tuple[str, str | list[str]]
    """At which event a client runs what."""

SLOW_S = 1.0
LONGEST_S = 10.0
FILE = ".dibs-proof"
WHERE = ("DIBS_URL", "DIBS_SPACE", "DIBS_TOKEN")
SUBAGENT = {"agent_id": "proof", "agent_type": "proof", "parent_agent_id": ""}


def prove(space: Dibs) -> Iterator[tuple[str, str, str, str]]:
    """For each client here: its name, whether it was seen, an explanation, and what to do."""
    setup = Setup(space.scope.place)
    ready = setup.set_up()
    for name in dict.fromkeys([*ready, *setup.used()]):
        client = client_of(name)
        if client.events is None:
            continue  # it has no hooks
        if name not in ready:
            yield client.title, "not set up", "its hooks are not written", "dibs init"
            continue
        session = f"proof-{os.urandom(8).hex()}"
        yield client.title, *tried(client, setup, session)
        leave(space, client, session)


def leave(space: Dibs, client: Client, session: str) -> None:
    """End the session, for clients whose hooks do not report the end."""
    who = of_client(client.name, session, environment(client, session))
    if (agent := who.find(space)) is not None:
        agent.agents.leave()


def tried(client: Client, setup: Setup, session: str) -> tuple[str, str, str]:
    found, strange = commands(client, setup)
    missing = sorted({event for event in wanted(client)} - {event for event, _ in found})
    if strange or missing:
        changed = f"{', '.join(strange)} differs from what dibs init writes, so it was not run; "
        says = (changed if strange else "") + f"no hook of dibs at {', '.join(missing)}"
        return "not seen", says, "dibs init"
    took: dict[str, float] = {}
    for event, command in sorted(found, key=lambda one: order(client, one[0])):
        for part in (False, True) if tells(client, event) else (False,):
            label = f"{event} of a subagent" if part else event
            said = example(client, event, session, setup.place.top, part)
            seconds, error = run(client, command, session, setup.place.top, said)
            if error:
                return "not seen", f"{label}: {error}", "dibs doctor says more about failed hooks"
            took[label] = seconds
    slowest = max(took, key=lambda label: took[label])
    says = f"{len(took)} hooks, the slowest {slowest} in {took[slowest] * 1000:.0f} ms"
    if took[slowest] > SLOW_S:
        return "too slow", says, "check the load of the machine, or the connection to the store"
    return "seen", says, ""


def wanted(client: Client) -> list[str]:
    return list(client.events or ()) or [START, BEFORE, AFTER, STOP, END]


def commands(client: Client, setup: Setup) -> tuple[list[Command], list[str]]:
    """The hooks in the client's own files, and the events whose hook dibs did not write."""
    known = [line(client), f"dibs hook {client.name}", line(client, "wake")]
    found: dict[str, Command] = {}
    strange: set[str] = set()
    for event, handler in configured(client, setup):
        said = " ".join(words(handler))
        if said in known:
            args = handler.get("args")
            found[f"{event} {said}"] = event, ["dibs", *args] if args else handler["command"]
        else:
            strange.add(event)
    return list(found.values()), sorted(strange)


def configured(client: Client, setup: Setup) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every hook of dibs in the files of a client, by its event."""
    for target in client.targets(setup.place.top):
        try:
            setup.stay_inside(target.path)
            text = target.read()
            root = parse(text) if isinstance(target, JsonFile) and text is not None else None
        except Refusal:
            continue  # dibs init reports what is wrong with it
        if isinstance(target, OwnFile) and text == target.content:
            # What the plugin runs inside the client.
            for event in wanted(client):
                yield event, {"command": "dibs", "args": ["hook", client.name]}
        for part in target.parts if isinstance(target, JsonFile) and root is not None else ():
            items = root.value_at(part.path) if isinstance(part, Hook) and root else None
            for item in items if isinstance(items, list) else ():
                inside = handlers(item) if isinstance(item, dict) else []
                yield from ((part.path[-1], one) for one in inside if is_ours(one))


def meaning(client: Client, event: str) -> str:
    return (client.meanings or MEANINGS).get(event, event)


def tells(client: Client, event: str) -> bool:
    return client.tells_subagents and meaning(client, event) in (BEFORE, AFTER)


def order(client: Client, event: str) -> int:
    """The end of the session comes last, so that nothing is left behind."""
    return {START: 0, END: 2}.get(meaning(client, event), 1)


def example(client: Client, event: str, session: str, top: str, part: bool) -> dict[str, object]:
    said = client.example(event, session, top, f"{top}/{FILE}")
    return {**said, **SUBAGENT, "parent_agent_id": session} if part else said


def run(
    client: Client, command: str | list[str], session: str, top: str, said: dict[str, object]
) -> tuple[float, str]:
    """How long a hook took, and why dibs has not seen it, if so."""
    import subprocess

    argv = command if isinstance(command, list) else [client.hook_shell, "-c", command]
    begun = perf_counter()
    try:
        done = subprocess.run(
            argv, input=json.dumps(said), cwd=top, env=environment(client, session),
            capture_output=True, text=True, timeout=LONGEST_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return LONGEST_S, f"no answer within {LONGEST_S:.0f} s"
    except OSError as error:
        return 0.0, error.strerror or str(error)
    seconds = perf_counter() - begun
    if SEEN not in done.stderr:
        lines = done.stderr.strip().splitlines()
        return seconds, lines[-1] if lines else "dibs is not on the PATH"
    return seconds, ""


def environment(client: Client, session: str) -> dict[str, str]:
    """The environment of a client's hook, without our own identity."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("DIBS_")}
    kept = {name: os.environ[name] for name in WHERE if name in os.environ}
    variables = {client.session_variable: session, client.pid_variable: str(os.getpid())}
    said = {name: text for name, text in variables.items() if name}
    return own | kept | said | {PROVE: "1"}
