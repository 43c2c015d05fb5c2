"""Arguments and answers as JSON Schema, made from the definitions of the library."""

from __future__ import annotations

from dibs.arguments import (
    NAME_LIMIT,
    RESOURCE_LIMIT,
    AgentName,
    Argument,
    Choice,
    Kind,
    Name,
    ResourceName,
    Text,
    When,
)
from dibs.operation import Items

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.operation import Operation
    from dibs.records import Record

    Schema = dict[str, Any]

TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
CONTROL = r"\x00-\x1f\x7f-\x9f"
NO_CONTROL = rf"[^{CONTROL}]*"
NO_CONTROL_BUT_LINES = r"[^\x00-\x08\x0b-\x1f\x7f-\x9f]*"
A_NAME = rf"^[^\s{CONTROL}]([^{CONTROL}]*[^\s{CONTROL}])?$"
AN_AGENT = rf"^[^\s,/{CONTROL}]+(/[^\s,/{CONTROL}]+)*$"
A_MOMENT = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
"""A seq or a time."""
SAYS = {"": "", "something": r"[^\s\x00-\x1f\x7f-\x9f]", "words": "[a-z0-9]"}


def of_kind(kind: Kind) -> Schema:
    """The schema of a value, with all its constraints."""
    found: Schema = {"type": kind.json} if kind.json else {}
    if isinstance(kind, Text):
        some = NO_CONTROL_BUT_LINES if kind.lines else NO_CONTROL
        must = SAYS[kind.says]
        return found | {
            "pattern": f"^{some}{must}{some}$" if must else f"^{some}$",
            "maxLength": kind.length,
        }
    if isinstance(kind, AgentName):
        return found | {"pattern": AN_AGENT, "maxLength": NAME_LIMIT}
    if isinstance(kind, Name):
        return found | {"pattern": A_NAME, "maxLength": NAME_LIMIT}
    if isinstance(kind, ResourceName):
        return found | {"pattern": A_NAME, "maxLength": RESOURCE_LIMIT}
    if isinstance(kind, Choice):
        return found | {"enum": list(kind.choices)}
    if isinstance(kind, When):
        return A_MOMENT
    bounds = {"minimum": getattr(kind, "low", None), "maximum": getattr(kind, "high", None)}
    return found | {name: bound for name, bound in bounds.items() if bound is not None}


def of_operation(operation: Operation) -> Schema:
    """The arguments of a call, as an object."""
    arguments = operation.arguments().values()
    found: Schema = {
        "type": "object",
        "properties": {one.name: of_argument(operation, one) for one in arguments},
        "additionalProperties": False,
    }
    some = operation.at_least_one
    required = [one.name for one in arguments if one.required or (one.many and some)]
    return {**found, "required": required} if required else found


def of_argument(operation: Operation, argument: Argument) -> Schema:
    """The schema of an argument, with all its constraints."""
    kind = argument.kind
    found = of_operation(kind.operation) if isinstance(kind, Items) else of_kind(kind)
    if argument.many or argument.list:
        found = {"type": "array", "items": found, "maxItems": argument.kind.limit}
        if argument.many and operation.at_least_one:
            found["minItems"] = 1
    elif argument.optional and found:
        found = {"anyOf": [found, {"type": "null"}]}
    return described(found, argument)


def of_type_only(argument: Argument) -> Schema:
    """The type and choices of an argument only: a model pays for every word."""
    kind = argument.kind
    found: Schema = {"type": kind.json} if kind.json else ANYTHING
    if isinstance(kind, When):
        found = A_MOMENT
    if isinstance(kind, Choice):
        found = found | {"enum": list(kind.choices)}
    if argument.many or argument.list:
        found = {"type": "array", "items": found}
    return described(found, argument)


ANYTHING: Schema = {
    "anyOf": [{"type": kind} for kind in ("object", "array", "string", "number", "boolean", "null")]
}


def described(found: Schema, argument: Argument) -> Schema:
    return {**found, "description": argument.help} if argument.help else found


def of_type(kind: str) -> Schema:
    """A type of the library, as its source spells it."""
    if kind.endswith(" | None"):
        inner = of_type(kind.removesuffix(" | None"))
        return {"anyOf": [inner, {"type": "null"}]} if inner else {}
    if kind.endswith(" | DibsError"):
        inner = of_type(kind.removesuffix(" | DibsError"))
        return {"anyOf": [inner, {"$ref": "#/components/schemas/Error"}]}
    if kind in TYPES:
        return {"type": TYPES[kind]}
    if kind == "Any":
        return {}
    head, _, rest = kind.partition("[")
    inside = rest.removesuffix("]")
    if head == "tuple":
        return {"type": "array", "items": of_type(inside.removesuffix(", ..."))}
    if head == "dict":
        return {"type": "object", "additionalProperties": of_type(inside.split(", ", 1)[1])}
    return {"$ref": f"#/components/schemas/{kind}"}


def of_record(record: type[Record]) -> Schema:
    fields = record.__annotations__
    return {
        "type": "object",
        "description": (record.__doc__ or "").strip(),
        "properties": {name: of_type(kind) for name, kind in fields.items()},
        "required": list(fields),
    }
