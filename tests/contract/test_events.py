"""Events: the journal of the space."""

from __future__ import annotations

import threading

import pytest

import dibs
from dibs.nouns.events import pruning
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
        assert refusal.value.details["first_seq"] == alice.events.since()[0].seq == oldest + 1
        assert refusal.value.details["pruned_at"] == clock.wall()
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


def test_the_latest_are_the_last_ones_in_order(alice, bob):
    for number in range(5):
        alice.leases.claim(f"a{number}")
    bob.work.add("t")
    events = alice.events.since()
    assert alice.events.latest() == events
    assert alice.events.latest(limit=2) == events[-2:]
    assert alice.events.latest(before=events[-2].seq, limit=2) == events[-4:-2]
    claims = [event for event in events if event.kind == "lease.claimed"]
    assert list(alice.events.latest(kind="lease", limit=3)) == claims[-3:]
    assert alice.events.latest(agent="nobody") == ()


@direct("a daemon has more time")
def test_a_pruning_that_has_no_time_is_sound_and_goes_on_when_asked_again(alice, bob, clock):
    for number in range(30):
        alice.work.claim(f"t{number}")
        alice.work.complete(f"t{number}")
        alice.messages.send(f"hello {number}", to="bob")
        alice.state.set("n", "k", number, force=True)
    while bob.messages.inbox():
        pass
    clock.advance(100)
    removed, rounds = 0, 0
    while True:
        pruned = pruning.prune(alice.scope, 10_000, 0)
        removed += pruned.events
        rounds += 1
        cut = pruned.pruned_seq
        assert all(event.seq > cut for event in alice.events.since())
        assert alice.agents.verify() == ()
        if pruned.done:
            break
        assert rounds < 1000
    said = [event.data for event in alice.events.since(kind="space.pruned")]
    assert sum(line["events"] for line in said) == removed
    assert said[-1]["upto"] == cut and {line["why"] for line in said} == {"gc"}
    assert alice.work.list() == () and alice.messages.history() == ()


@direct("the clock of a daemon's machine is set once")
def test_a_clock_that_was_wrong_for_a_while_takes_nothing_recent_with_it(alice, clock):
    alice.leases.claim("old")
    clock.advance(1_000)
    recent = alice.leases.claim("recent").epoch
    clock.wall_offset -= 50 * 365 * 86_400_000
    alice.leases.claim("long ago, by a clock that was wrong")
    clock.wall_offset += 100 * 365 * 86_400_000
    ahead = alice.leases.claim("long ahead, by a clock that was wrong").epoch
    clock.wall_offset -= 50 * 365 * 86_400_000
    pruned = alice.events.prune(keep_s=500)
    assert pruned.pruned_seq < recent
    clock.advance(1_000)
    last = alice.leases.claim("last").epoch
    assert ahead <= alice.events.prune(keep_s=500).pruned_seq < last


# A space prunes itself.


def busy(agent, number):
    for turn in range(number):
        agent.state.set("n", "k", turn, force=True)


@direct("it is about whoever writes without a daemon")
def test_whoever_writes_prunes_what_is_too_old(opener, space, alice, clock):
    space.scope.store.keeps = lambda: (3_600.0, 1 << 40)
    alice.work.claim("t")
    alice.work.complete("t")
    unread = alice.messages.send("unread", to="bob")
    alice.work.add("u", idempotency_key="chosen")
    held = alice.leases.claim("a", ttl_s=LONG_S).epoch
    cursor = alice.events.last()
    clock.advance(4_000)
    busy(alice, 1_100)
    with pytest.raises(dibs.PrunedError) as refusal:
        alice.events.since(cursor - 1)
    assert refusal.value.details["pruned_seq"] == cursor
    cuts = alice.events.since(kind="space.pruned")
    assert {(cut.agent, cut.data["why"]) for cut in cuts} == {(None, "age")}
    assert cuts[-1].data["upto"] == cursor
    assert sum(cut.data["events"] for cut in cuts) >= cursor - 3
    assert {task.id for task in alice.work.list()} == {"u"}
    assert alice.messages.history() == (unread,)
    assert alice.leases.list()[0].epoch == held
    assert alice.events.last() == alice.events.latest(limit=1)[0].seq


@direct("it is about whoever writes without a daemon")
def test_what_becomes_old_while_a_space_is_pruned_goes_with_it(space, alice, clock, monkeypatch):
    # So few rows are looked at in a slice that it takes many.
    for name in ("FLUSH", "LEAST_ROWS", "ROWS_AT_ONCE"):
        monkeypatch.setattr(f"dibs.nouns.events.pruning.{name}", 5)
    monkeypatch.setattr("dibs.nouns.events.pruning.SLICE_S", 0.0)
    space.scope.store.keeps = lambda: (3_600.0, 1 << 40)
    busy(alice, 600)
    clock.advance(4_000)
    busy(alice, 300)
    cursor = alice.events.last()
    clock.advance(4_000)
    busy(alice, 600)
    assert space.scope.store.pruning is not None, "there should be more to do"
    with pytest.raises(dibs.PrunedError) as refusal:
        alice.events.since(cursor - 1)
    assert refusal.value.details["pruned_seq"] >= cursor


@direct("it is about whoever writes without a daemon")
def test_nothing_is_pruned_that_is_neither_too_old_nor_too_much(space, alice, clock):
    space.scope.store.keeps = lambda: (3_600.0, 1 << 40)
    clock.advance(3_000)
    busy(alice, 600)
    assert alice.events.since(0, limit=1)
    assert alice.events.since(kind="space.pruned") == ()


@direct("the clock of a daemon's machine is set once")
def test_a_clock_set_forward_prunes_nothing(space, alice, clock):
    clock.wall_offset += 400 * 86_400_000
    busy(alice, 600)
    assert alice.events.since(0, limit=1)


@direct("it is about whoever writes without a daemon")
def test_a_store_that_is_too_large_gives_up_its_oldest_past(space, alice, clock, monkeypatch):
    monkeypatch.setattr("dibs.nouns.events.pruning.SPARED_EVENTS", 300)
    space.scope.store.keeps = lambda: (10 * 365 * 86_400.0, 1)
    for _ in range(8):
        busy(alice, 300)
        clock.advance(600)
    busy(alice, 600)
    kept = len([*pages(alice)])
    assert 300 <= kept < 3_000
    assert {event.data["why"] for event in alice.events.since(kind="space.pruned")} == {"size"}
    assert len(alice.state.history("n", "k", limit=1000)) < 2_000
    assert alice.state.get("n", "k").version == 3_000


def pages(agent):
    after = None
    while found := agent.events.since(after):
        yield from found
        after = found[-1].seq
