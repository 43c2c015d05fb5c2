"""Which tests are slow: measured, and kept in `slow.txt`.

`make test` leaves the tests of that list to `make slow`, so that it stays short enough to be run
often; CI runs both. A test is listed as a function, with all its cases, if a case takes more than
`SLOW_S` of processor time on average, child processes included, or waits for so long that it takes
`LONG_S`. Processor time hardly depends on what else the machine does.

    python -m pytest -q -p tests.timing tests/landing    measure these, and correct the list
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

LIST = Path(__file__).parent / "slow.txt"
SLOW_S, LONG_S = 0.3, 1.5

_TIMES: dict[str, list[tuple[float, float]]] = defaultdict(list)


def function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def slow() -> set[str]:
    return set(LIST.read_text(encoding="utf-8").split())


def keep_part(part: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the quick tests of a collection, or the slow ones."""
    listed = slow()
    kept = [item for item in items if (function_of(item) in listed) == (part == "slow")]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def spent_s() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before, began = spent_s(), time.monotonic()
    answer = yield
    _TIMES[function_of(item)].append((spent_s() - before, time.monotonic() - began))
    return answer


def pytest_sessionfinish() -> None:
    listed = slow()
    for function, times in _TIMES.items():
        listed.discard(function)
        spent, took = (sum(each) / len(times) for each in zip(*times, strict=True))
        if spent > SLOW_S or took > LONG_S:
            listed.add(function)
    LIST.write_text("".join(f"{one}\n" for one in sorted(listed)), encoding="utf-8")
