"""Giving a lease to another agent, and taking one at once: the two ways past the queue."""

from __future__ import annotations

import pytest

import dibs
from tests.contract.waiting import result
from tests.contract.world import LONG_S, direct

# Giving


def test_a_lease_that_is_given_is_the_receivers_with_a_new_epoch_and_note(alice, bob, carol):
    [lease] = alice.leases.claim("src/a.py", note="fix the parser", ttl_s=600).leases
    before = bob.events.last()
    [given] = alice.leases.transfer("src/a.py", to="bob", note="the tests are yours")
    assert (given.agent, given.session, given.note) == ("bob", bob.session, "the tests are yours")
    assert given.epoch > lease.epoch
    assert given.ttl_ms == lease.ttl_ms
    assert carol.leases.list() == (given,)
    gone, held, _ = carol.events.since(before)
    assert (gone.kind, gone.agent, gone.subject) == ("lease.transferred", "alice", "src/a.py")
    to = {"to": "bob", "to_session": bob.session}
    assert gone.data == {**to, "epoch": lease.epoch, "note": "the tests are yours", "kind": "dir"}
    assert (held.kind, held.agent, held.session) == ("lease.claimed", "bob", bob.session)
    assert carol.agents.verify() == ()


def test_without_a_note_the_old_one_stays(alice, bob):
    alice.leases.claim("a", note="fix the parser")
    assert alice.leases.transfer("a", to="bob")[0].note == "fix the parser"


def test_the_receiver_is_told_and_can_use_it_at_once(alice, bob):
    alice.leases.claim("a", "b")
    given = alice.leases.transfer("a", "b", to="bob", note="go on")
    [message] = bob.messages.inbox()
    assert (message.sender, message.body) == ("alice", "a, b are yours now: go on")
    assert bob.leases.renew("a", "b", epoch=given[0].epoch)
    bob.leases.release("a", "b")


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_the_giver_has_it_no_more(alice, bob, verb):
    grant = alice.leases.claim("a")
    alice.leases.transfer("a", to="bob")
    with pytest.raises(dibs.StaleError):
        getattr(alice.leases, verb)("a", epoch=grant.epoch)
    with pytest.raises(dibs.NotYoursError):
        getattr(alice.leases, verb)("a")
    with pytest.raises(dibs.HeldError):
        alice.leases.claim("a")


def test_nothing_is_given_to_somebody_who_is_gone(alice, bob, carol):
    alice.leases.claim("a")
    bob.agents.leave()
    last = alice.events.last()
    for gone in ("bob", "nobody"):
        with pytest.raises(dibs.StateError, match="has no session here"):
            alice.leases.transfer("a", to=gone)
    assert alice.events.last() == last
    assert [lease.agent for lease in carol.leases.list()] == ["alice"]


def test_nothing_is_given_to_oneself(alice):
    alice.leases.claim("a")
    with pytest.raises(dibs.StateError, match="this session itself"):
        alice.leases.transfer("a", to="alice")


def test_only_what_one_holds_can_be_given_all_of_it_or_nothing(alice, bob, clock):
    bob.leases.claim("b")
    alice.leases.claim("a")
    last = alice.events.last()
    with pytest.raises(dibs.NotYoursError):
        alice.leases.transfer("a", "b", to="bob")
    with pytest.raises(dibs.NotFoundError):
        alice.leases.transfer("a", "c", to="bob")
    assert alice.events.last() == last
    epoch = alice.leases.claim("d", ttl_s=1).epoch
    clock.advance(2)
    with pytest.raises(dibs.StaleError):
        alice.leases.transfer("d", to="bob", epoch=epoch)


def test_who_waits_goes_on_waiting_and_gets_it_from_the_receiver(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background.queued(carol, "a")
    alice.leases.transfer("a", to="bob")
    assert [one.agent for one in bob.leases.waiting()] == ["carol"]
    bob.leases.release("a")
    assert result(waiter).leases[0].agent == "carol"


def test_a_receiver_who_waited_for_it_is_served_by_it(alice, bob, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background.queued(bob, "a")
    [given] = alice.leases.transfer("a", to="bob")
    assert result(waiter).leases[0].session == bob.session
    assert [lease.epoch for lease in bob.leases.list()] == [given.epoch]
    assert bob.leases.waiting() == ()


def test_a_shared_lease_goes_to_one_who_shares_already(alice, bob):
    alice.leases.claim("a", mode="shared")
    bob.leases.claim("a", mode="shared")
    alice.leases.transfer("a", to="bob")
    assert [(lease.agent, lease.mode) for lease in bob.leases.list()] == [("bob", "shared")]


def test_a_file_of_a_task_that_was_given_away_outlives_the_task(alice, bob):
    alice.work.claim("t", leases=["a"])
    alice.leases.transfer("a", to="bob")
    assert alice.work.complete("t").state == "completed"
    assert [lease.agent for lease in bob.leases.list()] == ["bob"]


def test_a_receiver_who_waits_behind_others_is_served_too(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    first = background.queued(carol, "a")
    second = background.queued(bob, "a")
    alice.leases.transfer("a", to="bob")
    assert result(second).leases[0].session == bob.session
    bob.leases.release("a")
    assert result(first).leases[0].session == carol.session


def test_a_gift_that_would_close_a_cycle_of_waits_is_refused(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    carol.leases.claim("x", ttl_s=LONG_S)
    first = background.queued(carol, "a")
    second = background.queued(bob, "x")
    last = alice.events.last()
    with pytest.raises(dibs.DeadlockError):
        alice.leases.transfer("a", to="bob")
    assert alice.events.last() == last
    alice.leases.release("a")
    assert result(first).leases[0].session == carol.session
    carol.leases.release("x")
    assert result(second).leases[0].session == bob.session


def test_a_gift_is_always_a_new_grant(alice, bob):
    old = bob.leases.claim("a", mode="shared").epoch
    alice.leases.claim("a", mode="shared")
    [given] = alice.leases.transfer("a", to="bob")
    assert given.epoch > old
    with pytest.raises(dibs.StaleError):
        bob.leases.renew("a", epoch=old)


def test_a_gift_goes_to_a_session_that_a_process_stays_behind(space, alice, bob):
    space.join("bob", shell=True)  # later, but only of commands
    alice.leases.claim("a")
    [given] = alice.leases.transfer("a", to="bob")
    assert given.session == bob.session


def test_commands_alone_do_not_stand_for_an_agent_that_died(space, alice, bob, clock):
    shell = space.join("bob", shell=True)
    alice.leases.claim("a")
    bob.agents.leave()
    [given] = alice.leases.transfer("a", to="bob")
    assert given.session == shell.session


def test_another_session_of_the_same_name_can_be_given_something(opener, space, alice):
    other = opener.join(space, "alice")
    alice.leases.claim("a")
    assert alice.leases.transfer("a", to="alice")[0].session == other.session


# Taking


def test_what_is_taken_is_revoked_and_granted_in_one_step(alice, bob, carol):
    [lease] = alice.leases.claim("src/a.py", note="fix the parser").leases
    before = bob.events.last()
    grant = bob.leases.take("src/a.py", note="release", reason="the release needs it")
    assert grant.epoch > lease.epoch
    assert [(one.agent, one.note) for one in carol.leases.list()] == [("bob", "release")]
    kinds = [event.kind for event in carol.events.since(before)]
    assert kinds == ["lease.revoked", "lease.claimed", "message.sent"]
    [told] = alice.messages.inbox()
    assert told.body == "your lease on src/a.py was taken away: the release needs it"
    with pytest.raises(dibs.StaleError, match="bob took away your lease"):
        alice.leases.renew("src/a.py")
    assert carol.agents.verify() == ()


def test_who_takes_it_comes_before_all_who_wait(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background.queued(carol, "a")
    bob.leases.take("a")
    assert [lease.agent for lease in alice.leases.list()] == ["bob"]
    assert [one.agent for one in alice.leases.waiting()] == ["carol"]
    bob.leases.release("a")
    assert result(waiter).leases[0].agent == "carol"


def test_what_is_free_or_ones_own_is_simply_claimed(alice, bob):
    mine = alice.leases.claim("a")
    assert alice.leases.take("a").epoch == mine.epoch
    assert alice.leases.take("b").leases[0].agent == "alice"
    assert bob.messages.inbox() == ()


def test_everything_that_overlaps_is_taken_and_the_rest_of_it_goes_to_who_waits(
    alice, bob, carol, background
):
    alice.leases.claim("src", ttl_s=LONG_S)
    waiter = background.queued(carol, "src/b.py")
    bob.leases.take("src/a.py")
    assert result(waiter).leases[0].agent == "carol"
    assert {(one.resource, one.agent) for one in alice.leases.list()} == {
        ("src/a.py", "bob"),
        ("src/b.py", "carol"),
    }


def test_what_is_shared_is_taken_from_all_who_share(alice, bob, carol):
    alice.leases.claim("a", mode="shared")
    bob.leases.claim("a", mode="shared")
    carol.leases.take("a")
    assert [(one.agent, one.mode) for one in carol.leases.list()] == [("carol", "exclusive")]
    assert len(alice.messages.inbox()) == len(bob.messages.inbox()) == 1


@direct("a daemon's clock does not stand still")
def test_who_waits_for_a_lapsed_lease_comes_after_the_person(alice, bob, carol, background, clock):
    alice.leases.claim("a", ttl_s=5)
    clock.held = True
    waiter = background.queued(carol, "a")
    clock.advance(6)
    bob.leases.take("a")
    assert [lease.agent for lease in bob.leases.list()] == ["bob"]
    bob.leases.release("a")
    assert result(waiter).leases[0].agent == "carol"


def test_a_lapsed_lease_is_nobodys_loss(alice, bob, clock):
    alice.leases.claim("a", ttl_s=1)
    clock.advance(2)
    bob.leases.take("a")
    assert alice.messages.inbox() == ()
