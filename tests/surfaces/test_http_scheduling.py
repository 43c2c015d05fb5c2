"""How the daemon's threads and connections share: turns, wake-ups, and clients who hang up."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import dibs
from dibs.storage.clock import BUSY_S
from dibs.surfaces.http.serve import GRACE_S
from dibs.surfaces.http.worker import Worker
from tests.surfaces.daemon import Daemon, Reply, serving, turn_kept
from tests.surfaces.shell import PATIENCE_S, Shell


@pytest.fixture
def daemon(shell: Shell) -> Iterator[Daemon]:
    with serving(shell) as running:
        yield running


class Call(threading.Thread):
    """A call in the background, and how long it took."""

    def __init__(self, daemon: Daemon, agent: str, operation: str, **arguments: Any) -> None:
        super().__init__(daemon=True)
        self._client = daemon.client(agent)
        self._asked = (operation, arguments)
        self.reply: Reply | None = None
        self.seconds = 0.0
        self.start()

    def run(self) -> None:
        began = time.monotonic()
        self.reply = self._client.ask(*self._asked)
        self.seconds = time.monotonic() - began

    def end(self) -> Reply:
        self.join(PATIENCE_S * 2)
        assert self.reply is not None, "it was never answered"
        return self.reply


def wanting(daemon: Daemon, number: int) -> list[str]:
    """So many agents with sessions; what they are going to claim is held by alice."""
    names = [f"w{number}" for number in range(number)]
    for name in names:
        daemon.client(name)("agents.beat")
    daemon.client("alice")("leases.claim", resources=["port:1"])
    return names


def test_all_who_are_in_line_hear_at_once_that_the_turn_is_kept(daemon: Daemon) -> None:
    names = wanting(daemon, 4)
    with turn_kept(daemon):
        calls = [
            Call(daemon, name, "leases.claim", resources=["port:1"], wait_s=60) for name in names
        ]
        time.sleep(0.3)
        for name in names:
            calls.append(Call(daemon, name, "state.set", namespace="n", key=name, value=1))
        for call in calls:
            assert (call.end().status, call.end().error) == (503, "busy")
        # One group waits, and those that came meanwhile are the next.
        assert max(call.seconds for call in calls) < 2 * BUSY_S + 1
    assert daemon.client("w0").ask("state.set", {"namespace": "n", "key": "k", "value": 1}).json


def test_who_may_wait_stands_behind_those_alone_who_want_the_same() -> None:
    done: list[str] = []

    async def run() -> None:
        worker = Worker("crowds", asyncio.get_running_loop(), 128)
        begun, go_on = threading.Event(), threading.Event()
        first = worker.do(begun.set)
        kept = worker.do(go_on.wait)
        await asyncio.to_thread(begun.wait)
        wanted = [worker.do(partial(done.append, "wanted"), crowd="wanted") for _ in range(20)]
        others = [
            worker.do(partial(done.append, "other"), crowd="other"),
            worker.do(partial(done.append, "plain")),
        ]
        go_on.set()
        await asyncio.gather(first, kept, *wanted, *others)
        await worker.stop()

    asyncio.run(run())
    assert len(done) == 22
    # A turn makes one of each crowd, and then what stands in none.
    assert set(done[:3]) == {"wanted", "other", "plain"}


def test_only_writes_wait_while_another_process_keeps_the_turn(daemon: Daemon) -> None:
    alice = daemon.client("alice")
    alice("agents.beat")
    with turn_kept(daemon):
        # She has no session yet, and gets one by her first call, though it changes nothing.
        newcomer = Call(daemon, "newcomer", "events.last")
        write = Call(daemon, "alice", "state.set", namespace="n", key="k", value=1)
        time.sleep(0.2)
        began = time.monotonic()
        assert daemon.stranger().request("GET", "/healthz").status == 200
        assert daemon.stranger().request("GET", "/readyz").status == 200
        alice("state.get", namespace="n", key="k")
        assert time.monotonic() - began < 1
        assert write.is_alive()
    assert write.end().status == newcomer.end().status == 200


def test_asked_to_end_it_answers_also_those_whose_turn_never_comes(daemon: Daemon) -> None:
    names = wanting(daemon, 3)
    with turn_kept(daemon):
        calls = [
            *(Call(daemon, name, "state.set", namespace="n", key=name, value=1) for name in names),
            *(Call(daemon, n, "leases.claim", resources=["port:1"], wait_s=60) for n in names),
        ]
        time.sleep(0.2)
        began = time.monotonic()
        assert daemon.stop().code == 0
        assert time.monotonic() - began < GRACE_S + 1
        assert {(call.end().status, call.end().error) for call in calls} == {(503, "unavailable")}


def test_a_wait_is_woken_whoever_writes(daemon: Daemon) -> None:
    """By the daemon itself, or by another process, in any order, and also by both at once."""
    own = daemon.client("own")
    own("agents.beat")
    path = daemon.shell.folder / ".dibs/dibs.db"
    shell = daemon.shell
    with dibs.open(
        path, space="main", durability="fast", start=shell.folder, user_dir=shell.user_dir
    ) as space:
        other = space.join("other", shell=True)
        for number in range(60):
            named = {"namespace": "n", "key": f"k{number}"}
            wait = Call(daemon, "own", "state.watch", **named, after_version=0, wait_s=20)
            time.sleep(number % 7 * 0.002)
            if number % 2:
                # What the daemon writes next must not hide it.
                other.state.set("n", named["key"], number)
                own("state.set", namespace="n", key="noise", value=number, force=True)
            else:
                other.state.set("n", "noise", number, force=True)
                own("state.set", **named, value=number)
            assert wait.end().status == 200
            assert wait.seconds < 1, number


def test_a_client_that_resets_its_connection_leaves_no_trace_in_the_log(daemon: Daemon) -> None:
    head = f"Host: {daemon.url[7:]}\r\nAuthorization: Bearer {daemon.token}\r\nDibs-Agent: a\r\n"
    body = '{"namespace":"n","key":"k","value":1}'
    request = (
        f"POST /v1/state/set HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
    for n in range(1500):
        with daemon.connect() as rude:
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            rude.sendall(request)
            time.sleep(n % 50 * 0.00005)
    ended = daemon.stop()
    assert (ended.code, ended.err[:2000]) == (0, "")


def test_what_is_due_is_noticed_by_all_who_wait_for_it(daemon: Daemon) -> None:
    """Also by those who were not the first to wait: nobody else looks for what they wait for."""
    first = Call(daemon, "bob", "messages.inbox", wait_s=20)
    time.sleep(0.3)
    daemon.client("alice")("leases.claim", resources=["port:1"], ttl_s=1)
    waits = Call(daemon, "carol", "leases.wait", resources=["port:1"], wait_s=20)
    daemon.client("alice")("work.add", id="later", delay_s=1)
    works = Call(daemon, "dave", "work.next", wait_s=20)
    assert waits.end().json[0]["free"] is True
    assert works.end().json["id"] == "later"
    assert max(waits.seconds, works.seconds) < 6
    assert first.is_alive()
    daemon.client("alice")("messages.send", to="bob", body="done")
    first.end()
