"""What the bell costs: 64 writers on PostgreSQL, each in a space of its own, with it and without.

NOTIFY takes a lock of the whole server at its commit, so it is the writers of different spaces
who would wait for each other. It is sent where somebody listens: here, in so many of the spaces.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg

from dibs.storage.postgres_pipeline import CHANNEL, EAR_LOCK

WHY = (
    "PostgreSQL holds one lock of the whole server from a `NOTIFY` to the end of its commit, so "
    "these commits cannot share a write to the disk. dibs notifies only if somebody listens."
)
PROCESSES = 8
THREADS = 8
WORKER = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
import dibs
from dibs.storage.postgres_transaction import PostgresConnection

url, folder, number, threads = sys.argv[2:6]
commit = PostgresConnection.commit
agents = []
for thread in range(int(threads)):
    space = dibs.open(url, space=f"bell-{number}-{thread}", user_dir=folder)
    agents.append(space.join("writer"))
    agents[-1].state.set("n", "k", 0, force=True)
print("ready", flush=True)
for line in sys.stdin:
    side, seconds = line.split()
    if side == "silent":
        PostgresConnection.commit = lambda self, rings, seq: commit(self, set(), seq)
    else:
        PostgresConnection.commit = commit
    end, done = time.monotonic() + float(seconds), [0] * len(agents)

    def write(place):
        while time.monotonic() < end:
            agents[place].state.set("n", "k", done[place], force=True)
            done[place] += 1

    writers = [threading.Thread(target=write, args=(place,)) for place in range(len(agents))]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    print(sum(done), flush=True)
"""


@contextmanager
def listening(url: str, spaces: int) -> Iterator[None]:
    """Somebody in each of so many spaces, who is heard of and does nothing when the bell rings."""
    with ExitStack() as stack:
        first = stack.enter_context(psycopg.connect(url, autocommit=True))
        asked = "SELECT id FROM dibs.space WHERE name LIKE 'bell-%%' ORDER BY id LIMIT %s"
        for (space,) in first.execute(asked, [spaces]).fetchall():
            one = stack.enter_context(psycopg.connect(url, autocommit=True))
            one.execute(f"LISTEN {CHANNEL.format(space)}".encode())
            one.execute("SELECT pg_advisory_lock_shared(%s, %s::int)", [EAR_LOCK, space])
        yield


def measure(
    root: str, url: str, folder: str, listened: int, rounds: int, seconds: float
) -> tuple[float, float, tuple[float, float, float]]:
    """Writes a second without the bell and with it, and what is left: median, least, most."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, root, url, folder, str(number), str(THREADS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]

    def say(worker: subprocess.Popen[str], text: str) -> None:
        assert worker.stdin
        worker.stdin.write(text + "\n")
        worker.stdin.flush()

    def hear(worker: subprocess.Popen[str]) -> str:
        assert worker.stdout
        return worker.stdout.readline()

    figures: dict[str, list[float]] = {"silent": [], "rung": []}
    try:
        for worker in workers:
            assert hear(worker) == "ready\n"
        with listening(url, listened):
            for _ in range(rounds):
                for side, found in figures.items():
                    for worker in workers:
                        say(worker, f"{side} {seconds}")
                    found.append(sum(int(hear(worker)) for worker in workers) / seconds)
    finally:
        for worker in workers:
            worker.communicate()
    left = [rung / silent for rung, silent in zip(figures["rung"], figures["silent"], strict=True)]
    medians = [statistics.median(figures[side]) for side in ("silent", "rung")]
    return medians[0], medians[1], (statistics.median(left), min(left), max(left))
