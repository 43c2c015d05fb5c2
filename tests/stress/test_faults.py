"""R6 and R7 on SQLite: power cuts, and a disk that fails a write, a sync or a lock."""

from __future__ import annotations

import errno
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dibs
from tests.stress.clockwork import children
from tests.stress.disks import (
    Disk,
    commit_and_note,
    commit_on_a_faulty_disk,
    lay_out,
    open_on_a_faulty_disk,
)

SEED = 6
SOURCE = Path(__file__).with_name("faulty_disk.c")
WRITE, SYNC, LOCK = 1, 2, 3


class Cuts:
    """A recorded run, and what is found after the power was cut at its steps."""

    def __init__(self, folder: Path, space: str, durability: str, commits: int) -> None:
        self.folder, self.space = folder / durability, space
        self.folder.mkdir(mode=0o700)
        url, log = str(self.folder / "dibs.db"), str(self.folder / "log")
        with children() as crew:
            child = crew.start(commit_and_note, url, space, durability, commits, log)
            assert child.hear() == "done"
        self.key = (self.folder / "dibs.db.d" / "key").read_bytes()
        self.log: list[list[Any]] = json.loads(Path(log).read_text())
        self.cuts = self.lost = self.corrupt = 0

    def make(self, every: int) -> None:
        """Cut at every so-many-th write and sync, each time once hard and once by chance."""
        disk, acknowledged, steps = Disk(), -1, 0
        begin = self.log.index(["begin"])
        chance = random.Random(SEED)
        for place, step in enumerate(self.log):
            if step[0] == "acknowledged":
                acknowledged = step[1]
            elif step[0] != "begin":
                disk.do(step)
            if place > begin and step[0] in ("write", "sync", "acknowledged"):
                steps += 1
                if steps % every == 0:
                    self.check(disk.after_a_cut(None), acknowledged)
                    self.check(disk.after_a_cut(chance), acknowledged)

    def check(self, files: dict[str, bytes], acknowledged: int) -> None:
        self.cuts += 1
        folder = self.folder / f"cut{self.cuts}"
        url = lay_out(files, self.key, folder)
        try:
            with dibs.open(url, space=self.space) as store:
                driver: Any = store.scope.store.driver
                self.corrupt += driver._idle[0].db.pragma("integrity_check") != "ok"
                found = {int(entry.key) for entry in store.state.list("run")}
                self.lost += not found >= set(range(acknowledged + 1))
                # At most the one that was on its way may be there without an answer.
                assert found <= set(range(acknowledged + 2))
                store.join("bob").leases.claim("port:1")
        except dibs.CorruptError:
            self.corrupt += 1
        shutil.rmtree(folder)


def cut_the_power(folder: Path, space: str, commits: int, every: int) -> None:
    full = Cuts(folder, space, "full", commits)
    full.make(every)
    fast = Cuts(folder, space, "fast", commits)
    fast.make(every)
    print(
        f"\nR6 sqlite: power cut at {full.cuts:,} moments of a {commits}-commit run: "
        f"{full.lost} lost, {full.corrupt} corrupt; "
        f"durability=fast: {fast.lost} of {fast.cuts:,} lost, {fast.corrupt} corrupt"
    )
    assert any(step[:2] == ["sync", "dibs.db"] for step in full.log[full.log.index(["begin"]) :])
    assert (full.lost, full.corrupt) == (0, 0)
    assert fast.corrupt == 0
    # It says so itself; and a test that finds nothing here could find nothing above either.
    assert fast.lost > 0


def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path, space_name: str):
    cut_the_power(tmp_path, space_name, commits=40, every=29)


@pytest.mark.stress
def test_a_power_cut_at_each_write_and_sync_loses_nothing_acknowledged(
    tmp_path: Path, space_name: str
):
    cut_the_power(tmp_path, space_name, commits=40, every=1)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that makes system calls of the process it is loaded into fail."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("the faulty disk needs a C compiler, on Linux")
    target = tmp_path_factory.mktemp("disk") / "faulty_disk.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(SOURCE)], check=True
    )
    return str(target)


FAULTS = [
    pytest.param(WRITE, errno.EIO, "storage", id="a write fails"),
    pytest.param(WRITE, errno.ENOSPC, "disk_full", id="the disk is full"),
    pytest.param(SYNC, errno.EIO, "storage", id="a sync fails"),
    pytest.param(LOCK, errno.EIO, "busy", id="a lock fails"),
]


def fail_each(
    url: str, space: str, library: str, kind: int, number: int, code: str, step: int, what: str
) -> None:
    """Let the first, second, ... call of that kind fail, until a run needs no more of them."""
    outcomes: Counter[str] = Counter()
    runs = 0
    env = {"LD_PRELOAD": library}
    with children() as crew, dibs.open(url, space=space) as other:
        child = crew.start(commit_on_a_faulty_disk, url, space, library, 10, env=env)
        assert child.hear() == "here"
        bob = other.join("bob")
        k = 0
        while True:
            child.tell([kind, k, number, False, runs])
            hits, answers, seen, after = child.hear()
            if not hits:
                break
            acknowledged = [f"{runs}/{n}" for n, a in enumerate(answers) if a == "acknowledged"]
            assert set(seen) >= set(acknowledged), "an acknowledged write is gone"
            assert after == "well", (k, after, answers)
            outcomes.update(a if isinstance(a, str) else a[0] for a in answers)
            assert set(outcomes) <= {"acknowledged", code}, (k, answers)
            bob.leases.claim("port:1")  # no lock is left behind
            bob.leases.release("port:1")
            runs += 1
            k += step
        driver: Any = other.scope.store.driver
        assert driver._idle[0].db.pragma("integrity_check") == "ok"
    print(f"\nR7 sqlite, {what}: {runs} faults: {dict(outcomes)}, nothing lost, no lock left")
    assert runs > 2


@pytest.mark.parametrize(("kind", "number", "code"), FAULTS)
def test_a_fault_of_the_disk_is_named_and_nothing_acknowledged_is_lost(
    sqlite_url: str,
    space_name: str,
    library: str,
    kind: int,
    number: int,
    code: str,
    request: pytest.FixtureRequest,
):
    what = request.node.callspec.id
    step = 7 if kind == WRITE else 3
    fail_each(sqlite_url, space_name, library, kind, number, code, step, what)


@pytest.mark.stress
@pytest.mark.parametrize(("kind", "number", "code"), FAULTS)
def test_each_fault_of_the_disk_is_named_and_nothing_acknowledged_is_lost(
    sqlite_url: str,
    space_name: str,
    library: str,
    kind: int,
    number: int,
    code: str,
    request: pytest.FixtureRequest,
):
    what = request.node.callspec.id
    fail_each(sqlite_url, space_name, library, kind, number, code, 1, what)


@pytest.mark.parametrize(("kind", "number", "code"), FAULTS[:3])
def test_a_disk_that_stays_faulty_is_named_each_time_and_works_again_when_it_is_well(
    sqlite_url: str, space_name: str, library: str, kind: int, number: int, code: str
):
    with children() as crew:
        child = crew.start(
            commit_on_a_faulty_disk,
            sqlite_url,
            space_name,
            library,
            10,
            env={"LD_PRELOAD": library},
        )
        assert child.hear() == "here"
        child.tell([kind, 0, number, True, 0])
        hits, answers, seen, after = child.hear()
    assert hits >= 10
    assert [answer[0] for answer in answers] == [code] * 10
    assert (seen, after) == ([], "well")


def open_under_faults(
    folder: Path, space: str, library: str, kind: int, number: int, step: int, what: str
) -> None:
    outcomes: Counter[str] = Counter()
    with children() as crew:
        child = crew.start(open_on_a_faulty_disk, space, library, env={"LD_PRELOAD": library})
        assert child.hear() == "here"
        k = 0
        while True:
            url = str(folder / f"{kind}-{number}-{k}" / "dibs.db")
            child.tell([url, kind, k, number])
            hits, first, second = child.hear()
            if not hits:
                break
            assert not first.startswith("untyped"), (k, first)
            assert second == "done", (k, first, second)
            outcomes[first] += 1
            if number == errno.ENOSPC:
                assert first in ("done", "disk_full"), (k, first)
            k += step
    print(f"\nR7 sqlite, opening, {what}: {outcomes.total()} faults: {dict(outcomes)}")
    assert outcomes.total() > 2


@pytest.mark.parametrize(("kind", "number", "code"), FAULTS)
def test_a_fault_while_a_fresh_store_is_opened_leaves_one_that_can_be_opened(
    tmp_path: Path,
    space_name: str,
    library: str,
    kind: int,
    number: int,
    code: str,
    request: pytest.FixtureRequest,
):
    what = request.node.callspec.id
    step = 11 if kind == WRITE else 3
    open_under_faults(tmp_path, space_name, library, kind, number, step, what)


@pytest.mark.stress
@pytest.mark.parametrize(("kind", "number", "code"), FAULTS)
def test_each_fault_while_a_fresh_store_is_opened_leaves_one_that_can_be_opened(
    tmp_path: Path,
    space_name: str,
    library: str,
    kind: int,
    number: int,
    code: str,
    request: pytest.FixtureRequest,
):
    what = request.node.callspec.id
    open_under_faults(tmp_path, space_name, library, kind, number, 1, what)
