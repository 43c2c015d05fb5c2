"""The client of a daemon against servers that are none, or wish it ill."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import answers, link, wire
from dibs.errors import DibsError, DisconnectedError, NotYoursError, UnfitError
from tests.surfaces.conftest import new_shell

TOKEN = "dibs_secret"
ME = {"space": "s", "agent": "dibs", "session": None}


class Server:
    """Answers each request with what a test says, by the path that is asked for."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.heard: list[bytes] = []
        self.answer: Callable[[socket.socket, str], None] = lambda end, path: None
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._listener.accept()
            except OSError:
                return  # the test is over
            self._open.append(end)
            threading.Thread(target=self._serve, args=(end,), daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        try:
            while True:
                data = b""
                while b"\r\n\r\n" not in data:
                    if not (more := end.recv(65_536)):
                        return
                    data += more
                head, _, body = data.partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
                while len(body) < length:
                    body += end.recv(65_536)
                self.heard.append(head)
                path = head.split()[1].decode()
                if path == "/v1/me":
                    end.sendall(ok(ME))
                else:
                    self.answer(end, path)
        except OSError:
            return  # the client has hung up
        finally:
            end.close()

    def close(self) -> None:
        self._listener.close()
        for end in self._open:
            end.close()


def ok(value: Any) -> bytes:
    return raw(json.dumps(value).encode())


def raw(body: bytes, status: str = "200 OK", *lines: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def space(server: Server, tmp_path: Path) -> Iterator[dibs.Dibs]:
    opened = dibs.open(server.url, token=TOKEN, user_dir=str(tmp_path / "user"))
    yield opened
    opened.close()


def says(data: bytes) -> Callable[[socket.socket, str], None]:
    return lambda end, path: end.sendall(data)


LEASE = {
    "resource": "port:1", "kind": "name", "mode": "exclusive", "agent": "a", "session": 1,
    "epoch": 1, "note": "", "task": None, "granted_at": 1, "ttl_ms": 1, "expires_in_ms": 1,
    "content_hash": None, "checkout": None,
}  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body>Sign in</body></html>",
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"[" * 900 + b"]" * 900,
        b"[NaN]",
        b"[1e999]",
        b"1" * 10_000,
        b"null",
        b"1",
        b'"text"',
        b"{}",
        b"[1]",
        b"[null]",
        b"[[]]",
        b"[{}]",
        json.dumps([LEASE | {"epoch": "1"}]).encode(),
        json.dumps([LEASE | {"epoch": True}]).encode(),
        json.dumps([LEASE | {"epoch": 10**400}]).encode(),
        json.dumps([LEASE | {"agent": ["a"]}]).encode(),
        json.dumps([LEASE | {"agent": None}]).encode(),
        json.dumps([{name: LEASE[name] for name in list(LEASE)[:5]}]).encode(),
    ],
)
def test_what_is_no_answer_of_a_daemon_is_a_typed_error(
    server: Server, space: dibs.Dibs, body: bytes
) -> None:
    for answer in (raw(body), raw(body, "500 Oops"), raw(body, "404 Not Found")):
        server.answer = says(answer)
        with pytest.raises(UnfitError) as refused:
            space.leases.list()
        assert server.url in refused.value.message and refused.value.next


@pytest.mark.parametrize(
    "refusal",
    [
        {"error": "held", "message": "m", "next": None, "details": {"blockers": [1]}},
        {"error": "held", "message": "m", "details": {"blockers": [{}]}},
        {"error": "held", "message": "m", "details": []},
        {"error": "held", "message": "m", "details": 7},
        {"error": "conflict", "message": "m", "details": {"current": "x"}},
        {"error": [], "message": {}, "details": {}},
    ],
)
def test_a_refusal_of_another_shape_is_a_typed_error(
    server: Server, space: dibs.Dibs, refusal: Any
) -> None:
    server.answer = says(raw(json.dumps(refusal).encode(), "409 Conflict"))
    with pytest.raises(DibsError):
        space.leases.list()


def test_a_redirection_is_not_followed(server: Server, space: dibs.Dibs) -> None:
    thief = Server()
    try:
        for status in ("301 M", "302 F", "303 S", "307 T", "308 P"):
            for body in (b"", json.dumps({"error": "held", "message": "m"}).encode()):
                server.answer = says(raw(body, status, f"Location: {thief.url}/v1/leases/list"))
                with pytest.raises(UnfitError):
                    space.leases.list()
        assert thief.heard == []
    finally:
        thief.close()


def trickle(first: bytes, then: bytes, pause: float) -> Callable[[socket.socket, str], None]:
    def send(end: socket.socket, path: str) -> None:
        end.sendall(first)
        while True:
            end.sendall(then)
            time.sleep(pause)

    return send


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call has one second instead of ten."""
    monkeypatch.setattr(link, "CALL_S", 1.0)


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    "answer",
    [
        trickle(b"", b"", 0.05),
        trickle(b"", b"H", 0.05),
        trickle(HEAD, b"X: y\r\n", 0.05),
        trickle(HEAD + b"Content-Length: 100000\r\n\r\n[", b" ", 0.05),
        trickle(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", 0.05),
        trickle(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n", 0.05),
        trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05),
        lambda end, path: end.close(),
        lambda end, path: end.shutdown(socket.SHUT_RDWR),
        says(HEAD + b"Content-Length: 100\r\n\r\n["),
    ],
    ids=["silent", "letters", "lines", "body", "chunks", "trailers", "continue", "closed", "cut",
         "short"],
)  # fmt: skip
def test_a_call_ends_however_slowly_something_comes(
    server: Server, space: dibs.Dibs, answer: Callable[[socket.socket, str], None]
) -> None:
    server.answer = answer
    done: list[BaseException] = []

    def call() -> None:
        try:
            space.leases.list()
        except DibsError as error:
            done.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(30)
    assert [type(error) for error in done] == [DisconnectedError]


@pytest.mark.usefixtures("hurried")
def test_a_server_that_hangs_up_after_a_while_is_not_asked_for_ever(
    server: Server, space: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "STAYED_S", 0.05)

    def hang_up(end: socket.socket, path: str) -> None:
        time.sleep(0.2)
        end.shutdown(socket.SHUT_RDWR)

    server.answer = hang_up
    with pytest.raises(DisconnectedError):
        space.leases.list()


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
    ],
)
def test_an_answer_without_bounds_is_refused(server: Server, space: dibs.Dibs, head: bytes) -> None:
    server.answer = says(HEAD + head)
    with pytest.raises(UnfitError):
        space.leases.list()


def test_chunks_without_end_are_refused_at_the_limit(
    server: Server, space: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "ANSWER_LIMIT", 1 << 20)
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    server.answer = trickle(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunk, 0)
    with pytest.raises(UnfitError):
        space.leases.list()


COLOUR = "\x1b[31mred\x1b]0;title\x07\x9b2J\r\x08"


def test_nothing_that_a_server_says_reaches_a_terminal_as_it_is(
    server: Server, space: dibs.Dibs, tmp_path: Path
) -> None:
    (tmp_path / "place").mkdir()
    shell = new_shell(tmp_path / "place")
    away = shell.with_(DIBS_URL=server.url, DIBS_TOKEN=TOKEN)
    refusal = {
        "error": COLOUR, "message": COLOUR + "\u202e", "next": COLOUR,
        "details": {},
    }  # fmt: skip
    for status in ("409 Conflict", "400 Bad", "403 No", "500 Oops", "503 Busy", "429 Slow"):
        server.answer = says(raw(json.dumps(refusal).encode(), status))
        for words in (["leases"], ["leases", "--json"]):
            answer = away(*words)
            assert answer.code != 0
            assert not set(answer.out + answer.err) & set("\x1b\x07\x9b\r\x08\u202e"), words
    server.answer = says(
        ok([LEASE | {"resource": "port:" + COLOUR, "note": COLOUR, "agent": COLOUR}])
    )
    answer = away("leases")
    assert answer.code == 0, answer
    assert not set(answer.out + answer.err) & set("\x1b\x07\x9b\r\x08")
    (lease,) = space.leases.list()
    assert "\\u{1b}" in lease.agent and "\x1b" not in lease.agent + lease.note + lease.resource


def test_a_session_token_of_a_server_cannot_forge_a_header(
    server: Server, space: dibs.Dibs
) -> None:
    session = {
        "id": 1, "agent": "a", "status": "", "host": "h", "pid": 1, "alive": True,
        "joined_at": 1, "seen_at": 1, "process_bound": False, "expires_in_ms": None,
    }  # fmt: skip
    for token in ("1.a\r\nX-Evil: 1", "", "é", 5, None):
        server.answer = says(ok({"session": session, "token": token, "owned": True}))
        with pytest.raises(UnfitError):
            space.join("a", shell=True)


def test_the_token_of_the_users_daemon_goes_to_no_other_listener(
    http_url: str, tmp_path: Path, space_name: str
) -> None:
    """The daemon is at 127.0.0.1; by the name of this machine, somebody else may be at ::1."""
    port = int(http_url.rpartition(":")[2])
    thief = Server("::1", port)
    try:
        with dibs.open(f"http://localhost:{port}", user_dir=str(tmp_path / "user")) as space:
            assert space.space == space_name
            with pytest.raises(NotYoursError):
                dibs.open(f"http://[::1]:{port}", user_dir=str(tmp_path / "user")).leases.list()
        assert thief.heard == []
    finally:
        thief.close()


def test_what_is_sound_stays_as_it_is() -> None:
    """Text with several lines, and a value as deep as a store takes, are no attack."""
    assert answers.harmless("a\n\tb 👩\u200d💻 é") == "a\n\tb 👩\u200d💻 é"
    value: Any = 1
    for _ in range(90):
        value = [value]
    assert answers.read(json.dumps([{"value": value}]).encode(), 200, "u") == [{"value": value}]
