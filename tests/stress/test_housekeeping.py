"""The past is removed without anybody having to wait, and a store keeps itself in bounds."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.stress import housekeeping
from tests.stress.clockwork import children, database, middle


def prune_while_others_write(
    url: str, user: str, space: str, *, events: int, writers: int, seconds: float
) -> dict[str, float]:
    """Prune a journal of that length while others write; what it took, and what they waited."""
    housekeeping.fill(url, space, user, events)
    log = Log(url)
    with children() as some:
        crew = [
            some.start(housekeeping.write, url, space, user, number) for number in range(writers)
        ]
        gc = some.start(housekeeping.collect, url, space, user, 86_400.0)
        for child in (*crew, gc):
            assert child.hear() == "ready"
        for child in crew:
            child.tell(seconds)
            assert child.hear() == "begun"
        time.sleep(min(3.0, seconds / 4))
        log.watch()
        gc.tell("go")
        pruned = gc.hear(within_s=600)
        said = [child.hear(within_s=600) for child in crew]
        gc.end()
    took = [one for child in said for one in child["took"]]
    # A wait that touches the pruning counts as one beside it.
    beside = [s for at, s in took if at < pruned["end"] and at + s > pruned["begin"]]
    alone = [s for at, s in took if at + s <= pruned["begin"] or at >= pruned["end"]]
    assert pruned["done"] and pruned["events"] == events
    return {
        "gc_s": pruned["end"] - pruned["begin"],
        "writes": len(beside),
        "worst_ms": max(beside, default=0) * 1000,
        "p99_ms": middle(beside, 0.99) * 1000,
        "alone_worst_ms": max(alone, default=0) * 1000,
        "alone_p99_ms": middle(alone, 0.99) * 1000,
        "busy": sum(child["busy"] for child in said),
        "log_mib": log.most() / (1 << 20),
    }


class Log:
    """How large the write-ahead log of a file becomes, looked at from the side."""

    def __init__(self, url: str) -> None:
        self._path = Path(f"{url}-wal")
        self._most, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def watch(self) -> None:
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            if self._path.exists():
                self._most = max(self._most, self._path.stat().st_size)

    def most(self) -> int:
        self._over.set()
        self._thread.join()
        return self._most


def told(url: str, found: dict[str, float]) -> None:
    figures = "  ".join(f"{name} {number:.0f}" for name, number in found.items())
    print(f"\ngc beside writers, {database(url)}: {figures}")


def test_others_write_while_a_long_journal_is_pruned(
    url: str, space_name: str, tmp_path: Path
) -> None:
    found = prune_while_others_write(
        url, str(tmp_path / "user"), space_name, events=60_000, writers=3, seconds=4
    )
    told(url, found)
    assert found["busy"] == 0
    assert found["writes"] > 0
    assert found["log_mib"] < 32


@pytest.mark.stress
def test_three_million_events_are_pruned_while_eight_write(
    url: str, space_name: str, tmp_path: Path
) -> None:
    found = prune_while_others_write(
        url, str(tmp_path / "user"), space_name, events=3_000_000, writers=8, seconds=90
    )
    told(url, found)
    assert found["busy"] == 0
    assert found["worst_ms"] <= 200
    assert found["log_mib"] < 32
