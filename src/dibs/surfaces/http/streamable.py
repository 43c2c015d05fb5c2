"""What HTTP adds to the Model Context Protocol: whom to turn away, and the status of an answer.

Rules only: headers and a parsed message go in, a verdict comes out. What the message itself must
say is checked where every transport checks it, in `dibs.mcp.protocol`; hosts, origins
and tokens are the guard's.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from dibs.mcp.protocol import (
    HANDSHAKE,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    PREFIX,
    UNSUPPORTED_VERSION,
    ProtocolError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    Headers = dict[str, str]

HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021

JSON, EVENTS = "application/json", "text/event-stream"
SESSION = "mcp-session-id"
VERSION = "mcp-protocol-version"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods whose requests repeat in a header what they are about, and where that stands."""
WRAPPED = ("=?base64?", "?=")
STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


def fold(pairs: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers by their small names. One that stands twice counts only if both agree."""
    folded: Headers = {}
    for name, value in pairs:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
        if folded.setdefault(key, text) != text:
            folded[key] = f"{folded[key]}, {text}"
    return folded


def takes(headers: Headers, kind: str) -> bool:
    """Whether the client can read an answer of that kind."""
    accepted = {part.partition(";")[0].strip() for part in headers.get("accept", "").split(",")}
    return bool(accepted & {kind, kind.partition("/")[0] + "/*", "*/*"})


def is_modern(headers: Headers, message: Any) -> bool:
    """Whether a message is of the era without sessions, by its envelope or by its header."""
    version = headers.get(VERSION)
    return PREFIX + "protocolVersion" in envelope(message) or not (
        version is None or version in HANDSHAKE
    )


def envelope(message: Any) -> dict[str, Any]:
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def check_headers(headers: Headers, message: dict[str, Any]) -> None:
    """Refuse a modern request whose headers do not repeat what its body says.

    Whoever stands between routes by the headers; we act by the body. An envelope that lacks
    something is left to those who read it.
    """
    meta = envelope(message)
    if PREFIX + "protocolVersion" not in meta or PREFIX + "clientCapabilities" not in meta:
        return
    said: list[tuple[str, Any]] = [
        (VERSION, meta[PREFIX + "protocolVersion"]),
        ("mcp-method", message["method"]),
    ]
    if (field := NAMED.get(message["method"])) and isinstance(message["params"].get(field), str):
        said.append(("mcp-name", message["params"][field]))
    for name, value in said:
        if name not in headers:
            raise ProtocolError(HEADER_MISMATCH, f"Header mismatch: {name} is missing")
        given = unwrapped(headers[name]) if name == "mcp-name" else headers[name]
        if given != value:
            raise ProtocolError(
                HEADER_MISMATCH, f"Header mismatch: {name} is not what the body says"
            )


def unwrapped(value: str) -> str | None:
    """A header's value, also one that had to be wrapped to fit; None if it was wrapped badly."""
    before, after = WRAPPED
    if not (value.startswith(before) and value.endswith(after)):
        return value
    inner = value[len(before) : -len(after)]
    try:
        found = base64.b64decode(inner, validate=True)
        return found.decode("utf-8") if base64.b64encode(found).decode("ascii") == inner else None
    except (binascii.Error, ValueError):
        return None


def status_of(answer: Any, modern: bool) -> int:
    """The HTTP status of an answer. Before sessions were dropped, an error was a good answer."""
    return STATUS.get(answer["error"]["code"], 200) if modern and "error" in answer else 200


def as_event(line: bytes) -> bytes:
    """A message, as the line that it is, as one server-sent event."""
    return b"event: message\ndata: " + line + b"\n"
