"""R17 over HTTP: pages of other sites, strangers, other agents, and requests that are none.

Everything is refused in the one shape that all refusals have, changes nothing, and costs little.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.surfaces.http.connection import HEAD_LIMIT, REQUEST_S
from dibs.wire import BODY_LIMIT
from tests.surfaces.daemon import SHAPE, Daemon, Refusal, Reply, serving
from tests.surfaces.shell import PATIENCE_S, Shell, scrubbed, until

MIB = 1 << 20


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests here: what they send must leave no trace."""
    folder = tmp_path_factory.mktemp("hostile")
    subprocess.run(["git", "init", "-q", str(folder / "repository")], check=True)
    (folder / "home").mkdir()
    with serving(Shell(folder / "repository", scrubbed(folder / "home"))) as running:
        yield running
        assert running.process.poll() is None, "it has survived all of this"


@pytest.fixture
def unchanged(daemon: Daemon) -> Iterator[None]:
    """Nothing happens in the space during the test."""
    owner = daemon.client("alice")
    owner("agents.beat")  # from now on she is known here, which is an event of its own
    before = owner("events.last")
    yield
    assert daemon.client()("events.last") == before


def raw(daemon: Daemon, request: bytes) -> Reply:
    """The answer to bytes that no client would send."""
    with daemon.connect() as connection:
        connection.sendall(request)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, headers, answer.read())


def post(daemon: Daemon, *lines: str, body: bytes = b"{}", path: str = "/v1/events/last") -> bytes:
    """A request of exactly these lines, with a good token."""
    head = [f"POST {path} HTTP/1.1", f"Authorization: Bearer {daemon.token}", *lines, "", ""]
    return "\r\n".join(head).encode("latin-1") + body


def usual(daemon: Daemon) -> list[str]:
    return [f"Host: {daemon.url[7:]}", "Content-Type: application/json"]


# Pages of other sites.


def test_only_its_own_host_is_answered(daemon: Daemon) -> None:
    own = daemon.url[7:]
    for host in (own, own.upper(), f"localhost:{daemon.port}", f"[::1]:{daemon.port}"):
        assert daemon.client().ask("events.last", Host=host).status == 200
    for host in (
        "evil.example", f"evil.example:{daemon.port}", "127.0.0.1", "localhost",
        f"{own}.evil.example", f"evil.example@{own}", f"{own}, evil.example", f"{own}/",
        "127.0.0.1:1", "0.0.0.0", f"0.0.0.0:{daemon.port}", f"2130706433:{daemon.port}", "",
    ):  # fmt: skip
        for method, path in (("POST", "/v1/events/last"), ("GET", "/"), ("GET", "/healthz")):
            reply = daemon.client().request(method, path, "{}", {"Host": host})
            assert (reply.status, reply.error) == (403, "host"), (host, path)


def test_a_request_without_a_host_is_refused(daemon: Daemon) -> None:
    for version in ("1.1", "1.0"):
        reply = raw(daemon, f"GET /healthz HTTP/{version}\r\n\r\n".encode())
        assert (reply.status, reply.error) == (403, "host")


@pytest.mark.parametrize(
    "path", ["/v1/state/set", "/sign-in", "/mcp", "/healthz", "/", "/v1/events"]
)
@pytest.mark.usefixtures("unchanged")
def test_pages_of_others_are_refused_whatever_they_know(daemon: Daemon, path: str) -> None:
    """Also with a good token: a page has no business with one."""
    body = '{"namespace": "n", "key": "k", "value": 1}'
    for headers in (
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "file://"},
        {"Origin": ""}, {"Origin": "http://127.0.0.1"}, {"Origin": f"{daemon.url}.evil.example"},
        {"Origin": f"ftp://{daemon.url[7:]}"}, {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": daemon.url},
    ):  # fmt: skip
        for method in ("GET", "POST"):
            reply = daemon.client("alice").request(method, path, body, {**headers})
            assert (reply.status, reply.error) == (403, "origin"), (headers, method)
            assert not [name for name in reply.headers if name.startswith("access-control")]


def test_a_preflight_is_told_nothing(daemon: Daemon) -> None:
    asks = {"Access-Control-Request-Method": "POST", "Origin": "http://evil.example"}
    reply = daemon.stranger().request("OPTIONS", "/v1/state/set", None, {**asks})
    assert (reply.status, reply.error) == (403, "origin")
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert daemon.client().request("OPTIONS", "/v1/state/set").error == "method"


@pytest.mark.usefixtures("unchanged")
def test_only_json_is_read(daemon: Daemon) -> None:
    body = '{"namespace": "n", "key": "k", "value": 1}'
    for kind in (
        None, "", "text/plain", "text/plain; charset=utf-8", "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x", "text/json", "application/json5",
        "application/json; a=b", "application/json, text/plain", "text/plain; application/json",
        "application/jsonp", "APPLICATION/XML", "application/json;charset=utf-16",
    ):  # fmt: skip
        reply = daemon.client("alice").request(
            "POST", "/v1/state/set", body, {"Content-Type": kind}
        )
        assert (reply.status, reply.error) == (415, "content_type"), kind


@pytest.mark.usefixtures("unchanged")
def test_what_is_no_object_of_arguments_is_refused(daemon: Daemon) -> None:
    alice = daemon.client("alice")
    for body in (
        "[]", "1", "null", '"text"', "{", "{}{}", "{'a': 1}", "\x00", "nan", '{"value": NaN}',
        '{"value": Infinity}', "[" * 100_000, '{"a":' * 50_000, b"\xff\xfe",
        b'{"namespace": "\xff"}', '{"unknown": 1}', '{"namespace": "n"}', '{"self": 1}',
        '{"tx": 1}', '{"__class__": 1}',
        '{"namespace": "n", "key": "k", "value": 1, "args": []}',
        '{"namespace": "\\ud800", "key": "k", "value": 1}',
        '{"namespace": "n", "key": "k", "value": 1' + "0" * 5_000 + "}",
    ):  # fmt: skip
        reply = alice.request("POST", "/v1/state/set", body)
        assert (reply.status, reply.error) == (400, "invalid"), body[:60]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("path", "body"), [("/v1/me", "[]"), ("/v1/cancel", '{"call": {}}')])
def test_what_is_no_operation_is_as_strict(daemon: Daemon, path: str, body: str) -> None:
    reply = daemon.client("alice").request("POST", path, body)
    assert (reply.status, reply.error) == (400, "invalid")


# Strangers.


@pytest.mark.parametrize("path", ["/v1/events/last", "/v1/nothing/there", "/v1/agents/join"])
def test_without_a_good_token_nothing_is_told(daemon: Daemon, path: str) -> None:
    good = daemon.token
    for value, code in (
        (None, "no_token"), ("", "no_token"), ("Bearer", "no_token"), ("Bearer ", "no_token"),
        (good, "no_token"), (f"Basic {good}", "no_token"), (f"Token {good}", "no_token"),
        ("Bearer x", "bad_token"), (f"Bearer {good}x", "bad_token"),
        (f"Bearer {good[:-1]}", "bad_token"), (f"Bearer {good.lower()}", "bad_token"),
        (f"Bearer {good} {good}", "bad_token"), ("Bearer " + "x" * 10_000, "bad_token"),
        ("Bearer \xff\xfe", "bad_token"), ("Bearer ' OR 1=1 --", "bad_token"),
    ):  # fmt: skip
        reply = daemon.stranger().request("POST", path, "{}", {"Authorization": value})
        assert (reply.status, reply.error) == (401, code), value
        assert reply.headers["www-authenticate"] == "Bearer"
        assert good not in reply.body.decode()


def test_a_token_in_the_address_or_in_a_cookie_is_none(daemon: Daemon) -> None:
    token = daemon.token
    for path in (f"/v1/events/last?token={token}", f"/v1/events/last?access_token={token}"):
        assert daemon.stranger().request("POST", path, "{}").error == "no_token"
    for cookie in (f"dibs_session={token}", f"token={token}"):
        reply = daemon.stranger(Cookie=cookie, Origin=daemon.url).ask("events.last")
        assert (reply.status, reply.error) == (401, "no_token")


def test_what_needs_no_token_tells_nothing(daemon: Daemon) -> None:
    stranger = daemon.stranger()
    for path in ("/healthz", "/readyz"):
        reply = stranger.request("GET", path)
        assert (reply.status, reply.json) == (200, {"status": "ok"})
        assert "server" not in reply.headers and "date" not in reply.headers
    for path in ("/metrics", "/openapi.json", "/v1/events", "/v1/events?since=0", "/docs"):
        reply = stranger.request("GET", path)
        assert (reply.status, reply.error) == (401, "no_token"), path
    page = stranger.request("GET", "/")
    assert daemon.token not in page.body.decode()
    assert str(daemon.shell.folder) not in page.body.decode()


def test_a_revoked_token_opens_nothing_within_a_second(daemon: Daemon) -> None:
    owner = daemon.client()
    made = owner("agents.add_token", name="mallory")
    mallory = daemon.client(token=made["secret"])
    mallory("agents.beat")
    owner("agents.revoke_token", id=made["id"])
    begun = time.monotonic()
    until(lambda: mallory.ask("agents.beat").status == 401, "the end of the token")
    # What it is known for is a second; more than that would be a cache that forgets nothing.
    assert time.monotonic() - begun < 3
    assert mallory.ask("events.last").error == "bad_token"


def test_an_expired_token_opens_nothing(daemon: Daemon) -> None:
    mallory = daemon.client(token=daemon.token_of("mallory", expires_s=1))
    until(lambda: mallory.ask("events.last").status == 401, "the end of the token")
    assert mallory.ask("events.last").error == "bad_token"


# Other agents.


def test_a_token_speaks_for_its_own_name_only(daemon: Daemon) -> None:
    bob = daemon.client(token=daemon.token_of("bob"))
    before = bob("events.last")
    for name in ("alice", "bob2", "bo", "dibs", "alice/bob", "BOB", "bob2/x", "/bob", "bob//x"):
        for operation in ("agents.beat", "messages.inbox", "agents.join"):
            reply = bob.ask(operation, Dibs_Agent=name)
            assert reply.status in (400, 403), name
            assert reply.error in ("not_yours", "invalid"), name
    assert bob("events.last") == before
    for name in ("bob", "bob/tests"):
        assert bob.ask("agents.beat", Dibs_Agent=name).json["agent"] == name


def test_a_session_of_another_is_of_no_use(daemon: Daemon) -> None:
    alice = daemon.client(token=daemon.token_of("alice"))
    joined = alice("agents.join")
    bob = daemon.client(token=daemon.token_of("bob"))
    forged = f"{joined['session']['id']}.{'0' * 64}"
    for operation in ("agents.beat", "agents.leave", "messages.inbox"):
        for session in (joined["token"], forged, f"9{forged}", "x", f"{joined['token']}x", "1."):
            reply = bob.ask(operation, Dibs_Session=session)
            assert (reply.status, reply.error) in ((403, "not_yours"), (400, "invalid")), session
        assert bob.ask(operation, Dibs_Session=joined["token"]).error == "not_yours"
    assert alice.ask("agents.beat", Dibs_Session=joined["token"]).status == 200


def test_the_epoch_of_another_is_of_no_use(daemon: Daemon) -> None:
    alice = daemon.client(token=daemon.token_of("alice"))
    bob = daemon.client(token=daemon.token_of("bob"))
    epoch = alice("leases.claim", resources=["secret"], ttl_s=600)["leases"][0]["epoch"]
    alice("work.add", id="hers")
    task = alice("work.claim", id="hers")
    bob("agents.beat")
    before = bob("events.last")
    for operation, arguments in (
        ("leases.release", {"resources": ["secret"], "epoch": epoch}),
        ("leases.renew", {"resources": ["secret"], "epoch": epoch}),
        ("work.complete", {"id": "hers", "epoch": task["epoch"]}),
        ("work.renew", {"id": "hers", "epoch": task["epoch"]}),
        ("work.fail", {"id": "hers", "epoch": task["epoch"]}),
        ("work.abandon", {"id": "hers", "epoch": task["epoch"]}),
    ):
        reply = bob.ask(operation, arguments)
        assert 400 <= reply.status < 500 and reply.error in ("stale", "not_found", "not_yours")
    assert bob("events.last") == before
    alice("work.complete", id="hers", epoch=task["epoch"])
    alice("leases.release", resources=["secret"], epoch=epoch)


def test_who_may_only_look_changes_nothing(daemon: Daemon) -> None:
    eve = daemon.client(token=daemon.token_of("eve", "read"))
    before = eve("events.last")
    for operation, arguments in (
        ("state.set", {"namespace": "n", "key": "k", "value": 1}),
        ("leases.claim", {"resources": ["port:1"]}),
        ("messages.send", {"body": "hello", "to": "alice"}),
        ("messages.inbox", {}),
        ("agents.beat", {}),
        ("agents.join", {}),
        ("work.next", {"wait_s": 1}),
        ("leases.revoke", {"resources": ["port:1"]}),
        ("agents.add_token", {"name": "eve", "scope": "admin"}),
        ("agents.tokens", {}),
        ("events.prune", {}),
    ):
        reply = eve.ask(operation, arguments)
        assert (reply.status, reply.error) == (403, "not_yours"), operation
    assert eve("events.last") == before
    assert eve("leases.list") == []


def test_an_agent_does_nothing_that_is_for_admins(daemon: Daemon) -> None:
    daemon.client("alice")("leases.claim", resources=["port:77"])
    daemon.client("alice")("work.add", id="t77")
    daemon.client("alice")("work.claim", id="t77")
    bob = daemon.client(token=daemon.token_of("bob"))
    bob("agents.beat")
    before = bob("events.last")
    for operation, arguments in (
        ("leases.revoke", {"resources": ["port:77"]}),
        ("work.revoke", {"id": "t77"}),
        ("agents.add_token", {"name": "bob", "scope": "admin"}),
        ("agents.revoke_token", {"id": 1}),
        ("agents.tokens", {}),
        ("events.prune", {}),
    ):
        reply = bob.ask(operation, arguments)
        assert (reply.status, reply.error) == (403, "not_yours"), operation
    assert bob.request("POST", "/sign-in", "{}").error == "not_yours"
    assert bob("events.last") == before
    daemon.client("alice")("leases.release", resources=["port:77"])


# Too much, too slow, too often.


def peak(daemon: Daemon) -> int:
    """The most memory that the daemon has had, in bytes."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@pytest.mark.usefixtures("unchanged")
def test_a_huge_body_is_refused_before_it_is_read(daemon: Daemon) -> None:
    before = peak(daemon)
    reply = raw(daemon, post(daemon, *usual(daemon), f"Content-Length: {50 * MIB}", body=b""))
    assert (reply.status, reply.error) == (413, "too_large")
    # And if it is sent all the same, it is not kept.
    with daemon.connect() as connection:
        connection.sendall(post(daemon, *usual(daemon), f"Content-Length: {50 * MIB}", body=b""))
        for _ in range(50):
            connection.sendall(b"x" * MIB)
        assert connection.recv(12) == b"HTTP/1.1 413"
    assert peak(daemon) - before < 25 * MIB


@pytest.mark.usefixtures("unchanged")
def test_a_body_without_end_is_refused_at_the_limit(daemon: Daemon) -> None:
    before = peak(daemon)
    chunk = b"%x\r\n%b\r\n" % (64 * 1024, b" " * 64 * 1024)
    with daemon.connect() as connection:
        connection.sendall(post(daemon, *usual(daemon), "Transfer-Encoding: chunked", body=b""))
        for _ in range(50 * 16):
            connection.sendall(chunk)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 413
        assert json.loads(answer.read())["error"] == "too_large"
    assert peak(daemon) - before < 25 * MIB


def test_a_body_at_the_limit_is_taken(daemon: Daemon) -> None:
    body = b"{}".ljust(BODY_LIMIT)
    assert daemon.client().request("POST", "/v1/events/last", body).status == 200
    assert daemon.client().request("POST", "/v1/events/last", body + b" ").error == "too_large"


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"X-%d: %b\r\n" % (number, b"y" * 100) for number in range(1_000)) + b"\r\n",
        b"X: " + b"y" * (HEAD_LIMIT + 1) + b"\r\n\r\n",
        b"X: " + b"y" * (4 * MIB),
        b"".join(b"X-%d: y\r\n" % number for number in range(200_000)),
    ],
    ids=["many", "long", "a line without end", "no end"],
)
@pytest.mark.usefixtures("unchanged")
def test_a_head_over_the_limit_is_refused(daemon: Daemon, head: bytes) -> None:
    before = peak(daemon)
    with daemon.connect() as connection:
        try:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: " + daemon.url[7:].encode())
            connection.sendall(b"\r\n" + head)
            answer = connection.recv(65536)
        except ConnectionError:
            answer = b""  # it hung up while we still talked
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    assert peak(daemon) - before < 15 * MIB
    assert daemon.stranger().request("GET", "/healthz").status == 200


def test_a_long_address_is_refused(daemon: Daemon) -> None:
    reply = raw(
        daemon,
        b"GET /%b HTTP/1.1\r\nHost: %b\r\n\r\n" % (b"x" * HEAD_LIMIT, daemon.url[7:].encode()),
    )
    assert (reply.status, reply.error) == (431, "head_too_large")


def test_who_takes_too_long_is_sent_away(daemon: Daemon) -> None:
    """A byte now and then keeps no connection open; others are not held up meanwhile."""
    host = daemon.url[7:]
    begun = {
        "silent": b"",
        "slow head": f"POST /v1/events/last HTTP/1.1\r\nHost: {host}\r\nX: ".encode(),
        "slow body": post(daemon, *usual(daemon), "Content-Length: 1000", body=b"{"),
        "slow chunks": post(daemon, *usual(daemon), "Transfer-Encoding: chunked", body=b"1\r\n{"),
        "no body": post(daemon, *usual(daemon), "Content-Length: 10", body=b""),
    }  # fmt: skip
    ended: dict[str, bytes] = {}
    start = time.monotonic()

    def crawl(name: str, first: bytes) -> None:
        with daemon.connect() as connection:
            connection.sendall(first)
            connection.settimeout(0.5)
            answer = b""
            while time.monotonic() < start + REQUEST_S + PATIENCE_S:
                try:
                    fresh = connection.recv(65536)
                    answer += fresh
                    if not fresh:
                        break
                except TimeoutError:
                    if first and "slow" in name:
                        connection.sendall(b"\r\n1\r\n " if "chunks" in name else b" ")
                except ConnectionError:
                    break
            else:
                return
            ended[name] = answer

    threads = [threading.Thread(target=crawl, args=item) for item in begun.items()]
    for thread in threads:
        thread.start()
    others = daemon.client("alice")
    while any(thread.is_alive() for thread in threads):
        assert others.ask("agents.beat").status == 200
        threads[0].join(0.1)
        if not threads[0].is_alive():
            for thread in threads:
                thread.join(PATIENCE_S)
    assert ended.keys() == begun.keys()
    for name, answer in ended.items():
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 "), (name, answer)
        assert json.loads(body).keys() == SHAPE


def test_who_calls_too_often_is_told_to_slow_down(shell: Shell) -> None:
    with serving(shell, "--rate", "50") as daemon:
        alice = daemon.client(token=daemon.token_of("alice"))
        bob = daemon.client(token=daemon.token_of("bob"))
        replies = [alice.ask("events.last") for _ in range(300)]
        refused = [reply for reply in replies if reply.status != 200]
        assert refused, "it took all of them"
        for reply in refused:
            assert (reply.status, reply.error) == (429, "too_often")
            assert int(reply.headers["retry-after"]) >= 1
        assert bob("events.last") > 0, "others are not held up"
        until(lambda: alice.ask("events.last").status == 200, "alice let in again")


# Requests that are none.


@pytest.mark.usefixtures("unchanged")
def test_paths_lead_only_where_they_say(daemon: Daemon) -> None:
    client = daemon.client("alice")
    body = '{"namespace": "n", "key": "k", "value": 1}'
    for path in (
        "/v1/../v1/state/set", "//v1/state/set", "/v1//state/set", "/v1/state/set/",
        "/V1/state/set", "/v1/state/set;x", "/v1/state/./set", "/v1/state", "/v1/", "/v1",
        "/v1/state/_set", "/v1/state/__class__", "/v1/state/scope", "/v1/__init__/x",
        "/v1/state/set%00",
        "/v1/state/set%2f", "/v1/state%2fset%20", "/v1/%ff", "/../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/static/../../../etc/passwd",
        "/.dibs/dibs.db", "/app.js/../../__init__.py", "/index.html%00", "/%c0%ae%c0%ae/etc/passwd",
    ):  # fmt: skip
        for method in ("POST", "GET"):
            reply = client.request(method, path, body)
            assert 400 <= reply.status < 500, (method, path, reply)
            assert reply.error, path
            assert b"root:" not in reply.body


@pytest.mark.usefixtures("unchanged")
def test_operations_are_called_with_post_only(daemon: Daemon) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        reply = daemon.client("alice").request(method, "/v1/agents/leave", "{}")
        assert reply.status == 405, method
        assert method == "HEAD" or reply.error == "method"


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 2", "Content-Length: 2"],
        ["Content-Length: 2", "Content-Length: 40"],
        ["Content-Length: 2", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 2"],
        ["Transfer-Encoding: identity, chunked", "Content-Length: 2"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: xchunked", "Content-Length: 2"],
        ["Content-Length: +2"], ["Content-Length: -2"], ["Content-Length: 2, 2"],
        ["Content-Length: 0x2"], ["Content-Length: 99999999999999999999999"],
        ["Content-Length : 2"], ["Content-Length: 2", " folded: yes"],
        ["Content-Length: 2", "Bad\x00Name: x"], ["Content-Length: 2", "X: a\x00b"],
        ["Content-Length: 2", "no colon"], ["Content-Length: 2", "Host: 127.0.0.1:1"],
        ["Content-Length: 2", "Authorization: Bearer other"],
        ["Content-Length: 2", "Content-Type: text/plain"],
        ["Content-Length: 2", "Origin: http://evil.example"],
        ["Content-Length: 2", "Dibs-Agent: alice", "Dibs-Agent: bob"],
        ["Content-Length: 2", "Dibs-Session: a", "dibs-session: b"],
        ["Content-Length: 2", "Cookie: a=1", "Cookie: a=2"],
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unchanged")
def test_a_request_of_two_meanings_is_refused(daemon: Daemon, lines: list[str]) -> None:
    reply = raw(daemon, post(daemon, *usual(daemon), *lines, path="/v1/agents/beat"))
    assert reply.status in (400, 403, 413), reply
    assert reply.error in ("bad_request", "doubled", "origin", "too_large")


@pytest.mark.usefixtures("unchanged")
def test_nothing_is_smuggled_behind_a_refused_request(daemon: Daemon) -> None:
    """What follows a request that was not understood is not taken for the next one."""
    good = post(daemon, *usual(daemon), "Content-Length: 2", path="/v1/agents/beat")
    for lines in (
        ["Content-Length: 2", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 6"],
        ["Content-Length: 1", "Content-Length: 2"],
    ):
        with daemon.connect() as connection:
            connection.sendall(post(daemon, *usual(daemon), *lines, body=b"0\r\n\r\n") + good)
            answer = b""
            while fresh := connection.recv(65536):
                answer += fresh
        assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00" * 100, b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET  / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.0\r\n", b"get / http/1.1\r\n\r\n", b"GET http://[ HTTP/1.1\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(daemon: Daemon, request_: bytes) -> None:
    reply = raw(daemon, request_)
    assert 400 <= reply.status < 500 and reply.error


def test_a_whole_address_in_the_first_line_changes_nothing(daemon: Daemon) -> None:
    """As to a proxy: only the host in the headers counts, and that one is checked."""
    for host, status in ((daemon.url[7:], 200), ("evil.example", 403)):
        line = f"GET http://evil.example/healthz HTTP/1.1\r\nHost: {host}\r\n\r\n"
        assert raw(daemon, line.encode()).status == status


def test_it_speaks_no_other_protocol(daemon: Daemon) -> None:
    upgrades = (
        {"Upgrade": "websocket", "Sec-WebSocket-Key": "eA==", "Sec-WebSocket-Version": "13"},
        {"Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"},
    )
    for headers in upgrades:
        reply = daemon.stranger().request("GET", "/v1/events", None, {
            "Connection": "Upgrade", **headers})  # fmt: skip
        assert (reply.status, reply.error) == (401, "no_token")


# Secrets and files.


def test_everything_it_writes_is_private_whatever_the_umask(tidy_umask: Shell) -> None:
    shell = tidy_umask
    (shell.folder / ".dibs").mkdir(mode=0o700)
    process = shell.start("serve", "--detach", "--port", "0", umask=0)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    shell.ok("open", "--print")
    assert out.startswith("dibs serves")
    data = Path(shell.environment["XDG_DATA_HOME"])
    found = [*(data / "dibs").rglob("*"), data / "dibs", *(shell.folder / ".dibs").rglob("*")]
    assert len(found) > 10
    for path in found:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


@pytest.fixture
def tidy_umask(shell: Shell) -> Iterator[Shell]:
    yield shell
    shell("stop")


def test_no_secret_is_shown_to_others(shell: Shell, tmp_path: Path) -> None:
    """Not in the list of processes, not in the log, not in the store, and not in any answer."""
    said = shell.json("serve", "--detach", "--port", "0")
    try:
        home = Path(shell.environment["XDG_DATA_HOME"]) / "dibs/daemons"
        (word,) = [json.loads(file.read_text()) for file in home.glob("*.json")]
        host, port = said["url"].removeprefix("http://").split(":")
        made = ask(host, int(port), word["token"], "agents/add_token", {"name": "bob"})
        for path in ("events/last", "agents/tokens", "events/since", "agents/list"):
            ask(host, int(port), made["secret"], path, {})
        answers = json.dumps(
            [ask(host, int(port), word["token"], p, {}) for p in ("agents/tokens", "events/since")]
        )
        with socket.create_connection((host, int(port))) as rude:
            rude.sendall(f"GET /{word['token']} \x00 {word['token']}\r\n\r\n".encode())
            rude.recv(1000)
        browser = tmp_path / "browser"
        browser.write_text(f"#!/bin/sh\ncat /proc/$$/cmdline > {tmp_path}/seen\n")
        browser.chmod(0o700)
        shell.with_(BROWSER=str(browser)).ok("open")
        until((tmp_path / "seen").exists, "the browser")
        seen = "".join(
            [
                answers,
                Path(f"/proc/{said['pid']}/cmdline").read_text(),
                (tmp_path / "seen").read_text(),
                (shell.folder / ".dibs/dibs.db.d/daemon.log").read_text(),
                *(
                    path.read_bytes().decode("latin-1")
                    for path in (shell.folder / ".dibs").rglob("*")
                    if path.is_file()
                ),
            ]
        )
        for secret in (word["token"], made["secret"]):
            assert len(secret) > 40 and secret not in seen
        environment = Path(f"/proc/{said['pid']}/environ").stat()
        assert stat.S_IMODE(environment.st_mode) == 0o400 and environment.st_uid == os.getuid()
    finally:
        shell.ok("stop")


def ask(host: str, port: int, token: str, path: str, body: object) -> dict[str, str]:
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", f"/v1/{path}", json.dumps(body), headers)
    answer: dict[str, str] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def test_rubbish_leaves_nothing_in_the_log(daemon: Daemon) -> None:
    """Or whoever sends enough of it could fill the disk. This is the last test of its daemon."""
    for request in (b"\x00\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
        raw(daemon, request)
    alice = daemon.client("alice")
    with daemon.connect() as connection:
        wait = b'{"seq": 100000, "wait_s": 60}'
        request = post(daemon, *usual(daemon), f"Content-Length: {len(wait)}", body=wait,
                       path="/v1/events/watch")  # fmt: skip
        connection.sendall(request)
    with pytest.raises(Refusal):
        alice("work.show", id="nothing")
    ended = daemon.stop()
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    daemon.start()
