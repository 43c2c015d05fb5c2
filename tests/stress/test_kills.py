"""R1: eight processes on one database, and every 50 ms one of them is killed.

Nothing that was acknowledged may be lost, and nothing may have two winners.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.stress.kills import TTL_S
from tests.stress.procs import NS, Nursery, Worker, nursery, read_log, run

PROCESSES = 8
EVERY_S = 0.05
MUTATIONS = ("claim", "release", "take", "complete", "set", "send")


def test_a_few_killed_processes_lose_nothing(url: str, space_name: str, tmp_path: Path) -> None:
    kill_processes(url, space_name, tmp_path, kills=15, seed=1)


@pytest.mark.stress
def test_three_hundred_killed_processes_lose_nothing(
    url: str, space_name: str, tmp_path: Path
) -> None:
    print("\n" + kill_processes(url, space_name, tmp_path, kills=300, seed=2))


def kill_processes(url: str, space: str, folder: Path, *, kills: int, seed: int) -> str:
    pick = random.Random(seed)
    where = {"url": url, "space": space, "user_dir": str(folder / "user")}
    logs = folder / "logs"
    # The first one makes the store and its key; the others find it.
    run(folder / "made", "kills:contents", sqlite=False, **where)
    with nursery(logs) as place:

        def start(number: int) -> Worker:
            seed = pick.getrandbits(32)
            return place.start("kills:toil", seed=seed, name=f"worker-{number}", **where)

        workers = [start(number) for number in range(PROCESSES)]
        for worker in workers:
            worker.wait_for("joined")
        begun = time.monotonic()
        for kill in range(kills):
            time.sleep(max(0.0, begun + (kill + 1) * EVERY_S - time.monotonic()))
            number = pick.randrange(PROCESSES)
            assert_running(place, workers[number])
            workers[number].kill()
            workers[number] = start(number)
        for worker in workers:
            assert_running(place, worker)
            worker.kill()
    found = run(
        folder / "found", "kills:contents", sqlite=not url.startswith("postgresql"), **where
    )
    calls = [call for path in sorted(logs.glob("*.jsonl")) for call in calls_of(read_log(path))]
    integrity = [line["answer"] for line in found if line["says"] == "integrity"]
    assert integrity in (["ok"], []), integrity
    assert [line["number"] for line in found if line["says"] == "mismatches"] == [0]
    done = [call for call in calls if call["done"] is not None]
    assert len(done) > kills, "the workers were killed before they did anything"
    assert {call["op"] for call in done} == set(MUTATIONS)
    lost = lost_writes(done, found)
    assert not lost, lost[:10]
    double = double_winners(calls, found)
    assert not double, double[:10]
    database = "postgres" if url.startswith("postgresql") else "sqlite"
    return (
        f"R1 {database}: {kills} kills, {len(done):,} acknowledged writes, "
        f"{len(double)} double winners, {len(lost)} lost, "
        f"integrity {'ok' if integrity else 'is the server’s'}"
    )


def assert_running(place: Nursery, worker: Worker) -> None:
    """A worker ends only by being killed."""
    if place.ask(do="gone", pid=worker.pid)["gone"]:
        worker.wait()
        raise AssertionError(f"{worker.path.name} ended by itself")


def calls_of(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One process's calls, each with its answer if one came, and when the process was last seen."""
    calls: dict[int, dict[str, Any]] = {}
    session = None
    for line in log:
        if line["says"] == "joined":
            session = line["session"]
        elif line["says"] == "asks":
            calls[line["n"]] = {**line, "session": session, "done": None}
        elif line["says"] == "done":
            calls[line["n"]]["done"] = line
    last = log[-1].get("at", 0) if log else 0
    return [{**call, "last_seen": last} for call in calls.values()]


def lost_writes(done: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The acknowledged writes that the store does not have."""
    epochs = {
        (line["kind"], line["subject"], line["data"]["epoch"])
        for line in found
        if line["says"] == "event" and line["kind"].split(".")[0] in ("lease", "task")
        if line["data"] and "epoch" in line["data"]
    }
    results = {
        (line["id"], line["result"])
        for line in found
        if line["says"] == "task" and line["state"] == "completed"
    }
    versions = {
        (line["key"], line["version"], line["value"]) for line in found if line["says"] == "version"
    }
    messages = {(line["id"], line["body"]) for line in found if line["says"] == "message"}

    def kept(call: dict[str, Any]) -> bool:
        key, answer = call["key"], call["done"]
        match call["op"]:
            case "claim":
                kinds = ("lease.claimed", "lease.renewed")
                return any((kind, key, answer["epoch"]) in epochs for kind in kinds)
            case "release":
                return ("lease.released", key, call["epoch"]) in epochs
            case "take":
                return ("task.claimed", key, answer["epoch"]) in epochs
            case "complete":
                return ("task.completed", key, call["epoch"]) in epochs and (
                    key,
                    call["result"],
                ) in results
            case "set":
                return (key, answer["version"], call["value"]) in versions
            case "send":
                return (answer["id"], call["body"]) in messages
        raise AssertionError(call["op"])

    return [call for call in done if not kept(call)]


def double_winners(calls: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[Any]:
    """Whatever two processes won at the same time, by their own logs and by the journal."""
    won: Counter[tuple[Any, ...]] = Counter()
    for call in calls:
        answer = call["done"]
        if answer is not None and call["op"] == "complete":
            won["completed", call["key"]] += 1
        elif answer is not None and call["op"] == "set":
            won["version", call["key"], answer["version"]] += 1
    sessions: dict[tuple[str, int], set[int]] = {}
    for call in calls:
        if call["done"] is not None and call["op"] in ("claim", "take"):
            sessions.setdefault((call["key"], call["done"]["epoch"]), set()).add(call["session"])
    return [
        *(what for what, times in won.items() if times > 1),
        *(grant for grant, holders in sessions.items() if len(holders) > 1),
        *overlaps(calls),
        *second_holders(found),
    ]


def overlaps(calls: list[dict[str, Any]]) -> list[Any]:
    """Pairs of processes that had good reason to believe they held the same lease at once."""
    ends = {
        (call["op"], call["key"], call["epoch"]): call["at"]
        for call in calls
        if call["op"] in ("release", "complete")
    }
    held: dict[str, list[tuple[int, int, int]]] = {}
    for call in calls:
        if call["done"] is None or call["op"] not in ("claim", "take"):
            continue
        key, over = call["key"], "release" if call["op"] == "claim" else "complete"
        # A belief ends with the call that gives it up, with the process, or with its time.
        end = min(
            ends.get((over, key, call["done"]["epoch"]), call["last_seen"]),
            call["at"] + int(TTL_S * NS),
        )
        held.setdefault(key, []).append((call["done"]["at"], end, call["session"]))
    found = []
    for key, spans in held.items():
        spans.sort()
        for (_, end, one), (begin, _, other) in pairwise(spans):
            if one != other and begin < end:
                found.append((key, one, other))
    return found


def second_holders(found: list[dict[str, Any]]) -> list[Any]:
    """Grants in the journal of what another session still held."""
    holder: dict[str, int] = {}
    second = []
    for line in found:
        if line["says"] != "event":
            continue
        subject, session = line["subject"], line["session"]
        match line["kind"]:
            case "lease.claimed" | "task.claimed":
                if holder.get(subject, session) != session:
                    second.append((subject, holder[subject], session))
                holder[subject] = session
            case "lease.released" | "lease.freed" | "lease.expired":
                holder.pop(subject, None)
            case "task.completed" | "task.freed" | "task.dead":
                holder.pop(subject, None)
    return second


def test_the_comparison_finds_a_lost_write_and_a_second_winner() -> None:
    claim = {"op": "claim", "key": "lock:1", "at": 10, "last_seen": 50}
    one = {**claim, "session": 1, "done": {"epoch": 5, "at": 20}}
    two = {**claim, "session": 2, "done": {"epoch": 7, "at": 30}}
    claimed = {"says": "event", "kind": "lease.claimed", "subject": "lock:1"}
    journal = [
        {**claimed, "session": 1, "data": {"epoch": 5}},
        {**claimed, "session": 2, "data": {"epoch": 7}},
    ]
    assert lost_writes([one, two], journal) == []
    assert lost_writes([one, two], journal[:1]) == [two]
    assert overlaps([one, two]) == [("lock:1", 1, 2)]
    assert overlaps([{**one, "last_seen": 25}, two]) == []
    assert second_holders(journal) == [("lock:1", 1, 2)]
    freed = {**claimed, "kind": "lease.freed", "session": 1, "data": {"epoch": 5}}
    assert second_holders([journal[0], freed, journal[1]]) == []
    assert double_winners([one, {**two, "done": {"epoch": 5, "at": 60}}], []) == [("lock:1", 5)]
