"""The daemon beside coord's (Rust): tasks added and claimed by sixteen connections.

coord waits for the disk at checkpoints only (`synchronous=NORMAL`), dibs before each answer. coord
is built when `DIBS_BENCH_COORD` names a checkout of it, into a folder that git does not see.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import apsw

import dibs
from bench.daemon import WRITERS, load, serving
from bench.river import CACHE

TASKS = 15_000
STEPS = ("add", "claim")
NUMBERS = count()


def checkout() -> str:
    return os.environ.get("DIBS_BENCH_COORD", "")


def built() -> str:
    """Nothing if coord is there, or why it is not."""
    if not checkout():
        return "DIBS_BENCH_COORD names no checkout of it"
    cargo = shutil.which("cargo")
    if cargo is None:
        return "cargo is not installed here"
    command = [cargo, "build", "--release", "--target-dir", f"{CACHE}/coord"]
    made = subprocess.run(command, check=False, cwd=checkout(), capture_output=True, text=True)
    said = [line for line in made.stderr.splitlines() if line.startswith("error")]
    return f"it could not be built: {' '.join(said[:1])}" if made.returncode else ""


def commit() -> str:
    asked = ["git", "-C", checkout(), "log", "-1", "--format=%h %s"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def coord_serving(folder: str) -> Iterator[tuple[str, str]]:
    """coord's daemon with a database of its own: its address, and the database."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    database = os.path.join(folder, "coord.db")
    process = subprocess.Popen(
        [f"{CACHE}/coord/release/coord", "serve", "--addr", address, "--db", database],
        cwd=folder, env={"PATH": os.environ["PATH"], "HOME": folder},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        host, _, port = address.partition(":")
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    break
            time.sleep(0.02)
        yield address, database
    finally:
        process.terminate()
        process.wait()


def round_of_coord(folder: str, seconds: float) -> list[float]:
    """Adds and claims a second, in a new database."""
    with coord_serving(folder) as (address, database):
        added = load(address, "coord", "add", seconds)
        db = apsw.Connection(database, flags=apsw.SQLITE_OPEN_READONLY)
        found = db.execute("SELECT id FROM tasks LIMIT ?", (TASKS,)).fetchall()
        db.close()
        ids = written(folder, [str(id) for (id,) in found])
        return [added, load(address, "coord", "claim", seconds, ids)]


def round_of_dibs(folder: str, seconds: float) -> list[float]:
    """The same, and how much processor time a call of either kind took."""
    with serving(os.path.join(folder, "repository")) as server:
        began = server.processor_s()
        added = load(server.address, "dibs", "add", seconds, token=server.token)
        adding = (server.processor_s() - began) / (added * seconds)
        url = f"http://{server.address}"
        ids = [f"claim-{n}" for n in range(TASKS)]
        with dibs.open(url, token=server.token, start=folder) as space:
            work = space.join("planner").work
            for first in range(0, TASKS, 1000):
                work.add_many([{"id": id} for id in ids[first : first + 1000]])
        began, waited = server.processor_s(), time.monotonic()
        claimed = load(server.address, "dibs", "claim", seconds, written(folder, ids), server.token)
        waited = min(seconds, time.monotonic() - waited)  # it ends sooner if all are claimed
        return [added, claimed, adding, (server.processor_s() - began) / (claimed * waited)]


def written(folder: str, ids: list[str]) -> str:
    path = os.path.join(folder, "ids")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(ids) + "\n")
    return path


def report(folder: str, rounds: int, seconds: float) -> Iterator[str]:
    figures: dict[str, list[list[float]]] = {"coord": [], "dibs": []}
    for _ in range(rounds):
        for side, run in (("coord", round_of_coord), ("dibs", round_of_dibs)):
            place = os.path.join(folder, f"{side}-{next(NUMBERS)}")
            os.makedirs(place)
            figures[side].append(run(place, seconds))
    yield f"coord is at {commit()}. It waits for the disk at checkpoints only; dibs always does.\n"
    yield "| what | coord, NORMAL | dibs, FULL | ratio (lowest to highest round) | goal |"
    yield "|---|--:|--:|--:|--:|"
    for number, step in enumerate(STEPS):
        theirs, ours = ([one[number] for one in figures[side]] for side in ("coord", "dibs"))
        ratios = sorted(mine / other for mine, other in zip(ours, theirs, strict=True))
        yield (
            f"| {step}s a second, {WRITERS} connections | {statistics.median(theirs):.0f} "
            f"| {statistics.median(ours):.0f} | **{statistics.median(ratios):.2f}** "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}) | 1 |"
        )
    adding, claiming = (
        statistics.median(one[place] for one in figures["dibs"]) * 1e6 for place in (2, 3)
    )
    yield (
        f"\nAn add takes {adding:.0f} µs of the daemon's processor time, a claim {claiming:.0f}. "
        f"An interpreter runs on one core, so the maximum is {1e6 / adding:.0f} adds and "
        f"{1e6 / claiming:.0f} claims a second. coord has no token to check, no journal and no "
        "signature.\n"
    )
