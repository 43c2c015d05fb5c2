"""Events: the journal of the space."""

from __future__ import annotations

import threading

import pytest

import dibs
from dibs.storage.waiting import CANCEL, Cancel
from tests.contract.waiting import Background, result
from tests.contract.world import LONG_S, Opener, direct


def test_every_write_adds_its_event_in_order(alice, clock):
    begin = alice.events.last()
    lease = alice.leases.claim("a", note="why").leases[0]
    alice.work.add("t", title="title")
    message = alice.messages.send("hello")
    alice.state.set("n", "k", 1)
    events = alice.events.since(begin)
    assert [event.kind for event in events] == [
        "lease.claimed",
        "task.added",
        "message.sent",
        "entry.set",
    ]
    assert [event.seq for event in events] == list(range(begin + 1, begin + 5))
    assert {(event.agent, event.session, event.at) for event in events} == {
        ("alice", alice.session, clock.wall())
    }
    assert events[0].seq == lease.epoch
    assert (events[0].subject, events[0].data["note"]) == ("a", "why")
    assert events[2].seq == message.id
    assert (events[3].subject, events[3].data) == ("n/k", {"version": 1})
    assert alice.events.last() == events[-1].seq


def test_the_journal_can_be_read_without_a_session(space):
    assert space.events.last() == 0
    assert space.events.since() == ()


def test_events_are_filtered_by_kind_agent_and_subject(alice, bob):
    alice.leases.claim("a")
    bob.leases.claim("b")
    alice.leases.release("a")
    bob.work.add("a")

    def told(**filters):
        return [(event.kind, event.agent, event.subject) for event in alice.events.since(**filters)]

    assert told(kind="lease") == [
        ("lease.claimed", "alice", "a"),
        ("lease.claimed", "bob", "b"),
        ("lease.released", "alice", "a"),
    ]
    assert told(kind="lease.released") == [("lease.released", "alice", "a")]
    assert told(kind="leas") == told(kind="lease.") == []
    assert told(agent="bob", kind="task") == [("task.added", "bob", "a")]
    assert [kind for kind, _, _ in told(subject="a")] == [
        "lease.claimed",
        "lease.released",
        "task.added",
    ]
    assert told(agent="nobody") == []


@pytest.mark.parametrize(
    "call",
    [
        {"seq": -1},
        {"seq": "x"},
        {"seq": 2**70},
        {"limit": 0},
        {"limit": 1_001},
        {"kind": "a\0"},
        {"agent": "\ud800"},
        {"subject": 7},
    ],
    ids=str,
)
def test_a_wrong_question_is_refused(alice, call):
    with pytest.raises(dibs.InvalidError):
        alice.events.since(**call)
    with pytest.raises(dibs.InvalidError):
        alice.events.watch(**{"seq": 0, **call})


def test_nothing_missed_small_pages_with_many_writers(opener: Opener, alice, bob, carol):
    begin = alice.events.last()

    def write(agent: dibs.Agent) -> None:
        for number in range(15):
            agent.leases.claim(f"{agent.name}:{number}", f"{agent.name}:x{number}")

    threads = [threading.Thread(target=write, args=(agent,)) for agent in (alice, bob, carol)]
    for thread in threads:
        thread.start()
    seen: list[dibs.Event] = []
    cursor = begin
    while len(seen) < 90:
        page = carol.events.since(cursor, limit=7)
        seen += page
        cursor = page[-1].seq if page else cursor
    for thread in threads:
        thread.join()
    assert [event.seq for event in seen] == list(range(begin + 1, begin + 91))
    assert alice.events.since(cursor) == ()


# Watch


def test_watch_gives_what_is_there_at_once(alice):
    alice.leases.claim("a")
    assert alice.events.watch(0) == alice.events.since(0)


def test_watch_wakes_for_what_it_waits_for(alice, bob, background: Background):
    waiter = background(bob.events.watch, bob.events.last(), kind="entry", wait_s=3_600)
    alice.leases.claim("a")
    alice.state.set("n", "k", 1)
    assert [event.kind for event in result(waiter)] == ["entry.set"]


def test_watch_gives_nothing_when_nothing_happened(alice):
    assert alice.events.watch(alice.events.last(), wait_s=5) == ()
    with pytest.raises(dibs.InvalidError):
        alice.events.watch(0, wait_s=-1)


def test_a_watch_can_be_cancelled(alice, background):
    cancel = Cancel()
    token = CANCEL.set(cancel)
    waiter = background(alice.events.watch, alice.events.last(), wait_s=3_600)
    CANCEL.reset(token)
    cancel()
    with pytest.raises(dibs.CancelledError):
        result(waiter)
    cancel.close()


# Pruning


@direct("every call through a daemon carries a key, whose answer is pruned too")
def test_pruning_removes_what_is_over_and_keeps_the_counter(alice, bob, clock):
    alice.leases.claim("a")
    alice.leases.release("a")
    alice.work.claim("t")
    alice.work.complete("t")
    message = alice.messages.send("read", to="bob")
    bob.messages.inbox()
    bob.messages.ack(message.id)
    alice.state.set("n", "k", 1)
    alice.state.set("n", "k", 2, expected_version=1)
    alice.work.add("u", idempotency_key="once")
    before = alice.events.last()
    clock.advance(100)
    kept = alice.leases.claim("recent").epoch
    pruned = alice.events.prune(keep_s=50)
    assert (pruned.events, pruned.pruned_seq) == (before, before)
    assert (pruned.messages, pruned.tasks, pruned.versions, pruned.answers) == (1, 1, 1, 1)
    assert pruned.sessions == 0
    told = [(event.seq, event.kind) for event in alice.events.since()]
    assert told == [(kept, "lease.claimed"), (kept + 1, "space.pruned")]
    assert alice.messages.history() == ()
    assert alice.messages.search("read") == ()
    assert [entry.version for entry in alice.state.history("n", "k")] == [2]
    assert [task.id for task in alice.work.list()] == ["u"]
    assert alice.leases.claim("later").epoch == kept + 2


def test_pruning_removes_sessions_that_ended_long_ago(alice, bob, clock):
    bob.close()
    clock.advance(1)
    assert alice.events.prune(keep_s=0).sessions == 1
    assert alice.leases.claim("a").leases[0].agent == "alice"


@direct("every call through a daemon carries a key, whose answer is pruned too")
def test_pruning_keeps_what_is_held_unread_or_waited_for(
    opener: Opener, alice, bob, carol, clock, background
):
    lease = alice.leases.claim("a", ttl_s=LONG_S).leases[0]
    task = alice.work.claim("t", ttl_s=LONG_S)
    alice.work.add("done first")
    alice.work.add("open", after=["done first", "never"])
    alice.work.claim("done first")
    alice.work.complete("done first")
    alice.work.claim("failed")
    alice.work.fail("failed", retry=False)
    direct = alice.messages.send("direct", to="bob")
    queued = alice.messages.send("queued", to="dora")
    broadcast = alice.messages.send("broadcast")
    carol.messages.inbox()
    alice.state.set("n", "k", 1)
    alice.state.set("n", "gone", 1)
    alice.state.delete("n", "gone")
    waiter = background.queued(carol, "a")
    clock.advance(10)  # less than a ticket on PostgreSQL lives without a sign of its waiter
    pruned = alice.events.prune(keep_s=0)
    assert (pruned.messages, pruned.tasks, pruned.sessions) == (0, 0, 0)
    assert alice.leases.list()[0].epoch == lease.epoch
    assert alice.work.renew("t", epoch=task.epoch).state == "claimed"
    assert {found.id for found in alice.work.list()} == {"t", "done first", "open", "failed"}
    assert bob.messages.inbox() == (direct, broadcast)
    assert opener.join(alice, "dora").messages.inbox() == (queued,)
    assert alice.state.get("n", "k").version == 1
    assert alice.state.set("n", "gone", 1).version == 3
    alice.leases.release("a", epoch=lease.epoch)
    assert result(waiter).leases[0].agent == "carol"


def test_a_channel_is_kept_for_those_who_read_it(alice, bob, carol, clock):
    bob.messages.inbox(channel="build")
    first = alice.messages.send("1", channel="build")
    bob.messages.inbox(channel="build")
    second = alice.messages.send("2", channel="build")
    clock.advance(1)
    alice.events.prune(keep_s=0)
    assert alice.messages.history() == (second,)
    assert bob.messages.inbox(channel="build") == (second,)
    clock.advance(1)
    alice.events.prune(keep_s=0)
    assert alice.messages.history() == ()
    assert first.id < second.id


def test_a_reader_that_stayed_away_too_long_is_told_so(alice, clock):
    alice.leases.claim("a")
    cursor = alice.events.last()
    alice.leases.release("a")
    clock.advance(1)
    oldest = alice.events.prune(keep_s=0).pruned_seq
    assert oldest > cursor
    for ask in (alice.events.since, alice.events.watch):
        with pytest.raises(dibs.PrunedError) as refusal:
            ask(cursor)
        assert refusal.value.details["pruned_seq"] == oldest
    assert [event.kind for event in alice.events.since(oldest)] == ["space.pruned"]
    # A reader that began with nothing has missed those events too; who asks for all that is
    # kept has not.
    with pytest.raises(dibs.PrunedError):
        alice.events.since(0)
    assert alice.events.since() == alice.events.since(oldest)


def test_pruning_twice_is_harmless_and_never_goes_back(alice, clock):
    alice.leases.claim("a")
    clock.advance(100)
    first = alice.events.prune(keep_s=50).pruned_seq
    assert alice.events.prune(keep_s=10_000).events == 0
    with pytest.raises(dibs.PrunedError):
        alice.events.since(first - 1)
    assert alice.events.since(first)


@pytest.mark.parametrize("keep_s", [-1, 10**12, "x"])
def test_a_wrong_pruning_is_refused(alice, keep_s):
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        alice.events.prune(keep_s=keep_s)
    assert alice.events.last() == before


def test_pruning_frees_what_the_dead_hold(opener: Opener, alice, clock):
    opener.killed_holder("a")
    clock.advance(30)
    alice.events.prune()
    assert alice.events.since(kind="lease.freed")[0].agent == "victim"
