"""Short answers about dibs itself: its version, who you are to it, and how much there is."""

from __future__ import annotations

import os

from dibs.arguments import LIST_LIMIT, check_agent
from dibs.operation import AGENT, EVERYBODY
from dibs.records import called, folder
from dibs.surroundings.wording import ago, note, print_json, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.dibs import Dibs
    from dibs.surroundings.commands import Globals

BY = {"version": EVERYBODY, "whoami": EVERYBODY, "stats": EVERYBODY}


def version(call: Globals) -> int:
    """Print the version of dibs."""
    from dibs import __version__

    return call.answer({"version": __version__}, f"dibs {__version__}")


def whoami(call: Globals) -> int:
    """Show who you are to dibs, how it knows, and which space you are in.

    example: --as alice
    """
    from dibs.dibs import Agent

    if call.chosen:
        check_agent("--as", call.agent)
    who = call.who()
    with call.open() as space:
        handle = call.look(space)
        there = isinstance(handle, Agent)
        name = handle.name if isinstance(handle, Agent) else who.name if who else None
        found: dict[str, Any] = {
            "agent": name or space.scope.owner or None,
            "by": said_by(call, space),
            "party": call.party(),
            "session": handle.scope.session if there else None,
            "space": space.space,
            "store": space.scope.daemon or space.scope.store.driver.address,
        }
    if call.json:
        print_json(found)
        return 0
    shown = {name: str(value) for name, value in found.items() if value is not None}
    shown = {"named by" if name == "by" else name: value for name, value in shown.items()}
    shown |= {"agent": called(found["agent"])} if found["agent"] else {}
    shown["store"] = folder(found["store"])
    table([[name, value] for name, value in shown.items()])
    if found["agent"] is None:
        note("you have no name here; claims, messages, tasks and entries need --as NAME")
    elif not there:
        note("there is no session yet; the first command that changes something makes one")
    return 0


def said_by(call: Globals, space: Dibs) -> str:
    """What tells dibs who calls."""
    from dibs.surroundings.who import nearest

    client = nearest(os.environ)
    if call.chosen:
        return "--as"
    if call.session:
        return "DIBS_SESSION"
    if call.agent:
        return "DIBS_AGENT"
    if client is not None:
        return f"the session of {client.name}"
    if space.scope.owner:
        return "the token"
    return "nothing" if call.party() == AGENT else "nothing: this is a person's shell"


def stats(call: Globals) -> int:
    """Show how much there is: agents, leases, tasks, events and the size of the store.

    example: --json
    """
    with call.open() as space:
        now = space.agents.overview(limit=LIST_LIMIT)
        latest = space.events.latest(limit=1)
        found: dict[str, Any] = {
            "space": now.space,
            "agents": len(now.agents),
            "sessions": sum(len(one.sessions) for one in now.agents),
            "leases": len(now.leases),
            "waiting": len(now.waiting),
            "tasks": {state: number for state, number in sorted(now.counts.items()) if number},
            "namespaces": len(space.state.namespaces()),
            "seq": now.seq,
            "last_event_at": latest[-1].at if latest else None,
            "bytes": size(space),
        }
    if call.json:
        print_json(found)
        return 0
    last, tasks, held = found["last_event_at"], found["tasks"], found["bytes"]
    states = ", ".join(f"{number:,} {state}" for state, number in tasks.items())
    shown = {
        "space": called(found["space"]),
        **{name: counted(found[name]) for name in ("agents", "sessions", "leases", "waiting")},
        "tasks": f"{sum(tasks.values()):,}" + (f" ({states})" if states else ""),
        "namespaces": counted(found["namespaces"]),
        "events": f"up to seq {found['seq']:,}" + (f", the last {ago(last)}" if last else ""),
        "size": "" if held is None else f"{held / (1 << 20):,.1f} MiB",
    }
    table([[name, value] for name, value in shown.items() if value])
    return 0


def counted(number: int) -> str:
    return f"{number:,}" if number < LIST_LIMIT else f"{number:,} or more"


def size(space: Dibs) -> int | None:
    """How large the store is on the disk; None where that is another machine's."""
    if space.scope.daemon is not None or space.scope.store.liveness is None:
        return None
    driver = space.scope.store.driver
    return os.stat(driver.address).st_size + driver.log_bytes()
