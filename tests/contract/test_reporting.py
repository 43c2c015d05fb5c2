"""`events.report` and `events.contention`: what counts, and for which part of the time.

Random histories are compared with a model in `tests/model/test_ledger_model.py`. Here are the rules
one by one, on both databases and through a daemon.
"""

from __future__ import annotations

import pytest

import dibs
from dibs.nouns.events import accounts, contention, periods
from dibs.records import iso
from tests.contract.world import LONG_S, direct

ONE = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
"""The SHA-256 of `one`."""
HOUR_MS = 3_600_000


def by_key(report: dibs.Report) -> dict[str | None, dibs.Tally]:
    return {one.key: one for one in report.groups}


def told(tally: dibs.Tally) -> dict[str, int]:
    """What is not zero."""
    return {name: value for name, value in tally.to_json().items() if value and name != "key"}


def test_a_space_in_which_nothing_was_done_has_a_report(alice):
    report = alice.events.report()
    assert (told(report.total), report.groups, report.cut) == ({}, (), False)
    waits = alice.events.contention()
    assert (waits.now, waits.total.waits, waits.paths, waits.pairs) == ((), 0, (), ())


def test_work_is_counted_for_who_did_it(alice, bob, clock):
    for id in ("a", "b", "c"):
        alice.work.add(id, max_attempts=2)
    alice.work.claim("a", leases=["src/a.py"])
    bob.work.claim("b")
    clock.advance(60)
    alice.work.complete("a")
    bob.work.fail("b", reason="no")
    clock.advance(60)
    bob.work.claim("c")
    clock.advance(30)
    bob.work.abandon("c")
    report = alice.events.report()
    assert told(by_key(report)["alice"]) == {
        "done": 1, "claims": 1, "worked_ms": 60_000, "leases": 1, "held_ms": 60_000,
    }  # fmt: skip
    assert told(by_key(report)["bob"]) == {
        "failed": 1, "abandoned": 1, "claims": 2, "worked_ms": 90_000,
    }  # fmt: skip
    assert report.total.worked_ms == 150_000
    tasks = by_key(alice.events.report(by="task"))
    assert (tasks["a"].held_ms, tasks["b"].failed, tasks["c"].worked_ms) == (60_000, 1, 30_000)
    paths = by_key(alice.events.report(by="path"))
    assert (paths["src/a.py"].held_ms, paths[None].done) == (60_000, 1)


def test_a_wait_counts_from_the_queue_to_the_grant(alice, bob, background, clock):
    alice.work.claim("first")
    bob.work.claim("second")
    alice.leases.claim("a.py")
    waiting = background.queued(bob, "a.py", "b.py", wait_s=600)
    clock.advance(5)
    found = alice.events.contention()
    [waiter] = found.now
    assert (waiter.agent, waiter.resources) == ("bob", ("a.py", "b.py"))
    assert [(one.agent, one.resource) for one in waiter.blockers] == [("alice", "a.py")]
    assert found.total.waited_ms >= 5_000
    alice.leases.release("a.py")
    waiting.result()
    clock.advance(100)
    waited = by_key(alice.events.report())["bob"]
    assert (waited.waits, waited.served, waited.avoided, waited.gave_up) == (1, 1, 1, 0)
    assert waited.waited_ms == alice.events.contention().total.waited_ms >= 5_000
    found = alice.events.contention()
    assert (found.now, found.served, found.total.waits) == ((), 1, 1)
    assert [one.what for one in found.paths] == ["a.py"]  # nobody was in the way of b.py
    assert [(one.agents, one.meets) for one in found.pairs] == [(("alice", "bob"), 1)]
    assert [(one.how, one.path) for one in found.splits] == [("split", "a.py")]
    assert [(one.tasks, one.path) for one in found.orders] == [(("first", "second"), "a.py")]
    took = {one.saved_ms for one in (*found.splits, *found.orders)}
    assert took == {waited.waited_ms}


def test_a_wait_that_two_paths_are_in_the_way_of_is_saved_by_splitting_neither(
    alice, bob, carol, background, clock
):
    alice.leases.claim("a.py")
    carol.leases.claim("b.py")
    background.queued(bob, "a.py", "b.py", wait_s=600)
    clock.advance(5)
    found = alice.events.contention()
    assert {one.what for one in found.paths} == {"a.py", "b.py"}
    assert {one.agents for one in found.pairs} == {("alice", "bob"), ("bob", "carol")}
    assert (found.splits, found.orders) == ((), ())


def test_another_task_instead_of_one_that_does_not_fit_is_a_conflict_avoided(alice, bob):
    alice.leases.claim("a.py")
    alice.work.add("first", leases=["a.py"])
    alice.work.add("second")
    assert bob.work.next().id == "second"
    report = by_key(bob.events.report())
    assert (report["bob"].passed, report["bob"].avoided, report["bob"].waits) == (1, 1, 0)
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("a.py")
    assert by_key(bob.events.report())["bob"].avoided == 1


def test_only_the_part_within_the_period_counts(alice, clock):
    alice.leases.claim("a.py", ttl_s=LONG_S)
    clock.advance(100)
    alice.work.claim("t", ttl_s=LONG_S)
    middle, at = alice.events.last(), clock.wall()
    clock.advance(50)
    alice.work.complete("t")
    clock.advance(25)
    late = alice.events.report(since=middle)
    assert told(late.total) == {"done": 1, "worked_ms": 50_000, "held_ms": 75_000}
    assert (late.since_at, late.until_at) == (at, at + 75_000)
    early = alice.events.report(until=middle)
    assert told(early.total) == {"claims": 1, "leases": 1, "held_ms": 100_000}
    by_time = alice.events.report(since=iso(at + 10_000), until=iso(at + 29_999))
    assert told(by_time.total) == {"worked_ms": 20_000, "held_ms": 20_000}
    with pytest.raises(dibs.InvalidError, match="since is after until"):
        alice.events.report(since=iso(at + 10_000), until=iso(at))


def test_a_lease_that_nobody_noticed_to_expire_was_held_until_its_deadline(alice, bob, clock):
    alice.leases.claim("a.py", ttl_s=60)
    clock.advance(30)
    alice.leases.renew("a.py", ttl_s=100)
    clock.advance(5_000)
    assert alice.events.report().total.held_ms == 130_000
    bob.leases.claim("a.py", ttl_s=60)
    clock.advance(10)
    report = by_key(alice.events.report())
    assert (report["alice"].held_ms, report["alice"].expired) == (130_000, 1)
    assert report["bob"].held_ms == 10_000


def test_a_task_that_is_renewed_keeps_its_leases(alice, clock):
    alice.work.claim("t", leases=["a.py"], ttl_s=60)
    clock.advance(50)
    alice.work.renew("t", ttl_s=100)
    clock.advance(5_000)
    report = alice.events.report()
    assert (report.total.held_ms, report.total.worked_ms) == (150_000, 150_000)


def test_a_task_whose_time_ran_out_is_lost_and_taken_over(alice, bob, clock):
    alice.work.claim("t", leases=["a.py"], ttl_s=60)
    clock.advance(500)
    bob.work.claim("t", leases=["a.py"])
    clock.advance(5)
    report = by_key(bob.events.report())
    assert (report["alice"].lapsed, report["alice"].worked_ms) == (1, 60_000)
    assert report["alice"].held_ms == 60_000
    assert (report["bob"].taken_over, report["bob"].worked_ms) == (1, 5_000)


def test_who_died_is_told_with_what_that_freed(opener, bob, clock):
    opener.killed_holder("a.py", "b.py", task="t")
    clock.advance(30 if opener.by_beats else 0)
    bob.work.claim("t")
    report = by_key(bob.events.report())
    lost = report["victim"]
    assert (lost.died, lost.freed_leases, lost.freed_tasks) == (1, 2, 1)
    assert (report["bob"].taken_over, report["bob"].died) == (1, 0)


def test_who_leaves_does_not_die(opener, elsewhere, bob, clock):
    gone = opener.join(elsewhere, "gone", ttl_s=LONG_S)
    gone.work.claim("t", leases=["a.py"])
    gone.agents.leave()
    bob.work.claim("t")
    report = by_key(bob.events.report())
    assert (report["gone"].died, report["gone"].freed_leases, report["gone"].abandoned) == (0, 0, 1)
    assert report["bob"].taken_over == 0


def test_what_is_given_or_taken_away_counts_for_who_had_it(alice, bob, clock):
    alice.leases.claim("a.py", "b.py")
    clock.advance(10)
    alice.leases.transfer("a.py", to="bob")
    clock.advance(20)
    bob.leases.revoke("b.py")
    clock.advance(30)
    report = by_key(alice.events.report())
    assert (report["alice"].held_ms, report["alice"].revoked) == (10_000 + 30_000, 1)
    assert (report["bob"].held_ms, report["bob"].leases) == (50_000, 1)


def test_an_intrusion_counts_for_the_holder(alice, bob, checkout):
    (checkout / "a.py").write_bytes(b"one")
    alice.work.claim("t")
    alice.leases.claim("a.py")
    (checkout / "a.py").write_bytes(b"two")
    bob.leases.report("a.py", was=ONE, by=["bob"])
    assert {
        key: one.intrusions for key, one in by_key(alice.events.report()).items() if one.intrusions
    } == {"alice": 1}
    assert by_key(alice.events.report(by="task"))["t"].intrusions == 1


def test_a_landing_counts_for_who_queued_it_and_its_task_for_who_handed_it_in(alice, bob, clock):
    alice.work.claim("t")
    clock.advance(10)
    commit = "8b1c0f6a2d4e7395b0c8d1e2f3a4b5c6d7e8f901"
    landing = alice.work.land("feature", commit=commit, task="t")
    clock.advance(10)
    bob.work.next(tags=["land:main"])
    clock.advance(10)
    bob.work.complete(landing.id)
    report = by_key(alice.events.report())
    assert told(report["alice"]) == {"done": 1, "claims": 1, "worked_ms": 10_000, "landed": 1}
    assert told(report["bob"]) == {"claims": 1, "worked_ms": 10_000}


def test_a_group_that_completes_is_done_by_nobody(alice):
    alice.work.add("group", with_children=True)
    alice.work.add("part", parent="group")
    alice.work.claim("part")
    alice.work.complete("part")
    report = alice.events.report()
    assert {key: one.done for key, one in by_key(report).items()} == {"alice": 1, None: 1}
    assert report.total.done == 2


def test_time_goes_to_the_days_in_which_it_passed(alice, clock):
    alice.leases.claim("a.py", ttl_s=LONG_S)
    began = clock.wall()
    clock.advance(2 * 86_400)
    report = alice.events.report(by="day")
    assert len(report.groups) == 3
    assert sum(one.held_ms for one in report.groups) == report.total.held_ms == 2 * 24 * HOUR_MS
    assert report.groups[1].held_ms == 24 * HOUR_MS
    first = -began % (24 * HOUR_MS)
    assert report.groups[0].held_ms == first
    east = alice.events.report(by="day", east_s=-3600)
    assert east.groups[0].held_ms == (first + HOUR_MS) % (24 * HOUR_MS)


def test_the_groups_with_the_most_come_first_and_the_rest_is_added_up(alice, clock):
    for number in range(5):
        alice.leases.claim(f"{number}.py")
        clock.advance(number + 1)
        alice.leases.release(f"{number}.py")
    report = alice.events.report(by="path", limit=2)
    assert [one.key for one in report.groups] == ["4.py", "3.py"]
    assert report.group_count == 5
    assert report.rest is not None
    assert (report.rest.leases, report.rest.held_ms) == (3, 6_000)


def test_what_was_pruned_is_said_and_what_is_held_still_counts(alice, bob, clock):
    alice.leases.claim("a.py", ttl_s=LONG_S)
    alice.work.claim("t", ttl_s=LONG_S)
    bob.leases.claim("b.py", ttl_s=LONG_S)
    clock.advance(100)
    assert alice.events.prune(keep_s=50).pruned_seq > 0
    pruned = clock.wall()
    clock.advance(20)
    bob.leases.release("b.py")
    clock.advance(20)
    alice.work.complete("t")
    report = alice.events.report()
    assert report.known_at == report.since_at == pruned
    assert report.unknown == 2  # b.py and t: when they began, nothing says any more
    assert report.total.held_ms == 40_000 + 20_000
    assert report.total.worked_ms == 40_000
    since = alice.events.report(since=iso(pruned + 30_000))
    assert (since.known_at, since.unknown, since.total.held_ms) == (None, 0, 10_000)
    gone = alice.events.report(since=1, until=2)
    assert (gone.known_at, gone.events, told(gone.total)) == (pruned, 0, {})
    with pytest.raises(dibs.InvalidError, match="since is after until"):
        alice.events.report(since=2, until=1)


@direct("it is about how much is read at once")
def test_a_reading_that_ends_too_soon_says_so(alice, clock, monkeypatch):
    for number in range(20):
        alice.leases.claim(f"{number}.py")
        clock.advance(1)
    whole = alice.events.report()
    monkeypatch.setattr(periods, "WINDOW", 3)
    assert alice.events.report() == whole
    monkeypatch.setattr(periods, "MOST", 5)
    report = alice.events.report()
    assert report.cut
    assert (report.events, report.total.leases) == (5, 5)
    assert report.total.held_ms == sum(
        min(5, 20 - number) * 1000 + 1000 * (number < 15) for number in range(20)
    )
    monkeypatch.setattr(periods, "LOCAL_S", -1.0)
    report = alice.events.report()
    assert (report.cut, report.events) == (True, 0)


@direct("it is about how much is kept")
def test_what_is_too_much_to_be_kept_apart_is_in_the_total(alice, clock, monkeypatch):
    monkeypatch.setattr(accounts, "GROUPS", 2)
    monkeypatch.setattr(contention, "KEPT", 0)
    for number in range(4):
        alice.leases.claim(f"{number}.py")
    clock.advance(1)
    report = alice.events.report(by="path")
    assert (len(report.groups), report.total.leases) == (2, 4)
    assert report.rest is not None
    assert (report.rest.leases, report.rest.held_ms) == (2, 2_000)
