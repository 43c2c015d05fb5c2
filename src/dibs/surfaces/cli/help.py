"""`dibs --help` and `dibs COMMAND --help`, from the operation registry."""

from __future__ import annotations

from dibs.dibs import operations
from dibs.operation import NEWEST
from dibs.records import span
from dibs.surfaces.cli.main import BY_HAND
from dibs.surroundings.commands import Option, options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.operation import Operation

GLOBALS = """\
Everywhere:
  --as NAME      who you are (or DIBS_AGENT; DIBS_SESSION for a session of dibs run)
  --store URL    which store (or DIBS_URL): a file, postgresql://…, or http://… for a daemon
                 (with DIBS_TOKEN where it is not yours); by default the repository's
  --space NAME   which space in a store that holds several (or DIBS_SPACE)
  --json         answer in JSON, refusals too
  --help         what a command does, with an example

Times are 90, 90s, 30m, 2h or 1d. Exit codes: 0 done, 1 refused, 2 misuse, 75 try again,
70 a bug, 130 interrupted."""

GROUPS = (
    ("Leases", "leases"),
    ("Work", "work"),
    ("Messages", "messages"),
    ("State", "state"),
    ("Agents", "agents"),
    ("Journal", "events"),
)


SUMMARIES = {
    "leases.status": "Say who has these paths; without any, show everything that a turn needs."
}


def overview() -> str:
    """All commands, a line each."""
    parts = ["dibs: agents that share a codebase call dibs before they touch something.\n"]
    known = operations()
    for title, noun in GROUPS:
        parts.append(f"{title}:")
        parts += [line(entry) for entry in known.values() if entry.noun == noun]
        parts.append("")
    parts.append("Tools:")
    parts += [f"  dibs {name:<20} {summary}" for name, summary in BY_HAND.items()]
    return "\n".join([*parts, "", GLOBALS])


def line(operation: Operation) -> str:
    return f"  dibs {operation.cli:<20} {summary(operation)}"


def summary(operation: Operation) -> str:
    """What the command does; `dibs status` does more than its operation."""
    return SUMMARIES.get(operation.name, operation.summary)


def group(word: str) -> str:
    """The commands of one noun, or those that begin with one word."""
    lines = [
        line(entry)
        for entry in operations().values()
        if word in (entry.noun, entry.cli.partition(" ")[0])
    ]
    return "\n".join([*lines, "", f"See: dibs {word} COMMAND --help"])


def describe(operation: Operation) -> str:
    """One command: usage, arguments, example."""
    return "\n".join([about(operation), "", f"example: {operation.example}", "", GLOBALS])


def about(operation: Operation) -> str:
    """Usage, summary and arguments."""
    known = options(operation)
    placed = [option for option in known if option.placed]
    named = [option for option in known if not option.placed]
    usage = " ".join(
        ["usage: dibs", operation.cli, *map(placeholder, placed), "[options]" if named else ""]
    ).strip()
    lines = [usage, "", summary(operation)]
    if known:
        lines.append("")
    for option in placed:
        lines.append(f"  {placeholder(option):<24} {option.help}")
    for option in named:
        lines.append(f"  {spelled(option):<24} {option.help}{default(option)}")
    return "\n".join(lines)


def placeholder(option: Option) -> str:
    name = option.argument.name.upper()
    return f"{name.removesuffix('S')}…" if option.argument.many else name


def spelled(option: Option) -> str:
    if option.switch:
        return f"--{option.name}"
    value = option.argument.name.upper().removesuffix("S").rpartition("_")[2]
    value = "TIME" if option.seconds else value
    return f"--{option.name} {value}" + ("…" if option.list else "")


def default(option: Option) -> str:
    value = option.argument.default
    if value in (None, "", (), 0, NEWEST) or option.switch:
        return ""
    return f" [{span(int(value) * 1000)}]" if option.seconds else f" [{value}]"  # type: ignore[call-overload]
