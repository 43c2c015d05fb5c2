"""Write docs/reference.md from the source: operations, records, errors and limits.

    python -m tools.reference            write it
    python -m tools.reference --check    fail if it is not what would be written

A test does the same check, so the page cannot fall behind the code.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import dibs
from dibs import aio, arguments, errors, records
from dibs.dibs import operations
from dibs.names import checkouts, globs, paths
from dibs.nouns.agents import operations as agents
from dibs.nouns.events import operations as events
from dibs.nouns.leases import operations as leases
from dibs.nouns.messages import operations as messages
from dibs.nouns.state import operations as state
from dibs.nouns.work import adding, tasks
from dibs.nouns.work import operations as work
from dibs.operation import Operation
from dibs.space import scope
from dibs.storage import postgres_connect, postgres_pipeline, sqlite
from dibs.storage import postgres_transaction as postgres

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"

NOUNS = {
    "leases": leases,
    "work": work,
    "messages": messages,
    "state": state,
    "agents": agents,
    "events": events,
}

HEAD = """\
# Reference

This page is made from the source by `make docs`; do not edit it. It says how each operation is
called. What dibs promises is in [guarantees.md](guarantees.md), and [library.md](library.md) is a
guide to the library.

- [Opening a space](#opening-a-space)
- [Operations](#operations): {nouns}
- [Records](#records)
- [Errors](#errors)
- [Limits](#limits)
"""

AGENT_HEAD = """\
It is a `Dibs` that also has `name`, `session` (a number) and `token`, which another process needs
to act in this session.
"""

HELD = """\
`lease`, `next_task` and `task` return an object for a `with` block, and `tasks` yields such
objects. All have `check()`, which raises if the claim has been lost, `lost` (why it was lost, or
None) and `left_s`. A lease also has `epoch` and `grant`. A task also has `task` and `result`, which
it is completed with.
"""

AIO = """\
`AsyncDibs` and `AsyncAgent` have the same nouns, operations and methods as `Dibs` and `Agent`.
Their operations are awaited. What `aio.open`, `join`, `resume` and `subagent` return can be awaited
or entered with `async with`. `lease`, `next_task` and `task` are entered with `async with`, and
`tasks` is iterated with `async for`. `sync` is the synchronous object behind each.
[library.md](library.md) is a guide to both.
"""

AIO_OPEN = """\
Open a space for asynchronous code. The arguments are those of [dibs.open](#dibsopen).
"""

OPERATIONS_HEAD = """\
## Operations

Every operation is a method of one of the six nouns: `agent.leases.claim(...)`. An argument after
`*` is given by name. Reading needs no session. Changing something or reading an inbox does: call it
on what `join` returned.

Besides the errors that are named, every operation can raise [`InvalidError`](#errors) for a wrong
argument, [`NotYoursError`](#errors) where a session is needed and there is none or it has ended,
and every kind of [`UnavailableError`](#errors) if the store cannot answer.

A refused call changes nothing. An operation that takes `idempotency_key` is done once per agent
and key: asked again with the same key and the same arguments, it gives the first answer.
"""

RECORDS_HEAD = """\
## Records

Records are frozen and compared by value. `to_json()` and `from_json()` turn them into plain
JSON and back. `*_at` is wall-clock time in milliseconds since 1970, for people to read; for each,
`*_datetime` is the same time as an aware `datetime` in UTC (`granted_at`: `granted_datetime`; `at`:
`datetime`), which is not in the JSON. The times of a [`WorkPlan`](#workplan) are counted from now
and have none. `*_in_ms` is the time that is left. Use it for decisions.
"""

ERRORS_HEAD = """\
## Errors

Every error has `message`, `next` (what to do about it) and `details` (the records behind the
sentence), and `to_json()` gives the one shape that every surface shows. The code never changes.
`retry_after_ms` is set if a retry can help.
"""

LIMITS_HEAD = """\
## Limits

A value above a limit is refused with an `InvalidError` that states the limit.
"""

FIGURES_HEAD = """\
Other figures:
"""

# A test checks that no limit of arguments.py is left out.
LIMITS: list[tuple[object, str, str]] = [
    (arguments, "NAME_LIMIT", "characters in a name: agent, task id, namespace, key, channel, tag"),
    (arguments, "TEXT_LIMIT", "characters in a note, a title, a reason or a status line"),
    (arguments, "BODY_LIMIT", "characters in a message"),
    (arguments, "VALUE_LIMIT", "bytes of JSON in an entry, a payload or a result"),
    (arguments, "DEPTH_LIMIT", "levels of nesting in JSON"),
    (arguments, "LIST_LIMIT", "rows in one answer, and names or items in one list argument"),
    (arguments, "TTL_MIN_S", "seconds a claim or a session lives, at least"),
    (arguments, "TTL_MAX_S", "seconds a claim or a session lives, at most (7 days)"),
    (arguments, "WAIT_MAX_S", "seconds in one wait (a day)"),
    (arguments, "DELAY_MAX_S", "seconds before a task may be claimed or a token ends (366 days)"),
    (arguments, "CLAIM_LIMIT", "resources in one claim"),
    (arguments, "ITEMS_LIMIT", "characters in all items of one call of `add_many` and the like"),
    (arguments, "RESOURCE_LIMIT", "characters in a resource"),
    (paths, "MAX_NAME", "characters in a named resource such as `port:3000`"),
    (globs, "MAX_LENGTH", "characters in a glob"),
    (paths, "MAX_COMPONENT_BYTES", "bytes in one component of a path"),
    (arguments, "PRIORITY", "the highest priority; its negative is the lowest"),
    (arguments, "ATTEMPTS_MAX", "attempts that a task may be given"),
    (arguments, "AGENTS_MAX", "agents that a plan may be for"),
]

FIGURES: list[tuple[object, str, str]] = [
    (
        checkouts,
        "MAX_HASHED_BYTES",
        "bytes; the content of a larger file is not hashed at the claim",
    ),
    (adding, "ATTEMPTS", "attempts a task has by default"),
    (tasks, "BACKOFF_MS", "milliseconds of pause after the first failure, then doubled each time"),
    (tasks, "BACKOFF_MAX_MS", "milliseconds of pause between attempts, at most"),
    (messages, "WORD_LIMIT", "characters of a word by which a message is found"),
    (scope, "SESSION_TTL_S", "seconds a session lives without a beat, by default (PostgreSQL)"),
    (sqlite, "BUSY_S", "seconds a write waits for its turn, then `BusyError` (SQLite)"),
    (postgres, "LOCK_MS", "milliseconds a write waits for its turn, then `BusyError` (PostgreSQL)"),
    (postgres, "IDLE_MS", "milliseconds after which the server cuts off a frozen writer"),
    (postgres_connect, "CONNECT_S", "seconds to find a PostgreSQL, then `DisconnectedError`"),
    (postgres_pipeline, "ANSWER_S", "seconds it may stay silent, then `DisconnectedError`"),
]


def render() -> str:
    """The whole page."""
    nouns = ", ".join(f"[{noun}](#{noun})" for noun in NOUNS)
    parts = [HEAD.format(nouns=nouns), *opening(), OPERATIONS_HEAD]
    for noun, module in NOUNS.items():
        parts.append(f"### {noun}\n\n{first_line(module.__doc__)}\n")
        parts += [describe(entry) for entry in operations().values() if entry.noun == noun]
    parts += [RECORDS_HEAD, *map(record, records.Record.__subclasses__())]
    parts += [ERRORS_HEAD, table_of_errors(), LIMITS_HEAD, table(LIMITS)]
    parts += [FIGURES_HEAD, table(FIGURES)]
    return "\n".join(parts)


def first_line(doc: str | None) -> str:
    return inspect.cleandoc(doc or "").split("\n\n")[0].replace("\n", " ")


def whole(doc: str | None) -> str:
    return inspect.cleandoc(doc or "")


def opening() -> Iterator[str]:
    yield "## Opening a space\n"
    yield function("dibs.open", dibs.open, "###")
    yield f"### Dibs\n\n{first_line(dibs.Dibs.__doc__)} `dibs.open` returns one.\n"
    yield f"It has the nouns {', '.join(f'`{noun}`' for noun in NOUNS)} and the name `space`.\n"
    for verb in public_methods(dibs.Dibs):
        yield function(f"Dibs.{verb}", getattr(dibs.Dibs, verb))
    yield f"### Agent\n\n{first_line(dibs.Agent.__doc__)} `join` returns one.\n"
    yield AGENT_HEAD
    for verb in public_methods(dibs.Agent):
        yield function(f"Agent.{verb}", getattr(dibs.Agent, verb))
    yield HELD
    yield f"### dibs.aio\n\n{first_line(aio.__doc__)}\n"
    yield AIO
    yield f"#### aio.open\n\n`aio.open({parameters(aio.open)})`\n\n{AIO_OPEN}"
    yield function("aio.call", aio.call)
    for name in ("using", "each"):
        kind = getattr(aio, name)
        yield f"#### aio.{name}\n\n`aio.{name}({parameters(kind)})`\n\n{whole(kind.__doc__)}\n"


def public_methods(kind: type) -> list[str]:
    own = vars(kind).items()
    return [name for name, value in own if inspect.isfunction(value) and name[0] != "_"]


def function(name: str, method: Callable[..., object], level: str = "####") -> str:
    """A function that is no operation: its signature and its docstring."""
    arguments = inspect.signature(method).parameters
    prose: list[str] = []
    helps: list[str] = []
    for line in inspect.cleandoc(method.__doc__ or "").splitlines():
        argument, colon, help = line.partition(": ")
        if colon and argument in arguments:
            helps.append(f"- `{argument}`: {help}")
        elif helps and line.startswith("    "):
            helps[-1] += f" {line.strip()}"
        else:
            prose.append(line)
    paragraphs = ["\n".join(prose).strip(), "\n".join(helps)]
    body = "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
    return f"{level} {name}\n\n`{name}({parameters(method)})`\n\n{body}\n"


def describe(entry: Operation) -> str:
    """One operation: summary, arguments, result and errors."""
    arguments = entry.arguments()
    lines = [
        f"#### {entry.name}",
        "",
        entry.summary,
        "",
        f"`{entry.name}({parameters(entry.method)})`",
        "",
    ]
    if arguments:
        lines += ["| argument | type | default | |", "|---|---|---|---|"]
        for one in arguments.values():
            default = "" if one.required or one.many else f"`{shown(one.default)}`"
            kind = cell(one.type)
            lines.append(f"| `{one.name}` | `{kind}` | {default} | {cell(one.help)} |")
        lines.append("")
    raised = ", ".join(f"`{error.__name__}`" for error in entry.raises)
    lines.append(f"Returns {linked(entry.result)}." + (f" Raises {raised}." if raised else ""))
    return "\n".join([*lines, ""])


def parameters(method: Callable[..., object]) -> str:
    """What stands between the parentheses of a call."""
    parts: list[str] = []
    for one in inspect.signature(method).parameters.values():
        if one.name in ("self", "tx"):
            continue
        if one.kind is one.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        star = "*" * (one.kind is one.VAR_POSITIONAL) or "**" * (one.kind is one.VAR_KEYWORD)
        default = "" if one.default is one.empty else f"={shown(one.default)}"
        parts.append(f"{star}{one.name}{default}")
    return ", ".join(parts)


def shown(value: object) -> str:
    return "2**62" if value == 2**62 else repr(value)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def linked(result: str) -> str:
    """The type of a result; the record in it leads to its fields."""
    for one in records.Record.__subclasses__():
        if one.__name__ in result.replace("[", " ").replace(",", " ").split():
            return f"[`{result}`](#{one.__name__.lower()})"
    return f"`{result}`"


def record(one: type[records.Record]) -> str:
    lines = [
        f"### {one.__name__}",
        "",
        first_line(one.__doc__),
        "",
        "| field | type |",
        "|---|---|",
    ]
    kinds = inspect.get_annotations(one)
    lines += [f"| `{name}` | `{cell(kinds[name])}` |" for name in one._fields]
    return "\n".join([*lines, ""])


def all_errors(base: type[errors.DibsError] = errors.DibsError) -> Iterator[type[errors.DibsError]]:
    """Every error class of the library, each after the one it is a kind of."""
    yield base
    for one in base.__subclasses__():
        if one.__module__ == errors.__name__:
            yield from all_errors(one)


def table_of_errors() -> str:
    lines = [
        "| error | kind of | code | HTTP | exit | retry after | meaning |",
        "|---|---|---|--:|--:|--:|---|",
    ]
    for one in all_errors():
        base = "" if one is errors.DibsError else f"`{one.__bases__[0].__name__}`"
        pause = getattr(one, "retry_after_ms", None)
        after = "" if pause is None else f"{pause:,} ms"
        lines.append(
            f"| `{one.__name__}` | {base} | `{one.code}` | {one.http_status} | {one.exit_code} "
            f"| {after} | {cell(first_line(one.__doc__))} |"
        )
    return "\n".join([*lines, ""])


def table(rows: list[tuple[object, str, str]]) -> str:
    lines = ["| name | value | of what |", "|---|--:|---|"]
    for module, name, meaning in rows:
        lines.append(f"| `{name}` | {getattr(module, name):,} | {meaning} |")
    return "\n".join([*lines, ""])


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != render():
            sys.exit("docs/reference.md is out of date: run make docs")
    else:
        PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
