"""A claim for one checkout: what is held in another worktree is not in its way."""

from __future__ import annotations

import os

import pytest

import dibs
from tests.contract.waiting import Background, result


def test_who_claims_here_is_not_stopped_by_another_worktree(alice, bob, linked):
    alice.leases.claim("src/a.py")
    with pytest.raises(dibs.HeldError):
        bob.leases.claim(f"{linked}/src/a.py")
    [lease] = bob.leases.claim(f"{linked}/src/a.py", here=True).leases
    assert lease.resource == "src/a.py"
    assert lease.checkout == f"{os.uname().nodename}:{linked}"
    assert [one.agent for one in alice.leases.list()] == ["alice", "bob"]


def test_in_its_own_worktree_a_claim_here_keeps_all_others_out(alice, bob, carol, linked):
    alice.leases.claim("src/a.py")
    bob.leases.claim(f"{linked}/src/a.py", here=True)
    for name in ("src/a.py", "src", "*/*.py", "."):
        with pytest.raises(dibs.HeldError):
            carol.leases.claim(f"{linked}/{name}", here=True)
    assert carol.leases.claim(f"{linked}/src/b.py", here=True)


def test_who_claims_for_all_worktrees_is_stopped_by_each(alice, bob, carol, linked):
    bob.leases.claim(f"{linked}/src/a.py", here=True)
    for name in ("src/a.py", "src"):
        with pytest.raises(dibs.HeldError):
            carol.leases.claim(name)
    assert carol.leases.claim("src/a.py", here=True)
    assert alice.leases.status("src/a.py")[0].free is False


def test_named_in_two_worktrees_at_once_it_is_claimed_in_all(alice, bob, carol, linked):
    both = ("src/a.py", f"{linked}/src/a.py")
    [lease] = alice.leases.claim(*both, here=True).leases
    assert lease.checkout is None
    for one in both:
        with pytest.raises(dibs.HeldError):
            bob.leases.claim(one, here=True)
    alice.leases.release("src/a.py")
    bob.leases.claim(both[1], here=True)
    with pytest.raises(dibs.HeldError):
        carol.leases.claim(*both, here=True)


def test_a_name_has_no_worktree(alice, bob, linked):
    alice.leases.claim("port:1", here=True)
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("port:1", here=True)


def test_a_wait_here_is_for_this_worktree_only(
    alice, bob, carol, linked, background: Background
) -> None:
    alice.leases.claim("src/a.py")
    bob.leases.claim(f"{linked}/src/a.py", here=True)
    waiter = background.queued(carol, f"{linked}/src/a.py", here=True)
    bob.leases.release("src/a.py")
    assert result(waiter).leases[0].agent == "carol"
