"""Revoked means cut: each way in which a token is in use ends, whoever has revoked it, and how.

The revocation is made by another process on the store, or by the clock; the daemon is not asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import Daemons
from tests.hostile.target import Pending, Target, target
from tests.surfaces.daemon import Refusal
from tests.surfaces.shell import until

BOTH = "application/json, text/event-stream"
HANDSHAKE = "2025-11-25"
WAIT_S = 3_000


@pytest.fixture
def to(new_daemon: Daemons, url: str, space_name: str, tmp_path: Path) -> Iterator[Target]:
    with target(new_daemon, url, space_name, tmp_path) as found:
        yield found


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def wait(operation: str, **given: Any) -> Callable[[Target, str], Pending]:
    def begin(to: Target, secret: str) -> Pending:
        path = "/v1/" + operation.replace(".", "/")
        return to.lasting("POST", path, {**given, "wait_s": WAIT_S}, **bearer(secret))

    return begin


def event_stream(to: Target, secret: str) -> Pending:
    return to.lasting("GET", "/v1/events", **bearer(secret))


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def mcp_session(to: Target, secret: str) -> dict[str, str]:
    hello = rpc(
        "initialize",
        protocolVersion=HANDSHAKE,
        capabilities={},
        clientInfo={"name": "claude-code", "version": "1"},
    )
    begun = to.client(secret).request("POST", "/mcp", json.dumps(hello), {"Accept": BOTH})
    assert begun.status == 200, begun
    session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
    return {**bearer(secret), **session, "Mcp-Protocol-Version": HANDSHAKE}


def mcp_stream(to: Target, secret: str) -> Pending:
    headers = mcp_session(to, secret)
    ask = to.client(secret)
    page = rpc("resources/subscribe", uri="dibs://board")
    reply = ask.request("POST", "/mcp", json.dumps(page), {**headers, "Accept": BOTH})
    assert reply.json["result"] == {}
    return to.lasting("GET", "/mcp", Accept="text/event-stream", **headers)


def mcp_call(to: Target, secret: str) -> Pending:
    call = rpc("tools/call", name="claim", arguments={"resource": "port:1", "wait_s": WAIT_S})
    return to.lasting("POST", "/mcp", call, Accept=BOTH, **mcp_session(to, secret))


def message(text: str = "do it") -> dict[str, Any]:
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}]}


def a2a(method: str) -> Callable[[Target, str], Pending]:
    def begin(to: Target, secret: str) -> Pending:
        body = rpc(method, message=message())
        return to.lasting("POST", "/a2a", body, A2A_Version="1.0", **bearer(secret))

    return begin


def a2a_subscription(to: Target, secret: str) -> Pending:
    to.person.work.add("t1", title="work")
    body = rpc("SubscribeToTask", id="t1")
    return to.lasting("POST", "/a2a", body, A2A_Version="1.0", **bearer(secret))


def dashboard(to: Target, secret: str) -> Pending:
    return to.lasting("GET", "/v1/events", Sec_Fetch_Site="same-origin", Cookie=cookie(to, secret))


def cookie(to: Target, secret: str) -> str:
    offered = to.client(secret).request("POST", "/sign-in", "{}").json
    taken = to.client("x").request("GET", offered["path"], None, {"Authorization": None})
    assert taken.status == 303, taken
    return taken.headers["set-cookie"].partition(";")[0]


WAYS: dict[str, Callable[[Target, str], Pending]] = {
    "claim": wait("leases.claim", resources=["port:1"]),
    "inbox": wait("messages.inbox"),
    "next": wait("work.next"),
    "state": wait("state.watch", namespace="n", key="k"),
    "events": wait("events.watch", seq=10**12),
    "stream": event_stream,
    "mcp_stream": mcp_stream,
    "mcp_call": mcp_call,
    "a2a_send": a2a("SendMessage"),
    "a2a_stream": a2a("SendStreamingMessage"),
    "a2a_subscription": a2a_subscription,
    "dashboard": dashboard,
}


def begun(to: Target, way: str, secret: str) -> Pending:
    """The request, once it lasts."""
    to.person.leases.claim("port:1")
    pending = WAYS[way](to, secret)
    if way in ("claim", "mcp_call"):
        until(lambda: bool(to.space.leases.waiting()), "it waits")
    elif way in ("stream", "mcp_stream", "a2a_stream", "a2a_subscription", "dashboard"):
        until(lambda: pending.is_stream, "it streams")
    elif way == "a2a_send":
        until(lambda: bool(to.space.work.list()), "the task is there")
    else:
        until(
            lambda: "dibs_waiting 1" in to.owner.request("GET", "/metrics").body.decode(),
            "it waits",
        )
    assert pending.open, pending.came
    return pending


def cut_off(ended: Pending) -> bool:
    """A claim may hear first that its place in the queue is lost."""
    return ended.is_stream or ended.status == 401 or b'"stale"' in ended.came


@pytest.mark.parametrize("way", WAYS)
def test_what_lasts_is_cut_when_its_token_is_revoked(to: Target, way: str) -> None:
    secret, number = to.token("ann", "admin")
    other, _ = to.token("bob")
    pending, kept = begun(to, way, secret), event_stream(to, other)
    until(lambda: kept.is_stream, "it streams")
    to.person.agents.revoke_token(number)
    pending.end()
    assert cut_off(pending), pending.came
    # Whoever came with another token notices nothing.
    assert kept.open
    assert to.space.leases.waiting() == ()


@pytest.mark.parametrize("way", ["claim", "stream", "mcp_stream", "dashboard", "a2a_send"])
def test_what_lasts_is_cut_when_its_token_expires(to: Target, way: str) -> None:
    secret, _ = to.token("ann", "admin", expires_s=3.0)
    pending = begun(to, way, secret)
    pending.end()
    assert cut_off(pending), pending.came
    until(lambda: to.space.leases.waiting() == (), "nobody waits")


def test_what_a_revoked_token_held_is_free_and_the_journal_says_why(to: Target) -> None:
    secret, number = to.token("ann")
    ann = to.client(secret)
    joined = ann("agents.join", ttl_s=3_600)
    acting = to.client(secret, session=joined["token"])
    ann("leases.claim", resources=["port:1"])  # in its shell's session
    acting("leases.claim", resources=["port:2"])
    to.person.work.add("t1", title="work")
    acting("work.claim", id="t1")
    waiting = to.space.join("bob")
    got: list[Any] = []
    heir = threading.Thread(
        target=lambda: got.append(waiting.leases.claim("port:1", wait_s=30)), daemon=True
    )
    heir.start()
    until(lambda: bool(to.space.leases.waiting()), "it waits")
    to.person.agents.revoke_token(number)
    heir.join(30)
    assert got[0].leases[0].agent == "bob"
    assert [lease.resource for lease in to.space.leases.list()] == ["port:1"]
    assert to.space.work.show("t1").state == "available"
    assert to.kinds().count("session.revoked") == 2
    assert "ann" not in {one.agent for one in to.space.agents.list()}


def test_what_an_expired_token_held_is_free(to: Target) -> None:
    secret, _ = to.token("ann", expires_s=1.0)
    to.client(secret)("leases.claim", resources=["port:1"])
    until(lambda: to.space.leases.list() == (), "it is free")
    assert "session.revoked" in to.kinds()


def test_a_revoked_token_joins_nothing_more_not_even_by_what_the_daemon_still_knows(
    to: Target,
) -> None:
    """In the moment before the daemon notices, its session has ended and it may not begin one."""
    secret, number = to.token("ann")
    ann = to.client(secret)
    ann("agents.beat")
    to.person.agents.revoke_token(number)
    for _ in range(20):
        for operation, given in (
            ("leases.claim", {"resources": ["port:9"]}),
            ("agents.join", {}),
            ("agents.join", {"client": "c", "ttl_s": 3_600}),
            ("messages.send", {"to": "bob", "body": "still here"}),
        ):
            with pytest.raises(Refusal) as refused:
                ann(operation, **given)
            assert refused.value.code in ("not_yours", "bad_token")
    assert to.space.leases.list() == ()
    assert "ann" not in {one.agent for one in to.space.agents.list()}


def test_the_cookie_of_a_revoked_token_mints_nothing(to: Target) -> None:
    secret, number = to.token("root", "admin")
    signed = {"Cookie": cookie(to, secret), "Sec-Fetch-Site": "same-origin"}
    page = to.client("x")
    page.headers.pop("Authorization")
    page.headers |= signed
    assert page.ask("agents.add_token", {"name": "mine", "scope": "admin"}).status == 200
    code = to.client(secret).request("POST", "/sign-in", "{}").json["path"]
    before = len(to.person.agents.tokens())
    to.person.agents.revoke_token(number)
    until(lambda: page.ask("events.last").status == 401, "it is cut")
    for path, body in (
        ("/v1/agents/add_token", {"name": "again", "scope": "admin"}),
        ("/sign-in", {}),
        ("/v1/agents/tokens", {}),
    ):
        assert page.request("POST", path, json.dumps(body)).error in ("bad_token", "no_token")
    # A code that was asked for before opens nothing either.
    assert to.client("x").request("GET", code, None, {"Authorization": None}).error == "bad_code"
    assert len(to.person.agents.tokens()) == before


def test_a_session_of_mcp_is_gone_with_its_token(to: Target) -> None:
    secret, number = to.token("ann")
    headers = mcp_session(to, secret)
    claim = rpc("tools/call", name="claim", arguments={"resource": "port:5"})
    ann = to.client(secret)
    assert ann.request("POST", "/mcp", json.dumps(claim), {**headers, "Accept": BOTH}).status == 200
    assert to.space.leases.list()[0].agent == "ann"
    to.person.agents.revoke_token(number)
    assert to.space.leases.list() == ()
    until(lambda: ann.ask("events.last").status == 401, "it is cut")
    # Nor is it found by another token of that name.
    again = to.client(to.token("ann")[0])
    headers["Authorization"] = again.headers["Authorization"]
    reply = again.request("POST", "/mcp", json.dumps(claim), {**headers, "Accept": BOTH})
    assert reply.status == 404
    assert to.space.leases.list() == ()
