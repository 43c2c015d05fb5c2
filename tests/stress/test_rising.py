"""R4: epochs and versions only rise: over complete, delete, prune, restore and re-claim."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import dibs
from dibs.errors import DibsError, ExistsError, InvalidError, NotYoursError, StaleError
from tests.clock import ManualClock

SESSION_TTL_S = 7 * 86_400


class Rising:
    """Everything that was ever granted or written under a name, in the order it was."""

    def __init__(self) -> None:
        self.epochs: dict[str, list[int]] = {}
        self.versions: list[int] = []

    def grant(self, name: str, epoch: int | None) -> None:
        assert epoch is not None
        self.epochs.setdefault(name, []).append(epoch)

    def confirm(self) -> None:
        for name, epochs in [*self.epochs.items(), ("the entry", self.versions)]:
            assert len(epochs) > 1, name
            assert epochs == sorted(set(epochs)), f"{name} went {epochs}"


def one_life(agent: dibs.Agent, clock: ManualClock | None, seen: Rising) -> None:
    """All the ways in which something ends and begins again."""
    seen.grant("the lease", agent.leases.claim("lock:a").epoch)
    agent.leases.release("lock:a")
    seen.grant("the lease", agent.leases.claim("lock:a", ttl_s=1).epoch)
    if clock is not None:
        clock.advance(2)
    else:
        agent.leases.release("lock:a")
    seen.grant("the lease", agent.leases.claim("lock:a").epoch)
    agent.leases.release("lock:a")
    for task in agent.work.list(state="completed"):
        agent.work.reopen(task.id)
    for end in ("abandon", "complete"):
        task = agent.work.claim("the:task")
        seen.grant("the task", task.epoch)
        getattr(agent.work, end)("the:task", epoch=task.epoch)
    agent.work.reopen("the:task")
    seen.grant("the task", agent.work.claim("the:task").epoch)
    agent.work.complete("the:task")
    agent.work.claim("done:for:ever")
    agent.work.complete("done:for:ever")
    seen.versions.append(agent.state.set("ns", "key", 1, force=True).version)
    seen.versions.append(agent.state.delete("ns", "key").version)
    seen.versions.append(agent.state.set("ns", "key", 2).version)
    agent.state.clear("ns")


def test_epochs_and_versions_rise_over_complete_delete_prune_and_reclaim(
    url: str, space_name: str, tmp_path: Path
) -> None:
    clock, seen = ManualClock(), Rising()
    space = dibs.open(url, space=space_name, clock=clock, user_dir=str(tmp_path / "user"))
    with space, space.join("alice", ttl_s=SESSION_TTL_S) as alice:
        for _ in range(3):
            one_life(alice, clock, seen)
            clock.advance(10)
            pruned = alice.events.prune(keep_s=0)
            assert pruned.events and pruned.tasks == 2 and pruned.versions
    seen.confirm()


def test_epochs_and_versions_rise_over_a_new_process(
    url: str, space_name: str, tmp_path: Path
) -> None:
    seen = Rising()
    for _ in range(3):
        with (
            dibs.open(url, space=space_name, user_dir=str(tmp_path / "user")) as space,
            space.join("alice") as alice,
        ):
            one_life(alice, None, seen)
    seen.confirm()


def live(url: str, space: str, seen: Rising) -> None:
    with dibs.open(url, space=space) as opened, opened.join("alice") as alice:
        one_life(alice, None, seen)
        seen.versions.append(alice.state.set("ns", "key", 3).version)


def put_in_place(copy: Path, url: str) -> None:
    """Restore as the documentation says; the copy itself stays as it is."""
    for end in ("", "-wal", "-shm"):
        Path(url + end).unlink(missing_ok=True)
    shutil.copyfile(copy, url)


def test_epochs_and_versions_rise_over_a_restore(
    sqlite_url: str, space_name: str, tmp_path: Path
) -> None:
    restore_again_and_again(sqlite_url, space_name, tmp_path, restores=4, seed=1)


@pytest.mark.stress
def test_epochs_and_versions_rise_over_many_restores(
    sqlite_url: str, space_name: str, tmp_path: Path
) -> None:
    print("\n" + restore_again_and_again(sqlite_url, space_name, tmp_path, restores=100, seed=2))


def restore_again_and_again(url: str, space: str, folder: Path, *, restores: int, seed: int) -> str:
    """Go back to any earlier backup, the same one twice among them, and live on from there."""
    pick, seen, copies = random.Random(seed), Rising(), []
    live(url, space, seen)
    for number in range(restores):
        copy = folder / f"backup-{number}.db"
        with dibs.open(url, space=space) as opened:
            opened.backup(str(copy))
        copies.append(copy)
        for _ in range(pick.randrange(3)):
            live(url, space, seen)
        for chosen in [pick.choice(copies), copies[0]]:
            put_in_place(chosen, url)
            live(url, space, seen)
    seen.confirm()
    grants = sum(len(epochs) for epochs in seen.epochs.values())
    highest = max(epoch for epochs in seen.epochs.values() for epoch in epochs)
    assert highest < 2**53, "JSON readers would round it"
    return (
        f"R4 sqlite: {2 * restores} restores, {grants} grants, {len(seen.versions)} versions, "
        "all strictly rising"
    )


@pytest.fixture
def restored(
    sqlite_url: str, space_name: str, tmp_path: Path
) -> Callable[[Callable[[dibs.Agent], object]], dibs.Dibs]:
    """Let somebody do something, go back to before that, and open what was restored."""

    def after(lost: Callable[[dibs.Agent], object]) -> dibs.Dibs:
        copy = tmp_path / "backup.db"
        with dibs.open(sqlite_url, space=space_name) as space, space.join("alice") as alice:
            alice.state.set("ns", "kept", "before")
            alice.leases.claim("lock:kept")
            space.backup(str(copy))
            lost(alice)
        put_in_place(copy, sqlite_url)
        return dibs.open(sqlite_url, space=space_name)

    return after


def test_a_key_that_only_the_lost_original_had_does_not_repeat_its_versions(restored) -> None:
    versions: list[int] = []

    def lost(alice: dibs.Agent) -> None:
        versions.append(alice.state.set("ns", "new", "lost").version)

    with restored(lost) as space, space.join("bob") as bob:
        assert space.state.get("ns", "new") is None
        assert bob.state.set("ns", "new", "again").version > versions[0]


def test_a_restored_entry_keeps_its_version_until_it_is_written(restored) -> None:
    with restored(lambda alice: alice.state.set("ns", "kept", "lost", force=True)) as space:
        entry = space.state.get("ns", "kept")
        assert (entry.value, entry.version) == ("before", 1)
        with space.join("bob") as bob:
            # Who saw version 1 may replace it; who saw the lost version 2 may not.
            with pytest.raises(DibsError, match="you expected version 2"):
                bob.state.set("ns", "kept", "after", expected_version=2)
            assert bob.state.set("ns", "kept", "after", expected_version=1).version > 2


def test_an_epoch_of_the_lost_original_is_refused_after_a_restore(restored) -> None:
    epochs: list[int] = []
    with (
        restored(lambda alice: epochs.append(alice.leases.claim("lock:new").epoch)) as space,
        space.join("alice") as alice,
    ):
        assert alice.leases.claim("lock:new").epoch > epochs[0]
        with pytest.raises(StaleError):
            alice.leases.renew("lock:new", epoch=epochs[0])


def test_nobody_who_held_something_in_the_original_holds_it_in_the_copy(restored) -> None:
    with restored(lambda alice: None) as space, space.join("bob") as bob:
        assert bob.leases.claim("lock:kept").epoch


def test_a_session_of_the_original_is_told_to_join_again(
    sqlite_url: str, space_name: str, tmp_path: Path
) -> None:
    copy = tmp_path / "backup.db"
    with dibs.open(sqlite_url, space=space_name) as space:
        alice = space.join("alice")
        token = alice.token
        space.backup(str(copy))
        put_in_place(copy, sqlite_url)
        with (
            dibs.open(sqlite_url, space=space_name) as restored,
            pytest.raises(NotYoursError, match="has ended"),
        ):
            restored.resume(token).leases.claim("lock:a")


def test_a_reader_of_the_journal_sees_the_restore_and_all_after_it(restored) -> None:
    last: list[int] = []

    def lost(alice: dibs.Agent) -> None:
        for _ in range(5):
            alice.messages.announce("this will be lost")
        last.append(alice.events.last())

    with restored(lost) as space, space.join("bob") as bob:
        bob.messages.announce("this is new")
        kinds = [event.kind for event in space.events.since(last[0])]
    died = ["session.died", "lease.freed"]
    assert kinds == ["space.restored", *died, "session.joined", "message.announced"]


def test_a_backup_is_a_private_store_of_its_own_with_the_same_key(
    sqlite_url: str, space_name: str, tmp_path: Path
) -> None:
    copy = tmp_path / "backup.db"
    with dibs.open(sqlite_url, space=space_name) as space, space.join("alice") as alice:
        alice.state.set("ns", "key", "value")
        old = alice.leases.claim("lock:a").epoch
        space.backup(str(copy))
        assert sorted(path.name for path in tmp_path.glob("backup*")) == [
            "backup.db",
            "backup.db.d",
        ]
    assert stat.S_IMODE(os.stat(copy).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(f"{copy}.d").st_mode) == 0o700
    assert stat.S_IMODE(os.stat(f"{copy}.d/key").st_mode) == 0o600
    with dibs.open(str(copy), space=space_name) as space, space.join("bob") as bob:
        assert space.state.get("ns", "key").value == "value"  # type: ignore[union-attr]
        assert bob.leases.claim("lock:a").epoch > old
        assert space.agents.verify() == ()


def test_a_backup_overwrites_nothing(sqlite_url: str, space_name: str, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    with dibs.open(sqlite_url, space=space_name) as space:
        with pytest.raises(ExistsError):
            space.backup(str(there))
        with pytest.raises(ExistsError):
            space.backup(sqlite_url)
    assert there.read_text() == "mine"


def test_a_store_on_a_server_says_how_it_is_backed_up(
    postgres_url: str, space_name: str, tmp_path: Path
) -> None:
    with (
        dibs.open(postgres_url, space=space_name, user_dir=str(tmp_path / "user")) as space,
        pytest.raises(InvalidError) as refusal,
    ):
        space.backup(str(tmp_path / "backup.db"))
    assert "pg_dump" in str(refusal.value.next)
