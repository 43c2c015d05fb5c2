"""Many agents edit the same files in one checkout: nothing is lost without a word.

Each agent is a process that calls the real hooks, as tests.surfaces.crowd tells. The same crowd
without dibs shows what is at stake.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dibs
from tests.surfaces.crowd import END
from tests.surfaces.shell import BIN

ROOT = Path(__file__).parent.parent.parent


class Outcome:
    """What became of every edit of a crowd, and what is in the files at the end."""

    def __init__(self, folder: Path, said: list[dict[str, Any]]) -> None:
        self.failures = [line["failure"] for line in said if "failure" in line]
        self.edits = [line for line in said if "token" in line]
        self.counts = Counter(edit["outcome"] for edit in self.edits)
        there = {
            line for file in folder.glob("file*.txt") for line in file.read_text().splitlines()
        }
        self.lost = [
            edit
            for edit in self.edits
            if edit["outcome"] in ("done", "told") and edit["token"] not in there
        ]


def crowd(folder: Path, agents: int, edits: int, files: int, with_dibs: bool) -> Outcome:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for number in range(files):
        (folder / f"file{number}.txt").write_text(END)
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.surfaces.crowd", str(folder), f"a{number}", str(number),
             str(edits), str(files), str(int(with_dibs))],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
        )
        for number in range(agents)
    ]  # fmt: skip
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * agents
    return Outcome(folder, [json.loads(line) for text in outputs for line in text.splitlines()])


def intruded(folder: Path) -> set[str]:
    """The files of which somebody was told that another has changed them."""
    with dibs.open(start=folder) as space:
        found: set[str] = set()
        seq = 0
        while events := space.events.since(seq, kind="lease.intruded"):
            found |= {event.subject for event in events}
            seq = events[-1].seq
    return found


def check(folder: Path, agents: int, edits: int, files: int) -> None:
    bare = crowd(folder / "bare", agents, edits, files, with_dibs=False)
    kept = crowd(folder / "kept", agents, edits, files, with_dibs=True)
    told = intruded(folder / "kept")
    silent = [edit for edit in kept.lost if edit["file"] not in told and edit["outcome"] != "told"]
    slips = [edit for edit in kept.edits if edit["kind"] == "slip"]
    unseen = [edit for edit in silent if edit["kind"] == "slip"]
    print(
        f"\n{agents} agents, {edits} edits each on {files} files: without dibs "
        f"{len(bare.lost)} of {bare.counts['done']} updates lost; with dibs "
        f"{kept.counts['done'] + kept.counts['told']} made, {kept.counts['denied']} denied, "
        f"{len(silent) - len(unseen)} lost; of {len(slips)} by a script that no hook recognises "
        f"{sum(edit['outcome'] == 'told' for edit in slips)} reported at once, "
        f"{len(unseen)} overwritten unseen in the same instant"
    )
    assert kept.failures == []
    assert bare.lost, "the crowd is too small to collide: this shows nothing"
    assert kept.counts["denied"]
    # What a script wrote in the very instant of a holder's edit is gone before anybody can look.
    assert silent == unseen


def test_a_crowd_of_agents_loses_nothing_without_a_word(tmp_path: Path) -> None:
    check(tmp_path, agents=5, edits=12, files=3)


@pytest.mark.stress
def test_ten_agents_and_two_thousand_edits(tmp_path: Path) -> None:
    check(tmp_path, agents=10, edits=200, files=20)
