"""Any earlier moment of a space, and what changed between two."""

from __future__ import annotations

import pytest

import dibs
from dibs.records import iso
from tests.contract.world import direct


def test_a_moment_is_what_the_lists_gave_then(alice, bob):
    alice.leases.claim("src/a.py", note="fix the parser")
    bob.work.add("design", payload={"a": [1]})
    bob.work.add("build", after=["design"], parent="design")
    alice.work.claim("design")
    alice.state.set("plan", "size", 3)
    alice.state.set("notes", "long", "x" * 5_000)
    bob.messages.send("hello", to="alice")
    then = alice.events.last()
    agents, leases, tasks = alice.agents.list(), alice.leases.list(), alice.work.list()
    entries = (*alice.state.list("notes"), *alice.state.list("plan"))
    alice.messages.inbox()
    alice.leases.release("src/a.py")
    alice.work.complete("design", result="done")
    alice.state.set("plan", "size", 4, force=True)
    alice.state.set("notes", "long", "y", force=True)
    moment = bob.events.replay(at=then)
    assert moment.seq == then
    assert (timeless(moment.leases), timeless(moment.tasks)) == (timeless(leases), timeless(tasks))
    assert moment.entries == entries
    assert [(who.agent, who.leases, who.tasks, who.unread) for who in moment.agents] == [
        (who.agent, who.leases, who.tasks, who.unread) for who in agents
    ]
    assert [who.unread for who in moment.agents] == [1, 0]
    assert moment.counts == {"claimed": 1, "blocked": 1}
    assert moment.cut == ()


def test_a_seq_in_the_middle_of_a_write_means_the_state_after_it(alice):
    before = alice.events.last()
    alice.leases.claim("a", "b", "c")
    last = alice.events.last()
    assert last - before == 3
    for seq in range(before + 1, last + 1):
        moment = alice.events.replay(at=seq)
        assert (moment.seq, names(moment.leases)) == (last, ["a", "b", "c"])
    assert alice.events.replay(at=before).leases == ()


def test_a_moment_before_anything_was_written_is_empty(alice):
    moment = alice.events.replay(at=0)
    assert (moment.seq, moment.agents, moment.leases, moment.tasks) == (0, (), (), ())


def test_there_is_no_moment_after_the_last(alice):
    with pytest.raises(dibs.NotFoundError, match="the journal ends at"):
        alice.events.replay(at=alice.events.last() + 1)
    with pytest.raises(dibs.NotFoundError):
        alice.events.diff(1, alice.events.last() + 1)


def test_a_time_means_what_stood_then_also_without_a_write(alice, clock):
    alice.leases.claim("short", ttl_s=10)
    alice.leases.claim("long", ttl_s=600)
    alice.state.set("plan", "k", 1, ttl_s=30)
    granted = clock.wall()
    clock.advance(100)
    alice.leases.release("long")
    clock.advance(100)
    for after_s, expected, entries in (
        (-1, [], 0),
        (0, ["long", "short"], 1),
        (9, ["long", "short"], 1),
        (10, ["long"], 1),
        (99, ["long"], 0),
        (100, [], 0),
        (100_000, [], 0),
    ):
        moment = alice.events.replay(at=iso(granted + after_s * 1000))
        assert names(moment.leases) == expected, after_s
        assert len(moment.entries) == entries, after_s
        assert moment.at == min(granted + after_s * 1000, clock.wall())
    left = [lease.expires_in_ms for lease in alice.events.replay(at=iso(granted + 4_000)).leases]
    assert left == [596_000, 6_000]


@direct("a test cannot set the clock of a daemon")
def test_a_clock_that_was_set_ends_nothing_early(alice, clock):
    alice.leases.claim("a", ttl_s=60)
    clock.wall_offset += 3_600_000
    granted = clock.wall()
    alice.leases.claim("b", ttl_s=60)
    # By the wall clock, an hour lies between the two; by the store's, nothing.
    moment = alice.events.replay(at=iso(granted - 1_000))
    assert names(moment.leases) == ["a"]


def test_who_waits_is_part_of_a_moment(alice, bob, background):
    alice.leases.claim("a")
    future = background.queued(bob, "a", note="next")
    then, waiting = alice.events.last(), alice.leases.waiting()
    alice.leases.release("a")
    future.result(60)
    moment = alice.events.replay(at=then)
    assert moment.waiting == waiting
    assert [one.agent for one in waiting] == ["bob"]
    assert alice.events.replay(at=alice.events.last()).waiting == ()


def test_lists_that_were_cut_say_so(alice):
    for number in range(5):
        alice.leases.claim(f"f{number}")
        alice.work.add(f"t{number}")
        alice.state.set("n", f"k{number}", number)
    alice.work.claim("t4")
    alice.work.claim("t0")
    alice.work.complete("t0")
    last = alice.events.last()
    moment = alice.events.replay(at=last, limit=2)
    assert set(moment.cut) == {"leases", "tasks", "entries"}
    assert [len(part) for part in (moment.leases, moment.tasks, moment.entries)] == [2, 2, 2]
    assert moment.counts == {"available": 3, "claimed": 1, "completed": 1}
    # What had ended is left out first.
    assert [task.id for task in moment.tasks] == ["t1", "t4"]
    assert [task.id for task in alice.events.replay(at=last, limit=5).tasks] == [
        f"t{number}" for number in range(5)
    ]
    assert alice.events.replay(at=last, limit=5).cut == ()


def test_a_moment_that_was_cut_has_tasks_of_each_state_and_can_be_searched(alice):
    alice.work.add("done")
    alice.work.claim("done")
    alice.work.complete("done")
    for number in range(12):
        alice.work.add(f"t{number}", title=f"Title {number}")
    alice.work.add("after", after=["t11"])
    last = alice.events.last()
    alice.work.add("title-13")
    moment = alice.events.replay(at=last, limit=7)
    assert moment.cut == ("tasks",)
    assert [task.id for task in moment.tasks] == ["done", "t0", "t1", "t2", "t3", "t4", "after"]
    found = alice.events.replay(at=last, text="title 1", limit=7)
    assert [task.id for task in found.tasks] == ["t1", "t10", "t11"]
    assert (found.cut, found.counts) == ((), moment.counts)


def test_a_moment_that_was_pruned_is_refused_and_later_ones_are_right(alice, bob, clock):
    alice.leases.claim("kept", ttl_s=86_400)
    alice.work.add("open")
    alice.state.set("plan", "k", "before")
    early = alice.events.last()
    alice.events.replay(at=early)  # so that it was known once
    clock.advance(10)
    alice.events.prune(keep_s=0)
    bob.leases.claim("new")
    then, leases, tasks = bob.events.last(), bob.leases.list(), bob.work.list()
    bob.leases.release("new")
    for at in (early, 1):
        with pytest.raises(dibs.PrunedError) as refusal:
            bob.events.replay(at=at)
        assert refusal.value.details["pruned_seq"] >= early
    moment = bob.events.replay(at=then)
    assert timeless(moment.leases) == timeless(leases)
    assert (moment.tasks, moment.entries[0].value) == (tasks, "before")


def test_a_time_before_what_is_kept_is_refused(alice, clock):
    alice.leases.claim("a")
    early = clock.wall()
    clock.advance(100)
    alice.events.prune(keep_s=0)
    alice.leases.release("a")
    with pytest.raises(dibs.PrunedError):
        alice.events.replay(at=iso(early))


def test_a_difference_says_what_changed_and_who_did_it(alice, bob):
    alice.leases.claim("src/a.py", note="mine")
    bob.work.add("t", title="one")
    bob.state.set("n", "k", 1)
    a = alice.events.last()
    alice.leases.release("src/a.py")
    bob.leases.claim("src/a.py")
    alice.work.claim("t")
    bob.state.set("n", "k", 2, force=True)
    alice.state.set("n", "new", [])
    b = alice.events.last()
    found = bob.events.diff(a, b)
    assert (found.a, found.b, found.cut) == (a, b, False)
    assert found.counts == {"added": 2, "removed": 1, "changed": 2}
    told = {(one.noun, one.subject, one.what): one for one in found.changes}
    gone = told["lease", "src/a.py", "removed"]
    assert (gone.before["agent"], gone.after, gone.kind) == ("alice", None, "lease.released")
    come = told["lease", "src/a.py", "added"]
    assert (come.after["agent"], come.agent, come.kind) == ("bob", "bob", "lease.claimed")
    task = told["task", "t", "changed"]
    assert (task.before["state"], task.after["state"], task.agent) == (
        "available",
        "claimed",
        "alice",
    )
    assert "title" not in task.after
    entry = told["entry", "n/k", "changed"]
    assert (entry.before, entry.after) == ({"value": 1, "version": 1}, {"value": 2, "version": 2})
    assert told["entry", "n/new", "added"].agent == "alice"
    # Whichever is the earlier; and nothing lies between a moment and itself.
    assert bob.events.diff(b, a) == found
    assert bob.events.diff(b, b).changes == ()
    assert len(bob.events.diff(a, b, limit=2).changes) == 2
    assert bob.events.diff(a, b, limit=2).cut


def test_what_ended_by_itself_was_done_by_nobody(alice, clock):
    alice.leases.claim("a", ttl_s=10)
    a = alice.events.last()
    clock.advance(20)
    alice.state.set("n", "k", 1)
    found = alice.events.diff(a, alice.events.last())
    [gone] = [one for one in found.changes if one.noun == "lease"]
    assert (gone.what, gone.kind, gone.agent) == ("removed", None, None)


def test_a_replay_is_the_same_whatever_was_asked_before(alice, bob):
    """Moments that are kept share rows: none may be changed by going on from it."""
    seqs, listed = [], []
    for number in range(12):
        alice.work.add(f"t{number}")
        bob.work.claim(f"t{number // 2}")
        alice.state.set("n", "k", number, force=True)
        seqs.append(alice.events.last())
        listed.append(timeless(alice.work.list()))
    for place in (11, 3, 7, 0, 11, 5, 5, 1, 9):
        assert timeless(bob.events.replay(at=seqs[place]).tasks) == listed[place]


def names(leases):
    return [lease.resource for lease in leases]


def timeless(records):
    """Records without what is left: the clock of a daemon goes on."""
    left = ("expires_in_ms", "due_in_ms")
    return [
        {name: value for name, value in one.to_json().items() if name not in left}
        for one in records
    ]
