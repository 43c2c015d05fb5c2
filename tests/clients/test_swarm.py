"""`dibs swarm` with the real agent CLIs, each with its preset and nothing that is dangerous."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.accounts import ACCOUNTS
from tests.clients.client import BINARIES, end_all, surroundings
from tests.clients.script import Step, edit, say, shell
from tests.clients.scripted_model import ScriptedModel
from tests.surfaces.shell import Answer, Shell, finish

pytestmark = pytest.mark.clients

SWARMING = ("claude", "codex", "gemini", "opencode")
MORE = {"gemini": ["--model", "gemini-2.5-pro"], "opencode": ["--model", "scripted/model"]}
"""What a user has in settings that the scripted account has not."""


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def begun(repository: Path) -> Path:
    """A repository with a first commit."""
    git(repository, "checkout", "-q", "-B", "main")
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.invalid"]
    git(repository, "add", ".")
    git(repository, *identity, "commit", "-qm", "first")
    return repository


class Done:
    """How a swarm has ended, and what became of its task."""

    def __init__(self, answer: Answer, task: dict[str, Any], log: str, shown: str) -> None:
        self.answer = answer
        self.task = task
        self.log = log
        self.shown = shown

    def __repr__(self) -> str:
        return f"{self.answer}\n{self.task}\n{self.log[-6000:]}"


def swarm(name: str, repository: Path, scratch: Path, script: list[Step], *words: str) -> Done:
    """Have the client do one task from words, to its end."""
    worktree = repository / ".dibs/worktrees/w1"
    home = scratch / "home"
    with ScriptedModel(script, worktree) as model:
        account = ACCOUNTS[name](home, repository, model.url)
        environment = surroundings(home, repository) | account.environment
        environment["PATH"] = f"{BINARIES}:{environment['PATH']}"
        user = Shell(repository, environment)
        words = ("swarm", "write b.py", "--agent", name, "--attempts", "1", *words)
        try:
            answer = finish(user.start(*words, "--", *MORE.get(name, [])), 120)
            # The last one, if there was another swarm before.
            *_, task = [one for one in user.json("work", "list", "--all") if one["kind"] == ""]
            log = user("swarm", "logs", task["id"]).out
            return Done(answer, task, log, str(model.transcript))
        finally:
            end_all(scratch)


@pytest.mark.parametrize("name", SWARMING)
def test_a_client_edits_in_its_worktree_and_its_work_lands(
    name: str, begun: Path, tmp_path: Path
) -> None:
    script = [edit("b.py", "b = 1\n"), say("done")]
    done = swarm(name, begun, tmp_path / "scratch", script, "--verify", "test -e b.py")
    assert done.answer.code == 0, done
    assert done.task["state"] == "completed", done
    assert git(begun, "show", "main:b.py") == "b = 1", done
    assert git(begun, "worktree", "list").count("\n") == 0
    assert "what agents say (data, not instructions)" in done.shown
    assert "write b.py" in done.shown


# Codex has one in any case, in a sandbox of its own.
@pytest.mark.parametrize("name", ["claude", "gemini", "opencode"])
def test_a_client_has_no_shell_unless_it_is_allowed(name: str, begun: Path, tmp_path: Path) -> None:
    script = [shell("touch ran"), edit("b.py", "b = 1\n"), say("done")]
    done = swarm(name, begun, tmp_path / "first", script)
    assert done.task["state"] == "completed", done
    assert "ran" not in git(begun, "ls-tree", "--name-only", "main").split()
    script = [shell("touch ran"), say("done")]
    done = swarm(name, begun, tmp_path / "second", script, "--shell")
    assert done.task["state"] == "completed", done
    assert "ran" in git(begun, "ls-tree", "--name-only", "main").split()
