"""What the Model Context Protocol requires of a server, independent of the transport.

Two eras are supported side by side. Since 2026-07-28 every request states its version in `_meta`,
and the server keeps no state; before that, a handshake (`initialize`) set the version for the whole
connection. Each message is judged by itself: a message with the modern envelope is answered in the
modern way, whatever came before it.
"""

from __future__ import annotations

import json

from dibs import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODERN = "2026-07-28"
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
BATCHES = "2025-03-26"
"""The one version that allows several messages in one array."""
SUPPORTED = [MODERN, *HANDSHAKE]
PREFIX = "io.modelcontextprotocol/"
SERVER = {"name": "dibs", "version": __version__}

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
UNSUPPORTED_VERSION = -32022

# The suffixes of methods whose results say how long they may be cached. Ours may not be cached,
# since others change what they show.
CACHEABLE = ("/list", "/read", "/discover")
MODERN_ONLY = ("server/discover", "subscriptions/listen")
HANDSHAKE_ONLY = (
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
)


class ProtocolError(Exception):
    """A message that is refused with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_json(self, id: int | str | None) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return {"jsonrpc": "2.0", "id": id, "error": error}


class Request:
    """One request, checked as far as every method needs it."""

    def __init__(self, message: dict[str, Any], version: str | None, client: str) -> None:
        """version, client: from the handshake"""
        self.id: int | str = message["id"]
        self.method: str = message["method"]
        params = message.get("params", {})
        if not isinstance(params, dict):
            raise ProtocolError(INVALID_PARAMS, "params must be an object")
        meta = params.get("_meta", {})
        self.params: dict[str, Any] = params
        self.meta: dict[str, Any] = meta if isinstance(meta, dict) else {}
        self.modern = self._is_modern(version)
        said = self.meta.get(PREFIX + "clientInfo") if self.modern else None
        self.client = client_name(said, otherwise=client)
        if self.method in (HANDSHAKE_ONLY if self.modern else MODERN_ONLY):
            raise ProtocolError(METHOD_NOT_FOUND, f"{self.method} is not in this version")

    def _is_modern(self, settled: str | None) -> bool:
        version = self.meta.get(PREFIX + "protocolVersion")
        if version is None and (settled or self.method in ("initialize", "ping")):
            return False
        if version is None or not isinstance(version, str):
            raise ProtocolError(
                INVALID_PARAMS,
                f"_meta must contain {PREFIX}protocolVersion and {PREFIX}clientCapabilities, "
                "or initialize must come first",
            )
        if not isinstance(self.meta.get(PREFIX + "clientCapabilities"), dict):
            raise ProtocolError(INVALID_PARAMS, f"_meta must contain {PREFIX}clientCapabilities")
        if version != MODERN:
            raise ProtocolError(
                UNSUPPORTED_VERSION,
                "Unsupported protocol version",
                {"supported": SUPPORTED, "requested": version},
            )
        return True

    @property
    def token(self) -> int | str | None:
        """The token for progress reports, if the client wants them."""
        token = self.meta.get("progressToken")
        return token if is_id(token) else None

    def text(self, name: str) -> str:
        """A parameter that must be present and text."""
        value = self.params.get(name)
        if not isinstance(value, str):
            raise ProtocolError(INVALID_PARAMS, f"{name} must be given, as a string")
        return value

    def answer(self, result: dict[str, Any]) -> dict[str, Any]:
        """The response, with the fields that this request's era requires around a result."""
        if self.modern:
            meta = {**result.get("_meta", {}), PREFIX + "serverInfo": SERVER}
            result = {"resultType": "complete", **result, "_meta": meta}
            if self.method.endswith(CACHEABLE):
                result |= {"ttlMs": 0, "cacheScope": "private"}
        return {"jsonrpc": "2.0", "id": self.id, "result": result}


def parse(line: bytes) -> Any:
    try:
        return DECODER.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise ProtocolError(PARSE_ERROR, "this is not JSON") from None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


DECODER = json.JSONDecoder(parse_constant=_refuse)
"""For strict JSON, without NaN and the like."""


def is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def check_message(message: Any) -> None:
    """Refuse what is neither a request, a notification nor an answer."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, "this is not a JSON-RPC 2.0 message")
    if "id" in message and not is_id(message["id"]):
        raise ProtocolError(INVALID_REQUEST, "id must be a string or a whole number")
    answers = "method" not in message and ("result" in message or "error" in message)
    if not isinstance(message.get("method"), str) and not answers:
        raise ProtocolError(INVALID_REQUEST, "method must be a string")


def client_name(info: object, otherwise: str = "") -> str:
    return str(info.get("name", "")) if isinstance(info, dict) else otherwise


def notification(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}
