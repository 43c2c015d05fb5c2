"""Taking leases and tasks away: what a person may do, and what those who had them are told."""

from __future__ import annotations

import pytest

import dibs
from tests.contract.waiting import result
from tests.contract.world import LONG_S, Opener, direct

# Leases


def test_a_lease_that_is_taken_away_is_free_and_the_journal_says_by_whom(alice, bob, carol):
    [lease] = alice.leases.claim("src/a.py", note="fix the parser", ttl_s=600).leases
    before = bob.events.last()
    [taken] = bob.leases.revoke("src/a.py", reason="the release needs it")
    assert (taken.resource, taken.agent, taken.session) == ("src/a.py", "alice", alice.session)
    assert (taken.epoch, taken.note) == (lease.epoch, "fix the parser")
    assert carol.leases.list() == ()
    assert carol.leases.status("src/a.py")[0].free
    event, told = bob.events.since(before)
    assert (event.kind, event.subject) == ("lease.revoked", "src/a.py")
    assert (event.agent, event.session) == ("bob", bob.session)
    assert event.data == {
        "holder": "alice",
        "holder_session": alice.session,
        "epoch": lease.epoch,
        "reason": "the release needs it",
        "kind": "dir",
    }
    assert told.kind == "message.sent"
    assert carol.leases.claim("src/a.py").epoch > lease.epoch
    assert carol.agents.verify() == ()


def test_the_holder_is_told_by_the_one_who_took_it(alice, bob):
    alice.leases.claim("a")
    bob.leases.revoke("a", reason="two\nlines")
    [message] = alice.messages.inbox()
    assert (message.sender, message.to) == ("bob", "alice")
    assert message.body == "your lease on a was taken away: two\nlines"
    alice.leases.claim("b")
    bob.leases.revoke("b")
    assert [one.body for one in alice.messages.inbox()] == ["your lease on b was taken away"]


def test_each_holder_is_told_once_however_much_it_has_lost(alice, bob, carol):
    alice.leases.claim(*(f"src/{number}" for number in range(5)))
    bob.leases.claim("src/x", "src/y")
    assert len(carol.leases.revoke("src", reason="r")) == 7
    assert [message.body for message in alice.messages.inbox()] == [
        "your leases on src/0, src/1, src/2 and 2 more were taken away: r"
    ]
    assert [message.body for message in bob.messages.inbox()] == [
        "your leases on src/x, src/y were taken away: r"
    ]


@pytest.mark.parametrize("verb", ["renew", "release"])
@pytest.mark.parametrize("named", ["by name", "by name and epoch", "by epoch"])
def test_whoever_has_lost_it_is_refused_and_changes_nothing(alice, bob, verb, named):
    epoch = alice.leases.claim("a", ttl_s=600).epoch
    bob.leases.revoke("a", reason="r")
    before = bob.events.last()
    resources = () if named == "by epoch" else ("a",)
    options = {} if named == "by name" else {"epoch": epoch}
    with pytest.raises(dibs.StaleError) as refusal:
        getattr(alice.leases, verb)(*resources, **options)
    assert refusal.value.details["epoch"] == epoch
    if resources:
        assert "bob took away your lease" in refusal.value.message
        assert refusal.value.details["reason"] == "r"
    assert bob.events.last() == before
    assert getattr(alice.leases, verb)(everything=True) == ()


def test_whoever_has_lost_it_is_told_who_has_it_now(alice, bob, carol):
    alice.leases.claim("a", ttl_s=600)
    bob.leases.revoke("a")
    carol.leases.claim("a", note="mine")
    with pytest.raises(dibs.StaleError) as refusal:
        alice.leases.release("a")
    [blocker] = refusal.value.details["blockers"]
    assert (blocker.agent, blocker.note) == ("carol", "mine")
    with pytest.raises(dibs.HeldError):
        alice.leases.claim("a")
    assert not alice.leases.status("a")[0].free
    assert [lease.agent for lease in alice.leases.list()] == ["carol"]


def test_what_was_taken_from_another_session_is_not_told_as_ones_own(opener, space, alice, bob):
    alice.leases.claim("a")
    twin = opener.join(space, "alice")
    bob.leases.revoke("a")
    with pytest.raises(dibs.NotFoundError):
        twin.leases.release("a")
    with pytest.raises(dibs.NotFoundError):
        bob.leases.release("a")


def test_a_lease_can_be_claimed_again_after_it_was_taken_away(alice, bob, clock):
    first = alice.leases.claim("a", ttl_s=60)
    bob.leases.revoke("a")
    second = alice.leases.claim("a", ttl_s=60)
    assert second.epoch > first.epoch
    assert second.kept == ()
    with pytest.raises(dibs.StaleError):
        alice.leases.renew("a", epoch=first.epoch)
    assert alice.leases.renew("a")[0].epoch == second.epoch
    clock.advance(60)
    with pytest.raises(dibs.StaleError) as refusal:
        alice.leases.renew("a")
    assert "expired" in refusal.value.message


def test_the_rest_of_a_grant_stays(alice, bob):
    grant = alice.leases.claim("a", "b")
    bob.leases.revoke("a")
    assert [lease.resource for lease in alice.leases.renew(epoch=grant.epoch)] == ["b"]
    with pytest.raises(dibs.StaleError):
        alice.leases.release("a", "b")
    assert [lease.resource for lease in alice.leases.list()] == ["b"]


def test_a_block_that_lost_its_lease_to_a_person_says_so_at_its_end(alice, bob):
    with pytest.raises(dibs.StaleError), alice.lease("a", "b") as held:
        bob.leases.revoke("a")
        with pytest.raises(dibs.StaleError, match="a was taken away"):
            held.check()


@pytest.mark.parametrize(
    ("held", "named"),
    [("src", "src/a.py"), ("src/a.py", "src"), ("src/*.py", "src/a.py"), ("a.py", "*.py")],
)
def test_everything_that_overlaps_is_taken_away(alice, bob, held, named):
    alice.leases.claim(held, "elsewhere")
    assert [lease.resource for lease in bob.leases.revoke(named)] == [held]
    assert [lease.resource for lease in bob.leases.list()] == ["elsewhere"]
    assert bob.leases.claim(named).leases[0].agent == "bob"


def test_all_who_share_it_lose_it(alice, bob, carol):
    for sharer in (alice, bob):
        sharer.leases.claim("a", mode="shared")
    taken = carol.leases.revoke("a")
    assert {lease.agent for lease in taken} == {"alice", "bob"}
    assert carol.leases.claim("a").leases[0].mode == "exclusive"


def test_two_names_of_what_overlaps_take_it_once(alice, bob):
    alice.leases.claim("src")
    assert len(bob.leases.revoke("src/a.py", "src/b.py")) == 1
    assert len(bob.events.since(kind="lease.revoked")) == 1
    assert len(alice.messages.inbox()) == 1


def test_a_frozen_lease_of_a_person_is_taken_like_any_other(space, bob):
    person = space.join("person", shell=True)
    person.leases.claim("src", ttl_s=LONG_S, note="frozen: release day")
    assert bob.leases.revoke("src")[0].agent == "person"


def test_the_queue_is_served_in_the_same_transaction(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background.queued(bob, "a")
    before = carol.events.last()
    carol.leases.revoke("a")
    grant = result(waiter)
    assert grant.leases[0].agent == "bob"
    # The seq of that one write is the epoch of what it granted.
    assert grant.epoch == before + 1
    kinds = [(event.kind, event.agent) for event in carol.events.since(before, limit=3)]
    assert kinds == [
        ("lease.revoked", "carol"),
        ("message.sent", "carol"),
        ("lease.claimed", "bob"),
    ]


def test_those_who_wait_keep_their_place(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background.queued(bob, "a", ttl_s=LONG_S)
    # Taking it away gives no place ahead of the waiters.
    carol.leases.revoke("a")
    assert result(waiter).leases[0].agent == "bob"
    with pytest.raises(dibs.HeldError):
        carol.leases.claim("a")


def test_who_only_waits_has_nothing_to_lose(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background.queued(bob, "a", "b")
    with pytest.raises(dibs.NotFoundError):
        carol.leases.revoke("b")
    alice.leases.release("a")
    assert len(result(waiter).leases) == 2


def test_ones_own_lease_is_released_not_taken_away(alice, bob):
    alice.leases.claim("src/a.py")
    before = alice.events.last()
    for named in ("src/a.py", "src"):
        with pytest.raises(dibs.StateError) as refusal:
            alice.leases.revoke(named)
        assert "src/a.py" in refusal.value.message
        assert refusal.value.next == "release it"
    assert alice.events.last() == before
    # Of what overlaps, only what others hold is in one's way.
    bob.leases.claim("src/b.py")
    assert [lease.agent for lease in alice.leases.revoke("src")] == ["bob"]
    assert [lease.agent for lease in bob.leases.list()] == ["alice"]


def test_what_nobody_holds_cannot_be_taken_away(opener: Opener, alice, bob, clock):
    alice.leases.claim("a", ttl_s=60)
    opener.killed_holder("dead")
    bob.leases.claim("lapsed", ttl_s=1)
    clock.advance(30 if opener.by_beats else 1)
    before = alice.events.last()
    for named in (["free"], ["lapsed"], ["dead"], ["a", "free"]):
        with pytest.raises(dibs.NotFoundError) as refusal:
            bob.leases.revoke(*named)
        assert named[-1] in refusal.value.message
    assert alice.events.last() == before
    assert alice.leases.renew("a")


@direct("it changes a row behind the store's back")
def test_a_row_that_was_made_without_dibs_can_be_taken_away(opener: Opener, alice, bob):
    alice.leases.claim("a", ttl_s=600)
    opener.tamper("UPDATE lease SET epoch = epoch + 1 WHERE space = %(space)s")
    assert bob.leases.revoke("a")[0].agent == "alice"
    assert bob.agents.verify() == ()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda agent: agent.leases.revoke(),
        lambda agent: agent.leases.revoke(*(f"port:{number}" for number in range(201))),
        lambda agent: agent.leases.revoke("../outside"),
        lambda agent: agent.leases.revoke("a", reason="x" * 2_001),
        lambda agent: agent.leases.revoke("a", reason="\x1b[0m"),
        lambda agent: agent.work.revoke("t", reason="x" * 2_001),
        lambda agent: agent.work.revoke(""),
    ],
)
def test_a_wrong_revocation_is_refused_and_changes_nothing(alice, bob, wrong):
    alice.leases.claim("a")
    alice.work.claim("t")
    before = bob.events.last()
    with pytest.raises(dibs.InvalidError):
        wrong(bob)
    assert bob.events.last() == before


def test_only_a_session_can_take_something_away(space, alice):
    alice.leases.claim("a")
    alice.work.claim("t")
    with pytest.raises(dibs.NotYoursError):
        space.leases.revoke("a")
    with pytest.raises(dibs.NotYoursError):
        space.work.revoke("t")


def test_a_repeated_call_does_not_take_it_from_the_next_holder(alice, bob, carol):
    alice.leases.claim("a")
    first = bob.leases.revoke("a", idempotency_key="key")
    carol.leases.claim("a")
    assert bob.leases.revoke("a", idempotency_key="key") == first
    assert [lease.agent for lease in bob.leases.list()] == ["carol"]


# Tasks


def test_a_task_that_is_taken_away_is_available_and_costs_no_attempt(alice, bob, carol):
    alice.work.add("t", max_attempts=1)
    claimed = alice.work.claim("t", leases=["f", "g"])
    before = bob.events.last()
    task = bob.work.revoke("t", reason="alice is on holiday")
    assert (task.state, task.attempts, task.reason) == ("available", 0, "alice is on holiday")
    assert (task.session, task.due_in_ms, task.leases) == (None, None, ())
    assert bob.work.show("t") == task
    assert bob.leases.list() == ()
    event, *files, told = bob.events.since(before)
    assert (event.kind, event.subject) == ("task.revoked", "t")
    assert (event.agent, event.session) == ("bob", bob.session)
    assert event.data == {
        "holder": "alice",
        "holder_session": alice.session,
        "epoch": claimed.epoch,
        "reason": "alice is on holiday",
    }
    assert {(one.kind, one.agent, one.subject) for one in files} == {
        ("lease.revoked", "bob", "f"),
        ("lease.revoked", "bob", "g"),
    }
    assert (told.kind, told.subject) == ("message.sent", "alice")
    assert carol.work.next().id == "t"
    assert carol.agents.verify() == ()


def test_the_claimer_is_told_and_refused(alice, bob):
    epoch = alice.work.claim("t", leases=["f"]).epoch
    bob.work.revoke("t", reason="r")
    [message] = alice.messages.inbox()
    assert (message.sender, message.body) == ("bob", "your task t was taken away: r")
    before = alice.events.last()
    for verb in ("renew", "complete", "fail", "abandon"):
        for options in ({}, {"epoch": epoch}):
            with pytest.raises(dibs.StaleError):
                getattr(alice.work, verb)("t", **options)
    with pytest.raises(dibs.StaleError, match="bob took away your lease"):
        alice.leases.renew("f")
    assert alice.events.last() == before
    assert alice.work.claim("t").epoch > epoch


def test_what_was_held_for_another_reason_stays_when_a_task_is_taken_away(alice, bob):
    alice.leases.claim("mine")
    alice.work.claim("t", leases=["mine", "with"])
    bob.work.revoke("t")
    assert [lease.resource for lease in alice.leases.list()] == ["mine"]


def test_the_files_of_a_task_that_is_taken_away_go_to_those_who_wait(alice, bob, carol, background):
    alice.work.claim("t", leases=["f"], ttl_s=LONG_S)
    waiter = background.queued(bob, "f")
    carol.work.revoke("t")
    assert result(waiter).leases[0].agent == "bob"


def test_who_waits_for_work_gets_what_was_taken_away(alice, bob, carol, background):
    alice.work.claim("t", ttl_s=LONG_S)
    waiter = background(bob.work.next, wait_s=86_400)
    carol.work.revoke("t")
    assert result(waiter).id == "t"


def test_a_block_that_lost_its_task_to_a_person_says_so_at_its_end(alice, bob):
    alice.work.add("t")
    with pytest.raises(dibs.StaleError), alice.next_task() as held:
        bob.work.revoke("t")
        with pytest.raises(dibs.StaleError):
            held.check()
    assert bob.work.show("t").state == "available"


@pytest.mark.parametrize(
    "state", ["available", "blocked", "completed", "failed", "dead", "cancelled", "lapsed"]
)
def test_a_task_that_nobody_has_claimed_cannot_be_taken_away(alice, bob, clock, state):
    alice.work.add("t", after=["other"] if state == "blocked" else [])
    if state not in ("available", "blocked"):
        alice.work.claim("t", ttl_s=60)
    if state == "completed":
        alice.work.complete("t")
    elif state in ("failed", "dead"):
        alice.work.fail("t", retry=state == "failed")
    elif state == "cancelled":
        alice.work.cancel("t")
    elif state == "lapsed":
        clock.advance(60)
    before = bob.events.last()
    with pytest.raises(dibs.StateError) as refusal:
        bob.work.revoke("t")
    assert refusal.value.details["task"].id == "t"
    assert bob.events.last() == before


def test_the_task_of_a_dead_claimer_need_not_be_taken_away(opener: Opener, alice, clock):
    opener.killed_holder(task="t")
    clock.advance(30 if opener.by_beats else 0)
    with pytest.raises(dibs.StateError, match="nobody has claimed t; it is available"):
        alice.work.revoke("t")
    assert alice.work.claim("t").attempts == 2


def test_ones_own_task_is_abandoned_and_an_unknown_one_is_not_found(alice, bob):
    alice.work.claim("t")
    with pytest.raises(dibs.StateError) as refusal:
        alice.work.revoke("t")
    assert refusal.value.next == "abandon it"
    with pytest.raises(dibs.NotFoundError):
        bob.work.revoke("nothing")
