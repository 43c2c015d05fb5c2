"""`/mcp` of a real daemon: the rules of HTTP, who calls, and when a session ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from dibs.mcp.protocol import MODERN, PREFIX
from dibs.surfaces.http.mcp_endpoint import HEADER_MISMATCH
from dibs.surfaces.http.mcp_sessions import IDLE_S, TTL_S
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import PATIENCE_S, Shell, until

ENVELOPE = {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": {}}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
LEGACY = "2025-11-25"


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


class Raw:
    """Somebody with a token who sends what they like, each time on a new connection."""

    def __init__(self, daemon: Daemon, token: str) -> None:
        self._daemon = daemon
        self.token = token
        self._headers = ACCEPT | {"Authorization": f"Bearer {token}"}
        self.session: dict[str, str] = {}

    @contextmanager
    def open(
        self, method: str, body: Any = None, headers: dict[str, str | None] | None = None
    ) -> Iterator[HTTPConnection]:
        """Send a request; its connection is cut at the end of the block."""
        line = HTTPConnection(*self._daemon.address, timeout=PATIENCE_S)
        sent = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        given = {**self._headers, **self.session, **(headers or {})}
        try:
            line.request(method, "/mcp", sent, {k: v for k, v in given.items() if v is not None})
            yield line
        finally:
            line.close()

    def __call__(
        self, method: str, body: Any = None, headers: dict[str, str | None] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        with self.open(method, body, headers) as line:
            answer = line.getresponse()
            read = answer.read()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, json.loads(read) if read else None, told

    def modern(
        self, method: str, headers: dict[str, str | None] | None = None, /, **params: Any
    ) -> tuple[int, Any]:
        """A modern request with the headers it should have, except for those given."""
        meta = ENVELOPE | params.pop("meta", {})
        named = params.get("name") or params.get("uri")
        right = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": named}
        status, answer, _ = self(
            "POST", request(method, _meta=meta, **params), right | (headers or {})
        )
        return status, answer

    def initialize(self, version: str = LEGACY) -> Raw:
        """Begin a session, and stay in it."""
        hello = request("initialize", protocolVersion=version, capabilities={})
        status, answer, told = self("POST", hello)
        assert (status, answer["result"]["protocolVersion"]) == (200, version)
        self.session = {"Mcp-Session-Id": told["mcp-session-id"], "MCP-Protocol-Version": version}
        return self

    def tool(self, name: str, /, *, meta: dict[str, Any] | None = None, **arguments: Any) -> Any:
        """What a tool answers, in the session if there is one."""
        params = {"name": name, "arguments": arguments}
        if self.session:
            body = request("tools/call", _meta=meta or {}, **params)
            status, answer, _ = self("POST", body)
        else:
            status, answer = self.modern("tools/call", meta=meta or {}, **params)
        assert status == 200, answer
        return answer["result"]["structuredContent"]


@pytest.fixture(scope="module")
def daemon(place: Shell) -> Iterator[Daemon]:
    with serving(place) as daemon:
        yield daemon
        ended = daemon.stop()
        assert (ended.code, ended.err) == (0, ""), ended


Somebody = Callable[..., Raw]


@pytest.fixture
def somebody(daemon: Daemon) -> Somebody:
    """One more with a token, of a new name if none is given."""

    def somebody(name: str = "", scope: str = "agent") -> Raw:
        return Raw(daemon, daemon.token_of(name or f"agent-{uuid4().hex[:8]}", scope))

    return somebody


@pytest.fixture
def raw(somebody: Somebody) -> Raw:
    return somebody()


@pytest.fixture
def file() -> str:
    """A file that no other test claims."""
    return f"{uuid4().hex}.py"


# What is refused


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_token_is_needed(raw: Raw, method: str) -> None:
    assert raw(method, request("ping"), {"Authorization": None})[0] == 401


def test_a_token_that_may_only_read_is_refused(somebody: Somebody) -> None:
    assert somebody(scope="read").modern("tools/list")[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost.evil:80", "null"])
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_page_from_elsewhere_is_turned_away(raw: Raw, method: str, origin: str) -> None:
    assert raw(method, request("ping"), {"Origin": origin})[0] == 403


@pytest.mark.parametrize(
    ("method", "params", "headers"),
    [
        ("tools/list", {}, {"Mcp-Method": "prompts/list"}),
        ("tools/list", {}, {"Mcp-Method": "TOOLS/LIST"}),
        ("tools/list", {}, {"Mcp-Method": None}),
        ("tools/list", {}, {"MCP-Protocol-Version": LEGACY}),
        ("tools/list", {}, {"MCP-Protocol-Version": None}),
        ("tools/call", {"name": "status"}, {"Mcp-Name": "claim"}),
        ("tools/call", {"name": "status"}, {"Mcp-Name": None}),
        ("tools/call", {"name": "status"}, {"Mcp-Name": "=?base64?c3RhdHVz=?="}),
        ("tools/call", {"name": "status"}, {"Mcp-Name": "=?base64?c3RhdHV?="}),
        ("tools/call", {"name": "status"}, {"Mcp-Name": "=?base64?/w==?="}),
        ("resources/read", {"uri": "dibs://board"}, {"Mcp-Name": "dibs://work"}),
    ],
)
def test_headers_that_do_not_say_what_the_body_says_are_refused(
    raw: Raw, method: str, params: dict[str, Any], headers: dict[str, str | None]
) -> None:
    status, answer = raw.modern(method, headers, **params)
    assert (status, answer["error"]["code"], answer["id"]) == (400, HEADER_MISMATCH, 7)


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


def test_without_a_session_only_the_first_request_is_served(raw: Raw) -> None:
    assert raw("POST", request("tools/list"))[0] == 400
    assert raw("GET")[0] == 405
    assert raw("DELETE")[0] == 405


def test_only_the_version_that_allows_it_may_ask_several_things_at_once(raw: Raw) -> None:
    both = [request("ping"), request("tools/list") | {"id": 8}]
    assert raw("POST", both)[0] == 400
    assert raw.initialize()("POST", both)[0] == 400
    raw.session = {}
    status, answers, _ = raw.initialize("2025-03-26")("POST", both)
    assert (status, [answer["id"] for answer in answers]) == (200, [7, 8])
    notes = [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
    assert raw("POST", notes)[:2] == (202, None)


def test_a_refused_handshake_begins_no_session(raw: Raw) -> None:
    status, answer, told = raw("POST", request("initialize"))
    assert (status, answer["error"]["code"]) == (200, -32602)
    refused: dict[str, str | None] = {"Mcp-Session-Id": told["mcp-session-id"]}
    assert raw("POST", request("ping"), refused)[0] == 404


# Who calls


def test_the_token_says_who_calls_and_no_tool_can_change_it(somebody: Somebody) -> None:
    name = f"ann-{uuid4().hex[:8]}"
    for ann in (somebody(name), somebody(name).initialize()):
        assert ann.tool("status")["you"] == name
        assert ann.tool("status", name="bob")["status"] == "named_already"


def test_a_token_acts_for_its_subagents_and_for_nobody_else(somebody: Somebody) -> None:
    name = f"ann-{uuid4().hex[:8]}"
    ann = somebody(name)
    status, answer = ann.modern("tools/call", {"Dibs-Agent": f"{name}/tests"}, name="status")
    assert (status, answer["result"]["structuredContent"]["you"]) == (200, f"{name}/tests")
    assert ann.modern("tools/call", {"Dibs-Agent": "bob"}, name="status")[0] == 403


def test_two_sessions_with_one_token_exclude_each_other(somebody: Somebody, file: str) -> None:
    name = f"ann-{uuid4().hex[:8]}"
    one, two = somebody(name).initialize(), somebody(name).initialize()
    assert one.tool("claim", resource=file)["status"] == "claimed"
    assert one.tool("claim", resource=file)["status"] == "already_claimed"
    assert two.tool("claim", resource=file)["status"] == "busy"


def test_a_client_without_sessions_acts_in_the_session_it_names(raw: Raw, file: str) -> None:
    one, two = ({"sessionId": uuid4().hex} for _ in range(2))
    assert raw.tool("claim", resource=file, meta=one)["status"] == "claimed"
    assert raw.tool("claim", resource=file, meta=one)["status"] == "already_claimed"
    assert raw.tool("claim", resource=file, meta=two)["status"] == "busy"
    assert raw.tool("claim", resource=file)["status"] == "busy"


def test_a_client_that_names_no_session_acts_in_that_of_its_shell(
    raw: Raw, daemon: Daemon, file: str
) -> None:
    assert raw.tool("claim", resource=file)["status"] == "claimed"
    shell = daemon.client(token=raw.token)
    released = shell("leases.release", resources=[file])
    assert [lease["resource"] for lease in released] == [file]


def test_a_session_is_of_no_use_to_another(somebody: Somebody, file: str) -> None:
    ann, mallory = somebody().initialize(), somebody()
    assert ann.tool("claim", resource=file)["status"] == "claimed"
    mallory.session = ann.session
    assert mallory("POST", request("ping"))[0] == 404
    assert mallory("GET")[0] == 404
    assert mallory("DELETE")[0] == 404
    mallory.session = {}
    shared = {"sessionId": uuid4().hex}
    assert ann.tool("claim", resource=f"{file}.2", meta=shared)["status"] == "claimed"
    mallory.modern("tools/call", name="release", arguments={"everything": True}, meta=shared)
    assert mallory.tool("claim", resource=f"{file}.2", meta=shared)["status"] == "busy"
    assert ann.tool("claim", resource=f"{file}.2", meta=shared)["status"] == "already_claimed"


# When a session ends


def test_a_session_lasts_until_it_is_deleted(somebody: Somebody, file: str) -> None:
    ann, bob = somebody().initialize(), somebody().initialize()
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert ann("POST", note)[:2] == (202, None)
    assert ann("POST", request("ping"))[1]["result"] == {}
    status, answer, _ = ann("POST", request("no/such"))
    assert (status, answer["error"]["code"]) == (200, -32601)
    assert ann.tool("claim", resource=file)["status"] == "claimed"
    assert bob.tool("claim", resource=file)["status"] == "busy"
    assert ann("DELETE")[0] == 204
    assert bob.tool("claim", resource=file)["status"] == "claimed"
    assert ann("POST", request("ping"))[0] == 404
    assert ann("GET")[0] == 404


def test_a_session_lives_by_its_time_and_not_by_the_daemon(raw: Raw, place: Shell) -> None:
    name = raw.initialize().tool("status")["you"]
    presences = place.json("agents")
    (session,) = [s for one in presences if one["agent"] == name for s in one["sessions"]]
    assert not session["process_bound"]
    assert IDLE_S * 1000 < session["expires_in_ms"] <= TTL_S * 1000


class Impatient(Shell):
    """A shell whose `dibs` does not keep the sessions of those who are idle, or gone, for long."""

    def __init__(self, shell: Shell, what: str) -> None:
        root = str(Path(__file__).resolve().parents[2])
        super().__init__(shell.folder, shell.environment | {"PYTHONPATH": root})
        self._command = [sys.executable, "-m", "tests.surfaces.impatient", what]

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        return self.spawn([*self._command, *words], **options)


def test_what_a_client_held_whose_stream_broke_off_is_free_unless_it_comes_back(
    shell: Shell,
) -> None:
    with serving(Impatient(shell, "gone")) as daemon:
        ann, bob, cid = (
            Raw(daemon, daemon.token_of(name)).initialize() for name in ("ann", "bob", "cid")
        )
        assert ann.tool("claim", resource="a.py")["status"] == "claimed"
        assert cid.tool("claim", resource="c.py")["status"] == "claimed"
        with cid.open("GET") as first, ann.open("GET") as line:
            assert first.getresponse().status == line.getresponse().status == 200
            assert bob.tool("claim", resource="a.py")["status"] == "busy"
        with cid.open("GET") as again:
            assert again.getresponse().status == 200
            assert bob.tool("claim", resource="a.py", wait_s=PATIENCE_S)["status"] == "claimed"
            assert ann("POST", request("ping"))[0] == 404
            assert bob.tool("claim", resource="c.py")["status"] == "busy"
        assert cid.tool("claim", resource="c.py")["status"] == "already_claimed"


def test_a_session_that_nothing_is_heard_of_ends(shell: Shell) -> None:
    with serving(Impatient(shell, "idle")) as daemon:
        idle, asking, listening = (
            Raw(daemon, daemon.token_of(name)).initialize() for name in ("ann", "bob", "cid")
        )
        named = Raw(daemon, daemon.token_of("dan"))
        for number, peer in enumerate((idle, asking, listening)):
            assert peer.tool("claim", resource=f"{number}.py")["status"] == "claimed"
        named.tool("claim", resource="3.py", meta={"sessionId": "one"})

        def held() -> set[str]:
            assert asking("POST", request("ping"))[0] == 200
            return {lease["resource"] for lease in shell.json("leases", "list")}

        with listening.open("GET") as line:
            assert line.getresponse().status == 200
            until(lambda: held() == {"1.py", "2.py"}, "the leases of those who are there")
        assert idle("POST", request("ping"))[0] == 404
        assert asking.tool("claim", resource="1.py")["status"] == "already_claimed"


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_client_that_hangs_up_has_given_up_its_call(
    somebody: Somebody, place: Shell, file: str, era: str
) -> None:
    holder, ann = somebody(), somebody()
    assert holder.tool("claim", resource=file)["status"] == "claimed"
    params: dict[str, Any] = {"name": "claim", "arguments": {"resource": file, "wait_s": 60}}
    headers: dict[str, str | None] = {}
    if era == "handshake":
        ann.initialize()
    else:
        params["_meta"] = ENVELOPE
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "claim"}

    def waiting() -> bool:
        return any(ticket["resource"] == file for ticket in place.json("leases", "waiting"))

    with ann.open("POST", request("tools/call", **params), headers):
        until(waiting, "it in the queue")
    until(lambda: not waiting(), "it out of the queue")
    holder.tool("release", resource=file)
    assert holder.tool("status", resource=file)["status"] == "available"


def test_a_call_cancelled_in_a_session_ends_without_an_answer(
    somebody: Somebody, file: str
) -> None:
    holder, ann = somebody(), somebody().initialize()
    holder.tool("claim", resource=file)
    body = request("tools/call", name="claim", arguments={"resource": file, "wait_s": 60})
    body["params"]["_meta"] = {"progressToken": 1}
    with ann.open("POST", body) as line:
        answer = line.getresponse()  # begins with the first progress
        assert "notifications/progress" in events(answer, 1)[0]["method"]
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": 7}}
        assert ann("POST", {"jsonrpc": "2.0", **cancelled})[:2] == (202, None)
        assert b'"result"' not in answer.read()


def events(answer: HTTPResponse, number: int) -> list[Any]:
    """The next so many events of a stream."""
    found: list[Any] = []
    while len(found) < number:
        line = answer.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            found.append(json.loads(line[6:]))
    return found


# The daemon's own end


@pytest.fixture(params=["sqlite", "postgres"])
def on_store(shell: Shell, request: pytest.FixtureRequest, space_name: str) -> Shell:
    if request.param == "sqlite":
        return shell
    return shell.with_(DIBS_URL=request.getfixturevalue("postgres_url"), DIBS_SPACE=space_name)


def test_a_session_goes_on_when_the_daemon_was_killed_and_started_again(on_store: Shell) -> None:
    with serving(on_store) as daemon:
        ann, bob = (Raw(daemon, daemon.token_of(name)).initialize() for name in ("ann", "bob"))
        assert ann.tool("claim", resource="src/a.py")["status"] == "claimed"
        daemon.kill()
        daemon.start()
        assert ann.tool("claim", resource="src/a.py")["status"] == "already_claimed"
        # Bob had done nothing yet. Where there is one daemon, nothing of his is known, and his
        # client begins again; where there may be several, all of them know.
        alone = "DIBS_URL" not in on_store.environment
        assert bob("POST", request("ping"))[0] == (404 if alone else 200)
        bob.session = {}
        assert bob.initialize().tool("claim", resource="src/a.py")["status"] == "busy"
        assert ann("DELETE")[0] == 204
        assert bob.tool("claim", resource="src/a.py")["status"] == "claimed"


def test_a_daemon_that_stops_waits_for_no_stream_and_answers_those_who_wait(shell: Shell) -> None:
    with serving(shell) as daemon:
        ann, bob = (Raw(daemon, daemon.token_of(name)) for name in ("ann", "bob"))
        ann.initialize().tool("claim", resource="src/a.py")
        wanted = {"resource": "src/a.py", "wait_s": 60}
        body = request("tools/call", name="claim", arguments=wanted, _meta=ENVELOPE)
        right: dict[str, str | None] = {
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "claim",
        }
        with ann.open("GET") as stream, bob.open("POST", body, right) as waiting:
            read = stream.getresponse()
            shell.waits()
            ended = daemon.stop()
            assert read.read() == b""
            assert waiting.getresponse().status == 503
        assert (ended.code, ended.err) == (0, ""), ended
