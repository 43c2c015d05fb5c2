"""The page's example of a swarm works as written, in a repository with one commit."""

from __future__ import annotations

from tests.pages import ROOT, blocks_of
from tests.surfaces.shell import Shell
from tests.swarm.conftest import git


def test_the_swarm_of_the_page_works_as_written(shell: Shell) -> None:
    (block,) = [one for one in blocks_of(ROOT / "docs/swarm.md") if one.language == "sh"]
    answer = shell.sh(f"set -e\n{block.code}")
    assert answer.code == 0, answer
    for task, title in (("parser", "Write the parser"), ("lexer", "Write the lexer")):
        assert git(shell.folder, "show", f"main:{task}.txt") == title
        done = shell.json("work", "show", task)
        assert git(shell.folder, "show", "-s", "--format=%s", done["result"]["commit"]) == task
    assert "Merge branch 'dibs/work/parser-" in answer.out
