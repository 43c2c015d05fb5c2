"""Tasks that declare their leases: none run beside each other that overlap, and none is starved.

The journal tells in one order what was claimed and completed. A checker that knows nothing of how
`next` finds a task goes through it: no two tasks that run overlap; the first of all that are left
is passed at most `SKIPS` times for one that overlaps with it; and whenever a worker was refused, no
task that was left fitted beside those that ran and those that had their turn.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.nouns.work.fitting import SKIPS
from tests.stress.procs import NS, nursery, open_gate
from tests.stress.test_races import name_of, race

ZONES, FILES, MOST = 12, 6, 4
Task = dict[str, Any]


def overlap(one: list[str], other: list[str]) -> bool:
    return any(
        f"{a}/".startswith(f"{b}/") or f"{b}/".startswith(f"{a}/") for a in one for b in other
    )


def plan(number: int, seed: int, declare: bool) -> list[Task]:
    """Tasks of random priorities with random files, and folders around them."""
    chance, tasks = random.Random(seed), []
    for n in range(number):
        names = []
        for _ in range(chance.randint(1, MOST)):
            zone = f"zone{chance.randrange(ZONES)}"
            whole = chance.random() < 0.15
            names.append(zone if whole else f"{zone}/f{chance.randrange(FILES)}")
        names = sorted(set(names))
        task: Task = {"id": f"t{n:04}", "priority": chance.randrange(3), "payload": names}
        tasks.append({**task, "leases": names} if declare else task)
    return tasks


class Journal:
    """What happened, in order, and what it says of the promises."""

    def __init__(self, tasks: list[Task]) -> None:
        self.names = {task["id"]: task["payload"] for task in tasks}
        order = sorted(tasks, key=lambda task: (-task["priority"], task["id"]))
        self.left = {task["id"]: None for task in order}
        self.running: dict[str, None] = {}
        self.turns: dict[str, None] = {}
        self.passed: Counter[str] = Counter()
        self.met = 0

    def take(self, id: str) -> None:
        if any(overlap(self.names[id], self.names[other]) for other in self.running):
            self.met += 1
        first = next(iter(self.left))
        if first != id and overlap(self.names[first], self.names[id]):
            self.passed[first] += 1
        del self.left[id]
        self.turns.pop(id, None)
        self.running[id] = None

    def fitting(self) -> str | None:
        """A task that could be given."""
        for id in self.left:
            others = [*self.running, *(turn for turn in self.turns if turn != id)]
            if not any(overlap(self.names[id], self.names[other]) for other in others):
                return id
        return None


def check(space: dibs.Dibs, tasks: list[Task], idle: list[int]) -> Journal:
    journal, asked, seq = Journal(tasks), sorted(idle), 0
    known = {task["id"] for task in tasks}
    while events := space.events.since(seq, limit=1000):
        for event in events:
            while asked and asked[0] < event.seq:
                assert journal.fitting() is None, (asked[0], journal.fitting())
                asked.pop(0)
            seq = event.seq
            if event.kind == "task.claimed" and event.subject in known:
                journal.take(event.subject)
            elif event.kind == "task.completed":
                del journal.running[event.subject]
            elif event.kind == "task.turn":
                journal.turns[event.subject] = None
    return journal


def run(url: str, name: str, folder: Path, number: int, workers: int, declare: bool) -> str:
    tasks = plan(number, 7, declare)
    with dibs.open(url, space=name, user_dir=str(folder / "user")) as space:
        with space.join("planner") as planner:
            for start in range(0, number, 500):
                planner.work.add_many(tasks[start : start + 500])
        begin = time.monotonic()
        logs = race("supply:by_next", url, name, folder, workers=workers)
        took = time.monotonic() - begin
        done = Counter(line["id"] for log in logs for line in log if line["says"] == "done")
        assert done == dict.fromkeys((task["id"] for task in tasks), 1)
        idle = [line["seq"] for log in logs for line in log if line["says"] == "idle"]
        journal = check(space, tasks, idle if declare else [])
        assert not journal.left and not journal.running
        passed = max(journal.passed.values(), default=0)
        if declare:
            assert journal.met == 0
            assert passed <= SKIPS
    how = "that declare" if declare else "that do not"
    return (
        f"{name_of(url)}, {workers} processes, {number:,} tasks {how}: {journal.met:,} claims met "
        f"a running task on the same files; {len(idle)} refusals; passed at most {passed} times; "
        f"{took:.1f} s"
    )


def test_tasks_that_run_never_overlap_and_none_starves(
    url: str, space_name: str, tmp_path: Path
) -> None:
    run(url, space_name, tmp_path, 60, 4, declare=True)


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.parametrize("declare", [True, False], ids=["declared", "undeclared"])
def test_sixteen_workers_and_two_thousand_tasks(
    declare: bool, url: str, space_name: str, tmp_path: Path
) -> None:
    print(f"\nSupply {run(url, space_name, tmp_path, 2_000, 16, declare)}")


@pytest.mark.stress
def test_a_wait_for_a_task_ends_soon_after_its_completion(
    url: str, space_name: str, tmp_path: Path
) -> None:
    ids = [f"t{n}" for n in range(100)]
    where = {"url": url, "space": space_name, "user_dir": str(tmp_path / "user")}
    start, called, answered = tmp_path / "start", [], []
    with dibs.open(url, space=space_name, user_dir=where["user_dir"]) as space:
        boss = space.join("boss")
        boss.work.add_many([{"id": id} for id in ids])
        with nursery(tmp_path / "logs") as place:
            worker = place.start("supply:waits", name="waiter", start=str(start), ids=ids, **where)
            worker.wait_for("ready")
            open_gate(start, str(time.monotonic_ns() + NS // 20))
            for number, id in enumerate(ids):
                boss.work.claim(id)
                while sum(line["says"] == "waits" for line in worker.log()) <= number:
                    time.sleep(0.001)
                time.sleep(0.02)  # so that it sleeps
                call = time.monotonic_ns()
                boss.work.complete(id)
                done = time.monotonic_ns()
                while sum(line["says"] == "woken" for line in worker.log()) <= number:
                    time.sleep(0.0005)
                woken = [line["ns"] for line in worker.log() if line["says"] == "woken"]
                called.append((woken[-1] - call) / 1e6)
                answered.append((woken[-1] - done) / 1e6)
            worker.wait(seconds=60)
        boss.close()
    print(
        f"\nWait {name_of(url)}: until the wait elsewhere ends, from the call of complete: median "
        f"{statistics.median(called):.1f} ms; from its answer, which is right after its commit: "
        f"median {statistics.median(answered):.1f} ms, worst {max(answered):.1f} ms"
    )
    assert statistics.median(answered) < 5


MANY = 100_000


@pytest.mark.stress
@pytest.mark.timeout(900)
def test_the_cost_of_next_among_many_tasks_with_leases_and_without(
    url: str, space_name: str, tmp_path: Path
) -> None:
    """Hot: all of them but one need a file that somebody else holds."""
    costs: dict[str, list[float]] = {}
    for side in ("plain", "leases", "hot"):
        name, user_dir = f"{space_name}-{side}", str(tmp_path / "user")
        costs[side] = []
        for durability in ("fast", "full"):
            with dibs.open(url, space=name, user_dir=user_dir, durability=durability) as space:
                others = space.join("others", ttl_s=86_400)
                agent = space.join("bench", ttl_s=86_400)
                if durability == "fast":
                    for start in range(0, MANY, 1_000):
                        others.work.add_many(
                            [task_of(side, n) for n in range(start, start + 1_000)]
                        )
                    cold = [] if side == "plain" else ["cold", "colder"]
                    others.work.add("last", priority=-1, leases=cold)
                others.leases.claim("hot", *(f"dir{n}" for n in range(16)))
                costs[side] += cost_of_next(agent)
                others.close()
    plain, first = costs["plain"][1::2], costs["hot"][0]
    said = {
        side: ", ".join(f"{here:.2f} ms ({here / there:.1f} x)" for here, there in
                        zip(found[1::2], plain, strict=True))
        for side, found in costs.items()
    }  # fmt: skip
    print(
        f"\nNext {name_of(url)} among {MANY:,} tasks, fast and full: plain {said['plain']}; two "
        f"leases each {said['leases']}; all but one behind a held lease {said['hot']}, the first "
        f"time {first:.0f} ms"
    )


def cost_of_next(agent: dibs.Agent) -> tuple[float, float]:
    """The first time and the usual one, in milliseconds."""
    took = []
    for _ in range(300):
        begin = time.perf_counter()
        task = agent.work.next()
        took.append((time.perf_counter() - begin) * 1e3)
        agent.work.abandon(task.id)
    return took[0], statistics.median(took)


def task_of(side: str, n: int) -> Task:
    leases = {"plain": [], "leases": [f"dir{n % 999}/f{n}", f"own{n}"], "hot": ["hot", f"own{n}"]}
    return {"id": f"t{n}", "priority": n % 5, "leases": leases[side]}
