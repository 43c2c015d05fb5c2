"""Two sides of a comparison, taken in turns, so that a noisy machine disturbs both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def in_turns(
    sides: dict[str, Callable[[], object]], rounds: int, calls: int
) -> dict[str, list[float]]:
    """Seconds per call of each side: the median of a round, for each round."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            taken = []
            for _ in range(calls):
                began = time.perf_counter()
                side()
                taken.append(time.perf_counter() - began)
            figures[name].append(statistics.median(taken))
    return figures


def ratio(figures: dict[str, list[float]], one: str, other: str) -> tuple[float, float, float]:
    """The median of the rounds' ratios, and the lowest and highest of them."""
    ratios = [a / b for a, b in zip(figures[one], figures[other], strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)
