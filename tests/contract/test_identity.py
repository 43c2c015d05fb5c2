"""Identity: nobody acts for another, and a row changed without dibs is found."""

from __future__ import annotations

import pytest

import dibs
from tests.contract.world import LONG_S, Opener, direct


def test_a_space_in_which_nobody_cheated_has_no_mismatch(alice, bob, clock):
    alice.leases.claim("a", "b", ttl_s=60)
    alice.leases.claim("c", mode="shared")
    alice.leases.renew("a", ttl_s=300)
    alice.work.claim("t", leases=["d"])
    alice.work.renew("t")
    alice.work.claim("t", ttl_s=60)
    alice.work.claim("u")
    alice.work.complete("u")
    alice.messages.send("1", to="bob")
    alice.messages.announce("é\n2")
    bob.messages.send("3", channel="build")
    clock.advance(120)
    assert alice.agents.verify() == ()


TAMPERED_LEASES = [
    "resource = 'other'",
    "agent = 'bob'",
    "session = session + 1",
    "epoch = epoch + 1",
    "deadline = deadline + 1",
    "signature = ''",
    "signature = 'é'",
]


@pytest.mark.parametrize("change", TAMPERED_LEASES)
def test_verify_finds_a_tampered_lease(opener: Opener, alice, bob, change):
    alice.leases.claim("a", "honest", ttl_s=600)
    opener.tamper(
        f"UPDATE lease SET {change} WHERE space = %(space)s AND resource = %(resource)s",
        resource="a",
    )
    [found] = bob.agents.verify()
    assert found.noun == "lease"
    assert (found.subject, found.agent) == (
        "other" if "resource" in change else "a",
        "bob" if "agent" in change else "alice",
    )


@pytest.mark.parametrize(
    "change", ["agent = 'bob'", "epoch = epoch + 1", "deadline = deadline + 1"]
)
def test_a_tampered_lease_cannot_be_used(opener: Opener, alice, change):
    alice.leases.claim("a", ttl_s=600)
    opener.tamper(f"UPDATE lease SET {change} WHERE space = %(space)s")
    before = alice.events.last()
    for call in (
        lambda: alice.leases.release("a"),
        lambda: alice.leases.renew("a"),
        lambda: alice.leases.claim("a"),
        lambda: alice.leases.release(everything=True),
    ):
        with pytest.raises(dibs.NotYoursError) as refusal:
            call()
        assert "is not signed by" in refusal.value.message
    assert alice.events.last() == before


def test_a_lease_moved_to_another_session_is_worth_nothing_there(opener: Opener, alice, bob):
    alice.leases.claim("a", ttl_s=600)
    opener.tamper(
        "UPDATE lease SET agent = 'bob', session = %(bob)s WHERE space = %(space)s", bob=bob.session
    )
    for call in (bob.leases.release, bob.leases.renew, bob.leases.claim):
        with pytest.raises(dibs.NotYoursError):
            call("a")
    assert bob.agents.verify()[0].session == bob.session


@pytest.mark.parametrize("session", ["unknown", "ended"])
def test_a_lease_of_nobody_blocks_nobody(opener: Opener, alice, bob, carol, session):
    alice.leases.claim("a", ttl_s=600)
    carol.close()
    opener.tamper(
        "UPDATE lease SET session = %(session)s WHERE space = %(space)s",
        session=999_999 if session == "unknown" else carol.session,
    )
    assert len(bob.agents.verify()) == 1
    assert bob.leases.list() == ()
    assert bob.leases.status("a")[0].free
    assert bob.leases.claim("a").leases[0].agent == "bob"


@pytest.mark.parametrize(
    "change",
    ["agent = 'bob'", "epoch = epoch + 1", "due = due + 1", "signature = NULL", "signature = 'é'"],
)
def test_a_tampered_task_is_found_and_cannot_be_used(opener: Opener, alice, bob, change):
    alice.work.claim("t", ttl_s=600)
    opener.tamper(f"UPDATE task SET {change} WHERE space = %(space)s")
    [found] = bob.agents.verify()
    assert (found.noun, found.subject) == ("task", "t")
    before = alice.events.last()
    for call in (
        alice.work.renew,
        alice.work.complete,
        alice.work.fail,
        alice.work.abandon,
        alice.work.claim,
    ):
        with pytest.raises(dibs.NotYoursError):
            call("t")
    assert alice.events.last() == before


def test_a_task_stolen_in_the_table_is_worth_nothing(opener: Opener, alice, bob):
    alice.work.claim("t", ttl_s=600)
    opener.tamper(
        "UPDATE task SET agent = 'bob', session = %(bob)s WHERE space = %(space)s", bob=bob.session
    )
    with pytest.raises(dibs.NotYoursError):
        bob.work.complete("t")
    with pytest.raises(dibs.StaleError):
        alice.work.complete("t")


def test_a_tampered_lease_is_not_signed_again_with_its_task(opener: Opener, alice):
    alice.work.claim("t", leases=["a"], ttl_s=600)
    opener.tamper("UPDATE lease SET epoch = epoch + 1 WHERE space = %(space)s")
    for call in (alice.work.renew, alice.work.claim):
        with pytest.raises(dibs.NotYoursError):
            call("t")
    assert [found.noun for found in alice.agents.verify()] == ["lease"]


@pytest.mark.parametrize(
    "change",
    [
        "body = 'other'",
        "sender = 'carol'",
        "recipient = 'carol'",
        "channel = 'build'",
        "kind = 'announcement'",
        "thread = 1",
        "reply_to = 1",
        "signature = 'é'",
    ],
)
def test_verify_finds_a_tampered_message(opener: Opener, alice, bob, change):
    alice.messages.send("honest", to="bob")
    sent = alice.messages.send("hello", to="bob")
    opener.tamper(
        f"UPDATE message SET {change} WHERE space = %(space)s AND id = %(id)s", id=sent.id
    )
    [found] = bob.agents.verify()
    assert (found.noun, found.subject, found.epoch) == ("message", str(sent.id), sent.id)
    assert found.session == alice.session


def test_a_signature_does_not_fit_another_row(opener: Opener, alice, bob):
    first = alice.messages.send("yes", to="bob")
    second = alice.messages.send("no", to="bob")
    opener.tamper(
        "UPDATE message SET signature = (SELECT m.signature FROM message m"
        " WHERE m.space = %(space)s AND m.id = %(first)s) WHERE space = %(space)s AND id = %(id)s",
        first=first.id,
        id=second.id,
    )
    assert [found.subject for found in bob.agents.verify()] == [str(second.id)]


@direct("it looks into the store itself")
def test_no_text_can_pretend_to_be_two_fields(alice):
    task = alice.scope.keys.task
    row = {"agent": "alice", "id": "t", "session": 12, "epoch": 3, "due": 4}
    signatures = [
        task(row | change)
        for change in (
            {},
            {"agent": "bob"},
            {"session": 1, "epoch": 23},
            {"id": "t1", "session": 2},
            {"epoch": None},
            {"epoch": 34, "due": ""},
        )
    ]
    assert len(set(signatures)) == len(signatures)


@direct("it looks into the store itself")
def test_a_space_is_refused_to_those_with_another_key(opener: Opener, alice, tmp_path):
    if opener.on_postgres:
        with pytest.raises(dibs.UnfitError, match="key"):
            dibs.open(
                opener.url, space=opener.name, clock=opener.clock, user_dir=str(tmp_path / "thief")
            )
        with pytest.raises(dibs.UnfitError, match="key"):
            dibs.open(opener.url, space=opener.name, clock=opener.clock, key=b"k" * 32)
        with pytest.raises(dibs.UnfitError, match="32"):
            dibs.open(opener.url, space=opener.name, clock=opener.clock, key=b"short")
    else:
        [key] = (tmp_path / "store").rglob("key")
        key.chmod(0o600)
        key.write_bytes(b"k" * 32)
        with pytest.raises(dibs.UnfitError, match="key"):
            dibs.open(opener.url, space=opener.name, clock=opener.clock)


def test_nobody_can_name_a_session_that_is_not_theirs(alice, bob, space):
    # No operation takes the caller as an argument; only a token of the very session helps.
    grant = alice.leases.claim("a", ttl_s=LONG_S)
    for call in (bob.leases.release, bob.leases.renew):
        with pytest.raises(dibs.StaleError):
            call("a", epoch=grant.epoch)
    assert space.resume(alice.token).leases.release("a", epoch=grant.epoch)
