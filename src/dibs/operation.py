"""The marker that makes a method an operation, and the registry that surfaces read.

An operation is one typed method of a noun. Marked once, it is the library call, and the command,
the HTTP route, the MCP tool and the reference page follow from it: from its signature, from its
docstring (the first line is the summary, the lines `name: text` below it are the help of the
arguments), and from what the marker says about it.

    @operation(HeldError, by=EVERYBODY)                  reads, or opens its own transactions
    @writes(StaleError, by=PEOPLE, events=("…",))        runs in one write transaction, `self.tx`

`by` says who may call it. It is empty by default: an operation without it can be called by nobody.
What an argument must be like follows from its name (see `arguments`), and is checked before the
method runs, here and before anything is sent to a daemon. JSON reaches the method as text.

A `@writes` method that takes `idempotency_key` runs once per key: the second call gets the first
answer.

`add_many` is `add` many times in one transaction: its `items` are objects with the arguments of
`add`. It is an operation like any other (see `nouns.many`).
"""

from __future__ import annotations

from dibs.arguments import (
    HELPS,
    ITEMS_LIMIT,
    Argument,
    Kind,
    ResourceName,
    check_number_of,
    kind_of,
    shown,
)
from dibs.errors import UNREADABLE, DibsError, InvalidError, NotYoursError, error_of
from dibs.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

OPERATIONS: dict[str, Operation] = {}
NOUNS = ("leases", "work", "messages", "state", "agents", "events")

AGENT, PERSON, ADMIN, HOOK = "agent", "person", "admin", "hook"
"""Who calls: an agent (its shell, its MCP client, its token), the person at this machine, the
owner of an admin token or of a dashboard login, or a hook of an agent's client."""
EVERYBODY = (AGENT, PERSON, ADMIN, HOOK)
PEOPLE = (PERSON, ADMIN)
"""An agent may never decide for others."""
HOOKS = (HOOK, PERSON, ADMIN)
PEOPLE_ONLY = "ask the person you work for to do it in a shell of their own"
SCOPES = ("read", "agent", "admin")
"""The scopes of tokens; each includes the one before it."""
VARARGS = 0x04
"""The flag of a code object whose function takes `*names`."""


class Operation:
    """What is known about one operation.

    by: who may call it
    events: the events that it writes as its own; none if it only reads
    destructive: whether it ends or removes something that cannot simply be requested again
    hashes: whether it needs the content of the files that it names
    freely: who may do it without the limits that apply to the rest; empty if there are none
    queues: whether a call that waits has a place in a queue, and so need not keep a thread
    sliced: whether it makes many writes, between which others get the turn
    long: whether it reads so much that others should not have to wait for it
    at_least_one: whether it needs at least one of its repeatable argument
    scope: the scope that a token needs, if it is not that of its callers
    cli: the words of its command, if not those of noun and verb; `claim --take` is an option that
        makes another command of `claim`
    options: the names of its arguments there, if they differ
    example: what a person would type after them
    empty: what to print for an empty answer
    kinds: what its arguments must be like, if their names do not say it
    """

    def __init__(
        self,
        method: Callable[..., Any],
        raises: tuple[type[DibsError], ...],
        *,
        by: tuple[str, ...] = (),
        events: tuple[str, ...] = (),
        destructive: bool = False,
        freely: tuple[str, ...] = (),
        queues: bool = False,
        sliced: bool = False,
        long: bool = False,
        at_least_one: bool = False,
        hashes: bool = False,
        scope: str = "",
        cli: str = "",
        options: dict[str, str] | None = None,
        example: str = "",
        empty: str = "nothing there",
        kinds: dict[str, Kind] | None = None,
        ahead: Callable[..., Any] | None = None,
    ) -> None:
        noun, _, self.verb = method.__qualname__.rpartition(".")
        self.noun = noun.lower()
        self.name = f"{self.noun}.{self.verb}"
        self.method = method
        self.raises = raises
        self.by = by
        self.events = events
        self.destructive = destructive
        self.freely = freely
        self.queues = queues
        self.sliced = sliced
        self.long = long
        self.at_least_one = at_least_one
        self.hashes = hashes
        self.cli = cli or f"{self.noun} {self.verb}"
        self.example = f"dibs {self.cli} {example}".strip()
        self.options = options or {}
        self.empty = empty
        self._scope = scope
        self._kinds = kinds or {}
        self._arguments: dict[str, Argument] | None = None
        self._places: tuple[str, ...] = ()
        self._many: Argument | None = None
        self._required: list[str] = []
        self._local: list[Argument] = []

    @property
    def summary(self) -> str:
        return (self.method.__doc__ or "").strip().partition("\n")[0]

    @property
    def result(self) -> str:
        """The type of what it returns, as the source spells it."""
        found: str = self.method.__annotations__["return"]
        return found

    @property
    def mutates(self) -> bool:
        return bool(self.events)

    @property
    def grants(self) -> bool:
        """Whether it returns something that the caller then holds."""
        return any(event.endswith(".claimed") for event in self.events)

    @property
    def scope(self) -> str:
        """The scope that a token must have."""
        if AGENT not in self.by and HOOK not in self.by:
            return "admin"
        return self._scope or ("agent" if self.mutates else "read")

    def permit(self, party: str, typed: str = "") -> None:
        """Refuse a caller that may not use this operation.

        typed: what the caller knows it as, if that is not its name
        """
        if party in self.by:
            return
        if HOOK in self.by:
            raise NotYoursError(
                f"only the hooks of an agent's client may do this ({self.name}), not the agent",
                next="leave it to the hooks; dibs init sets them up",
            )
        raise NotYoursError(
            f"only people may do this ({typed or self.name}), but this is an agent's shell",
            next=PEOPLE_ONLY,
        )

    def arguments(self) -> dict[str, Argument]:
        """The arguments that a caller gives, by name; determined at the first use."""
        if self._arguments is None:
            self._arguments = arguments_of(
                self.method, lambda name, type: self._kinds.get(name) or kind_of(name, type)
            )
            code: Any = self.method.__code__
            self._places = code.co_varnames[1 : code.co_argcount]
            self._many = next((one for one in self._arguments.values() if one.many), None)
            if self._many and self._places:
                raise TypeError(
                    f"{self.name}() cannot take positional arguments before the repeatable one"
                )
            self._required = [one.name for one in self._arguments.values() if one.required]
            self._local = [one for one in self._arguments.values() if one.kind.local]
        return self._arguments

    @property
    def many(self) -> Argument | None:
        """The argument that may be given any number of times, by position."""
        self.arguments()
        return self._many

    def naming(self, given: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[str]]]:
        """The arguments of a call, or of each of its items, and which of them name resources.

        Items are copied, since the names in them will be replaced. A wrong item is left out: it
        is refused later on its own.
        """
        for name, argument in self.arguments().items():
            kind = argument.kind
            if isinstance(kind, ResourceName):
                yield given, [name]
            elif isinstance(kind, Items) and isinstance(given.get(name), (list, tuple)):
                given[name] = [dict(one) if isinstance(one, dict) else one for one in given[name]]
                for item, checked in zip(given[name], kind.check(name, given[name]), strict=True):
                    if isinstance(checked, dict):
                        yield from kind.operation.naming(item)

    @property
    def names(self) -> bool:
        """Whether any of its arguments names resources."""
        kinds = [one.kind for one in self.arguments().values()]
        return any(
            isinstance(kind, ResourceName) or (isinstance(kind, Items) and kind.operation.names)
            for kind in kinds
        )

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, as they are sent to a daemon."""
        given = dict(zip(self._places, args, strict=False)) | kwargs
        for argument in self._local:
            if argument.name in given:
                given[argument.name] = argument.check(given[argument.name])
        return given if self._many is None else given | {self._many.name: list(args)}

    def check(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call as the method takes them, by position and by name."""
        known, many, places = self._arguments or self.arguments(), self._many, self._places
        placed: list[Any] = []
        if many is not None:
            if not args and self.at_least_one:
                raise InvalidError("nothing was named", next="name at least one path or resource")
            kind = many.kind
            if len(args) > kind.limit:
                check_number_of(many.name, args, kind)
            placed = [kind.check(many.name, value) for value in args]
            if not kwargs and not self._required:
                return placed, {}
        elif len(args) > len(places):
            raise TypeError(f"{self.name}() takes {len(places)} positional arguments")
        named = dict(zip(places, args, strict=False)) if places else {}
        for name, value in kwargs.items():
            if name in named or name not in known or known[name] is many:
                why = "is given by position" if name in known else "is not one of its arguments"
                raise TypeError(f"{self.name}(): {name!r} {why}")
            named[name] = value
        for name in self._required:
            if name not in named:
                raise TypeError(f"{self.name}() needs {name!r}")
        checked = {name: known[name].check(value) for name, value in named.items()}
        if "items" in checked and not checked.get("each"):
            for place, item in enumerate(checked["items"]):
                if isinstance(item, InvalidError):
                    raise item.of_item(place, len(checked["items"]))
        return placed, checked

    def check_names(self, given: dict[str, Any], more: tuple[str, ...] = ()) -> None:
        """Refuse an object with an unknown argument, or without a required one.

        more: what else the object may have
        """
        known = self._arguments or self.arguments()
        for name in given:
            if name not in known and name not in more:
                raise InvalidError(
                    f"{self.name} has no argument {shown(name)}",
                    next=f"its arguments are: {', '.join(known) or 'none'}",
                )
        for name in self._required:
            if name not in given:
                raise InvalidError(f"{self.name} needs {name}", next=f"give {name}")

    def _record(self) -> tuple[list[str], type[Record] | None]:
        """The words of its return type, and the record among them."""
        words = self.result.replace("[", " ").replace(",", " ").split()
        known = {record.__name__: record for record in Record.__subclasses__()}
        return words, next((known[word] for word in words if word in known), None)

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of the record that it returns, alone or in a list."""
        record = self._record()[1]
        return tuple(record.__annotations__) if record else ()

    def load(self, data: Any) -> Any:
        """The result as the library returns it, from its JSON."""
        words, record = self._record()
        if words[0] == "tuple":
            if "DibsError" in words:
                return tuple(self._load_item(record, item) for item in data)
            return tuple(record.from_json(item) if record else item for item in data)
        return record.from_json(data) if record and data is not None else data

    def _load_item(self, record: type[Record] | None, item: Any) -> Any:
        """The result of one of many items: a record, or the error it was refused with."""
        if record is None or "error" not in item:
            return record.from_json(item) if record else item
        return error_of(item)


class Items(Kind):
    """Objects with the arguments of another operation, each for one call of it.

    A wrong one is returned as its error, which refuses the whole call unless `each` is set.
    """

    json = "object"
    together = True

    def __init__(self, operation: str) -> None:
        self._name = operation

    @property
    def operation(self) -> Operation:
        return OPERATIONS[self._name]

    def check(self, what: str, value: Any) -> list[dict[str, Any] | InvalidError]:
        if not isinstance(value, (list, tuple)):
            raise InvalidError(f"{what} must be a list of objects, not {type(value).__name__}")
        check_number_of(what, value, self)
        checked = [self._check_item(item) for item in value]
        size = sum(extent(item) for item in checked if isinstance(item, dict))
        if size > ITEMS_LIMIT:
            raise InvalidError(
                f"these {len(value):,} items have {size:,} characters; the limit is "
                f"{ITEMS_LIMIT:,}",
                next="split them into several calls",
                limit=ITEMS_LIMIT,
            )
        return checked

    def _check_item(self, item: Any) -> dict[str, Any] | InvalidError:
        operation = self.operation
        try:
            if not isinstance(item, dict):
                raise InvalidError(
                    f"an item must be an object, not {type(item).__name__}",
                    next=f"give the arguments of {operation.name}, such as "
                    + ", ".join(operation.arguments()),
                )
            operation.check_names(item)
            known = operation.arguments()
            return {name: known[name].check(value) for name, value in item.items()}
        except InvalidError as error:
            return error


def extent(value: Any) -> int:
    """Roughly how many characters a value has."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(str(name)) + extent(inner) for name, inner in value.items())
    return sum(map(extent, value)) if isinstance(value, (list, tuple)) else 8


def arguments_of(
    function: Callable[..., Any],
    kind: Callable[[str, str], Kind],
    leave_out: tuple[str, ...] = ("self",),
) -> dict[str, Argument]:
    """The arguments of a function, from its signature and its docstring.

    kind: what an argument must be like, from its name and its type
    """
    # By hand, since `inspect` takes longer to import than a command takes to run.
    code: Any = function.__code__
    names = code.co_varnames
    positional = list(names[: code.co_argcount])
    keywords = list(names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])
    defaults = dict(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
    defaults |= function.__kwdefaults__ or {}
    many = names[len(positional) + len(keywords)] if code.co_flags & VARARGS else None
    lines = [line.strip().split(": ", 1) for line in (function.__doc__ or "").splitlines()[1:]]
    helps = {line[0]: line[1] for line in lines if len(line) == 2}
    found = {}
    for name in [*positional, *([many] if many else []), *keywords]:
        if name not in leave_out:
            type_ = function.__annotations__[name]
            found[name] = Argument(
                name,
                type_,
                kind(name, type_),
                helps.get(name) or HELPS.get(name, ""),
                placed=name == many or name in positional,
                many=name == many,
                required=name not in defaults and name != many,
                default=defaults.get(name),
            )
    return found


def operation(*raises: type[DibsError], **facts: Any) -> Callable[[F], F]:
    """Mark a method that reads, or that makes its own transactions; the facts are `Operation`'s."""

    def mark(method: F) -> F:
        entry = _register(method, raises, facts)

        def call(noun: Any, /, *args: Any, **kwargs: Any) -> Any:
            placed, named = entry.check(args, kwargs)
            if noun.scope.daemon is not None:
                return noun.scope.call(entry, entry.bind(args, kwargs))
            try:
                return method(noun, *placed, **named)
            except UNREADABLE as error:
                noun.scope.blame(error)
                raise

        return _like(call, method)

    return mark


def writes(*raises: type[DibsError], **facts: Any) -> Callable[[F], F]:
    """Mark a method that runs in one write transaction, `self.tx`; the facts are `Operation`'s.

    ahead: returns the first queries of a call, from the noun and the arguments
    """

    def mark(method: F) -> F:
        ahead = facts.get("ahead")
        entry = _register(method, raises, facts)

        def call(noun: Any, /, *args: Any, **kwargs: Any) -> Any:
            placed, named = entry.check(args, kwargs)
            scope = noun.scope
            if scope.daemon is not None:
                return scope.call(entry, entry.bind(args, kwargs))
            key = named.get("idempotency_key")

            def asked() -> list[Any]:
                first = [scope.asked_before(key)] if key is not None else []
                return first if ahead is None else [*first, *ahead(noun, *placed, **named)]

            try:
                with scope.write(asked if ahead or key is not None else None) as tx:
                    inside = type(noun)(scope, tx)
                    if key is None:
                        return method(inside, *placed, **named)
                    request = placed, named
                    return scope.once(
                        tx, entry.name, key, request, lambda: method(inside, *placed, **named)
                    )
            except UNREADABLE as error:
                scope.blame(error)
                raise

        return _like(call, method)

    return mark


def _register(
    method: Callable[..., Any], raises: tuple[type[DibsError], ...], facts: dict[str, Any]
) -> Operation:
    entry = Operation(method, raises, **facts)
    OPERATIONS[entry.name] = entry
    return entry


def _like(call: Callable[..., Any], method: F) -> F:
    """A call that shows itself as the method: to `help`, to editors, in tracebacks."""
    call.__name__, call.__qualname__ = method.__name__, method.__qualname__
    call.__module__, call.__doc__ = method.__module__, method.__doc__
    call.__wrapped__ = method  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]
