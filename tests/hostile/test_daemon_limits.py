"""What one client can use up of the daemon: threads, turns, memory, connections and time."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import dibs
from dibs.surfaces.http import connection, mcp_sessions, present
from dibs.surfaces.http.app import PAGE_BYTES
from tests.daemons import Daemons
from tests.hostile.target import Target, target
from tests.surfaces.conftest import new_shell
from tests.surfaces.daemon import Client, Refusal, serving
from tests.surfaces.shell import DIBS, PATIENCE_S, finish, until

MIB = 1 << 20
ESTABLISHED = "01"
"""As the kernel writes it in its table of connections."""


@pytest.fixture
def to(new_daemon: Daemons, url: str, space_name: str, tmp_path: Path) -> Iterator[Target]:
    with target(new_daemon, url, space_name, tmp_path) as found:
        yield found


def resident_mib(to: Target) -> float:
    status = Path(f"/proc/{to.word['pid']}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


# Waits.


def test_one_token_has_only_so_many_waits(to: Target) -> None:
    secret, number = to.token("ann")
    bearer = {"Authorization": f"Bearer {secret}"}
    for _ in range(present.LASTING_LIMIT - 2):
        to.lasting("GET", "/v1/events", **bearer)
    to.lasting("POST", "/v1/messages/inbox", {"wait_s": 600}, **bearer)
    to.lasting("POST", "/v1/state/watch", {"namespace": "n", "key": "k", "wait_s": 600}, **bearer)
    ann = to.client(secret)

    def refused() -> bool:
        to.lasting("GET", "/v1/events", **bearer)  # to ask takes a place as well
        reply = ann.ask("messages.inbox", {"wait_s": 0.01})
        return reply.status == 429 and reply.error == "too_many_waits"

    until(refused, "the refusal")
    reply = ann.ask("messages.inbox", {"wait_s": 600})
    assert int(reply.headers["retry-after"]) >= 1 and reply.json["next"]
    for method, path, body in (
        ("GET", "/v1/events", None),
        ("POST", "/mcp", '{"jsonrpc":"2.0","id":1,"method":"ping"}'),
    ):
        assert ann.request(method, path, body).error == "too_many_waits"
    # What does not last is answered, and so is everybody else.
    assert ann.ask("leases.claim", {"resources": ["port:1"]}).status == 200
    assert to.client(to.token("bob")[0])("messages.inbox", wait_s=0.01) == []
    assert to.owner("messages.inbox", wait_s=0.01) == []
    to.person.agents.revoke_token(number)


def test_two_hundred_who_wait_do_not_stall_a_writer(to: Target) -> None:
    """All as different agents, with the one token that has no limit."""
    bearer = {"Authorization": f"Bearer {to.word['token']}"}
    writer = to.client(to.word["token"], "writer")
    writer("leases.claim", resources=["port:1"])

    def write() -> float:
        began = time.perf_counter()
        writer("leases.claim", resources=["port:2"])
        return time.perf_counter() - began

    for number in range(200):
        to.lasting(
            "POST", "/v1/leases/claim", {"resources": ["port:1"], "wait_s": 600},
            Dibs_Agent=f"w{number}", **bearer,
        )  # fmt: skip
    began = time.perf_counter()
    while_they_come = [write()]
    while len(to.space.leases.waiting(limit=1000)) < 200:
        while_they_come.append(write())
        assert time.perf_counter() - began < PATIENCE_S
    took = time.perf_counter() - began
    # In one line with them, the first write would take as long as all of them together.
    assert len(while_they_come) > 3, (took, while_they_come)


# What is not read.


def fill(to: Target, number: int, size: int) -> None:
    for one in range(number):
        to.person.state.set("big", f"k{one:04}", "x" * size, expected_version=0)


def test_a_list_stops_at_the_limit_and_says_how_to_go_on(to: Target) -> None:
    fill(to, 14, MIB - 100)
    owner = to.owner
    found: list[str] = []
    after = ""
    while True:
        reply = owner.ask("state.list", {"namespace": "big", "after": after})
        if reply.status == 200:
            found += [entry["key"] for entry in reply.json]
            break
        assert (reply.status, reply.error) == (413, "too_large")
        told = reply.json["details"]
        assert told["argument"] == "after" and str(told["limit"]) in reply.json["next"]
        page = owner.ask("state.list", {"namespace": "big", "after": after, "limit": told["limit"]})
        assert page.status == 200 and len(page.body) < 2 * PAGE_BYTES
        found += [entry["key"] for entry in page.json]
        after = told["at"]
    assert found == [f"k{one:04}" for one in range(14)]
    assert owner.ask("state.export", {"namespace": "big"}).error == "too_large"


def test_the_library_goes_on_by_itself(to: Target, tmp_path: Path) -> None:
    fill(to, 14, MIB - 100)
    for one in range(12):
        to.person.work.add(f"t{one}", title="work", payload="y" * (MIB - 100))
    with dibs.open(to.word["url"], user_dir=str(tmp_path / "user")) as away:
        assert away.state.list("big") == to.space.state.list("big")
        assert away.state.list("big", limit=12) == to.space.state.list("big", limit=12)
        assert [t.id for t in away.work.list()] == [f"t{one}" for one in range(12)]


def test_lists_that_nobody_reads_do_not_fill_the_memory(to: Target) -> None:
    fill(to, 10, MIB - 100)
    to.owner("state.list", namespace="big", limit=3)
    before = resident_mib(to)
    secret, _ = to.token("ann")
    body = {"namespace": "big"}
    for limit in (None, 3):
        for _ in range(100):
            given = body if limit is None else {**body, "limit": limit}
            deaf(to, secret, given)
    # Each that asks for a page is kept a page; together they have a limit.
    assert to.owner.ask("events.last").status == 200
    most = 0.0
    for _ in range(50):
        most = max(most, resident_mib(to))
        time.sleep(0.05)
    assert most - before < 4 * connection.UNREAD_LIMIT / MIB, (before, most)


def deaf(to: Target, secret: str, given: dict[str, Any]) -> None:
    """Ask for a list, and do not read the answer."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect(to.address)
    body = json.dumps(given).encode()
    line.sendall(
        b"POST /v1/state/list HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n"
        % ("{}:{}".format(*to.address).encode(), secret.encode(), len(body))
        + body
    )
    to.keep(line)


def test_who_does_not_read_is_hung_up_on(to: Target) -> None:
    fill(to, 3, MIB - 100)
    secret, _ = to.token("ann")
    deaf(to, secret, {"namespace": "big"})
    ended = threading.Event()
    line = to.kept()[-1]

    def trickle() -> None:
        """Read a little now and then: that is no reading."""
        try:
            while line.recv(1):
                time.sleep(0.2)
        except OSError:
            pass
        ended.set()

    def is_gone() -> bool:
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()]
        ends = f":{to.address[1]:04X}", f":{line.getsockname()[1]:04X}"
        ours = [row for row in rows if (row[1][-5:], row[2][-5:]) == ends]
        return all(row[3] != ESTABLISHED for row in ours)

    threading.Thread(target=trickle, daemon=True).start()
    until(is_gone, "the end of the connection", connection.SLOW_S + PATIENCE_S)


# Connections.


def hung_up(line: socket.socket, seconds: float) -> bytes:
    """All that comes until the other side hangs up."""
    line.settimeout(seconds)
    came = b""
    while data := line.recv(65_536):
        came += data
    return came


@pytest.mark.parametrize("first", ["nothing", "a request"])
def test_a_line_break_does_not_keep_a_connection_open(
    new_daemon: Daemons, sqlite_url: str, space_name: str, tmp_path: Path, first: str
) -> None:
    with target(new_daemon, sqlite_url, space_name, tmp_path) as to:
        line = socket.create_connection(to.address)
        host = "{}:{}".format(*to.address).encode()
        if first == "a request":
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
            assert line.recv(65_536).startswith(b"HTTP/1.1 200")
        line.sendall(b"\r\n")
        stop = threading.Event()

        def more() -> None:
            while not stop.wait(1.0):
                try:
                    line.sendall(b"\r\n")
                except OSError:
                    return

        threading.Thread(target=more, daemon=True).start()
        try:
            came = hung_up(line, connection.REQUEST_S + PATIENCE_S)
            assert came == b"" or b" 408 " in came
        except ConnectionError:
            pass  # our next line break came after it had hung up
        stop.set()
        line.close()


def test_a_handshake_that_never_ends_is_given_up(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    shell = new_shell(place)
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2",
         "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    os.chmod(key, 0o600)
    with serving(shell, "--tls-cert", cert, "--tls-key", key) as daemon:
        silent, slow = daemon.connect(), daemon.connect()
        stop = threading.Event()

        def trickle() -> None:
            hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 400
            for one in hello:
                if stop.wait(0.5):
                    return
                try:
                    slow.sendall(bytes([one]))
                except OSError:
                    return

        threading.Thread(target=trickle, daemon=True).start()
        for line in (silent, slow):
            try:
                hung_up(line, 10 + PATIENCE_S)
            except ConnectionError:
                pass  # that is hanging up too
            line.close()
        stop.set()
        # Whoever speaks TLS is served.
        context = ssl.create_default_context(cafile=cert)
        with context.wrap_socket(daemon.connect(), server_hostname="localhost") as good:
            host = f"localhost:{daemon.port}".encode()
            good.sendall(
                b"GET /healthz HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n\r\n"
            )
            assert b"200 OK" in hung_up(good, PATIENCE_S)


def test_the_refusal_of_a_wait_is_an_error_of_the_library(to: Target, tmp_path: Path) -> None:
    secret, _ = to.token("ann")
    for _ in range(present.LASTING_LIMIT):
        to.lasting("GET", "/v1/events", Authorization=f"Bearer {secret}")
    user_dir = str(tmp_path / "other")
    with dibs.open(to.word["url"], token=secret, user_dir=user_dir) as away:
        ann = away.join("ann", shell=True)
        caught: list[Any] = []

        def refused() -> bool:
            to.lasting("GET", "/v1/events", Authorization=f"Bearer {secret}")
            try:
                ann.messages.inbox(wait_s=0.01)
            except dibs.BusyError as error:
                caught.append(error)
            return bool(caught)

        until(refused, "the refusal")
        assert caught[0].code == "too_many_waits" and caught[0].retry_after_ms
    with pytest.raises(Refusal):
        to.client(secret)("messages.inbox", wait_s=60)


# Sessions and pages of MCP, bodies, and connections without a token.


def hello() -> str:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a"}}
    params["clientInfo"] |= {"version": "1"}  # type: ignore[operator]
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})


MCP = {"Accept": "application/json, text/event-stream"}


def test_one_token_cannot_take_all_sessions_of_mcp(to: Target) -> None:
    ann, bob = to.client(to.token("ann")[0]), to.client(to.token("bob")[0])
    statuses = [
        ann.request("POST", "/mcp", hello(), {**MCP}).status
        for _ in range(mcp_sessions.TOKEN_LIMIT + 1)
    ]
    assert statuses == [200] * mcp_sessions.TOKEN_LIMIT + [429]
    assert bob.request("POST", "/mcp", hello(), {**MCP}).status == 200


def test_who_follows_pages_counts_as_one_who_waits(to: Target) -> None:
    ann, bob = to.client(to.token("ann")[0]), to.client(to.token("bob")[0])
    params = {"uri": "dibs://board"}
    page = json.dumps(
        {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": params}
    )

    def follow(client: Client) -> int:
        begun = client.request("POST", "/mcp", hello(), {**MCP})
        named = {**MCP, "Mcp-Session-Id": begun.headers["mcp-session-id"]}
        return client.request("POST", "/mcp", page, {**named}).status

    statuses = [follow(ann) for _ in range(present.LASTING_LIMIT + 1)]
    assert statuses == [200] * present.LASTING_LIMIT + [429]
    assert follow(bob) == 200
    threads = len(os.listdir(f"/proc/{to.word['pid']}/task"))
    assert threads < present.LASTING_LIMIT + 60


def test_bodies_that_never_end_do_not_fill_the_memory(to: Target) -> None:
    secret, _ = to.token("ann")
    before = resident_mib(to)
    for _ in range(60):
        line = socket.create_connection(to.address, timeout=PATIENCE_S)
        to.keep(line)
        head = (
            f"POST /v1/leases/list HTTP/1.1\r\nHost: {to.address[0]}:{to.address[1]}\r\n"
            f"Authorization: Bearer {secret}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {4 * MIB}\r\n\r\n"
        )
        with suppress(OSError):  # it is hung up on
            line.sendall(head.encode() + b" " * (4 * MIB - 1))
    assert to.owner("leases.list") == []
    assert resident_mib(to) - before < 3 * (present.UNFINISHED_LIMIT >> 20)


def test_connections_of_nobody_leave_room_for_those_with_a_token(tmp_path: Path) -> None:
    limit = 1024
    shell = new_shell(tmp_path)
    shell.person("sam").ok("claim", "a.py")
    daemon = shell.spawn(["sh", "-c", f"ulimit -n {limit} && exec {DIBS} serve --port 0"])
    try:
        assert daemon.stdout is not None
        url = daemon.stdout.readline().split()[-1]
        place = urlsplit(url)
        lines = []
        for _ in range(2 * limit):
            with suppress(OSError):
                lines.append(socket.create_connection((place.hostname, place.port), timeout=5))
        through = shell.with_(DIBS_URL=url)
        assert [lease["agent"] for lease in through.json("leases")] == ["sam"]
        waiting = through.person("eve").start("claim", "a.py", "--wait", "20")
        until(lambda: bool(shell.json("leases", "waiting")), "eve waits")
        shell.person("sam").ok("release", "a.py")
        assert finish(waiting).code == 0
        for line in lines:
            line.close()
    finally:
        daemon.terminate()
        daemon.communicate()
