"""The past is removed without anybody having to wait, and a store keeps itself in bounds."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dibs
from dibs.storage.store import SPACE, Read
from tests.stress import housekeeping
from tests.stress.clockwork import children, database, middle
from tests.stress.test_daemon import served

SOAK_S = float(os.environ.get("SOAK_S", "3600"))
"""How long the soak lasts; an hour unless the environment says otherwise."""


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
        url, str(tmp_path / "user"), space_name, events=60_000, writers=3, seconds=3
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
    # Eight who write without a rest wait for each other, too, and for the machine.
    assert found["worst_ms"] <= max(200, found["alone_worst_ms"])
    assert found["log_mib"] < 32


@contextmanager
def always_read(opened: dibs.Dibs) -> Iterator[None]:
    """Somebody reads all the time, although each read is short."""
    over = threading.Event()

    def begin() -> Read:
        reading = opened.scope.store.read().__enter__()
        reading.rows(SPACE.position)
        return reading

    def read() -> None:
        reading = begin()
        while not over.wait(0.005):
            before, reading = reading, begin()
            before.__exit__(None)
        reading.__exit__(None)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_log_of_a_file_stays_short_although_somebody_always_reads(
    sqlite_url: str, space_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.nouns.events.pruning.LOG_BYTES", 1 << 20)
    user = str(tmp_path / "user")
    with dibs.open(sqlite_url, space=space_name, user_dir=user) as opened:
        agent, most = opened.join("alice"), 0
        with always_read(opened):
            for _ in range(3_000):
                agent.state.set("n", "k", "x" * 10_000, force=True)
                most = max(most, opened.scope.store.driver.log_bytes())
    assert most < 10 << 20, f"{most >> 20} MiB"


# A soak


def soak(
    url: str,
    space: str,
    folder: Path,
    *,
    agents: int,
    seconds: float,
    every_s: float,
    turn_s: float = 0.0,
) -> str:
    """Twenty agents at work, half of them through a daemon; what that leaves on disk, in bounds.

    Those who write directly prune what is older than a tenth of the time. What is younger than
    that depends on the pace, so a long soak keeps one that a machine has on its bad days, too.
    """
    keeps, user = (seconds / 10, 64 << 20), str(folder / "home/.local/share/dibs")
    looks: list[dict[str, int]] = []
    with served(url, space, folder) as daemon, children() as some:
        crew = []
        for number in range(agents):
            there = (daemon.url, daemon.token) if number % 2 else (url, None)
            crew.append(
                some.start(
                    housekeeping.work, there[0], space, user, there[1], number, keeps, turn_s
                )
            )
        for child in crew:
            assert child.hear() == "ready"
        for child in crew:
            child.tell(seconds)
        begin = time.monotonic()
        while (passed := time.monotonic() - begin) + every_s < seconds:
            time.sleep(every_s)
            looks.append(look(url, daemon.process.pid, [child.process.pid for child in crew]))
            print(f"\n{passed + every_s:6.0f} s  {told_look(looks[-1])}", end="", flush=True)
        said = [child.hear(within_s=120) for child in crew]
        with dibs.open(url, space=space, user_dir=user) as opened:
            cuts = opened.events.latest(kind="space.pruned", limit=1000)
            assert opened.agents.verify() == ()
            assert opened.scope.store.driver.integrity() == []
    turns, failed = sum(child["turns"] for child in said), Counter[str]()
    for child in said:
        failed.update(child["failed"])
    # On a machine that does much else, a writer may find no turn for seconds.
    assert failed.total() <= max(1, turns / 1000) and set(failed) <= {"BusyError"}, failed
    assert cuts and all(cut.data["events"] >= 0 for cut in cuts)
    middle_at = len(looks) // 2
    before, after = looks[:middle_at], looks[middle_at:]
    most = {name: max(one[name] for one in after) for name in looks[0]}
    for name, spare in SPARE.items():
        bound = 1.3 * max(one[name] for one in before) + spare
        if name == "store":  # what is younger than the time that is kept may fill it
            bound = max(bound, 1.25 * (keeps[1] >> 20))
        assert most[name] <= bound, f"{name} grows: {most[name]} after {bound:.0f}\n{looks}"
    did = f"{agents} agents, {seconds:.0f} s, {turns:,} turns, {failed.total()} busy"
    return f"{did}, at most: {told_look(most)}"


SPARE = {"store": 8, "log": 16, "daemon": 16, "agent": 16, "descriptors": 16, "files": 30}
"""By how much each may differ, in its own unit, beside a third."""


def look(url: str, daemon: int, agents: list[int]) -> dict[str, int]:
    """What is used now: MiB on disk and in memory, descriptors, files beside the store."""
    size = [Path(f"{url}{end}").stat().st_size >> 20 for end in ("", "-wal")]
    used = [housekeeping.use_of(pid) for pid in (daemon, *agents)]
    return {
        "store": size[0],
        "log": size[1],
        "daemon": used[0][0],
        "agent": max(memory for memory, _ in used[1:]),
        "descriptors": max(number for _, number in used),
        "files": sum(len(files) for _, _, files in os.walk(Path(url).parent)),
    }


def told_look(one: dict[str, int]) -> str:
    return (
        f"store {one['store']} MiB, log {one['log']} MiB, daemon {one['daemon']} MiB, "
        f"agent {one['agent']} MiB, descriptors {one['descriptors']}, files {one['files']}"
    )


def test_a_few_agents_at_work_leave_nothing_that_grows(
    sqlite_url: str, space_name: str, tmp_path: Path
) -> None:
    print("\n" + soak(sqlite_url, space_name, tmp_path, agents=4, seconds=4, every_s=0.5))


@pytest.mark.stress
@pytest.mark.timeout(2 * SOAK_S + 600)
def test_a_soak_of_twenty_agents_leaves_nothing_that_grows(
    sqlite_url: str, space_name: str, tmp_path: Path
) -> None:
    every_s = max(5.0, SOAK_S / 60)
    said = soak(
        sqlite_url, space_name, tmp_path, agents=20, seconds=SOAK_S, every_s=every_s, turn_s=1.0
    )
    print(f"\n{said}")
