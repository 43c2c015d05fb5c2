"""A hundred tasks in one call, beside a hundred calls: added, taken, completed, and messages sent.

Both sides are one caller, on the same store, at full durability, in turns.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count

import dibs
from bench.daemon import serving
from bench.measure import ratio

BATCH = 100
ABOUT = (
    "A hundred tasks or messages in one call, compared with a hundred calls, by one caller, in "
    "microseconds per item. A batch saves the round trips and the commits; checking, storing, "
    "signing and answering remain for each item.\n"
)
STEPS = ("add", "next", "complete", "send")


class Caller:
    def __init__(self, agent: dibs.Agent) -> None:
        self.agent = agent
        self.numbers = count()

    def single(self) -> Iterator[float]:
        work = self.agent.work
        ids = [f"task-{next(self.numbers)}" for _ in range(BATCH)]
        yield from timed(lambda: [work.add(id, title="bench", payload={"n": 1}) for id in ids])
        taken: list[dibs.Task] = []
        yield from timed(lambda: taken.extend(work.next() for _ in range(BATCH)))
        yield from timed(
            lambda: [work.complete(task.id, epoch=task.epoch, result=1) for task in taken]
        )
        send = self.agent.messages.send
        yield from timed(lambda: [send("the schema has changed", to="bob") for _ in range(BATCH)])

    def batch(self) -> Iterator[float]:
        work = self.agent.work
        items = [
            {"id": f"task-{next(self.numbers)}", "title": "bench", "payload": {"n": 1}}
            for _ in range(BATCH)
        ]
        yield from timed(lambda: work.add_many(items))
        taken: list[dibs.Task] = []
        yield from timed(lambda: taken.extend(work.next_many(BATCH)))
        done = [{"id": task.id, "epoch": task.epoch, "result": 1} for task in taken]
        yield from timed(lambda: work.complete_many(done))
        sent = [{"body": "the schema has changed", "to": "bob"} for _ in range(BATCH)]
        yield from timed(lambda: self.agent.messages.send_many(sent))


def timed(job: Callable[[], object]) -> Iterator[float]:
    began = time.perf_counter()
    job()
    yield time.perf_counter() - began


def figures(agent: dibs.Agent, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds for a hundred, by step and side."""
    caller = Caller(agent)
    found: dict[str, dict[str, list[float]]] = {step: {"single": [], "batch": []} for step in STEPS}
    for number in range(rounds + 1):
        for side in ("single", "batch"):
            for step, seconds in zip(STEPS, getattr(caller, side)(), strict=True):
                if number:  # the first round fills caches and logs
                    found[step][side].append(seconds)
    return found


def direct(url: str, folder: str, rounds: int) -> dict[str, dict[str, list[float]]]:
    place = os.path.join(folder, "batches")
    os.makedirs(place, exist_ok=True)
    url = url or os.path.join(place, "batches.db")
    with dibs.open(url, space="batches", start=place, user_dir=f"{folder}/user") as space:
        return figures(space.join("load"), rounds)


def served(folder: str, rounds: int) -> dict[str, dict[str, list[float]]]:
    with serving(os.path.join(folder, "batches-served")) as server:
        url = f"http://{server.address}"
        with dibs.open(url, token=server.token, start=folder) as space:
            return figures(space.join("load"), rounds)


def report(what: str, found: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    """A line for each step, and how many times as many a batch does."""
    yield f"| {what} | one by one | {BATCH} in one call | times as many | goal |"
    yield "|---|--:|--:|--:|--:|"
    for step, sides in found.items():
        middle, low, high = ratio(sides, "single", "batch")
        single, batch = (statistics.median(sides[side]) / BATCH * 1e6 for side in sides)
        yield (
            f"| {step} | {single:.0f} µs | {batch:.0f} µs "
            f"| **{middle:.1f}** ({low:.1f} to {high:.1f}) | 10 |"
        )
    yield ""
