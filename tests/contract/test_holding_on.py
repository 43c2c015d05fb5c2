"""What a session holds already: claimed again, nested, waited for, and tied to a task."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import dibs
from tests.contract.waiting import result
from tests.contract.world import direct


def test_a_nested_block_leaves_the_outer_lease_alone(alice, bob):
    with alice.lease("a"):
        with alice.lease("a", "b") as inner:
            assert inner.grant.kept == ("a",)
        assert [lease.resource for lease in alice.leases.list()] == ["a"]
        with pytest.raises(dibs.HeldError):
            bob.leases.claim("a")
    assert bob.leases.claim("a")


def test_a_nested_block_around_the_same_leaves_it_too(alice):
    with alice.lease("a"):
        with alice.lease("a"):
            pass
        assert [lease.resource for lease in alice.leases.list()] == ["a"]
    assert alice.leases.list() == ()


def test_a_block_leaves_what_was_claimed_before_it(alice):
    alice.leases.claim("a", ttl_s=1800)
    with alice.lease("a", ttl_s=5):
        pass
    assert alice.leases.list()[0].expires_in_ms > 1_700_000


def test_claiming_again_for_a_shorter_time_takes_nothing_away(alice):
    alice.leases.claim("a", ttl_s=1800)
    assert alice.leases.claim("a", ttl_s=5).leases[0].expires_in_ms == 1_800_000
    assert alice.leases.renew("a", ttl_s=5)[0].expires_in_ms == 5_000


def test_a_task_does_not_take_along_what_was_held_before_it(alice):
    alice.leases.claim("a")
    alice.work.claim("t", leases=["a", "b"])
    alice.work.complete("t")
    assert [lease.resource for lease in alice.leases.list()] == ["a"]


def test_what_lies_in_what_one_holds_can_be_claimed_although_somebody_waits(alice, bob, background):
    alice.leases.claim("src")
    waiter = background.queued(bob, "src", wait_s=3_600)
    assert alice.leases.claim("src/a.py", "src/*.md").leases
    alice.leases.release(everything=True)
    assert result(waiter).leases[0].agent == "bob"


@direct("it looks into the store itself")
def test_a_long_chain_of_waiters_is_searched_to_its_end(alice, space):
    """The cycle is found however many sessions are in it; nothing recurses."""
    from dibs.nouns.leases.grants import named
    from dibs.nouns.leases.queue import Ticket
    from dibs.space.scope import Scope
    from dibs.storage.store import Caller

    length = 150
    chain = [space.join(f"a{number}", shell=True) for number in range(length)]
    for number, agent in enumerate(chain):
        agent.leases.claim(f"r:{number}")
    for number, agent in enumerate(chain[:-1]):
        scope: Scope = agent.scope
        caller: Caller = scope.caller
        with space.scope.store.write(caller) as tx:
            Ticket(scope, tx, named(scope, [f"r:{number + 1}"], "exclusive"), 60_000, "", 5, tx.now)
    with pytest.raises(dibs.DeadlockError) as refusal:
        chain[-1].leases.claim("r:0", wait_s=5)
    assert len(refusal.value.cycle) == length + 1


def test_a_new_session_is_not_told_that_it_holds_what_an_old_one_did(space, bob):
    first = space.join("erin", ttl_s=86_400)
    first.leases.claim("a", idempotency_key="k")
    first.close()
    bob.leases.claim("a")
    again = space.join("erin", ttl_s=86_400)
    with pytest.raises(dibs.InvalidError):
        again.leases.claim("a", idempotency_key="k")


def test_one_file_is_one_space_however_it_is_named(tmp_path: Path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    user = str(tmp_path / "user")
    with dibs.open(user_dir=user) as one, dibs.open(".dibs/dibs.db", user_dir=user) as other:
        assert one.space == other.space == "main"
        one.join("alice").leases.claim("f")
        with pytest.raises(dibs.HeldError):
            other.join("bob").leases.claim("f")


def test_a_closed_store_says_that_it_is_closed(sqlite_url, tmp_path):
    space = dibs.open(sqlite_url, space="s", user_dir=str(tmp_path))
    alice = space.join("alice")
    space.close()
    for call in (lambda: alice.leases.claim("a"), alice.leases.list):
        with pytest.raises(dibs.ClosedError):
            call()
    alice.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_that_closes_what_it_inherited_harms_nobody(sqlite_url, tmp_path):
    space = dibs.open(sqlite_url, space="s", user_dir=str(tmp_path))
    agents = [space.join(f"a{number}") for number in range(12)]
    agents[0].leases.claim("a")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            own = dibs.open(sqlite_url, space="s", user_dir=str(tmp_path))
            mine = own.join("child")
            mine.leases.claim("c")
            for agent in agents:
                agent.close()
            space.close()
            mine.leases.renew("c")
            alive = own.agents.list()
            code = 0 if len(alive) == 13 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other = dibs.open(sqlite_url, space="s", user_dir=str(tmp_path))
    with pytest.raises(dibs.HeldError):
        other.join("bob").leases.claim("a")
    other.close()
    agents[0].leases.renew("a")
    space.close()


def test_a_block_that_raises_fails_its_task_whatever_the_error_says(alice):
    alice.work.add("t")
    with pytest.raises(ValueError, match="odd"), alice.next_task():
        raise ValueError("odd \x1b[31m\udc80 words\nin two lines")
    task = alice.work.show("t")
    assert (task.state, task.attempts) == ("failed", 1)
    assert task.reason.startswith("ValueError: odd")


def test_a_block_that_ends_completes_its_task(alice):
    alice.work.add("t", payload=3)
    with alice.next_task() as held:
        held.check()
        held.result = held.task.payload * 2
    assert alice.work.show("t").result == 6
