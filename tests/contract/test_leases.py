"""Leases: the right of one session to change a resource."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import dibs
from dibs.storage.waiting import CANCEL, Cancel
from tests.contract.waiting import Background, ContractClock, FrozenClock, InterruptedClock, result
from tests.contract.world import LONG_S, Opener, direct

# One winner


def test_one_winner_an_exclusive_lease_keeps_everybody_else_out(alice, bob):
    grant = alice.leases.claim("src/a.py", note="fix the parser")
    [lease] = grant.leases
    assert (lease.resource, lease.kind, lease.mode) == ("src/a.py", "dir", "exclusive")
    assert (lease.agent, lease.session, lease.epoch) == ("alice", alice.session, grant.epoch)
    assert lease.ttl_ms == lease.expires_in_ms == 1_800_000
    assert lease.task is None
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("src/a.py")
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("src/a.py", mode="shared")


def test_two_sessions_of_one_agent_keep_each_other_out(opener, space, alice):
    twin = opener.join(space, "alice")
    alice.leases.claim("a")
    with pytest.raises(dibs.HeldError):
        twin.leases.claim("a")
    with pytest.raises(dibs.NotYoursError):
        twin.leases.release("a")


def test_a_released_resource_is_free_at_once(alice, bob):
    alice.leases.claim("a")
    [released] = alice.leases.release("a")
    assert released.resource == "a"
    assert bob.leases.claim("a").leases[0].agent == "bob"


@direct("a daemon serves one space")
def test_spaces_are_independent(opener, space, alice):
    other = dibs.open(
        opener.url, space=f"{opener.name}-2", clock=opener.clock, user_dir=opener.user_dir
    )
    with other, other.join("dora", ttl_s=LONG_S) as dora:
        alice.leases.claim("port:1")
        assert dora.leases.claim("port:1").leases[0].agent == "dora"


# A refusal changes nothing and explains itself


def test_a_refusal_says_who_holds_it_since_when_for_what_and_until_when(alice, bob, clock):
    lease = alice.leases.claim("src/a.py", note="fix the parser", ttl_s=600).leases[0]
    clock.advance(60)
    before = bob.events.last()
    with pytest.raises(dibs.HeldError) as refusal:
        bob.leases.claim("src/a.py")
    [blocker] = refusal.value.blockers
    assert (blocker.agent, blocker.session) == ("alice", alice.session)
    assert (blocker.resource, blocker.mode) == ("src/a.py", "exclusive")
    assert (blocker.epoch, blocker.note) == (lease.epoch, "fix the parser")
    assert (blocker.since_at, blocker.expires_in_ms) == (lease.granted_at, 540_000)
    assert not blocker.waiting
    assert "alice" in refusal.value.message and "540 s left" in refusal.value.message
    assert refusal.value.next
    assert bob.events.last() == before
    shown = refusal.value.to_json()
    assert shown["error"] == "held"
    assert shown["details"]["blockers"][0]["agent"] == "alice"


def test_a_claim_of_several_is_all_or_nothing(alice, bob):
    alice.leases.claim("b")
    before = bob.events.last()
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("a", "b", "c")
    assert bob.events.last() == before
    assert [lease.resource for lease in bob.leases.list()] == ["b"]
    alice.leases.release("b")
    grant = bob.leases.claim("a", "b", "c")
    assert [lease.resource for lease in grant.leases] == ["a", "b", "c"]
    assert {lease.epoch for lease in grant.leases} == {grant.epoch}


def test_all_that_is_in_the_way_is_told_at_once(alice, bob, carol):
    alice.leases.claim("a")
    bob.leases.claim("b")
    with pytest.raises(dibs.HeldError) as refusal:
        carol.leases.claim("a", "b")
    assert {blocker.agent for blocker in refusal.value.blockers} == {"alice", "bob"}
    assert "1 more in the way" in refusal.value.message


@pytest.mark.parametrize(
    "call",
    [
        {"resources": ()},
        {"resources": ("",)},
        {"resources": ("a\0b",)},
        {"resources": ("../outside",)},
        {"resources": ("a" * 5_000,)},
        {"resources": ("\ud800",)},
        {"resources": (".dibs/dibs.db",)},
        {"resources": tuple(f"port:{n}" for n in range(201))},
        {"resources": ("a",), "mode": "greedy"},
        {"resources": ("a",), "ttl_s": 0},
        {"resources": ("a",), "ttl_s": -5},
        {"resources": ("a",), "ttl_s": 10**9},
        {"resources": ("a",), "ttl_s": float("nan")},
        {"resources": ("a",), "ttl_s": "soon"},
        {"resources": ("a",), "wait_s": -1},
        {"resources": ("a",), "wait_s": 10**9},
        {"resources": ("a",), "note": "x" * 2_001},
        {"resources": ("a",), "note": "a\0b"},
        {"resources": ("a",), "idempotency_key": ""},
    ],
    ids=lambda call: ",".join(f"{k}={str(v)[:20]!r}" for k, v in call.items()),
)
def test_a_claim_that_is_wrong_is_refused_and_changes_nothing(alice, call):
    resources, options = call["resources"], {k: v for k, v in call.items() if k != "resources"}
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        alice.leases.claim(*resources, **options)
    assert alice.events.last() == before
    assert alice.leases.list() == ()


def test_without_a_session_a_space_can_only_be_looked_at(space, alice):
    alice.leases.claim("a")
    assert not space.leases.status("a")[0].free
    assert len(space.leases.list()) == 1
    for call in (space.leases.claim, space.leases.renew, space.leases.release):
        with pytest.raises(dibs.NotYoursError):
            call("a")


# Shared and exclusive


def test_shared_leases_stand_beside_each_other_and_keep_writers_out(alice, bob, carol):
    alice.leases.claim("a", mode="shared")
    bob.leases.claim("a", mode="shared")
    with pytest.raises(dibs.HeldError) as refusal:
        carol.leases.claim("a")
    assert {blocker.agent for blocker in refusal.value.blockers} == {"alice", "bob"}
    with pytest.raises(dibs.HeldError):
        alice.leases.claim("a")
    assert {lease.mode for lease in carol.leases.list()} == {"shared"}


def test_an_upgrade_from_shared_to_exclusive_gives_a_new_epoch(alice, bob):
    shared = alice.leases.claim("a", mode="shared")
    exclusive = alice.leases.claim("a")
    assert exclusive.epoch > shared.epoch
    assert exclusive.leases[0].mode == "exclusive"
    with pytest.raises(dibs.StaleError):
        alice.leases.release("a", epoch=shared.epoch)
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("a", mode="shared")


def test_a_downgrade_wakes_the_waiters_who_share(alice, bob, carol, background: Background):
    alice.leases.claim("a", ttl_s=LONG_S)
    reader = background.queued(bob, "a", mode="shared")
    other = background.queued(carol, "a", mode="shared")
    alice.leases.claim("a", mode="shared", ttl_s=LONG_S)
    assert result(reader).leases[0].mode == "shared"
    assert result(other).leases[0].mode == "shared"
    assert len(alice.leases.list()) == 3


# Overlap


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ("src", "src/a.py"),
        ("src/a.py", "src"),
        ("src/", "src/deep/er/a.py"),
        (".", "a"),
        ("src/*.py", "src/a.py"),
        ("src/a.py", "src/*.py"),
        ("src/**/*.sql", "src/x/y/z.sql"),
        ("src/a*", "src/*b"),
        ("src/", "src/**/*.sql"),
        ("**/test_*.py", "tests/**"),
        ("a", "./a"),
        ("a/b", "a//b"),
        ("a", "b/../a"),
        ("port:3000", "port:3000"),
        ("./a:b", "path:a:b"),
    ],
)
def test_what_overlaps_is_refused(alice, bob, held, wanted):
    alice.leases.claim(held)
    with pytest.raises(dibs.HeldError):
        bob.leases.claim(wanted)
    [state] = bob.leases.status(wanted)
    assert not state.free and state.blockers[0].agent == "alice"


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ("src", "src2/a.py"),
        ("src/a.py", "src/a.pyc"),
        ("src/*.py", "src/a.sql"),
        ("src/*.py", "src/deep/a.py"),
        ("src/a*b", "src/*c"),
        ("src/**/a.py", "docs/a.py"),
        ("port:3000", "port:30001"),
        ("port:3000", "host:3000"),
        ("src", "git:index"),
    ],
)
def test_what_does_not_overlap_is_free(alice, bob, held, wanted):
    alice.leases.claim(held)
    assert bob.leases.status(wanted)[0].free
    assert bob.leases.claim(wanted).leases[0].agent == "bob"


def test_one_file_one_name(alice, bob, checkout: Path):
    (checkout / "real").mkdir()
    (checkout / "real" / "a.py").write_text("a")
    (checkout / "link").symlink_to("real")
    (checkout / "hard.py").hardlink_to(checkout / "real" / "a.py")
    alice.leases.claim(str(checkout / "real" / "a.py"))
    for name in ("real/a.py", "./real//a.py", "link/a.py", "link/../real/a.py", "hard.py"):
        with pytest.raises(dibs.HeldError):
            bob.leases.claim(name)
    assert alice.leases.claim("link/a.py").leases[0].resource == "real/a.py"
    assert len(alice.leases.list()) == 1


def test_what_one_holds_oneself_is_never_in_the_way(alice):
    alice.leases.claim("src")
    alice.leases.claim("src/a.py", "src/*.py")
    alice.leases.claim(".")
    assert len(alice.leases.list()) == 4
    assert alice.leases.status("src/b.py")[0].free


# Time


def test_a_lease_lapses_when_its_time_is_over_and_not_before(alice, bob, clock: ContractClock):
    alice.leases.claim("a", ttl_s=60)
    clock.advance(59.999)
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("a")
    clock.advance(0.001)
    assert bob.leases.status("a")[0].free
    assert bob.leases.list() == ()
    assert bob.leases.claim("a").leases[0].agent == "bob"
    ended = bob.events.since(kind="lease.expired")
    assert [(event.agent, event.subject) for event in ended] == [("alice", "a")]


def test_a_step_of_the_wall_clock_neither_ends_nor_freezes_a_lease(alice, bob, clock):
    alice.leases.claim("a", ttl_s=60)
    clock.wall_offset = 61 * 60_000
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("a")
    clock.wall_offset = -24 * 3_600_000
    clock.advance(60)
    assert bob.leases.claim("a").leases[0].agent == "bob"


def test_renew_keeps_the_epoch(alice, clock):
    lease = alice.leases.claim("a", ttl_s=60, note="n").leases[0]
    clock.advance(50)
    [renewed] = alice.leases.renew("a", epoch=lease.epoch)
    assert (renewed.epoch, renewed.granted_at, renewed.note) == (lease.epoch, lease.granted_at, "n")
    assert (renewed.ttl_ms, renewed.expires_in_ms) == (60_000, 60_000)
    [renewed] = alice.leases.renew("a", ttl_s=300)
    assert (renewed.ttl_ms, renewed.expires_in_ms) == (300_000, 300_000)
    clock.advance(299)
    assert alice.leases.list()[0].expires_in_ms == 1_000
    assert len(alice.events.since(kind="lease.renewed")) == 2


def test_claiming_again_renews_and_keeps_the_epoch(alice, clock):
    first = alice.leases.claim("a", ttl_s=60, note="first")
    clock.advance(50)
    second = alice.leases.claim("a", ttl_s=90)
    assert second.epoch == first.epoch
    assert second.leases[0].granted_at == first.leases[0].granted_at
    assert second.leases[0].expires_in_ms == 90_000
    assert second.leases[0].note == "first"
    assert alice.leases.claim("a", note="second").leases[0].note == "second"


def test_claiming_again_after_the_time_is_over_gives_a_new_epoch(alice, clock):
    first = alice.leases.claim("a", ttl_s=60)
    clock.advance(60)
    assert alice.leases.claim("a", ttl_s=60).epoch > first.epoch


def test_claiming_more_keeps_the_epoch_of_what_is_held_already(alice):
    first = alice.leases.claim("a")
    both = alice.leases.claim("a", "b")
    epochs = {lease.resource: lease.epoch for lease in both.leases}
    assert epochs["a"] == first.epoch < epochs["b"] == both.epoch


def test_renew_of_several_is_all_or_nothing(alice, clock):
    alice.leases.claim("a", ttl_s=60)
    clock.advance(30)
    before = alice.events.last()
    with pytest.raises(dibs.NotFoundError):
        alice.leases.renew("a", "b")
    assert alice.events.last() == before
    assert alice.leases.list()[0].expires_in_ms == 30_000


def test_everything_is_renewed_and_released_in_one_call(alice, bob, clock):
    alice.leases.claim("a", "b", ttl_s=60)
    alice.leases.claim("c", ttl_s=10)
    bob.leases.claim("d", ttl_s=60)
    clock.advance(30)
    assert [lease.resource for lease in alice.leases.renew(everything=True)] == ["a", "b"]
    assert [lease.resource for lease in alice.leases.release(everything=True)] == ["a", "b"]
    assert [lease.resource for lease in alice.leases.list()] == ["d"]
    before = alice.events.last()
    assert alice.leases.renew(everything=True) == ()
    assert alice.leases.release(everything=True) == ()
    assert alice.events.last() == before


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_one_names_resources_or_says_everything(alice, verb):
    alice.leases.claim("a")
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        getattr(alice.leases, verb)()
    with pytest.raises(dibs.InvalidError):
        getattr(alice.leases, verb)("a", everything=True)
    assert alice.events.last() == before


@pytest.mark.parametrize("ttl_s", [0, -1, 10**9, "x"])
def test_renew_checks_its_time(alice, ttl_s):
    alice.leases.claim("a")
    with pytest.raises(dibs.InvalidError):
        alice.leases.renew("a", ttl_s=ttl_s)


# Fencing


def test_a_lease_in_the_way_of_several_is_one_in_the_way(alice, bob, clock):
    alice.leases.claim("src", ttl_s=60)
    with pytest.raises(dibs.HeldError) as refused:
        bob.leases.claim("src/a.py", "src/b.py")
    assert [blocker.resource for blocker in refused.value.blockers] == ["src"]
    clock.advance(61)
    bob.leases.claim("src/a.py", "src/b.py")
    assert len(bob.events.since(kind="lease.expired")) == 1


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_fencing_an_expired_holder_is_refused_and_changes_nothing(alice, bob, clock, verb):
    lease = alice.leases.claim("a", ttl_s=60).leases[0]
    clock.advance(60)
    before = alice.events.last()
    for epoch in (None, lease.epoch):
        with pytest.raises(dibs.StaleError):
            getattr(alice.leases, verb)("a", epoch=epoch)
    assert alice.events.last() == before
    taken = bob.leases.claim("a").leases[0]
    assert taken.epoch > lease.epoch
    before = alice.events.last()
    with pytest.raises(dibs.StaleError) as refusal:
        getattr(alice.leases, verb)("a", epoch=lease.epoch)
    assert refusal.value.details["blockers"][0].agent == "bob"
    with pytest.raises(dibs.NotYoursError):
        getattr(alice.leases, verb)("a")
    assert alice.events.last() == before
    assert bob.leases.list() == (taken,)


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_fencing_another_epoch_is_refused_and_changes_nothing(alice, verb):
    old = alice.leases.claim("a")
    alice.leases.release("a")
    new = alice.leases.claim("a")
    assert new.epoch > old.epoch
    before = alice.events.last()
    with pytest.raises(dibs.StaleError):
        getattr(alice.leases, verb)("a", epoch=old.epoch)
    assert alice.events.last() == before
    assert alice.leases.list() == new.leases


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_a_whole_grant_is_named_by_its_epoch(alice, bob, verb):
    old = alice.leases.claim("a", "b")
    alice.leases.claim("c")
    called = getattr(alice.leases, verb)(epoch=old.epoch)
    assert [lease.resource for lease in called] == ["a", "b"]
    before = alice.events.last()
    for epoch in (bob.session, before + 1):
        with pytest.raises(dibs.StaleError):
            getattr(alice.leases, verb)(epoch=epoch)
    assert alice.events.last() == before
    assert len(alice.leases.list()) == (3 if verb == "renew" else 1)


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_what_nobody_holds_cannot_be_renewed_or_released(alice, verb):
    before = alice.events.last()
    with pytest.raises(dibs.NotFoundError):
        getattr(alice.leases, verb)("a")
    with pytest.raises(dibs.StaleError):
        getattr(alice.leases, verb)("a", epoch=1)
    assert alice.events.last() == before


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_a_refusal_names_what_is_held_and_whose_session_holds_it(alice, bob, opener, space, verb):
    alice.leases.claim("src/a.py")
    other = opener.join(space, "alice", ttl_s=LONG_S)
    for caller, holder in (
        (bob, "alice, not by this session"),
        (other, "alice, in another session"),
    ):
        with pytest.raises(dibs.NotYoursError) as refusal:
            getattr(caller.leases, verb)("src")
        assert refusal.value.message == f"src/a.py is held by {holder}"


def test_epochs_rise_over_release_expiry_takeover_and_pruning(alice, bob, clock):
    epochs = [alice.leases.claim("a", ttl_s=60).epoch]
    alice.leases.release("a")
    epochs.append(alice.leases.claim("a", ttl_s=60).epoch)
    clock.advance(60)
    epochs.append(bob.leases.claim("a", ttl_s=60).epoch)
    bob.leases.release("a")
    clock.advance(1)
    bob.events.prune(keep_s=0)
    epochs.append(alice.leases.claim("a").epoch)
    assert epochs == sorted(set(epochs))


# Looking


def test_list_is_filtered_and_limited(alice, bob):
    alice.leases.claim("b", "a")
    bob.leases.claim("c")
    everybody = bob.leases.list()
    assert [lease.resource for lease in everybody] == ["a", "b", "c"]
    assert bob.leases.list(agent="bob") == everybody[2:]
    assert bob.leases.list(session=alice.session) == everybody[:2]
    assert bob.leases.list(limit=1) == everybody[:1]
    for limit in (0, 1_001, "x"):
        with pytest.raises(dibs.InvalidError):
            bob.leases.list(limit=limit)


def test_status_answers_for_each_resource_and_writes_nothing(alice, bob):
    alice.leases.claim("a")
    before = bob.events.last()
    held, free = bob.leases.status("a", "b")
    assert (held.resource, held.free) == ("a", False)
    assert (free.resource, free.free, free.blockers) == ("b", True, ())
    assert alice.leases.status("a")[0].free
    assert bob.events.last() == before
    with pytest.raises(dibs.InvalidError):
        bob.leases.status("")


def test_the_content_of_a_file_is_noted_when_it_is_claimed(alice, bob, checkout: Path):
    (checkout / "a").write_bytes(b"one")
    first = alice.leases.claim("a", "missing", "port:1").leases
    assert first[0].content_hash == hashlib.sha256(b"one").hexdigest()
    assert first[1].content_hash is first[2].content_hash is None
    (checkout / "a").write_bytes(b"two")
    assert alice.leases.claim("a").leases[0].content_hash == first[0].content_hash
    alice.leases.release("a")
    assert bob.leases.claim("a").leases[0].content_hash == hashlib.sha256(b"two").hexdigest()


# What became of it


def said(agent: dibs.Agent, *resources: str, **options: int) -> list[tuple[str, str, str]]:
    found = agent.leases.outcomes(*resources, **options)
    return [(each.resource, each.agent, each.outcome) for each in found]


def release(
    agent: dibs.Agent, resource: str, outcome: str = "modified", moved_to: str | None = None
) -> None:
    agent.leases.claim(resource)
    agent.leases.release(resource, outcome=outcome, moved_to=moved_to)


@pytest.mark.parametrize("outcome", ["released", "modified", "created", "deleted"])
def test_what_a_holder_said_it_had_done_is_told_to_the_next(alice, bob, clock, outcome):
    grant = alice.leases.claim("src/a.py", ttl_s=600)
    clock.advance(60)
    assert alice.leases.outcomes("src/a.py") == ()
    [released] = alice.leases.release("src/a.py", outcome=outcome)
    assert released.resource == "src/a.py"
    before = bob.events.last()
    [told] = bob.leases.outcomes("src/a.py")
    assert (told.resource, told.outcome, told.moved_to) == ("src/a.py", outcome, None)
    assert (told.agent, told.epoch, told.released_at) == ("alice", grant.epoch, clock.wall())
    assert bob.events.last() == before


def test_where_a_file_was_moved_to_is_told_by_its_one_name(alice, bob, checkout: Path):
    (checkout / "src").mkdir()
    (checkout / "src" / "a.py").write_text("x")
    alice.leases.claim("src/a.py")
    (checkout / "src" / "a.py").rename(checkout / "b.py")
    alice.leases.release("src/a.py", outcome="moved", moved_to=f"{checkout}/src/../b.py")
    [told] = bob.leases.outcomes("src/a.py")
    assert (told.outcome, told.moved_to) == ("moved", "b.py")
    assert bob.leases.outcomes("b.py") == ()


def test_what_became_of_a_file_can_be_told_when_it_is_gone(alice, bob, checkout: Path):
    (checkout / "a.py").write_text("x")
    alice.leases.claim("a.py")
    (checkout / "a.py").unlink()
    alice.leases.release("a.py", outcome="deleted")
    assert said(bob, "a.py") == said(bob, "*.py") == [("a.py", "alice", "deleted")]


@pytest.mark.parametrize(
    ("stated", "asked", "told"),
    [
        ("src/a.py", "src", True),
        ("src/a.py", ".", True),
        ("src", "src/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/a.py", "src/*.py", True),
        ("src/*.py", "src/a*", True),
        ("port:1", "port:1", True),
        ("src/a.py", "src/b.py", False),
        ("src/a.py", "src/a.pyc", False),
        ("src/*.md", "src/a.py", False),
        ("src/a.py", "src/*.md", False),
        ("port:1", "port:11", False),
        ("port:1", ".", False),
    ],
)
def test_what_was_said_of_all_that_overlaps_is_told(alice, bob, checkout, stated, asked, told):
    (checkout / "src").mkdir()
    for name in ("a.py", "b.py"):
        (checkout / "src" / name).write_text("x")
    release(alice, stated)
    assert said(bob, asked) == ([(stated, "alice", "modified")] if told else [])


def test_the_last_statement_counts_and_silence_leaves_it(alice, bob):
    release(alice, "a", "created")
    release(bob, "a", "modified")
    assert said(alice, "a") == [("a", "bob", "modified")]
    alice.leases.claim("a")
    alice.leases.release("a")
    assert said(alice, "a") == [("a", "bob", "modified")]
    release(alice, "a", "moved", moved_to="b")
    release(bob, "a", "created")
    [told] = alice.leases.outcomes("a")
    assert (told.outcome, told.moved_to) == ("created", None)


def test_statements_are_told_in_the_order_of_the_releases(alice, bob, clock):
    for resource in ("d/c", "d/a", "d"):
        release(alice, resource)  # all in one millisecond
    clock.wall_offset -= 3_600_000
    release(bob, "d/b")
    assert [resource for resource, _, _ in said(bob, "d")] == ["d/b", "d", "d/a", "d/c"]
    assert [resource for resource, _, _ in said(bob, "d/c", "d/a")] == ["d", "d/a", "d/c"]
    assert [resource for resource, _, _ in said(bob, "d", limit=2)] == ["d/b", "d"]


def test_what_does_not_overlap_takes_no_place_of_what_does(alice, bob):
    release(alice, "src/a.py")
    for number in range(3):
        release(alice, f"src/*.{number}")
    assert said(bob, "src/a.py", limit=1) == [("src/a.py", "alice", "modified")]
    release(alice, "src/b.md")
    assert said(bob, "src/*.py", limit=1) == [("src/a.py", "alice", "modified")]


def test_one_statement_is_made_of_all_that_is_released(alice, bob):
    grant = alice.leases.claim("a", "b")
    alice.leases.claim("c", "d")
    alice.leases.release(epoch=grant.epoch, outcome="modified")
    alice.leases.release(everything=True, outcome="created")
    assert said(bob, ".") == [
        ("c", "alice", "created"),
        ("d", "alice", "created"),
        ("a", "alice", "modified"),
        ("b", "alice", "modified"),
    ]
    before = alice.events.last()
    assert alice.leases.release(everything=True, outcome="deleted") == ()
    assert (alice.events.last(), len(said(bob, "."))) == (before, 4)


def test_of_those_who_share_the_last_to_speak_is_told(alice, bob):
    for agent in (alice, bob):
        agent.leases.claim("a", mode="shared")
    alice.leases.release("a", outcome="released")
    assert said(bob, "a") == [("a", "alice", "released")]
    bob.leases.release("a", outcome="modified")
    assert said(alice, "a") == [("a", "bob", "modified")]


def test_whoever_is_granted_it_next_can_read_what_was_said(alice, bob, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background.queued(bob, "a")
    alice.leases.release("a", outcome="modified")
    assert result(waiter).leases[0].agent == "bob"
    assert said(bob, "a") == [("a", "alice", "modified")]


def test_whoever_has_lost_a_lease_can_say_nothing_about_it(alice, bob, clock):
    lease = alice.leases.claim("a", ttl_s=60).leases[0]
    clock.advance(60)
    with pytest.raises(dibs.StaleError):
        alice.leases.release("a", outcome="modified")
    bob.leases.claim("a")
    with pytest.raises(dibs.StaleError):
        alice.leases.release("a", epoch=lease.epoch, outcome="modified")
    alice.leases.claim("b")
    with pytest.raises(dibs.NotYoursError):
        alice.leases.release("b", "a", outcome="modified")
    assert said(bob, "a", "b") == []


def test_a_release_asked_twice_says_it_once(alice, bob):
    alice.leases.claim("a")
    first = alice.leases.release("a", outcome="modified", idempotency_key="key")
    release(bob, "a", "deleted")
    assert alice.leases.release("a", outcome="modified", idempotency_key="key") == first
    assert said(bob, "a") == [("a", "bob", "deleted")]
    with pytest.raises(dibs.InvalidError):
        alice.leases.release("a", outcome="created", idempotency_key="key")


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": "eaten"},
        {"outcome": ""},
        {"outcome": 7},
        {"outcome": "moved"},
        {"moved_to": "c"},
        {"outcome": "modified", "moved_to": "c"},
        {"outcome": "moved", "moved_to": ""},
        {"outcome": "moved", "moved_to": "../outside"},
        {"outcome": "moved", "moved_to": "/etc/passwd"},
        {"outcome": "moved", "moved_to": ".dibs/key"},
        {"outcome": "moved", "moved_to": "src/*.py"},
        {"outcome": "moved", "moved_to": 7},
    ],
    ids=str,
)
def test_a_wrong_statement_is_refused_and_nothing_is_released(alice, wrong):
    held = alice.leases.claim("a").leases
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        alice.leases.release("a", **wrong)
    assert (alice.leases.list(), alice.events.last()) == (held, before)
    assert said(alice, "a") == []


def test_several_are_not_moved_to_one_place(alice):
    grant = alice.leases.claim("a", "b")
    before = alice.events.last()
    for call in ({"everything": True}, {"epoch": grant.epoch}):
        with pytest.raises(dibs.InvalidError, match="2 resources cannot all be moved to c"):
            alice.leases.release(**call, outcome="moved", moved_to="c")
    assert (alice.leases.list(), alice.events.last()) == (grant.leases, before)
    alice.leases.release("a", outcome="moved", moved_to="c")
    alice.leases.release(everything=True, outcome="moved", moved_to="d")
    assert [told.moved_to for told in alice.leases.outcomes("a", "b")] == ["d", "c"]


def test_another_hard_link_of_a_file_is_not_told_of(alice, bob, checkout: Path):
    (checkout / "a").write_text("x")
    (checkout / "b").hardlink_to(checkout / "a")
    release(alice, "a")
    assert said(bob, "b") == []


def test_old_statements_are_pruned(alice, clock):
    release(alice, "a")
    clock.advance(60)
    release(alice, "b")
    alice.events.prune(keep_s=30)
    assert said(alice, ".") == [("b", "alice", "modified")]
    clock.advance(60)
    alice.events.prune(keep_s=30)
    assert said(alice, ".") == []


def test_what_is_asked_about_is_checked(alice):
    for wrong in ("", "../outside", "a\0b", 7):
        with pytest.raises(dibs.InvalidError):
            alice.leases.outcomes(wrong)
    with pytest.raises(dibs.InvalidError, match="limit is 200"):
        alice.leases.outcomes(*(f"port:{number}" for number in range(201)))
    for limit in (0, 1_001, "x"):
        with pytest.raises(dibs.InvalidError):
            alice.leases.outcomes("a", limit=limit)


# Fair waiting


def test_a_release_hands_over_to_the_waiter_in_its_own_transaction(alice, bob, background):
    lease = alice.leases.claim("a", ttl_s=LONG_S).leases[0]
    waiter = background.queued(bob, "a", note="next", ttl_s=600)
    before = alice.events.last()
    alice.leases.release("a")
    grant = result(waiter)
    assert grant.epoch > lease.epoch
    assert (grant.leases[0].note, grant.leases[0].ttl_ms) == ("next", 600_000)
    events = alice.events.since(before)
    told = [(event.kind, event.agent) for event in events]
    assert told == [("lease.released", "alice"), ("lease.claimed", "bob")]
    # The epoch is the seq of the releasing write: nobody could come in between.
    assert grant.epoch == events[0].seq


def test_what_is_handed_over_says_in_the_journal_who_had_waited(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    bob.leases.claim("b", mode="shared", ttl_s=LONG_S)
    waiter = background.queued(bob, "a", "b", mode="shared", ttl_s=60)
    [asked, _] = bob.events.since(kind="lease.queued")
    before = bob.events.last()
    alice.leases.release("a")
    result(waiter)
    told = {event.subject: event for event in bob.events.since(before, agent="bob")}
    # Also of what its session held already: the waiter is told by the ticket that it is served.
    assert {name: event.kind for name, event in told.items()} == {
        "a": "lease.claimed",
        "b": "lease.renewed",
    }
    assert {event.data["ticket"] for event in told.values()} == {asked.data["ticket"]}
    carol.leases.claim("c")
    others = [event for event in bob.events.since(kind="lease.claimed") if event.subject != "a"]
    assert len(others) == 2
    assert all("ticket" not in event.data for event in others)


def test_fair_waiting_is_first_come_first_served(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    first = background.queued(bob, "a", ttl_s=LONG_S)
    second = background.queued(carol, "a", ttl_s=LONG_S)
    alice.leases.release("a")
    assert result(first).leases[0].agent == "bob"
    assert not second.done()
    assert alice.leases.status("a")[0].blockers[1].waiting
    bob.leases.release("a")
    assert result(second).leases[0].agent == "carol"


def test_a_newcomer_never_overtakes(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background.queued(bob, "a", "b")
    # Nobody holds b, but bob is ahead in its queue.
    with pytest.raises(dibs.HeldError) as refusal:
        carol.leases.claim("b")
    [blocker] = refusal.value.blockers
    assert (blocker.agent, blocker.waiting, blocker.expires_in_ms) == ("bob", True, None)
    with pytest.raises(dibs.HeldError):
        carol.leases.claim("b", mode="shared")
    behind = background.queued(carol, "b")
    alice.leases.release("a")
    assert [lease.resource for lease in result(waiter).leases] == ["a", "b"]
    assert not behind.done()
    bob.leases.release("a")
    assert not behind.done()
    bob.leases.release("b")
    assert result(behind).leases[0].agent == "carol"


def test_a_waiting_writer_is_not_starved_by_readers(alice, bob, carol, background):
    alice.leases.claim("a", mode="shared", ttl_s=LONG_S)
    writer = background.queued(bob, "a")
    with pytest.raises(dibs.HeldError):
        carol.leases.claim("a", mode="shared")
    alice.leases.release("a")
    assert result(writer).leases[0].mode == "exclusive"


def test_who_holds_a_directory_takes_more_of_what_is_in_it_although_others_wait(
    alice, bob, background
):
    alice.leases.claim("src", mode="shared")
    alice.leases.claim(".", ttl_s=LONG_S)
    waiter = background.queued(bob, ".")
    assert alice.leases.claim("src").leases[0].mode == "exclusive"
    alice.leases.release(everything=True)
    assert result(waiter).leases[0].agent == "bob"


def test_a_waiter_for_a_directory_waits_for_everything_in_it(alice, bob, carol, background):
    alice.leases.claim("src/a.py", ttl_s=LONG_S)
    carol.leases.claim("src/b.py", ttl_s=LONG_S)
    waiter = background.queued(bob, "src")
    alice.leases.release("src/a.py")
    assert not waiter.done()
    assert bob.leases.list(agent="bob") == ()
    carol.leases.release("src/b.py")
    assert result(waiter).leases[0].resource == "src"


def test_one_release_serves_all_waiters_it_can(alice, bob, carol, background):
    alice.leases.claim("src", ttl_s=LONG_S)
    one = background.queued(bob, "src/a.py")
    other = background.queued(carol, "src/b.py")
    before = alice.events.last()
    alice.leases.release("src")
    assert result(one).leases[0].agent == "bob"
    assert result(other).leases[0].agent == "carol"
    kinds = [event.kind for event in alice.events.since(before)]
    assert kinds == ["lease.released", "lease.claimed", "lease.claimed"]


def test_a_waiter_gets_the_lease_when_the_holder_lets_its_time_run_out(alice, bob):
    alice.leases.claim("a", ttl_s=60)
    # Nobody is there to move the clock but the waiter itself.
    grant = bob.leases.claim("a", wait_s=120)
    assert grant.leases[0].agent == "bob"
    assert bob.events.since(kind="lease.expired")[0].agent == "alice"


def test_a_waiter_gets_the_lease_when_the_holder_leaves(alice, bob, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background.queued(bob, "a")
    alice.close()
    assert result(waiter).leases[0].agent == "bob"


def test_a_waiter_that_times_out_leaves_no_ticket(alice, bob, carol):
    alice.leases.claim("a", ttl_s=LONG_S, note="long work")
    with pytest.raises(dibs.TimeoutError) as refusal:
        bob.leases.claim("a", "b", wait_s=5)
    assert refusal.value.details["blockers"][0].note == "long work"
    assert "within 5 s" in refusal.value.message
    [blocker] = carol.leases.status("a")[0].blockers
    assert not blocker.waiting
    assert carol.leases.claim("b").leases[0].agent == "carol"
    assert [event.data["why"] for event in bob.events.since(kind="lease.unqueued")] == [
        "withdrawn",
        "withdrawn",
    ]
    alice.leases.release("a")
    assert bob.leases.status("a")[0].free
    assert bob.leases.list(agent="bob") == ()


def test_an_upgrade_that_times_out_keeps_the_shared_lease(alice, bob):
    alice.leases.claim("a", mode="shared", ttl_s=LONG_S)
    shared = bob.leases.claim("a", mode="shared", ttl_s=LONG_S)
    with pytest.raises(dibs.TimeoutError):
        bob.leases.claim("a", wait_s=5)
    assert bob.leases.list(agent="bob")[0].epoch == shared.epoch
    assert bob.leases.renew("a", epoch=shared.epoch)[0].mode == "shared"


def test_a_waiter_that_gives_up_lets_those_behind_it_through(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    cancel = Cancel()
    token = CANCEL.set(cancel)
    waiter = background.queued(bob, "a", "b")
    CANCEL.reset(token)
    behind = background.queued(carol, "b")
    cancel()
    with pytest.raises(dibs.CancelledError):
        result(waiter)
    cancel.close()
    assert result(behind).leases[0].agent == "carol"
    assert not any(blocker.waiting for blocker in carol.leases.status("a")[0].blockers)


@direct("it interrupts or freezes the waiter by its clock")
def test_ctrl_c_in_a_wait_gives_the_place_back(opener: Opener, alice, bob):
    dora = opener.join(opener.open(InterruptedClock()), "dora")
    alice.leases.claim("a", ttl_s=LONG_S)
    with pytest.raises(KeyboardInterrupt):
        dora.leases.claim("a", wait_s=60)
    [blocker] = bob.leases.status("a")[0].blockers
    assert not blocker.waiting
    alice.leases.release("a")
    assert bob.leases.claim("a").leases[0].agent == "bob"


@direct("it interrupts or freezes the waiter by its clock")
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_waiter_interrupted_at_the_hand_over_gives_the_lease_back(
    opener: Opener, alice, bob, carol, background, clock, interrupted
):
    frozen = FrozenClock(clock, KeyboardInterrupt if interrupted else None)
    dora = opener.join(opener.open(frozen), "dora")
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background(dora.leases.claim, "a", ttl_s=LONG_S, wait_s=60)
    background.until(frozen.frozen.is_set, waiter)
    behind = background.queued(bob, "a")
    alice.leases.release("a")
    [lease] = carol.leases.list()
    assert lease.agent == "dora"
    frozen.thawed.set()
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            result(waiter)
    else:
        assert result(waiter).leases == (lease,)
        dora.leases.release("a")
    assert result(behind).leases[0].agent == "bob"


def test_a_claim_that_need_not_wait_does_not_queue(alice):
    alice.leases.claim("a", wait_s=60)
    assert alice.events.since(kind="lease.queued") == ()


@direct("it interrupts or freezes the waiter by its clock")
def test_a_frozen_waiter_is_never_given_less_than_it_asked_for(
    opener: Opener, alice, bob, background, clock
):
    frozen = FrozenClock(clock)
    dora = opener.join(opener.open(frozen), "dora")
    alice.leases.claim("a", mode="shared", ttl_s=LONG_S)
    dora.leases.claim("a", mode="shared", ttl_s=LONG_S)
    waiter = background(dora.leases.claim, "a", ttl_s=LONG_S, wait_s=3_600)
    background.until(frozen.frozen.is_set, waiter)
    clock.advance(60)
    alice.leases.release("a")
    frozen.thawed.set()
    if opener.by_beats:
        # Her ticket was dropped, as that of a waiter who is gone.
        with pytest.raises(dibs.StaleError):
            result(waiter)
    else:
        assert result(waiter).leases[0].mode == "exclusive"


# No silent deadlock


def test_a_deadlock_of_two_is_refused_with_its_cycle(alice, bob, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    bob.leases.claim("b", ttl_s=LONG_S)
    waiter = background.queued(bob, "a")
    before = alice.events.last()
    with pytest.raises(dibs.DeadlockError) as refusal:
        alice.leases.claim("b", wait_s=60)
    assert refusal.value.cycle == ("alice", "bob", "alice")
    assert [step["wants"] for step in refusal.value.details["steps"]] == ["b", "a"]
    assert alice.events.last() == before
    # Without a wait it is an ordinary refusal.
    with pytest.raises(dibs.HeldError):
        alice.leases.claim("b")
    alice.leases.release("a")
    assert result(waiter).leases[0].agent == "bob"


def test_a_deadlock_of_three_is_refused_with_its_cycle(alice, bob, carol, background):
    for agent, resource in ((alice, "a"), (bob, "b"), (carol, "c")):
        agent.leases.claim(resource, ttl_s=LONG_S)
    background.queued(bob, "a")
    background.queued(carol, "b")
    with pytest.raises(dibs.DeadlockError) as refusal:
        alice.leases.claim("c", wait_s=60)
    assert refusal.value.cycle == ("alice", "carol", "bob", "alice")


def test_a_deadlock_through_a_queue_ahead_is_refused(alice, bob, carol, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    carol.leases.claim("c", ttl_s=LONG_S)
    background.queued(bob, "a", "b")
    # Nobody holds b; carol waits only because bob is ahead of her.
    background.queued(carol, "b")
    with pytest.raises(dibs.DeadlockError) as refusal:
        alice.leases.claim("c", wait_s=60)
    assert refusal.value.cycle == ("alice", "carol", "bob", "alice")


def test_two_readers_who_both_want_to_write_are_a_deadlock(alice, bob, background):
    alice.leases.claim("a", mode="shared", ttl_s=LONG_S)
    bob.leases.claim("a", mode="shared", ttl_s=LONG_S)
    waiter = background.queued(bob, "a")
    with pytest.raises(dibs.DeadlockError):
        alice.leases.claim("a", wait_s=60)
    alice.leases.release("a")
    assert result(waiter).leases[0].mode == "exclusive"


def test_a_cycle_of_agents_whose_resources_do_not_meet_is_no_deadlock(
    alice, bob, carol, background
):
    alice.leases.claim("a", ttl_s=LONG_S)
    bob.leases.claim("b", ttl_s=LONG_S)
    background.queued(bob, "a")
    behind = background.queued(carol, "b")
    alice.leases.release("a")
    bob.leases.release(everything=True)
    assert result(behind).leases[0].agent == "carol"


# The dead do not block


def test_what_a_killed_process_held_is_free(opener: Opener, alice, clock):
    opener.killed_holder("a", "src/b.py")
    if opener.by_beats:
        # Across machines nobody can see that it is dead until its session has lapsed.
        with pytest.raises(dibs.HeldError):
            alice.leases.claim("a")
        clock.advance(30)
    assert alice.leases.status("a")[0].free
    assert alice.leases.list() == ()
    assert alice.leases.claim("a").leases[0].agent == "alice"
    assert [event.agent for event in alice.events.since(kind="session.died")] == ["victim"]
    assert alice.leases.status("src/b.py")[0].free


def test_a_waiter_takes_over_from_a_killed_process(opener: Opener, alice):
    opener.killed_holder("a")
    # On SQLite at its first look; on PostgreSQL the waiter moves the clock past the session.
    assert alice.leases.claim("a", wait_s=60).leases[0].agent == "alice"


def test_what_an_ended_session_held_is_free(alice, bob):
    lease = alice.leases.claim("a", ttl_s=LONG_S).leases[0]
    alice.agents.leave()
    assert bob.leases.claim("a").epoch > lease.epoch
    for call in (alice.leases.renew, alice.leases.release, alice.leases.claim):
        with pytest.raises(dibs.NotYoursError):
            call("a")


# Waiting without claiming


def test_wait_returns_at_once_when_all_is_free(alice):
    before = alice.events.last()
    assert [state.free for state in alice.leases.wait("a", "b")] == [True, True]
    assert alice.events.last() == before


def test_wait_ends_when_the_resource_becomes_free(alice, bob, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background(bob.leases.wait, "a", wait_s=3_600)
    alice.leases.release("a")
    assert result(waiter)[0].free
    assert bob.leases.list() == ()


def test_wait_ends_when_the_time_of_a_lease_is_over(alice, bob):
    alice.leases.claim("a", ttl_s=60)
    assert bob.leases.wait("a", wait_s=120)[0].free


def test_wait_gives_up_after_its_time(alice, bob):
    alice.leases.claim("a", ttl_s=LONG_S)
    with pytest.raises(dibs.TimeoutError) as refusal:
        bob.leases.wait("a", wait_s=5)
    assert refusal.value.details["blockers"][0].agent == "alice"
    with pytest.raises(dibs.InvalidError):
        bob.leases.wait()
    with pytest.raises(dibs.InvalidError):
        bob.leases.wait("a", wait_s=-1)


# Held for the length of a block


def test_a_block_holds_its_lease_and_releases_it(alice, bob):
    with alice.lease("a", "b", note="block") as held:
        assert bob.leases.list()[0].epoch == held.epoch
        held.check()
        with pytest.raises(dibs.HeldError):
            bob.leases.claim("a")
    assert bob.leases.list() == ()


def test_a_block_that_lost_its_lease_says_so_at_its_end(alice, bob, clock):
    with pytest.raises(dibs.StaleError), alice.lease("a", ttl_s=60):
        clock.advance(60)
        taken = bob.leases.claim("a")
    assert bob.leases.list() == taken.leases


def test_the_error_of_a_block_is_not_hidden_by_a_lost_lease(alice, clock):
    with pytest.raises(ZeroDivisionError), alice.lease("a", ttl_s=60) as held:
        clock.advance(60)
        with pytest.raises(dibs.StaleError):
            held.check()
        raise ZeroDivisionError
