"""The operations over HTTP: from JSON to a call and back, and their description.

The description is in OpenAPI 3.1, generated from the operations and the records.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from dibs import __version__
from dibs.arguments import AGENT_NAME, LINE, NAME, TTL, Kind, When, Whole
from dibs.dibs import Dibs, operations
from dibs.errors import UNREADABLE, CorruptError, InvalidError
from dibs.mcp.protocol import DECODER
from dibs.names.seen import Seen
from dibs.operation import AGENT, Items
from dibs.records import Record, fields_of
from dibs.storage.store import CHANGED
from dibs.surroundings.schemas import of_kind, of_operation, of_record, of_type

if TYPE_CHECKING:
    from dibs.operation import Operation

    Schema = dict[str, Any]

SEEN = "seen"
"""What a caller on another machine saw on its own disk, by name.

If this is given, the names are used as they are. Otherwise they are relative to the top of the
daemon's own checkout.
"""


def asked(**properties: Schema) -> Schema:
    """The arguments of a call, all optional."""
    return {"type": "object", "properties": properties}


def told(**properties: Schema) -> Schema:
    """The fields of an answer, all present."""
    return asked(**properties) | {"required": list(properties)}


def said(kind: str | list[str] | Schema, description: str) -> Schema:
    found = kind if isinstance(kind, dict) else {"type": kind}
    return found | {"description": description}


ERROR = told(
    error=said("string", "the code, which never changes"),
    message=said("string", "what happened, and why"),
    next=said(["string", "null"], "what to do next"),
    details=said("object", "the records behind the sentence"),
)
GATE = {
    "401": "no token, or an invalid one",
    "403": "not allowed for this token, or from this origin",
    "413": "the body is too large",
    "415": "the body is not declared as JSON",
    "429": "too many calls",
    "500": "a bug in dibs",
    "503": "the store cannot answer now",
}
JOIN = asked(
    status=said(of_kind(LINE), "a line about the work, shown to the others"),
    shell=said("boolean", "use the agent's one shell session"),
    client=said(
        {"anyOf": [of_kind(NAME), {"type": "null"}]},
        "use the session with this name in the agent's own program",
    ),
    ttl_s=said(of_kind(TTL), "how long the session lives without a beat"),
    host=said(of_kind(NAME), "the caller's machine, for people"),
    pid=said(of_kind(Whole(0, 2**31)), "the caller's process there"),
    process=said(
        {"type": "string", "pattern": r"^([0-9]{1,9}|[0-9]+:[0-9]{1,9}:[0-9]*)$", "maxLength": 200},
        "the process there that a shell session ends with, by its own name",
    ),
    alone=said("boolean", "only if no other live session has this name"),
) | {"additionalProperties": False}
HOME = said("string", "the repository whose paths have no label in this space")
JOINED = told(
    session={"$ref": "#/components/schemas/Session"},
    token=said("string", "the value for Dibs-Session"),
    owned=said("boolean", "whether the caller may end it"),
    boot=said("string", "the boot whose clock measures times; empty for a server's clock"),
    repository=HOME,
)
TEXT = {"type": "string"}
ME = told(
    space=TEXT,
    agent=TEXT,
    session={"type": ["integer", "null"]},
    scope=said("string", "what the token allows: read, agent or admin"),
    boot=TEXT,
    repository=HOME,
)
CANCEL = asked(call=said("string", "the value of Dibs-Call in the call that waits"))
CANCELLED = told(cancelled={"type": "boolean"})
APART = {
    "/v1/agents/join": ("Begin a session that must be kept alive with beats", JOIN, JOINED),
    "/v1/me": ("Say who you are here", asked(), ME),
    "/v1/cancel": ("End a wait; the waiting call gets its own answer", CANCEL, CANCELLED),
}
"""Calls like operations that are none: their purpose, arguments and answer."""


class Route:
    """An operation over HTTP."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.path = f"/v1/{operation.noun}/{operation.verb}"
        self.arguments = operation.arguments()
        self._many = operation.many and operation.many.name
        self._wait = self.arguments.get("wait_s")
        self._names = operation.names or operation.hashes

    def read(self, body: bytes) -> dict[str, Any]:
        """The arguments in a body; unknown names are refused."""
        given = read_object(body)
        self.operation.check_names(given, (SEEN,) if self._names else ())
        if self._many and not isinstance(given.get(self._many, []), list):
            raise InvalidError(f"{self._many} must be a list")
        if not isinstance(given.get(SEEN, {}), dict):
            raise InvalidError(f"{SEEN} must be an object")
        for name, argument in self.arguments.items():
            if name in given:
                given[name] = from_json(argument.kind, given[name])
        return given

    def waits(self, given: dict[str, Any]) -> bool:
        """Whether a call with these arguments may wait."""
        if self._wait is None:
            return self.operation.sliced or self.operation.long
        seconds = given.get("wait_s", self._wait.default)
        return isinstance(seconds, (int, float)) and seconds > 0

    def crowd(self, given: dict[str, Any]) -> str:
        """What a call with these arguments may wait for; empty if it does not wait."""
        return repr(given.get(self._many)) if self._many and self.waits(given) else ""

    def weight(self, given: dict[str, Any]) -> int:
        """How many single calls it is equivalent to."""
        items, limit = given.get("items"), given.get("limit")
        if self.operation.grants and isinstance(limit, int):
            return max(1, limit)
        return max(1, len(items)) if isinstance(items, list) else 1

    def call(self, space: Dibs, given: dict[str, Any], party: str = AGENT) -> Any:
        given = dict(given)
        many = given.pop(self._many, []) if self._many else []
        noun = getattr(space, self.operation.noun)
        if party != AGENT:
            noun = type(noun)(noun.scope.through(noun.scope.door.to(party)))
        if SEEN in given:
            noun = type(noun)(noun.scope.at(Seen(given.pop(SEEN), noun.scope.place)))
        return getattr(noun, self.operation.verb)(*many, **given)


def from_json(kind: Kind, value: Any) -> Any:
    """A value as the library expects it: JSON has one kind of number, Python two."""
    if isinstance(kind, Items) and isinstance(value, list):
        inside = kind.operation.arguments()
        for item in value:
            if isinstance(item, dict):
                for name in item.keys() & inside.keys():
                    item[name] = from_json(inside[name].kind, item[name])
    if isinstance(kind, (Whole, When)):
        if isinstance(value, list):
            return [from_json(kind, item) for item in value]
        if isinstance(value, float) and value.is_integer():
            return int(value)
    return value


def read_object(body: bytes) -> dict[str, Any]:
    """The object in a body; an empty body is an empty object."""
    try:
        given = DECODER.decode(body.decode()) if body.strip() else {}
    except (ValueError, RecursionError):
        raise InvalidError("the body is not JSON", next="send an object of arguments") from None
    if not isinstance(given, dict):
        raise InvalidError("the body must be an object of arguments")
    return given


def routes() -> dict[str, Route]:
    """Every operation that somebody may call, by its path."""
    found = [Route(operation) for operation in operations().values() if operation.by]
    return {route.path: route for route in found}


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=fields_of, check_circular=False)


def to_body(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value).encode("ascii")
    except UNREADABLE as error:  # such as a BLOB, which dibs stores nowhere
        raise CorruptError(CHANGED, next="dibs verify names the rows") from error


def answer(description: str, found: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": found}}}


def post(summary: str, tag: str, body: Schema, result: Schema, refusals: dict[str, str]) -> Schema:
    error = {"$ref": "#/components/schemas/Error"}
    return {
        "post": {
            "summary": summary,
            "tags": [tag],
            "parameters": [
                {"$ref": "#/components/parameters/agent"},
                {"$ref": "#/components/parameters/session"},
            ],
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {
                "200": answer("done", result),
                **{code: answer(says, error) for code, says in sorted(refusals.items())},
            },
        }
    }


def refusals(route: Route) -> dict[str, str]:
    """The statuses with which an operation can be refused, besides those of every call."""
    found = {
        "400": "the call is invalid",
        "409": "refused: somebody else was first, or it has changed",
    }
    for error in route.operation.raises:
        first = (error.__doc__ or "").strip().splitlines()[0]
        found.setdefault(str(error.http_status), first)
    return {**GATE, **found}


def document(routes: dict[str, Route]) -> Schema:
    """The whole description."""
    paths = {
        path: post(
            route.operation.summary,
            route.operation.noun,
            of_operation(route.operation),
            of_type(route.operation.result),
            refusals(route),
        )
        for path, route in routes.items()
    }
    for path, (summary, body, result) in APART.items():
        paths[path] = post(summary, "agents", body, result, {**GATE, "400": "misuse"})
    records = {record.__name__: of_record(record) for record in Record.__subclasses__()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dibs",
            "version": __version__,
            "description": "Agents that share a codebase call dibs before they touch something.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "parameters": {
                "agent": header(
                    "Dibs-Agent",
                    "the agent to act as, if the token allows more than one",
                    of_kind(AGENT_NAME),
                ),
                "session": header(
                    "Dibs-Session",
                    "the session to act in, from /v1/agents/join",
                    {"type": "string", "pattern": "^[0-9]{1,18}\\.[0-9a-f]+$"},
                ),
            },
            "schemas": {**records, "Error": ERROR},
        },
    }


def header(name: str, says: str, kind: Schema) -> Schema:
    return {"name": name, "in": "header", "description": says, "schema": kind}


STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; }
section { border-top: 1px solid #8888; padding: .5rem 0; }
dt { font-family: ui-monospace, monospace; } dd { margin: 0 0 .3rem 1.5rem; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } }
"""


def page_of(found: Schema) -> str:
    """The description for people: every call with its arguments and its answer."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>dibs: the API</title>",
        f"<style>{STYLE}</style><h1>dibs: the API</h1>",
        "<p>Every operation is a <code>POST</code> with a JSON object of arguments and "
        "<code>Authorization: Bearer TOKEN</code>. The same for programs: "
        "<a href=/openapi.json>openapi.json</a>.</p>",
    ]
    for path, item in found["paths"].items():
        call = item["post"]
        body = call["requestBody"]["content"]["application/json"]["schema"]
        parts.append(f"<section><h2><code>{escape(path)}</code></h2>")
        parts.append(f"<p>{escape(call['summary'])}</p><dl>")
        for name, kind in body["properties"].items():
            needed = " (required)" if name in body.get("required", []) else ""
            says = escape(kind.get("description", ""))
            parts.append(f"<dt>{escape(name)}{needed}</dt><dd>{says}</dd>")
        result = call["responses"]["200"]["content"]["application/json"]["schema"]
        parts.append(f"</dl><p>Gives <code>{escape(spelled(result))}</code>.</p></section>")
    return "".join(parts)


def spelled(found: Schema) -> str:
    """A schema in a few words."""
    if "$ref" in found:
        return str(found["$ref"].rpartition("/")[2])
    if "anyOf" in found:
        return " or ".join(spelled(part) for part in found["anyOf"])
    if found.get("type") == "array":
        return f"list of {spelled(found['items'])}"
    return str(found.get("type", "any JSON"))
