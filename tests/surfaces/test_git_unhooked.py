"""Gemini's shell, in which git runs no hooks: commits there are asked for in another way."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.surfaces.repository import Worker, hooked
from tests.surfaces.shell import Shell, finish

# What Gemini CLI puts into the environment of the commands that it runs.
SWITCHED_OFF = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.hooksPath",
    "GIT_CONFIG_VALUE_0": "",
}


@pytest.fixture
def person(shell: Shell) -> Worker:
    return hooked(shell)


@pytest.fixture
def gemini(person: Worker) -> Worker:
    """What the hooks of Gemini's agent run in."""
    return person.as_("gina")


@pytest.fixture
def alice(person: Worker) -> Worker:
    """Another agent, who holds a file."""
    alice = person.as_("alice")
    alice.ok("claim", "src/a.py")
    return alice


def refused(gemini: Worker, command: str) -> str:
    """Why Gemini must not run a command, "" if it may."""
    payload = {
        "hook_event_name": "BeforeTool",
        "session_id": "g",
        "cwd": str(gemini.folder),
        "tool_name": "run_shell_command",
        "tool_input": {"command": command},
    }
    process = gemini.start("hook", "gemini", stdin=subprocess.PIPE)
    answer = finish(process, given=json.dumps(payload))
    assert (answer.code, answer.err) == (0, "")
    reason: str = answer.json["reason"] if answer.out else ""
    return reason


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize("variables", [{}, SWITCHED_OFF], ids=["hook's own", "shell's"])
def test_a_commit_is_refused_and_the_way_that_is_told_runs_the_hooks(
    gemini: Worker, variables: dict[str, str]
) -> None:
    reason = refused(gemini.with_(**variables), "git commit -m x")
    way = re.search(r"git -c core\.hooksPath=.* commit", reason)
    assert way, reason
    inside = gemini.with_(**SWITCHED_OFF)
    inside.stage("src/a.py", "a = 2\n")
    line = f"{way[0]} -m x"
    assert refused(gemini, line) == ""
    answer = inside.sh(line)
    assert answer.code == 1
    assert "src/a.py  alice holds src/a.py" in answer.err
    assert inside.sh("git commit -q -m x").code == 0, "without it nobody looks"


@pytest.mark.usefixtures("alice")
def test_the_way_that_is_told_can_be_typed_whatever_the_folder_is_called(
    person: Worker, gemini: Worker
) -> None:
    (person.folder / "my hooks").mkdir()
    for file in (person.folder / ".git/hooks").iterdir():
        file.rename(person.folder / "my hooks" / file.name)
    person.did("config", "core.hooksPath", "my hooks")
    way = re.search(r"git -c .* commit", refused(gemini, "git commit"))
    assert way
    gemini.stage("src/a.py", "a = 2\n")
    answer = gemini.with_(**SWITCHED_OFF).sh(f"{way[0]} -m x")
    assert "src/a.py  alice holds src/a.py" in answer.err


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("git add -A && git commit -am 'x'", True),
        ("git -C src commit", True),
        ("git -c user.name=x --no-pager merge feature", True),
        ("git push origin HEAD", True),
        ("git pull", True),
        ("git log --grep commit", False),
        ("git stash push", False),
        ("git merge-base a b", False),
        ("git status; echo merge", False),
    ],
)
def test_only_what_records_something_is_refused(gemini: Worker, command: str, is_one: bool) -> None:
    assert ("core.hooksPath=" in refused(gemini, command)) == is_one


def test_who_is_alone_commits_as_ever(gemini: Worker) -> None:
    assert refused(gemini, "git commit -m x") == ""


@pytest.mark.usefixtures("alice")
def test_where_git_has_no_hooks_nothing_is_said(gemini: Worker) -> None:
    for file in (gemini.folder / ".git/hooks").iterdir():
        file.unlink()
    assert refused(gemini, "git commit -m x") == ""
