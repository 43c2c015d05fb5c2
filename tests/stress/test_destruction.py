"""Whatever several agents destroy, every byte that was not committed comes back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.stress.destruction import destroy

SEQUENCES = int(os.environ.get("SEQUENCES", "1000"))


def test_what_agents_destroy_comes_back(tmp_path: Path) -> None:
    figures = destroy(tmp_path, range(5), steps=8)
    assert figures["contents"] > 10


@pytest.mark.stress
def test_what_agents_destroy_in_many_sequences_comes_back(tmp_path: Path) -> None:
    figures = destroy(tmp_path, range(100, 100 + SEQUENCES), steps=12)
    print("\n" + ", ".join(f"{count:,} {what}" for what, count in sorted(figures.items())))
    assert figures["sequences"] == SEQUENCES
