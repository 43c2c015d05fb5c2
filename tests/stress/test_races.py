"""One winner: whoever many reach for, and however they do, exactly one gets it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.errors import HeldError
from tests.stress.procs import NS, Worker, nursery, open_gate

THREADS, PROCESSES, CLAIMERS, TASKS = 10, 16, 8, 200


def test_ten_threads_race_for_one_lease_and_one_wins(
    url: str, space_name: str, tmp_path: Path
) -> None:
    race_threads(url, space_name, tmp_path, races=3)


@pytest.mark.stress
def test_ten_threads_race_many_times_and_each_time_one_wins(
    url: str, space_name: str, tmp_path: Path
) -> None:
    races = race_threads(url, space_name, tmp_path, races=300)
    print(f"\nRace {name_of(url)}: {THREADS} threads, {races} leases, {races} winners")


def race_threads(url: str, space_name: str, folder: Path, *, races: int) -> int:
    with dibs.open(url, space=space_name, user_dir=str(folder / "user")) as space:
        agents = [space.join(f"thread-{number}") for number in range(THREADS)]
        start = threading.Barrier(THREADS)
        results: list[tuple[int, str]] = []
        errors: list[BaseException] = []

        def run(agent: dibs.Agent) -> None:
            try:
                for race in range(races):
                    start.wait(30)
                    try:
                        agent.leases.claim(f"lock:{race}")
                    except HeldError:
                        results.append((race, "lost"))
                    else:
                        results.append((race, "won"))
            except BaseException as error:
                errors.append(error)
                start.abort()

        threads = [threading.Thread(target=run, args=(agent,)) for agent in agents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        for agent in agents:
            agent.close()
    tally = Counter(results)
    for race in range(races):
        assert tally[race, "won"] == 1
        assert tally[race, "lost"] == THREADS - 1
    return races


def test_sixteen_processes_race_for_one_lease_and_one_wins(
    url: str, space_name: str, tmp_path: Path
) -> None:
    race_processes(url, space_name, tmp_path, races=3)


@pytest.mark.stress
def test_sixteen_processes_race_many_times_and_each_time_one_wins(
    url: str, space_name: str, tmp_path: Path
) -> None:
    races = race_processes(url, space_name, tmp_path, races=300)
    print(f"\nRace {name_of(url)}: {PROCESSES} processes, {races} leases, {races} winners")


def race_processes(url: str, space_name: str, folder: Path, *, races: int) -> int:
    logs = race(
        "races:for_leases", url, space_name, folder, workers=PROCESSES, races=races, keep=True
    )
    tally = Counter((line["says"], line["key"]) for log in logs for line in log if "key" in line)
    sessions = {log[0]["session"] for log in logs}
    winners = {
        line["key"]: log[0]["session"] for log in logs for line in log if line["says"] == "won"
    }
    for number in range(races):
        assert tally["won", number] == 1
        assert tally["lost", number] == PROCESSES - 1
    for log in logs:
        for line in log:
            assert line["says"] != "lost" or line["to"] == winners[line["key"]]
    assert len(sessions) == PROCESSES
    return races


@pytest.mark.parametrize("job", ["by_id", "by_next"])
def test_eight_claimers_and_two_hundred_tasks_make_two_hundred_wins(
    job: str, url: str, space_name: str, tmp_path: Path
) -> None:
    race_for_tasks(job, url, space_name, tmp_path, tasks=TASKS)


@pytest.mark.stress
@pytest.mark.parametrize("job", ["by_id", "by_next"])
def test_eight_claimers_and_five_thousand_tasks_make_five_thousand_wins(
    job: str, url: str, space_name: str, tmp_path: Path
) -> None:
    wins = race_for_tasks(job, url, space_name, tmp_path, tasks=5_000)
    print(
        f"\nRace {name_of(url)} {job}: {CLAIMERS} claimers, 5,000 tasks, {wins:,} wins, "
        "0 twice, 0 left"
    )


def race_for_tasks(job: str, url: str, space_name: str, folder: Path, *, tasks: int) -> int:
    ids = [f"task:{number}" for number in range(tasks)]
    with dibs.open(url, space=space_name, user_dir=str(folder / "user")) as space:
        with space.join("planner") as planner:
            for id in ids:
                planner.work.add(id)
        logs = race(f"races:{job}", url, space_name, folder, workers=CLAIMERS, ids=ids)
        wins = Counter(line["key"] for log in logs for line in log if line["says"] == "won")
        assert sorted(wins) == sorted(ids)
        assert set(wins.values()) == {1}
        states = Counter(space.work.show(id).state for id in ids)
        assert states == {"completed": tasks}
        busy = sum(any(line["says"] == "won" for line in log) for log in logs)
        assert busy > 1, "one worker did it all, so there was no race"
    return wins.total()


def race(
    job: str,
    url: str,
    space_name: str,
    folder: Path,
    *,
    workers: int,
    keep: bool = False,
    **config: Any,
) -> list[list[dict[str, Any]]]:
    """Let the workers start at one moment, wait until all have ended, and return what they said.

    keep: nobody leaves, and so gives back what it won, before all are through
    """
    where = {"url": url, "space": space_name, "user_dir": str(folder / "user")}
    start, end = folder / "start", folder / "end"
    dibs.open(url, space=space_name, user_dir=where["user_dir"]).close()
    with nursery(folder / "logs") as place:
        started: list[Worker] = [
            place.start(
                job,
                name=f"worker-{number}",
                seed=number,
                start=str(start),
                end=str(end),
                **where,
                **config,
            )
            for number in range(workers)
        ]
        for worker in started:
            worker.wait_for("ready")
        open_gate(start, str(time.monotonic_ns() + NS // 20))
        if keep:
            for worker in started:
                worker.wait_for("over", seconds=600)
        open_gate(end)
        for worker in started:
            worker.wait(seconds=600)
        return [worker.log() for worker in started]


def name_of(url: str) -> str:
    return "postgres" if url.startswith("postgresql") else "sqlite"
