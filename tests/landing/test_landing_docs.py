"""The page about landing is true: its commands run in a new repository, and say what it shows."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from tests.landing.world import World

PAGE = Path(__file__).parents[2] / "docs/landing.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMIT = re.compile(r"\b[0-9a-f]{12}\b")


def test_the_page_about_landing_works_as_written(tmp_path: Path) -> None:
    made = World(tmp_path)
    checked = 0
    for (language, code), (after, wanted) in pairwise(
        [*FENCE.findall(PAGE.read_text(encoding="utf-8")), ("", "")]
    ):
        if language != "sh":
            continue
        owner = re.match(r"# (alice|bob)'s shell\n", code)
        assert owner, code
        answer = made.dibs.as_(owner[1]).sh(f"exec 2>&1\n{code}")
        if after == "text":
            checked += 1
            assert COMMIT.sub("COMMIT", answer.out).strip() == wanted.strip()
    assert checked == 3
