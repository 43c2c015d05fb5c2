"""Several daemons on one PostgreSQL, behind a proxy: any of them answers, and one may die."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from http.client import HTTPException
from typing import Any

import pytest

from tests.surfaces.daemon import Client, Daemon, Refusal, Stream, serving
from tests.surfaces.round_robin import RoundRobin
from tests.surfaces.shell import PATIENCE_S, Shell, until
from tests.surfaces.test_http_mcp import Impatient, Raw, request

LOST = (OSError, HTTPException)
WRITERS, LINES = 4, 30


class Front(RoundRobin):
    """The proxy, and who asks through it: each time on a new connection, so at another daemon."""

    one: Daemon
    two: Daemon

    def client(self, agent: str, session: str = "", token: str = "") -> Client:
        client = Client(self.address, token or self.token, agent, session)
        client.headers["Connection"] = "close"
        return client

    def raw(self, name: str) -> Raw:
        at: Any = self  # it has an address, and no more is wanted
        return Raw(at, self.one.token_of(name))


@pytest.fixture
def front(shell: Shell, postgres_url: str, space_name: str) -> Iterator[Front]:
    front = Front()
    named = ("--public-host", front.name)
    hasty = Impatient(shell.with_(DIBS_URL=postgres_url, DIBS_SPACE=space_name), "gone")
    try:
        with serving(hasty, *named) as front.one, serving(hasty, *named) as front.two:
            front.put_before(front.one, front.two)
            yield front
    finally:
        front.close()


def test_any_of_them_answers(front: Front) -> None:
    token = front.client("dibs")("agents.add_token", name="ci")
    ci = front.client("ci", token=token["secret"])
    joined = ci("agents.join", ttl_s=60)
    ci = front.client("ci", joined["token"], token["secret"])
    epoch = ci("leases.claim", resources=["port:1"])["leases"][0]["epoch"]
    for _ in range(4):
        assert ci("leases.renew", resources=["port:1"], epoch=epoch)[0]["epoch"] == epoch
        ci("agents.beat")
    bob = front.client("bob")
    with pytest.raises(Refusal, match="held"):
        bob("leases.claim", resources=["port:1"])
    for number in range(4):
        bob("messages.send", body=f"{number}", to="ci")
        assert [one["body"] for one in ci("messages.inbox")] == [f"{number}"]
        ci("messages.ack", ids=[])
    # The same key at another daemon is the same call.
    first = bob("work.add", id="a:1", idempotency_key="k")
    assert all(bob("work.add", id="a:1", idempotency_key="k") == first for _ in range(3))
    assert len(front.served) == 2 and min(front.served.values()) > 5
    # Revoked at one, it is worth nothing at any, a second later.
    front.one.client()("agents.revoke_token", id=token["id"])
    for daemon in (front.one, front.two):
        ask = partial(daemon.client("ci", token=token["secret"]).ask, "leases.list")
        until(lambda ask=ask: ask().status == 401, "the end of the token")  # type: ignore[misc]


def test_a_stream_goes_on_at_another_daemon_from_where_it_was(front: Front) -> None:
    at: Any = front
    writer = front.two.client("alice")
    begin = writer("events.last")
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            writer("state.set", namespace="n", key="k", value=1, force=True)

    writing = threading.Thread(target=write)
    writing.start()
    seen, cuts = [begin], 0
    try:
        while cuts < 6:
            stream = Stream(at, f"?since={begin}", Last_Event_ID=str(seen[-1]))
            try:
                for _ in range(20):
                    seen.append(stream.next()[0])
                if cuts == 2:
                    front.one.kill()
            except LOST:
                pass  # as a browser would: again, from the last one
            finally:
                stream.close()
                cuts += 1
    finally:
        stop.set()
        writing.join()
    assert seen == list(range(begin, begin + len(seen))) and len(seen) > 80


def test_a_session_of_mcp_is_every_daemons(front: Front) -> None:
    ann, bob = front.raw("ann").initialize(), front.raw("bob").initialize()
    # It has done nothing yet, and is known everywhere.
    for _ in range(4):
        assert ann("POST", request("ping"))[0] == 200
    assert ann.tool("claim", resource="a.py")["status"] == "claimed"
    for _ in range(4):
        assert ann.tool("claim", resource="a.py")["status"] == "already_claimed"
        assert bob.tool("claim", resource="a.py")["status"] == "busy"
    assert ann("DELETE")[0] == 204
    assert bob.tool("claim", resource="a.py")["status"] == "claimed"


def test_a_client_whose_stream_comes_back_at_another_daemon_keeps_its_session(front: Front) -> None:
    ann = front.raw("ann").initialize()
    assert ann.tool("claim", resource="a.py")["status"] == "claimed"
    with ann.open("GET") as line:
        assert line.getresponse().status == 200
    with ann.open("GET") as again:
        assert again.getresponse().status == 200
        time.sleep(6)  # longer than the first one waits for it
        assert ann.tool("claim", resource="a.py")["status"] == "already_claimed"
        assert ann.tool("claim", resource="a.py")["status"] == "already_claimed"


def test_when_one_dies_under_load_the_other_goes_on(front: Front) -> None:
    done: list[str] = []
    failures: list[BaseException] = []

    def write(number: int) -> None:
        agent = front.client(f"writer-{number}")
        for line in range(LINES):
            given: dict[str, Any] = {"namespace": "n", "key": f"{number}-{line}", "value": line}
            while True:
                try:
                    agent("state.set", **given, idempotency_key=given["key"])
                    break
                except Refusal as refusal:
                    if refusal.status != 503:
                        failures.append(refusal)
                        return
                except LOST:
                    agent.close()
            done.append(given["key"])

    writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    until(lambda: len(done) > WRITERS * LINES // 3, "a third of the writes")
    front.one.kill()
    for writer in writers:
        writer.join(PATIENCE_S)
    assert not failures
    stored = front.client("reader")("state.list", namespace="n")
    assert sorted(entry["key"] for entry in stored) == sorted(done)
    assert len(done) == WRITERS * LINES and {entry["version"] for entry in stored} == {1}
