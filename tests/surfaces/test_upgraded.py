"""A store that is upgraded, deleted, moved or replaced under those who use it: each says so."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import dibs
from dibs.storage.queries import newest_migration
from tests.old_schemas import ask
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.hooked import Client
from tests.surfaces.mcp_client import clients
from tests.surfaces.shell import Shell, finish

NEWER = newest_migration() + 1
SAYS = f"a newer dibs upgraded this store to schema {NEWER}; this process is dibs"
PATIENCE_S = 10.0


def upgrade(url: str, change: str = "") -> None:
    """Do what a newer dibs will: a migration that this one knows nothing of."""
    note = f"PRAGMA user_version={NEWER}"
    if url.startswith("postgresql://"):
        note = f"INSERT INTO migration VALUES ({NEWER})"
    for text in filter(None, (change, note)):
        ask(url, text)


@pytest.fixture
def fresh(request: pytest.FixtureRequest, kind: str) -> str:
    """A database that no other test uses."""
    name = "sqlite_url" if kind == "sqlite" else "empty_postgres_url"
    url: str = request.getfixturevalue(name)
    return url


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("change", ["", "ALTER TABLE lease RENAME COLUMN note TO remark"])
def test_a_process_that_has_the_store_open_says_what_happened(
    fresh: str, kind: str, change: str, tmp_path: Path
) -> None:
    with dibs.open(fresh, space="s", user_dir=str(tmp_path / "user")) as space:
        alice = space.join("alice")
        alice.leases.claim("port:1")
        upgrade(fresh, change)
        before = space.events.last() if kind == "sqlite" else None
        calls: list[Callable[[], object]] = [
            lambda: alice.leases.claim("port:2"),
            lambda: alice.leases.release("port:1"),
            lambda: alice.state.set("x", "y", 1),
            space.scope.store.check,
        ]
        if change:
            calls.append(alice.leases.list)
        for call in calls:
            with pytest.raises(dibs.UpgradedError) as refusal:
                call()
            assert SAYS in refusal.value.message and "restart" in str(refusal.value.next)
            assert refusal.value.details == {"schema": NEWER, "known": NEWER - 1}
        if before is not None:
            assert space.events.last() == before, "nothing was written by another's rules"
        with pytest.raises(dibs.UnfitError, match="newer dibs"):
            dibs.open(fresh, space="s", user_dir=str(tmp_path / "user"))


def ended(daemon: Daemon) -> str:
    """What a daemon says that ends by itself, within a second or so."""
    answer = finish(daemon.process, PATIENCE_S)
    assert answer.code == 75, answer
    return answer.err


def test_a_daemon_ends_when_its_store_was_upgraded(shell: Shell) -> None:
    with serving(shell) as daemon:
        alice = daemon.client("alice")
        alice("leases.claim", resources=["port:1"])
        upgrade(str(shell.folder / ".dibs/dibs.db"))
        reply = alice.ask("leases.claim", {"resources": ["port:2"]})
        assert (reply.status, reply.error) == (503, "upgraded")
        assert SAYS in reply.json["message"]
        assert SAYS in ended(daemon)
        assert not list(daemon.home.glob("*.json")), "its note is gone"


def test_a_daemon_that_nobody_calls_ends_too(
    shell: Shell, empty_postgres_url: str, space_name: str
) -> None:
    there = shell.with_(DIBS_URL=empty_postgres_url, DIBS_SPACE=space_name)
    with serving(there) as daemon:
        upgrade(empty_postgres_url)
        assert SAYS in ended(daemon)


def test_an_mcp_server_says_so_in_every_call(shell: Shell) -> None:
    with clients(shell) as start:
        client = start()
        client.call("claim", resource="src/a.py")
        upgrade(str(shell.folder / ".dibs/dibs.db"))
        for _ in range(2):
            call = client.begin_call("claim", {"resource": "src/b.py"})
            assert client.outcome(call)["status"] == "upgraded"
            assert SAYS in json.dumps(client.answer(call)["result"])


def test_a_hook_says_so(shell: Shell) -> None:
    client = Client(shell, "one")
    client.start()
    upgrade(str(shell.folder / ".dibs/dibs.db"))
    given = {"file_path": str(shell.folder / "src/a.py"), "content": "x"}
    answer = client.raw("PreToolUse", tool_name="Write", tool_input=given, tool_use_id="1")
    assert answer.code == 1 and "newer dibs" in answer.err
    client.kill()


def remove(store: Path) -> None:
    shutil.rmtree(store)


def move(store: Path) -> None:
    store.rename(store.with_name("elsewhere"))


def replace(store: Path) -> None:
    """Another store takes its place, as when a folder is put back from a backup."""
    shutil.copytree(store, store.with_name("copy"))
    shutil.rmtree(store)
    store.with_name("copy").rename(store)


@pytest.mark.parametrize("change", [remove, move, replace])
def test_a_daemon_whose_store_is_gone_ends_and_leaves_its_place_to_the_next(
    shell: Shell, change: Callable[[Path], None]
) -> None:
    with serving(shell) as daemon:
        alice = daemon.client("alice")
        alice("leases.claim", resources=["port:1"])
        change(shell.folder / ".dibs")
        with serving(shell) as other:
            assert "was deleted or replaced" in ended(daemon)
            assert other.word["pid"] == other.process.pid, "its note is there"
            other.client("alice")("leases.claim", resources=["port:1"])


def test_the_next_daemon_has_the_same_port_at_once(shell: Shell) -> None:
    with serving(shell) as daemon:
        port = daemon.port
        waiting = daemon.client("bob")
        daemon.client("alice")("leases.claim", resources=["port:1"])
        remove(shell.folder / ".dibs")
        began = time.monotonic()
        process = shell.start("serve", "--port", str(port))
        assert process.stdout is not None
        line = process.stdout.readline()
        assert f":{port}" in line, (line, process.stderr and process.stderr.read())
        assert time.monotonic() - began < PATIENCE_S
        waiting.close()
        process.kill()
        finish(process)


def test_who_goes_through_a_daemon_is_told(shell: Shell) -> None:
    with serving(shell) as daemon:
        through = shell.with_(DIBS_URL=daemon.url).as_("alice")
        through.ok("claim", "src/a.py")
        remove(shell.folder / ".dibs")
        reply = daemon.client("alice").ask("leases.list")
        assert (reply.status, reply.error) in ((503, "store_gone"), (503, "unavailable"))
        ended(daemon)
