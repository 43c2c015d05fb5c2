"""A fresh repository for real agent CLIs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients.client import CLIENTS
from tests.clients.repository import add_server
from tests.surfaces.shell import Shell, scrubbed


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = (tmp_path / "repository").resolve()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "a.py").write_text("a = 1\n")
    return folder


@pytest.fixture
def connected(repository: Path) -> Path:
    """A repository in which every client finds the server."""
    for name in CLIENTS:
        add_server(name, repository)
    return repository


@pytest.fixture
def shell(repository: Path, tmp_path: Path) -> Shell:
    """A neighbour at a prompt in the same repository."""
    home = tmp_path / "home"
    home.mkdir()
    return Shell(repository, scrubbed(home))
