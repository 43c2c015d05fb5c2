"""`dibs COMMAND …`: find the command, call the operation, print the answer.

Data goes to standard output, words to standard error. The exit code says what happened: 0
done, 1 refused, 2 misuse, 3 to 5 no task (see `help`), 75 try again, 70 a bug in dibs, 74 the
output could not be written, 130 interrupted.

This is the path of every command an agent runs, so it imports only what that command needs.
"""

from __future__ import annotations

import errno
import gc
import os
import sys

from dibs.errors import (
    UNREADABLE,
    CorruptError,
    DibsError,
    InvalidError,
    NotFoundError,
    NotYoursError,
)
from dibs.operation import AGENT, NOUNS, OPERATIONS, PEOPLE_ONLY, Operation
from dibs.records import called, plain, shortened, span
from dibs.surroundings.commands import Command, Globals, lines_of_json
from dibs.surroundings.wording import complaint, note, print_json, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.dibs import Dibs
    from dibs.records import Task

INTERRUPTED = 130
NAMED = 10
BUG = 70
UNWRITTEN = 74
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a write to a standard stream fails with; the store has errors of its own for these."""

FIRST_WORDS = {
    **dict.fromkeys(("claim", "release", "renew", "wait"), "leases"),
    **dict.fromkeys(("send", "announce", "inbox", "ack"), "messages"),
}
"""The nouns of the most frequent commands; for any other, all nouns are loaded."""

# Written by hand: each is the function `main` of a module, or the one of its (last) word.
BY_HAND = {
    "init": "dibs.surfaces.init",
    **dict.fromkeys(("version", "whoami", "stats"), "dibs.surfaces.cli.about"),
    **dict.fromkeys(("config list", "config get", "config set"), "dibs.surfaces.cli.config"),
    "status": "dibs.surfaces.cli.views",
    "log": "dibs.surfaces.cli.log",
    "top": "dibs.surfaces.cli.top",
    "gc": "dibs.surfaces.cli.views",
    **dict.fromkeys(("report", "contention"), "dibs.surfaces.cli.report"),
    "vault": "dibs.surfaces.cli.vault",
    "mcp": "dibs.surfaces.stdio",
    "serve": "dibs.surfaces.http.daemon_commands",
    "demo": "dibs.surfaces.cli.demo",
    "open": "dibs.surfaces.http.daemon_commands",
    "stop": "dibs.surfaces.http.daemon_commands",
    "recover": "dibs.surfaces.hooks.recover",
    "hook": "dibs.surfaces.hooks.hook",
    "port": "dibs.surfaces.cli.port",
    "overlap": "dibs.surfaces.cli.overlap",
    "merge": "dibs.surfaces.hooks.commit",
    "run": "dibs.surfaces.cli.run",
    "land": "dibs.surfaces.cli.land",
    **dict.fromkeys(
        ("swarm", "swarm status", "swarm logs", "swarm drain", "swarm stop", "swarm resume"),
        "dibs.surfaces.cli.swarm",
    ),
    "work plan": "dibs.surfaces.cli.work_plan",
    "work run": "dibs.surfaces.cli.work_run",
    "work refill": "dibs.surfaces.cli.work_refill",
    "work import": "dibs.surfaces.cli.work_import",
    "work export": "dibs.surfaces.cli.work_export",
    "work sync": "dibs.surfaces.cli.work_sync",
    "verify": "dibs.surfaces.cli.audit",
    "audit seal": "dibs.surfaces.cli.audit",
    "audit check": "dibs.surfaces.cli.audit",
    "telemetry export": "dibs.surfaces.cli.telemetry",
    "doctor": "dibs.surfaces.cli.doctor",
    **dict.fromkeys(("backup", "restore", "reset"), "dibs.surfaces.cli.backups"),
    "adopt": "dibs.surfaces.cli.adopt",
    "key show": "dibs.surfaces.cli.key_show",
    "key import": "dibs.surfaces.cli.key_import",
    "protocol": "dibs.surfaces.cli.protocol_text",
    **dict.fromkeys(("completion", "candidates"), "dibs.surfaces.cli.completion"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; as a program, exit with it."""
    # A command ends before there is garbage worth collecting; a long one still collects.
    gc.set_threshold(100_000)
    prepare_streams()
    globals_, code = Globals(), 0
    given = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            code = run(globals_, globals_.take(given))
        except DibsError as error:
            # In a hook, 2 would tell the client to block its tool.
            code = 1 if given[:1] == ["hook"] else error.exit_code
            complain(globals_, error)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        pass  # the reader has closed the pipe
    except Exception as error:
        code = failed(globals_, error, code)
    if arguments is None:
        leave(code)
    return code


def say_unwritten(error: OSError) -> None:
    """Say that the output is not complete; what the command changed stays changed."""
    text = (
        f"dibs: the output could not be written: {error.strerror}\n"
        "next: make room for it; before you repeat a command that changes something, check with "
        "dibs log whether it was done"
    )
    try:
        print(text, file=sys.stderr)
    except OSError:
        pass  # there is nobody left to tell


def leave(code: int) -> None:
    """Exit at once: shutting the interpreter down takes a tenth of the whole command."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            pass  # there is nobody left to tell
    os._exit(code)


def prepare_streams() -> None:
    """Make every character writable, and keep files of the store off the standard streams."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        # The caller closed one of them; the next file that is opened would take its place.
        while os.open(os.devnull, os.O_RDWR) < 2:
            pass
        sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout.encoding.lower() != "utf-8":
        # An emoji in a path becomes an escape, not a crash.
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def run(globals_: Globals, words: list[str]) -> int:
    if words[:1] == ["help"]:
        globals_.help, words = True, words[1:]
    if words[:1] in (["--version"], ["-V"]):
        words = ["version"]
    if not words or globals_.help:
        from dibs.surfaces.cli.help import help_on

        print(help_on(words))
        return 0
    if name := name_by_hand(words):
        return by_hand(globals_, name, words[name.count(" ") + 1 :])
    return call(globals_, *find(words))


def name_by_hand(words: list[str]) -> str:
    """The command written by hand that the first words name; empty if there is none."""
    return next((name for name in (" ".join(words[:2]), words[0]) if name in BY_HAND), "")


def by_hand(globals_: Globals, name: str, words: list[str]) -> int:
    command = written_by_hand(name)
    placed, named = command.parse(globals_.take_format(words, command))
    if AGENT not in command.by and globals_.party() == AGENT:
        raise NotYoursError(
            f"only people may do this (dibs {name}), but this is an agent's shell", next=PEOPLE_ONLY
        )
    given = command.check(named)
    try:
        return command.main(globals_, *placed, **given)
    except InvalidError as error:
        raise command.advised(error) from None


def written_by_hand(name: str) -> Command:
    return Command.by_hand(name, __import__(BY_HAND[name], fromlist=["BY"]))


def find(words: list[str]) -> tuple[Operation, list[str]]:
    """The operation that the first words name, and the remaining words."""
    noun = FIRST_WORDS.get(words[0], words[0])
    if noun in NOUNS:
        __import__(f"dibs.nouns.{noun}.operations")
    else:
        from dibs.dibs import operations

        operations()
    offered = [entry for entry in OPERATIONS.values() if entry.by]
    # `dibs claim` is also `dibs leases claim`: noun and verb always work.
    named = {f"{entry.noun} {entry.verb}": entry for entry in offered}
    named |= {entry.cli: entry for entry in offered}
    entry, rest = named.get(" ".join(words[:2])), words[2:]
    if entry is None:
        entry, rest = named.get(words[0]), words[1:]
        # After a noun comes an option or a verb, never a name.
        if words[0] in NOUNS and rest and not rest[0].startswith("-"):
            entry = None
    if entry is None:
        from dibs.surfaces.cli.slips import no_command

        raise no_command(words, named)
    return variant(entry, rest, named)


def variant(
    entry: Operation, words: list[str], named: dict[str, Operation]
) -> tuple[Operation, list[str]]:
    """The operation that an option selects, such as `--take` of `dibs claim`."""
    for place, word in enumerate(words):
        if word == "--":
            break
        option, equals, text = word.partition("=")
        other = named.get(f"{entry.cli} {option}") if option.startswith("--") else None
        if other is not None and not (place and takes_value(entry, words[place - 1])):
            return other, [*words[:place], *([text] if equals else []), *words[place + 1 :]]
    return entry, words


def takes_value(operation: Operation, word: str) -> bool:
    """Whether the word is an option that takes the next word as its value."""
    options = Command.of(operation).options
    return any(word == f"--{option.name}" for option in options if not option.switch)


def call(globals_: Globals, operation: Operation, words: list[str]) -> int:
    """Call the operation as a person or an agent typed it, and print its answer."""
    command = Command.of(operation)
    words = globals_.take_format(words, command)
    try:
        placed, named = command.parse(words)
    except InvalidError as error:
        if operation.noun == "state":
            from dibs.surfaces.cli.slips import two_words

            two_words(error, operation, words)
        raise
    refuse_nothing(operation, placed, named)
    if AGENT not in operation.by:
        operation.permit(globals_.party(), f"dibs {operation.cli}")
    if command.items is not None:
        named[command.items.name] = lines_of_json()
    with globals_.open() as space:
        handle = acting(globals_, operation, space)
        stranger = operation.name == "messages.send" and unknown_agent(handle, named.get("to"))
        try:
            result = called_patiently(globals_, operation, handle, placed, named)
        except NotFoundError as error:
            from dibs.surfaces.cli.slips import suggest

            suggest(error, handle, operation, placed)
            raise
        except InvalidError as error:
            if not globals_.json:
                from dibs.surfaces.cli.slips import name_as_typed

                name_as_typed(error, command)
            raise command.advised(error) from None
        if command.items is not None:
            code = answer_each(globals_, operation, result)
            if operation.name == "work.add_many":
                warn_of_needs(handle, [one for one in result if not isinstance(one, DibsError)])
            return code
        answer(globals_, operation, result)
        if stranger:
            warn(stranger)
        if operation.name in ("work.add", "work.edit"):
            warn_of_needs(handle, (result,))
        if operation.name == "work.add" and " " in result.id and not result.title:
            warn(f"{called(result.id)} is the id of the task; its title is what --title says")
        limit = operation.arguments().get("limit")
        if limit is not None and isinstance(result, tuple):
            at_most = named.get("limit", limit.default)
            if len(result) == at_most and not named.get("everything"):
                from dibs.surfaces.cli.show import cut

                cut(operation, result, at_most)
        if operation.grants and AGENT not in operation.by and not globals_.json:
            name = result.leases[0].agent
            name = called(name)
            note(f"held by {name}; when you are done: dibs release PATH… --as {name}")
        if operation.noun == "leases" and operation.freely and not globals_.json:
            asked = named.get("ttl_s")
            leases = getattr(result, "leases", result)
            if shortened(leases, asked and asked * 1000):
                note(
                    f"an agent holds a whole tree for {span(leases[0].ttl_ms)} at most, renewals "
                    "included: claim the paths you need, or ask the person you work for"
                )
        if operation.name == "leases.claim" and not globals_.json and globals_.is_shared(space):
            note(f"in the space {called(space.space)}, which others of this store may share")
        if operation.verb in ("claim", "renew") and not globals_.json:
            longer(operation, result, named.get("ttl_s"))
        new = operation.name == "leases.claim" and len(result.kept) < len(result.leases)
        if new and not globals_.json:
            from dibs.surfaces.cli.show import others_said

            # By the names that were typed: those in the grant begin at the top of the checkout.
            others_said(handle.leases.outcomes(*placed), result.leases[0].agent)
    return 1 if result is None else 0


def called_patiently(
    globals_: Globals, operation: Operation, space: Dibs, placed: list[Any], named: dict[str, Any]
) -> Any:
    """The operation's result; if the call waits for leases, it says who is in the way."""
    method = getattr(getattr(space, operation.noun), operation.verb)
    claims = operation.name == "leases.claim" and named.get("wait_s")
    if globals_.json or not (claims or operation.name == "leases.wait"):
        return method(*placed, **named)
    from dibs.surroundings.patience import Waiting

    with Waiting(space, placed):
        return method(*placed, **named)


def longer(operation: Operation, result: Any, ttl_s: float | None) -> None:
    """Say that a lease or a task which is held for longer than asked stays so."""
    if ttl_s is None:
        return
    if operation.noun == "work":
        held = [(result.id, result.due_in_ms or 0)]
    else:
        leases = getattr(result, "leases", result)
        held = [(lease.resource, lease.expires_in_ms) for lease in leases]
    for name, left_ms in held:
        if left_ms > ttl_s * 1000:
            note(
                f"{called(name)} stays yours for {span(left_ms)}, which is longer than --ttl; to "
                "shorten that, give it back and claim it again"
            )


def warn_of_needs(space: Dibs, tasks: Sequence[Task]) -> None:
    """Say if tasks wait for some that nobody has added, which may be a slip or a plan."""
    if any(task.after for task in tasks if task.state == "blocked"):
        from dibs.surfaces.cli.slips import unknown_needs

        if said := unknown_needs(space, tasks):
            warn(said)


def unknown_agent(space: Dibs, name: str | None) -> str:
    """What to say about a message to somebody who has never been here; "" if there is nothing.

    It is sent anyway: an agent that joins under that name finds it.
    """
    if name is None:
        return ""
    known = [one.agent for one in space.agents.list(everybody=True)]
    if name in known:
        return ""
    from dibs.surroundings.commands import closest

    close = closest(name, known)
    hint = f"did you mean {called(close[0])}? " if close else ""
    others = ", ".join(map(called, sorted(known)[:NAMED])) or "nobody"
    return (
        f"nobody called {called(name)} has been here yet; {hint}the message waits for an "
        f"agent of that name (known: {others}{', …' if len(known) > NAMED else ''})"
    )


def acting(globals_: Globals, operation: Operation, space: Dibs) -> Dibs:
    """The space as the caller sees it; without a name, the caller can only read."""
    nameless = not globals_.chosen and globals_.who() is None
    if nameless and not operation.mutates:
        return space
    return globals_.join(space, people=AGENT not in operation.by)


def refuse_nothing(operation: Operation, placed: list[Any], named: dict[str, Any]) -> None:
    """Refuse `dibs release` without anything to release."""
    many = operation.many
    instead = {"epoch", "everything", "kind", "title_has"}
    if many is not None and not placed and not instead & named.keys():
        every = "everything" in operation.arguments()
        raise InvalidError(
            f"{many.name.upper().removesuffix('S')} is missing",
            next=f"name at least one{', or give --all' if every else ''}",
        )


def answer(globals_: Globals, operation: Operation, result: Any) -> None:
    if globals_.json:
        print_json(plain(result), operation.columns)
    else:
        from dibs.surfaces.cli.show import show

        show(operation, result)


def answer_each(globals_: Globals, operation: Operation, result: Any) -> int:
    """Print one line for each item; the exit code is that of the first refusal."""
    refused = [(place, one) for place, one in enumerate(result, 1) if isinstance(one, DibsError)]
    if globals_.format == "json":
        for one in result:
            print_json(plain(one))
    else:
        answer(globals_, operation, tuple(one for one in result if not isinstance(one, DibsError)))
        for place, error in refused:
            error.message = f"item {place}: {error.message}"
            complaint(error)
    return refused[0][1].exit_code if refused else 0


def failed(globals_: Globals, error: Exception, code: int) -> int:
    """Say why a command failed in a way that none should; return the exit code.

    code: the exit code before the output failed
    """
    if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
        say_unwritten(error)
        return code or UNWRITTEN
    if isinstance(error, UNREADABLE):
        try:
            with globals_.open() as space:
                space.scope.blame(error)  # no operation has noticed what cannot be shown either
        except CorruptError as corrupt:
            complain(globals_, corrupt)
            return corrupt.exit_code
        except DibsError:
            pass  # there is no store
    confess(globals_, error)
    return BUG


def confess(globals_: Globals, error: Exception) -> None:
    """Show where dibs itself went wrong, so that it can be fixed."""
    import traceback

    warn(traceback.format_exc().rstrip())
    advice = "please report it with the lines above"
    if globals_.format == "json":
        message = f"{type(error).__name__}: {error}"
        print_json({"error": "bug", "message": message, "next": advice, "details": {}})
        sys.stdout.flush()
    warn(f"dibs: this is a bug; {advice}")


def complain(globals_: Globals, error: DibsError) -> None:
    """Say what was refused, why, and what to do next."""
    if globals_.format == "json":
        print_json(error.to_json())
    else:
        from dibs.surfaces.cli.slips import IN_THE_SHELL

        error.next = IN_THE_SHELL.get(error.next or "", error.next)
        complaint(error)
