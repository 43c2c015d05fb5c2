"""What the chain costs: a claim and its release, beside those of the tree before the chain.

That tree comes out of the history of this repository. Each side is a process of its own. They take
turns of a few calls, and what is compared is processor time: the disk is the same for both.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from contextlib import ExitStack

from bench.measure import SPELL

BEFORE = "ce0695b0654cc848a7569ac314a3bc9d764f54db"
"""The last commit without a chain."""
LOOP = """
import sys, time
import dibs
folder, durability = sys.argv[1:]
place = dict(start=folder, user_dir=f"{folder}/user")
space = dibs.open(f"{folder}/dibs.db", space="bench", durability=durability, **place)
with space, space.join("bench") as agent:
    for line in sys.stdin:
        began = time.process_time()
        for _ in range(int(line)):
            epoch = agent.leases.claim("port:3000", note="bench").epoch
            agent.leases.release(epoch=epoch)
        print((time.process_time() - began) / int(line), flush=True)
"""


def before(folder: str) -> str | None:
    """The sources of the tree before the chain; None if the history does not go back to it."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    tree = os.path.join(folder, "before")
    os.mkdir(tree)
    archive = ["git", "-C", here, "archive", BEFORE, "src"]
    packed = subprocess.run(archive, capture_output=True, check=False)
    if packed.returncode:
        return None
    subprocess.run(["tar", "-x", "-C", tree], input=packed.stdout, check=True)
    return os.path.join(tree, "src")


class Side:
    """One tree, in a process that makes pairs when it is told to."""

    def __init__(self, folder: str, durability: str, tree: str | None) -> None:
        os.makedirs(os.path.join(folder, ".git"))
        given = {} if tree is None else {"PYTHONPATH": tree}
        self._process = subprocess.Popen(
            [sys.executable, "-c", LOOP, folder, durability],
            env={**os.environ, **given},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.seconds(300)  # until the write-ahead log no longer grows

    def seconds(self, calls: int) -> float:
        """What a pair takes of the processor, by so many of them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{calls}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def pairs(
    folder: str, tree: str, durability: str, rounds: int, spells: int
) -> dict[str, list[float]]:
    """Seconds of processor time for a claim and its release: the median of each round's spells."""
    figures: dict[str, list[float]] = {"before": [], "chain": []}
    with ExitStack() as stack:
        sides = {}
        for name in figures:
            place = os.path.join(folder, f"{durability}-{name}")
            sides[name] = Side(place, durability, tree if name == "before" else None)
            stack.callback(sides[name].close)
        for _ in range(rounds):
            taken: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(spells):
                for name, side in sides.items():
                    taken[name].append(side.seconds(SPELL))
            for name, each in taken.items():
                figures[name].append(statistics.median(each))
    return figures
