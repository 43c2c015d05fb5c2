"""`work.plan`: how much can be done at the same time, and what is in the way of more."""

from __future__ import annotations

import dibs


def names(found: tuple[dibs.Bundle, ...]) -> dict[str, tuple[str, ...]]:
    return {one.what: one.tasks for one in found}


def test_nothing_to_do_is_a_plan_too(alice):
    plan = alice.work.plan()
    assert (plan.busy_now, plan.busy_most, plan.length, plan.open_count) == (0, 0, 0, 0)
    assert plan.critical == plan.tasks == plan.stuck == ()


def test_tasks_run_beside_each_other_unless_one_waits_or_they_change_the_same(alice):
    alice.work.add("design")
    alice.work.add("api", after=["design"], leases=["src/api.py"])
    alice.work.add("client", after=["api"], leases=["src/client.py"])
    alice.work.add("docs", leases=["docs/"])
    alice.work.add("spelling", leases=["docs/*.md"])
    plan = alice.work.plan()
    assert plan.unit == "step"
    assert plan.busy_now == plan.busy_most == 2
    assert [(load.at, load.busy) for load in plan.busy] == [(0, 2), (2, 1), (3, 0)]
    assert (plan.length, plan.critical, plan.critical_length) == (3, ("design", "api", "client"), 3)
    assert names(plan.exclusions) == {"docs": ("docs", "spelling")}
    assert names(plan.waiting_now) == {"docs": ("spelling",)}
    assert names(plan.openers) == {"design": ("api",)}
    assert [one.number for one in plan.groups] == [3, 2]
    assert {task.id: task.starts_at for task in plan.tasks} == {
        "design": 0, "docs": 0, "api": 1, "spelling": 1, "client": 2,
    }  # fmt: skip


def test_what_runs_and_what_is_held_counts(alice, bob):
    alice.work.add("a", leases=["src/a.py"])
    alice.work.add("b", leases=["src/b.py"])
    alice.work.add("c", leases=["src/c.py"])
    alice.work.claim("a", leases=["src/b.py"])
    bob.leases.claim("src/c.py")
    plan = bob.work.plan()
    assert plan.busy_now == 1
    assert names(plan.waiting_now) == {"src/b.py": ("b",), "src/c.py": ("c",)}
    running = next(task for task in plan.tasks if task.id == "a")
    assert (running.state, running.agent, running.starts_at) == ("claimed", "alice", 0)


def test_it_says_what_so_many_agents_would_do(alice):
    for number in range(5):
        alice.work.add(f"t{number}")
    plan = alice.work.plan(agents=2)
    assert (plan.agents, plan.busy_now, plan.length) == (2, 5, 3)
    assert [(load.at, load.busy) for load in plan.busy] == [(0, 2), (2, 1), (3, 0)]


def test_what_is_stuck_is_told_with_the_reason_and_is_nobodys_work(alice, bob):
    alice.work.add("lost", after=["nobody added this"])
    alice.work.add("gone")
    alice.work.cancel("gone")
    alice.work.add("never", after=["gone"])
    alice.work.add("behind", after=["never"])
    alice.work.add("train", tags=["gpu"])
    plan = bob.work.plan()
    assert {(one.task, one.why, one.by) for one in plan.stuck} == {
        ("lost", "missing", ("nobody added this",)),
        ("never", "ended", ("gone",)),
        ("train", "tags", ("gpu",)),
    }
    assert (plan.busy_now, plan.stuck_count) == (0, 3)
    assert {task.id: task.starts_at for task in plan.tasks}["behind"] is None


def test_a_completed_dependency_is_in_nobodys_way(alice):
    alice.work.add("first")
    alice.work.add("second", after=["first", "third"])
    alice.work.add("third")
    alice.work.claim("first")
    alice.work.complete("first")
    plan = alice.work.plan()
    assert plan.critical == ("third", "second")
    assert next(task for task in plan.tasks if task.id == "second").after == ("third",)


def test_tasks_take_as_long_as_others_of_their_kind_have_taken(alice, clock):
    for number in range(3):
        alice.work.add(f"done{number}", kind="slow")
        alice.work.claim(f"done{number}")
        clock.advance(5)
        alice.work.complete(f"done{number}")
    alice.work.add("next", kind="slow")
    alice.work.add("other", after=["next"])
    plan = alice.work.plan()
    assert (plan.unit, plan.length) == ("ms", 10_000)


def test_a_claim_past_its_time_and_a_pause_are_seen_as_they_are_now(alice, clock):
    alice.work.add("a")
    alice.work.add("b", delay_s=600)
    alice.work.claim("a", ttl_s=5)
    clock.advance(6)
    plan = alice.work.plan()
    states = {task.id: (task.state, task.agent, task.starts_at) for task in plan.tasks}
    assert states == {"a": ("available", None, 0), "b": ("blocked", None, 1)}


def test_only_so_many_tasks_are_named_and_the_numbers_are_of_all(alice):
    alice.work.add_many([{"id": f"t{number}"} for number in range(30)])
    plan = alice.work.plan(limit=10)
    assert (len(plan.tasks), plan.open_count, plan.busy_now, plan.cut) == (10, 30, 30, False)


def test_a_plan_changes_nothing(alice):
    alice.work.add("a")
    before = alice.events.last()
    alice.work.plan(agents=3)
    assert alice.events.last() == before
