"""Calls that are answered without a task are answered as all others are."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.surfaces.daemon import Daemon, serving, turn_kept
from tests.surfaces.shell import Shell, until


@pytest.fixture
def daemon(shell: Shell) -> Iterator[Daemon]:
    with serving(shell) as running:
        yield running
        while Line.opened:
            Line.opened.pop().close()


class Line:
    """A connection on which whole requests, or parts of them, are written and answers read."""

    opened: ClassVar[list[Line]] = []

    def __init__(self, daemon: Daemon, agent: str = "alice", token: str = "") -> None:
        self._daemon, self._agent, self._token = daemon, agent, token or daemon.token
        self.socket: socket.socket = daemon.connect()
        self._read = self.socket.makefile("rb")
        self.opened.append(self)

    def close(self) -> None:
        self._read.close()
        self.socket.close()

    def request(self, operation: str, *lines: str, **given: Any) -> bytes:
        body = json.dumps(given)
        head = [
            f"POST /v1/{operation.replace('.', '/')} HTTP/1.1",
            f"Host: {self._daemon.url[7:]}",
            f"Authorization: Bearer {self._token}",
            f"Dibs-Agent: {self._agent}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *lines,
        ]
        return ("\r\n".join(head) + "\r\n\r\n" + body).encode()

    def send(self, operation: str, *lines: str, **given: Any) -> None:
        self.socket.sendall(self.request(operation, *lines, **given))

    def answer(self) -> tuple[int, dict[str, str], Any]:
        status = int(self._read.readline().split()[1])
        headers = {}
        while (line := self._read.readline().decode().strip()) != "":
            name, _, value = line.partition(": ")
            headers[name] = value
        return status, headers, json.loads(self._read.read(int(headers["content-length"])))

    def ended(self) -> bool:
        return self._read.read(1) == b""


def set_(line: Line, key: str, *lines: str, value: Any = 1) -> tuple[int, dict[str, str], Any]:
    line.send("state.set", *lines, namespace="n", key=key, value=value, force=True)
    return line.answer()


def test_the_first_call_and_the_next_are_answered_alike(daemon: Daemon) -> None:
    line = Line(daemon)
    (first, head, one), (second, again, two) = set_(line, "k"), set_(line, "k")
    assert (first, second) == (200, 200)
    assert head == again
    assert two["version"] == one["version"] + 1
    line.send("state.get", namespace="n", key="k")
    assert line.answer()[2]["version"] == two["version"]


def test_a_refusal_says_what_it_always_says(daemon: Daemon) -> None:
    line = Line(daemon)
    assert set_(line, "k")[0] == 200
    line.send("leases.claim", resources=["port:1"])
    assert line.answer()[0] == 200
    other = Line(daemon, "bob")
    assert set_(other, "k")[0] == 200
    refused: list[tuple[str, dict[str, Any], int, str]] = [
        ("leases.claim", {"resources": ["port:1"]}, 409, "held"),
        ("state.set", {"namespace": "n"}, 400, "invalid"),
        ("state.set", {"namespace": "n", "key": "k", "value": 1, "odd": 1}, 400, "invalid"),
        ("work.complete", {"id": "none"}, 404, "not_found"),
    ]
    for operation, given, status, code in refused:
        other.send(operation, **given)
        answered, headers, refusal = other.answer()
        assert (answered, refusal["error"]) == (status, code)
        assert headers["content-type"] == "application/json"
    counted = daemon.client().request("GET", "/metrics").body.decode()
    assert re.search(r"leases.claim.*409", counted)


def test_a_request_in_pieces_is_put_together(daemon: Daemon) -> None:
    line = Line(daemon)
    assert set_(line, "k")[0] == 200
    whole = line.request("state.set", namespace="n", key="pieces", value="x" * 50)
    for cut in (20, len(whole) - 60, len(whole) - 1):
        for piece in (whole[:cut], whole[cut:]):
            line.socket.sendall(piece)
            time.sleep(0.02)
        status, _, answer = line.answer()
        assert status == 200 if cut == 20 else answer["error"] == "conflict"
    large = "y" * 400_000
    assert set_(line, "large", value=large)[2]["value"] == large


def test_requests_that_follow_at_once_are_answered_in_their_order(daemon: Daemon) -> None:
    line = Line(daemon)
    assert set_(line, "k")[0] == 200
    calls = [
        line.request("state.set", namespace="n", key=f"k{n}", value=n, force=True)
        if n % 3
        else line.request("state.list", namespace="n")
        for n in range(12)
    ]
    line.socket.sendall(b"".join(calls))
    answers = [line.answer() for _ in calls]
    assert [status for status, _, _ in answers] == [200] * 12
    values = [answer["value"] for _, _, answer in answers if isinstance(answer, dict)]
    assert values == [n for n in range(12) if n % 3]
    assert [len(answers[n][2]) for n in (0, 3, 6, 9)] == [1, 3, 5, 7]


def test_who_asks_for_the_end_of_the_connection_gets_it(daemon: Daemon) -> None:
    line = Line(daemon)
    assert set_(line, "k")[0] == 200
    status, headers, _ = set_(line, "k", "Connection: close")
    assert (status, headers["connection"]) == (200, "close")
    assert line.ended()


def test_who_hangs_up_before_the_answer_disturbs_nobody(daemon: Daemon) -> None:
    line, other = Line(daemon), Line(daemon, "bob")
    assert set_(line, "k")[0] == set_(other, "k")[0] == 200
    with turn_kept(daemon):
        line.send("state.set", namespace="n", key="left", value=1)
        time.sleep(0.1)
        line.socket.shutdown(socket.SHUT_RDWR)
    reader = daemon.client()
    until(lambda: reader("state.get", namespace="n", key="left") is not None, "it is stored")
    assert set_(other, "k")[0] == 200


def test_a_token_that_is_revoked_meanwhile_is_refused(daemon: Daemon) -> None:
    secret = daemon.token_of("carol")
    line = Line(daemon, "carol", secret)
    assert set_(line, "k")[0] == 200
    tokens = daemon.client()("agents.tokens")
    (number,) = [token["id"] for token in tokens if token["name"] == "carol"]
    daemon.client()("agents.revoke_token", id=number)
    until(lambda: set_(line, "k")[0] == 401, "the token is refused")
    assert set_(line, "k")[2]["error"] == "bad_token"


def waiting(daemon: Daemon) -> list[str]:
    return [one["agent"] for one in daemon.client()("leases.waiting")]


def queue_up(daemon: Daemon, *lines: Line) -> None:
    """Have each wait for the same lease; each has called before, so that its head is known."""
    for line in lines:
        before = len(waiting(daemon))
        assert set_(line, "k")[0] == 200
        line.send("leases.claim", resources=["lock:x"], wait_s=60)
        until(lambda before=before: len(waiting(daemon)) > before, "it waits")  # type: ignore[misc]


def test_who_hangs_up_leaves_the_queue_and_the_next_is_served(daemon: Daemon) -> None:
    holder = daemon.client("holder")
    held = holder("leases.claim", resources=["lock:x"])
    first, second = Line(daemon, "alice"), Line(daemon, "bob")
    queue_up(daemon, first, second)
    first.socket.shutdown(socket.SHUT_RDWR)
    until(lambda: waiting(daemon) == ["bob"], "alice has left")
    holder("leases.release", resources=["lock:x"], epoch=held["epoch"])
    status, _, grant = second.answer()
    assert (status, grant["leases"][0]["resource"]) == (200, "lock:x")
    assert waiting(daemon) == []


def test_a_token_that_is_revoked_leaves_the_queue(daemon: Daemon) -> None:
    daemon.client("holder")("leases.claim", resources=["lock:x"])
    line = Line(daemon, "carol", daemon.token_of("carol"))
    queue_up(daemon, line)
    tokens = daemon.client()("agents.tokens")
    (number,) = [token["id"] for token in tokens if token["name"] == "carol"]
    daemon.client()("agents.revoke_token", id=number)
    # Its session has ended, and its token is no good: whichever is noticed first.
    assert line.answer()[0] in (401, 409)
    until(lambda: waiting(daemon) == [], "carol has left")


def test_hundreds_who_wait_for_a_lease_take_no_threads(daemon: Daemon) -> None:
    daemon.client("holder")("leases.claim", resources=["lock:x"])
    threads = Path(f"/proc/{daemon.process.pid}/task")
    before = len(list(threads.iterdir()))
    lines = [Line(daemon, f"a{number}") for number in range(200)]
    for line in lines:
        line.send("leases.claim", resources=["lock:x"], wait_s=60)
    until(lambda: len(waiting(daemon)) == 200, "all of them wait")
    assert len(list(threads.iterdir())) < before + 10


def test_a_change_of_the_head_is_looked_at_each_time(daemon: Daemon) -> None:
    line = Line(daemon)
    assert set_(line, "k")[0] == set_(line, "k")[0] == 200
    assert set_(line, "k", "Origin: http://elsewhere.example")[0] == 403
    assert set_(line, "k", "Dibs-Session: 1.abc")[0] in (400, 403, 404)
    assert set_(line, "k", "Host: elsewhere")[0] == 400


def test_a_head_counts_as_it_was_read_and_not_as_it_looks(daemon: Daemon) -> None:
    """What follows in a second packet looks like a head of its own, and is none."""
    line, other = Line(daemon), Line(daemon)
    assert set_(line, "k")[0] == 200
    inner = line.request("state.set", namespace="n", key="inner", value=1)
    text, _, body = inner.partition(b"\r\n\r\n")
    lines = [one for one in text.split(b"\r\n") if not one.startswith(b"Authorization")]
    anonymous = b"\r\n".join(lines) + b"\r\n\r\n" + body
    outer = f"POST /v1/state/set HTTP/1.1\r\nAuthorization: Bearer {daemon.token}\r\nX: "
    line.socket.sendall(outer.encode())
    time.sleep(0.1)
    line.socket.sendall(anonymous)
    assert line.answer()[0] == 200
    other.socket.sendall(anonymous)
    assert other.answer()[0] == 401


def test_a_known_head_with_another_body_is_read_again(daemon: Daemon) -> None:
    line = Line(daemon)
    assert set_(line, "a")[0] == set_(line, "b")[0] == 200
    whole = line.request("state.set", namespace="n", key="c", value=1, force=True)
    line.socket.sendall(whole + whole)
    assert line.answer()[0] == line.answer()[0] == 200
    line.socket.sendall(whole[:-1])
    time.sleep(0.05)
    line.socket.sendall(whole[-1:])
    assert line.answer()[0] == 200
    line.socket.sendall(whole[:-1] + b"!")
    assert line.answer()[2]["error"] == "invalid"
    assert set_(line, "d")[0] == 200


def told(line: Line, *pieces: bytes) -> list[tuple[int, dict[str, str], str]]:
    """What is answered to these bytes, until the connection is closed, without figures."""
    found: list[tuple[int, dict[str, str], str]] = []
    with suppress(IndexError, ConnectionError):  # it was closed
        for piece in pieces:
            with suppress(ConnectionError):  # a part of it was refused
                line.socket.sendall(piece)
            time.sleep(0.03)
        while True:
            status, headers, answer = line.answer()
            text = re.sub(r"[0-9]+", "0", json.dumps(answer))
            found.append((status, {**headers, "content-length": "0"}, text))
            if len(found) == 1 and headers.get("connection") != "close":
                line.send("state.get", "Connection: close", namespace="n", key="none")
    return found


def test_the_same_bytes_are_answered_the_same_at_once_and_through_the_application(
    daemon: Daemon,
) -> None:
    """What comes in two pieces is left to the application."""
    first = Line(daemon, "bob")
    first.send("leases.claim", resources=["port:1"])
    assert first.answer()[0] == 200
    secret = daemon.token_of("carol")
    assert set_(Line(daemon), "k")[0] == set_(Line(daemon, "carol", secret), "k")[0] == 200
    plain = Line(daemon)
    read = plain.request("state.get", namespace="n", key="k")
    carols = Line(daemon, "carol", secret)
    extra = [
        "Connection: close",
        "Connection: keep-alive",
        "Connection: Close, TE",
        "X-Twice: 1\r\nX-Twice: 2",
        f"Host: {daemon.url[7:]}",
        f"Origin: {daemon.url}",
        "Origin: http://elsewhere.example",
        "Sec-Fetch-Site: cross-site",
        "Cookie: a=b",
        "Expect: 100-wait",
        "Dibs-Party: person",
        "Dibs-Session: 1.abc",
        "Dibs-Session: nonsense",
        "Dibs-Agent: bob",
        "X-Folded: a\r\n b",
        "X-Empty:",
        "X-Long: " + "x" * 1_500,
        "Transfer-Encoding: chunked",
    ]
    cases = [plain.request("state.get", one, namespace="n", key="k") for one in extra]
    cases += [
        read,
        read.replace(b"HTTP/1.1", b"HTTP/1.0"),
        read.replace(b"POST", b"PUT"),
        read.replace(b"/v1/state/get", b"/v1/state/get?a=b"),
        read.replace(b"/v1/state/get", b"/v1//state/get"),
        read.replace(b"/v1/state/get", b"/v1/state/%67et"),
        read.replace(b"/v1/state/get", daemon.url.encode() + b"/v1/state/get"),
        read.replace(b"application/json", b"text/plain"),
        read.replace(b"application/json", b"Application/JSON; charset=UTF-8"),
        read.replace(b"Bearer ", b"bearer   "),
        read.replace(b"Bearer ", b"Basic "),
        read.replace(b"Bearer ", b"Bearer x"),
        read.replace(b"Dibs-Agent: alice", "Dibs-Agent: ålice".encode()),
        read.replace(b"Dibs-Agent: alice", b"Dibs-Agent: \xff\xfe"),
        read.replace(b"Host: ", b"Host:\t "),
        read.replace(b"Host: ", b"Host: x"),
        read.replace(b"Content-Length: ", b"Content-Length: 0"),
        read.replace(b"Content-Length: ", b"Content-Length: +"),
        read.replace(b"Content-Length: ", b"Content-Length: 9999999"),
        read.replace(b'{"namespace"', b'{"name\\u0000"'),
        read.replace(b'"namespace"', b'"namespac\xff"'),
        plain.request("state.get"),
        plain.request("state.get", namespace="n", key="none"),
        plain.request("leases.claim", resources=["port:1"]),
        plain.request("leases.claim", resources="port:1"),
        plain.request("leases.claim", resources=["port:1"], wait_s=0.1),
        plain.request("leases.release", resources=["port:1"]),
        plain.request("work.claim_many", limit=-1),
        plain.request("agents.tokens"),
        carols.request("agents.tokens"),
        carols.request("leases.revoke", resources=["port:1"]),
        carols.request("state.get", "Dibs-Agent: dave", namespace="n", key="k"),
        b"\r\n\r\n" + read,
        read.replace(b"\r\n", b"\n"),
        read + read,
    ]

    def apart(case: bytes) -> Any:
        cut = case.index(b"\n\r\n" if b"\n\r\n" in case[4:] else b"\n\n", 4) + 3
        return told(Line(daemon), case[: cut - 8], case[cut - 8 : cut], case[cut:])

    def at_once(case: bytes) -> Any:
        return told(Line(daemon), case)

    # Side by side: some are answered only when the daemon has waited long enough for the rest.
    with ThreadPoolExecutor(12) as some:
        ways = [some.map(way, cases) for way in (apart, at_once, at_once)]
        found = zip(cases, *ways, strict=True)
        differ = [one for one in found if not one[1] == one[2] == one[3]]
    assert differ == []
