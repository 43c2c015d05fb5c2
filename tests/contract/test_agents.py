"""Agents and their sessions: who is here."""

from __future__ import annotations

import os
import threading

import pytest

import dibs
from dibs.space.scope import mint
from tests.contract.waiting import FrozenClock, eventually, result
from tests.contract.world import LONG_S, Opener, direct

CLIENT = "claude:5e55"

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
    assert session.process_bound is not opener.by_beats
    assert session.expires_in_ms == (60_000 if opener.by_beats else None)
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
        {"client": ""},
        {"client": " claude:1"},
        {"client": "a\0"},
        {"client": "x" * 201},
        {"client": 7},
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


def test_a_session_says_what_it_is_doing_by_its_status_or_its_task(alice, bob, clock):
    assert alice.agents.doing() == ""
    bob.work.claim("other")
    alice.work.add("t1", title="faster")
    alice.work.claim("t1", ttl_s=60)
    assert alice.agents.doing() == "faster"
    alice.work.claim("t2")
    assert alice.agents.doing() == "t2"
    alice.agents.beat(status="measuring")
    assert alice.agents.doing() == "measuring"
    alice.agents.beat(status="")
    alice.work.abandon("t2")
    assert alice.agents.doing() == "faster"
    clock.advance(61)
    assert alice.agents.doing() == ""
    assert bob.agents.doing() == "other"


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
    if opener.by_beats:
        assert "alice" not in [presence.agent for presence in bob.agents.list()]
        assert bob.leases.claim("a").leases[0].agent == "bob"
        with pytest.raises(dibs.NotYoursError):
            alice.agents.beat()
    else:
        with pytest.raises(dibs.HeldError):
            bob.leases.claim("a")


def test_everything_a_dead_session_held_is_freed(opener: Opener, alice, clock):
    opener.killed_holder("a", "b", task="t")
    if opener.by_beats:
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


# Client sessions


def session_of(space: dibs.Dibs, number: int) -> dibs.Session:
    [found] = [s for p in space.agents.list() for s in p.sessions if s.id == number]
    return found


def is_alive(space: dibs.Dibs, number: int) -> bool:
    return number in [s.id for p in space.agents.list() for s in p.sessions]


def test_the_server_and_the_hooks_of_one_client_act_as_one_session(opener: Opener, space, bob):
    server = opener.other(name="alice", client=CLIENT)
    assert server.call("leases.claim", "a", ttl_s=LONG_S)["leases"][0]["agent"] == "alice"
    # Whatever the hook calls the agent: the name is the session's.
    hook = space.join("somebody", client=CLIENT, shell=True)
    assert (hook.name, hook.session) == ("alice", server.session)
    hook.leases.claim("b", ttl_s=LONG_S)
    assert len(server.call("leases.release", everything=True)) == 2
    hook.close()
    assert server.call("agents.beat")["alive"]
    assert [event.agent for event in bob.events.since(kind="session.joined")] == ["bob", "alice"]


def test_hooks_begin_the_session_and_the_server_keeps_it_alive(opener: Opener, space, bob):
    hook = space.join("alice", client=CLIENT, shell=True)
    begun = session_of(space, hook.session)
    assert (begun.process_bound, begun.expires_in_ms) == (False, None)
    hook.leases.claim("a", ttl_s=LONG_S)
    server = opener.other(name="other", client=CLIENT, ttl_s=60)
    assert (server.name, server.session) == ("alice", hook.session)
    kept = session_of(space, hook.session)
    assert kept.process_bound is not opener.by_beats
    assert kept.expires_in_ms == (60_000 if opener.by_beats else None)
    assert kept.pid != begun.pid
    server.close()
    # It has left, and with it the whole session.
    assert bob.leases.claim("a").leases[0].agent == "bob"
    with pytest.raises(dibs.NotYoursError) as refusal:
        hook.leases.claim("b")
    assert refusal.value.details["session"] == hook.session


def test_a_client_session_dies_with_the_server_that_took_it_over(opener: Opener, space, bob, clock):
    hook = space.join("alice", client=CLIENT, shell=True)
    hook.leases.claim("a", ttl_s=LONG_S)
    server = opener.other(name="other", client=CLIENT)
    server.kill()
    clock.advance(30 if opener.by_beats else 0)
    assert not is_alive(space, hook.session)
    with pytest.raises(dibs.NotYoursError):
        hook.leases.renew("a")
    # The hook that comes after begins a session of its own, and what was held is free.
    after = space.join("carol", client=CLIENT, shell=True)
    assert (after.name, after.session > hook.session) == ("carol", True)
    assert bob.leases.claim("a").leases[0].agent == "bob"
    # So does the server that comes after: it takes over again.
    again = opener.other(name="dora", client=CLIENT)
    assert (again.name, again.session) == ("carol", after.session)


def test_a_client_session_of_hooks_alone_outlives_them(opener: Opener, bob, clock):
    with opener.open() as first:
        hook = first.join("alice", client=CLIENT, shell=True)
        hook.leases.claim("a", ttl_s=LONG_S)
        hook.close()
    clock.advance(86_400)
    with opener.open() as second:
        again = second.join("alice", client=CLIENT, shell=True)
        assert again.session == hook.session
        with pytest.raises(dibs.HeldError):
            bob.leases.claim("a")
        again.agents.leave()
        assert second.join("alice", client=CLIENT, shell=True).session > hook.session


def test_joining_a_client_session_again_writes_nothing(opener: Opener, space):
    opener.join(space, "alice", client=CLIENT)
    before = space.events.last()
    space.join("alice", client=CLIENT, shell=True)
    opener.join(space, "alice", client=CLIENT)
    assert space.events.last() == before


def test_two_clients_are_two_sessions_also_of_one_agent(opener: Opener, space, alice):
    shell = space.join("alice", shell=True)
    first = space.join("alice", client="claude:1", shell=True)
    second = space.join("alice", client="claude:2", shell=True)
    assert len({alice.session, shell.session, first.session, second.session}) == 4
    first.leases.claim("a")
    for other in (alice, shell, second):
        with pytest.raises(dibs.HeldError):
            other.leases.claim("a")


def test_processes_that_join_one_client_at_once_share_one_session(opener: Opener, space):
    others = [
        opener.prepare(name=f"agent-{number}", client=CLIENT, shell=number % 2 == 0)
        for number in range(6)
    ]
    for other in others:
        other.begin_to_join()
    assert len({(other.joined().name, other.session) for other in others}) == 1
    [joined] = space.events.since(kind="session.joined")
    assert joined.seq == others[0].session
    assert len(others[0].call("leases.claim", "a", "b")["leases"]) == 2
    assert len(others[-1].call("leases.release", "b")) == 1
    kept = session_of(space, joined.seq)
    assert (kept.process_bound, kept.expires_in_ms) == (
        (False, 30_000) if opener.by_beats else (True, None)
    )


def test_a_second_server_does_not_end_the_session_of_the_first(opener: Opener, space):
    first = opener.other(name="alice", client=CLIENT)
    second = opener.other(name="alice", client=CLIENT)
    assert second.session == first.session
    second.close()
    assert first.call("agents.beat")["alive"]
    assert is_alive(space, first.session)


def test_a_second_server_goes_on_when_the_first_is_killed(opener: Opener, space, clock):
    first = opener.other(name="alice", client=CLIENT, ttl_s=30)
    second = opener.join(space, "alice", client=CLIENT, ttl_s=3)
    assert second.session == first.session
    second.leases.claim("a", ttl_s=LONG_S)
    first.kill()
    if opener.by_beats:
        # It beats too, so nobody has to notice.
        clock.advance(20)
        eventually(lambda: session_of(space, first.session).expires_in_ms == 30_000)
        assert second.leases.renew("a")[0].session == first.session
    else:
        with pytest.raises(dibs.NotYoursError) as refusal:
            second.leases.renew("a")
        assert refusal.value.details["session"] == first.session
        again = opener.join(space, "alice", client=CLIENT)
        assert again.session > first.session
        assert again.leases.claim("a").leases[0].session == again.session


def test_a_server_that_is_started_again_keeps_its_session_alive(opener: Opener, space, clock):
    first = opener.other(name="alice", client=CLIENT, ttl_s=30)
    first.kill()
    second = opener.join(space, "alice", client=CLIENT, ttl_s=3)
    second.leases.claim("a", ttl_s=LONG_S)
    assert (second.session == first.session) is opener.by_beats
    for _ in range(3):
        clock.advance(20)
        if opener.by_beats:
            eventually(lambda: session_of(space, second.session).expires_in_ms == 30_000)
    assert second.leases.renew("a")[0].session == second.session


# Callers that reach the store through another process


def join_remotely(space: dibs.Dibs, name: str, ttl_s: float = 30, **options) -> dibs.Agent:
    """What a daemon does for a caller on the other end of a connection."""
    given = {"status": "", "shell": False, "client": None, **options}
    caller = mint(space.scope, name, ttl_s=ttl_s, remote=True, **given)
    return dibs.Agent(space.scope.of(caller))


@direct("it looks into the store itself")
def test_a_remote_session_lives_by_beats_on_every_database(space, bob, clock):
    alice = join_remotely(space, "alice", ttl_s=30, status="reading")
    session = session_of(space, alice.session)
    assert (session.agent, session.status) == ("alice", "reading")
    assert (session.process_bound, session.expires_in_ms) == (False, 30_000)
    alice.leases.claim("a", ttl_s=LONG_S)
    for _ in range(3):
        clock.advance(29)
        assert alice.agents.beat().expires_in_ms == 30_000
    clock.advance(29)
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("a")
    clock.advance(1)
    assert "alice" not in [presence.agent for presence in bob.agents.list()]
    for call in (alice.agents.beat, lambda: alice.leases.renew("a")):
        with pytest.raises(dibs.NotYoursError) as refusal:
            call()
        assert refusal.value.details["session"] == alice.session
    assert bob.leases.claim("a").leases[0].agent == "bob"
    assert bob.events.since(kind="session.died")[0].agent == "alice"


@direct("it does itself what a daemon does")
def test_a_waiter_takes_over_from_a_remote_session_that_is_silent(space, bob):
    join_remotely(space, "alice", ttl_s=30).leases.claim("a", ttl_s=LONG_S)
    assert bob.leases.claim("a", wait_s=3_600).leases[0].agent == "bob"


@direct("it looks into the store itself")
def test_a_remote_session_does_not_end_with_the_process_that_serves_it(opener: Opener, bob, clock):
    with opener.open() as served:
        alice = join_remotely(served, "alice", ttl_s=LONG_S)
        alice.leases.claim("a", ttl_s=LONG_S)
        token = alice.token
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("a")
    again = opener.open().resume(token)
    assert again.leases.renew("a")[0].session == alice.session
    again.agents.leave()
    assert bob.leases.claim("a").leases[0].agent == "bob"


@direct("it looks into the store itself")
def test_a_remote_shell_session_is_the_shell_session(space, clock):
    shell = space.join("alice", shell=True)
    remote = join_remotely(space, "alice", shell=True)
    assert remote.session == shell.session
    clock.advance(86_400)
    assert remote.agents.beat().expires_in_ms is None


@direct("it looks into the store itself")
def test_a_remote_caller_keeps_a_session_alive_that_hooks_have_begun(space, bob, clock):
    hook = space.join("alice", client=CLIENT, shell=True)
    remote = join_remotely(space, "other", client=CLIENT, ttl_s=30)
    assert (remote.name, remote.session) == ("alice", hook.session)
    kept = session_of(space, hook.session)
    assert (kept.process_bound, kept.expires_in_ms) == (False, 30_000)
    clock.advance(29)
    assert remote.agents.beat().alive
    clock.advance(29)
    assert is_alive(space, hook.session)
    clock.advance(1)
    assert not is_alive(space, hook.session)


@direct("it looks into the store itself")
def test_a_process_that_stays_takes_a_remote_session_over_and_ends_it(opener: Opener, space, clock):
    remote = join_remotely(space, "alice", client=CLIENT, ttl_s=30)
    server = opener.join(opener.open(), "other", client=CLIENT, ttl_s=60)
    assert (server.name, server.session) == ("alice", remote.session)
    clock.advance(45)
    assert remote.agents.beat().process_bound is not opener.by_beats
    assert server.leases.claim("a").leases[0].session == remote.session
    server.close()
    # Where processes can be seen the session is the server's now; else both beat.
    assert is_alive(space, remote.session) is opener.by_beats


@direct("it does itself what a daemon does")
def test_a_remote_caller_acts_in_the_session_that_a_process_keeps_alive(opener: Opener, space):
    server = opener.other(name="alice", client=CLIENT)
    remote = join_remotely(space, "other", client=CLIENT)
    assert (remote.name, remote.session) == ("alice", server.session)
    remote.close()
    assert server.call("agents.beat")["alive"]


# Another name


def test_a_session_takes_another_name(alice, bob, clock):
    alice.messages.send("from alice", to="bob")
    clock.advance(1)
    session = alice.agents.rename("zoe")
    assert (session.id, session.agent, session.alive) == (alice.session, "zoe", True)
    assert alice.name == "zoe"
    [event] = bob.events.since(kind="session.renamed")
    assert (event.agent, event.session, event.subject) == ("zoe", alice.session, "zoe")
    assert event.data == {"was": "alice"}
    assert [found.agent for found in bob.agents.list()] == ["bob", "zoe"]
    assert "alice" in [found.agent for found in bob.agents.list(everybody=True)]
    assert alice.leases.claim("a").leases[0].agent == "zoe"
    assert alice.work.claim("t").agent == "zoe"
    bob.messages.send("hello", to="zoe")
    assert [message.body for message in alice.messages.inbox()] == ["hello"]
    assert alice.subagent("tests").name == "zoe/tests"
    assert bob.agents.verify() == ()


def test_what_was_sent_to_the_old_name_stays_there(opener: Opener, space, alice, bob):
    bob.messages.send("hello", to="alice")
    alice.agents.rename("zoe")
    assert alice.messages.inbox() == ()
    assert len(opener.join(space, "alice").messages.inbox()) == 1


@direct("it interrupts or freezes the waiter by its clock")
def test_a_session_that_waits_for_messages_gets_those_to_its_new_name(
    opener: Opener, bob, clock, background
):
    frozen = FrozenClock(clock)
    dora = opener.join(opener.open(frozen), "dora")
    waiter = background(dora.messages.inbox, wait_s=86_400)
    background.until(frozen.frozen.is_set, waiter)
    dora.agents.rename("zoe")
    sent = bob.messages.send("hello", to="zoe")
    frozen.thawed.set()
    assert result(waiter) == (sent,)


def test_the_same_name_again_writes_nothing(alice):
    before = alice.events.last()
    assert alice.agents.rename("alice").agent == "alice"
    assert alice.events.last() == before


def test_a_name_that_somebody_uses_is_refused(opener: Opener, space, alice, bob, clock):
    space.join("carol", shell=True)
    opener.killed_holder("b")
    before = alice.events.last()
    for name in ("bob", "carol"):
        with pytest.raises(dibs.ExistsError):
            alice.agents.rename(name)
    assert (alice.name, alice.events.last()) == ("alice", before)
    bob.close()
    clock.advance(30 if opener.by_beats else 0)
    # A session that has left or died no longer uses it.
    assert alice.agents.rename("bob").agent == "bob"
    assert alice.agents.rename("victim").agent == "victim"


@pytest.mark.parametrize("name", ["", "two words", "a,b", "/a", "x" * 201, "\ud800", 7, None])
def test_what_is_no_name_is_refused(alice, name):
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        alice.agents.rename(name)
    assert (alice.name, alice.events.last()) == ("alice", before)


def test_a_session_that_holds_something_keeps_its_name(alice, bob, background):
    bob.leases.claim("b", ttl_s=LONG_S)

    def refused() -> None:
        before = alice.events.last()
        with pytest.raises(dibs.StateError):
            alice.agents.rename("zoe")
        assert (alice.name, alice.events.last()) == ("alice", before)

    alice.leases.claim("a", mode="shared")
    refused()
    alice.leases.release("a")
    alice.work.claim("t")
    refused()
    alice.work.complete("t")
    waiter = background.queued(alice, "b")
    refused()
    bob.leases.release("b")
    assert result(waiter).leases[0].agent == "alice"
    refused()
    alice.leases.release("b")
    assert alice.agents.rename("zoe").agent == "zoe"


def test_what_has_lapsed_does_not_keep_a_session_from_another_name(alice, bob, clock):
    alice.leases.claim("a", ttl_s=60)
    alice.work.claim("t", ttl_s=60)
    clock.advance(60)
    alice.agents.rename("zoe")
    assert bob.agents.verify() == ()
    # Nobody has cleared it away yet; it is claimed under the new name, and signed so.
    assert alice.leases.claim("a", ttl_s=60).leases[0].agent == "zoe"
    assert alice.leases.renew("a")[0].agent == "zoe"
    assert alice.work.claim("t", ttl_s=60).agent == "zoe"
    assert bob.agents.verify() == ()
    assert [lease.agent for lease in bob.leases.list()] == ["zoe"]


def test_a_waiter_that_was_killed_does_not_keep_a_session_from_another_name(
    opener: Opener, space, bob, clock
):
    bob.leases.claim("a", ttl_s=LONG_S)
    server = opener.join(space, "alice", client=CLIENT)
    hook = opener.other(name="alice", client=CLIENT, shell=True)
    hook.begin("leases.claim", "a", wait_s=86_400, ttl_s=60)
    eventually(lambda: space.events.since(kind="lease.queued"))
    hook.kill()
    if opener.through_daemon:
        eventually(lambda: not space.leases.waiting())  # until the daemon sees that it hung up
    else:
        clock.advance(2 * 86_400 if opener.by_beats else 0)  # it waited by a clock of its own
    assert server.agents.rename("zoe").agent == "zoe"


def test_everybody_who_acts_in_a_session_learns_its_new_name(opener: Opener, alice, elsewhere):
    token = alice.token
    same = elsewhere.resume(token)
    same.agents.rename("zoe")
    assert alice.leases.claim("a").leases[0].agent == "zoe"
    if opener.through_daemon:
        alice.agents.beat()  # what a daemon answers to another call does not say who called
    assert alice.name == "zoe"
    assert alice.agents.beat().agent == "zoe"
    # The token is the session's, whatever its name.
    assert alice.token == token
    assert elsewhere.resume(token).name == "zoe"
    alice.leases.release("a")
    server = opener.other(name="other", client=CLIENT)
    hook = elsewhere.join("other", client=CLIENT, shell=True)
    hook.agents.rename("yara")
    assert server.call("leases.claim", "b")["leases"][0]["agent"] == "yara"
    assert elsewhere.join("other", client=CLIENT, shell=True).name == "yara"


def test_a_thread_that_writes_is_not_refused_while_another_renames(alice, space):
    done = threading.Event()
    refusals: list[dibs.DibsError] = []
    told = []

    def beat() -> None:
        while not done.is_set():
            try:
                told.append(alice.agents.beat().agent)
            except dibs.RefusedError as refusal:
                refusals.append(refusal)

    threads = [threading.Thread(target=beat) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(30):
            alice.agents.rename(f"name-{number}")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert refusals == []
    assert set(told) <= {"alice", *(f"name-{number}" for number in range(30))}
    assert alice.agents.beat().agent == alice.name == "name-29"


def test_of_two_who_want_one_name_at_once_one_gets_it(alice, bob):
    for number in range(5):
        wanted, start = f"zoe-{number}", threading.Barrier(2)
        refused: list[dibs.Agent] = []

        def take(agent: dibs.Agent, wanted: str = wanted, start=start, refused=refused) -> None:
            start.wait()
            try:
                agent.agents.rename(wanted)
            except dibs.ExistsError:
                refused.append(agent)

        threads = [threading.Thread(target=take, args=[agent]) for agent in (alice, bob)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [loser] = refused
        assert loser.name != wanted
        assert [alice.name, bob.name].count(wanted) == 1


def test_a_newcomer_may_bear_the_name_that_a_session_took(opener: Opener, alice, elsewhere):
    alice.agents.rename("zoe")
    twin = opener.join(elsewhere, "zoe")
    alice.leases.claim("a")
    with pytest.raises(dibs.HeldError):
        twin.leases.claim("a")


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


@direct("a daemon serves one space")
def test_the_token_of_one_space_is_worth_nothing_in_another(opener: Opener, alice):
    other = dibs.open(
        opener.url, space=f"{opener.name}-2", clock=opener.clock, user_dir=opener.user_dir
    )
    with other, other.join("alice", ttl_s=LONG_S) as there:
        assert there.session == alice.session
        with pytest.raises(dibs.NotYoursError):
            other.resume(alice.token)


# What needs attention


def attention(agent, what):
    return [one for one in agent.agents.overview().attention if one.what == what]


def test_an_agent_that_died_is_told_of_with_what_it_held_before_anybody_clears_it(
    opener: Opener, alice, clock
):
    opener.killed_holder("a", task="t")
    clock.advance(600)  # where processes cannot be seen, the time of its session is over
    [died] = [one for one in attention(alice, "died") if one.agent == "victim"]
    assert set(died.by) == {"a", "t"}


def test_who_waits_is_shown_with_who_holds_it_or_else_who_waits_before(
    alice, bob, carol, background
):
    alice.leases.claim("a", mode="shared", ttl_s=LONG_S)
    first = background.queued(bob, "a")
    second = background.queued(carol, "a", mode="shared")
    blocked = {one.agent: one.blockers for one in attention(alice, "blocked")}
    assert [(one.agent, one.waiting) for one in blocked["bob"]] == [("alice", False)]
    assert [(one.agent, one.waiting) for one in blocked["carol"]] == [("bob", True)]
    alice.leases.release("a")
    assert result(first).leases[0].agent == "bob"
    bob.leases.release("a")
    assert result(second).leases[0].agent == "carol"


def test_everything_that_needs_somebody_is_there_the_most_urgent_first(alice, bob, clock):
    alice.work.add("broken", max_attempts=1)
    alice.work.claim("broken")
    alice.work.fail("broken", reason="no such host")
    alice.work.add("later", after=["broken"])
    bob.messages.send("which one?", to="alice")
    alice.leases.claim("a", ttl_s=600)
    clock.advance(400)
    alice.agents.beat()
    bob.agents.beat()
    found = alice.agents.overview()
    assert [(one.what, one.level) for one in found.attention] == [
        ("never", "stuck"),
        ("dead", "stuck"),
        ("asked", "ask"),
        ("lease_ends", "soon"),
    ]
    assert found.unread == 1
    assert [message.body for message in found.messages] == ["which one?"]
    assert found.counts == {"dead": 1, "blocked": 1}
    bob_sees = bob.agents.overview()
    assert (bob_sees.unread, "asked" in {one.what for one in bob_sees.attention}) == (0, False)
