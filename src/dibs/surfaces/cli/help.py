"""`dibs`, `dibs help --all` and `dibs COMMAND --help`, made from the commands that there are."""

from __future__ import annotations

from dibs.arguments import (
    FILTER,
    NEWEST,
    AgentName,
    Choice,
    Fields,
    Hex,
    Json,
    ResourceName,
    Seconds,
    TaskId,
    Text,
    When,
    Whole,
)
from dibs.dibs import operations
from dibs.operation import NOUNS
from dibs.records import span
from dibs.surfaces.cli.main import BY_HAND, find, name_by_hand, written_by_hand
from dibs.surroundings.commands import Command, Option

ABOUT = "dibs: agents that share a codebase call dibs before they touch something, and one wins."
FIRST = {
    "Set up this repository": {"init": "for every agent client that is used here"},
    "See what others do": {
        "status": "who is here, who holds what, and what waits for you",
        "inbox": "your unread messages",
    },
    "Take files before you edit them": {
        "claim PATH… --note TEXT": "exactly one agent gets them",
        "release PATH…": "give them back",
    },
    "Share out work": {
        "work add ID --title TEXT": "add a task",
        "work next": "claim the best task that fits you",
    },
    "Talk to other agents": {"send TEXT --to AGENT": "leave a message in the agent's inbox"},
}
"""What to begin with, by task: what to type, and what for."""
MORE = """\
More:
  dibs COMMAND --help            what a command does, with an example
  dibs help --all                every command, and the options that all of them have
  dibs help work                 the commands about tasks; also messages, state, agents, events"""
GROUPS = {
    "Set up and look after": (
        "init", "doctor", "whoami", "version", "config list", "config get", "config set", "adopt",
        "backup", "restore", "key show", "key import", "gc", "reset", "completion",
    ),
    "See what happens": (
        "status", "top", "log", "stats", "report", "contention", "overlap", "vault", "verify",
        "audit seal", "audit check", "telemetry export",
    ),
    "Run commands and agents": (
        "run", "port", "swarm", "swarm status", "swarm logs", "swarm drain", "swarm stop",
        "swarm resume",
    ),
    "Work with git": ("land", "merge", "recover"),
    "Daemon and dashboard": ("serve", "open", "stop", "demo"),
}  # fmt: skip
"""The commands that belong to no noun."""
PLUMBING = (
    "hook", "mcp", "protocol", "candidates", "leases see", "leases report", "agents beat",
    "agents doing", "events latest", "events last", "events watch",
)  # fmt: skip
"""Commands for programs; people hardly ever type them."""
GLOBALS = """\
Everywhere:
  --as NAME      who you are (or DIBS_AGENT; DIBS_SESSION for a session of dibs run)
  --store URL    which store (or DIBS_URL): a file, postgresql://…, or http://… for a daemon
                 (DIBS_TOKEN for somebody else's daemon); by default the repository's own
  --space NAME   which space in a store that holds several (or DIBS_SPACE)
  --json         answer in JSON, refusals too; short for --format json
  --format NAME  answer in text, json, yaml, csv or markdown
  -q, --quiet    print data and errors only
  --color WHEN   use colour: auto (on a terminal, unless NO_COLOR is set), always or never
  --help         what a command does, with an example

Times are 90, 90s, 5 min, 1h30m, 2d or 1w. Exit codes: 0 done, 1 refused, 2 misuse, 75 try again,
70 a bug, 130 interrupted; if there is no task: 3 all done, 4 nothing fits you, 5 try later."""
WIDTH = 24
VALUES = {
    "after_version": "VERSION",
    "agent": "AGENT",
    "assignee": "LOGIN",
    "before": "N",
    "branch": "BRANCH",
    "channel": "CHANNEL",
    "claim": "RESOURCE",
    "conflict": "WHO",
    "cost": "AMOUNT",
    "discard": "SPACE",
    "doing": "TEXT",
    "east_s": "SECONDS",
    "epoch": "EPOCH",
    "expected_version": "VERSION",
    "follows": "TASK",
    "format": "NAME",
    "git_tag": "TAG",
    "host": "HOST",
    "idempotency_key": "KEY",
    "into": "FILE",
    "kind": "KIND",
    "onto": "BRANCH",
    "otlp": "URL",
    "outcome": "OUTCOME",
    "plan": "COMMAND",
    "port": "PORT",
    "precedes": "TASK",
    "prefix": "TEXT",
    "public_host": "HOST",
    "range": "LOW-HIGH",
    "repair": "COMMAND",
    "reply_to": "ID",
    "resolve": "COMMAND",
    "session": "SESSION",
    "task_cost": "AMOUNT",
    "template": "FILE",
    "thread": "ID",
    "title_has": "TEXT",
    "tls_cert": "FILE",
    "tls_key": "FILE",
    "unix": "PATH",
    "verify": "COMMAND",
    "was": "HASH",
}
"""Placeholders for the values of options, where the kind alone would say too little."""
BY_KIND = (
    (TaskId, "TASK"),
    (AgentName, "AGENT"),
    (ResourceName, "RESOURCE"),
    (Whole, "N"),
    (Seconds, "TIME"),
    (When, "SEQ|TIME"),
    (Hex, "HASH"),
    ((Json, Fields), "JSON"),
)


def help_on(words: list[str]) -> str:
    """The help on what the words name; without any, on what to begin with."""
    if not words:
        return beginning()
    if words == ["--all"]:
        return everything()
    if len(words) == 1 and (lines := group(words[0])):
        listed = "\n".join([*lines, "", "See: dibs COMMAND --help"])
        if not is_command(words[0]):
            return listed
        command = written_by_hand(words[0]) if words[0] in BY_HAND else Command.of(find(words)[0])
        return f"{describe(command)}\n\nRelated:\n{listed}"
    if name := name_by_hand(words):
        return describe(written_by_hand(name))
    return describe(Command.of(find(words)[0]))


def is_command(word: str) -> bool:
    """Whether one word is a command by itself, as `leases` is and `work` is not."""
    return word in BY_HAND or any(one.by and one.cli == word for one in operations().values())


def beginning() -> str:
    """The few commands to begin with, by task."""
    lines = [ABOUT]
    for task, typed in FIRST.items():
        lines += ["", f"{task}:", *(f"  dibs {words:<25} {says}" for words, says in typed.items())]
    return "\n".join([*lines, "", MORE])


def everything() -> str:
    """All commands, a line each."""
    lines = [ABOUT]
    for heading, commands in sections():
        lines += ["", f"{heading}:", *(line(one.words, one.summary) for one in commands)]
    return "\n".join([*lines, "", GLOBALS])


def sections() -> list[tuple[str, list[Command]]]:
    """Every command once, below the heading it belongs to; plumbing comes last."""
    every = {command.words: command for command in every_command()}
    found = []
    for noun in NOUNS:
        known = [command for command in offered(noun) if command.words not in PLUMBING]
        found.append((title(noun), known))
    found += [(heading, [every[name] for name in names]) for heading, names in GROUPS.items()]
    return [*found, ("Plumbing, called by programs", [every[name] for name in PLUMBING])]


def every_command() -> list[Command]:
    return [command for noun in (*NOUNS, "") for command in offered(noun)]


def title(noun: str) -> str:
    return "Journal" if noun == "events" else noun.capitalize()


def offered(noun: str) -> list[Command]:
    """The commands of a noun that somebody may call, generated or written by hand."""
    entries = [one for one in operations().values() if one.by and one.noun == noun]
    return [*(Command.of(one) for one in entries if one.cli not in BY_HAND), *by_hand(noun)]


def by_hand(noun: str | None = None) -> list[Command]:
    """The commands that are no operations, of all nouns, of one, or of none ("")."""
    firsts = {name: name.partition(" ")[0] for name in BY_HAND}
    nouns = {
        name: first if first != name and first in NOUNS else "" for name, first in firsts.items()
    }
    return [written_by_hand(name) for name in BY_HAND if noun in (None, nouns[name])]


def line(words: str, summary: str) -> str:
    return f"  dibs {words:<21} {summary}"


def group(word: str) -> list[str]:
    """The commands of one noun, or those that begin with one word, a line each.

    Not the command that is this word, nor those that an option makes of it: its own help has them.
    """
    nouns = {command.words: noun for noun in (*NOUNS, "") for command in offered(noun)}
    return [
        line(command.words, command.summary)
        for command in every_command()
        if word == nouns[command.words] or command.words.startswith(f"{word} ")
        if command.words != word and not command.words.startswith(f"{word} --")
    ]


def describe(command: Command) -> str:
    return "\n".join([about(command), "", f"example: {command.example}", "", GLOBALS])


def about(command: Command) -> str:
    """Usage, summary and arguments."""
    lines = [usage(command), "", command.summary]
    rows = arguments(command)
    if rows:
        lines.append("")
    lines += [f"  {name:<{WIDTH}} {says}".rstrip() for name, says in rows]
    if command.items is not None:
        lines += ["", reads(command)]
    if command.about:
        lines += ["", command.about]
    return "\n".join(lines)


def usage(command: Command) -> str:
    placed = [option for option in command.options if option.placed]
    words = [place(command, option) for option in placed if not option.after_dashes]
    words += ["[options]"] if len(placed) < len(command.options) else []
    words += [place(command, option) for option in placed if option.after_dashes]
    return " ".join(["usage: dibs", command.words, *words])


def arguments(command: Command) -> list[tuple[str, str]]:
    """Each argument as it is typed, and what it is for."""
    placed = [(label(one), one.help) for one in command.options if one.placed]
    named = [
        (spelled(one), f"{explained(one)}{default(one)}")
        for one in command.options
        if not one.placed
    ]
    return [*placed, *named, *variants(command)]


def variants(command: Command) -> list[tuple[str, str]]:
    """Each option that selects another operation, with the arguments that it adds."""
    mine = {option.argument.name for option in command.options}
    found = []
    for one in operations().values():
        if one.cli.startswith(f"{command.words} --"):
            other = [
                label(option)
                for option in Command.of(one).options
                if option.placed and option.argument.name not in mine
            ]
            typed = " ".join([one.cli.removeprefix(command.words)[1:], *other])
            found.append((typed, one.summary[0].lower() + one.summary[1:].removesuffix(".")))
    return found


def reads(command: Command) -> str:
    items = command.items.help if command.items is not None else ""
    return f"Reads JSON from the standard input, one value on each line: {items}."


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
    """The placeholder for a value: a word."""
    argument = option.argument
    many = "…" if argument.many or argument.list else ""
    name = argument.name.upper().removesuffix("S" if many else "").replace("_", "-")
    if option.placed:
        return name + many
    if argument.name in VALUES:
        return VALUES[argument.name] + many
    for kind, word in BY_KIND:
        if isinstance(argument.kind, kind):
            return word + many
    is_text = isinstance(argument.kind, Text) and argument.kind is not FILTER
    return ("TEXT" if is_text else name) + many


def spelled(option: Option) -> str:
    if option.switch:
        return f"--{option.name}"
    kind = option.argument.kind
    if isinstance(kind, Choice):
        choices = f"--{option.name} {'|'.join(kind.choices)}"
        if len(choices) <= WIDTH:
            return choices
    return f"--{option.name} {label(option)}"


def explained(option: Option) -> str:
    """What an option is for, with the choices that were too many to stand beside it."""
    kind = option.argument.kind
    if not isinstance(kind, Choice) or option.switch or spelled(option).endswith(kind.choices):
        return option.help
    return f"{option.help}: {', '.join(kind.choices)}"


def default(option: Option) -> str:
    value = option.argument.default
    if value in (None, "", (), 0, NEWEST) or option.switch:
        return ""
    if isinstance(value, (int, float)) and option.seconds:
        return f" [{value:g}s]" if value % 1 else f" [{span(int(value) * 1000)}]"
    return f" [{value}]"
