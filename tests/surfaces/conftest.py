"""A user in a fresh repository."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import Daemons, end
from tests.surfaces.shell import Shell, scrubbed


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell in a git repository, with the repository's own store."""
    return new_shell(tmp_path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """The same for tests that share one, as they share a daemon, which takes time to start."""
    return new_shell(tmp_path_factory.mktemp("place"))


def new_shell(folder: Path) -> Shell:
    repository, home = folder / "repository", folder / "home"
    home.mkdir()
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "src").mkdir()
    (repository / "src/a.py").write_text("a = 1\n")
    return Shell(repository, scrubbed(home))


@pytest.fixture
def on_each(shell: Shell, request: pytest.FixtureRequest, space_name: str) -> Shell:
    """The same shell on each database in turn, and through a daemon."""
    if request.param == "sqlite":
        return shell
    if request.param == "http":
        return shell.with_(DIBS_URL=request.getfixturevalue("daemon_url"))
    url: str = request.getfixturevalue("postgres_url")
    return shell.with_(DIBS_URL=url, DIBS_SPACE=space_name)


@pytest.fixture
def daemon_url(
    shell: Shell, new_daemon: Daemons, sqlite_url: str, space_name: str
) -> Iterator[str]:
    """The address of a daemon of the shell's user."""
    word = new_daemon(sqlite_url, space_name, f"{shell.environment['XDG_DATA_HOME']}/dibs")
    yield word["url"]
    end(word)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "on_each" in metafunc.fixturenames:
        metafunc.parametrize("on_each", ["sqlite", "postgres", "http"], indirect=True)
