"""Access tokens: who may act through a daemon, and that their secrets are kept nowhere."""

from __future__ import annotations

import hashlib
import re
import subprocess

import psycopg
import pytest

import dibs
from dibs.nouns.agents import operations as agents
from tests.contract.world import Opener, direct

asks_the_store = direct("it asks the store itself, as a daemon does")
SECRET = re.compile(r"dibs_[A-Za-z0-9_-]{43}")


@direct("it looks into the store itself")
def test_a_token_is_added_with_a_secret_that_opens_it(alice, space, clock):
    token = alice.agents.add_token("ci", scope="read", expires_s=60)
    assert SECRET.fullmatch(token.secret)
    assert (token.name, token.scope) == ("ci", "read")
    assert (token.created_at, token.expires_at) == (clock.wall(), clock.wall() + 60_000)
    row = agents.who(space.scope, token.secret)
    assert row is not None
    assert (row["id"], row["name"], row["scope"]) == (token.id, "ci", "read")
    [event] = space.events.since(kind="token.added")
    assert (event.seq, event.agent, event.subject) == (token.id, "alice", "ci")
    assert event.data == {"scope": "read", "expires_at": token.expires_at}


@direct("it looks into the store itself")
def test_by_default_a_token_is_an_agents_and_lasts(alice, space, clock):
    token = alice.agents.add_token("ci")
    assert (token.scope, token.expires_at) == ("agent", None)
    clock.advance(6 * 86_400)
    assert agents.who(space.scope, token.secret) is not None


@direct("it looks into the store itself")
def test_tokens_are_listed_without_their_secrets(alice, bob, space, clock):
    first = alice.agents.add_token("ci", scope="admin", expires_s=60)
    clock.advance(1)
    second = bob.agents.add_token("ci")
    assert first.secret != second.secret
    assert space.agents.tokens() == (
        dibs.Token(
            id=first.id,
            name="ci",
            scope="admin",
            created_at=first.created_at,
            created_by="alice",
            expires_at=first.expires_at,
            revoked_at=None,
        ),
        dibs.Token(
            id=second.id,
            name="ci",
            scope="agent",
            created_at=second.created_at,
            created_by="bob",
            expires_at=None,
            revoked_at=None,
        ),
    )


@direct("it looks into the store itself")
def test_a_revoked_token_opens_nothing_any_more(alice, bob, space, clock):
    token, other = alice.agents.add_token("ci"), alice.agents.add_token("ci")
    clock.advance(1)
    revoked = bob.agents.revoke_token(token.id)
    assert (revoked.id, revoked.revoked_at) == (token.id, clock.wall())
    assert space.agents.tokens()[0] == revoked
    assert agents.who(space.scope, token.secret) is None
    assert agents.who(space.scope, other.secret) is not None
    [event] = space.events.since(kind="token.revoked")
    assert (event.agent, event.subject, event.data) == ("bob", "ci", {"token": token.id})
    # Once more changes nothing, not even the time.
    clock.advance(1)
    assert alice.agents.revoke_token(token.id) == revoked
    assert space.events.last() == event.seq


@direct("it looks into the store itself")
def test_a_token_opens_nothing_when_its_time_is_over_and_not_before(alice, space, clock):
    token = alice.agents.add_token("ci", expires_s=60)
    # Store time decides: a step of the wall clock neither ends nor prolongs it.
    clock.wall_offset = 3_600_000
    clock.advance(59)
    assert agents.who(space.scope, token.secret) is not None
    clock.wall_offset = -3_600_000
    clock.advance(1)
    assert agents.who(space.scope, token.secret) is None


@direct("it looks into the store itself")
@asks_the_store
def test_what_is_no_secret_opens_nothing(alice, space):
    token = alice.agents.add_token("ci")
    digest = hashlib.sha256(token.secret.encode()).hexdigest()
    for wrong in (
        "", "dibs_", token.secret[:-1], f"{token.secret} ", token.secret.upper(), digest,
        str(token.id), "\ud800", "é", "x" * 100_000, "a\0b",
    ):  # fmt: skip
        assert agents.who(space.scope, wrong) is None, wrong


@direct("it looks into the store itself")
@asks_the_store
def test_the_token_of_one_space_opens_nothing_in_another(opener: Opener, alice):
    token = alice.agents.add_token("ci")
    other = dibs.open(
        opener.url, space=f"{opener.name}-2", clock=opener.clock, user_dir=opener.user_dir
    )
    with other:
        assert agents.who(other.scope, token.secret) is None


def everything_in(opener: Opener) -> str:
    """All that the store has on its disk or in its tables."""
    if opener.on_postgres:
        with psycopg.connect(opener.store, options="-c search_path=dibs") as connection:
            tables = connection.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'dibs'"
            ).fetchall()
            rows = [connection.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in tables]
            return str(rows)
    # In a process of its own: to close the file in this one would drop our locks on it.
    command = ["cat", opener.url, f"{opener.url}-wal"]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode("latin-1")


@asks_the_store
def test_a_secret_is_nowhere_in_the_store(opener: Opener, alice):
    token = alice.agents.add_token("ci")
    alice.agents.revoke_token(token.id)
    kept = everything_in(opener)
    assert hashlib.sha256(token.secret.encode()).hexdigest() in kept
    assert token.secret not in kept
    assert token.secret.removeprefix("dibs_") not in kept


def test_a_secret_is_not_printed_by_the_way(alice):
    token = alice.agents.add_token("ci")
    assert token.secret not in repr(token)
    assert token.to_json()["secret"] == token.secret
    assert dibs.NewToken.from_json(token.to_json()) == token


@direct("it looks into the store itself")
@pytest.mark.parametrize(
    "call",
    [
        {"name": ""},
        {"name": "two words"},
        {"name": "x" * 201},
        {"scope": "root"},
        {"scope": ""},
        {"scope": None},
        {"expires_s": 0},
        {"expires_s": 367 * 86_400},
        {"expires_s": "1d"},
    ],
    ids=str,
)
def test_a_wrong_token_is_not_added(alice, call):
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        alice.agents.add_token(**{"name": "ci", **call})
    assert alice.events.last() == before
    assert "ci" not in [token.name for token in alice.agents.tokens()]


def test_a_token_that_is_not_there_cannot_be_revoked(alice):
    token = alice.agents.add_token("ci")
    before = alice.events.last()
    for id in (0, token.id + 1, alice.session):
        with pytest.raises(dibs.NotFoundError):
            alice.agents.revoke_token(id)
    assert alice.events.last() == before


def test_tokens_are_added_and_revoked_in_a_session_only(space, alice):
    token = alice.agents.add_token("ci")
    with pytest.raises(dibs.NotYoursError):
        space.agents.add_token("ci")
    with pytest.raises(dibs.NotYoursError):
        space.agents.revoke_token(token.id)


@direct("it looks into the store itself")
def test_pruning_removes_tokens_that_were_over_long_ago(alice, space, clock):
    lasting = alice.agents.add_token("lasting")
    revoked = alice.agents.add_token("revoked")
    expired = alice.agents.add_token("expired", expires_s=10)
    alice.agents.revoke_token(revoked.id)
    clock.advance(20)
    alice.events.prune(keep_s=15)
    assert [token.id for token in space.agents.tokens()] == [lasting.id, expired.id]
    alice.events.prune(keep_s=5)
    assert [token.id for token in space.agents.tokens()] == [lasting.id]
    assert agents.who(space.scope, lasting.secret) is not None


@direct("it looks into the store itself")
def test_pruning_leaves_a_token_whose_time_is_over_only_by_the_wall_clock(alice, space, clock):
    token = alice.agents.add_token("ci", expires_s=60)
    clock.wall_offset = 10 * 86_400_000
    alice.events.prune(keep_s=0)
    assert agents.who(space.scope, token.secret) is not None


def test_whoever_watches_the_journal_hears_of_tokens(alice, bob, background):
    before = alice.events.last()
    waiter = background(bob.events.watch, before, kind="token", wait_s=86_400)
    token = alice.agents.add_token("ci")
    assert [event.seq for event in waiter.result(30)] == [token.id]
