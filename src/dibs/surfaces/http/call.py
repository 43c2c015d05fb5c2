"""From a request's JSON to a call of an operation, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dibs.arguments import Resource, Whole
from dibs.dibs import operations
from dibs.errors import InvalidError
from dibs.names.seen import Seen
from dibs.records import fields_of

if TYPE_CHECKING:
    from dibs.arguments import Kind
    from dibs.dibs import Dibs
    from dibs.operation import Operation

SEEN = "seen"
"""What a caller with a disk of its own saw there, by the names that it read from it.

Where this is given, the names are taken as they are. Without it they are read from the top of
the daemon's own checkout.
"""


class Route:
    """An operation as it is reached over HTTP."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.path = f"/v1/{operation.noun}/{operation.verb}"
        self.arguments = operation.arguments()
        self._many = operation.many and operation.many.name
        self._placed = [a.name for a in self.arguments.values() if a.required]
        self._wait = self.arguments.get("wait_s")
        self._names = any(isinstance(a.kind, Resource) for a in self.arguments.values())

    def read(self, body: bytes) -> dict[str, Any]:
        """The arguments in a body, each of a name that the operation knows."""
        given = read_object(body)
        for name in given:
            if name not in self.arguments and not (name == SEEN and self._names):
                known = ", ".join(self.arguments) or "none"
                raise InvalidError(
                    f"{self.operation.name} has no argument {name!r}", next=f"it has: {known}"
                )
        for name in self._placed:
            if name not in given:
                raise InvalidError(f"{self.operation.name} needs {name}", next=f"give {name}")
        if self._many and not isinstance(given.get(self._many, []), list):
            raise InvalidError(f"{self._many} must be a list")
        if not isinstance(given.get(SEEN, {}), dict):
            raise InvalidError(f"{SEEN} must be an object")
        for name, argument in self.arguments.items():
            if name in given:
                given[name] = from_json(argument.kind, given[name])
        return given

    def waits(self, given: dict[str, Any]) -> bool:
        """Whether a call with these arguments may take its time."""
        if self._wait is None:
            return False
        seconds = given.get("wait_s", self._wait.default)
        return isinstance(seconds, (int, float)) and seconds > 0

    def call(self, space: Dibs, given: dict[str, Any]) -> Any:
        given = dict(given)
        many = given.pop(self._many, []) if self._many else []
        noun = getattr(space, self.operation.noun)
        if SEEN in given:
            noun = type(noun)(noun.scope.at(Seen(given.pop(SEEN))))
        return getattr(noun, self.operation.verb)(*many, **given)


def from_json(kind: Kind, value: Any) -> Any:
    """A value as the library takes it: JSON knows one kind of numbers, and Python two."""
    if isinstance(kind, Whole):
        if isinstance(value, list):
            return [from_json(kind, item) for item in value]
        if isinstance(value, float) and value.is_integer():
            return int(value)
    return value


def read_object(body: bytes) -> dict[str, Any]:
    """The object that a body is; an empty body is an empty one."""
    try:
        given = _DECODER.decode(body.decode()) if body.strip() else {}
    except (ValueError, RecursionError):
        raise InvalidError("the body is not JSON", next="send an object of arguments") from None
    if not isinstance(given, dict):
        raise InvalidError("the body must be an object of arguments")
    return given


def _refuse(constant: str) -> None:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def routes() -> dict[str, Route]:
    """Every operation that is offered to somebody, by its path."""
    found = [Route(operation) for operation in operations().values() if operation.by]
    return {route.path: route for route in found}


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=fields_of, check_circular=False)


def to_body(value: Any) -> bytes:
    return _ENCODER.encode(value).encode("ascii")
