"""The chain as a whole: one that was removed is missed, and a connection knows where it ends.

What is done to single rows is in `test_ledger.py`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import dibs
from dibs.errors import HeldError, NotYoursError
from dibs.space.signing import EARLIER
from tests.contract.world import Opener, direct
from tests.old_schemas import ask


def strip(opener: Opener) -> None:
    """Make the space look like one from before there was a chain."""
    opener.proves = False
    [[space]] = ask(opener.store, f"SELECT id FROM space WHERE name = '{opener.name}'")
    ask(opener.store, f"UPDATE event SET hash = '', changes = NULL WHERE space = {space}")
    ask(opener.store, f"DELETE FROM base WHERE space = {space}")
    ask(
        opener.store,
        "UPDATE space SET base_seq = 0, base_sum = '', head = '', pending = '', chain = '', "
        f"signature = '' WHERE id = {space}",
    )


@direct("a daemon has the store open, and begins no other chain before it is started again")
def test_a_chain_that_was_removed_is_missed(opener: Opener, alice):
    alice.state.set("plan", "a", 1)
    assert alice.agents.verify() == ()
    strip(opener)
    again = opener.join(opener.open(), "bob")
    [found] = again.agents.verify()
    assert (found.noun, found.subject, found.what) == ("chain", opener.name, "removed")
    again.state.set("plan", "b", 2)
    assert again.agents.verify() == (found,)  # until a person has looked into it


@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        ("sqlite_url", "PRAGMA user_version = 3"),
        ("empty_postgres_url", "DELETE FROM migration WHERE version > 3"),
        ("empty_postgres_url", "DROP TABLE lease"),
    ],
)
def test_a_schema_that_something_else_has_changed_is_refused_as_corrupt(
    kind: str, statement: str, request: pytest.FixtureRequest, tmp_path: Path, checkout: Path
):
    url = request.getfixturevalue(kind)
    with dibs.open(url, space="s", user_dir=str(tmp_path)):
        pass
    ask(url, statement)
    with (
        pytest.raises(dibs.CorruptError, match="something other than dibs has changed the tables"),
        dibs.open(url, space="s", user_dir=str(tmp_path)) as space,
    ):
        space.join("alice").leases.claim("a")


def test_the_same_space_on_another_database_has_a_chain_of_its_own(
    postgres_url: str, empty_postgres_url: str, tmp_path: Path, checkout: Path
):
    """All databases that this user's repository has a space in share its key."""
    for url in (postgres_url, empty_postgres_url, postgres_url):
        with dibs.open(url, space=f"test-{tmp_path.name}", user_dir=str(tmp_path)) as space:
            space.join("alice").state.set("plan", "a", 1, force=True)
            assert space.agents.verify() == ()


@direct("a daemon has the store open, and begins no other chain before it is started again")
def test_events_from_before_the_chain_are_not_blamed_for_a_changed_space(opener: Opener, alice):
    """A store of an earlier release still has the events from before its chain."""
    alice.state.set("plan", "a", 1)
    strip(opener)
    shutil.rmtree(Path(opener.user_dir) / "chains")
    again = opener.join(opener.open(), "bob")
    assert again.agents.verify() == ()
    ask(opener.store, f"UPDATE space SET pruned_seq = 2 WHERE name = '{opener.name}'")
    [found] = again.agents.verify()
    assert (found.noun, found.what) == ("space", "changed")


FIELDS = (
    "agent",
    "resource",
    "base",
    "kind",
    "inode",
    "mode",
    "task",
    "session",
    "epoch",
    "deadline",
)


@direct("it looks into the store itself")
def test_a_row_that_an_earlier_release_signed_still_counts(opener: Opener, alice):
    alice.leases.claim("port:3000")
    keys = alice.scope.keys
    [values] = ask(opener.store, f"SELECT {', '.join(FIELDS)} FROM lease {of(opener)}")
    earlier = keys.lease(dict(zip(FIELDS, values, strict=True)), keys.sign_longer)
    assert len(earlier) == EARLIER
    ask(opener.store, f"UPDATE lease SET signature = '{earlier}' {of(opener)}")
    assert alice.agents.verify() == ()
    ask(opener.store, f"UPDATE lease SET signature = '{earlier[::-1]}' {of(opener)}")
    with pytest.raises(NotYoursError, match="not signed by alice"):
        alice.leases.renew("port:3000")
    opener.proves = False


def of(opener: Opener) -> str:
    return f"WHERE space = (SELECT id FROM space WHERE name = '{opener.name}')"


def test_a_write_after_others_goes_on_from_their_last_event(opener: Opener, alice):
    """A connection knows where its own last write ended, and must not go on from there then."""
    bob = opener.join(opener.open(), "bob")
    for turn in range(3):
        alice.leases.claim(f"port:{turn}")
        alice.leases.claim(f"pipe:{turn}")
        bob.leases.claim(f"name:{turn}")
        with pytest.raises(HeldError):
            bob.leases.claim(f"port:{turn}")
        bob.state.set("plan", str(turn), turn)
        alice.leases.release(f"port:{turn}")
    seqs = [event.seq for event in alice.events.since(0)]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert alice.agents.verify() == ()


def test_a_write_knows_what_the_one_before_did_to_its_session(opener: Opener, alice):
    alice.state.set("plan", "a", 1)
    alice.agents.rename("carol")
    [lease] = alice.leases.claim("port:2").leases
    assert lease.agent == "carol"
    assert alice.events.since(0)[-1].agent == "carol"
    alice.agents.leave()
    with pytest.raises(NotYoursError, match="has ended"):
        alice.leases.claim("port:3")
