"""The walk-through of the README works as written, in two real shells.

Each `sh` block says in its first line whose shell it is for. A `text` block right after it is
what that shell has shown since the last time, output and errors as they came.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.surfaces.shell import Shell

README = Path(__file__).parents[2] / "README.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAITS = "# waits"
DONE = "-- this block is done --"


class Prompt:
    """One shell that stays open, and what it has shown."""

    def __init__(self, shell: Shell) -> None:
        self.process = shell.spawn(["bash"], stdin=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.waits = False

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def shown(self) -> str:
        self.type(f"echo '{DONE}'\n")
        assert self.process.stdout is not None
        lines = list(iter(self.process.stdout.readline, f"{DONE}\n"))
        return "".join(lines)

    def close(self) -> None:
        self.process.communicate("exit\n", timeout=30)


def steady(text: str) -> list[str]:
    """Without the figures that depend on how fast one types."""
    text = re.sub(r"\d+(s ago|m left)", r"N\1", text)
    text = re.sub(r"for \d+ s, \d+ s left", "for N s, N s left", text)
    text = re.sub(r"(ago +)\d+m", r"\1Nm", text)
    return [re.sub(" +", " ", line) for line in text.splitlines()]


def test_the_walk_through_of_the_readme_works_as_written(shell: Shell) -> None:
    walk_through(shell)


def walk_through(shell: Shell) -> None:
    text = README.read_text(encoding="utf-8").partition("## In two shells\n")[2]
    fences = FENCE.findall(text.partition("\n## ")[0])
    prompts = {name: Prompt(shell) for name in ("alice", "bob")}
    checked = 0
    for place, (language, code) in enumerate(fences):
        if language != "sh":
            continue
        owner = re.match(r"# (alice|bob)'s shell\n", code)
        assert owner, code
        prompt = prompts[owner[1]]
        prompt.type(code)
        if WAITS in code:
            shell.waits()
            continue
        after, wanted = fences[place + 1]
        assert after == "text", code
        assert steady(prompt.shown()) == steady(wanted)
        checked += 1
    for prompt in prompts.values():
        prompt.close()
    assert checked == 5
