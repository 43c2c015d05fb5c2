"""On PostgreSQL, the hooks of a tool go through a daemon of the same user, which starts by itself.

Where there is none, or something is wrong with it, they go to the server as before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dibs.surroundings.nearby import SWITCH, mark
from tests.outages import frozen
from tests.surfaces.hooked import Client
from tests.surfaces.shell import DIBS, Answer, Shell, finish, until


@pytest.fixture
def user(shell: Shell, postgres_url: str, space_name: str) -> Iterator[Shell]:
    """Somebody who works on PostgreSQL, and has joined the space once."""
    shell = shell.with_(DIBS_URL=postgres_url, DIBS_SPACE=space_name, **{SWITCH: ""})
    shell.as_("alice").ok("claim", "port:1")
    yield shell
    for word in words(shell):
        with suppress(ProcessLookupError):
            os.kill(word["pid"], signal.SIGKILL)


@pytest.fixture
def client(user: Shell) -> Iterator[Client]:
    one = Client(user, "one")
    yield one
    one.kill()


def folder(shell: Shell) -> Path:
    return Path(shell.user_dir) / "daemons"


def words(shell: Shell) -> list[dict[str, Any]]:
    """What the daemons of this user say of themselves."""
    return [json.loads(file.read_text()) for file in folder(shell).glob("*.json")]


def ready(client: Client) -> dict[str, Any]:
    """The daemon that the first hook has started."""
    assert edit(client) == "server"
    until(lambda: words(client.shell), "a daemon")
    (word,) = words(client.shell)
    return word


def edit(client: Client, file: str = "src/a.py") -> str:
    """Have a file claimed by a hook; which way the hook took to the store."""
    traced = client.at(client.folder)
    traced.shell = client.shell.with_(PYTHONPROFILEIMPORTTIME="1")
    client.calls = traced.calls = client.calls + 1
    path = str(client.folder / file)
    answer = traced.raw(
        "PreToolUse", tool_name="Write", tool_use_id=str(client.calls),
        tool_input={"file_path": path, "content": "x"},
    )  # fmt: skip
    assert (answer.code, answer.out) == (0, ""), answer
    assert file in [lease["resource"] for lease in client.shell.json("leases")]
    loaded = {line.rpartition("|")[2].strip() for line in answer.err.splitlines()}
    assert "dibs.surroundings.nearby" in loaded, loaded
    return "server" if "psycopg" in loaded else "daemon"


def test_the_first_hook_goes_to_the_server_and_the_next_to_a_daemon(client: Client) -> None:
    word = ready(client)
    assert edit(client) == "daemon"
    assert edit(client, "src/b.py") == "daemon"
    held = [one for one in client.shell.json("leases") if one["resource"].startswith("src/")]
    assert len(held) == 2 and len({one["session"] for one in held}) == 1
    assert client.after("Write", file_path=str(client.folder / "src/a.py"), content="x").quiet
    assert [each["pid"] for each in words(client.shell)] == [word["pid"]]


def test_doctor_says_which_way_hooks_go(user: Shell, client: Client) -> None:
    assert "none runs; the next hook starts one" in user.ok("doctor").out
    word = ready(client)
    assert f"hooks go through {word['url']}" in user.ok("doctor").out
    assert "DIBS_DAEMON=off" in user.with_(**{SWITCH: "off"}).ok("doctor").out


def test_what_another_holds_is_denied_through_the_daemon_too(user: Shell, client: Client) -> None:
    ready(client)
    user.as_("bob").ok("claim", "src/b.py")
    file = str(client.folder / "src/b.py")
    assert "bob" in client.before("Write", file_path=file, content="x").denied


def test_of_many_hooks_at_once_one_daemon_comes(client: Client) -> None:
    payload = json.dumps(
        client.payload(
            "PreToolUse", tool_name="Write", tool_use_id="1",
            tool_input={"file_path": str(client.folder / "src/a.py"), "content": "x"},
        )
    )  # fmt: skip
    hooks = [client.shell.start("hook", "claude", stdin=subprocess.PIPE) for _ in range(4)]
    for hook in hooks:
        assert finish(hook, given=payload).code == 0
    until(lambda: words(client.shell), "a daemon")
    begun = [sys.executable, "-m", "dibs", "serve", "--port", "0", "--idle", "900"]
    second = finish(client.shell.spawn(begun))
    assert second.code == 1 and "a daemon already serves" in second.err
    assert len(words(client.shell)) == 1


def test_a_frozen_daemon_is_left_alone(client: Client) -> None:
    word = ready(client)
    with frozen(word["pid"]):
        assert edit(client) == "server"
        assert len(list(folder(client.shell).glob("*.failed"))) == 1
    assert edit(client) == "server"  # for a while it is not tried again
    next(folder(client.shell).glob("*.failed")).unlink()
    assert edit(client) == "daemon"


def test_a_killed_daemon_is_replaced(client: Client) -> None:
    word = ready(client)
    os.kill(word["pid"], signal.SIGKILL)
    next(folder(client.shell).glob("*.started")).unlink()  # as if that were long ago
    assert edit(client) == "server"
    until(lambda: any(each["pid"] != word["pid"] for each in words(client.shell)), "another")
    assert edit(client) == "daemon"


@pytest.mark.parametrize(
    "change", [{"version": "0.0.1"}, {"store": "0" * 64}, {"url": "http://127.0.0.1:1"}]
)
def test_the_word_of_another_daemon_is_not_taken(client: Client, change: dict[str, str]) -> None:
    word = ready(client)
    (file,) = folder(client.shell).glob("*.json")
    with file.open("r+") as target:  # in place: the daemon holds a lock on it
        target.write(json.dumps(word | change))
        target.truncate()
    assert edit(client) == "server"


def test_a_word_that_others_may_have_written_is_not_taken(client: Client) -> None:
    ready(client)
    (file,) = folder(client.shell).glob("*.json")
    file.chmod(0o666)
    assert edit(client) == "server"
    file.chmod(0o600)
    folder(client.shell).chmod(0o777)
    assert edit(client) == "server"
    folder(client.shell).chmod(0o700)
    assert edit(client) == "daemon"


def test_with_another_password_a_daemon_is_not_found(client: Client, postgres_url: str) -> None:
    ready(client)
    other = client.at(client.folder)
    secret = postgres_url.replace("postgres:@", "postgres:hunter2@")
    other.shell = client.shell.with_(DIBS_URL=secret)
    assert edit(other) == "server"
    until(lambda: len(words(client.shell)) == 2, "a daemon of its own")
    for file in folder(client.shell).iterdir():
        assert "hunter2" not in file.read_text()
        assert file.stat().st_mode & 0o077 == 0
    for word in words(client.shell):
        assert "hunter2" not in Path(f"/proc/{word['pid']}/cmdline").read_text()


def test_a_daemon_is_known_by_all_that_leads_to_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    first = mark("postgresql://a:1@h/d", "s", b"k")
    others = [
        mark("postgresql://a:2@h/d", "s", b"k"),
        mark("postgresql://a:1@h/d", "t", b"k"),
        mark("postgresql://a:1@h/d", "s", b"l"),
    ]
    monkeypatch.setenv("PGSERVICE", "elsewhere")
    others.append(mark("postgresql://a:1@h/d", "s", b"k"))
    assert len({first, *others}) == 5


def test_it_can_be_turned_off(client: Client) -> None:
    client.shell = client.shell.with_(**{SWITCH: "off"})
    assert edit(client) == "server"
    assert not folder(client.shell).exists() or not list(folder(client.shell).iterdir())


def test_the_daemon_keeps_none_of_the_hooks_pipes(client: Client) -> None:
    read, write = os.pipe()
    payload = client.payload(
        "PreToolUse", tool_name="Write", tool_use_id="1",
        tool_input={"file_path": str(client.folder / "src/a.py"), "content": "x"},
    )  # fmt: skip
    hook = client.shell.spawn([DIBS, "hook", "claude"], stdin=subprocess.PIPE, pass_fds=[write])
    os.close(write)
    answer: Answer = finish(hook, given=json.dumps(payload))  # its output ends with it
    assert answer.code == 0
    until(lambda: words(client.shell), "a daemon")
    assert os.read(read, 1) == b""
    os.close(read)


def test_a_daemon_that_nobody_calls_ends(user: Shell) -> None:
    daemon = user.start("serve", "--port", "0", "--idle", "1s")
    assert finish(daemon).code == 0
    assert words(user) == []
