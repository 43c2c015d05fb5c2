"""The key of a space on a server: who makes it, who gets it, and who is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.surfaces.shell import Answer, Shell, finish


@pytest.fixture
def laptop(shell: Shell, postgres_url: str, space_name: str) -> Shell:
    return shell.with_(DIBS_URL=postgres_url, DIBS_SPACE=space_name)


@pytest.fixture
def machine(laptop: Shell, tmp_path: Path) -> Shell:
    """The same repository on a machine that has nothing yet."""
    home = tmp_path / "machine"
    home.mkdir()
    return laptop.with_(HOME=str(home), XDG_DATA_HOME=str(home / "share"))


def keys(shell: Shell) -> list[str]:
    folder = Path(shell.user_dir) / "keys"
    return os.listdir(folder) if folder.exists() else []


def give(shell: Shell, *words: str, text: str) -> Answer:
    return finish(shell.start(*words, stdin=subprocess.PIPE), given=text)


def test_a_ci_machine_makes_no_key(laptop: Shell, machine: Shell) -> None:
    ci = machine.with_(CI="true")
    answer = ci.as_("ci")("claim", "deploy:prod")
    assert answer.code == 2
    assert "this CI machine has no key" in answer.err and "DIBS_KEY" in answer.err
    assert keys(ci) == []
    laptop.as_("alice").ok("claim", "deploy:prod")  # nobody is locked out


def test_a_ci_machine_gets_in_with_the_key(laptop: Shell, machine: Shell) -> None:
    laptop.as_("alice").ok("claim", "deploy:prod")
    key = laptop.ok("key", "show").out.strip()
    ci = machine.with_(CI="true", DIBS_KEY=key).as_("ci")
    assert "is held by alice" in ci("claim", "deploy:prod").err
    laptop.as_("alice").ok("release", "deploy:prod")
    ci.ok("claim", "deploy:prod")
    assert keys(ci) == []
    assert machine.with_(CI="false", DIBS_KEY=key).as_("ci").ok("status").code == 0


def test_a_machine_without_the_key_is_told_what_to_do(laptop: Shell, machine: Shell) -> None:
    laptop.as_("alice").ok("claim", "deploy:prod")
    answer = machine.as_("bob")("claim", "deploy:prod")
    assert answer.code == 2  # and not 75: trying again does not help
    assert "this machine has no key for the space" in answer.err
    for word in ("dibs key show", "dibs key import", "DIBS_KEY"):
        assert word in answer.err
    assert keys(machine) == []
    answer = machine.with_(DIBS_KEY="ab" * 32).as_("bob")("claim", "deploy:prod")
    assert answer.code == 2 and "is not the key of the space" in answer.err


def test_a_key_is_taken_to_another_machine(laptop: Shell, machine: Shell) -> None:
    laptop.as_("alice").ok("claim", "deploy:prod")
    shown = laptop.json("key", "show")
    assert shown["space"] == laptop.environment["DIBS_SPACE"]
    assert give(machine, "key", "import", text=f"{shown['key']}\n").code == 0
    assert "is held by alice" in machine.as_("bob")("claim", "deploy:prod").err
    [name] = keys(machine)
    assert os.stat(Path(machine.user_dir) / "keys" / name).st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "no key", "ab" * 31, "zz" * 32])
def test_what_is_no_key_is_not_kept(laptop: Shell, machine: Shell, text: str) -> None:
    laptop.as_("alice").ok("claim", "deploy:prod")
    answer = give(machine, "key", "import", text=text)
    assert answer.code == 2 and "64 hexadecimal digits" in answer.err
    assert machine.with_(DIBS_KEY="short").as_("bob")("status").code == 2
    assert keys(machine) == []


def test_the_key_of_another_space_is_not_kept(laptop: Shell, machine: Shell) -> None:
    laptop.as_("alice").ok("claim", "deploy:prod")
    answer = give(machine, "key", "import", text="ab" * 32)
    assert answer.code == 2 and "is not the key of the space" in answer.err
    assert keys(machine) == []


def test_no_agent_sees_the_key(laptop: Shell) -> None:
    agent = laptop.with_(CLAUDECODE="1", CLAUDE_CODE_SESSION_ID="s")
    for verb in ("show", "import"):
        answer = agent("key", verb)
        assert answer.code == 1 and "only people" in answer.err


def test_a_file_has_no_key_to_pass_on(shell: Shell) -> None:
    answer = shell("key", "show")
    assert answer.code == 2 and "only a space on PostgreSQL" in answer.err
