"""Long queues: strict order, whoever is passed over for a reason, and that waiting is cheap."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import dibs
from tests.contract.waiting import Background, eventually, result
from tests.contract.world import LONG_S, Opener

MANY = 60


def crowd(opener: Opener, space: dibs.Dibs, number: int = MANY) -> list[dibs.Agent]:
    return [opener.join(space, f"w{one}") for one in range(number)]


def granted(agent: dibs.Agent, seq: int) -> list[str]:
    """Who was granted something after a seq, in that order."""
    return [str(event.agent) for event in agent.events.since(seq, kind="lease.claimed")]


def test_sixty_who_ask_at_once_are_all_queued_and_served_in_order(
    opener, elsewhere, alice, background: Background
):
    alice.leases.claim("port:1", ttl_s=LONG_S)
    agents, before = crowd(opener, elsewhere), alice.events.last()

    def work(agent: dibs.Agent) -> None:
        grant = agent.leases.claim("port:1", wait_s=3600)
        agent.leases.release("port:1", epoch=grant.epoch)

    done = [background(work, agent) for agent in agents]
    eventually(lambda: len(alice.leases.waiting()) == MANY)
    asked = [event.agent for event in alice.events.since(before, kind="lease.queued")]
    before = alice.events.last()
    alice.leases.release("port:1")
    for one in done:
        result(one)
    assert granted(alice, before) == asked


def test_the_wait_of_many_ends_with_a_timeout_for_each(opener, elsewhere, alice, clock, background):
    alice.leases.claim("port:1", ttl_s=LONG_S)
    waits = [background(one.leases.claim, "port:1", wait_s=5) for one in crowd(opener, elsewhere)]
    eventually(lambda: len(alice.leases.waiting()) == MANY)
    clock.advance(6)
    clock.held = False
    for one in waits:
        error = one.exception(30)
        assert isinstance(error, dibs.TimeoutError)
        assert error.details["blockers"][0].agent == "alice"
    assert alice.leases.waiting() == ()


def test_only_the_one_who_is_served_looks(opener, elsewhere, alice, background):
    """Whoever waits behind another is not woken by what that one does."""
    if opener.through_daemon:
        return  # its threads cannot be counted from here
    alice.leases.claim("port:1", ttl_s=LONG_S)
    agents = crowd(opener, elsewhere, 20)
    for agent in agents:
        background.queued(agent, "port:1", ttl_s=LONG_S)
    store = elsewhere.scope.store
    looks, read = [], store.read

    def counted(*args):
        looks.append(time.monotonic())
        return read(*args)

    store.read = counted
    before = alice.events.last()
    alice.leases.release("port:1")
    eventually(lambda: granted(alice, before) == ["w0"])
    time.sleep(1.2)
    # The one that is served, and each half second the first waiter.
    assert 1 <= len(looks) <= 6


def test_a_wait_of_many_seconds_stays_alive_where_no_process_is_seen(
    opener, elsewhere, alice, clock, background
):
    """A ticket lives for 15 s without a sign, wherever its waiter sleeps."""
    alice.leases.claim("port:1", ttl_s=LONG_S)
    waits = [background.queued(one, "port:1") for one in crowd(opener, elsewhere, 3)]
    for _ in range(5):
        clock.advance(6)
        time.sleep(0.7)
    alice.leases.release("port:1")
    assert result(waits[0]).leases[0].agent == "w0"
    assert len(alice.leases.waiting()) == 2


def test_by_another_name_of_the_file_nobody_overtakes(
    opener, alice, bob, carol, checkout, background
):
    (checkout / "a").write_text("x")
    os.link(checkout / "a", checkout / "b")
    alice.leases.claim("a", ttl_s=LONG_S)
    first = background.queued(bob, "a", ttl_s=LONG_S)
    second = background.queued(carol, "b", ttl_s=LONG_S)
    alice.leases.release("a")
    assert result(first).leases[0].agent == "bob"
    assert not second.done()
    bob.leases.release("a")
    assert result(second).leases[0].agent == "carol"


def test_behind_one_who_takes_it_another_worktree_is_served(
    opener, elsewhere, alice, bob, carol, linked: Path, background
):
    """Who wants it here only waits for nobody in another checkout."""
    alice.leases.claim(f"{linked}/src/a.py", here=True, ttl_s=LONG_S)
    first = background.queued(bob, "src/a.py", ttl_s=LONG_S)
    behind = [background.queued(one, "src/a.py") for one in crowd(opener, elsewhere, 3)]
    last = background.queued(carol, f"{linked}/src/a.py", here=True, ttl_s=LONG_S)
    before = alice.events.last()
    alice.leases.release(f"{linked}/src/a.py")
    assert result(first).leases[0].agent == "bob"
    assert result(last).leases[0].agent == "carol"
    assert granted(alice, before) == ["bob", "carol"]
    assert not any(one.done() for one in behind)


def test_what_lapses_in_another_worktree_is_noticed_by_those_who_want_it_there(
    opener, elsewhere, alice, bob, carol, linked: Path, background, clock
):
    """Who waits for the same name in this checkout does not look for them."""
    bob.leases.claim("src/a.py", here=True, ttl_s=LONG_S)
    carol.leases.claim(f"{linked}/src/a.py", here=True, ttl_s=10)
    here, there = crowd(opener, elsewhere, 2)
    first = background.queued(here, "src/a.py", here=True, ttl_s=LONG_S)
    second = background.queued(there, f"{linked}/src/a.py", here=True, ttl_s=LONG_S)
    clock.advance(11)  # less than a ticket lives without a sign of its waiter
    assert second.result(5).leases[0].agent == "w1"
    assert not first.done()


def test_who_waits_twice_is_served_twice(alice, bob, carol, background):
    alice.leases.claim("src", ttl_s=LONG_S)
    whole = background.queued(bob, "src", ttl_s=LONG_S)
    again = background.queued(bob, "src/a.py", ttl_s=LONG_S)
    other = background.queued(carol, "src", ttl_s=LONG_S)
    alice.leases.release("src")
    assert result(whole).leases[0].resource == "src"
    assert result(again).leases[0].resource == "src/a.py"
    assert not other.done()


def test_all_who_share_are_served_at_once_up_to_the_next_writer(
    opener, elsewhere, alice, bob, carol, background
):
    alice.leases.claim("port:1", ttl_s=LONG_S)
    readers = [
        background.queued(one, "port:1", mode="shared", ttl_s=LONG_S)
        for one in crowd(opener, elsewhere, 12)
    ]
    writer = background.queued(bob, "port:1", ttl_s=LONG_S)
    late = background.queued(carol, "port:1", mode="shared", ttl_s=LONG_S)
    alice.leases.release("port:1")
    for one in readers:
        assert result(one).leases[0].mode == "shared"
    assert not writer.done() and not late.done()


def test_all_whose_files_are_freed_with_their_folder_are_served(
    opener, elsewhere, alice, background
):
    """Each waits for several files, so a page of the queue has more rows than tickets."""
    alice.leases.claim("src", ttl_s=LONG_S)
    for agent in crowd(opener, elsewhere, 12):
        background.queued(agent, *(f"src/{agent.name}/{one}" for one in "abc"), ttl_s=LONG_S)
    before = alice.events.last()
    alice.leases.release("src")
    assert granted(alice, before) == [f"w{one}" for one in range(12) for _ in "abc"]


def test_a_deadlock_at_the_end_of_a_long_queue_is_refused(
    opener, elsewhere, alice, bob, carol, background
):
    """Also where the cycle goes through the last of many waiters for what is held."""
    bob.leases.claim("port:2", ttl_s=LONG_S)
    alice.leases.claim("port:1", ttl_s=LONG_S)
    for agent in crowd(opener, elsewhere, 20):
        background.queued(agent, "port:1")
    carol.leases.claim("port:3", ttl_s=LONG_S)
    background.queued(carol, "port:1", "port:2")
    with pytest.raises(dibs.DeadlockError) as refusal:
        alice.leases.claim("port:3", wait_s=3600)
    assert refusal.value.cycle[0] == refusal.value.cycle[-1] == "alice"
    # Nobody waits for what carol's neighbour holds: the same queue, but no cycle.
    dave = opener.join(elsewhere, "dave")
    dave.leases.claim("port:4", ttl_s=LONG_S)
    assert not background.queued(dave, "port:1").done()


def test_the_waits_of_a_space_that_is_closed_end(opener, elsewhere, alice, background):
    if opener.through_daemon:
        return  # there the daemon waits
    alice.leases.claim("port:1", ttl_s=LONG_S)
    waits = [background.queued(one, "port:1") for one in crowd(opener, elsewhere, 3)]
    before = time.monotonic()
    elsewhere.close()
    for one in waits:
        assert isinstance(one.exception(30), dibs.ClosedError)
    assert time.monotonic() - before < 5
