"""Tasks on PostgreSQL beside jobs of River (Go), at the same durability, on the same server.

River's program is built when it is first needed, from the module proxy, into a folder that git
does not see. Without Go there is no comparison.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from itertools import count

import dibs
from bench.batches import BATCH, figures
from bench.daemon import WRITERS, load, serving

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(os.path.dirname(HERE), ".bench")
STEPS = {"insert": "add", "fetch": "next", "complete": "complete"}
"""What River calls a step, and what dibs does."""
SECONDS = {"insert": 3.0, "fetch": 1.0}
"""Less for the second, so that there are tasks for as long as it lasts."""
NUMBERS = count()


def built() -> str:
    """The program, or why there is none."""
    go, source, program = shutil.which("go"), os.path.join(HERE, "river"), f"{CACHE}/river"
    if go is None:
        return "Go is not installed here"
    os.makedirs(CACHE, exist_ok=True)
    if not os.path.exists(program) or newer(f"{source}/main.go", program):
        made = subprocess.run(
            [go, "build", "-o", program, "."],
            check=False,
            cwd=source,
            capture_output=True,
            text=True,
        )
        if made.returncode:
            return f"it could not be built: {made.stderr.strip().splitlines()[-1]}"
    return ""


def newer(one: str, other: str) -> bool:
    return os.stat(one).st_mtime > os.stat(other).st_mtime


def version() -> str:
    with open(os.path.join(HERE, "river", "go.mod"), encoding="utf-8") as source:
        line = next(line for line in source if "riverqueue/river v" in line)
    return line.split()[1]


def jobs_per_second(url: str, callers: int, batch: int, jobs: int) -> dict[str, float]:
    """What River does with a database of its own, by step."""
    done = subprocess.run(
        [f"{CACHE}/river", url, str(callers), str(batch), str(jobs)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return dict(zip(STEPS, map(float, done.stdout.split()), strict=True))


def tasks_per_second(url: str, folder: str, rounds: int) -> dict[str, dict[str, float]]:
    """The same with dibs, by one caller: by side (single, batch) and step."""
    name = f"river-{next(NUMBERS)}"
    with dibs.open(url, space=name, start=folder, user_dir=f"{folder}/user") as space:
        taken = figures(space.join("load"), rounds)
    return {
        side: {
            theirs: BATCH * len(taken[ours][side]) / sum(taken[ours][side])
            for theirs, ours in STEPS.items()
        }
        for side in ("single", "batch")
    }


def report(url: str, others: str, folder: str, rounds: int) -> Iterator[str]:
    """
    others: a database of its own for River
    """
    why = built()
    if why:
        yield f"Not measured beside River: {why}.\n"
        return
    theirs: dict[str, list[dict[str, float]]] = {"single": [], "batch": []}
    ours: dict[str, list[dict[str, float]]] = {"single": [], "batch": []}
    for _ in range(rounds):
        theirs["single"].append(jobs_per_second(others, 1, 1, 5 * BATCH))
        theirs["batch"].append(jobs_per_second(others, 1, BATCH, 50 * BATCH))
        for side, found in tasks_per_second(url, folder, 5).items():
            ours[side].append(found)
    yield (
        f"River {version()} is a job queue in Go. One caller, one transaction per call, and both "
        "wait for the disk. River's jobs have no journal, signature, session or epoch. Its callers "
        "commit in parallel; a space of dibs has one order, so the daemon makes the writes of "
        "sixteen callers one after another, and commits them together.\n"
    )
    yield "| tasks a second | River | dibs | ratio (lowest to highest round) |"
    yield "|---|--:|--:|--:|"
    for side, what in (("single", "one by one"), ("batch", f"{BATCH} in one call")):
        for step in STEPS:
            one, other = ([found[step] for found in all_[side]] for all_ in (ours, theirs))
            ratios = sorted(a / b for a, b in zip(one, other, strict=True))
            yield (
                f"| {step}, {what} | {statistics.median(other):.0f} | {statistics.median(one):.0f} "
                f"| **{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
            )
    if shutil.which("wrk") is not None:
        yield from crowds(url, others, folder, rounds)
    yield ""


def crowds(url: str, others: str, folder: str, rounds: int) -> Iterator[str]:
    """The same by sixteen callers, of River in one process, of dibs through a daemon."""
    figures: dict[str, list[tuple[float, float]]] = {"insert": [], "fetch": []}
    for number in range(rounds):
        theirs = jobs_per_second(others, WRITERS, 1, WRITERS * BATCH)
        with serving(os.path.join(folder, f"river-served-{number}"), url) as server:
            for step, taken in figures.items():
                ours = load(server.address, "dibs", STEPS[step], SECONDS[step], token=server.token)
                taken.append((ours, theirs[step]))
    for step, taken in figures.items():
        ratios = sorted(ours / theirs for ours, theirs in taken)
        ours, theirs_ = (statistics.median(side) for side in zip(*taken, strict=True))
        yield (
            f"| {step}, one by one, {WRITERS} callers | {theirs_:.0f} | {ours:.0f} "
            f"| **{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
        )
