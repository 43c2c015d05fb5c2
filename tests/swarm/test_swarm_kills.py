"""Workers and supervisors are killed: every task lands once, or is dead with its reason.

One task always fails, one never ends. Meanwhile somebody looks all the time how many agents run.
In the end nothing is left: no process, no port, no worktree, no task that nobody has.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import dibs
from tests.surfaces.shell import Shell, finish, until
from tests.swarm.conftest import git
from tests.swarm.test_swarm import AGENT, add, nothing_left, task

LAST_S = 600.0


def processes(mark: bytes) -> dict[int, bytes]:
    """What runs with this in its environment."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_bytes()
    return found


class Kills:
    """Somebody who kills agents at random, and counts those that live."""

    def __init__(self, shell: Shell, starts: Path, most: int, every_s: float, seed: int) -> None:
        self._starts = starts
        self._shell = shell
        self._most = most
        self._every_s = every_s
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._tasks: dict[int, str] = {}
        self._hit = {"bad", "endless"}
        self.killed = 0
        self.seen = 0
        self.wrong: list[str] = []

    def running(self) -> list[int]:
        """The agents that live now, by how they are called."""
        if not self._starts.exists():
            return []
        lines = [line.split() for line in self._starts.read_text().splitlines()]
        self._tasks = {int(pid): task for pid, task, _ in lines}
        lives = []
        for pid in self._tasks:
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                if b"agent.sh" in command and state not in "ZX":
                    lives.append(pid)
        return lives

    def _run(self) -> None:
        due = time.monotonic() + self._every_s
        with dibs.open(start=str(self._shell.folder), user_dir=self._shell.user_dir) as space:
            while not self._over.wait(0.1):
                pids = self.running()
                slots = [
                    one for one in space.leases.list() if one.resource.startswith("swarm:slot")
                ]
                self.seen = max(self.seen, len(pids))
                if len(pids) > self._most or len(slots) > self._most:
                    self.wrong.append(f"{len(pids)} agents in {len(slots)} slots")
                # Pauses get longer with each attempt, so no task is hit again and again.
                pids = [pid for pid in pids if self._tasks[pid] not in self._hit]
                if pids and time.monotonic() > due:
                    due = time.monotonic() + self._every_s
                    pid = self._chance.choice(pids)
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        self._hit.add(self._tasks[pid])
                        self.killed += 1

    def __enter__(self) -> Kills:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def survive(
    shell: Shell, number: int, agents: int, every_s: float, supervisors: int, takes_s: str
) -> dict[str, float]:
    """Let a swarm work on so many tasks while its parts are killed; figures for people."""
    ids = [f"t{n:02}" for n in range(number)]
    for id in ids:
        add(shell, id, max_attempts=20, leases=[f"{id}.md"])
    add(shell, "bad", title="fail: always", max_attempts=2)
    add(shell, "endless", title="hang: for a day", max_attempts=2)
    starts = shell.folder.parent / "starts"
    busy = shell.with_(AGENT_STARTS=str(starts), AGENT_TAKES_S=takes_s)
    how = ("--task-time", "6s", "--verify", "test ! -e half-bad", "--", AGENT)
    began, log = time.monotonic(), (shell.folder.parent / "said").open("wb")
    to_log = {"stdout": log, "stderr": subprocess.STDOUT}
    process = busy.start("swarm", str(agents), *how, **to_log)
    gaps = []
    with Kills(shell, starts, agents, every_s, number) as kills:
        for _ in range(supervisors):
            wait_for(shell, len(done(shell)) + number // 4)
            process.kill()
            process.wait()
            at = time.monotonic()
            until(lambda: not kills.running(), "the end of its agents", 5)
            until(lambda: not claimed(shell), "tasks that are free", 5)
            gaps.append(time.monotonic() - at)
            process = busy.start("swarm", "resume", *how, **to_log)
        finish(process, LAST_S)
    took = time.monotonic() - began
    log.close()
    said = (shell.folder.parent / "said").read_text(errors="replace")
    assert process.returncode == 0, said
    assert not kills.wrong, kills.wrong[:5]
    subjects = Counter(git(shell.folder, "log", "--no-merges", "--format=%s", "main").split("\n"))
    for id in ids:
        one = task(shell, id)
        assert one["state"] == "completed", (one, said[-4000:])
        assert subjects[f"Do {id}"] == 1, (id, subjects)
        brought = git(shell.folder, "show", "-s", "--format=%s", one["result"]["commit"])
        assert brought == f"Do {id}"
    assert sum(subjects.values()) == number + 1
    bad, endless = task(shell, "bad"), task(shell, "endless")
    assert (bad["state"], endless["state"]) == ("dead", "dead"), (bad, endless)
    assert bad["reason"].startswith("exit code 3: ")
    assert endless["reason"].startswith("it did not end within 6s: ")
    nothing_left(shell)
    until(lambda: not processes(os.fsencode(starts)), "the end of all processes", 10)
    return {
        "took_s": took, "killed": kills.killed, "most_agents": kills.seen, "free_after_s": max(gaps)
    }  # fmt: skip


def done(shell: Shell) -> list[str]:
    return [one["id"] for one in shell.json("work", "list", "--state", "completed", "--all")]


def wait_for(shell: Shell, number: int) -> None:
    until(lambda: len(done(shell)) >= number, f"{number} landed", 120)


def claimed(shell: Shell) -> list[str]:
    """The tasks that somebody has who lives; to look for one lets go of those of the dead."""
    with dibs.open(start=str(shell.folder), user_dir=shell.user_dir) as space:
        living = {one.id for agent in space.agents.list() for one in agent.sessions if one.alive}
        tasks = space.work.list(state="claimed", limit=1000)
        return [one.id for one in tasks if one.session in living]


@pytest.mark.timeout(300)  # pauses between attempts are real, and a busy machine kills more slowly
def test_a_few_tasks_survive_the_end_of_workers_and_of_a_supervisor(shell: Shell) -> None:
    figures = survive(shell, number=8, agents=3, every_s=2.0, supervisors=1, takes_s="0.3")
    assert figures["most_agents"] <= 3


@pytest.mark.stress
def test_fifty_tasks_survive_the_end_of_workers_and_of_two_supervisors(shell: Shell) -> None:
    figures = survive(shell, number=50, agents=6, every_s=3.0, supervisors=2, takes_s="1.5")
    print("\nswarm of 6 on 50 tasks:", {name: round(value, 2) for name, value in figures.items()})
    assert figures["killed"] >= 5
