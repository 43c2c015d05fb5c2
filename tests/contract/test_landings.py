"""Landings: queueing a branch, handing a task in with it, and tasks that ask for a person."""

from __future__ import annotations

from typing import Any

import pytest

import dibs
from dibs.operation import PERSON
from dibs.space.scope import Door
from tests.contract.world import direct

ONE, TWO = "1" * 40, "2" * 40
L1, L2 = f"land:main:feature@{ONE[:12]}", f"land:main:feature@{TWO[:12]}"
TAGS = ["land:main"]


def hand_in(agent: dibs.Agent, id: str = "t", commit: str = ONE) -> dibs.Task:
    agent.work.claim(id)
    return agent.work.land("feature", commit=commit, task=id)


def conduct(agent: dibs.Agent, *more: str, ttl_s: float = 3600) -> dibs.Task:
    return agent.work.next(kind="landing", tags=[*TAGS, *more], ttl_s=ttl_s)


def person(agent: dibs.Agent) -> dibs.Agent:
    """The same agent, as a surface lets a person in."""
    agent.scope.door = Door(lambda: PERSON)
    return agent


def bodies(agent: dibs.Agent) -> list[str]:
    return [message.body for message in agent.messages.inbox()]


def kinds(agent: dibs.Agent, after: int) -> list[tuple[str, str]]:
    return [(one.kind, one.subject) for one in agent.events.since(after)]


# Queueing


def test_a_landing_is_a_task_that_only_a_conductor_takes(alice, bob):
    landing = alice.work.land("feature", commit=ONE, priority=3)
    assert (landing.id, landing.kind, landing.state) == (L1, "landing", "available")
    assert (landing.tags, landing.priority, landing.max_attempts) == (("land:main",), 3, 10)
    assert landing.payload == {
        "branch": "feature", "commit": ONE, "onto": "main", "task": None, "agent": "alice",
    }  # fmt: skip
    with pytest.raises(dibs.NothingFitsError):
        bob.work.next()
    assert conduct(bob).id == L1
    assert alice.work.show(L1).agent == "bob"


def test_a_conductor_takes_only_landings_whose_check_it_knows(alice, bob):
    alice.work.land("feature", commit=ONE, check="c" * 16)
    with pytest.raises(dibs.NothingFitsError):
        conduct(bob)
    assert conduct(bob, "check:" + "c" * 16).id == L1


def test_each_target_has_a_train_of_its_own(alice, bob):
    alice.work.land("feature", commit=ONE)
    alice.work.land("feature", commit=ONE, onto="release/1")
    assert bob.work.next(tags=["land:release/1"]).id == f"land:release/1:feature@{ONE[:12]}"
    assert conduct(bob).id == L1


def test_asked_again_with_the_same_commit_nothing_is_queued_twice(alice, bob):
    first = alice.work.land("feature", commit=ONE)
    before = alice.events.last()
    assert alice.work.land("feature", commit=ONE) == first
    assert bob.work.land("feature", commit=ONE, check="c" * 16) == first
    conduct(bob)
    assert alice.work.land("feature", commit=ONE).state == "claimed"
    assert kinds(alice, before) == [("task.claimed", L1)]
    done = bob.work.complete(L1, result={"commit": ONE})
    assert alice.work.land("feature", commit=ONE) == done


@pytest.mark.parametrize("end", ["dead", "cancelled"])
def test_a_landing_that_has_ended_otherwise_is_queued_again(alice, bob, end):
    alice.work.land("feature", commit=ONE)
    conduct(bob)
    bob.work.fail(L1, retry=False) if end == "dead" else alice.work.cancel(L1)
    again = bob.work.land("feature", commit=ONE, check="c" * 16, priority=1)
    assert (again.state, again.attempts, again.reason) == ("available", 0, "")
    assert (again.tags, again.priority) == (("check:" + "c" * 16, "land:main"), 1)


def test_who_asked_for_a_check_may_ask_for_another(alice, bob):
    alice.work.land("feature", commit=ONE, check="c" * 16)
    assert alice.work.land("feature", commit=ONE).tags == ("land:main",)
    conduct(bob)


def test_a_newer_commit_of_a_branch_replaces_the_one_that_waits(alice):
    alice.work.land("feature", commit=ONE)
    alice.work.land("feature@x", commit=ONE)
    alice.work.land("feature", commit=ONE, onto="other")
    alice.work.land("feature", commit=TWO)
    assert alice.work.show(L1).state == "cancelled"
    assert alice.work.show(L1).reason == f"superseded by {L2}"
    states = {task.id: task.state for task in alice.work.list(kind="landing")}
    assert sorted(states.values()) == ["available", "available", "available", "cancelled"]


def test_a_task_follows_the_newest_landing_of_its_branch(alice, bob):
    hand_in(alice)
    alice.work.land("feature", commit=TWO, task="t")
    assert (alice.work.show("t").state, alice.work.show("t").landing) == ("blocked", L2)
    assert alice.work.show(L1).state == "cancelled"
    assert conduct(bob).id == L2
    bob.work.complete(L2, result=2)
    assert (alice.work.show("t").state, alice.work.show("t").result) == ("completed", 2)


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_a_landing_that_is_conducted_is_not_replaced_but_its_task_follows(alice, bob, end):
    hand_in(alice)
    conduct(bob)
    alice.work.land("feature", commit=TWO)
    assert (alice.work.show(L1).state, alice.work.show("t").landing) == ("claimed", L2)
    if end == "fail":
        bob.work.fail(L1, retry=False, reason="conflict")
    else:
        bob.work.complete(L1)
    assert alice.work.show("t").state == "blocked"
    bob.work.complete(conduct(bob).id)
    assert alice.work.show("t").state == "completed"


def test_a_newer_commit_also_replaces_a_landing_that_is_dead(alice, bob):
    hand_in(alice)
    conduct(bob)
    bob.work.fail(L1, retry=False, reason="conflict")
    assert [one.what for one in bob.agents.overview().attention] == ["not_landed"]
    hand_in(alice, commit=TWO)
    assert (alice.work.show(L1).state, alice.work.show("t").landing) == ("cancelled", L2)
    assert bob.agents.overview().attention == ()


def test_an_older_commit_that_has_landed_replaces_nothing(alice, bob):
    alice.work.land("feature", commit=ONE)
    conduct(bob)
    bob.work.complete(L1)
    alice.work.land("feature", commit=TWO)
    assert alice.work.land("feature", commit=ONE).state == "completed"
    assert alice.work.show(L2).state == "available"


def test_another_task_with_the_id_of_a_landing_is_in_its_way(alice):
    alice.work.add(L1)
    with pytest.raises(dibs.ExistsError):
        alice.work.land("feature", commit=ONE)
    alice.work.remove(L1)
    alice.work.land("feature", commit=ONE)
    with pytest.raises(dibs.ExistsError):
        alice.work.land("feature", commit=ONE[:39] + "2")


@pytest.mark.parametrize(
    "wrong",
    [
        {"branch": "a b"},
        {"branch": "a:b"},
        {"branch": "-b"},
        {"branch": "a..b"},
        {"branch": "a/.b"},
        {"branch": "a//b"},
        {"branch": "a.lock/b"},
        {"branch": "a\\b"},
        {"branch": "HEAD"},
        {"branch": "x" * 190},
        {"onto": "a^"},
        {"onto": ""},
        {"commit": "1" * 12},
        {"commit": "G" * 40},
        {"commit": "A" * 40},
        {"check": "make test"},
    ],
)
def test_names_that_git_does_not_allow_are_refused(alice, wrong):
    given = {"branch": "feature", "commit": ONE} | wrong
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        alice.work.land(given.pop("branch"), **given)
    assert alice.events.last() == before


def test_only_land_makes_landings_and_what_they_say_stays(alice):
    landing = alice.work.land("feature", commit=ONE)
    for pose in (
        lambda: alice.work.add("x", kind="landing"),
        lambda: alice.work.put("x", kind="landing"),
        lambda: alice.work.add_many([{"id": "x", "kind": "landing"}]),
    ):
        with pytest.raises(dibs.InvalidError):
            pose()
    alice.work.add("t")
    with pytest.raises(dibs.InvalidError):
        alice.work.edit("t", kind="landing")
    changes: list[dict[str, Any]] = [{"tags": []}, {"kind": ""}, {"title": "x"}]
    for changed in [{"payload": {"commit": TWO}}, *changes]:
        with pytest.raises(dibs.StateError):
            alice.work.edit(L1, **changed)
    assert alice.work.put(L1, payload={}, state="completed", reopen=True).done == "kept"
    assert alice.work.show(L1) == landing
    assert alice.work.edit(L1, priority=4).priority == 4


# Handing in


def test_a_task_that_is_handed_in_ends_its_claim_and_waits(alice, bob):
    alice.work.add("t", leases=["src"])
    claimed = alice.work.claim("t")
    before = alice.events.last()
    landing = alice.work.land("feature", commit=ONE, task="t", epoch=claimed.epoch)
    assert (landing.parent, landing.payload["task"]) == ("t", "t")
    task = alice.work.show("t")
    assert (task.state, task.landing, task.reason) == ("blocked", L1, "waits for its landing")
    assert task.children == 0
    assert (task.agent, task.session, task.attempts, task.due_in_ms) == ("alice", None, 1, None)
    assert alice.leases.list() == ()
    assert kinds(alice, before)[:2] == [("task.added", L1), ("task.handed_in", "t")]
    for late in (alice.work.renew, alice.work.complete, alice.work.fail, alice.work.abandon):
        with pytest.raises(dibs.StaleError):
            late("t")
    with pytest.raises(dibs.StateError, match="waits for its landing"):
        bob.work.claim("t")
    with pytest.raises(dibs.LaterError, match="waits for its landing"):
        bob.work.next(kind="")


def test_completing_a_landing_completes_the_task_with_its_result(alice, bob):
    alice.work.add("group", with_children=True)
    alice.work.add("t", parent="group")
    alice.work.add("after", after=["t"])
    alice.work.add("after-both", after=["t", L1])
    hand_in(alice)
    conduct(bob)
    before = alice.events.last()
    bob.work.complete(L1, result={"commit": TWO})
    task = alice.work.show("t")
    assert (task.state, task.result, task.landing) == ("completed", {"commit": TWO}, L1)
    assert alice.work.show("group").state == "completed"
    assert alice.work.show("after").state == alice.work.show("after-both").state == "available"
    assert ("task.completed", "t") in kinds(alice, before)
    assert alice.work.land("feature", commit=ONE, task="t").state == "completed"


def test_many_landings_complete_their_tasks_at_once(alice, bob):
    alice.work.add("after", after=["t0", "t1", "t2"])
    for number in range(3):
        alice.work.claim(f"t{number}")
        alice.work.land(f"b{number}", commit=ONE, task=f"t{number}")
    taken = bob.work.next_many(10, kind="landing", tags=TAGS)
    assert len(taken) == 3
    bob.work.complete_many([{"id": one.id, "result": one.id} for one in taken])
    results = [alice.work.show(f"t{number}").result for number in range(3)]
    assert results == [one.id for one in taken]
    assert alice.work.show("after").state == "available"


def test_several_tasks_may_be_handed_in_with_one_branch(alice, bob):
    hand_in(alice, "t")
    hand_in(alice, "u")
    conduct(bob)
    bob.work.complete(L1, result=1)
    assert {alice.work.show(id).state for id in ("t", "u")} == {"completed"}


def test_a_task_is_handed_in_with_a_commit_that_has_landed(alice, bob):
    alice.work.add("after", after=["t"])
    alice.work.land("feature", commit=ONE)
    conduct(bob)
    bob.work.complete(L1, result=1)
    hand_in(alice)
    assert (alice.work.show("t").state, alice.work.show("t").result) == ("completed", 1)
    assert alice.work.show("after").state == "available"


def test_handing_in_asked_again_is_done_once(alice):
    first = hand_in(alice)
    before = alice.events.last()
    assert alice.work.land("feature", commit=ONE, task="t") == first
    assert alice.events.last() == before


@pytest.mark.parametrize("state", ["unknown", "available", "theirs", "cancelled", "old"])
def test_only_the_claimer_hands_a_task_in(alice, bob, state):
    epoch = None
    if state != "unknown":
        bob.work.add("t")
    if state == "theirs":
        bob.work.claim("t")
    if state == "cancelled":
        bob.work.cancel("t")
    if state == "old":
        epoch = alice.work.claim("t").epoch
        alice.work.abandon("t")
        alice.work.claim("t")
    before = alice.events.last()
    with pytest.raises((dibs.StaleError, dibs.NotFoundError)):
        alice.work.land("feature", commit=ONE, task="t", epoch=epoch)
    assert alice.events.last() == before


@direct("who is a person is for the daemon to say")
def test_a_person_may_name_a_task_that_nobody_has_claimed(alice, bob, carol):
    alice.work.add("t", leases=["src"])
    person(bob).work.land("feature", commit=ONE, task="t")
    assert (alice.work.show("t").state, alice.work.show("t").agent) == ("blocked", "bob")
    conduct(carol)
    carol.work.fail(L1, retry=False, reason="conflict")
    assert alice.work.show("t").state == "available"
    assert bodies(bob) == [f't came back to you because {L1} is dead: "conflict"']
    alice.work.claim("t")
    with pytest.raises(dibs.StaleError):
        bob.work.land("feature", commit=TWO, task="t")


# Coming back


@pytest.mark.parametrize("how", ["fail", "cancel", "remove", "refuse"])
@pytest.mark.parametrize("attempts", [1, 2])
def test_a_task_comes_back_when_its_landing_ends_without_it(alice, bob, how, attempts):
    alice.work.add("t", max_attempts=attempts)
    hand_in(alice)
    if how in ("fail", "refuse"):
        conduct(bob)
    if how == "fail":
        bob.work.fail(L1, retry=False, reason='a.py: "conflict"\n' + "x" * 1_000)
    elif how == "cancel":
        bob.work.cancel(L1, reason="not now")
    elif how == "refuse":
        bob.work.ask(L1, "May I?")
        bob.work.ack(L1, refuse=True, note="no")
    else:
        alice.work.remove(L1)
    task = alice.work.show("t")
    assert (task.state, task.landing) == ("dead" if attempts == 1 else "available", None)
    expected = {"cancel": "not now", "refuse": "no", "remove": f"its landing {L1} is removed"}
    assert task.reason == expected.get(how, 'a.py: "conflict"\n' + "x" * 1_000)
    told = bodies(alice)
    if how == "remove":
        assert told == []  # alice did it
    else:
        (body,) = told
        assert body.startswith("t came back to you because land:main:feature@111111111111 is ")
        assert len(body) < 500 and "\n" not in body
    if attempts == 2:
        assert bob.work.claim("t").attempts == 2
        alice.work.land("feature", commit=ONE)  # which is nobody's task now
        assert alice.work.show("t").state == "claimed"


def test_a_task_stays_handed_in_while_its_landing_is_tried_again(alice, bob, clock):
    hand_in(alice)
    conduct(bob)
    bob.work.fail(L1, reason="no space left")
    assert (alice.work.show(L1).state, alice.work.show("t").state) == ("failed", "blocked")
    clock.advance(11)
    conduct(bob)
    bob.work.abandon(L1)
    conduct(bob)
    alice.work.revoke(L1)
    assert alice.work.show("t").state == "blocked"
    conduct(bob)
    bob.work.complete(L1)
    assert alice.work.show("t").state == "completed"


@pytest.mark.parametrize("lost", ["left", "late"])
def test_a_landing_that_loses_its_last_conductor_gives_its_task_back(
    alice, opener, elsewhere, clock, lost
):
    hand_in(alice)
    for attempt in range(10):
        assert alice.work.show("t").state == "blocked"
        conductor = opener.join(elsewhere, f"c{attempt}", ttl_s=3600)
        conduct(conductor, ttl_s=60)
        if lost == "left":
            conductor.close()
        else:
            clock.advance(61)
            with pytest.raises(dibs.EmptyError):
                alice.work.next(kind="nothing")
    assert (alice.work.show(L1).state, alice.work.show("t").state) == ("dead", "available")
    (body,) = bodies(alice)
    assert body.startswith(f"t came back to you because {L1} is dead")
    assert alice.agents.verify() == ()
    alice.work.claim("t")


@pytest.mark.parametrize("how", ["cancel", "remove"])
@pytest.mark.parametrize("claimed", [False, True])
def test_a_landing_that_waits_ends_with_its_task(alice, bob, how, claimed):
    hand_in(alice)
    if claimed:
        conduct(bob)
    getattr(alice.work, how)("t")
    assert alice.work.show(L1).state == ("claimed" if claimed else "cancelled")
    if claimed:  # it is landed or not: git knows, so it says so by itself
        bob.work.complete(L1, result=1)
        if how == "cancel":
            assert alice.work.show("t").state == "cancelled"
            assert alice.work.reopen("t").landing is None


def test_a_landing_goes_on_for_the_other_task_that_waits_for_it(alice, bob):
    hand_in(alice, "t")
    hand_in(alice, "u")
    alice.work.cancel("t")
    assert alice.work.show(L1).state == "available"
    alice.work.cancel("u")
    assert alice.work.show(L1).state == "cancelled"


# What others do meanwhile


def test_a_task_that_is_handed_in_is_not_opened_by_its_dependencies(alice, bob):
    bob.work.claim("d")
    bob.work.complete("d")
    alice.work.add("t", after=["d"])
    hand_in(alice)
    bob.work.reopen("d")
    bob.work.claim("d")
    bob.work.complete("d")
    assert alice.work.show("t").state == "blocked"
    alice.work.edit("t", after=[])
    assert alice.work.show("t").state == "blocked"
    alice.work.edit("t", after=["nobody"])
    bob.work.put("d", state="open", reopen=True)
    bob.work.put("d", state="completed")
    assert (alice.work.show("t").state, alice.work.show("t").landing) == ("blocked", L1)
    assert [one.what for one in bob.agents.overview().attention if one.subject == "t"] == []


def test_a_source_does_not_end_a_task_that_is_handed_in(alice, bob):
    alice.work.put("t", title="one")
    hand_in(alice)
    for state in ("completed", "cancelled"):
        assert alice.work.put("t", state=state).state == "blocked"
    conduct(bob)
    bob.work.complete(L1, result=1)
    assert alice.work.put("t", state="completed").state == "completed"
    assert alice.work.put("t", state="open", reopen=True).state == "available"
    assert alice.work.show("t").landing is None


def test_a_task_that_is_reopened_after_its_landing_has_to_be_landed_again(alice, bob):
    hand_in(alice)
    conduct(bob)
    bob.work.complete(L1)
    bob.work.reopen(L1)
    conduct(bob)
    alice.work.reopen("t")
    bob.work.complete(L1, result=3)
    assert (alice.work.show("t").state, alice.work.show("t").landing) == ("available", None)
    with pytest.raises(dibs.StateError):
        alice.work.revoke("t")
    hand_in(alice, commit=TWO)
    with pytest.raises(dibs.StateError):
        alice.work.reopen("t")


def test_a_group_is_not_complete_while_a_part_is_handed_in(alice, bob):
    alice.work.add("group", with_children=True)
    alice.work.add("t", parent="group")
    alice.work.add("u", parent="group")
    hand_in(alice, "t")
    alice.work.cancel("u")
    assert alice.work.show("group").state == "blocked"
    conduct(bob)
    bob.work.fail(L1, retry=False)
    assert alice.work.show("group").state == "blocked"


def test_the_plan_waits_for_landings_and_for_people(alice, bob):
    alice.work.add("after", after=["t"])
    hand_in(alice)
    alice.work.claim("asks")
    alice.work.ask("asks", "May I?")
    plan = alice.work.plan()
    assert [(one.task, one.why) for one in plan.stuck] == [("asks", "person")]
    found = {one.id: one for one in plan.tasks}
    assert found["t"].after == (L1,)
    starts = [found[id].starts_at for id in (L1, "t", "after")]
    assert starts[0] == 0 and None not in starts and starts == sorted(starts)


# Asking a person


def test_a_task_that_asks_waits_for_a_person(alice, bob):
    alice.work.add("t", leases=["src"], max_attempts=1)
    epoch = alice.work.claim("t").epoch
    before = alice.events.last()
    task = alice.work.ask("t", "May I delete\nthe accounts?", epoch=epoch)
    assert (task.state, task.asked, task.acked) == ("blocked", "May I delete\nthe accounts?", None)
    assert (task.attempts, task.session, task.reason) == (0, None, "waits for a person")
    assert alice.leases.list() == ()
    assert kinds(alice, before)[0] == ("task.asked", "t")
    with pytest.raises(dibs.StateError, match="waits for a person"):
        bob.work.claim("t")
    with pytest.raises(dibs.LaterError, match="waits for a person"):
        bob.work.next()
    with pytest.raises(dibs.StaleError):
        alice.work.ask("t", "and?")
    acked = bob.work.ack("t", note="they are backed up")
    assert (acked.state, acked.acked, acked.asked) == ("available", "bob", task.asked)
    assert acked.reason == "they are backed up"
    again = alice.work.next()
    assert (again.id, again.acked, again.attempts) == ("t", "bob", 1)


def test_each_question_needs_an_answer_of_its_own(alice, bob):
    alice.work.claim("t")
    alice.work.ask("t", "one?")
    bob.work.ack("t")
    alice.work.claim("t")
    asked = alice.work.ask("t", "two?")
    assert (asked.asked, asked.acked) == ("two?", None)
    with pytest.raises(dibs.StateError):
        bob.work.claim("t")


def test_a_task_that_is_refused_is_dead(alice, bob):
    alice.work.claim("t")
    alice.work.ask("t", "May I?")
    task = bob.work.ack("t", refuse=True)
    assert (task.state, task.reason, task.acked) == ("dead", "bob refused it", None)
    alice.work.add("d")
    again = alice.work.reopen("t")
    assert (again.state, again.asked) == ("available", None)
    assert alice.work.edit("t", after=["d"]).state == "blocked"
    with pytest.raises(dibs.StateError):
        bob.work.ack("t")
    alice.work.claim("d")
    alice.work.complete("d")
    assert alice.work.show("t").state == "available"


@pytest.mark.parametrize("state", ["available", "claimed", "handed in", "acked", "cancelled"])
def test_only_a_task_that_asks_can_be_answered(alice, bob, state):
    alice.work.add("t")
    if state != "available":
        alice.work.claim("t")
    if state == "handed in":
        alice.work.land("feature", commit=ONE, task="t")
    if state in ("acked", "cancelled"):
        alice.work.ask("t", "May I?")
        bob.work.ack("t") if state == "acked" else bob.work.cancel("t")
    for refuse in (False, True):
        with pytest.raises(dibs.StateError):
            bob.work.ack("t", refuse=refuse)
    with pytest.raises(dibs.NotFoundError):
        bob.work.ack("nothing")


def test_an_answer_holds_for_that_commit_also_when_it_is_queued_again(alice, bob, carol):
    hand_in(alice)
    conduct(bob)
    bob.work.ask(L1, "src/keys.py is protected")
    assert alice.work.show("t").state == "blocked"
    with pytest.raises(dibs.EmptyError):
        conduct(bob)
    carol.work.ack(L1)
    assert conduct(bob).acked == "carol"
    bob.work.fail(L1, retry=False)
    assert alice.work.land("feature", commit=ONE).acked == "carol"
    assert alice.work.land("feature", commit=TWO).acked is None


def test_a_landing_that_asks_is_replaced_by_a_newer_commit(alice, bob):
    hand_in(alice)
    conduct(bob)
    bob.work.ask(L1, "May I?")
    alice.work.land("feature", commit=TWO)
    assert (alice.work.show(L1).state, alice.work.show("t").landing) == ("cancelled", L2)
    assert conduct(bob).acked is None


def test_dependencies_do_not_open_a_task_that_asks(alice, bob):
    bob.work.claim("d")
    bob.work.complete("d")
    alice.work.add("t", after=["d"])
    alice.work.claim("t")
    alice.work.ask("t", "May I?")
    bob.work.reopen("d")
    bob.work.claim("d")
    bob.work.complete("d")
    assert alice.work.show("t").state == "blocked"
    assert alice.work.edit("t", after=[]).state == "blocked"
    assert alice.work.put("t", state="completed").state == "completed"


# What people see


def test_the_overview_shows_each_train_in_its_order_and_who_conducts(alice, bob, carol, clock):
    assert alice.agents.overview().trains == ()
    alice.work.claim("t")
    alice.work.land("one", commit=ONE, task="t")
    alice.work.land("two", commit=ONE, priority=1)
    carol.work.land("three", commit=TWO, onto="release/1")
    alice.work.land("asks", commit=ONE, priority=2)
    bob.work.ask(conduct(bob).id, "src/keys.py is protected")
    alice.work.land("paused", commit=ONE, priority=2)
    bob.work.fail(conduct(bob).id, reason="no space left")
    main, release = carol.agents.overview().trains
    assert (main.target, main.conductor, main.since_at) == ("main", None, None)
    branches = [one.branch for one in main.landings]
    assert branches == ["two", "one", "paused", "asks"]
    two, one, paused, asks = main.landings
    assert (one.agent, one.tasks, one.commit, one.state) == ("alice", ("t",), ONE, "available")
    assert (two.tasks, two.asked, two.due_in_ms) == ((), None, None)
    assert (paused.state, paused.reason, paused.due_in_ms) == ("failed", "no space left", 10_000)
    assert (asks.state, asks.asked, asks.acked) == ("blocked", "src/keys.py is protected", None)
    assert [one.branch for one in release.landings] == ["three"]
    carol.work.ack(asks.id)
    bob.leases.claim("land:main")
    conduct(bob)
    main, _ = alice.agents.overview().trains
    assert (main.conductor, [one.branch for one in main.landings][:2]) == ("bob", ["asks", "two"])
    assert main.since_at is not None
    assert main.landings[0].state == "claimed" and main.landings[0].acked == "carol"


def test_what_waits_for_a_person_needs_attention(alice, bob):
    alice.work.claim("t")
    alice.work.ask("t", "May I delete\nthe accounts?")
    hand_in(alice, "u")
    (one,) = bob.agents.overview().attention
    assert (one.what, one.level, one.subject, one.agent) == ("asks", "ask", "t", "alice")
    assert (one.says, one.at is not None) == ("May I delete\nthe accounts?", True)
    bob.work.ack("t")
    assert bob.agents.overview().attention == ()
