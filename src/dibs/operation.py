"""The marker that makes a method an operation, and the registry that surfaces read.

An operation is one typed method of a noun. Marked once, it is the library call, and the
command, the HTTP route, the MCP tool and the reference page follow from its signature and
its docstring: the first line is the summary, and the lines `name: text` below it are the
help of the arguments.

    @operation(HeldError)            reads, or opens its own transactions (long waits)
    @writes(StaleError)              runs in one write transaction, given to it as `tx`

A `@writes` method that takes `idempotency_key` is done once per key: the second call gets the
first answer.
"""

from __future__ import annotations

import functools
import json

from dibs.errors import InvalidError
from dibs.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Concatenate, ParamSpec, TypeVar

    from dibs.errors import DibsError

    P = ParamSpec("P")
    T = TypeVar("T")
    F = TypeVar("F", bound=Callable[..., Any])

OPERATIONS: dict[str, Operation] = {}
VARARGS = 0x04
"""The flag of a code object whose function takes `*names`."""


class Argument:
    """One argument of an operation, as a surface needs to know it."""

    __slots__ = ("default", "help", "many", "name", "required", "type")

    def __init__(
        self, name: str, type: str, help: str, many: bool, required: bool, default: object
    ) -> None:
        self.name = name
        self.type = type
        self.help = help
        self.many = many
        self.required = required
        self.default = default


class Operation:
    """What is known about one operation: name, help, arguments, result, errors."""

    def __init__(
        self,
        method: Callable[..., Any],
        mutates: bool,
        raises: tuple[type[DibsError], ...],
        cli: str,
        example: str,
    ) -> None:
        noun, _, self.verb = method.__qualname__.rpartition(".")
        self.noun = noun.lower()
        self.name = f"{self.noun}.{self.verb}"
        self.method = method
        self.mutates = mutates
        self.raises = raises
        self.cli = cli or f"{self.noun} {self.verb}"
        self.example = f"dibs {self.cli} {example}".strip()
        lines = (method.__doc__ or "").strip().splitlines()
        self.summary = lines[0] if lines else ""
        helps = [line.strip().split(": ", 1) for line in lines[1:] if ": " in line]
        self._help = {name: text for name, text in helps}
        self.result: str = method.__annotations__["return"]

    def arguments(self) -> list[Argument]:
        """The arguments a caller gives: not `self`, not the transaction."""
        # By hand, since `inspect` takes longer to import than a command takes to run.
        method = self.method
        code: Any = method.__code__
        names = code.co_varnames
        positional = list(names[: code.co_argcount])
        keywords = list(names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])
        defaults = dict(
            zip(reversed(positional), reversed(method.__defaults__ or ()), strict=False)
        )
        defaults |= method.__kwdefaults__ or {}
        many = names[len(positional) + len(keywords)] if code.co_flags & VARARGS else None
        return [
            Argument(
                name,
                method.__annotations__[name],
                self._help.get(name, ""),
                name == many,
                name not in defaults and name != many,
                defaults.get(name),
            )
            for name in [*positional, *([many] if many else []), *keywords]
            if name not in ("self", "tx")
        ]

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, as Python would bind them."""
        code: Any = self.method.__code__
        arguments = {argument.name: argument for argument in self.arguments()}
        places = [name for name in code.co_varnames[: code.co_argcount] if name in arguments]
        given = dict(zip(places, args, strict=False))
        rest = args[len(places) :]
        many = next((name for name, argument in arguments.items() if argument.many), None)
        if rest and many is None:
            raise TypeError(f"{self.name}() takes {len(places)} arguments by place")
        for name in kwargs:
            if name not in arguments or name == many or name in given:
                why = "was given twice" if name in given else "is not one of its arguments"
                raise TypeError(f"{self.name}(): {name!r} {why}")
        given |= kwargs
        for name, argument in arguments.items():
            if argument.required and name not in given:
                raise TypeError(f"{self.name}() needs {name!r}")
        if many is not None:
            given[many] = list(rest)
        return given

    def load(self, data: Any) -> Any:
        """The result as the caller knows it, from its JSON."""
        words = self.result.replace("[", " ").replace(",", " ").split()
        known = {record.__name__: record for record in Record.__subclasses__()}
        record = next((known[word] for word in words if word in known), None)
        if words[0] == "tuple":
            return tuple(record.from_json(item) if record else item for item in data)
        return record.from_json(data) if record and data is not None else data


def operation(
    *raises: type[DibsError], mutates: bool = False, cli: str = "", example: str = ""
) -> Callable[[F], F]:
    """Mark a method that reads, or that makes its own transactions.

    cli: the words of its command, if not those of noun and verb
    example: what a person would type after them
    """

    def mark(method: F) -> F:
        _register(Operation(method, mutates, raises, cli, example))
        return method

    return mark


def writes(
    *raises: type[DibsError],
    cli: str = "",
    example: str = "",
    ahead: Callable[..., Any] | None = None,
) -> Callable[[Callable[Concatenate[Any, Any, P], T]], Callable[Concatenate[Any, P], T]]:
    """Mark a method that runs in one write transaction.

    ahead: from the noun and the arguments of a call, what it is going to ask first
    """

    def mark(
        method: Callable[Concatenate[Any, Any, P], T],
    ) -> Callable[Concatenate[Any, P], T]:
        entry = Operation(method, True, raises, cli, example)
        _register(entry)

        @functools.wraps(method)
        def call(noun: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            key = kwargs.get("idempotency_key")
            with noun.scope.write(ahead and (lambda: ahead(noun, *args, **kwargs))) as tx:
                if key is None:
                    return method(noun, tx, *args, **kwargs)
                answer: T = noun.scope.once(
                    tx, entry.name, key, (args, kwargs), lambda: method(noun, tx, *args, **kwargs)
                )
                return answer

        return call

    return mark


def _register(entry: Operation) -> None:
    OPERATIONS[entry.name] = entry


# Checks of arguments: each returns the value in the form the core works with, or says what
# is wrong with it. All limits are stated here.

NAME_LIMIT = 200
TEXT_LIMIT = 2_000
BODY_LIMIT = 16_384
VALUE_LIMIT = 1_048_576
DEPTH_LIMIT = 100
LIST_LIMIT = 1_000
NEWEST = 2**62
"""Above every seq, epoch and version; both databases can hold it."""
TTL_MIN_S, TTL_MAX_S = 1.0, 7 * 86_400.0
WAIT_MAX_S = 86_400.0
DELAY_MAX_S = 366 * 86_400.0


def shown(value: object) -> str:
    """A wrong value as a message can show it: short, and never a second error."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length():,} bits"
    text = f"{value:g}" if isinstance(value, float) else ascii(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def check_text(
    what: str, value: object, limit: int = TEXT_LIMIT, *, lines: bool = False, empty: bool = True
) -> str:
    """Text within a limit, valid UTF-8, without control characters."""
    if not isinstance(value, str):
        raise InvalidError(f"{what} must be text, not {type(value).__name__}")
    if len(value) > limit:
        raise InvalidError(
            f"{what} has {len(value):,} characters; the limit is {limit:,}",
            next=f"shorten {what}",
            limit=limit,
        )
    if not value.strip() and not empty:
        raise InvalidError(f"{what} is empty", next=f"give {what}")
    if value.isascii() and value.isprintable():
        return value
    allowed = "\n\t" if lines else ""
    for place, character in enumerate(value):
        code = ord(character)
        if (code < 0x20 and character not in allowed) or 0x7F <= code < 0xA0:
            raise InvalidError(f"{what} has a control character ({code:#04x}) at {place}")
        if 0xD800 <= code < 0xE000:
            raise InvalidError(f"{what} is not valid UTF-8 (at {place})")
    return value


def check_name(what: str, value: object) -> str:
    """A name: text without spaces at its ends, never empty."""
    name = check_text(what, value, NAME_LIMIT, empty=False)
    if name != name.strip():
        raise InvalidError(f"{what} begins or ends with a space: {name!r}")
    return name


def check_agent(what: str, value: object) -> str:
    """An agent's name: `bob`, or `alice/tests` for a subagent."""
    name = check_name(what, value)
    parts = name.split("/")
    if not all(parts) or any(character.isspace() or character == "," for character in name):
        raise InvalidError(
            f"{name!r} cannot be an agent's name",
            next="use a word such as bob, or alice/tests for a subagent of alice",
        )
    return name


def check_seconds(what: str, value: object, low: float, high: float) -> int:
    """A duration in seconds within bounds, as milliseconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidError(f"{what} must be a number of seconds, not {type(value).__name__}")
    if not low <= value <= high:
        raise InvalidError(
            f"{what} is {shown(value)} s; it must be between {low:g} and {high:g} s",
            low=low,
            high=high,
        )
    return round(value * 1000)


def check_integer(what: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidError(f"{what} must be a whole number, not {type(value).__name__}")
    if not low <= value <= high:
        raise InvalidError(f"{what} is {shown(value)}; it must be between {low:,} and {high:,}")
    return value


def check_choice(what: str, value: object, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidError(f"{what} is {shown(value)}; it must be one of: {', '.join(choices)}")
    return str(value)


def check_filter(what: str, value: object) -> str | None:
    """What a reader looks for: any text that could be stored, or nothing for all."""
    return None if value is None else check_text(what, value, VALUE_LIMIT)


def check_names(what: str, values: object) -> list[str]:
    """Several names, each once, in order."""
    if isinstance(values, str) or not isinstance(values, (list, tuple)):
        raise InvalidError(f"{what} must be a list of names")
    if len(values) > LIST_LIMIT:
        raise InvalidError(f"{what} has {len(values):,} items; the limit is {LIST_LIMIT:,}")
    return list(dict.fromkeys(check_name(what, value) for value in values))


def refuse_depth(what: str, value: object) -> None:
    """Refuse what a reader deep in its own calls could not take apart any more."""
    front, depth = [value], 0
    while front:
        if depth > DEPTH_LIMIT:
            raise InvalidError(
                f"{what} is nested deeper than {DEPTH_LIMIT}",
                next="flatten it, or store it as text",
                limit=DEPTH_LIMIT,
            )
        depth += 1
        inner: list[object] = []
        for item in front:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, (list, tuple)):
                inner += item
        front = inner


def check_json(what: str, value: object, limit: int) -> str | None:
    """A JSON value as text within a limit; None stays None."""
    if value is None:
        return None
    refuse_depth(what, value)
    try:
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False
        )
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidError(f"{what} is not valid UTF-8") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidError(f"{what} cannot be written as JSON: {error}") from None
    if size > limit:
        raise InvalidError(
            f"{what} has {size:,} bytes as JSON; the limit is {limit:,}",
            next="store the large part in a file and put its path here",
            limit=limit,
        )
    return text
