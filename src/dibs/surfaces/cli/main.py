"""`dibs COMMAND …`: find the command, call the operation, print the answer.

Data goes to standard output, words to standard error. The exit code says what happened: 0
done, 1 refused, 2 misuse, 75 try again, 70 a bug in dibs, 130 interrupted.

This is the path of every command an agent runs, so it imports only what that command needs.
"""

from __future__ import annotations

import gc
import os
import sys

from dibs.errors import DibsError, InvalidError, NotFoundError, NotYoursError
from dibs.surroundings.commands import Globals
from dibs.surroundings.wording import print_json, utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.dibs import Dibs
    from dibs.operation import Operation
    from dibs.surroundings.who import Who

INTERRUPTED = 130
BUG = 70

# The noun behind a first word that is not a noun itself; a test holds this against the registry.
FIRST_WORDS = {
    "claim": "leases",
    "release": "leases",
    "renew": "leases",
    "revoke": "leases",
    "status": "leases",
    "wait": "leases",
    "send": "messages",
    "announce": "messages",
    "inbox": "messages",
    "ack": "messages",
    "verify": "agents",
    "token": "agents",
    "log": "events",
    "gc": "events",
}
NOUNS = ("leases", "work", "messages", "state", "agents", "events")

# Written by hand, each in a module of its own with a function `main(globals, words) -> int`.
BY_HAND = {
    "init": "set up this repository for every agent client",
    "top": "a live view of agents, leases, work and messages",
    "mcp": "serve the tools of dibs to an agent (MCP)",
    "serve": "serve this space over HTTP, with a live dashboard",
    "demo": "watch several agents share a codebase, in a scratch store",
    "open": "open the dashboard in a browser, signed in",
    "stop": "end the daemon of this space",
    "recover": "bring back what a file held before somebody overwrote it",
    "hook": "answer an event of an agent client or of git",
    "port": "lease a free port and print its number",
    "overlap": "show which files two worktrees both change, and whether they would merge",
    "merge": "merge a branch, or run a command, when it is your turn to merge",
    "run": "run a command as a named session that holds what it claims",
    "doctor": "check that everything is sound, and mend what is not",
    "backup": "copy the store while others write",
    "protocol": "print what an agent needs to know in its prompt",
    "completion": "print the completion script for bash, zsh or fish",
}

COMMAND_MODULES = {
    "init": "dibs.surfaces.init",
}
"""Where those of them are that are not beside this module."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; as a program of its own, end with it."""
    # A command is over before there is garbage worth collecting; a long one still collects.
    gc.set_threshold(100_000)
    mend_streams()
    globals_, code = Globals(), 0
    try:
        try:
            given = sys.argv[1:] if arguments is None else arguments
            globals_.hooked = given[:1] == ["hook"]
            words = globals_.take(given)
            code = run(globals_, words)
        except DibsError as error:
            # To a client whose hook this is, 2 would mean that its tool must not run.
            code = 1 if globals_.hooked else error.exit_code
            complain(globals_, error)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        pass  # whoever read our output has seen enough
    except Exception as error:
        code = BUG
        confess(globals_, error)
    if arguments is None:
        leave(code)
    return code


def leave(code: int) -> None:
    """End at once: to take the interpreter apart costs a tenth of the whole command."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            pass  # nobody can be told any more
    os._exit(code)


def mend_streams() -> None:
    """Let every character be written, and no file of the store become the standard output."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        # The caller closed one; the next file to be opened would get its number.
        while os.open(os.devnull, os.O_RDWR) < 2:
            pass
        sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115
    if not utf8():
        # An emoji in a path becomes an escape, not a crash.
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def run(globals_: Globals, words: list[str]) -> int:
    if words and words[0] == "help":
        globals_.help, words = True, words[1:]
    if not words:
        from dibs.surfaces.cli.help import overview

        print(overview())
        return 0
    if words[0] == "--version":
        from dibs.version import VERSION

        print_json({"version": VERSION}) if globals_.json else print(f"dibs {VERSION}")
        return 0
    if words[0] in BY_HAND:
        module = by_hand(words[0])
        if globals_.help:
            print(module.HELP)
            return 0
        code: int = module.main(globals_, words[1:])
        return code
    if globals_.help and words in (["work"], ["state"], ["events"], ["token"]):
        from dibs.surfaces.cli.help import group

        print(group(words[0]))
        return 0
    operation, rest = find(words)
    if globals_.help:
        from dibs.surfaces.cli.help import describe

        print(describe(operation))
        return 0
    if operation.name == "leases.status" and not rest:
        from dibs.surfaces.cli import board

        return board.main(globals_)
    if operation.name == "events.since":
        from dibs.surfaces.cli import follow

        return follow.main(globals_, operation, rest)
    return call(globals_, operation, rest)


def by_hand(name: str) -> Any:
    """The module of a command that is written by hand."""
    path = COMMAND_MODULES.get(name, f"dibs.surfaces.cli.{name}")
    return __import__(path, fromlist=["main"])


def find(words: list[str]) -> tuple[Operation, list[str]]:
    """The operation that the first words name, and the words that are left for it."""
    from dibs.operation import OPERATIONS
    from dibs.surroundings.commands import unknown

    noun = FIRST_WORDS.get(words[0], words[0])
    if noun not in NOUNS:
        raise unknown("command", words[0], [*FIRST_WORDS, *NOUNS, *BY_HAND, "help"])
    __import__(f"dibs.nouns.{noun}.operations")
    mine = [entry for entry in OPERATIONS.values() if entry.noun == noun]
    # `dibs claim` is also `dibs leases claim`: noun and verb always do.
    named = {f"{entry.noun} {entry.verb}": entry for entry in mine}
    named |= {entry.cli: entry for entry in mine}
    entry = named.get(" ".join(words[:2]))
    if entry is not None:
        return entry, words[2:]
    entry = named.get(words[0])
    # After a noun comes an option or a verb, never a name.
    if entry is not None and (noun != words[0] or not words[1:] or words[1].startswith("-")):
        return entry, words[1:]
    spelled = [name.partition(" ") for name in named]
    verbs = [second for first, _, second in spelled if first == words[0] and second]
    if len(words) == 1:
        raise InvalidError(f"dibs {words[0]} what?", next=f"one of: {', '.join(verbs)}")
    raise unknown("command", f"{words[0]} {words[1]}", [f"{words[0]} {verb}" for verb in verbs])


def call(globals_: Globals, operation: Operation, words: list[str]) -> int:
    """Call the operation as a person or an agent typed it, and print its answer."""
    from dibs.operation import OPERATIONS
    from dibs.surroundings.commands import parse

    placed, named = parse(operation, words)
    if "search" in named:
        operation, placed = OPERATIONS["messages.search"], [named.pop("search")]
        if set(named) - {"limit"}:
            raise InvalidError("--search goes with --limit only", next="leave the others out")
    who = globals_.who()
    if operation.verb == "revoke":
        who = person_only(who)
    with globals_.open() as space:
        handle: Dibs = space
        if who is not None:
            handle = who.join(space)
        elif operation.mutates:
            handle = globals_.join(space)
        method = getattr(getattr(handle, operation.noun), operation.verb)
        try:
            result = method(*placed, **named)
        except NotFoundError as error:
            suggest(error, handle, operation, placed)
            raise
        answer(globals_, operation, result)
        new = operation.name == "leases.claim" and len(result.kept) < len(result.leases)
        if new and not globals_.json:
            from dibs.surfaces.cli.show import others_said

            # As they were typed: the names in the grant are written from the top.
            others_said(handle.leases.outcomes(*placed), result.leases[0].agent)
    return 0


def person_only(who: Who | None) -> Who:
    """Agents do not take things from each other: this is for people, also for one without --as."""
    from dibs.surroundings.who import Who, person

    if who is not None and who.client:
        raise NotYoursError(
            "only people take things away from agents",
            next="ask whoever has it (dibs send TEXT --to AGENT), or wait for it (dibs wait PATH)",
        )
    return who or Who(person())


def suggest(error: NotFoundError, space: Dibs, operation: Operation, placed: list[Any]) -> None:
    """Name the task or the lease that the caller may have meant."""
    from dibs.surroundings.commands import closest

    if operation.noun == "work":
        known = [task.id for task in space.work.list(limit=1000)]
    elif operation.noun == "leases":
        session = None if operation.verb == "revoke" else space.scope.session
        known = [lease.resource for lease in space.leases.list(session=session)]
    else:
        return
    meant = [close for word in placed if word not in known and (close := closest(word, known))]
    if meant:
        error.next = f"did you mean {meant[0]}?"


def answer(globals_: Globals, operation: Operation, result: Any) -> None:
    if globals_.json:
        from dibs.records import plain

        print_json(plain(result))
    else:
        from dibs.surfaces.cli.show import show

        show(operation, result)


def confess(globals_: Globals, error: Exception) -> None:
    """This should not have happened: show where, so that it can be mended."""
    import traceback

    traceback.print_exc()
    advice = "please report it with the lines above"
    if globals_.json:
        message = f"{type(error).__name__}: {error}"
        print_json({"error": "bug", "message": message, "next": advice, "details": {}})
        sys.stdout.flush()
    print(f"dibs: this is a bug; {advice}", file=sys.stderr)


def complain(globals_: Globals, error: DibsError) -> None:
    """Say what was refused, why, and what to do next."""
    if globals_.json:
        print_json(error.to_json())
    else:
        from dibs.surroundings.wording import complaint

        complaint(error)
