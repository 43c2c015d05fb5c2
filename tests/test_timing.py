"""The list of slow tests names tests that exist, and each test is in exactly one part."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.timing import LIST, keep_part, slow

ROOT = Path(__file__).parent.parent


def test_every_slow_test_exists() -> None:
    for name in slow():
        file, _, function = name.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {function.rpartition('::')[2]}\(", text, re.M), f"{name} in {LIST}"


def test_a_test_is_either_quick_or_slow(request: pytest.FixtureRequest) -> None:
    every = request.session.items
    parts = {}
    for part in ("quick", "slow"):
        parts[part] = list(every)
        keep_part(part, request.config, parts[part])
    assert set(parts["quick"]).isdisjoint(parts["slow"])
    assert {*parts["quick"], *parts["slow"]} == set(every)
    assert request.node in parts["quick"]
