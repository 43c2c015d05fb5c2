"""From words on a command line to the arguments of a function.

Every command is made from a signature: that of an operation, or that of the function `main` of a
command written by hand. Positional parameters are given by place, all others by name. `ttl_s`
becomes `--ttl 30m`, a list becomes an option that may be repeated, and JSON is parsed if it is
valid, and otherwise taken as text. `@file` stands for the content of a file where JSON is expected,
and `-` for the standard input, there and for the body of a message. Words after `--` belong to an
argument called `command`, if there is one. The docstring is the help: a summary, details, a line
`name: text` for each argument and, for a command written by hand, a line `example: …`.

The module of a command written by hand says in `BY` who may call it and, where the types of its
arguments do not say it, in `KINDS` what these must be like. `DESTRUCTIVE` names the commands that
are never offered to somebody who mistyped another one; `WERE` says what options are called now that
had another name. A module of several commands has a function for each, and `BY` has an entry for
each of them.
"""

from __future__ import annotations

import os

from dibs.arguments import (
    BODY_LIMIT,
    FLAG,
    LINE,
    UNITS,
    Argument,
    Choice,
    Flag,
    Json,
    Kind,
    ResourceName,
    Seconds,
    Text,
    Whole,
    duration,
)
from dibs.errors import InvalidError
from dibs.operation import AGENT, PERSON, Items, Operation, arguments_of
from dibs.records import called, folder, is_plain, quoted
from dibs.surroundings.wording import (
    be_quiet,
    choose_color,
    choose_format,
    note,
    print_json,
    say,
    warn,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from dibs.dibs import Agent, Dibs
    from dibs.names.paths import Place
    from dibs.storage.retention import Retention
    from dibs.surroundings.nearby import Nearby
    from dibs.surroundings.who import Who

# Where the shell has a better word than the library.
RENAMED = {
    "everything": "all",
    "tags": "tag",
    "labels": "label",
    "leases": "lease",
    "clients": "client",
}
HELP = {"mode": "share it with others who also share it", "retry": "no other attempt can succeed"}
WORDS = ("tags", "labels")
"""Arguments that can have several values in one word, separated by commas."""
INPUT_LIMIT = 16 * 1024 * 1024
FORMATS = Choice("text", "json", "yaml", "csv", "markdown")
"""The formats of answers; `--json` is short for `--format json`."""
COLORS = Choice("auto", "always", "never")
RISKY = ("--all", "--discard", "--force", "--remove", "--take", "--yes")
"""Options that are never offered to somebody who typed something else."""
SAME = (
    ("wait", "timeout", "wait-for", "max-wait"),
    ("after", "depends-on", "depends", "needs", "requires", "blocked-by", "deps"),
    ("note", "message", "comment", "description", "reason", "title", "why"),
    ("ttl", "duration", "expires", "for"),
    ("limit", "last", "max", "count", "lines", "n"),
    ("follow", "watch", "tail"),
    ("to", "recipient"),
)
"""Names of options for the same thing, by which somebody may know it from elsewhere."""


class Globals:
    """What every command takes: who calls, which store, and how to answer."""

    def __init__(self) -> None:
        self.agent = os.environ.get("DIBS_AGENT")
        self.session = os.environ.get("DIBS_SESSION")
        self.chosen = False
        self.store = os.environ.get("DIBS_URL")
        self.space = os.environ.get("DIBS_SPACE")
        self.format = "text"
        self.help = False
        self.tidies = True
        """Whether this process may take the time to prune the store; a hook may not."""
        self.nearby: Nearby | None = None
        """A faster way to the store, for hooks."""

    def take(self, words: list[str]) -> list[str]:
        """Take the global options out of the words, anywhere before `--`."""
        rest: list[str] = []
        words = list(words)
        while words:
            word = words.pop(0)
            if word == "--":
                return [*rest, word, *words]
            name, equals, text = word.partition("=")
            if word == "--json":
                self.choose("json")
            elif name == "--format" and not rest:
                words = self.take_format([word, *words])
            elif word in ("--help", "-h"):
                self.help = True
            elif word in ("--quiet", "-q"):
                be_quiet()
            elif name in ("--as", "--store", "--space", "--color"):
                if not equals:
                    if not words:
                        raise InvalidError(f"{name} needs a value", next="see: dibs --help")
                    text = words.pop(0)
                if name == "--color":
                    choose_color(COLORS.check("--color", text))
                    continue
                setattr(self, "agent" if name == "--as" else name[2:], text)
                if name == "--as":
                    self.session, self.chosen = None, True
            else:
                rest.append(word)
        return rest

    @property
    def json(self) -> bool:
        """Whether the answer is for programs, in any of their formats."""
        return self.format != "text"

    def choose(self, format: str) -> None:
        self.format = FORMATS.check("--format", format)
        choose_format(self.format)

    def take_format(self, words: list[str], command: Command | None = None) -> list[str]:
        """Take `--format` out of the words, unless it names a format of the command's own."""
        own = command.formats() if command is not None else ()
        if own and "text" not in own:
            return words  # not of the answer: `dibs work import` reads a file in it
        rest, words = list[str](), list(words)
        while words and words[0] != "--":
            name, equals, text = words[0].partition("=")
            if name != "--format":
                rest.append(words.pop(0))
                continue
            if not equals and len(words) == 1:
                names = dict.fromkeys((*own, *FORMATS.choices))
                raise InvalidError("--format needs a value", next=f"one of: {', '.join(names)}")
            value, taken = (text, words[:1]) if equals else (words[1], words[:2])
            words = words[len(taken) :]
            if value in own or (own and value not in FORMATS.choices):
                rest += taken
            else:
                self.choose(value)
        return [*rest, *words]

    def open(self, start: str | None = None) -> Dibs:
        from dibs.dibs import DAEMON, POSTGRES, open
        from dibs.space.scope import Door

        try:
            start or os.getcwd()
        except FileNotFoundError:
            raise InvalidError("the current directory is gone", next="cd to another one") from None
        token = os.environ.get("DIBS_TOKEN") if (self.store or "").startswith(DAEMON) else None
        if trace := os.environ.get("TRACEPARENT"):
            from dibs.storage.store import TRACE
            from dibs.storage.tracing import checked

            TRACE.set(checked(trace))
        more: dict[str, Any] = {}
        if limit := os.environ.get("DIBS_SIZE_LIMIT"):
            if not limit.isdecimal() or len(limit) > 18:
                raise InvalidError("DIBS_SIZE_LIMIT must be a number of bytes")
            more["size_limit"] = int(limit)
        if (self.store or "").startswith(POSTGRES):
            more["key"] = self._key(start)
        named = self._named_file()
        made = named if named and not os.path.lexists(named) else ""
        space = self.nearby.open(start) if self.nearby else None
        space = space or open(self.store, space=self.space, start=start, token=token, **more)
        place = space.scope.place
        space.scope.door = Door(self.party, lambda: whole_tree_s(place))
        if space.scope.daemon is None:
            store = space.scope.store
            store.keeps = lambda: kept(place)
            store.tidy = space.scope.tidy if self.tidies else None
        if made and self.tidies and not self.json:
            note(f"made a new store: {folder(made)}")
        return space

    def _named_file(self) -> str:
        """The file of the store that somebody named, if it is one: the name may be misspelt."""
        path = (self.store or "").removeprefix("sqlite://")
        return "" if "://" in path or path.startswith("unix:") else path

    def _key(self, start: str | None) -> bytes | None:
        """The key in DIBS_KEY; None for the one in this user's data folder.

        A temporary machine must not make a key: the space would be locked for all others.
        """
        from dibs.dibs import key_of

        if text := os.environ.get("DIBS_KEY"):
            return key_of(text)
        if os.environ.get("CI", "").lower() not in ("", "0", "false") and not self.own_key(start):
            raise InvalidError(
                f"this CI machine has no key for the space {called(self.space_there(start))}",
                next="run dibs key show on your own machine, and set DIBS_KEY to it as a secret of "
                "the CI; a key that is made here would be lost with this machine",
            )
        return None

    def own_key(self, start: str | None = None) -> bytes | None:
        """The key of a space on a server that this user's data folder has."""
        from dibs.dibs import key_name
        from dibs.storage.folder import Own
        from dibs.storage.user_dir import default_user_dir

        own = Own(os.path.realpath(default_user_dir()))
        return own.read(key_name(self.space_there(start)))

    def space_there(self, start: str | None = None) -> str:
        """The space that is meant in the store that was named."""
        from dibs.dibs import default_space
        from dibs.names.paths import find_place
        from dibs.storage.user_dir import default_user_dir

        return self.space or default_space(self.store or "", find_place(start, default_user_dir()))

    def is_shared(self, space: Dibs) -> bool:
        """Whether somebody named a store that is not the repository's own, and has spaces."""
        return bool(self.store) and space.scope.shared

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
        """Whether this is a person's terminal or an agent's shell, by the process that started it.

        A name does not tell, because people have names too.
        """
        from dibs.clients import is_agents

        return AGENT if is_agents(os.environ) else PERSON

    def name(self) -> str | None:
        """The name given with --as or in the environment."""
        return self.agent if self.chosen or not self.session else None

    def look(self, space: Dibs) -> Dibs:
        """The caller's session if there is one; reading does not create one."""
        who = self.who()
        if who is None:
            return space
        return (space.resume(who.token) if who.token else who.find(space)) or space

    def join(self, space: Dibs, people: bool = False) -> Agent:
        """The session to act in: the one of the agent whose shell this is, or that of a name.

        people: whether a person needs to give no name for this, as `named` says
        """
        if self.chosen and self.party() != AGENT:
            return space.join(self.agent or "", shell=True)
        who = self.who()
        if who is not None:
            return who.join(space)
        return space.join(self.named(space, people), shell=True)

    def named(self, space: Dibs, people: bool = False) -> str:
        """The caller's name. This is the only rule, and the first point that applies wins:

        1. the name given with --as;
        2. in an agent's shell, that agent's; elsewhere DIBS_AGENT;
        3. at a daemon, the name of the token, if that is an agent's;
        4. with `people`, a person's login name: for what only people do (deciding, signing in), and
           for what runs under its own name (imports, landings, workers, swarms).

        A claim, a message or a task of a person needs a name: under the login name, nobody could
        tell the person's terminals and agents apart.
        """
        from dibs.surroundings.who import person

        who = None if self.chosen else self.who()
        name = self.agent if self.chosen or who is None else who.name
        name = name or space.scope.owner or (person() if people else "")
        if not name:
            raise InvalidError(
                "who are you?", next="give --as NAME, or set DIBS_AGENT=NAME in the environment"
            )
        return name


class Command:
    """What can be typed after `dibs`: its words, its arguments, and what its help says.

    about: the rest of the help, after the summary
    by: who may call it
    destructive: whether it ends or removes something that cannot simply be asked for again
    main: what to call, if it is written by hand
    """

    destructive = False
    by: tuple[str, ...] = ()
    main: Callable[..., int]
    were: dict[str, str] = {}
    """Earlier names of its options, for people who still use them."""

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
        """What is read from the standard input, one value per line."""

    @classmethod
    def of(cls, operation: Operation) -> Command:
        arguments, renamed = operation.arguments(), operation.options
        command = cls(operation.cli, operation.summary, "", arguments, renamed, operation.example)
        command.destructive = operation.destructive
        return command

    @classmethod
    def by_hand(cls, words: str, module: ModuleType) -> Command:
        """The command made from the function `main` of a module, or from the one with its name."""
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
        command.were = getattr(module, "WERE", {})
        command.destructive = words in getattr(module, "DESTRUCTIVE", ())
        return command

    def parse(self, words: list[str]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments that the words give, by place and by name."""
        try:
            return self._parse(words)
        except InvalidError as error:
            raise self.advised(error) from None

    def _parse(self, words: list[str]) -> tuple[list[Any], dict[str, Any]]:
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
                    raise self._unknown(word, takes_command)
                if takes_command and not places:
                    # Without it, `--json` of the command would be taken for an option of dibs.
                    raise InvalidError(f"-- is missing before {word!r}")
                placed.append(word)
                continue
            name, equals, text = word[2:].partition("=")
            option = named.get(name)
            if option is None:
                raise self._unknown(f"--{name}")
            if option.switch:
                if equals:
                    raise InvalidError(f"--{name} takes no value")
                given[option.argument.name] = option.switched_on
                continue
            if not equals:
                if not rest:
                    raise InvalidError(f"--{name} needs a value")
                text = rest.pop(0)
            if option.seconds and rest:
                refuse_unit(option.typed, text, rest[0])
            if option.argument.list:
                given.setdefault(option.argument.name, []).extend(option.values(text))
            elif option.argument.name in given:
                raise InvalidError(f"--{name} was given twice")
            else:
                given[option.argument.name] = option.value(text)
        values = self._by_place(placed)
        for option in self.options:
            if option.argument.required and not option.placed and option.argument.name not in given:
                raise InvalidError(f"--{option.name} is missing")
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
                raise InvalidError(f"{argument.name.upper()} is missing")
            else:
                values.append(argument.default)
        if placed:
            raise InvalidError(f"{placed[0]!r} is an extra word")
        return values

    def formats(self) -> tuple[str, ...]:
        """What its own option `--format` can be, if it has one."""
        kinds = [option.argument.kind for option in self.options if option.name == "format"]
        return next((kind.choices for kind in kinds if isinstance(kind, Choice)), ())

    def check(self, named: dict[str, Any]) -> dict[str, Any]:
        """The values that were given by name, or what is wrong with them."""
        options = {option.argument.name: option for option in self.options}
        try:
            return {name: options[name].check(value) for name, value in named.items()}
        except InvalidError as error:
            raise self.advised(error) from None

    def advised(self, error: InvalidError) -> InvalidError:
        """The error, which at least says where to read on."""
        error.next = error.next or f"see: dibs {self.words} --help"
        return error

    def _unknown(self, word: str, takes_command: bool = False) -> InvalidError:
        if word[2:] in self.were:
            return InvalidError(f"there is no {word}", next=f"use --{self.were[word[2:]]}")
        names = [f"--{option.name}" for option in self.options if not option.placed]
        error = unknown("option", word, names, f"dibs {self.words}", instead=another(word, names))
        if takes_command and (error.next or "").startswith("see: "):
            error.next = "write -- before your own command and its options"
        return error


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
        placed = argument.name.upper()
        if argument.many:
            placed = placed.removesuffix("S")
        self.typed = placed if self.placed else f"--{self.name}"
        """What a person calls it; the library has another name for some."""

    def values(self, text: str) -> list[Any]:
        """What one use of an option adds to a list; one word may have several tags or labels."""
        if self.argument.name in WORDS:
            return [part for word in text.split(",") if (part := word.strip())] or [text]
        return [self.value(text)]

    def value(self, text: str) -> Any:
        kind = self.argument.kind
        if self.seconds:
            return seconds(self.typed, text)
        if isinstance(kind, Whole):
            try:
                return int(text)
            except ValueError:
                raise InvalidError(f"{self.typed} must be a whole number, not {text!r}") from None
        if isinstance(kind, Json) or self.argument.type.startswith("dict["):
            return json_or_text(self.typed, content(self.typed, text))
        if text == "-" and isinstance(kind, Text) and kind.length == BODY_LIMIT:
            return standard_input()
        if isinstance(kind, ResourceName):
            refuse_comma(text)
        return text

    def check(self, value: Any) -> Any:
        """The value if it is valid; errors name the option as it is typed."""
        kind, what = self.argument.kind, self.typed
        if self.argument.list:
            return [kind.check(what, item) for item in value]
        return kind.check(what, value)


def whole_tree_s(place: Place) -> float:
    from dibs.surroundings.settings import load

    return load(place).whole_tree_s


def kept(place: Place) -> Retention:
    """How much of the past is kept, and where the rest is exported to."""
    from dibs.storage.retention import Retention
    from dibs.surroundings.settings import load

    config = load(place)
    if config.doubt:
        # Somebody who has set this may not want the defaults, and what is removed is gone.
        raise InvalidError(
            f"nothing is removed, because in .dibs/config.toml {config.doubt}",
            next="correct it; dibs config list shows the values in use",
        )
    folder = os.path.join(place.store_dir, "export") if config.exports else None
    export = os.environ.get("DIBS_EXPORT") or folder
    return Retention(config.keep_s, config.keep_bytes, config.ages, export)


def by_type(type: str) -> Kind:
    """The kind of an argument of a command written by hand, from its type."""
    if type == "bool":
        return FLAG
    if type.startswith("int"):
        return Whole(0)
    return Seconds(0, 366 * 86_400) if type.startswith("float") else LINE


A_TIME = "write 90, 90s, 5 min, 1h30m, 2d or 1w"


def seconds(what: str, text: str) -> float:
    """`90`, `90s`, `1h30m`, `5 min`, `1w`; digits alone are seconds."""
    found = duration(
        f"{text}s" if text.isascii() and text.replace(".", "", 1).isdecimal() else text
    )
    if found is not None:
        return found
    raise InvalidError(f"{what} is not a time: {text!r}", next=A_TIME)


def lines_of_json() -> list[Any]:
    """The values on the lines of the standard input."""
    import json
    import sys

    data = sys.stdin.buffer.read(INPUT_LIMIT + 1)
    if len(data) > INPUT_LIMIT:
        raise InvalidError(
            f"more than {INPUT_LIMIT:,} bytes on the standard input",
            next="give them in several calls; split -l 1000 splits a file by lines",
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


def content(what: str, text: str) -> str:
    """What a value stands for: `-` for the standard input, `@file` for a file, else itself."""
    if text == "-":
        found = standard_input()
        if not found:
            warn(f"{what} is empty: the standard input had no text")
        return found
    if text[:1] != "@":
        return text
    if text[1:2] == "@":
        return text[1:]
    try:
        with open(text[1:], "rb") as source:
            return as_text(source.read(INPUT_LIMIT + 1), text[1:])
    except OSError as error:
        raise InvalidError(
            f"{what} is {text!r}, and the file cannot be read: {error.strerror}",
            next=f"for the text itself, write @{text}",
        ) from None


def standard_input() -> str:
    import sys

    return as_text(sys.stdin.buffer.read(INPUT_LIMIT + 1), "the standard input")


def as_text(data: bytes, where: str) -> str:
    if len(data) > INPUT_LIMIT:
        raise InvalidError(f"{where} has more than {INPUT_LIMIT:,} bytes", limit=INPUT_LIMIT)
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise InvalidError(f"{where} is not UTF-8 text") from None


def refuse_unit(what: str, text: str, word: str) -> None:
    """Refuse `--wait 10 minutes`, whose unit would be a resource, unless that is there."""
    if text.isdecimal() and word.casefold() in UNITS and not os.path.lexists(word):
        raise InvalidError(
            f"the unit in {what} {text} {word} is a word of its own",
            next=f"write {what} '{text} {word}'",
        )


def refuse_comma(text: str) -> None:
    """Refuse several resources in one word, unless it is the name of a file."""
    if "," not in text or text.startswith(("path:", "repo:")) or os.path.lexists(text):
        return
    from dibs.names.paths import is_name

    parts = [part for word in text.split(",") if (part := word.strip())]
    if is_name(text) and not all(map(is_name, parts)):
        return
    forced = "" if is_name(text) else f"; for one file of that name: {quoted(f'path:{text}')}"
    raise InvalidError(
        f"there is no file {quoted(text)}; resources are separated by spaces, not by commas",
        next=f"write: {' '.join(map(quoted, parts))}{forced}",
    )


def json_or_text(what: str, text: str) -> Any:
    """A value as JSON if it is JSON, otherwise as text; says so if it was meant as JSON."""
    import json

    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidError(f"{what} is nested too deeply", next="flatten it") from None
    except ValueError as error:
        if text.lstrip()[:1] in ("{", "["):
            warn(f"{what} begins like JSON, but is not JSON: {error}; it is kept as text")
        return text


def unknown(
    what: str,
    word: str,
    known: list[str],
    command: str = "dibs",
    is_safe: Callable[[str], bool] = lambda name: name not in RISKY,
    instead: str = "",
    see: str = "",
) -> InvalidError:
    """The refusal of an unknown word, with a suggestion if that is harmless.

    instead: what means the same but reads differently
    see: the command that lists what is known, if it is not the help of the one that was typed
    """
    close = instead or next(filter(is_safe, closest(word, known)), None)
    advice = f"did you mean {close}?" if close else f"see: {see or f'{command} --help'}"
    typed = word if is_plain(word.replace(" ", "")) else quoted(word)
    return InvalidError(f"there is no {what} {typed}", next=advice)


def another(word: str, names: list[str]) -> str:
    """The only one of these options that means what the word does elsewhere; "" if none does."""
    words = next((same for same in SAME if word.lstrip("-") in same), ())
    found = [name for name in names if name[2:] in words]
    return found[0] if len(found) == 1 else ""


SHORT = 3
"""A name this short is similar to too many words; the beginning must be the same, too."""


def closest(word: str, known: list[str]) -> list[str]:
    """The names most similar to a word, the closest first."""
    import difflib

    # "tlt" is 0.67 like "ttl"; "explain" is 0.62 like "replay", and "purge" 0.6 like "merge".
    found = difflib.get_close_matches(word, known, 3, 0.65)
    # "prune" has all letters of "run".
    return [name for name in found if len(name) > SHORT or name[:1] == word[:1]]
