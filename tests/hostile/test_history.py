"""A store that went back in time under a running process: deleted, restored, or promoted.

Each round, one process joins and is granted something; the store goes back to before that; another
opens it. The old one must be refused in every operation, and no epoch may be granted twice.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import dibs
from dibs.dibs import operations
from dibs.errors import DibsError, NotYoursError, StoreGoneError
from tests.hostile.standby import Failover, failover

ROOT = Path(__file__).resolve().parents[2]
PROOFS = ("agents.verify", "events.check_seal")
REFUSED = {"store_gone", "not_yours"}


class Old:
    """The process that knows the past which is lost."""

    def __init__(self, url: str, user: str) -> None:
        self._where = {"url": url, "space": "s", "user": user}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.old_caller"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, do: str) -> Any:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"do": do, **self._where}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture
def old(sqlite_url: str, tmp_path: Path) -> Iterator[Old]:
    process = Old(sqlite_url, str(tmp_path / "user"))
    yield process
    process.close()


def delete_database(path: Path, copy: Path) -> None:
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def delete_all(path: Path, copy: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.mkdir(mode=0o700)


def move_database(path: Path, copy: Path) -> None:
    delete_database(path, copy)
    shutil.copyfile(copy / path.name, path)


def copy_over_database(path: Path, copy: Path) -> None:
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    with open(path, "r+b") as target:  # the same inode
        target.write((copy / path.name).read_bytes())
        target.truncate()


def put_all_back(path: Path, copy: Path) -> None:
    shutil.rmtree(path.parent)
    shutil.copytree(copy, path.parent)
    os.chmod(path.parent, 0o700)


def restore_backup(path: Path, copy: Path) -> None:
    delete_database(path, copy)
    shutil.copyfile(copy.parent / "backup.db", path)


LOSSES: list[Callable[[Path, Path], None]] = [
    delete_database,
    delete_all,
    move_database,
    copy_over_database,
    put_all_back,
    restore_backup,
]


def quiet_copy(url: str, user: str, copy: Path) -> None:
    """Copy the store while nobody uses it, so that the file has all of it."""
    with dibs.open(url, space="s", user_dir=user) as space:
        space.scope.store.driver.shorten_log()
        (copy.parent / "backup.db").unlink(missing_ok=True)
        shutil.rmtree(copy.parent / "backup.db.d", ignore_errors=True)
        space.backup(str(copy.parent / "backup.db"))
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(Path(url).parent, copy)


def refusals(heard: dict[str, str], loss: str) -> None:
    assert set(heard) == set(operations())
    # A proof is of the store, whoever asks: the row of their session may be what is missing.
    heard = {name: code for name, code in heard.items() if name not in PROOFS or code != "done"}
    # What a connection has read it may still read in the millisecond after the file has gone.
    assert set(heard.values()) <= REFUSED, (
        loss,
        {k: v for k, v in heard.items() if v not in REFUSED},
    )


def go_back(
    url: str, tmp_path: Path, old: Old, loss: Callable[[Path, Path], None], rounds: int
) -> None:
    user, granted = str(tmp_path / "user"), []
    copy = tmp_path / "copy"
    quiet_copy(url, user, copy)
    for number in range(rounds):
        if number % 3 == 0:
            quiet_copy(url, user, copy)
        granted += old.ask("join")
        granted += old.ask("claim")
        loss(Path(url), copy)
        with dibs.open(url, space="s", user_dir=user) as space, space.join("bob") as bob:
            granted += [bob.leases.claim(f"lock:{n}").epoch for n in range(10)]
            refusals(old.ask("attempt"), loss.__name__)
            granted += [bob.leases.claim(f"lock:more-{n}").epoch for n in range(3)]
            # With its key still there, a new journal is another chain than the one that was seen.
            lost = ["chain"] if loss is delete_database else []
            assert [one.noun for one in space.agents.verify()] == lost
            assert space.events.since(0, kind="space.restored")
    assert len(set(granted)) == len(granted)
    assert max(granted) < 2**53


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_who_knows_a_lost_past_is_refused_and_no_epoch_is_granted_twice(
    sqlite_url: str, tmp_path: Path, old: Old, loss: Callable[[Path, Path], None]
) -> None:
    go_back(sqlite_url, tmp_path, old, loss, 5)


@pytest.mark.stress
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_hundred_rounds_of_going_back(
    sqlite_url: str, tmp_path: Path, old: Old, loss: Callable[[Path, Path], None]
) -> None:
    go_back(sqlite_url, tmp_path, old, loss, 100)


def test_a_power_cut_of_a_fast_store_takes_writes_and_no_epoch_is_granted_twice(
    sqlite_url: str, tmp_path: Path
) -> None:
    """The last writes never reached the disk, nor did what is noted beside the database."""
    where: dict[str, Any] = {"space": "s", "user_dir": str(tmp_path / "user")}

    def end() -> int:
        with dibs.open(sqlite_url, durability="fast", **where) as space, space.join("alice") as one:
            space.scope.store.driver.shorten_log()
            return one.leases.claim("lock:a").epoch

    end()
    folder = Path(sqlite_url).parent
    on_disk = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    lost = end()
    for path in folder.rglob("*"):
        if path.is_file() and path.read_bytes() != on_disk.get(path, b""):
            path.write_bytes(on_disk.get(path, b""))  # the same inode, as after a restart
    rebooted = apsw.Connection(sqlite_url)
    rebooted.execute("UPDATE space SET boot = 'an earlier one'")
    rebooted.close()
    with dibs.open(sqlite_url, **where) as space, space.join("bob") as bob:
        assert bob.leases.claim("lock:a").epoch > lost
        assert space.events.since(0, kind="space.restored")


# PostgreSQL: a standby that had not heard of the last commits takes over, or a dump is restored.


@pytest.fixture
def servers(postgres_server: str) -> Iterator[Failover]:
    """After another server has run, so that its programs may be started."""
    with failover() as found:
        yield found


def lose_commits(servers: Failover, tmp_path: Path, rounds: int) -> None:
    user, granted = str(tmp_path / "user"), []
    where: dict[str, Any] = {"space": "s", "user_dir": user}
    dibs.open(servers.url, **where).close()
    old = Old(servers.url, user)
    with dibs.open(servers.url, **where) as staying, staying.join("carol", ttl_s=300) as carol:
        try:
            for _ in range(rounds):
                granted += old.ask("join")
                servers.copy()
                granted += old.ask("claim")
                servers.promote()
                with dibs.open(servers.url, **where) as space, space.join("bob") as bob:
                    granted += [bob.leases.claim(f"lock:{n}").epoch for n in range(10)]
                    refusals(old.ask("attempt"), "promoted")
                    granted += [bob.leases.claim(f"lock:more-{n}").epoch for n in range(3)]
                    assert space.events.since(0, kind="space.restored")
                # Who stays is told, and goes on with a new session of the same opening.
                for _ in range(20):
                    try:
                        carol.leases.claim("lock:c")
                    except (NotYoursError, StoreGoneError):
                        break
                    except DibsError as error:
                        assert error.code == "disconnected", error
                else:
                    raise AssertionError("carol was never refused")
                carol = staying.join("carol", ttl_s=300)
                granted.append(carol.leases.claim("lock:carol").epoch)
        finally:
            old.close()
    assert len(set(granted)) == len(granted)


def test_who_knows_what_a_promoted_standby_does_not_is_refused(
    servers: Failover, tmp_path: Path
) -> None:
    lose_commits(servers, tmp_path, 2)


@pytest.mark.stress
@pytest.mark.timeout(900)
def test_a_hundred_promoted_standbys(servers: Failover, tmp_path: Path) -> None:
    lose_commits(servers, tmp_path, 100)


def test_a_server_that_is_started_again_has_lost_nothing_unless_somebody_is_fast(
    servers: Failover, tmp_path: Path
) -> None:
    user = str(tmp_path / "user")

    def last(durability: str) -> int:
        with dibs.open(servers.url, space="s", user_dir=user, durability=durability) as space:
            return space.events.last()

    assert last("full") == 0
    servers.restart()
    assert last("full") == last("fast") == 0
    servers.restart()
    assert last("full") > 1 << 40
    assert last("fast") == last("full")


def test_a_space_of_a_restored_dump_goes_on_above(
    empty_postgres_url: str, tmp_path: Path, space_name: str
) -> None:
    where: dict[str, Any] = {"space": space_name, "user_dir": str(tmp_path / "user")}
    with dibs.open(empty_postgres_url, **where) as space, space.join("alice") as alice:
        with psycopg.connect(empty_postgres_url, autocommit=True) as server:
            server.execute("CREATE SCHEMA dump")
            tables = [row[0] for row in server.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'dibs'")]  # fmt: skip
            for table in tables:
                server.execute(
                    f"CREATE TABLE dump.{table} (LIKE dibs.{table} INCLUDING ALL)".encode()
                )
                server.execute(f"INSERT INTO dump.{table} SELECT * FROM dibs.{table}".encode())
        lost = alice.leases.claim("lock:a").epoch
    with psycopg.connect(empty_postgres_url, autocommit=True) as server:
        server.execute("DROP SCHEMA dibs CASCADE")
        server.execute("ALTER SCHEMA dump RENAME TO dibs")
    with dibs.open(empty_postgres_url, **where) as space, space.join("bob") as bob:
        assert bob.leases.claim("lock:a").epoch > lost
        with pytest.raises(NotYoursError):
            space.resume(alice.token).leases.claim("lock:b")


def test_a_session_of_the_same_number_is_not_the_same(url: str, tmp_path: Path) -> None:
    """Where nobody has noticed that the store went back, the random part tells them apart."""
    name = tmp_path.name + url[-40:].replace("/", "-")
    where: dict[str, Any] = {"space": name, "user_dir": str(tmp_path / "u")}
    with dibs.open(url, **where) as space, dibs.open(url, **where) as other:
        alice = space.join("alice")
        token = alice.token
        bob = other.join("bob")
        bob.scope.caller.session = alice.session
        for call in (
            lambda: bob.leases.claim("lock:a"),
            bob.messages.inbox,
            bob.agents.overview,
            bob.leases.list,
            bob.agents.beat,
            bob.agents.leave,
        ):
            with pytest.raises(NotYoursError, match="was rolled back") as refusal:
                call()
            assert refusal.value.details["session"] == alice.session
        assert other.resume(token).leases.claim("lock:a").epoch
        with pytest.raises(NotYoursError):
            other.resume(other.scope.keys.session_token(alice.session, bob.scope.caller.nonce))
        alice.close()
