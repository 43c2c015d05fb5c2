"""`git clean -fdx` deletes the store under those who work: each of them is told, once.

That an MCP server says so, and goes on, is shown in `tests/surfaces/test_mcp_sessions.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.conftest import new_shell
from tests.surfaces.daemon import Daemon
from tests.surfaces.hooked import Client
from tests.surfaces.shell import Shell, finish

DELETED = "dibs: the store of this repository (.dibs) was deleted while you worked"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return new_shell(tmp_path)


def clean(shell: Shell) -> None:
    assert shell.sh("git add src && git clean -fdxq").code == 0
    assert not (shell.folder / ".dibs").exists()


def test_every_client_at_work_is_told_once(shell: Shell) -> None:
    clients = [Client(shell, name) for name in ("one", "two")]
    for number, client in enumerate(clients):
        client.start()
        client.write(f"src/{number}.py", "x = 1\n")
    clean(shell)
    for number, client in enumerate(clients):
        said = client.write(f"src/{number}.py", "x = 2\n")
        assert said.context.count(DELETED) == 1, said.context
        assert "dibs claim PATH" in said.context
        assert DELETED not in client.write(f"src/{number}.py", "x = 3\n").context
        assert DELETED not in client.prompt().context
        client.kill()


def test_it_is_told_at_a_prompt_too_and_again_after_a_second_time(shell: Shell) -> None:
    client = Client(shell, "one")
    client.start()
    for _ in range(2):
        clean(shell)
        assert client.prompt().context.count(DELETED) == 1
        assert DELETED not in client.prompt().context
    client.kill()


def test_who_begins_afterwards_is_told_nothing(shell: Shell) -> None:
    first = Client(shell, "one")
    first.start()
    first.kill()
    clean(shell)
    second = Client(shell, "two")
    assert DELETED not in second.start().context
    assert DELETED not in second.write("src/a.py", "a = 2\n").context
    second.kill()


def test_who_is_the_first_in_a_repository_is_told_nothing(shell: Shell) -> None:
    client = Client(shell, "one")
    assert DELETED not in client.write("src/a.py", "a = 2\n").context
    client.kill()


def test_a_daemon_says_so_and_ends(shell: Shell) -> None:
    daemon = Daemon(shell)
    through = shell.with_(DIBS_URL=daemon.url).as_("alice")
    through.ok("claim", "src/a.py")
    clean(shell)
    answer = finish(daemon.process)
    assert answer.code == 75
    assert "was deleted or replaced" in answer.err
    assert "dibs serve" in answer.err
    daemon.start()
    shell.with_(DIBS_URL=daemon.url).as_("alice").ok("claim", "src/a.py")
    daemon.stop()
