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

WIDTH = 24
VALUES = {
    "claim": "PATH",
    "note": "TEXT",
    "range": "LOW-HIGH",
    "since": "SEQ",
    "tls_cert": "FILE",
    "tls_key": "FILE",
    "unix": "PATH",
}
"""What stands for a value where the name of its argument says little."""
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
    for title, noun in GROUPS:
        parts.append(f"{title}:")
        parts += [line(command.words, command.summary) for command in offered(noun)]
        parts.append("")
    parts.append("Tools:")
    parts += [line(command.words, command.summary) for command in by_hand()]
    return "\n".join([*parts, "", GLOBALS])


def offered(noun: str) -> list[Command]:
    """The commands of a noun that somebody may call, but for those that a tool stands for."""
    return [
        Command.of(entry)
        for entry in operations().values()
        if entry.by and entry.noun == noun and entry.cli not in BY_HAND
    ]


def by_hand() -> list[Command]:
    """The commands that are no operations."""
    return [
        Command.by_hand(name, __import__(module, fromlist=["BY"]))
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
    usage = [place(command, option) for option in placed if not option.after_dashes]
    usage += ["[options]"] if named else []
    usage += [place(command, option) for option in placed if option.after_dashes]
    lines = [" ".join(["usage: dibs", command.words, *usage]), "", command.summary]
    if command.options:
        lines.append("")
    for option in placed:
        lines.append(f"  {label(option):<{WIDTH}} {option.help}")
    for option in named:
        lines.append(f"  {spelled(option):<{WIDTH}} {option.help}{default(option)}")
    if command.about:
        lines += ["", command.about]
    return "\n".join(lines)


def place(command: Command, option: Option) -> str:
    """What is given by place, in brackets if it may be left out."""
    name, needed = label(option), option.argument.required
    if option.after_dashes:
        name, needed = f"-- {name}", sum(one.placed for one in command.options) == 1
    elif option.argument.many:
        # An operation on nothing is a slip; other commands then look at everything.
        needed = not command.by
    return name if needed else f"[{name}]"


def label(option: Option) -> str:
    """What stands for a value."""
    name = option.argument.name
    many = "…" if option.argument.many or option.argument.list else ""
    shown = VALUES.get(name) or name.upper().removesuffix("S").rpartition("_")[2]
    return shown + many


def spelled(option: Option) -> str:
    if option.switch:
        return f"--{option.name}"
    if option.seconds:
        return f"--{option.name} TIME"
    kind = option.argument.kind
    if isinstance(kind, Choice):
        choices = f"--{option.name} {'|'.join(kind.choices)}"
        if len(choices) <= WIDTH:
            return choices
    return f"--{option.name} {label(option)}"


def default(option: Option) -> str:
    value = option.argument.default
    if value in (None, "", (), 0, NEWEST) or option.switch:
        return ""
    if isinstance(value, (int, float)) and option.seconds:
        return f" [{value:g}s]" if value % 1 else f" [{span(int(value) * 1000)}]"
    return f" [{value}]"
