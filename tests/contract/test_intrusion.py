"""What dibs last saw in a leased file, who is told when somebody else changed it, and where."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dibs
from dibs.system import process_name
from tests.contract.world import LONG_S

ONE, TWO, THREE = (hashlib.sha256(text).hexdigest() for text in (b"one", b"two", b"three"))


@pytest.fixture
def file(checkout: Path) -> Path:
    (checkout / "a.py").write_bytes(b"one")
    return checkout / "a.py"


def test_what_the_holder_has_made_is_seen_as_its_own(alice, bob, file):
    alice.leases.claim("a.py")
    file.write_bytes(b"two")
    [lease] = alice.leases.see("a.py")
    assert lease.content_hash == TWO
    assert bob.leases.list()[0].content_hash == TWO
    assert [event.subject for event in bob.events.since(kind="lease.seen")] == ["a.py"]


def test_only_the_holder_can_say_that_a_change_was_its_own(alice, bob, file):
    alice.leases.claim("a.py")
    file.write_bytes(b"two")
    with pytest.raises(dibs.NotYoursError):
        bob.leases.see("a.py")
    with pytest.raises(dibs.NotFoundError):
        bob.leases.see("b.py")
    assert alice.leases.list()[0].content_hash == ONE


def test_to_claim_again_does_not_hide_what_somebody_else_did(alice, file):
    alice.leases.claim("a.py")
    file.write_bytes(b"two")
    assert alice.leases.claim("a.py").leases[0].content_hash == ONE


def test_an_intrusion_is_told_to_the_holder_and_to_those_who_may_have_done_it(
    alice, bob, carol, file
):
    alice.leases.claim("a.py", note="the parser")
    file.write_bytes(b"two")
    lease = bob.leases.report("a.py", was=ONE, by=["bob", "carol"], doing="python fix.py")
    assert (lease.agent, lease.content_hash) == ("alice", TWO)
    [told] = alice.messages.inbox()
    assert told.sender == "bob"
    assert 'changed by bob or carol ("python fix.py")' in told.body
    assert "dibs recover a.py" in told.body
    [warned] = carol.messages.inbox()
    assert 'held by alice (note: "the parser")' in warned.body
    assert bob.messages.inbox() == ()  # it reports what it knows
    [event] = alice.events.since(kind="lease.intruded")
    assert (event.agent, event.subject) == ("bob", "a.py")
    assert (event.data["holder"], event.data["was"], event.data["now"]) == ("alice", ONE, TWO)
    assert event.data["by"] == ["bob", "carol"]


def test_each_change_is_reported_once(alice, bob, carol, file):
    alice.leases.claim("a.py")
    file.write_bytes(b"two")
    bob.leases.report("a.py", was=ONE, by=["bob"])
    before = alice.events.last()
    with pytest.raises(dibs.StaleError):
        carol.leases.report("a.py", was=ONE, by=["bob"])
    assert alice.events.last() == before
    file.write_bytes(b"three")
    assert carol.leases.report("a.py", was=TWO, by=["bob"]).content_hash == THREE


def test_what_nobody_changed_or_holds_cannot_be_reported(alice, bob, file):
    with pytest.raises(dibs.NotFoundError):
        bob.leases.report("a.py", was=ONE)
    alice.leases.claim("a.py")
    with pytest.raises(dibs.StaleError):
        bob.leases.report("a.py", was=ONE)
    alice.leases.release("a.py")
    alice.leases.claim("a.py", mode="shared")
    file.write_bytes(b"two")
    with pytest.raises(dibs.NotFoundError):
        bob.leases.report("a.py", was=ONE)


def test_a_file_that_appears_or_disappears_is_a_change_too(alice, bob, file, checkout):
    alice.leases.claim("a.py", "new.py")
    file.unlink()
    assert bob.leases.report("a.py", was=ONE, by=["bob"]).content_hash is None
    (checkout / "new.py").write_bytes(b"one")
    assert bob.leases.report("new.py", by=["bob"]).content_hash == ONE


def test_a_lease_says_in_which_checkout_it_was_claimed(alice, bob, checkout):
    alice.leases.claim("a.py", "src/*.py", "port:1")
    where = {lease.resource: lease.checkout for lease in bob.leases.list()}
    assert where == {
        "a.py": f"{os.uname().nodename}:{checkout}",
        "src/*.py": f"{os.uname().nodename}:{checkout}",
        "port:1": None,
    }
    with pytest.raises(dibs.HeldError) as refusal:
        bob.leases.claim("a.py")
    assert refusal.value.details["blockers"][0].checkout == where["a.py"]


def test_a_shell_session_ends_with_the_process_it_is_bound_to(space, bob, opener):
    client = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process = process_name(client.pid)
        hook = space.join("alice", client="claude:1", shell=True, process=process)
        hook.leases.claim("a", ttl_s=LONG_S)
        with pytest.raises(dibs.HeldError):
            bob.leases.claim("a")
        again = space.join("alice", client="claude:1", shell=True, process=process)
        assert again.session == hook.session
    finally:
        client.kill()
        client.communicate()
    assert bob.leases.claim("a").leases[0].agent == "bob"
    with pytest.raises(dibs.NotYoursError):
        hook.leases.claim("b")
    assert space.join("alice", client="claude:1", shell=True).session > hook.session


def test_a_process_of_another_container_is_not_taken_for_dead(space, bob):
    hook = space.join("alice", client="claude:1", shell=True, process="1:999999999:1")
    hook.leases.claim("a")
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("a")


@pytest.mark.parametrize("text", ["x", ":1:2", "1:2", "9999999999"])
def test_a_process_that_is_none_is_refused(space, text):
    with pytest.raises(dibs.InvalidError):
        space.join("bob", process=text)


def test_messages_up_to_one_can_be_taken_without_those_that_came_since(alice, bob):
    first = alice.messages.send("one", to="bob")
    alice.messages.send("two", to="bob")
    assert [m.body for m in bob.messages.inbox(until=first.id)] == ["one"]
    assert bob.messages.inbox(until=first.id) == ()
    assert [m.body for m in bob.messages.inbox()] == ["two"]
