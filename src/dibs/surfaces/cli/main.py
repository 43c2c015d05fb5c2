"""`dibs COMMAND …`: find the command, call the operation, print the answer.

Data goes to standard output, words to standard error. The exit code says what happened: 0
done, 1 refused, 2 misuse, 3 to 5 no task (see `help`), 75 try again, 70 a bug in dibs, 130
interrupted.

This is the path of every command an agent runs, so it imports only what that command needs.
"""

from __future__ import annotations

import gc
import os
import sys

from dibs.errors import DibsError, InvalidError, NotFoundError, NotYoursError
from dibs.operation import AGENT, NOUNS, OPERATIONS, PEOPLE_ONLY, Operation
from dibs.records import called, plain, shortened, span
from dibs.surroundings.commands import Command, Globals, closest, lines_of_json, unknown
from dibs.surroundings.wording import complaint, note, print_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.dibs import Dibs

INTERRUPTED = 130
BUG = 70

FIRST_WORDS = {
    **dict.fromkeys(("claim", "release", "renew", "wait"), "leases"),
    **dict.fromkeys(("send", "announce", "inbox", "ack"), "messages"),
}
"""The nouns behind the words that agents type most: all others are found by loading every noun."""

# Written by hand: each is the function `main` of a module, or the one of its (last) word.
BY_HAND = {
    "init": "dibs.surfaces.init",
    "status": "dibs.surfaces.cli.views",
    "log": "dibs.surfaces.cli.views",
    "top": "dibs.surfaces.cli.views",
    "gc": "dibs.surfaces.cli.views",
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
    "doctor": "dibs.surfaces.cli.doctor",
    "backup": "dibs.surfaces.cli.doctor",
    "adopt": "dibs.surfaces.cli.adopt",
    "protocol": "dibs.surfaces.cli.help",
    "completion": "dibs.surfaces.cli.help",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; as a program of its own, end with it."""
    # A command is over before there is garbage worth collecting; a long one still collects.
    gc.set_threshold(100_000)
    mend_streams()
    globals_, code = Globals(), 0
    given = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            code = run(globals_, globals_.take(given))
        except DibsError as error:
            # To a client whose hook this is, 2 would mean that its tool must not run.
            code = 1 if given[:1] == ["hook"] else error.exit_code
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
    if sys.stdout.encoding.lower() != "utf-8":
        # An emoji in a path becomes an escape, not a crash.
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def run(globals_: Globals, words: list[str]) -> int:
    if words[:1] == ["help"]:
        globals_.help, words = True, words[1:]
    if words[:1] == ["--version"]:
        from dibs import __version__

        return globals_.answer({"version": __version__}, f"dibs {__version__}")
    if not words or globals_.help:
        from dibs.surfaces.cli.help import help_on

        print(help_on(words))
        return 0
    if name := name_by_hand(words):
        return by_hand(globals_, name, words[name.count(" ") + 1 :])
    return call(globals_, *find(words))


def name_by_hand(words: list[str]) -> str:
    """The command written by hand that the first words name; none if they name no such."""
    return next((name for name in (" ".join(words[:2]), words[0]) if name in BY_HAND), "")


def by_hand(globals_: Globals, name: str, words: list[str]) -> int:
    command = written_by_hand(name)
    placed, named = command.parse(words)
    if AGENT not in command.by and globals_.party() == AGENT:
        raise NotYoursError(
            f"only people may do this (dibs {name}), and this is an agent's shell", next=PEOPLE_ONLY
        )
    return command.main(globals_, *placed, **command.check(named))


def written_by_hand(name: str) -> Command:
    return Command.by_hand(name, __import__(BY_HAND[name], fromlist=["BY"]))


def find(words: list[str]) -> tuple[Operation, list[str]]:
    """The operation that the first words name, and the words that are left for it."""
    noun = FIRST_WORDS.get(words[0], words[0])
    if noun in NOUNS:
        __import__(f"dibs.nouns.{noun}.operations")
    else:
        from dibs.dibs import operations

        operations()
    offered = [entry for entry in OPERATIONS.values() if entry.by]
    # `dibs claim` is also `dibs leases claim`: noun and verb always do.
    named = {f"{entry.noun} {entry.verb}": entry for entry in offered}
    named |= {entry.cli: entry for entry in offered}
    entry, rest = named.get(" ".join(words[:2])), words[2:]
    if entry is None:
        entry, rest = named.get(words[0]), words[1:]
        # After a noun comes an option or a verb, never a name.
        if words[0] in NOUNS and rest and not rest[0].startswith("-"):
            entry = None
    if entry is None:
        raise no_command(words, named)
    return variant(entry, rest, named)


def variant(
    entry: Operation, words: list[str], named: dict[str, Operation]
) -> tuple[Operation, list[str]]:
    """The operation that an option makes of another one, as `--take` does of `dibs claim`."""
    for place, word in enumerate(words):
        if word == "--":
            break
        option, equals, text = word.partition("=")
        other = named.get(f"{entry.cli} {option}") if option.startswith("--") else None
        if other is not None and not (place and takes_value(entry, words[place - 1])):
            return other, [*words[:place], *([text] if equals else []), *words[place + 1 :]]
    return entry, words


def takes_value(operation: Operation, word: str) -> bool:
    """Whether the word is an option of the operation that what follows belongs to."""
    options = Command.of(operation).options
    return any(word == f"--{option.name}" for option in options if not option.switch)


def no_command(words: list[str], named: dict[str, Operation]) -> InvalidError:
    spelled = [name.partition(" ") for name in [*named, *BY_HAND]]
    verbs = [second for first, _, second in spelled if first == words[0] and second.isalpha()]
    if not verbs:
        firsts = {first for first, _, _ in spelled}
        return unknown("command", words[0], sorted({*firsts, *NOUNS, "help"}))
    if len(words) == 1:
        return InvalidError(f"dibs {words[0]} what?", next=f"one of: {', '.join(verbs)}")
    return unknown("command", f"{words[0]} {words[1]}", [f"{words[0]} {verb}" for verb in verbs])


def call(globals_: Globals, operation: Operation, words: list[str]) -> int:
    """Call the operation as a person or an agent typed it, and print its answer."""
    command = Command.of(operation)
    placed, named = command.parse(words)
    refuse_nothing(operation, placed, named)
    if AGENT not in operation.by:
        operation.permit(globals_.party())
    if command.items is not None:
        named[command.items.name] = lines_of_json()
    with globals_.open() as space:
        handle = acting(globals_, operation, space)
        method = getattr(getattr(handle, operation.noun), operation.verb)
        try:
            result = method(*placed, **named)
        except NotFoundError as error:
            suggest(error, handle, operation, placed)
            raise
        if command.items is not None:
            return answer_each(globals_, operation, result)
        answer(globals_, operation, result)
        if operation.name == "work.list" and not named.get("everything"):
            limit = named.get("limit") or operation.arguments()["limit"].default
            if len(result) == limit:
                note(f"cut after {limit}; there may be more: --all, or --after {result[-1].seq}")
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
        new = operation.name == "leases.claim" and len(result.kept) < len(result.leases)
        if new and not globals_.json:
            from dibs.surfaces.cli.show import others_said

            # As they were typed: the names in the grant are written from the top.
            others_said(handle.leases.outcomes(*placed), result.leases[0].agent)
    return 0


def acting(globals_: Globals, operation: Operation, space: Dibs) -> Dibs:
    """The space as the caller sees it; without a name it can only be looked at."""
    if globals_.chosen or globals_.who() is not None:
        return globals_.join(space)
    if not operation.mutates:
        return space
    if AGENT in operation.by:
        return globals_.join(space)  # or rather, a refusal
    from dibs.surroundings.who import person

    return space.join(person(), shell=True)


def refuse_nothing(operation: Operation, placed: list[Any], named: dict[str, Any]) -> None:
    """`dibs release` alone is a slip."""
    many = operation.many
    instead = {"epoch", "everything", "kind", "title_has"}
    if many is not None and not placed and not instead & named.keys():
        every = "everything" in operation.arguments()
        raise InvalidError(
            f"{many.name.upper().removesuffix('S')} is missing",
            next=f"name at least one{', or say --all' if every else ''}",
        )


def suggest(error: NotFoundError, space: Dibs, operation: Operation, placed: list[Any]) -> None:
    """Name the task or the lease that the caller may have meant."""
    if operation.noun == "work":
        known = [task.id for task in space.work.list(limit=1000)]
    elif operation.noun == "leases":
        session = None if operation.verb == "revoke" else space.scope.session
        known = [lease.resource for lease in space.leases.list(session=session)]
    else:
        return
    meant = [close for word in placed if word not in known and (close := closest(word, known))]
    if meant:
        error.next = f"did you mean {called(meant[0])}?"


def answer(globals_: Globals, operation: Operation, result: Any) -> None:
    if globals_.json:
        print_json(plain(result))
    else:
        from dibs.surfaces.cli.show import show

        show(operation, result)


def answer_each(globals_: Globals, operation: Operation, result: Any) -> int:
    """Answer a line for each that was given; the exit code is that of the first refusal."""
    refused = [(place, one) for place, one in enumerate(result, 1) if isinstance(one, DibsError)]
    if globals_.json:
        for one in result:
            print_json(plain(one))
    else:
        answer(globals_, operation, tuple(one for one in result if not isinstance(one, DibsError)))
        for place, error in refused:
            error.message = f"item {place}: {error.message}"
            complaint(error)
    return refused[0][1].exit_code if refused else 0


def confess(globals_: Globals, error: Exception) -> None:
    """This should not have happened: show where, so that it can be mended."""
    import traceback

    note(traceback.format_exc().rstrip())
    advice = "please report it with the lines above"
    if globals_.json:
        message = f"{type(error).__name__}: {error}"
        print_json({"error": "bug", "message": message, "next": advice, "details": {}})
        sys.stdout.flush()
    note(f"dibs: this is a bug; {advice}")


def complain(globals_: Globals, error: DibsError) -> None:
    """Say what was refused, why, and what to do next."""
    if globals_.json:
        print_json(error.to_json())
    else:
        complaint(error)
