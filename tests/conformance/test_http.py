"""The bridge is a server that real clients take for one, and it holds to the rules of HTTP."""

# The SDK is not there when types are checked.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import json
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from dibs.surfaces.mcp.protocol import MODERN, PREFIX
from dibs.surfaces.mcp.standard import STANDARD
from tests.conformance.sdk import MODES, PATIENCE_S, Peer, connected_to
from tests.surfaces.shell import Shell

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed"),
]

MISMATCH = -32020
ENVELOPE = {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}

Another = Callable[[], str]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def another(serve: Callable[[str], str], record_property: Callable[[str, object], None]) -> Another:
    """Start one more server, with a session of its own; gives its address."""
    record_property("part", "HTTP")
    return lambda: serve("plain")


@pytest.mark.anyio
@pytest.mark.parametrize("mode", MODES)
async def test_the_sdk_client_claims_over_http(another: Another, mode: str) -> None:
    async with connected_to(another(), mode) as first, connected_to(another(), mode) as second:
        assert first.client.protocol_version == MODES[mode]
        assert len((await first.client.list_tools()).tools) == len(STANDARD)
        assert (await first.ask("claim", resource="a.py"))["status"] == "claimed"
        assert (await second.ask("claim", resource="a.py"))["status"] == "busy"


@pytest.mark.anyio
@pytest.mark.parametrize("mode", MODES)
async def test_the_sdk_client_is_told_of_changes_over_http(another: Another, mode: str) -> None:
    async with connected_to(another(), mode) as first, connected_to(another(), mode) as second:
        await first.ask("status")
        async with second.following("dibs://leases") as next_news:
            await first.ask("claim", resource="a.py")
            await next_news()
            await first.ask("release", resource="a.py")
            await next_news()


@pytest.mark.anyio
@pytest.mark.parametrize("mode", MODES)
async def test_the_sdk_client_hears_of_progress_over_http(another: Another, mode: str) -> None:
    async with connected_to(another(), mode) as first, connected_to(another(), mode) as second:
        await first.ask("claim", resource="a.py")

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            await first.ask("release", resource="a.py")

        with anyio.fail_after(PATIENCE_S):
            result = await second.client.call_tool(
                "wait", {"resource": "a.py", "timeout_s": PATIENCE_S}, progress_callback=tell
            )
    assert result.structured_content["status"] == "available"


@pytest.mark.anyio
@pytest.mark.parametrize("mode", MODES)
async def test_the_sdk_client_cancels_over_http(another: Another, mode: str, shell: Shell) -> None:
    async def queue(peer: Peer) -> None:
        await peer.ask("claim", resource="a.py", wait_s=PATIENCE_S)

    async with connected_to(another(), mode) as first, connected_to(another(), mode) as second:
        await first.ask("claim", resource="a.py")
        async with anyio.create_task_group() as group:
            group.start_soon(queue, second)
            await anyio.to_thread.run_sync(shell.waits, 1)
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(shell.waits, 0)


class Raw:
    """Somebody who sends what they like."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)

    def __call__(
        self, method: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        assert self._address.hostname
        line = HTTPConnection(self._address.hostname, self._address.port, timeout=PATIENCE_S)
        sent = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        try:
            line.request(method, self._address.path, sent, ACCEPT | (headers or {}))
            answer = line.getresponse()
            read = answer.read()
        finally:
            line.close()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, json.loads(read) if read else None, told

    def modern(
        self, method: str, headers: dict[str, str] | None = None, /, **params: Any
    ) -> tuple[int, Any]:
        """A modern request with the headers it should have, except for those given."""
        message = request(method, _meta=ENVELOPE, **params)
        named = params.get("name") or params.get("uri")
        right = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        right |= {"Mcp-Name": named} if named else {}
        sent = {name: value for name, value in (right | (headers or {})).items() if value}
        status, answer, _ = self("POST", message, sent)
        return status, answer

    def initialize(self) -> dict[str, str]:
        """Begin a session; gives the headers that go on with it."""
        hello = request("initialize", protocolVersion="2025-11-25", capabilities={})
        status, answer, told = self("POST", hello)
        assert (status, answer["result"]["protocolVersion"]) == (200, "2025-11-25")
        return {"Mcp-Session-Id": told["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


@pytest.fixture
def raw(another: Another) -> Raw:
    return Raw(another())


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "http://localhost.evil.example:80"},
        {"Origin": "null"},
        {"Origin": "http://[evil"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_page_from_elsewhere_is_turned_away(
    raw: Raw, method: str, headers: dict[str, str]
) -> None:
    status, answer, _ = raw(method, request("ping"), headers)
    assert status == 403
    assert "id" not in answer


@pytest.mark.parametrize("name", ["localhost", "localhost:1", "127.0.0.1:65535", "[::1]:80"])
def test_a_page_of_this_machine_is_served(raw: Raw, name: str) -> None:
    status, _ = raw.modern("tools/list", {"Host": name, "Origin": f"http://{name}"})
    assert status == 200


@pytest.mark.parametrize(
    ("method", "params", "headers"),
    [
        ("tools/list", {}, {"Mcp-Method": "prompts/list"}),
        ("tools/list", {}, {"Mcp-Method": "TOOLS/LIST"}),
        ("tools/list", {}, {"Mcp-Method": ""}),
        ("tools/list", {}, {"MCP-Protocol-Version": "2025-11-25"}),
        ("tools/list", {}, {"MCP-Protocol-Version": ""}),
        ("tools/call", {"name": "status"}, {"Mcp-Name": "claim"}),
        ("tools/call", {"name": "status"}, {"Mcp-Name": ""}),
        ("tools/call", {"name": "status"}, {"Mcp-Name": "=?base64?c3RhdHVz=?="}),
        ("tools/call", {"name": "status"}, {"Mcp-Name": "=?base64?c3RhdHV?="}),
        ("tools/call", {"name": "status"}, {"Mcp-Name": "=?base64?/w==?="}),
        ("resources/read", {"uri": "dibs://board"}, {"Mcp-Name": "dibs://work"}),
    ],
)
def test_headers_that_do_not_say_what_the_body_says_are_refused(
    raw: Raw, method: str, params: dict[str, Any], headers: dict[str, str]
) -> None:
    status, answer = raw.modern(method, headers, **params)
    assert (status, answer["error"]["code"], answer["id"]) == (400, MISMATCH, 7)


@pytest.mark.parametrize("name", ["status", "  status\t", "=?base64?c3RhdHVz?="])
def test_headers_may_be_spelled_in_more_than_one_way(raw: Raw, name: str) -> None:
    status, answer = raw.modern("tools/call", {"Mcp-Name": name}, name="status")
    assert (status, answer["result"]["structuredContent"]["status"]) == (200, "ok")


@pytest.mark.parametrize(
    ("method", "params", "status", "code"),
    [
        ("initialize", {}, 404, -32601),
        ("ping", {}, 404, -32601),
        ("no/such", {}, 404, -32601),
        ("tools/call", {"name": "steal"}, 400, -32602),
        ("resources/read", {"uri": "dibs://nowhere"}, 400, -32602),
        ("subscriptions/listen", {}, 400, -32602),
    ],
)
def test_the_status_says_what_kind_of_error_it_is(
    raw: Raw, method: str, params: dict[str, Any], status: int, code: int
) -> None:
    seen, answer = raw.modern(method, **params)
    assert (seen, answer["error"]["code"], answer["id"]) == (status, code, 7)


@pytest.mark.parametrize("body", [b"{", b"[]", b"5", b'{"jsonrpc":"1.0","id":1,"method":"ping"}'])
def test_what_is_no_message_is_refused_without_an_id(raw: Raw, body: bytes) -> None:
    status, answer, _ = raw("POST", body)
    assert status == 400
    assert "id" not in answer


def test_a_client_that_cannot_read_both_kinds_of_answer_is_told(raw: Raw) -> None:
    assert raw("POST", request("ping"), {"Accept": "application/json"})[0] == 406


def test_a_session_lasts_until_it_is_deleted(raw: Raw) -> None:
    session = raw.initialize()
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert raw("POST", note, session)[:2] == (202, None)
    assert raw("POST", request("ping"), session)[1]["result"] == {}
    status, answer, _ = raw("POST", request("no/such"), session)
    assert (status, answer["error"]["code"]) == (200, -32601)
    assert raw("DELETE", None, session)[0] == 204
    assert raw("POST", request("ping"), session)[0] == 404
    assert raw("GET", None, session)[0] == 404


def test_without_a_session_only_the_first_request_is_served(raw: Raw) -> None:
    assert raw("POST", request("tools/list"))[0] == 400
    assert raw("GET")[0] == 405
    assert raw("DELETE")[0] == 405
