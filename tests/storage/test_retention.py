"""How long each kind is kept, and the export of what is removed."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.nouns.events import pruning
from dibs.storage.retention import Retention, check_export
from tests.clock import ManualClock
from tests.contract.world import with_tests

HOUR_S, DAY_S = 3_600.0, 86_400.0
LONG_S = 7 * DAY_S


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000_000)


@pytest.fixture
def space(url: str, space_name: str, tmp_path: Path, clock: ManualClock) -> Iterator[dibs.Dibs]:
    user_dir, start = str(tmp_path / "user"), str(tmp_path)
    with dibs.open(url, space=space_name, clock=clock, user_dir=user_dir, start=start) as opened:
        yield opened


@pytest.fixture
def alice(space: dibs.Dibs) -> dibs.Agent:
    return space.join("alice", ttl_s=LONG_S)


def some_of_everything(alice: dibs.Agent) -> None:
    alice.work.claim("t")
    alice.work.complete("t")
    alice.messages.send("hello", to="alice")
    alice.messages.inbox()
    for value in range(3):
        alice.state.set("n", "k", value, force=True, idempotency_key=f"key {value}")


def exported(folder: Path) -> list[dict[str, Any]]:
    """The lines of all files that are JSON."""
    found = []
    for file in sorted(folder.iterdir()):
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # cut off by a kill
    return found


def seqs(folder: Path) -> set[int]:
    return {line["row"]["seq"] for line in exported(folder) if line["table"] == "event"}


@pytest.mark.parametrize("kind", ["journal", "messages", "tasks", "versions", "answers"])
def test_each_kind_is_kept_for_its_own_time(space, alice, clock, kind):
    some_of_everything(alice)
    clock.advance(2 * HOUR_S)
    space.scope.store.keeps = lambda: Retention(DAY_S, ages={kind: HOUR_S})
    pruned = alice.events.prune().to_json()
    name = "events" if kind == "journal" else kind
    assert pruned[name] > 0
    others = ("events", "messages", "tasks", "versions", "answers", "sessions")
    assert {other: pruned[other] for other in others if other != name} == {
        other: 0 for other in others if other != name
    }
    assert alice.agents.verify() == ()


def test_a_space_that_prunes_itself_follows_the_same_settings(space, alice, clock):
    some_of_everything(alice)
    clock.advance(2 * HOUR_S)
    space.scope.store.keeps = lambda: Retention(DAY_S, ages={"tasks": HOUR_S})
    while pruning.tidy(space.scope):
        pass
    assert alice.work.list() == ()
    assert alice.events.since()[0].seq == 1
    assert len(alice.state.history("n", "k")) == 3


def test_what_is_removed_was_exported_before(space, alice, clock, tmp_path):
    some_of_everything(alice)
    events = {event.seq: event for event in alice.events.since()}
    clock.advance(DAY_S)
    folder = tmp_path / "export"
    space.scope.store.keeps = lambda: Retention(HOUR_S, export=str(folder))
    pruned = alice.events.prune()
    lines = exported(folder)
    told = {line["row"]["seq"]: line["row"] for line in lines if line["table"] == "event"}
    assert told.keys() == {seq for seq in events if seq <= pruned.pruned_seq} != set()
    for seq, row in told.items():
        event = events[seq]
        assert (row["kind"], row["subject"], row["at"]) == (event.kind, event.subject, event.at)
        assert row["hash"]
    rows = [line["table"] for line in lines if line["table"] != "event"]
    assert set(rows) == {"message", "task", "entry_version", "answer"}
    assert rows.count("message") == pruned.messages == 1
    assert rows.count("entry_version") == pruned.versions == 2
    [task] = [line["row"] for line in lines if line["table"] == "task"]
    assert (task["id"], task["state"]) == ("t", "completed")
    assert {line["space"] for line in lines} == {space.space}
    day = time.strftime("%Y-%m-%d", time.gmtime(events[1].at / 1000))
    assert [file.name for file in folder.iterdir()] == [f"{day}.jsonl"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / f"{day}.jsonl").stat().st_mode) == 0o600


def test_nothing_is_removed_that_cannot_be_exported(space, alice, clock, tmp_path):
    some_of_everything(alice)
    clock.advance(DAY_S)
    before = alice.events.since()
    folder = tmp_path / "export"
    folder.write_text("a file")
    space.scope.store.keeps = lambda: Retention(HOUR_S, export=str(folder))
    with pytest.raises(dibs.DibsError):
        alice.events.prune()
    assert not pruning.tidy(space.scope)
    assert "export" in space.scope.store.not_pruned
    assert alice.events.since() == before
    assert (len(alice.work.list()), len(alice.state.history("n", "k"))) == (1, 3)
    folder.unlink()
    while pruning.tidy(space.scope):
        pass
    assert space.scope.store.not_pruned == ""
    assert alice.work.list() == ()
    assert {event.seq for event in before} <= seqs(folder)


def test_a_full_disk_keeps_what_could_not_be_exported(space, alice, clock, tmp_path):
    """A limit on the size of a file refuses the write in the middle, as a full disk does."""
    import resource

    for number in range(50):
        alice.state.set("n", "k", f"{number} {'x' * 200}", force=True)
    clock.advance(DAY_S)
    before = {event.seq for event in alice.events.since()}
    folder = tmp_path / "export"
    space.scope.store.keeps = lambda: Retention(HOUR_S, export=str(folder))
    folder.mkdir(mode=0o700)
    day = time.strftime("%Y-%m-%d", time.gmtime(alice.events.since()[0].at / 1000))
    big = 64 << 20  # beyond what the store's own files need
    with open(folder / f"{day}.jsonl", "wb") as file:
        file.truncate(big)
    os.chmod(folder / f"{day}.jsonl", 0o600)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (big + 1_000, hard))
    try:
        with pytest.raises(dibs.DibsError, match="cannot be exported"):
            alice.events.prune()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {event.seq for event in alice.events.since()} >= before
    os.truncate(folder / f"{day}.jsonl", 10)  # what is left of it is no whole line
    alice.events.prune()
    assert before <= seqs(folder)


def test_a_line_that_was_cut_off_does_not_spoil_the_next(space, alice, clock, tmp_path):
    some_of_everything(alice)
    clock.advance(DAY_S)
    day = time.strftime("%Y-%m-%d", time.gmtime(alice.events.since()[0].at / 1000))
    folder = tmp_path / "export"
    folder.mkdir(mode=0o700)
    (folder / f"{day}.jsonl").write_bytes(b'{"row": {"seq": 1, "ki')
    os.chmod(folder / f"{day}.jsonl", 0o600)
    space.scope.store.keeps = lambda: Retention(HOUR_S, export=str(folder))
    last = alice.events.prune().pruned_seq
    assert seqs(folder) == set(range(1, last + 1))


def test_no_link_is_followed_to_an_export(space, alice, clock, tmp_path):
    some_of_everything(alice)
    clock.advance(DAY_S)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "export").symlink_to(tmp_path / "elsewhere")
    space.scope.store.keeps = lambda: Retention(HOUR_S, export=str(tmp_path / "export"))
    with pytest.raises(dibs.UnfitError, match="is a link"):
        alice.events.prune()
    with pytest.raises(dibs.UnfitError, match="is a link"):
        check_export(str(tmp_path / "export"))
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert alice.events.since()[0].seq == 1


PRUNE = """
import sys, dibs
from dibs.storage.retention import Retention
from tests.clock import ManualClock
url, name, user_dir, export, now = sys.argv[1:]
clock = ManualClock(int(now))
with dibs.open(url, space=name, user_dir=user_dir, start=user_dir, clock=clock) as s:
    s.scope.store.keeps = lambda: Retention(3600, export=export)
    alice = s.join("alice", ttl_s=86400)
    print("begins", flush=True)
    alice.events.prune()
"""


def test_whoever_is_killed_while_pruning_has_exported_what_is_gone(
    url, space, space_name, alice, clock, tmp_path
):
    chosen = random.Random(7)
    tasks = [{"id": f"t{number}"} for number in range(500)]
    for start in range(0, 500, 100):
        alice.work.add_many(tasks[start : start + 100])
    for number in range(500):
        alice.work.cancel(f"t{number}")
    everything = {event.seq for event in alice.events.since(limit=1000)}
    everything |= {event.seq for event in alice.events.since(max(everything), limit=1000)}
    clock.advance(DAY_S)
    folder, user_dir = tmp_path / "export", str(tmp_path / "user")
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", PRUNE, url, space_name, user_dir, str(folder), str(clock.now())],
            env=with_tests(),
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chosen.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        there = {event.seq for event in space.events.since(limit=1000)}
        there |= {event.seq for event in space.events.since(max(there), limit=1000)}
        gone = seqs(folder) if folder.exists() else set()
        assert everything <= there | gone
