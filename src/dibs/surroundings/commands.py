"""From words on a command line to the arguments of a function.

Every command is made from a signature: that of an operation, or that of the function `main` of a
command written by hand. What can be given by place is given by place, everything else by name.
`ttl_s` becomes `--ttl 30m`, a list becomes an option that may be given several times, JSON is read
as JSON and, where it is none, as plain text. What stands after `--` belongs to an argument called
`command`, if there is one. The docstring is the help: a summary, more about it, a line
`name: text` for each argument and, for a command written by hand, a line `example: …`.

The module of a command written by hand says in `BY` who may call it and, where the types of its
arguments do not say it, in `KINDS` what these must be like. A module of several commands has a
function for each, of its name, and `BY` says it for each of them.
"""

from __future__ import annotations

import os

from dibs.arguments import FLAG, LINE, Argument, Flag, Json, Kind, Seconds, Whole
from dibs.errors import InvalidError
from dibs.operation import AGENT, PERSON, Items, Operation, arguments_of
from dibs.records import is_plain, quoted
from dibs.surroundings.wording import print_json, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from dibs.dibs import Agent, Dibs
    from dibs.names.paths import Place
    from dibs.surroundings.nearby import Nearby
    from dibs.surroundings.who import Who

# Where a shell has a better word than the library.
RENAMED = {
    "everything": "all",
    "tags": "tag",
    "labels": "label",
    "leases": "lease",
    "clients": "client",
}
HELP = {"mode": "share it with others who share", "retry": "no other attempt can succeed"}
INPUT_LIMIT = 16 * 1024 * 1024
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
        self.tidies = True
        """Whether this process may take the time to prune the store; a hook may not."""
        self.nearby: Nearby | None = None
        """A shorter way to the store, where a hook may use one."""

    def take(self, words: list[str]) -> list[str]:
        """Take the global options out of the words, wherever they stand before `--`."""
        rest: list[str] = []
        words = list(words)
        while words:
            word = words.pop(0)
            if word == "--":
                return [*rest, word, *words]
            name, equals, text = word.partition("=")
            if word == "--json":
                self.json = True
            elif word in ("--help", "-h"):
                self.help = True
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
        from dibs.space.scope import Door

        try:
            start or os.getcwd()
        except FileNotFoundError:
            raise InvalidError("the current directory is gone", next="cd somewhere else") from None
        token = os.environ.get("DIBS_TOKEN") if (self.store or "").startswith(DAEMON) else None
        more: dict[str, Any] = {}
        if limit := os.environ.get("DIBS_SIZE_LIMIT"):
            if not limit.isdecimal() or len(limit) > 18:
                raise InvalidError("DIBS_SIZE_LIMIT must be a number of bytes")
            more["size_limit"] = int(limit)
        space = self.nearby.open(start) if self.nearby else None
        space = space or open(self.store, space=self.space, start=start, token=token, **more)
        place = space.scope.place
        space.scope.door = Door(self.party, lambda: whole_tree_s(place))
        if space.scope.daemon is None:
            store = space.scope.store
            store.keeps = lambda: kept(place)
            if not self.tidies:
                store.tidy = None
        return space

    def answer(self, value: dict[str, Any], text: str) -> int:
        """Print a value for programs, or a text for people; return the exit code."""
        if self.json:
            print_json(value)
        else:
            say(text)
        return 0

    def who(self) -> Who | None:
        """Who calls: as they say with --as, or in whose shell this runs; None if nobody says."""
        from dibs.surroundings.who import Who, of_environment

        if not self.chosen:
            return of_environment(os.environ)
        name = self.agent or ""
        shell = of_environment(os.environ) if self.party() == AGENT else None
        return Who(name) if shell is None else shell.called(name)

    def party(self) -> str:
        """Whether this is a person's terminal or the shell of an agent, by who started it.

        A name says nothing about that: people have one too.
        """
        from dibs.clients import is_agents

        return AGENT if is_agents(os.environ) else PERSON

    def name(self) -> str | None:
        """The name that somebody chose, with --as or in the environment."""
        return self.agent if self.chosen or not self.session else None

    def look(self, space: Dibs) -> Dibs:
        """The session to look from, if there is one already: looking makes none."""
        who = self.who()
        if who is None:
            return space
        return (space.resume(who.token) if who.token else who.find(space)) or space

    def join(self, space: Dibs) -> Agent:
        """The session to act in: the one of the agent whose shell this is, or that of a name."""
        if self.chosen and self.party() != AGENT:
            return space.join(self.agent or "", shell=True)
        who = self.who()
        if who is None:
            raise InvalidError(
                "who are you?", next="give --as NAME, or set DIBS_AGENT=NAME in the environment"
            )
        return who.join(space)


class Command:
    """What can be typed after `dibs`: its words, its arguments, and what its help says.

    about: what is to be said beyond the summary
    by: who may call it
    main: what to call, if it is written by hand
    """

    by: tuple[str, ...] = ()
    main: Callable[..., int]

    def __init__(
        self,
        words: str,
        summary: str,
        about: str,
        arguments: dict[str, Argument],
        renamed: dict[str, str],
        example: str,
    ) -> None:
        self.words = words
        self.summary = summary
        self.about = about
        self.example = example
        self.options = [
            Option(one, renamed.get(one.name, RENAMED.get(one.name, "")))
            for one in arguments.values()
            if not isinstance(one.kind, Items)
        ]
        self.items = next((one for one in arguments.values() if isinstance(one.kind, Items)), None)
        """What is read from the standard input, a line each."""

    @classmethod
    def of(cls, operation: Operation) -> Command:
        arguments, renamed = operation.arguments(), operation.options
        return cls(operation.cli, operation.summary, "", arguments, renamed, operation.example)

    @classmethod
    def by_hand(cls, words: str, module: ModuleType) -> Command:
        """The command that is the function `main` of a module, or the one of its own name."""
        kinds: dict[str, Kind] = getattr(module, "KINDS", {})
        several = isinstance(module.BY, dict)
        main = getattr(module, words.rpartition(" ")[2]) if several else module.main
        arguments = arguments_of(
            main, lambda name, type: kinds.get(name) or by_type(type), ("call",)
        )
        summary, *lines = [line.strip() for line in main.__doc__.splitlines()]
        example, about = f"dibs {words}", []
        for line in lines:
            name, colon, text = line.partition(": ")
            if colon and name == "example":
                example += f" {text}"
            elif not colon or name not in arguments:
                about.append(line)
        command = cls(words, summary, "\n".join(about).strip(), arguments, {}, example)
        command.main, command.by = main, module.BY[words] if several else module.BY
        return command

    def parse(self, words: list[str]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments that the words stand for, by place and by name."""
        named = {option.name: option for option in self.options if not option.placed}
        takes_command = any(option.after_dashes for option in self.options)
        places = any(option.placed and not option.after_dashes for option in self.options)
        placed: list[str] = []
        command: list[str] = []
        given: dict[str, Any] = {}
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                (command if takes_command else placed).extend(rest)
                break
            if not word.startswith("--"):
                # `-5` is a number and `- item` is text, but `-note` was meant to be an option.
                if word[:1] == "-" and word[1:2].isalpha() and " " not in word:
                    raise self._unknown(word)
                if takes_command and not places:
                    # Without the mark, `--json` of the command would be taken for ours.
                    raise self._misuse(f"-- is missing before {word!r}")
                placed.append(word)
                continue
            name, equals, text = word[2:].partition("=")
            option = named.get(name)
            if option is None:
                raise self._unknown(f"--{name}")
            if option.switch:
                if equals:
                    raise self._misuse(f"--{name} takes no value")
                given[option.argument.name] = option.switched_on
                continue
            if not equals:
                if not rest:
                    raise self._misuse(f"--{name} needs a value")
                text = rest.pop(0)
            if option.argument.list:
                given.setdefault(option.argument.name, []).append(text)
            elif option.argument.name in given:
                raise self._misuse(f"--{name} was given twice")
            else:
                given[option.argument.name] = option.value(text)
        values = self._by_place(placed)
        for option in self.options:
            if option.argument.required and not option.placed and option.argument.name not in given:
                raise self._misuse(f"--{option.name} is missing")
        return [*values, *command], given

    def _by_place(self, placed: list[str]) -> list[Any]:
        values: list[Any] = []
        for option in self.options:
            argument = option.argument
            if not option.placed or option.after_dashes:
                continue
            if argument.many:
                values += [option.value(text) for text in placed]
                placed = []
            elif placed:
                values.append(option.value(placed.pop(0)))
            elif argument.required:
                raise self._misuse(f"{argument.name.upper()} is missing")
            else:
                values.append(argument.default)
        if placed:
            raise self._misuse(f"{placed[0]!r} is one word too many")
        return values

    def check(self, named: dict[str, Any]) -> dict[str, Any]:
        """The values that were given by name, or what is wrong with them."""
        options = {option.argument.name: option for option in self.options}
        try:
            return {name: options[name].check(value) for name, value in named.items()}
        except InvalidError as error:
            raise self._misuse(error.message) from None

    def _misuse(self, says: str) -> InvalidError:
        return InvalidError(says, next=f"see: dibs {self.words} --help")

    def _unknown(self, word: str) -> InvalidError:
        names = [f"--{option.name}" for option in self.options if not option.placed]
        return unknown("option", word, names, f"dibs {self.words}")


class Option:
    """One argument as the shell sees it."""

    def __init__(self, argument: Argument, name: str) -> None:
        self.argument = argument
        self.placed = argument.placed
        self.after_dashes = argument.many and argument.name == "command"
        self.seconds = isinstance(argument.kind, Seconds)
        self.name = name or argument.name.removesuffix("_s").replace("_", "-")
        self.help = HELP.get(argument.name, argument.help)
        self.switch = isinstance(argument.kind, Flag)
        self.switched_on: object = argument.default is False
        if argument.name == "mode":
            self.name, self.switch, self.switched_on = "shared", True, "shared"
        elif self.switch and argument.default is True:
            self.name = f"no-{self.name}"

    def value(self, text: str) -> Any:
        kind = self.argument.kind
        if self.seconds:
            return seconds(self.name, text)
        if isinstance(kind, Whole):
            try:
                return int(text)
            except ValueError:
                raise InvalidError(f"{self.name} must be a whole number, not {text!r}") from None
        if isinstance(kind, Json) or self.argument.type.startswith("dict["):
            return json_or_text(text)
        return text

    def check(self, value: Any) -> Any:
        """A value that was given, or what is wrong with it in the words of the shell."""
        kind, what = self.argument.kind, f"--{self.name}"
        if self.argument.list:
            return [kind.check(what, item) for item in value]
        return kind.check(what, value)


def whole_tree_s(place: Place) -> float:
    from dibs.surroundings.settings import load

    return load(place).whole_tree_s


def kept(place: Place) -> tuple[float, int]:
    """How many seconds of the past are kept, and from how many bytes on less."""
    from dibs.surroundings.settings import load

    config = load(place)
    return config.keep_s, config.keep_bytes


def by_type(type: str) -> Kind:
    """What the argument of a command written by hand must be like, where nothing else says it."""
    if type == "bool":
        return FLAG
    if type.startswith("int"):
        return Whole(0)
    return Seconds(0, 366 * 86_400) if type.startswith("float") else LINE


def seconds(what: str, text: str) -> float:
    """`90`, `90s`, `30m`, `2h`, `1d`, `500ms`."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = UNITS.get(text[len(number) :] or "s")
    if unit is not None and number.isascii() and number.replace(".", "", 1).isdecimal():
        return float(number) * unit
    raise InvalidError(f"{what} is not a time: {text!r}", next="write 90, 90s, 30m, 2h or 1d")


def lines_of_json() -> list[Any]:
    """The values on the lines of the standard input."""
    import json
    import sys

    data = sys.stdin.buffer.read(INPUT_LIMIT + 1)
    if len(data) > INPUT_LIMIT:
        raise InvalidError(
            f"more than {INPUT_LIMIT:,} bytes on the standard input",
            next="give them in several calls; split -l 1000 makes files of that many lines",
            limit=INPUT_LIMIT,
        )
    found = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError):
                raise InvalidError(
                    f"line {number} of the standard input is not JSON",
                    next="write one object on each line",
                ) from None
    return found


def json_or_text(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text


def unknown(what: str, word: str, known: list[str], command: str = "dibs") -> InvalidError:
    close = closest(word, known)
    advice = f"did you mean {close}?" if close else f"see: {command} --help"
    typed = word if is_plain(word.replace(" ", "")) else quoted(word)
    return InvalidError(f"there is no {what} {typed}", next=advice)


def closest(word: str, known: list[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(word, known, 1, 0.6)), None)
