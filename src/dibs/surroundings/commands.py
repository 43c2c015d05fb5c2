"""From words on a command line to the arguments of an operation.

The options of a command are the arguments of its operation: what has no default is given by
place, everything else by name. `ttl_s` becomes `--ttl 30m`, a list becomes an option that may
be given several times, JSON is read as JSON and, where it is none, as plain text.
"""

from __future__ import annotations

import os

from dibs.errors import InvalidError
from dibs.operation import Argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.dibs import Agent, Dibs
    from dibs.operation import Operation
    from dibs.surroundings.who import Who

# Where a shell has a better word than the library.
RENAMED = {
    "everything": "all",
    "tags": "tag",
    "leases": "lease",
    ("leases.wait", "wait_s"): "timeout",
    ("events.since", "seq"): "since",
}
# Where an option needs other words than the argument behind it.
HELP = {
    "mode": "share it with others who share",
    "ttl_s": "how long until it lapses unless it is renewed",
    "wait_s": "how long to wait for it",
    "delay_s": "how long until it may be claimed",
    "keep_s": "how much of the past to keep",
    "expires_s": "how long until it opens nothing any more; by default for ever",
    "retry": "no other attempt can succeed",
    ("state.set", "ttl_s"): "how long until the entry is gone",
    ("leases.renew", "ttl_s"): "how long from now; by default as long as it was claimed for",
    ("work.renew", "ttl_s"): "how long from now; by default as long as it was claimed for",
}
# What only the shell has: an option of `dibs log` and one of `dibs messages`.
EXTRA = {
    "events.since": Argument("follow", "bool", "go on with what is added", False, False, False),
    "messages.history": Argument(
        "search", "str", "only those that have all these words", False, False, None
    ),
}
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class Globals:
    """What every command takes: who calls, which store, and how to answer."""

    def __init__(self) -> None:
        self.agent = os.environ.get("DIBS_AGENT")
        self.session = os.environ.get("DIBS_SESSION")
        self.chosen = False
        self.store = os.environ.get("DIBS_URL")
        self.space = os.environ.get("DIBS_SPACE")
        self.json = False
        self.help = False
        self.hooked = False

    def take(self, words: list[str]) -> list[str]:
        """Take the global options out of the words, wherever they stand before `--`."""
        rest: list[str] = []
        words = list(words)
        while words:
            word = words.pop(0)
            if word == "--":
                return [*rest, word, *words]
            name, equals, text = word.partition("=")
            if word in ("--json", "--help", "-h"):
                setattr(self, "help" if word != "--json" else "json", True)
            elif name in ("--as", "--store", "--space"):
                if not equals:
                    if not words:
                        raise InvalidError(f"{name} needs a value")
                    text = words.pop(0)
                setattr(self, "agent" if name == "--as" else name[2:], text)
                if name == "--as":
                    self.session, self.chosen = None, True
            else:
                rest.append(word)
        return rest

    def open(self, start: str | None = None) -> Dibs:
        from dibs.dibs import DAEMON, open

        try:
            start or os.getcwd()
        except FileNotFoundError:
            raise InvalidError("the current directory is gone", next="cd somewhere else") from None
        token = os.environ.get("DIBS_TOKEN") if (self.store or "").startswith(DAEMON) else None
        return open(self.store, space=self.space, start=start, user_dir=self.user_dir,
                    token=token)  # fmt: skip

    @property
    def user_dir(self) -> str | None:
        data = os.environ.get("XDG_DATA_HOME")
        return os.path.join(data, "dibs") if data else None

    def who(self) -> Who | None:
        """Who calls: as they say with --as, or in whose shell this runs; None if nobody says."""
        from dibs.surroundings.who import Who, of_environment

        return Who(self.agent or "") if self.chosen else of_environment(os.environ)

    def join(self, space: Dibs) -> Agent:
        """The session to act in: the one of the agent whose shell this is, or that of a name."""
        who = self.who()
        if who is None:
            raise InvalidError(
                "who are you?", next="give --as NAME, or set DIBS_AGENT=NAME in the environment"
            )
        return who.join(space)


class Option:
    """One argument as the shell sees it."""

    def __init__(self, operation: Operation, argument: Argument) -> None:
        renamed = RENAMED.get((operation.name, argument.name), RENAMED.get(argument.name))
        self.argument = argument
        self.seconds = argument.name.endswith("_s")
        self.name = renamed or argument.name.removesuffix("_s").replace("_", "-")
        self.flag = argument.type == "bool" and argument.default is False
        self.off = argument.type == "bool" and argument.default is True
        self.list = argument.type.startswith("Sequence[")
        self.placed = argument.required or argument.many
        if argument.name == "mode":
            self.name, self.flag = "shared", True
        if self.off:
            self.name = f"no-{self.name}"
        help = HELP.get((operation.name, argument.name), HELP.get(argument.name))
        self.help = help or argument.help

    @property
    def switch(self) -> bool:
        return self.flag or self.off

    def value(self, text: str) -> Any:
        kind = self.argument.type
        if self.seconds:
            return seconds(self.name, text)
        if "int" in kind:
            try:
                return int(text)
            except ValueError:
                raise InvalidError(f"{self.name} must be a whole number, not {text!r}") from None
        if "Any" in kind:
            return json_or_text(text)
        return text


def options(operation: Operation) -> list[Option]:
    arguments = operation.arguments()
    if operation.name in EXTRA:
        arguments.append(EXTRA[operation.name])
    return [Option(operation, argument) for argument in arguments]


def parse(operation: Operation, words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for the operation, by place and by name."""
    known = options(operation)
    named = {option.name: option for option in known if not option.placed}
    placed: list[str] = []
    given: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            placed += rest
            break
        if not word.startswith("--"):
            # `-5` is a number and `- item` is text, but `-note` was meant to be an option.
            if word[:1] == "-" and word[1:2].isalpha() and " " not in word:
                raise unknown("option", word, [f"--{other}" for other in named])
            placed.append(word)
            continue
        name, equals, text = word[2:].partition("=")
        option = named.get(name)
        if option is None:
            raise unknown("option", f"--{name}", [f"--{other}" for other in named])
        if option.switch:
            if equals:
                raise InvalidError(f"--{name} takes no value")
            given[option.argument.name] = "shared" if name == "shared" else option.flag
            continue
        if not equals:
            if not rest:
                raise InvalidError(f"--{name} needs a value")
            text = rest.pop(0)
        if option.list:
            given.setdefault(option.argument.name, []).append(text)
        elif option.argument.name in given:
            raise InvalidError(f"--{name} was given twice")
        else:
            given[option.argument.name] = option.value(text)
    if not placed and "epoch" not in given and "everything" not in given:
        refuse_nothing(operation, known)
    return by_place(operation, known, placed), given


def refuse_nothing(operation: Operation, known: list[Option]) -> None:
    """`dibs release` alone is a slip; `dibs status` alone is a question of its own."""
    many = [option for option in known if option.argument.many]
    if many and operation.name != "leases.status":
        every = any(option.name == "all" for option in known)
        raise InvalidError(
            f"{many[0].argument.name.upper().removesuffix('S')} is missing",
            next=f"name at least one{', or say --all' if every else ''}",
        )


def by_place(operation: Operation, known: list[Option], placed: list[str]) -> list[Any]:
    wanted = [option for option in known if option.placed]
    values = []
    for option in wanted:
        name = option.argument.name.upper()
        if option.argument.many:
            values += [option.value(text) for text in placed]
            placed = []
        elif not placed:
            raise InvalidError(
                f"{name} is missing",
                next=f"see: dibs {operation.cli} --help",
            )
        else:
            values.append(option.value(placed.pop(0)))
    if placed:
        raise InvalidError(
            f"{placed[0]!r} is one word too many", next=f"see: dibs {operation.cli} --help"
        )
    return values


def seconds(what: str, text: str) -> float:
    """`90`, `90s`, `30m`, `2h`, `1d`, `500ms`."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = UNITS.get(text[len(number) :] or "s")
    if unit is not None and number.isascii() and number.replace(".", "", 1).isdecimal():
        return float(number) * unit
    raise InvalidError(f"{what} is not a time: {text!r}", next="write 90, 90s, 30m, 2h or 1d")


def json_or_text(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text


def unknown(what: str, word: str, known: list[str]) -> InvalidError:
    close = closest(word, known)
    return InvalidError(
        f"there is no {what} {word}",
        next=f"did you mean {close}?" if close else "see: dibs --help",
    )


def closest(word: str, known: list[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(word, known, 1, 0.6)), None)
