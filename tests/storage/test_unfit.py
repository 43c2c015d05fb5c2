"""What cannot serve as a store is refused by name, and is left as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import psycopg
import pytest

import dibs
from dibs.errors import (
    DisconnectedError,
    DiskFullError,
    InvalidError,
    NotYoursError,
    ReadOnlyError,
    StoreGoneError,
    UnavailableError,
    UnfitError,
)
from dibs.storage.sqlite import PRESENT_NS
from dibs.system import linux
from tests.clock import ManualClock


def open_store(url: str, tmp_path: Path, **options) -> dibs.Dibs:
    options.setdefault("space", "here")
    return dibs.open(url, user_dir=str(tmp_path / "user"), **options)


def everything_in(path: Path) -> dict[str, bytes]:
    """Every file below a folder with its content, and every folder."""
    return {
        str(item.relative_to(path)): item.read_bytes() if item.is_file() else b""
        for item in sorted(path.rglob("*"))
    }


# Another program's files.


def test_a_database_of_another_program_is_refused_and_left_alone(sqlite_url, tmp_path):
    other = apsw.Connection(sqlite_url)
    other.execute("CREATE TABLE recipe (name TEXT); INSERT INTO recipe VALUES ('soup')")
    other.close()
    before = everything_in(Path(sqlite_url).parent)
    with pytest.raises(UnfitError, match="another program") as refused:
        open_store(sqlite_url, tmp_path)
    assert sqlite_url in str(refused.value)
    assert everything_in(Path(sqlite_url).parent) == before


def test_a_marked_database_of_another_program_is_refused(sqlite_url, tmp_path):
    """It has no table yet, but its mark says whose it is."""
    other = apsw.Connection(sqlite_url)
    other.pragma("application_id", 0x0F055112)
    other.close()
    before = everything_in(Path(sqlite_url).parent)
    with pytest.raises(UnfitError, match="another program"):
        open_store(sqlite_url, tmp_path)
    assert everything_in(Path(sqlite_url).parent) == before


def test_a_text_file_is_refused_and_left_alone(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    notes = home / "notes.txt"
    notes.write_text("milk, bread, a little patience\n" * 100)
    before = everything_in(home)
    with pytest.raises(UnfitError, match="not a dibs database"):
        open_store(str(notes), tmp_path)
    assert everything_in(home) == before


def test_a_directory_is_refused(tmp_path):
    home = tmp_path / "home"
    (home / "inside").mkdir(parents=True)
    with pytest.raises(UnavailableError):
        open_store(str(home / "inside"), tmp_path)
    assert everything_in(home) == {"inside": b""}


def test_an_empty_file_becomes_a_store(sqlite_url, tmp_path):
    Path(sqlite_url).touch()
    with open_store(sqlite_url, tmp_path) as space:
        assert space.events.last() == 0


def test_a_postgres_database_of_another_program_is_shared_without_touching_its_tables(
    empty_postgres_url, tmp_path
):
    with psycopg.connect(empty_postgres_url, autocommit=True) as other:
        other.execute("CREATE TABLE lease (tenant TEXT)")
        other.execute("INSERT INTO lease VALUES ('smith')")
        with open_store(empty_postgres_url, tmp_path) as space, space.join("alice") as alice:
            alice.leases.claim("port:1")
        assert other.execute("SELECT tenant FROM lease").fetchall() == [("smith",)]


@pytest.mark.parametrize(
    "address", ["mysql://host/database", "ftp://host:1/", "sqlite://", "", "a\0b", "sqlite:///a\0b"]
)
def test_an_address_that_dibs_does_not_know_is_refused(address, tmp_path):
    with pytest.raises(InvalidError):
        open_store(address, tmp_path)


def test_a_server_that_does_not_answer_is_named_as_such(tmp_path):
    nowhere = f"postgresql://nobody@/nothing?host={tmp_path}"
    with pytest.raises(DisconnectedError):
        open_store(nowhere, tmp_path)


def test_a_database_that_does_not_exist_on_the_server_is_refused(postgres_url, tmp_path):
    name = postgres_url.split("?")[0].rsplit("/", 1)[1]
    with pytest.raises((UnfitError, DisconnectedError)):
        open_store(postgres_url.replace(f"/{name}?", "/no_such_database?"), tmp_path)


# Links and disks.


def test_a_database_with_two_names_is_refused(sqlite_url, tmp_path):
    with open_store(sqlite_url, tmp_path) as space:
        space.join("alice").leases.claim("port:1")
    os.link(sqlite_url, f"{sqlite_url}.twin")
    for name in (sqlite_url, f"{sqlite_url}.twin"):
        with pytest.raises(UnfitError, match="2 hard links"):
            open_store(name, tmp_path)
    os.unlink(f"{sqlite_url}.twin")
    open_store(sqlite_url, tmp_path).close()


def test_a_database_behind_a_symbolic_link_is_the_same_store(sqlite_url, tmp_path):
    """SQLite follows the link; so must the key, the bells and the liveness beside it."""
    alias = tmp_path / "alias.db"
    with open_store(sqlite_url, tmp_path) as space, space.join("alice") as alice:
        alias.symlink_to(sqlite_url)
        with open_store(str(alias), tmp_path) as other, other.join("bob") as bob:
            alice.leases.claim("port:1")
            assert bob.leases.status("port:1")[0].blockers[0].agent == "alice"
            assert bob.agents.verify() == ()


MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw
31 22 0:27 / /proc rw,nosuid shared:5 - proc proc rw
44 22 {device} / /home/a\\040b rw,noatime shared:9 master:2 - {kind} server:/export rw,vers=4.2
45 22 0:51 / /run rw - tmpfs tmpfs rw
"""


def mounts_text(tmp_path: Path, kind: str) -> str:
    number = os.stat(tmp_path).st_dev
    table = tmp_path / "mountinfo"
    device = f"{os.major(number)}:{os.minor(number)}"
    table.write_text(MOUNTS.format(device=device, kind=kind))
    return str(table)


@pytest.mark.parametrize("kind", ["ext4", "nfs4", "fuse.sshfs", "9p", "tmpfs"])
def test_the_type_of_a_file_system_is_read_from_the_table_of_mounts(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(linux, "MOUNTS", mounts_text(tmp_path, kind))
    assert linux.file_system(str(tmp_path)) == kind
    assert linux.file_system(str(tmp_path / "not" / "there" / "yet")) == kind


NETWORKS = (
    "nfs nfs4 cifs smb3 9p fuse.sshfs ceph fuse.ceph virtiofs vboxsf prl_fs fuse.vmhgfs-fuse hgfs "
    "vmhgfs davfs fuse.davfs2 glusterfs fuse.glusterfs lustre beegfs afs gfs2 ocfs2 fuse.rclone "
    "fuse.s3fs fuse.grpcfuse fakeowner FUSE.SSHFS"
).split()


def test_a_system_without_a_table_of_mounts_is_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr(linux, "MOUNTS", str(tmp_path / "no such table"))
    assert linux.file_system(str(tmp_path)) is None


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_file_system_is_refused_by_name(kind, sqlite_url, tmp_path, monkeypatch):
    monkeypatch.setattr(linux, "MOUNTS", mounts_text(tmp_path, kind))
    before = everything_in(Path(sqlite_url).parent)
    with pytest.raises(UnfitError, match=f"network file system \\({kind}\\)") as refused:
        open_store(sqlite_url, tmp_path)
    assert refused.value.details["file_system"] == kind
    assert everything_in(Path(sqlite_url).parent) == before


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.ntfs-3g", "fuse"]
)
def test_a_local_file_system_is_taken(kind, sqlite_url, tmp_path, monkeypatch):
    monkeypatch.setattr(linux, "MOUNTS", mounts_text(tmp_path, kind))
    open_store(sqlite_url, tmp_path).close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of 512 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_is_named_and_nothing_acknowledged_is_lost(small_disk, tmp_path):
    url = str(small_disk / "dibs.db")
    with open_store(url, tmp_path) as space, space.join("alice") as alice:
        written = 0
        with pytest.raises(DiskFullError, match="full") as refused:
            while True:
                alice.state.set("log", str(written), "x" * 9_000)
                written += 1
        assert refused.value.next
        assert written > 5
        last = alice.events.last()
        with pytest.raises(DiskFullError):
            alice.state.set("log", str(written), "x" * 9_000)
        assert alice.events.last() == last
        assert len(alice.state.list("log")) == written
        # Nobody keeps the turn: with room again, the next write goes through.
        subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
        assert alice.state.set("log", str(written), "fits now").version == 1
    with open_store(url, tmp_path) as space:
        assert len(space.state.list("log")) == written + 1
        assert integrity(space) == "ok"


def test_a_disk_that_is_full_from_the_start_is_named(small_disk, tmp_path):
    (small_disk / "ballast").write_bytes(b"x" * 508 * 1024)
    with pytest.raises(UnavailableError) as refused:
        open_store(str(small_disk / "dibs.db"), tmp_path)
    assert isinstance(refused.value, DiskFullError), refused.value


def test_a_read_only_disk_is_named(small_disk, tmp_path):
    url = str(small_disk / "dibs.db")
    with open_store(url, tmp_path) as space:
        space.join("alice").leases.claim("port:1")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(ReadOnlyError) as refused:
        open_store(url, tmp_path).join("bob")
    assert refused.value.next
    with pytest.raises(ReadOnlyError):
        open_store(str(small_disk / "new" / "dibs.db"), tmp_path)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    with open_store(url, tmp_path) as space, space.join("bob") as bob:
        assert bob.leases.claim("port:1")


def test_a_read_only_postgres_is_named(empty_postgres_url, tmp_path):
    with open_store(empty_postgres_url, tmp_path) as space:
        alice = space.join("alice")
        last = space.events.last()
        with psycopg.connect(empty_postgres_url, autocommit=True) as admin:
            name = admin.info.dbname
            admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
            with open_store(empty_postgres_url, tmp_path) as other:
                with pytest.raises(ReadOnlyError):
                    other.join("bob")
                assert other.events.last() == last
            admin.execute("SET default_transaction_read_only = off")
            admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        alice.close()


def integrity(space: dibs.Dibs) -> str:
    driver = space.scope.store.driver
    connection = driver.take()
    try:
        answer: str = connection.db.pragma("integrity_check")
        return answer
    finally:
        driver.give_back(connection)


# Keys.


def test_the_key_of_another_store_is_refused(sqlite_url, tmp_path):
    open_store(sqlite_url, tmp_path).close()
    key = Path(f"{sqlite_url}.d/key")
    right = key.read_bytes()
    for other in (bytes(32), b"too short"):
        key.write_bytes(other)
        with pytest.raises(UnfitError, match="you did not make the store"):
            open_store(sqlite_url, tmp_path)
    key.write_bytes(right)
    open_store(sqlite_url, tmp_path).close()


def test_another_machine_needs_the_key_of_a_shared_space(postgres_url, space_name, tmp_path):
    user = tmp_path / "user"
    with open_store(postgres_url, tmp_path, space=space_name) as space:
        space.join("alice").close()
        last = space.events.last()
    (kept,) = (user / "keys").iterdir()
    shutil.move(user, tmp_path / "first machine")
    with pytest.raises(UnfitError, match="this machine has no key for the space"):
        open_store(postgres_url, tmp_path, space=space_name)
    # The useless key is removed, so that it is not taken for the right one.
    assert list((user / "keys").iterdir()) == []
    with pytest.raises(UnfitError, match="not the key of the space"):
        open_store(postgres_url, tmp_path, space=space_name, key=bytes(32))
    right = (tmp_path / "first machine" / "keys" / kept.name).read_bytes()
    with open_store(postgres_url, tmp_path, space=space_name, key=right) as space:
        assert space.events.last() == last


# A store that is deleted while it is in use.


def test_a_store_that_was_deleted_says_so_and_the_next_one_starts_afresh(tmp_path):
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    space = dibs.open(start=str(repository), user_dir=str(tmp_path / "user"))
    alice = space.join("alice")
    grant = alice.leases.claim("port:1")
    shutil.rmtree(repository / ".dibs")
    outlast_the_last_look()

    for call in (
        lambda: alice.leases.claim("port:2"),
        alice.leases.list,
        alice.events.last,
        lambda: space.join("bob"),
        lambda: alice.leases.claim("port:1", wait_s=5),
        lambda: alice.events.watch(0, wait_s=5),
    ):
        with pytest.raises(StoreGoneError, match="deleted"):
            call()
    with pytest.raises(StoreGoneError):
        alice.close()
    space.close()
    assert not (repository / ".dibs").exists()

    with dibs.open(start=str(repository), user_dir=str(tmp_path / "user")) as again:
        assert [event.kind for event in again.events.since(0)] == ["space.restored"]
        assert again.join("alice").leases.claim("port:1").epoch > grant.epoch


def outlast_the_last_look() -> None:
    """A process that has just seen its store looks again after a moment only."""
    time.sleep(2 * PRESENT_NS / 1e9)


def test_a_store_that_was_replaced_is_never_written_to(sqlite_url, tmp_path):
    space = open_store(sqlite_url, tmp_path)
    alice = space.join("alice")
    for left_over in Path(sqlite_url).parent.glob("dibs.db*"):
        shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
    with open_store(sqlite_url, tmp_path) as fresh, fresh.join("bob") as bob:
        last = fresh.events.last()
        outlast_the_last_look()
        for call in (lambda: alice.leases.claim("port:1"), alice.leases.list):
            with pytest.raises(StoreGoneError):
                call()
        assert fresh.events.last() == last
        assert bob.leases.claim("port:1")
    space.close()


def test_a_second_thread_is_told_as_well_that_the_store_is_gone(sqlite_url, tmp_path):
    """It needs a connection of its own, which must not create a new file."""
    space = open_store(sqlite_url, tmp_path)
    store = space.scope.store
    told: list[type[BaseException] | None] = []

    def look() -> None:
        try:
            space.events.last()
            told.append(None)
        except UnavailableError as error:
            told.append(type(error))

    with store.read():
        shutil.rmtree(Path(sqlite_url).parent)
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert told == [StoreGoneError]
    space.close()


def test_the_folder_beside_the_database_belongs_to_the_store(sqlite_url, tmp_path):
    space = open_store(sqlite_url, tmp_path)
    alice = space.join("alice")
    shutil.rmtree(f"{sqlite_url}.d")
    with pytest.raises(StoreGoneError):
        space.join("bob")  # it needs a file there, whenever somebody looked last
    outlast_the_last_look()
    for call in (
        lambda: space.join("bob"),
        lambda: alice.leases.claim("port:1"),
        lambda: alice.leases.claim("port:1", wait_s=1),
    ):
        with pytest.raises(StoreGoneError):
            call()
    space.close()


# Several spaces in one database.


def test_two_spaces_in_one_database_are_independent(url, space_name, tmp_path):
    clock = ManualClock()
    one = open_store(url, tmp_path, space=f"{space_name}-one", clock=clock)
    two = open_store(url, tmp_path, space=f"{space_name}-two", clock=clock)
    with one, two:
        alice, bob = one.join("alice"), two.join("bob")
        assert (alice.session, bob.session) == (1, 1)
        first, second = alice.leases.claim("port:1"), bob.leases.claim("port:1")
        assert (first.epoch, second.epoch) == (2, 2)
        alice.state.set("plan", "step", 1)
        alice.work.add("t1")
        alice.messages.announce("hello")
        assert bob.state.get("plan", "step") is None
        assert bob.work.list() == ()
        assert bob.messages.inbox() == ()
        assert bob.events.last() == 2
        with pytest.raises(NotYoursError):
            two.resume(alice.token)
        alice.close()
        assert [lease.agent for lease in two.leases.list()] == ["bob"]
        assert [presence.agent for presence in two.agents.list()] == ["bob"]
        carol = two.join("carol")
        with pytest.raises(dibs.HeldError):
            carol.leases.claim("port:1")
        assert one.agents.verify() == two.agents.verify() == ()


def test_waiters_in_two_spaces_of_one_file_have_tickets_of_their_own(sqlite_url, tmp_path):
    """Tickets are numbered alike in both, and each is served by its own space only."""
    spaces = [open_store(sqlite_url, tmp_path, space=name) for name in ("one", "two")]
    holders = [space.join("alice") for space in spaces]
    for holder in holders:
        holder.leases.claim("port:1")
    grants: list[list[int]] = [[], []]

    def queue(place: int) -> None:
        with spaces[place].join("bob") as bob:
            grants[place].append(bob.leases.claim("port:1", wait_s=30).epoch)

    waiters = [threading.Thread(target=queue, args=(place,)) for place in (0, 1)]
    for waiter in waiters:
        waiter.start()
    for holder in holders:
        queued = holder.events.watch(0, kind="lease.queued", wait_s=30)
        assert queued[0].agent == "bob"
    holders[0].leases.release("port:1")
    waiters[0].join()
    assert grants[0] and not grants[1]
    holders[1].leases.release("port:1")
    waiters[1].join()
    assert grants[1] == grants[0]
    for space in spaces:
        space.close()
