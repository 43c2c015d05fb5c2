"""The page about git is true: its commands run in a hooked repository, and say what it shows.

Each `sh` block says in its first line whose shell it is for. A `text` block right after it is
what that shell shows.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from tests.surfaces.repository import hooked
from tests.surfaces.shell import Shell

PAGE = Path(__file__).parents[2] / "docs/git.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steady(text: str, folder: Path) -> str:
    """Without the figures that depend on how fast the machine is, and where it keeps its files."""
    text = re.sub(r"\d+(s ago|m left)", r"N\1", text.replace(str(folder), "/…"))
    return text.strip()


def test_the_page_about_git_works_as_written(shell: Shell) -> None:
    worker = hooked(shell)
    worker.did("worktree", "add", "-q", "-b", "feature", "../feature")
    fences = [*FENCE.findall(PAGE.read_text(encoding="utf-8")), ("", "")]
    checked = 0
    for (language, code), (after, wanted) in pairwise(fences):
        if language != "sh":
            continue
        owner = re.match(r"# (alice|bob)'s shell\n", code)
        assert owner, code
        answer = worker.as_(owner[1]).sh(f"exec 2>&1\n{code}")
        if after == "text":
            checked += 1
            folder = worker.folder.parent
            assert steady(answer.out, folder) == steady(wanted, folder)
    assert checked == 4
