"""What the processes of the housekeeping tests do: write and say how long it took, prune, work."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import dibs
from dibs.nouns.events import pruning
from dibs.storage.retention import Retention
from tests.stress.clockwork import ask, database, say

OLD_MS = 90 * 86_400_000
PAUSE_S = 0.005
LEAST = 60
"""How many turns an agent takes however slow the machine is: with fewer, nothing is pruned."""


def fill(url: str, space: str, user: str, number: int) -> None:
    """Give an empty space a journal of so many events, all of them three months old."""
    with dibs.open(url, space=space, user_dir=user) as opened:
        store = opened.scope.store
        old = store.clock.wall() - OLD_MS
        columns = "(space, seq, kind, agent, session, subject, data, at, hash)"
        row = f"{store.space}, n, 'lease.renewed', 'a' || n % 20, 1, 'src/file' || n % 977 || '.py'"
        row += f""", '{{"epoch":' || n || '}}', {old}, 'x'"""
        numbers = f"generate_series(1, {number}) AS n"
        if database(url) == "sqlite":
            numbers = f"""(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c
                          WHERE n < {number}) SELECT n FROM c)"""
            connection = store.driver.take()
            connection.db.execute(f"INSERT INTO event {columns} SELECT {row} FROM {numbers}")
            connection.db.wal_checkpoint(mode=3)
            store.driver.give_back(connection)
        else:
            import psycopg

            with psycopg.connect(url) as db:
                db.execute(f"INSERT INTO dibs.event {columns} SELECT {row} FROM {numbers}".encode())


def write(url: str, space: str, user: str, number: int) -> None:
    """Claim and release until told to stop; then say what the slowest took, and what failed."""
    with dibs.open(url, space=space, user_dir=user) as opened:
        opened.scope.store.tidy = None  # the pruning is another's
        agent = opened.join(f"writer{number}")
        say("ready")
        took: list[tuple[float, float]] = []
        busy, end = 0, time.monotonic() + ask()
        say("begun")
        while time.monotonic() < end:
            begin = time.monotonic()
            try:
                agent.leases.claim(f"port:{number}")
                middle = time.monotonic()
                agent.leases.release(f"port:{number}")
                took += [(begin, middle - begin), (middle, time.monotonic() - middle)]
            except dibs.BusyError:
                busy += 1
            time.sleep(PAUSE_S)
        say({"took": took, "busy": busy})


def collect(url: str, space: str, user: str, keep_s: float) -> None:
    """Prune, and say when it began, when it ended, and what it removed."""
    with dibs.open(url, space=space, user_dir=user) as opened:
        agent = opened.join("person")
        say("ready")
        ask()
        begin = time.monotonic()
        pruned = agent.events.prune(keep_s=keep_s)
        say({"begin": begin, "end": time.monotonic(), **pruned.to_json()})


def work(
    url: str,
    space: str,
    user: str,
    token: str | None,
    number: int,
    keeps: tuple[float, int],
    turn_s: float,
) -> None:
    """Do what an agent does, turn after turn; say how many turns that were, and what failed.

    keeps: how much of the past to keep, where this process prunes
    turn_s: how long a turn takes at least
    """
    where: dict[str, Any] = {"token": token} if token else {"space": space}
    with dibs.open(url, user_dir=user, **where) as opened:
        if opened.scope.daemon is None:
            opened.scope.store.keeps = lambda: Retention(*keeps)
            # On a fast machine the first look comes before anything is old enough.
            pruning.REST_MS = min(pruning.REST_MS, round(keeps[0] * 1000))
        agent = opened.join(f"agent{number}")
        say("ready")
        end, turns, failed = time.monotonic() + ask(), 0, Counter[str]()
        while (begin := time.monotonic()) < end or turns < LEAST:
            turns += 1
            try:
                take_turn(agent, number, turns)
            except dibs.UnavailableError as error:
                failed[type(error).__name__] += 1
            time.sleep(max(0.0, begin + turn_s - time.monotonic()))
        say({"turns": turns, "failed": failed})


def take_turn(agent: dibs.Agent, number: int, turn: int) -> None:
    """A file, a task, a message, an entry, and a look at what has come."""
    path = f"src/part{number}/file{turn % 50}.py"
    agent.leases.claim(path, note="to make the parser faster")
    agent.leases.renew(path)
    task = agent.work.claim(f"issue:{number}-{turn}")
    agent.messages.send("the parser is faster now, have a look", to=f"agent{(number + 1) % 20}")
    agent.messages.inbox()
    agent.state.set("plan", f"part{number}", {"turn": turn}, force=True)
    agent.work.complete(task.id, result={"turn": turn})
    agent.leases.release(path)


def use_of(pid: int) -> tuple[int, int]:
    """The memory of a process in MiB, and how many descriptors it has open."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as source:
        pages = int(source.read().split()[1])
    return pages * 4096 >> 20, len(os.listdir(f"/proc/{pid}/fd"))
