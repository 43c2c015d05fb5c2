"""Two sides of a comparison, taken in turns, so that a noisy machine disturbs both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

SPELL = 20
"""How many calls one side has before the other."""


def in_turns(
    sides: dict[str, Callable[[], object]], rounds: int, calls: int
) -> dict[str, list[float]]:
    """Seconds per call of each side: the median of a round, for each round.

    Within a round the sides change every few calls: a disk may be twice as slow a second later.
    """
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for begin in range(0, calls, SPELL):
            for name, side in sides.items():
                for _ in range(min(SPELL, calls - begin)):
                    began = time.perf_counter()
                    side()
                    taken[name].append(time.perf_counter() - began)
        for name in sides:
            figures[name].append(statistics.median(taken[name]))
    return figures


def ratio(figures: dict[str, list[float]], one: str, other: str) -> tuple[float, float, float]:
    """The median of the rounds' ratios, and the lowest and highest of them."""
    ratios = [a / b for a, b in zip(figures[one], figures[other], strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)
