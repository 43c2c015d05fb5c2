"""Work: tasks that are claimed by one session at a time."""

from __future__ import annotations

import pytest

import dibs
from dibs.storage.waiting import CANCEL, Cancel
from tests.contract.waiting import Background, ContractClock, result
from tests.contract.world import LONG_S, Opener

# Adding


def test_a_task_carries_all_it_was_given(alice, clock):
    task = alice.work.add(
        "github:owner/repo#12",
        title="fix it",
        kind="bug",
        priority=5,
        tags=["rust", "gpu", "rust"],
        after=["t0"],
        payload={"n": [1, None, "é"]},
        max_attempts=7,
    )
    assert (task.id, task.title, task.kind, task.priority) == (
        "github:owner/repo#12",
        "fix it",
        "bug",
        5,
    )
    assert task.tags == ("gpu", "rust")
    assert (task.after, task.state) == (("t0",), "blocked")
    assert task.payload == {"n": [1, None, "é"]}
    assert (task.attempts, task.max_attempts) == (0, 7)
    assert (task.author, task.added_at, task.changed_at) == ("alice", clock.wall(), clock.wall())
    assert task.agent is task.session is task.epoch is task.result is None
    assert alice.work.show("github:owner/repo#12") == task


def test_an_id_is_used_once(alice, bob):
    alice.work.add("t", title="first")
    before = bob.events.last()
    with pytest.raises(dibs.ExistsError) as refusal:
        bob.work.add("t", title="second", kind="another lane")
    assert refusal.value.details["task"].title == "first"
    assert bob.events.last() == before
    assert bob.work.show("t").title == "first"


@pytest.mark.parametrize(
    "call",
    [
        {"id": ""},
        {"id": " t"},
        {"id": "x" * 201},
        {"id": "a\0b"},
        {"id": 7},
        {"title": "x" * 2_001},
        {"kind": "x" * 201},
        {"priority": 1_000_001},
        {"priority": "high"},
        {"tags": "rust"},
        {"tags": [""]},
        {"after": "t0"},
        {"after": [f"t{n}" for n in range(1_001)]},
        {"after": ["t"]},
        {"payload": "x" * 1_048_577},
        {"payload": float("nan")},
        {"payload": {1, 2}},
        {"payload": "\ud800"},
        {"max_attempts": 0},
        {"delay_s": -1},
        {"delay_s": 10**12},
    ],
    ids=lambda call: ",".join(f"{k}={str(v)[:20]!r}" for k, v in call.items()),
)
def test_a_wrong_task_is_refused_and_changes_nothing(alice, call):
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        alice.work.add(**{"id": "t", **call})
    assert alice.events.last() == before
    assert alice.work.list() == ()


# Claiming


def test_one_winner_a_claimed_task_is_refused_to_everybody_else(alice, bob, clock):
    alice.work.add("t")
    task = alice.work.claim("t", ttl_s=600)
    assert (task.state, task.agent, task.session) == ("claimed", "alice", alice.session)
    assert (task.attempts, task.ttl_ms, task.due_in_ms) == (1, 600_000, 600_000)
    clock.advance(60)
    before = bob.events.last()
    with pytest.raises(dibs.HeldError) as refusal:
        bob.work.claim("t")
    assert refusal.value.details["task"].agent == "alice"
    assert "540 s left" in refusal.value.message
    assert bob.events.last() == before


def test_the_time_of_a_claim_is_an_hour_by_default(alice):
    assert alice.work.claim("t").ttl_ms == 3_600_000


def test_claiming_an_unknown_id_submits_it(alice):
    task = alice.work.claim("new")
    assert (task.state, task.author, task.attempts) == ("claimed", "alice", 1)
    assert [event.kind for event in alice.events.since(kind="task")] == [
        "task.added",
        "task.claimed",
    ]


def test_claiming_again_renews_and_keeps_the_epoch(alice, clock):
    first = alice.work.claim("t", ttl_s=60, leases=["a"])
    clock.advance(50)
    again = alice.work.claim("t", ttl_s=60)
    assert (again.epoch, again.attempts, again.due_in_ms) == (first.epoch, 1, 60_000)
    clock.advance(30)
    # The files taken with the task are kept as long as the task.
    assert [lease.resource for lease in alice.work.show("t").leases] == ["a"]
    assert [lease.resource for lease in alice.leases.list()] == ["a"]


@pytest.mark.parametrize(
    "call",
    [
        {"id": ""},
        {"ttl_s": 0},
        {"ttl_s": 10**9},
        {"leases": ["../x"]},
        {"leases": "abc"},
        {"note": "x" * 2_001},
    ],
    ids=str,
)
def test_a_wrong_claim_is_refused_and_changes_nothing(alice, call):
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        alice.work.claim(**{"id": "t", **call})
    assert alice.events.last() == before


def test_a_claim_takes_the_task_and_its_files(alice, bob):
    task = alice.work.claim("t", leases=["src/a.py", "port:1"], ttl_s=600, note="why")
    assert [lease.resource for lease in task.leases] == ["src/a.py", "port:1"]
    assert {lease.task for lease in task.leases} == {"t"}
    assert {lease.ttl_ms for lease in task.leases} == {600_000}
    assert {lease.note for lease in task.leases} == {"why"}
    assert len(bob.work.show("t").leases) == 2
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("src")


def test_a_claim_of_task_and_files_is_all_or_nothing(alice, bob):
    alice.work.add("t")
    alice.leases.claim("src/a.py")
    before = bob.events.last()
    for id in ("t", "unknown"):
        with pytest.raises(dibs.HeldError) as refusal:
            bob.work.claim(id, leases=["free", "src"])
        assert refusal.value.blockers[0].agent == "alice"
    assert bob.events.last() == before
    assert bob.work.show("t").state == "available"
    assert [lease.agent for lease in bob.leases.list()] == ["alice"]
    with pytest.raises(dibs.NotFoundError):
        bob.work.show("unknown")


# Next: the best that fits


def test_next_gives_the_highest_priority_first_then_the_oldest(alice):
    for id, priority in (("low", -1), ("old", 0), ("high", 9), ("young", 0), ("high2", 9)):
        alice.work.add(id, priority=priority)
    given = [alice.work.next().id for _ in range(5)]
    assert given == ["high", "high2", "old", "young", "low"]


def test_age_decides_across_kinds_and_tags(alice):
    for number in range(6):
        alice.work.add(f"t{number}", kind=f"k{number % 2}", tags=["x"] if number % 3 == 0 else [])
    assert [alice.work.next(tags=["x"]).id for _ in range(6)] == [f"t{n}" for n in range(6)]


def test_next_gives_only_the_kind_asked_for(alice):
    alice.work.add("a", kind="bug", priority=9)
    alice.work.add("b", kind="docs")
    assert alice.work.next(kind="docs").id == "b"
    with pytest.raises(dibs.EmptyError):
        alice.work.next(kind="docs")
    assert alice.work.next().id == "a"


def test_next_gives_only_what_the_worker_can_do(alice):
    alice.work.add("both", tags=["gpu", "rust"], priority=9)
    alice.work.add("one", tags=["rust"], priority=5)
    alice.work.add("none")
    with_rust = alice.work.next(tags=["rust", "python"])
    assert with_rust.id == "one"
    assert alice.work.next().id == "none"
    with pytest.raises(dibs.EmptyError) as refusal:
        alice.work.next(tags=["rust"])
    assert refusal.value.details["counts"] == {"available": 1, "claimed": 2}
    assert alice.work.next(tags=["rust", "gpu"]).id == "both"


def test_next_refuses_and_changes_nothing_when_there_is_nothing(alice):
    before = alice.events.last()
    with pytest.raises(dibs.EmptyError):
        alice.work.next()
    with pytest.raises(dibs.EmptyError):
        alice.work.next(wait_s=5)
    for call in ({"ttl_s": 0}, {"wait_s": -1}, {"tags": "rust"}, {"kind": "a\0b"}):
        with pytest.raises(dibs.InvalidError):
            alice.work.next(**call)
    assert alice.events.last() == before


def test_next_waits_for_a_task_that_is_added(alice, bob, background: Background):
    waiter = background(bob.work.next, wait_s=3_600)
    alice.work.add("other", tags=["unfit"])
    alice.work.add("t")
    assert result(waiter).id == "t"


def test_next_waits_for_a_task_that_is_unblocked(alice, bob, background: Background):
    alice.work.claim("first")
    alice.work.add("second", after=["first"])
    waiter = background(bob.work.next, wait_s=3_600)
    alice.work.complete("first")
    assert result(waiter).id == "second"


def test_next_waits_for_what_is_due(alice):
    alice.work.add("later", delay_s=30)
    assert alice.work.next(wait_s=60).id == "later"
    alice.work.fail("later")
    assert alice.work.next(wait_s=60).attempts == 2


def test_next_takes_over_what_ran_out_of_time(alice, bob):
    first = alice.work.claim("t", ttl_s=60)
    second = bob.work.next(wait_s=120)
    assert (second.id, second.attempts) == ("t", 2)
    assert second.epoch > first.epoch


def test_the_wait_of_next_can_be_cancelled(alice, background):
    cancel = Cancel()
    token = CANCEL.set(cancel)
    waiter = background(alice.work.next, wait_s=3_600)
    CANCEL.reset(token)
    before = alice.events.last()
    cancel()
    with pytest.raises(dibs.CancelledError):
        result(waiter)
    cancel.close()
    assert alice.events.last() == before


def test_many_tasks_that_fall_due_do_not_hide_the_one_that_fits(alice, clock):
    for number in range(101):
        alice.work.add(f"other-{number}", kind="other", delay_s=1)
    alice.work.add("mine", kind="mine", delay_s=2)
    clock.advance(3)
    assert alice.work.next(kind="mine").id == "mine"


# Renewing


def test_renew_keeps_the_epoch_and_the_files(alice, clock):
    task = alice.work.claim("t", ttl_s=60, leases=["a"])
    alice.leases.claim("own", ttl_s=60)
    clock.advance(50)
    renewed = alice.work.renew("t", epoch=task.epoch)
    assert (renewed.epoch, renewed.due_in_ms, renewed.attempts) == (task.epoch, 60_000, 1)
    assert [(lease.resource, lease.expires_in_ms) for lease in renewed.leases] == [("a", 60_000)]
    assert alice.work.renew("t", ttl_s=300).due_in_ms == 300_000
    left = {lease.resource: lease.expires_in_ms for lease in alice.leases.list()}
    assert left == {"a": 300_000, "own": 10_000}
    with pytest.raises(dibs.InvalidError):
        alice.work.renew("t", ttl_s=0)
    assert alice.agents.verify() == ()


def test_renewing_a_task_does_not_revive_a_lease_that_has_lapsed(alice, clock):
    alice.work.claim("t", ttl_s=600, leases=["a", "b"])
    alice.leases.renew("a", ttl_s=10)
    clock.advance(10)
    assert [lease.resource for lease in alice.work.renew("t").leases] == ["b"]
    with pytest.raises(dibs.StaleError):
        alice.leases.renew("a")


# Completing


def test_complete_does_everything_in_one_step(alice, bob, carol, background):
    alice.work.add("next", after=["t"])
    alice.work.claim("t", leases=["src"], ttl_s=LONG_S)
    alice.leases.claim("own", ttl_s=LONG_S)
    waiter = background.queued(bob, "src/a.py")
    before = alice.events.last()
    done = alice.work.complete(
        "t",
        result={"ok": True},
        announce="t is done",
        entry={"namespace": "n", "key": "k", "value": 7},
    )
    assert (done.state, done.result, done.session, done.leases) == (
        "completed",
        {"ok": True},
        None,
        (),
    )
    assert done.agent == "alice"
    events = alice.events.since(before)
    assert [event.kind for event in events[:7]] == [
        "task.completed",
        "lease.released",
        "lease.claimed",
        "task.available",
        "entry.set",
        "message.announced",
    ]
    assert alice.work.show("t") == done
    assert alice.work.show("next").state == "available"
    assert alice.state.get("n", "k").value == 7
    [message] = carol.messages.inbox()
    assert (message.kind, message.body, message.sender) == ("announcement", "t is done", "alice")
    assert result(waiter).leases[0].agent == "bob"
    assert [lease.resource for lease in alice.leases.list(agent="alice")] == ["own"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"entry": {"namespace": "n", "key": "k", "value": 2}}, dibs.ConflictError),
        (
            {"entry": {"namespace": "n", "key": "k", "value": 2, "expected_version": 9}},
            dibs.ConflictError,
        ),
        ({"entry": {"namespace": "n", "key": "k"}}, dibs.InvalidError),
        ({"entry": ["n", "k", 1]}, dibs.InvalidError),
        ({"entry": {"namespace": "n", "key": "k", "value": 1, "ttl": 5}}, dibs.InvalidError),
        ({"entry": {"namespace": "", "key": "k", "value": 1, "force": True}}, dibs.InvalidError),
        ({"announce": "x" * 16_385}, dibs.InvalidError),
        ({"result": {1, 2}}, dibs.InvalidError),
        ({"result": "x" * 1_048_577}, dibs.InvalidError),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict) else "",
)
def test_complete_does_nothing_if_one_part_is_refused(alice, bob, options, error):
    alice.state.set("n", "k", 1)
    alice.work.add("next", after=["t"])
    task = alice.work.claim("t", leases=["src"])
    before = alice.events.last()
    with pytest.raises(error):
        alice.work.complete("t", **{"result": 1, "announce": "done", **options})
    assert alice.events.last() == before
    assert alice.work.show("t") == task
    assert alice.work.show("next").state == "blocked"
    assert alice.state.get("n", "k").version == 1
    assert bob.messages.inbox() == ()


def test_complete_can_replace_or_force_an_entry(alice):
    alice.state.set("n", "k", 1)
    alice.work.claim("a")
    alice.work.complete(
        "a", entry={"namespace": "n", "key": "k", "value": 2, "expected_version": 1}
    )
    alice.work.claim("b")
    alice.work.complete("b", entry={"namespace": "n", "key": "k", "value": 3, "force": True})
    entry = alice.state.get("n", "k")
    assert (entry.value, entry.version) == (3, 3)


def test_a_completed_task_cannot_be_claimed_or_completed_again(alice, bob):
    task = alice.work.claim("t")
    alice.work.complete("t")
    before = alice.events.last()
    with pytest.raises(dibs.StateError) as refusal:
        bob.work.claim("t")
    assert refusal.value.details["task"].state == "completed"
    with pytest.raises(dibs.StaleError):
        alice.work.complete("t", epoch=task.epoch)
    with pytest.raises(dibs.StateError):
        alice.work.cancel("t")
    assert alice.events.last() == before


# Failing, backing off, dead letters


def test_a_failed_task_pauses_longer_each_time_and_then_is_dead(alice, bob, clock: ContractClock):
    alice.work.add("t", max_attempts=3)
    for attempt, pause_s in ((1, 10), (2, 20)):
        assert alice.work.claim("t", leases=["a"]).attempts == attempt
        failed = alice.work.fail("t", reason=f"no {attempt}")
        assert (failed.state, failed.reason, failed.session) == ("failed", f"no {attempt}", None)
        assert failed.due_in_ms == pause_s * 1_000
        assert alice.leases.list() == ()
        with pytest.raises(dibs.StateError) as refusal:
            bob.work.claim("t")
        assert f"no {attempt}" in refusal.value.message
        with pytest.raises(dibs.EmptyError):
            bob.work.next()
        clock.advance(pause_s)
    assert bob.work.next().id == "t"
    dead = bob.work.fail("t", reason="never")
    assert (dead.state, dead.reason, dead.attempts, dead.due_in_ms) == ("dead", "never", 3, None)
    clock.advance(3_600)
    with pytest.raises(dibs.StateError):
        bob.work.claim("t")
    assert [task.id for task in bob.work.list(state="dead")] == ["t"]


def test_the_pause_is_never_longer_than_an_hour(alice, clock):
    alice.work.add("t", max_attempts=1_000)
    for _ in range(12):
        alice.work.next()
        failed = alice.work.fail("t")
        clock.advance(3_600)
    assert failed.due_in_ms == 3_600_000


def test_a_task_that_can_never_succeed_is_dead_at_once(alice):
    alice.work.claim("t")
    assert alice.work.fail("t", retry=False, reason="impossible").state == "dead"


def test_a_claimer_that_lets_its_time_run_out_has_used_an_attempt(alice, bob, clock):
    alice.work.add("t", max_attempts=2)
    for attempts in (1, 2):
        assert alice.work.claim("t", ttl_s=60, leases=["a"]).attempts == attempts
        clock.advance(60)
    with pytest.raises(dibs.StateError) as refusal:
        bob.work.claim("t")
    # The refusal writes nothing: the death is noted by the next one who changes something.
    assert "dead" in refusal.value.message
    bob.work.add("other")
    assert bob.work.next().id == "other"
    assert bob.work.show("t").state == "dead"
    assert bob.work.show("t").reason == "its claimer alice let the claim expire"
    assert bob.leases.list() == ()


def test_files_taken_with_a_task_are_free_when_its_time_is_over(alice, bob, clock):
    alice.work.claim("t", ttl_s=60, leases=["a"])
    clock.advance(60)
    assert bob.work.claim("t", leases=["a"]).leases[0].agent == "bob"


def test_an_abandoned_task_is_available_at_once_and_costs_no_attempt(alice, bob):
    alice.work.claim("t", leases=["a"])
    given_back = alice.work.abandon("t", reason="lunch")
    assert (given_back.state, given_back.attempts, given_back.reason) == ("available", 0, "lunch")
    assert alice.events.since(kind="task.abandoned")[0].data["reason"] == "lunch"
    assert bob.work.next().attempts == 1
    assert bob.leases.claim("a").leases[0].agent == "bob"


# Fencing

SETTLING = ["renew", "complete", "fail", "abandon"]


@pytest.mark.parametrize("verb", SETTLING)
def test_fencing_an_expired_claimer_is_refused_and_changes_nothing(alice, bob, clock, verb):
    task = alice.work.claim("t", ttl_s=60)
    clock.advance(60)
    before = alice.events.last()
    for epoch in (None, task.epoch):
        with pytest.raises(dibs.StaleError) as refusal:
            getattr(alice.work, verb)("t", epoch=epoch)
    assert "expired" in refusal.value.message
    assert alice.events.last() == before
    taken = bob.work.claim("t")
    before = alice.events.last()
    for epoch in (None, task.epoch, taken.epoch):
        with pytest.raises(dibs.StaleError) as refusal:
            getattr(alice.work, verb)("t", epoch=epoch)
    assert refusal.value.details["task"].agent == "bob"
    assert alice.events.last() == before
    assert bob.work.show("t") == taken


@pytest.mark.parametrize("verb", SETTLING)
def test_fencing_another_epoch_is_refused_and_changes_nothing(alice, verb):
    old = alice.work.claim("t")
    alice.work.abandon("t")
    new = alice.work.claim("t")
    assert new.epoch > old.epoch
    before = alice.events.last()
    with pytest.raises(dibs.StaleError):
        getattr(alice.work, verb)("t", epoch=old.epoch)
    assert alice.events.last() == before
    assert alice.work.show("t") == new


@pytest.mark.parametrize("verb", SETTLING)
def test_what_one_has_not_claimed_cannot_be_settled(alice, bob, verb):
    alice.work.add("t")
    before = alice.events.last()
    with pytest.raises(dibs.StaleError):
        getattr(bob.work, verb)("t")
    with pytest.raises(dibs.NotFoundError):
        getattr(bob.work, verb)("unknown")
    with pytest.raises(dibs.InvalidError):
        getattr(bob.work, verb)("")
    assert alice.events.last() == before


def test_the_claimer_of_a_cancelled_task_is_refused(alice, bob):
    bob.work.add("t")
    task = alice.work.claim("t")
    bob.work.cancel("t")
    for verb in SETTLING:
        with pytest.raises(dibs.StaleError):
            getattr(alice.work, verb)("t", epoch=task.epoch)


def test_epochs_rise_over_completion_reopening_and_pruning(alice, clock):
    epochs = [alice.work.claim("t").epoch]
    alice.work.complete("t")
    alice.work.reopen("t")
    epochs.append(alice.work.claim("t").epoch)
    alice.work.complete("t")
    clock.advance(1)
    alice.events.prune(keep_s=0)
    with pytest.raises(dibs.NotFoundError):
        alice.work.show("t")
    epochs.append(alice.work.claim("t").epoch)
    assert epochs == sorted(set(epochs))


def refused(agent, id):
    with pytest.raises(dibs.StaleError) as refusal:
        agent.work.complete(id)
    return refusal.value


def test_a_refusal_says_whether_a_claim_expired_ended_or_is_somebody_else_s(
    alice, bob, clock, opener, space
):
    alice.work.add("t")
    assert refused(alice, "t").message == "you do not hold t, which is available"
    alice.work.claim("t", ttl_s=60)
    assert refused(bob, "t").message == "t is claimed by alice, not by this session"
    again = opener.join(space, "alice", ttl_s=600)
    assert refused(again, "t").message == "t is claimed by alice, in another session"
    clock.advance(60)
    assert refused(alice, "t").message == "your claim on t has expired"
    assert refused(bob, "t").message == "you do not hold t, which is available"
    bob.work.claim("t")
    assert refused(alice, "t").message == "t is claimed by bob, not by this session"
    bob.work.complete("t")
    assert refused(bob, "t").message == "you do not hold t, which is completed"
    assert "reopen" in refused(bob, "t").next


# Dependencies


def test_a_task_waits_for_all_it_depends_on(alice, bob):
    alice.work.add("c", after=["a", "b"])
    alice.work.claim("a")
    alice.work.complete("a")
    assert alice.work.show("c").state == "blocked"
    with pytest.raises(dibs.StateError) as refusal:
        alice.work.claim("c")
    assert refusal.value.details["waits_for"] == {"a": "completed", "b": None}
    assert "waits for b (not added)" in refusal.value.message
    assert refusal.value.next == "add b, or edit what c comes after"
    alice.work.add("b")
    with pytest.raises(dibs.StateError, match=r"waits for b \(available\)"):
        bob.work.claim("c")
    alice.work.claim("b")
    alice.work.complete("b")
    assert alice.work.show("c").state == "available"
    assert alice.work.next().id == "c"


def test_a_dependency_that_is_complete_already_does_not_block(alice):
    alice.work.claim("a")
    alice.work.complete("a")
    assert alice.work.add("b", after=["a"]).state == "available"


@pytest.mark.parametrize("ending", ["fail", "cancel"])
def test_only_completion_opens_what_waits(alice, ending):
    alice.work.add("b", after=["a"])
    alice.work.claim("a")
    if ending == "fail":
        alice.work.fail("a", retry=False)
    else:
        alice.work.cancel("a")
    assert alice.work.show("b").state == "blocked"
    alice.work.reopen("a")
    alice.work.claim("a")
    alice.work.complete("a")
    assert alice.work.show("b").state == "available"


def test_a_plan_can_be_entered_in_any_order(alice):
    alice.work.add("c", after=["b"])
    alice.work.add("b", after=["a"])
    alice.work.add("a")
    for id in ("a", "b", "c"):
        assert alice.work.next().id == id
        alice.work.complete(id)


def test_a_cycle_of_dependencies_is_refused_and_named(alice):
    alice.work.add("a", after=["c"])
    alice.work.add("b", after=["a"])
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError) as refusal:
        alice.work.add("c", after=["x", "b"])
    assert refusal.value.details["cycle"] == ["c", "b", "a", "c"]
    assert alice.events.last() == before
    with pytest.raises(dibs.InvalidError):
        alice.work.add("self", after=["self"])
    assert [task.id for task in alice.work.list()] == ["a", "b"]
    # Nothing of the refused task is left: without the cycle it is taken.
    assert alice.work.add("c", after=["x"]).after == ("x",)


def test_two_ways_to_the_same_dependency_are_no_cycle(alice):
    alice.work.add("d", after=["b", "c"])
    alice.work.add("b", after=["a"])
    alice.work.add("c", after=["a"])
    assert alice.work.add("a").state == "available"


# Delay


def test_a_delayed_task_opens_when_its_time_has_come(alice, clock):
    task = alice.work.add("t", delay_s=60)
    assert (task.state, task.due_in_ms) == ("blocked", 60_000)
    clock.advance(59)
    with pytest.raises(dibs.StateError) as refusal:
        alice.work.claim("t")
    assert "1 s" in refusal.value.message
    with pytest.raises(dibs.EmptyError):
        alice.work.next()
    clock.advance(1)
    assert alice.work.claim("t").state == "claimed"


def test_a_delay_holds_after_the_dependencies_are_complete(alice, clock):
    alice.work.add("t", after=["a"], delay_s=60)
    alice.work.claim("a")
    alice.work.complete("a")
    task = alice.work.show("t")
    assert (task.state, task.due_in_ms) == ("blocked", 60_000)
    clock.advance(60)
    assert alice.work.next().id == "t"


def test_dependencies_hold_after_the_delay_is_over(alice, clock):
    alice.work.add("t", after=["a"], delay_s=60)
    clock.advance(61)
    with pytest.raises(dibs.EmptyError):
        alice.work.next()
    with pytest.raises(dibs.StateError):
        alice.work.claim("t")
    alice.work.claim("a")
    alice.work.complete("a")
    assert alice.work.next().id == "t"


# Cancelling and reopening


def test_cancel_ends_a_task_that_another_has_and_frees_its_files(alice, bob, carol, background):
    bob.work.add("t")
    alice.work.claim("t", leases=["a"], ttl_s=LONG_S)
    waiter = background.queued(carol, "a")
    cancelled = bob.work.cancel("t", reason="not needed")
    assert (cancelled.state, cancelled.reason, cancelled.session, cancelled.leases) == (
        "cancelled",
        "not needed",
        None,
        (),
    )
    assert result(waiter).leases[0].agent == "carol"
    with pytest.raises(dibs.StateError):
        bob.work.claim("t")
    with pytest.raises(dibs.StateError):
        bob.work.cancel("t")
    with pytest.raises(dibs.NotFoundError):
        bob.work.cancel("unknown")


@pytest.mark.parametrize("was", ["available", "blocked", "failed", "dead"])
def test_a_task_nobody_works_on_can_be_cancelled(alice, clock, was):
    alice.work.add("t", after=["x"] if was == "blocked" else [])
    if was in ("failed", "dead"):
        alice.work.claim("t")
        alice.work.fail("t", retry=was == "failed")
    assert alice.work.show("t").state == was
    assert alice.work.cancel("t").state == "cancelled"
    clock.advance(3_600)
    with pytest.raises(dibs.EmptyError):
        alice.work.next()


@pytest.mark.parametrize("ended", ["completed", "failed", "dead", "cancelled"])
def test_what_has_ended_can_be_reopened_with_all_its_attempts(alice, ended):
    alice.work.claim("t")
    if ended == "completed":
        alice.work.complete("t", result=1)
    elif ended == "cancelled":
        alice.work.cancel("t")
    else:
        alice.work.fail("t", retry=ended == "failed")
    task = alice.work.reopen("t")
    assert (task.state, task.attempts, task.reason, task.due_in_ms) == ("available", 0, "", None)
    assert alice.work.next().attempts == 1


def test_what_has_not_ended_cannot_be_reopened(alice):
    alice.work.add("open")
    alice.work.add("blocked", after=["open"])
    alice.work.claim("mine")
    before = alice.events.last()
    for id in ("open", "blocked", "mine"):
        with pytest.raises(dibs.StateError):
            alice.work.reopen(id)
    with pytest.raises(dibs.NotFoundError):
        alice.work.reopen("unknown")
    assert alice.events.last() == before


def test_a_reopened_task_waits_for_its_dependencies_again(alice):
    alice.work.add("b", after=["a"])
    alice.work.cancel("b")
    assert alice.work.reopen("b").state == "blocked"
    alice.work.claim("a")
    alice.work.complete("a")
    assert alice.work.show("b").state == "available"


def test_a_reopened_task_is_not_blocked_by_a_dependency_that_was_pruned(alice, clock):
    alice.work.claim("a")
    alice.work.complete("a")
    alice.work.add("b", after=["a"])
    clock.advance(100)
    alice.work.claim("b")
    alice.work.complete("b")
    alice.events.prune(keep_s=50)
    assert alice.work.reopen("b").state == "available"


# The dead do not block


def test_the_task_of_a_killed_process_is_free(opener: Opener, alice, clock):
    opener.killed_holder(task="t")
    if opener.by_beats:
        with pytest.raises(dibs.HeldError):
            alice.work.claim("t")
        clock.advance(30)
    assert alice.work.claim("t").attempts == 2
    assert alice.events.since(kind="task.freed")[0].data["why"] == "died"


def test_next_takes_over_from_a_killed_process(opener: Opener, alice):
    opener.killed_holder(task="t")
    assert alice.work.next(wait_s=60).id == "t"


def test_the_tasks_of_a_session_that_leaves_are_free(alice, bob):
    first = alice.work.claim("t", leases=["a"])
    alice.close()
    task = bob.work.next()
    assert (task.id, task.attempts) == ("t", 2)
    assert task.epoch > first.epoch
    assert bob.leases.claim("a").leases[0].agent == "bob"


def test_a_task_that_kills_every_claimer_ends_as_dead(opener: Opener, space, alice):
    alice.work.add("t", max_attempts=2)
    for _ in range(2):
        with opener.join(space, "victim") as victim:
            victim.work.claim("t")
    assert alice.work.show("t").state == "dead"
    assert alice.work.show("t").reason == "its claimer victim left"


# Looking


def test_show_refuses_what_is_not_there(alice):
    with pytest.raises(dibs.NotFoundError):
        alice.work.show("t")
    with pytest.raises(dibs.InvalidError):
        alice.work.show("")


def test_list_is_filtered_paged_and_in_the_order_of_adding(alice, bob):
    alice.work.add("a", kind="bug")
    alice.work.add("b", kind="docs", priority=9)
    alice.work.add("c", kind="bug", after=["a"])
    bob.work.claim("b")
    everything = alice.work.list()
    assert [task.id for task in everything] == ["a", "b", "c"]
    assert [task.id for task in alice.work.list(state="claimed")] == ["b"]
    assert [task.id for task in alice.work.list(kind="bug")] == ["a", "c"]
    assert [task.id for task in alice.work.list(agent="bob")] == ["b"]
    assert [task.id for task in alice.work.list(limit=2)] == ["a", "b"]
    added = {event.subject: event.seq for event in alice.events.since(kind="task.added")}
    assert [task.id for task in alice.work.list(after=added["b"])] == ["c"]
    for call in ({"state": "lost"}, {"limit": 0}, {"kind": "a\0b"}, {"agent": "\ud800"}):
        with pytest.raises(dibs.InvalidError):
            alice.work.list(**call)
    with pytest.raises(dibs.InvalidError):
        alice.work.list(after=2**70)


# Held for the length of a block


def test_a_block_completes_its_task_with_the_result(alice):
    alice.work.add("t")
    with alice.next_task() as held:
        assert held.task.id == "t"
        held.check()
        held.result = [1, 2]
    task = alice.work.show("t")
    assert (task.state, task.result) == ("completed", [1, 2])


def test_a_block_that_raises_fails_its_task_with_the_reason(alice):
    alice.work.add("t")
    with pytest.raises(ValueError, match="broken"), alice.next_task():
        raise ValueError("broken")
    task = alice.work.show("t")
    assert (task.state, task.reason) == ("failed", "ValueError: broken")


def test_a_block_that_is_interrupted_abandons_its_task(alice):
    alice.work.add("t")
    with pytest.raises(KeyboardInterrupt), alice.next_task():
        raise KeyboardInterrupt
    task = alice.work.show("t")
    assert (task.state, task.attempts) == ("available", 0)


def test_a_block_that_lost_its_task_says_so_at_its_end(alice, bob, clock):
    alice.work.add("t")
    with pytest.raises(dibs.StaleError), alice.next_task(ttl_s=60):
        clock.advance(60)
        taken = bob.work.next()
    assert bob.work.show("t") == taken


# What a task declares, and where it belongs


def test_a_task_says_what_it_declares_and_where_it_belongs(alice, bob, checkout):
    (checkout / "src").mkdir()
    alice.work.add("group", with_children=True)
    task = alice.work.add(
        "t",
        leases=["src", "./src/../a.py", "a.py", "docs/*.md", "port:3000"],
        labels=["urgent", "backend"],
        parent="group",
        found_in="t0",
    )
    assert task.declared == ("src", "a.py", "docs/*.md", "port:3000")
    assert task.labels == ("backend", "urgent")
    assert (task.parent, task.found_in, task.with_children) == ("group", "t0", False)
    assert task.leases == ()
    assert bob.work.show("t") == task
    assert bob.work.show("group").with_children


def test_tasks_that_are_added_together_declare_by_the_names_of_the_caller(
    alice, checkout, monkeypatch
):
    (checkout / "src").mkdir()
    monkeypatch.chdir(checkout / "src")
    items = [{"id": "a", "leases": ["a.py"]}, {"id": "b", "leases": ["../b.py"], "parent": "a"}]
    added = alice.work.add_many(items)
    assert [task.declared for task in added] == [("src/a.py",), ("b.py",)]
    assert items[0]["leases"] == ["a.py"]


def test_of_many_tasks_the_one_that_declares_nonsense_is_refused(alice):
    wrong = {"id": "b", "leases": [7]}
    added = alice.work.add_many([{"id": "a", "leases": ["a.py"]}, wrong], each=True)
    assert [type(one).__name__ for one in added] == ["Task", "InvalidError"]


@pytest.mark.parametrize(
    "call",
    [
        {"leases": "a.py"},
        {"leases": [""]},
        {"leases": [f"f{n}" for n in range(201)]},
        {"labels": "urgent"},
        {"labels": [""]},
        {"parent": ""},
        {"parent": "t"},
        {"found_in": "a\0b"},
    ],
    ids=str,
)
def test_a_wrong_declaration_is_refused_and_changes_nothing(alice, call):
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        alice.work.add("t", **call)
    assert alice.events.last() == before


def test_tasks_cannot_be_part_of_each_other(alice):
    alice.work.add("a", parent="b")
    alice.work.add("b", parent="c")
    with pytest.raises(dibs.InvalidError, match="part of each other") as refusal:
        alice.work.add("c", parent="a")
    assert refusal.value.details["cycle"] == ["c", "a", "b", "c"]


def test_a_group_is_nobodys_to_claim(alice):
    alice.work.add("design")
    alice.work.add("group", with_children=True, after=["design"])
    assert alice.work.next().id == "design"
    alice.work.complete("design")
    assert alice.work.show("group").state == "blocked"
    with pytest.raises(dibs.StateError):
        alice.work.claim("group")


def test_a_list_is_narrowed_to_what_comes_before_or_after_a_task(alice, bob):
    """Also what has ended, and page by page."""
    alice.work.add("design")
    alice.work.add("build", after=["design", "licence"])
    alice.work.add("paint", after=["design"])
    alice.work.add("ship", after=["build", "paint"])
    bob.work.claim("design")
    bob.work.complete("design")

    def ids(**asked):
        return [task.id for task in alice.work.list(**asked)]

    assert ids(follows="design") == ["build", "paint"]
    assert ids(precedes="ship") == ["build", "paint"]
    assert ids(precedes="build") == ["design"], "nobody has added the licence"
    assert ids(follows="licence") == ["build"]
    assert ids(follows="ship") == ids(precedes="design") == ids(follows="nothing") == []
    assert ids(follows="design", state="available") == ["paint"]
    assert ids(follows="design", precedes="ship") == ["build", "paint"]
    (first,) = alice.work.list(follows="design", limit=1)
    assert (first.id, ids(follows="design", after=first.seq)) == ("build", ["paint"])
    alice.work.edit("paint", after=[])
    assert ids(follows="design") == ["build"]
