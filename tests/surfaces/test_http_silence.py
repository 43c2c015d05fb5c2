"""A daemon on PostgreSQL, and commands on it, while the server swallows what is sent to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.waiting import eventually
from tests.silence import COMMIT, SERVER, SilentProxy
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import Answer, Shell

BOUND_S = 10.0
SLACK_S = 1.0
"""What a command itself takes on a busy machine."""


@pytest.fixture
def on_proxy(shell: Shell, proxy: SilentProxy, space_name: str) -> Shell:
    return shell.with_(DIBS_URL=proxy.url, DIBS_SPACE=space_name)


@pytest.fixture
def daemon(on_proxy: Shell) -> Iterator[Daemon]:
    with serving(on_proxy) as daemon:
        yield daemon


def readiness(daemon: Daemon) -> tuple[int, Any]:
    reply = daemon.stranger().request("GET", "/readyz")
    return reply.status, reply.json


def test_a_daemon_says_that_it_cannot_write_and_goes_on_by_itself(
    daemon: Daemon, proxy: SilentProxy
) -> None:
    alice = daemon.client("alice")
    alice("messages.send", body="before")
    assert readiness(daemon) == (200, {"status": "ok"})
    proxy.silence_at(SERVER, COMMIT)
    ended: list[tuple[str, float]] = []

    def call(name: str, operation: str, given: dict[str, Any]) -> None:
        begun = time.monotonic()
        reply = daemon.client(name).ask(operation, given)
        ended.append((reply.error, time.monotonic() - begun))

    calls = [
        ("alice", "messages.send", {"body": "lost", "idempotency_key": "k"}),
        ("alice", "events.last", {}),
        ("bob", "leases.claim", {"resources": ["port:1"], "wait_s": 1}),
        *(("carol", "state.set", {"namespace": "n", "key": str(n), "value": n}) for n in range(6)),
    ]
    threads = [threading.Thread(target=call, args=one) for one in calls]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    begun = time.monotonic()
    status, why = readiness(daemon)
    assert time.monotonic() - begun < 2
    assert status == 503
    assert why["error"] in ("busy", "disconnected") and why["cause"] in ("writer", "silent")
    for thread in threads:
        thread.join()
    assert {code for code, _ in ended} == {"disconnected"}, ended
    assert max(took for _, took in ended) < BOUND_S + SLACK_S, ended
    assert readiness(daemon)[0] == 503
    proxy.speak()
    eventually(lambda: readiness(daemon)[0] == 200)
    sent = alice("messages.send", body="lost", idempotency_key="k")
    assert alice("messages.send", body="lost", idempotency_key="k") == sent
    assert [message["body"] for message in alice("messages.history")] == ["lost", "before"]


def test_a_command_ends_where_the_server_is_silent(on_proxy: Shell, proxy: SilentProxy) -> None:
    assert on_proxy.as_("alice")("claim", "port:1").code == 0
    proxy.silent = True
    found: list[tuple[Answer, float]] = []

    def run(*words: str) -> None:
        begun = time.monotonic()
        answer = on_proxy.as_("bob")(*words)
        found.append((answer, time.monotonic() - begun))

    commands = (("claim", "port:2"), ("status",), ("claim", "port:1", "--wait", "1s"))
    threads = [threading.Thread(target=run, args=words) for words in commands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answer, took in found:
        assert answer.code == 75, answer
        assert "accepts connections but does not answer" in answer.err
        assert took < BOUND_S + SLACK_S
