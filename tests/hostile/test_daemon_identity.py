"""Sessions of different origins never meet: the user's own, and those of each token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import Daemons
from tests.hostile.target import Target, target
from tests.surfaces.daemon import Client, Refusal

CLIENT = "claude:5f0c9a52-client"
"""What a client's hooks and its server call its session."""
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"


@pytest.fixture
def to(new_daemon: Daemons, url: str, space_name: str, tmp_path: Path) -> Iterator[Target]:
    with target(new_daemon, url, space_name, tmp_path) as found:
        yield found


def tool(client: Client, name: str, meta: dict[str, Any], **arguments: Any) -> Any:
    """Call a tool as a client without a handshake does."""
    envelope = {
        PREFIX + "protocolVersion": MODERN,
        PREFIX + "clientCapabilities": {},
        PREFIX + "clientInfo": {"name": "claude-code", "version": "1"},
        **meta,
    }
    params = {"name": name, "arguments": arguments, "_meta": envelope}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    reply = client.request("POST", "/mcp", json.dumps(body), {**headers})
    assert reply.status == 200, reply
    return reply.json["result"]["structuredContent"]


@pytest.mark.parametrize("scope", ["agent", "admin"])
def test_a_token_never_finds_the_session_of_a_local_client(to: Target, scope: str) -> None:
    hook = to.space.join("claude", client=CLIENT, shell=True)
    held = hook.leases.claim("port:3000").leases
    thief = to.client(to.token("claude", scope)[0])
    for how in ({"client": CLIENT}, {"client": CLIENT, "shell": True}, {"shell": True}, {}):
        joined = thief("agents.join", **how)
        assert joined["session"]["id"] != hook.session, how
        again = to.client(to.token("claude", scope)[0], session=joined["token"])
        with pytest.raises(Refusal):
            again("leases.release", resources=["port:3000"])
    assert to.space.leases.list()[0].epoch == held[0].epoch


@pytest.mark.parametrize("scope", ["agent", "admin"])
def test_a_token_never_acts_in_the_shell_of_the_user(to: Target, scope: str) -> None:
    shell = to.space.join("alice", shell=True)
    held = shell.leases.claim("port:3000").leases
    thief = to.client(to.token("alice", scope)[0])
    with pytest.raises(Refusal) as refused:
        thief("leases.claim", resources=["port:3000"])
    assert refused.value.code == "held"
    with pytest.raises(Refusal):
        thief("leases.release", resources=["port:3000"])
    thief("agents.leave")
    assert to.space.leases.list()[0].epoch == held[0].epoch
    assert shell.agents.beat().alive


def test_two_tokens_of_one_name_never_meet(to: Target) -> None:
    one, two = (to.client(to.token("ci")[0]) for _ in range(2))
    mine = one("agents.join", client="runner")
    theirs = two("agents.join", client="runner")
    assert mine["session"]["id"] != theirs["session"]["id"]
    one("leases.claim", resources=["port:3000"])
    with pytest.raises(Refusal) as refused:
        two("leases.claim", resources=["port:3000"])
    assert refused.value.code == "held"
    # What one was given for its own session is of no use with another token.
    with pytest.raises(Refusal) as refused:
        to.client(two.headers["Authorization"][7:], session=mine["token"])("agents.beat")
    assert refused.value.code == "not_yours"


def test_a_session_of_the_user_is_not_taken_up_with_an_agents_token(to: Target) -> None:
    local = to.space.join("claude")
    thief = to.client(to.token("claude")[0], session=local.token)
    for operation in ("agents.beat", "agents.leave", "messages.inbox"):
        with pytest.raises(Refusal) as refused:
            thief(operation)
        assert refused.value.code == "not_yours"
    with pytest.raises(Refusal):
        thief("me")
    assert local.agents.beat().alive


def test_a_label_cannot_be_spelled_as_that_of_another_origin(to: Target) -> None:
    secret, number = to.token("ci")
    other, _ = to.token("ci")
    there = to.client(secret)("agents.join", client="runner")
    local = to.space.join("ci", client="runner", shell=True)
    for client in (
        f"token:{number}:client:runner", f"token:{number}:", "shell", "client:runner",
        "ci:runner", f":client:runner\u2028token:{number}",
    ):  # fmt: skip
        reply = to.client(other).ask("agents.join", {"client": client})
        if reply.status == 200:
            found = reply.json["session"]["id"]
            assert found not in (there["session"]["id"], local.session), client
        mine = to.space.join("ci", client=client, shell=True) if client.isprintable() else None
        assert mine is None or mine.session != there["session"]["id"]
    for argument in ("origin", "remote", "label", "token"):
        reply = to.client(other).ask("agents.join", {"client": "runner", argument: ""})
        assert reply.error == "invalid"


def test_a_tool_over_http_never_acts_in_the_session_of_a_local_client(to: Target) -> None:
    hook = to.space.join("claude", client=CLIENT, shell=True)
    held = hook.leases.claim("port:3000").leases
    named = {"sessionId": CLIENT.partition(":")[2]}
    for scope in ("agent", "admin"):
        thief = to.client(to.token("claude", scope)[0])
        for meta in (named, {}):
            assert tool(thief, "claim", meta, resource="port:3000")["status"] == "busy"
            tool(thief, "release", meta, resource="port:3000")
    assert to.space.leases.list()[0].epoch == held[0].epoch


def test_the_user_is_the_same_whether_through_the_daemon_or_not(to: Target) -> None:
    """The rule must not act here: the owner's token is in the user's own folder."""
    hook = to.space.join("claude", client=CLIENT, shell=True)
    hook.leases.claim("port:3000")
    owner = to.client(to.word["token"], "claude")
    assert owner("agents.join", client=CLIENT, shell=True)["session"]["id"] == hook.session
    shell = to.space.join("alice", shell=True)
    alice = to.client(to.word["token"], "alice")
    assert alice("agents.beat")["id"] == shell.session
    named = {"sessionId": CLIENT.partition(":")[2]}
    assert tool(owner, "claim", named, resource="port:3000")["status"] != "busy"


def test_a_token_finds_its_own_sessions_again(to: Target) -> None:
    secret, _ = to.token("ci")
    first = to.client(secret)("agents.join", client="runner", ttl_s=600)
    assert (
        to.client(secret)("agents.join", client="runner")["session"]["id"]
        == (first["session"]["id"])
    )
    acting = to.client(secret, session=first["token"])
    assert acting("agents.beat")["id"] == first["session"]["id"]
