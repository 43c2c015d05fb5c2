"""The README's example of a swarm works as written, in a repository with one commit."""

from __future__ import annotations

import re
from pathlib import Path

from tests.surfaces.shell import Shell
from tests.swarm.conftest import git

README = Path(__file__).parents[2] / "README.md"


def test_the_swarm_of_the_readme_works_as_written(shell: Shell) -> None:
    section = README.read_text(encoding="utf-8").partition("## From tasks to merged commits\n")[2]
    (block,) = re.findall(r"^```sh\n(.*?)^```$", section.partition("\n## ")[0], re.M | re.S)
    answer = shell.sh(f"set -e\n{block}")
    assert answer.code == 0, answer
    for task, title in (("parser", "Write the parser"), ("lexer", "Write the lexer")):
        assert git(shell.folder, "show", f"main:{task}.txt") == title
        done = shell.json("work", "show", task)
        assert git(shell.folder, "show", "-s", "--format=%s", done["result"]["commit"]) == task
    assert "Merge branch 'dibs/work/parser-" in answer.out
