"""Agents and their sessions: who is here."""

from __future__ import annotations

import os

import pytest

import dibs
from tests.contract.waiting import result
from tests.contract.world import LONG_S, Opener

# Joining and leaving


def test_an_agent_joins_with_a_session_of_its_own(opener: Opener, space, clock):
    alice = opener.join(space, "alice", status="reading", ttl_s=60)
    [presence] = space.agents.list()
    assert (presence.agent, presence.first_seen_at) == ("alice", clock.wall())
    [session] = presence.sessions
    assert (session.id, session.agent, session.alive) == (alice.session, "alice", True)
    assert (session.status, session.pid) == ("reading", os.getpid())
    assert session.host == os.uname().nodename
    assert session.joined_at == session.seen_at == clock.wall()
    assert session.process_bound is not opener.on_postgres
    assert session.expires_in_ms == (60_000 if opener.on_postgres else None)
    [event] = space.events.since(kind="session.joined")
    assert (event.seq, event.agent, event.subject) == (alice.session, "alice", "alice")


def test_two_instances_of_one_agent_are_two_sessions(opener: Opener, space, elsewhere):
    first, second = opener.join(space, "alice"), opener.join(elsewhere, "alice")
    assert first.session < second.session
    [presence] = space.agents.list()
    assert [session.id for session in presence.sessions] == [first.session, second.session]
    first.close()
    assert [session.id for session in space.agents.list()[0].sessions] == [second.session]
    assert second.agents.beat().alive


@pytest.mark.parametrize(
    "call",
    [
        {"name": ""},
        {"name": "two words"},
        {"name": "a,b"},
        {"name": "/a"},
        {"name": "a//b"},
        {"name": "a\0"},
        {"name": "\ud800"},
        {"name": "x" * 201},
        {"name": 7},
        {"status": "x" * 2_001},
        {"status": "\x1b[0m"},
        {"ttl_s": 0},
        {"ttl_s": 10**9},
    ],
    ids=lambda call: ",".join(f"{k}={str(v)[:12]!r}" for k, v in call.items()),
)
def test_a_wrong_join_is_refused_and_changes_nothing(space, call):
    before = space.events.last()
    with pytest.raises(dibs.InvalidError):
        space.join(**{"name": "alice", **call})
    assert space.events.last() == before
    assert space.agents.list(everybody=True) == ()


def test_leaving_frees_everything_at_once(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    alice.work.claim("t", leases=["b"], ttl_s=LONG_S)
    waiter = background.queued(bob, "a")
    ended = alice.agents.leave()
    assert (ended.id, ended.alive) == (alice.session, False)
    assert result(waiter).leases[0].agent == "bob"
    assert carol.leases.claim("b").leases[0].agent == "carol"
    assert carol.work.claim("t").agent == "carol"
    assert "alice" not in [presence.agent for presence in bob.agents.list()]
    assert bob.events.since(kind="session.left")[0].agent == "alice"


def test_a_session_that_leaves_takes_its_place_in_the_queue_with_it(
    opener: Opener, alice, bob, carol, background
):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background.queued(bob, "a", "b")
    behind = background.queued(carol, "b")
    bob.agents.leave()
    assert result(behind).leases[0].agent == "carol"
    alice.leases.release("a")
    with pytest.raises(dibs.RefusedError):
        result(waiter)
    assert alice.leases.status("a")[0].free


def test_an_ended_session_can_do_nothing_more(alice, bob):
    grant = alice.leases.claim("a")
    task = alice.work.claim("t")
    alice.agents.leave()
    before = bob.events.last()
    for call in (
        lambda: alice.leases.claim("b"),
        lambda: alice.leases.renew("a", epoch=grant.epoch),
        lambda: alice.leases.release(everything=True),
        lambda: alice.work.add("u"),
        lambda: alice.work.claim("u"),
        alice.work.next,
        lambda: alice.work.complete("t", epoch=task.epoch),
        lambda: alice.work.cancel("t"),
        lambda: alice.work.reopen("t"),
        lambda: alice.messages.send("x"),
        lambda: alice.messages.announce("x"),
        lambda: alice.messages.ack(1),
        lambda: alice.state.set("n", "k", 1),
        lambda: alice.state.delete("n", "k"),
        lambda: alice.state.clear("n"),
        alice.agents.beat,
        alice.agents.leave,
        alice.events.prune,
    ):
        with pytest.raises(dibs.NotYoursError) as refusal:
            call()
        assert "has ended" in refusal.value.message
    assert bob.events.last() == before


def test_closing_twice_or_after_the_end_is_no_error(alice, bob):
    alice.close()
    alice.close()
    bob.agents.leave()
    bob.close()


def test_a_session_is_never_used_again(opener: Opener, space, clock):
    seen = []
    for _ in range(3):
        with opener.join(space, "alice") as alice:
            seen.append(alice.session)
        clock.advance(1)
        with opener.join(space, "cleaner") as cleaner:
            cleaner.events.prune(keep_s=0)
    assert seen == sorted(set(seen))


# Signs of life


def test_beat_tells_the_others_what_one_is_doing(alice, bob, clock):
    clock.advance(5)
    session = alice.agents.beat(status="writing tests")
    assert (session.id, session.status, session.seen_at) == (
        alice.session,
        "writing tests",
        clock.wall(),
    )
    [presence] = [found for found in bob.agents.list() if found.agent == "alice"]
    assert presence.sessions[0] == session
    [event] = bob.events.since(kind="session.status")
    assert (event.agent, event.data) == ("alice", {"status": "writing tests"})
    assert alice.agents.beat().status == "writing tests"
    cleared = alice.agents.beat(status="")
    assert cleared.status == ""
    assert alice.agents.beat() == cleared
    for status in ("x" * 2_001, "\x1b[0m", 7):
        with pytest.raises(dibs.InvalidError):
            alice.agents.beat(status=status)


def test_a_session_without_a_beat_dies_only_where_processes_cannot_be_seen(
    opener: Opener, space, bob, clock
):
    alice = opener.join(space, "alice", ttl_s=30)
    alice.leases.claim("a", ttl_s=LONG_S)
    clock.advance(20)
    alice.agents.beat()
    clock.advance(20)
    assert alice.agents.beat().alive
    clock.advance(30)
    if opener.on_postgres:
        assert "alice" not in [presence.agent for presence in bob.agents.list()]
        assert bob.leases.claim("a").leases[0].agent == "bob"
        with pytest.raises(dibs.NotYoursError):
            alice.agents.beat()
    else:
        with pytest.raises(dibs.HeldError):
            bob.leases.claim("a")


def test_everything_a_dead_session_held_is_freed(opener: Opener, alice, clock):
    opener.killed_holder("a", "b", task="t")
    if opener.on_postgres:
        clock.advance(30)
    assert [presence.agent for presence in alice.agents.list()] == ["alice"]
    assert alice.leases.list() == ()
    # Whoever notices frees all of it, not only what it wants itself.
    before = alice.events.last()
    alice.leases.claim("a")
    kinds = {event.kind for event in alice.events.since(before, agent="victim")}
    assert kinds == {"session.died", "lease.freed", "task.freed"}
    assert alice.work.show("t").state == "available"


def test_a_newcomer_clears_the_dead_away(opener: Opener, space, clock):
    opener.killed_holder("a")
    clock.advance(30)
    alice = opener.join(space, "alice")
    assert alice.events.since(kind="session.died")[0].agent == "victim"


# Presence


def test_presence_counts_what_everybody_holds_and_has_not_read(alice, bob, clock):
    alice.leases.claim("a", "b", ttl_s=60)
    alice.leases.claim("short", ttl_s=1)
    alice.work.claim("t")
    alice.messages.send("1", to="bob")
    alice.messages.send("2")
    alice.messages.send("3", channel="build")
    clock.advance(1)
    told = {found.agent: (found.leases, found.tasks, found.unread) for found in bob.agents.list()}
    assert told == {"alice": (2, 1, 0), "bob": (0, 0, 2)}
    bob.messages.inbox(limit=1)
    assert bob.agents.list()[1].unread == 1


def test_everybody_who_was_ever_here_can_be_listed(alice, bob):
    bob.close()
    assert [found.agent for found in alice.agents.list()] == ["alice"]
    everybody = alice.agents.list(everybody=True)
    assert [(found.agent, len(found.sessions)) for found in everybody] == [("alice", 1), ("bob", 0)]


# Subagents


def test_a_subagent_has_a_session_and_an_inbox_of_its_own(alice, bob):
    with alice.subagent("tests", status="running") as tests:
        assert tests.name == "alice/tests"
        assert tests.session != alice.session
        alice.leases.claim("a")
        with pytest.raises(dibs.HeldError):
            tests.leases.claim("a")
        bob.messages.send("hi", to="alice/tests")
        assert alice.messages.inbox() == ()
        assert len(tests.messages.inbox()) == 1
        names = [found.agent for found in bob.agents.list()]
        assert names == ["alice", "alice/tests", "bob"]
    assert bob.leases.list()[0].agent == "alice"
    for name in ("", "two words", "a//b"):
        with pytest.raises(dibs.InvalidError):
            alice.subagent(name)


# Shell sessions


def test_a_shell_session_serves_separate_commands_and_outlives_them(opener: Opener, bob, clock):
    with opener.open() as first:
        shell = first.join("alice", shell=True)
        shell.leases.claim("a", ttl_s=LONG_S)
        number = shell.session
        shell.close()
    clock.advance(86_400)
    with opener.open() as second:
        again = second.join("alice", shell=True)
        assert again.session == number
        with pytest.raises(dibs.HeldError):
            bob.leases.claim("a")
        assert again.leases.renew("a", ttl_s=60)[0].agent == "alice"
        session = next(s for p in bob.agents.list() for s in p.sessions if s.id == number)
        assert (session.process_bound, session.expires_in_ms) == (False, None)
        clock.advance(60)
        assert bob.leases.claim("a").leases[0].agent == "bob"
        again.agents.leave()
        assert second.join("alice", shell=True).session > number


def test_joining_the_shell_session_again_writes_nothing(opener: Opener, space):
    space.join("alice", shell=True)
    before = space.events.last()
    space.join("alice", shell=True)
    assert space.events.last() == before


def test_a_shell_session_stands_beside_those_of_processes(opener: Opener, space, alice):
    shell = space.join("alice", shell=True)
    assert shell.session != alice.session
    alice.leases.claim("a")
    with pytest.raises(dibs.HeldError):
        shell.leases.claim("a")


# Acting in a session by its token


def test_another_process_acts_in_a_session_by_its_token(alice, bob, elsewhere):
    same = elsewhere.resume(alice.token)
    assert (same.name, same.session) == ("alice", alice.session)
    grant = same.leases.claim("a")
    assert alice.leases.release("a", epoch=grant.epoch)
    # The one who keeps the session alive ends it, not the one who resumed it.
    same.close()
    assert alice.agents.beat().alive
    alice.close()
    with pytest.raises(dibs.NotYoursError):
        same.leases.claim("a")


def test_a_wrong_token_is_refused(alice, bob, space):
    number, _, signature = alice.token.partition(".")
    wrong = [
        "",
        "x",
        number,
        f"{number}.",
        f"{number}.{'0' * 64}",
        f"{bob.session}.{signature}",
        f"999999.{signature}",
        f"{'9' * 30}.{signature}",
        f" {alice.token}",
        f"{alice.token} ",
        f"{number}.é",
        "²." + signature,
    ]
    before = space.events.last()
    for token in wrong:
        with pytest.raises(dibs.NotYoursError):
            space.resume(token)
    with pytest.raises(dibs.InvalidError):
        space.resume(f"{number}.\ud800")
    assert space.events.last() == before


def test_the_token_of_one_space_is_worth_nothing_in_another(opener: Opener, alice):
    other = dibs.open(
        opener.url, space=f"{opener.name}-2", clock=opener.clock, user_dir=opener.user_dir
    )
    with other, other.join("alice", ttl_s=LONG_S) as there:
        assert there.session == alice.session
        with pytest.raises(dibs.NotYoursError):
            other.resume(alice.token)
