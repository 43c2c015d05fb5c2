"""A repository with one commit, whose store is its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.surfaces.conftest import daemon_url, on_each, pytest_generate_tests
from tests.surfaces.shell import Shell, scrubbed

__all__ = ["daemon_url", "on_each", "pytest_generate_tests"]


def git(folder: Path | str, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"git {words}: {done.stderr}"
    return done.stdout.strip()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Somebody at a prompt in a repository with one commit on main."""
    home, top = tmp_path / "home", tmp_path / "top"
    home.mkdir()
    top.mkdir()
    git(top, "init", "-q", "-b", "main")
    (top / ".gitignore").write_text(".env\ncache/\nlinks/\n")
    (top / "a.txt").write_text("a\n")
    identity = "[user]\n\tname = Ann\n\temail = ann@example.invalid\n"
    (home / ".gitconfig").write_text(identity)
    for key, value in (("user.name", "Ann"), ("user.email", "ann@example.invalid")):
        git(top, "config", key, value)
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    return Shell(top.resolve(), scrubbed(home))
