"""What a tool is: its definition for the client, and the call behind it.

The JSON schemas here are both what the client is shown and what arguments are checked against.
"""

from __future__ import annotations

from dibs.arguments import shown
from dibs.errors import InvalidError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.mcp.calling import Calling

    Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "array", "items": TEXT}
OBJECT: Schema = {"type": "object"}


def one_of(*choices: str) -> Schema:
    return {"type": "string", "enum": list(choices)}


READS = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
ADDS = {**READS, "readOnlyHint": False, "idempotentHint": False}
REPEATS = {**READS, "readOnlyHint": False}
"""Changes something, but asked twice no more than once."""
DESTROYS = {**ADDS, "destructiveHint": True}

# JSON's types, as Python has them. A truth value is not a number, although Python thinks so.
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


class Tool:
    def __init__(
        self,
        name: str,
        description: str,
        properties: dict[str, Schema],
        hints: dict[str, bool],
        run: Callable[[Calling, dict[str, Any]], dict[str, Any]],
        *,
        required: tuple[str, ...] = (),
        answers: tuple[str, ...] = (),
        does: str = "",
        waits: tuple[str, float] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        """A tool.

        answers: the words its `status` can be, if it is done or refused
        does: the operations that it stands for, so that they need no tool of their own
        waits: the argument that says how many seconds it may wait, and its default
        """
        self.name = name
        self.run = run
        # A session can be over at any moment, whatever is asked.
        self.answers = (*answers, "not_yours") if answers else ()
        self.does = does.split()
        self._properties = properties
        self._required = required
        self._waits = waits
        schema: Schema = {"type": "object", "properties": properties}
        if required:
            schema["required"] = list(required)
        self.definition: dict[str, Any] = {
            "name": name,
            "description": description,
            "inputSchema": schema,
            # Clients throw away an answer that does not fit, and many hold even the one that says
            # what was wrong against this. So the words for `status` are not listed here.
            "outputSchema": {
                "type": "object",
                "properties": {"status": TEXT},
                "required": ["status"],
            },
            "annotations": hints,
        }
        if meta:
            self.definition["_meta"] = meta

    def waits_s(self, arguments: object) -> float | None:
        """How long a call with these arguments may wait; None if it does not."""
        if self._waits is None or not isinstance(arguments, dict):
            return None
        name, default = self._waits
        seconds = arguments.get(name)
        seconds = default if seconds is None else seconds
        right = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        return float(seconds) if right and 0 < seconds < 1e9 else None

    def check(self, arguments: object) -> dict[str, Any]:
        """The arguments, if they are what the schema says."""
        if not isinstance(arguments, dict):
            raise InvalidError(f"{self.name} takes an object of arguments")
        for name in arguments:
            if name not in self._properties:
                known = ", ".join(self._properties) or "none"
                raise InvalidError(
                    f"{self.name} has no argument {shown(name)}", next=f"it has: {known}"
                )
        # A client may send null for what it leaves out.
        given = {
            name: value
            for name, value in arguments.items()
            if value is not None or "anyOf" in self._properties[name]
        }
        for name in self._required:
            if name not in given:
                raise InvalidError(f"{self.name} needs {name}", next=f"give {name}")
        for name, value in given.items():
            check_value(name, value, self._properties[name])
        return given


def check_value(name: str, value: object, schema: Schema) -> None:
    choices = schema.get("enum")
    if choices is not None:
        if value not in choices:
            raise InvalidError(f"{name} must be one of: {', '.join(choices)}")
        return
    kind = schema.get("type")
    if kind is None:
        return
    fits = isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if not fits:
        raise InvalidError(f"{name} must be of type {kind}, not {type(value).__name__}")
    if isinstance(value, list) and "items" in schema:
        for item in value:
            check_value(f"each of {name}", item, schema["items"])
