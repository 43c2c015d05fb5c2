"""Tasks as a source elsewhere has them: put twice they stay the same, and claims are kept."""

from __future__ import annotations

import pytest

import dibs
from dibs.records import plain


def test_a_task_is_added_then_kept_then_changed(alice):
    assert alice.work.put("t", title="one", labels=["b", "a"]).done == "added"
    before = alice.events.last()
    assert alice.work.put("t", title="one", labels=["a", "b"]).done == "kept"
    assert alice.work.put("t").done == "kept"
    assert alice.events.last() == before
    put = alice.work.put("t", title="two", payload={"body": "more"}, priority=3)
    assert (put.done, put.state) == ("changed", "available")
    task = alice.work.show("t")
    assert (task.title, task.labels, task.payload) == ("two", ("a", "b"), {"body": "more"})
    assert alice.work.next().id == "t"


def test_what_is_not_given_stays_as_it_is(alice):
    alice.work.add("t", title="one", kind="bug", tags=["python"], after=["u"], payload=1)
    was = alice.work.show("t")
    alice.work.put("t", priority=5)
    now = alice.work.show("t")
    kept = plain(was) | {"priority": 5, "changed_at": now.changed_at}
    assert plain(now) == kept


def test_dependencies_are_replaced_and_the_state_follows_them(alice):
    alice.work.add("a")
    assert alice.work.put("t", after=["a"]).state == "blocked"
    assert alice.work.put("t", after=[]).state == "available"
    assert alice.work.put("t", after=["a"]).state == "blocked"
    alice.work.claim("a")
    alice.work.complete("a")
    assert alice.work.show("t").state == "available"
    with pytest.raises(dibs.InvalidError, match="wait for each other"):
        alice.work.put("a", after=["t"])


def test_a_changed_kind_is_found_by_who_asks_for_it(alice):
    alice.work.put("t", kind="bug")
    alice.work.put("t", kind="feature", tags=["go"])
    with pytest.raises(dibs.EmptyError):
        alice.work.next(kind="bug", tags=["go"])
    assert alice.work.next(kind="feature", tags=["go"]).id == "t"


def test_what_has_ended_there_ends_here_and_opens_what_waits(alice):
    items = [
        {"id": "late", "after": ["early"], "state": "open"},
        {"id": "early", "state": "completed", "result": "done there"},
        {"id": "dropped", "state": "cancelled"},
    ]
    assert [put.done for put in alice.work.put_many(items)] == ["added"] * 3
    assert alice.work.show("late").state == "available"
    assert alice.work.show("early").result == "done there"
    assert alice.work.show("dropped").state == "cancelled"
    before = alice.events.last()
    assert [put.done for put in alice.work.put_many(items)] == ["kept"] * 3
    assert alice.events.last() == before


def test_a_source_takes_no_task_from_its_claimer(alice, bob):
    alice.work.put("t", title="one")
    epoch = bob.work.claim("t").epoch
    put = alice.work.put("t", title="two", state="completed")
    assert (put.done, put.state) == ("changed", "claimed")
    assert bob.work.complete("t", epoch=epoch).title == "two"


def test_a_claim_that_has_lapsed_keeps_nobody_from_ending_the_task(alice, bob, clock):
    bob.work.claim("t", ttl_s=10)
    clock.advance(11)
    assert alice.work.put("t", state="completed").state == "completed"


def test_what_has_ended_here_is_reopened_only_if_that_is_said(alice):
    alice.work.claim("t")
    alice.work.complete("t")
    assert alice.work.put("t", state="open").state == "completed"
    assert alice.work.put("t", state="open", reopen=True).state == "available"


def test_only_its_author_or_a_person_changes_what_a_task_says(alice, bob):
    alice.work.add("t", title="one")
    assert bob.work.put("t", title="one").done == "kept"
    with pytest.raises(dibs.NotYoursError, match="added by alice"):
        bob.work.put("t", title="two")
    assert alice.work.show("t").title == "one"


def test_a_group_ends_with_the_last_of_its_parts(alice):
    items = [
        {"id": "group", "with_children": True},
        {"id": "a", "parent": "group", "state": "completed"},
        {"id": "b", "parent": "group", "state": "open"},
    ]
    alice.work.put_many(items)
    assert alice.work.show("group").state == "blocked"
    alice.work.put("b", state="cancelled")
    assert alice.work.show("group").state == "completed"


def test_what_would_be_done_can_be_asked_for(alice):
    alice.work.put("t", title="one")
    before = alice.events.last()
    items = [{"id": "t", "title": "two"}, {"id": "u"}, {"id": "u", "title": "again"}]
    said = alice.work.put_many(items, dry_run=True)
    assert [put.done for put in said] == ["changed", "added", "changed"]
    assert alice.events.last() == before
    assert alice.work.show("t").title == "one"
    with pytest.raises(dibs.NotFoundError):
        alice.work.show("u")


def test_the_wrong_ones_are_refused_and_the_others_put(alice):
    items = [{"id": "a", "after": ["a"]}, {"id": "b"}, {"id": "c", "priority": "high"}]
    made = alice.work.put_many(items, each=True)
    assert [isinstance(one, dibs.DibsError) for one in made] == [True, False, True]
    assert [task.id for task in alice.work.list()] == ["b"]
    with pytest.raises(dibs.InvalidError):
        alice.work.put_many([{"id": "d"}, *items])
    assert [task.id for task in alice.work.list()] == ["b"]
