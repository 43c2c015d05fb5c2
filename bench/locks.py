"""What it costs to hold a lock around a command, beside `flock`; and what happens without one."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

from bench.measure import in_turns, ratio

DIBS = os.path.join(os.path.dirname(sys.executable), "dibs")
SIDES = {
    "flock": ["flock", "lock"],
    "dibs run": [DIBS, "run", "--as", "ci", "--claim", "counter:", "--"],
    "python -c pass": [sys.executable, "-c"],
}
SHELLS, UPDATES = 4, 25
UPDATE = "n=$(cat count); echo $((n + 1)) > count"
ABOUT = (
    "`flock` is the command of util-linux. Each line is a whole process. `dibs run` also records "
    "who holds the lock and why, and waits for the disk.\n"
)


def report(folder: str, rounds: int, calls: int) -> Iterator[str]:
    place = os.path.join(folder, "locks")
    subprocess.run(["git", "init", "-q", place], check=True)
    run = partial(
        subprocess.run, check=True, cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    sides: dict[str, Callable[[], object]] = {
        name: partial(run, [*words, last_of(name)]) for name, words in SIDES.items()
    }
    for side in sides.values():
        side()
    figures = in_turns(sides, rounds, calls)
    yield ABOUT
    yield "| a lock around `true` | milliseconds | times `flock` (lowest to highest round) |"
    yield "|---|--:|--:|"
    for name in SIDES:
        middle, low, high = ratio(figures, name, "flock")
        taken = statistics.median(figures[name]) * 1e3
        yield f"| `{name}` | {taken:.1f} | **{middle:.1f}** ({low:.1f} to {high:.1f}) |"
    lost = {
        name: lost_updates(place, words) for name, words in [("nothing", []), *SIDES.items()][:3]
    }
    yield (
        f"\n{SHELLS} shells add 1 to a number in a file, {UPDATES} times each. Lost updates of "
        f"{SHELLS * UPDATES}: "
        + ", ".join(f"{number} with {name}" for name, number in lost.items())
        + ".\n"
    )


def last_of(name: str) -> str:
    return "pass" if name.startswith("python") else "true"


def lost_updates(place: str, words: list[str]) -> int:
    """How many of the updates of several shells are not in the file at the end."""
    file = os.path.join(place, "count")
    with open(file, "w", encoding="utf-8") as target:
        target.write("0\n")
    loop = f'for i in $(seq {UPDATES}); do "$@" sh -c {UPDATE!r}; done'
    started = [subprocess.Popen(["sh", "-c", loop, "sh", *words], cwd=place) for _ in range(SHELLS)]
    for one in started:
        one.wait()
    with open(file, encoding="utf-8") as source:
        return SHELLS * UPDATES - int(source.read() or 0)
