"""`dibs --help` and `dibs COMMAND --help`, from the operation registry."""

from __future__ import annotations

from dibs.arguments import NEWEST, Choice
from dibs.dibs import operations
from dibs.records import span
from dibs.surfaces.cli.main import BY_HAND
from dibs.surroundings.commands import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Option

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


def overview() -> str:
    """All commands, a line each."""
    parts = ["dibs: agents that share a codebase call dibs before they touch something.\n"]
    offered = [entry for entry in operations().values() if entry.by]
    for title, noun in GROUPS:
        parts.append(f"{title}:")
        parts += [
            line(entry.cli, entry.summary)
            for entry in offered
            if entry.noun == noun and entry.cli not in BY_HAND
        ]
        parts.append("")
    parts.append("Tools:")
    parts += [line(command.words, command.summary) for command in by_hand()]
    return "\n".join([*parts, "", GLOBALS])


def by_hand() -> list[Command]:
    """The commands that are no operations."""
    return [
        Command.by_hand(name, __import__(module, fromlist=["main"]))
        for name, module in BY_HAND.items()
    ]


def line(words: str, summary: str) -> str:
    return f"  dibs {words:<20} {summary}"


def group(word: str) -> str:
    """The commands of one noun, or those that begin with one word."""
    lines = [
        line(entry.cli, entry.summary)
        for entry in operations().values()
        if entry.by and word in (entry.noun, entry.cli.partition(" ")[0])
    ]
    return "\n".join([*lines, "", f"See: dibs {word} COMMAND --help"])


def describe(command: Command) -> str:
    """One command: usage, arguments, example."""
    return "\n".join([about(command), "", f"example: {command.example}", "", GLOBALS])


def about(command: Command) -> str:
    """Usage, summary and arguments."""
    placed = [option for option in command.options if option.placed]
    named = [option for option in command.options if not option.placed]
    usage = " ".join(
        ["usage: dibs", command.words, "[options]" if named else "", *map(placeholder, placed)]
    )
    lines = [" ".join(usage.split()), "", command.summary]
    if command.options:
        lines.append("")
    for option in placed:
        lines.append(f"  {option.argument.name.upper():<24} {option.help}")
    for option in named:
        lines.append(f"  {spelled(option):<24} {option.help}{default(option)}")
    if command.about:
        lines += ["", command.about]
    return "\n".join(lines)


def placeholder(option: Option) -> str:
    name = option.argument.name.upper()
    if option.after_dashes:
        return f"[-- {name}…]"
    if option.argument.many:
        return f"{name.removesuffix('S')}…"
    return name if option.argument.required else f"[{name}]"


def spelled(option: Option) -> str:
    if option.switch:
        return f"--{option.name}"
    kind = option.argument.kind
    value = option.argument.name.upper().removesuffix("S").rpartition("_")[2]
    if isinstance(kind, Choice):
        value = "|".join(kind.choices)
    elif option.seconds:
        value = "TIME"
    return f"--{option.name} {value}" + ("…" if option.argument.list else "")


def default(option: Option) -> str:
    value = option.argument.default
    if value in (None, "", (), 0, NEWEST) or option.switch:
        return ""
    return f" [{span(int(value) * 1000)}]" if option.seconds else f" [{value}]"  # type: ignore[call-overload]
