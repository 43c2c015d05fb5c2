"""R10: no wake-up is lost. A wait that is ended by the slow look counts as lost."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from tests.stress.clockwork import Children, children, database, middle
from tests.stress.crew import notify_rounds, wait_rounds

KINDS = ("claim", "inbox", "next", "watch")
SEED = 10
LATE_MS = 100
"""Far above any wake-up by a bell, far below the slow look."""


class Race:
    """One waiter and one notifier, each a process, round after round."""

    def __init__(self, crew: Children, url: str, space: str, user: str, pair: int):
        self.chance = random.Random(f"{SEED}/{pair}")
        self.waiter = crew.start(wait_rounds, url, space, user, f"{pair}")
        self.notifier = crew.start(notify_rounds, url, space, user, f"{pair}")
        assert self.waiter.hear() == self.notifier.hear() == "here"
        self.latencies_ms: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.races = self.lost = 0

    def run(self, kind: str, rounds: int) -> None:
        for number in range(rounds):
            # From "before the waiter listens" to "while it sleeps".
            delay_s = self.chance.choice([0.001, 0.006, 0.02, 0.06]) * self.chance.random()
            self.notifier.tell([kind, number, delay_s])
            assert self.notifier.hear() == "ready"
            self.waiter.tell([kind, number])
            self.notifier.tell("go")
            done = self.notifier.hear()
            woke, sleeps, rung = self.waiter.hear()
            late_ms = max(0.0, (woke - done) / 1e6)
            self.races += 1
            if sleeps:
                self.latencies_ms[kind].append(late_ms)
                self.lost += not rung and late_ms > LATE_MS


def race(url: str, space: str, folder: Path, rounds: int, pairs: int) -> None:
    with children() as crew:
        races = [Race(crew, url, space, str(folder / "user"), pair) for pair in range(pairs)]
        for kind in KINDS:
            drive_all(races, kind, rounds)
            latencies = [late for one in races for late in one.latencies_ms[kind]]
            print(
                f"\nR10 {database(url)}, {kind}, {pairs} pairs: {len(latencies):,} of "
                f"{rounds * pairs:,} slept; p50 {middle(latencies, 0.5):.2f} ms, "
                f"p99 {middle(latencies, 0.99):.2f} ms, most {middle(latencies, 1):.1f} ms",
                end="",
            )
            assert len(latencies) > rounds // 4, "hardly anybody slept, so nothing was woken"
    total, lost = sum(one.races for one in races), sum(one.lost for one in races)
    print(f"\nR10 {database(url)}: {total:,} races, {lost} lost wake-ups")
    assert total == rounds * pairs * len(KINDS)
    assert lost == 0


def drive_all(races: list[Race], kind: str, rounds: int) -> None:
    failures: list[BaseException] = []

    def drive(one: Race) -> None:
        try:
            one.run(kind, rounds)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=drive, args=(one,)) for one in races]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_no_wake_up_is_lost(url: str, space_name: str, tmp_path: Path):
    race(url, space_name, tmp_path, rounds=15, pairs=2)


@pytest.mark.stress
def test_ten_thousand_races_lose_no_wake_up(url: str, space_name: str, tmp_path: Path):
    race(url, space_name, tmp_path, rounds=2000, pairs=1)
    race(url, f"{space_name}-crowd", tmp_path, rounds=170, pairs=3)
