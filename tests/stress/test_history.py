"""R2: a recorded history of many processes is linearizable, key by key; an unfenced one is not."""

from __future__ import annotations

from pathlib import Path

import pytest

import dibs
from dibs.errors import StateError
from tests.clock import ManualClock
from tests.stress.history import KEYS, Recording, record


def test_a_short_history_is_linearizable(url: str, space_name: str, tmp_path: Path) -> None:
    recording = record(url, space_name, tmp_path, calls=2_000, kills=8, seed=3, processes=6)
    confirm(recording, url, calls=2_000, kills=8)


@pytest.mark.stress
def test_a_history_of_a_hundred_thousand_calls_is_linearizable(
    url: str, space_name: str, tmp_path: Path
) -> None:
    recording = record(url, space_name, tmp_path, calls=100_000, kills=100, seed=4, processes=6)
    print("\n" + confirm(recording, url, calls=100_000, kills=100))


def confirm(recording: Recording, url: str, *, calls: int, kills: int) -> str:
    assert recording.calls >= calls
    assert recording.kills == kills
    # Zombies did try, and were told so.
    assert recording.refused["stale"] > calls // 50
    verdicts = recording.verdicts()
    assert list(verdicts) == KEYS
    wrong = {key: found.stuck_at for key, found in verdicts.items() if not found.linearizable}
    assert not wrong, wrong
    database = "postgres" if url.startswith("postgresql") else "sqlite"
    unanswered = sum(op.answer is None for ops in recording.ops.values() for op in ops)
    return (
        f"R2 {database}: {recording.calls:,} calls, {recording.kills} kills, "
        f"{unanswered} calls cut off, {recording.refused['stale']:,} stale epochs refused, "
        f"{len(verdicts)} of {len(KEYS)} keys linearizable"
    )


def test_a_store_without_the_epoch_check_is_rejected(
    sqlite_url: str, space_name: str, tmp_path: Path
) -> None:
    recording = record(
        sqlite_url, space_name, tmp_path, calls=2_000, kills=4, seed=5, processes=4, unfenced=True
    )
    verdicts = recording.verdicts()
    fenced = [key for key in KEYS if not key.startswith("entry")]
    rejected = [key for key in fenced if not verdicts[key].linearizable]
    assert len(rejected) > len(fenced) // 2
    assert {key.split(":")[0] for key in rejected} == {"lock", "task"}
    # An entry has no epoch: the variant leaves it as it was, and so does the verdict.
    assert all(verdicts[key].linearizable for key in KEYS if key.startswith("entry"))


def test_a_task_that_claim_calls_dead_can_be_reopened(
    url: str, space_name: str, tmp_path: Path
) -> None:
    """The claim that finds it dead is refused and changes nothing; reopen must see the same."""
    clock = ManualClock()
    space = dibs.open(url, space=space_name, clock=clock, user_dir=str(tmp_path / "user"))
    with space, space.join("alice", ttl_s=86_400) as alice, space.join("bob", ttl_s=86_400) as bob:
        alice.work.add("a:task", max_attempts=1)
        alice.work.claim("a:task", ttl_s=1)
        clock.advance(2)
        with pytest.raises(StateError, match="a:task is dead"):
            bob.work.claim("a:task")
        assert bob.work.reopen("a:task").state == "available"
