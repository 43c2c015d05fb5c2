"""Events: the journal of the space."""

from __future__ import annotations

import ast
import random
import re
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dibs
from dibs.names.paths import is_glob, is_name, named, resources_overlap
from dibs.nouns.events import places, pruning
from dibs.nouns.events.choosing import around
from dibs.nouns.events.kinds import TOPICS, kinds
from dibs.records import iso
from dibs.storage.retention import Retention
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
        {"seq": 1.5},
        {"kind": "leas"},
        {"kind": "lease."},
        {"kind": "Lease"},
        {"task": ""},
        {"path": "../x"},
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


# Moments


def walls(agent: dibs.Agent) -> list[tuple[int, int]]:
    """The seq and the time of every event."""
    return [(event.seq, event.at) for event in agent.events.since()]


def test_events_are_given_since_and_until_a_time(alice, clock):
    seen = []
    for number in range(6):
        clock.advance(60)
        seen.append((alice.state.set("n", f"k{number}", 1), clock.wall()))
    third, fifth = iso(seen[2][1]), iso(seen[4][1])

    def keys(**asked):
        found = alice.events.latest(kind="entry", **asked)
        assert found == alice.events.since(
            asked.pop("since", None), kind="entry", **asked
        )  # in which all fit, the first are the last
        return [event.subject for event in found]

    assert keys(since=third, until=fifth) == ["n/k2", "n/k3", "n/k4"]
    assert keys(since=third) == ["n/k2", "n/k3", "n/k4", "n/k5"]
    assert keys(until=third) == ["n/k0", "n/k1", "n/k2"]
    assert keys(since=iso(seen[2][1] + 1), until=iso(seen[4][1] - 1)) == ["n/k3"]
    moment = datetime.fromtimestamp(seen[4][1] / 1000, UTC)
    assert keys(since=moment) == ["n/k4", "n/k5"]
    assert keys(since="1970-01-02") == []
    assert keys(until="1970-01-01T00:00Z") == []
    assert keys(since=fifth, until=third) == []
    # A seq is the last one that was seen, and the last one that is wanted.
    seqs = [event.seq for event in alice.events.since(kind="entry")]
    assert keys(since=seqs[1], until=seqs[3]) == ["n/k2", "n/k3"]
    assert keys(since=str(seqs[1]), until=fifth) == ["n/k2", "n/k3", "n/k4"]


def test_a_time_is_told_in_iso_beside_the_milliseconds(alice, clock):
    clock.wall_offset = 1_794_000_000_123
    alice.state.set("n", "k", 1)
    [event] = alice.events.latest(limit=1)
    assert event.at == clock.wall()
    assert datetime.fromisoformat(event.time).timestamp() * 1000 == event.at
    assert event.time.endswith("Z")


def test_a_wrong_clock_hides_nothing_that_lies_between(alice, clock):
    def tell(key, offset_s):
        clock.wall_offset = offset_s * 1000
        clock.advance(1)
        alice.state.set("n", key, 1)
        return iso(clock.wall())

    day = 86_400
    first = tell("first", 10 * day)
    tell("behind", 0)  # a machine that thinks it is 1970
    tell("ahead", 10_000 * day)
    last = tell("last", 10 * day)
    tell("after", 11 * day)

    def keys(since, until):
        found = alice.events.latest(kind="entry", since=since, until=until)
        return [event.subject.removeprefix("n/") for event in found]

    assert keys(first, last) == ["first", "behind", "ahead", "last"]
    # The clock was set back: what was written with this time before that is not left out.
    tell("again", 10 * day)
    assert keys(first, last) == ["first", "behind", "ahead", "last", "after", "again"][:4]
    assert keys(iso(clock.wall()), None) == ["ahead", "last", "after", "again"]


@direct("the daemon's module cannot be set from here")
@pytest.mark.parametrize("seed", range(3))
def test_the_place_of_a_time_is_found_by_samples(alice, clock, monkeypatch, seed):
    """In a long journal as in a short one: what is sampled here would be millions of events."""
    monkeypatch.setattr(places, "READ", 4)
    monkeypatch.setattr(places, "SAMPLES", 5)
    chance = random.Random(seed)
    for number in range(120):
        clock.advance(chance.choice((0, 0, 0.001, 1, 60)))
        alice.state.set("n", f"k{number}", 1)
    told = walls(alice)
    times = sorted({at for _, at in told})
    for at in (*times, *(at + 1 for at in times), times[0] - 1):
        since = [seq for seq, when in told if when >= at]
        until = [seq for seq, when in told if when <= at]
        assert [one.seq for one in alice.events.latest(since=iso(at))] == since
        assert [one.seq for one in alice.events.latest(until=iso(at))] == until
    alice.events.prune(keep_s=0)
    first = alice.events.since()[0].seq
    assert alice.events.latest(since=iso(times[0]))[0].seq == first


@direct("the daemon's module cannot be set from here")
def test_a_sample_of_a_wrong_clock_hides_no_later_event(alice, clock, monkeypatch):
    monkeypatch.setattr(places, "READ", 4)
    monkeypatch.setattr(places, "SAMPLES", 5)
    for number in range(100):
        clock.advance(60)
        clock.wall_offset = -clock.now() if number % 9 == 0 else 0
        alice.state.set("n", f"k{number}", 1)
    told = walls(alice)
    for seq, at in told:
        if at:
            found = [one.seq for one in alice.events.latest(since=iso(at))]
            assert found[0] <= seq
            assert found[-1] == told[-1][0]


# Tasks and paths


def test_events_of_a_task_are_its_own_and_those_of_what_was_held_for_it(alice, bob):
    alice.leases.claim("other.py", note='"task":"t"')
    alice.work.add("t", title="a title")
    alice.work.claim("t", leases=["src/a.py"])
    bob.state.set("n", "t", 1)
    bob.leases.claim("t")
    alice.leases.renew("src/a.py")
    alice.work.complete("t", result={"done": True})
    found = [(event.kind, event.subject) for event in bob.events.latest(task="t")]
    assert found == [
        ("task.added", "t"),
        ("task.claimed", "t"),
        ("lease.claimed", "src/a.py"),
        ("lease.renewed", "src/a.py"),
        ("task.completed", "t"),
        ("lease.released", "src/a.py"),
    ]
    assert [(one.kind, one.subject) for one in bob.events.since(task="t", limit=3)] == found[:3]
    assert [(one.kind, one.subject) for one in bob.events.latest(task="t", limit=2)] == found[-2:]
    assert len(bob.events.since(task="t", kind="lease")) == 3
    assert bob.events.since(task="unknown") == ()


def test_events_of_a_path_are_those_of_leases_that_overlap(alice, checkout):
    (checkout / "src").mkdir()
    (checkout / "src" / "a.py").write_text("")
    (checkout / "docs").mkdir()
    (checkout / "docs" / "b.md").write_text("")
    for name in ("src/a.py", "docs/b.md", "src", "src/*.py", "**/*.md", "port:1", "src/a.py/x"):
        alice.leases.claim(name)
        alice.leases.release(name)
    alice.work.add("src/a.py")
    alice.messages.send("hello", channel="src")

    def told(path):
        found = alice.events.latest(path=path)
        assert {event.kind for event in found} <= {"lease.claimed", "lease.released"}
        assert len(found) == 2 * len({event.subject for event in found})
        return {event.subject for event in found}

    assert told("src/a.py") == {"src/a.py", "src", "src/*.py", "src/a.py/x"}
    assert told("./src/../src/a.py") == told("src/a.py")
    assert told("docs") == {"docs/b.md", "**/*.md"}
    assert told("docs/*.txt") == {"**/*.md"}  # such as docs/x.txt/y.md
    assert told("*.md") == {"**/*.md"}
    assert told("src/*.md") == {"src", "**/*.md"}
    assert told("port:1") == {"port:1"}
    assert told("port:2") == set()
    assert told(".") == {"src/a.py", "docs/b.md", "src", "src/*.py", "**/*.md", "src/a.py/x"}


PARTS = ["src", "lib", "a.py", "b.md", "*", "**", "*.py", "?", "a*", "src0", "od:d", "path:x"]


@given(path=st.lists(st.sampled_from(PARTS), max_size=3), other=st.lists(st.sampled_from(PARTS)))
def test_the_database_is_asked_for_all_that_can_overlap(path, other):
    """What it leaves out is not looked at again."""

    def resource(parts):
        text = "/".join(parts[:3]) or "."
        if is_name(text):  # as a store spells such a path or pattern
            text = f"./{text}" if is_glob(text) else f"path:{text}"
        return named(text, "dir")

    one, two = resource(path), resource(other)
    asked = around(one)
    met = (
        two.text in asked["above"]
        or asked["low"] < two.text < asked["high"]
        or asked["forced_low"] < two.text < asked["forced_high"]
        or "*" in two.text
        or "?" in two.text
    )
    assert met or not resources_overlap(one, two)


def test_watch_waits_for_a_task_and_a_path(alice, bob, background: Background):
    before = bob.events.last()
    task = background(bob.events.watch, before, task="t", wait_s=3_600)
    path = background(bob.events.watch, before, path="src", wait_s=3_600)
    alice.leases.claim("docs/a.md")
    alice.work.add("other")
    alice.work.add("t")
    alice.leases.claim("src/a.py")
    assert [event.subject for event in result(task)] == ["t"]
    assert [event.subject for event in result(path)] == ["src/a.py"]


# Kinds


def test_an_unknown_kind_is_refused_with_the_kinds_that_there_are(alice):
    for ask in (
        alice.events.since,
        alice.events.latest,
        lambda **how: alice.events.watch(0, **how),
    ):
        with pytest.raises(dibs.InvalidError) as refused:
            ask(kind="lease.claim")
        assert "did you mean lease.claimed?" in str(refused.value.next)
        assert refused.value.details["kinds"] == kinds()
        assert all(kind in str(refused.value.next) for kind in kinds())
    for kind in (*kinds(), *TOPICS):
        alice.events.latest(kind=kind, limit=1)


def test_every_kind_that_is_written_is_known():
    """Those that stand in the source beside `event(`, and those that a journal may have."""
    topics = "|".join(TOPICS)
    written = set()
    for path in (Path(dibs.__file__).parent).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            if isinstance(node.func, ast.Attribute) and node.func.attr == "event":
                written |= {
                    one.value
                    for one in ast.walk(node.args[0])
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
    spelled = {kind for kind in written if re.fullmatch(rf"({topics})\.\w+", kind)}
    assert len(spelled) > 20
    assert spelled <= set(kinds())


# What events say


def test_events_say_what_was_noted_waited_for_and_done(alice, bob, clock, background: Background):
    alice.leases.claim("src/a.py", note="first")
    waiter = background.queued(bob, "src/a.py", note="second")
    clock.wall_offset += 90_000  # time to be told; nobody's place lapses
    alice.leases.release("src/a.py")
    result(waiter)
    clock.held = False
    [queued] = alice.events.since(kind="lease.queued")
    assert (queued.agent, queued.data["note"]) == ("bob", "second")
    [behind] = queued.data["behind"]
    assert behind[0] == "alice"
    claimed = alice.events.latest(kind="lease.claimed", limit=1)[0]
    assert (claimed.agent, claimed.data["note"]) == ("bob", "second")
    assert claimed.data["waited_ms"] == 90_000
    bob.leases.transfer("src/a.py", to="alice", note="yours")
    [given] = alice.events.since(kind="lease.transferred")
    assert (given.data["to"], given.data["note"]) == ("alice", "yours")


def test_a_result_is_told_as_far_as_the_journal_keeps_it(alice):
    alice.work.claim("short")
    alice.work.complete("short", result={"pr": 17})
    alice.work.claim("long")
    alice.work.complete("long", result={"log": "x" * 10_000})
    alice.work.claim("none")
    alice.work.complete("none")
    alice.work.claim("fails")
    alice.work.fail("fails", reason="no disk")
    short, long, none = alice.events.since(kind="task.completed")
    assert short.data["result"] == {"pr": 17}
    assert len(long.data["result"]) == 501
    assert long.data["result"].startswith('{"log":"xxx')
    assert long.data["result_length"] == len('{"log":""}') + 10_000
    assert "result" not in none.data
    assert alice.events.since(kind="task.failed")[0].data["reason"] == "no disk"


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
    assert alice.events.latest(until=events[-3].seq, limit=2) == events[-4:-2]
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
    space.scope.store.keeps = lambda: Retention(3_600.0, 1 << 40)
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
    # So few rows are looked at in a slice that it takes many; events have time on any machine.
    for name in ("FLUSH", "LEAST_ROWS", "ROWS_AT_ONCE"):
        monkeypatch.setattr(f"dibs.nouns.events.pruning.{name}", 5)
    monkeypatch.setattr("dibs.nouns.events.pruning.SLICE_S", 0.0)
    monkeypatch.setattr("dibs.nouns.events.pruning.MOST_S", 10.0)
    space.scope.store.keeps = lambda: Retention(3_600.0, 1 << 40)
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
def test_processes_that_prune_once_each_search_the_whole_store(opener, alice, clock, monkeypatch):
    for name in ("FLUSH", "LEAST_ROWS", "ROWS_AT_ONCE"):
        monkeypatch.setattr(f"dibs.nouns.events.pruning.{name}", 5)
    monkeypatch.setattr("dibs.nouns.events.pruning.SLICE_S", 0.0)
    unread = [alice.messages.send("unread", to="bob") for _ in range(20)]
    alice.work.claim("t")
    alice.work.complete("t")
    clock.advance(4_000)
    for _ in range(20):
        other = opener.open().scope
        other.store.keeps = lambda: Retention(3_600.0, 1 << 40)
        pruning.tidy(other)
    assert alice.work.list() == ()
    assert list(alice.messages.history()) == unread[::-1]
    assert alice.agents.verify() == ()


@direct("it is about whoever writes without a daemon")
def test_nothing_is_pruned_that_is_neither_too_old_nor_too_much(space, alice, clock):
    space.scope.store.keeps = lambda: Retention(3_600.0, 1 << 40)
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
    space.scope.store.keeps = lambda: Retention(10 * 365 * 86_400.0, 1)
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
