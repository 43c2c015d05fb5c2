"""The files beside a SQLite store, and whether its disk can be trusted with one.

For a database `x.db` the folder `x.db.d` holds the space key, the bells and the liveness
files: 0700 and 0600, since who can read them can act for others.

Liveness: the kernel knows who is alive. Each number that stands for a process, a session's or
that of somebody who waits, has a small file that its process keeps locked. The kernel drops the
lock however the process ends, so a lock that can be had means a holder that is dead. Liveness
says nothing about ownership: a frozen process is alive, and the time limit of what it holds is
what frees that. Testers take the lock shared, so they never mistake each other for the holder.

Bells: how a commit wakes those who wait. A bell is a hint; the tables are the truth. After its
commit a writer writes one byte into a file per topic, and `waiting` sleeps until that happens. A
hint that is lost, because the writer died right after its commit, costs a waiter at most one
slow look. A number has a bell of its own, its liveness file, so that a write can wake the one
whom it concerns and nobody else.
"""

from __future__ import annotations

import os

from dibs.digest import sha256
from dibs.errors import (
    BusyError,
    DiskFullError,
    ExistsError,
    ReadOnlyError,
    StorageError,
    StoreGoneError,
    UnfitError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.storage.driver import Listener

# SQLite's locks and shared memory need one kernel; these file systems join several.
NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs beegfs ceph cifs fuse.glusterfs fuse.rclone fuse.s3fs fuse.sshfs gfs2 gpfs lustre "
    "ncpfs nfs nfs4 ocfs2 orangefs smb3 smbfs".split()
)
_HANDLES: set[int] = set()
"""All locked files of this process, for a child that must not keep them."""


class Folder:
    def __init__(self, database: str) -> None:
        self.path = database + ".d"
        self.bells = os.path.join(self.path, "bells")
        self.alive = os.path.join(self.path, "alive")
        self.key_file = os.path.join(self.path, "key")

    def make(self) -> None:
        """Create what is missing."""
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            for folder in (self.path, self.bells, self.alive):
                if not os.path.isdir(folder):
                    os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise _disk_error(error, self.path) from error

    def receive(self, key: bytes) -> None:
        """Make the folder of a backup, with the key that the original has."""
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            write_once(self.key_file, key)
        except OSError as error:
            raise _disk_error(error, self.path) from error
        if self.key() != key:
            raise ExistsError(f"{self.path} belongs to another store", next="give another path")

    def key(self) -> bytes:
        try:
            with open(self.key_file, "rb") as source:
                return source.read()
        except OSError as error:
            raise _disk_error(error, self.key_file) from error


class Note:
    """What the user's data folder says of the store at a path; `adoption` says what for.

    key: that of the store, None if it has none yet
    known: whether this user made or adopted the store
    above: whether it took the place of another, above whose seqs it begins
    life, schema, index: what was last seen there, "-" for nothing
    """

    def __init__(self, user_dir: str, database: str) -> None:
        self.path = database
        self.folder = os.path.join(user_dir, "stores")
        self.place = sha256(os.fsencode(database)).hexdigest()[:32]
        self.index_now = "-"
        self.read()

    def read(self) -> None:
        self.key: bytes | None = None
        self.known = self.above = False
        self.life = self.schema = self.index = "-"
        store = Folder(self.path)
        try:
            self.born = os.lstat(store.key_file).st_ctime_ns
        except OSError:
            return  # there is none, or it cannot be read, as whoever makes it finds out
        self.key = store.key()
        self.file = os.path.join(self.folder, fingerprint(self.key))
        try:
            with open(self.file, "rb") as source:
                head, *lines = source.read().split(b"\n")
        except OSError:
            return
        self.known, self.above = True, head == b"above"
        for line in lines:
            if line.startswith(self.place.encode()):
                _, life, schema, index, _ = line.split(b" ", 4)
                self.life, self.schema, self.index = life.decode(), schema.decode(), index.decode()
                return
            if line:
                self.life = "elsewhere"

    def stamp(self, inode: int, cookie: int) -> tuple[str, str]:
        """Life and schema of a database, which SQLite gives another cookie with each change."""
        return f"{inode}.{self.born}", f"{inode}.{cookie}"


def fingerprint(key: bytes) -> str:
    """What tells a store apart from others, and does not tell its key."""
    text: str = sha256(b"dibs store\n" + key).hexdigest()
    return text[:32]


def write_once(path: str, content: bytes) -> None:
    """Create a private file with its content in one step, unless somebody else did first."""
    draft = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        os.unlink(draft)


def check_disk(database: str) -> None:
    """Refuse a place where SQLite cannot keep its promises."""
    try:
        links = os.stat(database).st_nlink
    except FileNotFoundError:
        links = 1
    except OSError as error:
        raise _disk_error(error, database) from error
    if links > 1:
        raise UnfitError(
            f"{database} has {links} hard links; a process that opens it by another name "
            "would not see its log and would damage it",
            next="remove the other links, or copy the store with the backup command",
        )
    kind = file_system(os.path.dirname(database))
    if kind in NETWORK_FILE_SYSTEMS:
        raise UnfitError(
            f"{database} is on a network file system ({kind}), where SQLite's locks do not hold",
            next="keep the store on a local disk, or use postgresql:// to share it",
            file_system=kind,
        )


def inode_of(path: str) -> int:
    """The inode of a file, 0 if there is none."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


def file_system(path: str, mounts: str = "/proc/self/mountinfo") -> str | None:
    """The type of the file system that holds path, or None where the system does not say."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as source:
            for line in source:
                fields = line.split()
                if fields[2] == wanted:
                    return fields[fields.index("-") + 1]
    except FileNotFoundError:
        return None
    return None


def _disk_error(error: OSError, path: str) -> StorageError | ReadOnlyError | DiskFullError:
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{path}: the disk is full", next="free some space and try again")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyError(
            f"{path} cannot be written: {error.strerror}",
            next="check the owner and the mode of the folder, or choose another store",
        )
    return StorageError(f"{path}: {error.strerror}", next="look at the disk")


class FileLiveness:
    """Proof that the process behind a number, such as a session's, still runs."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.space = 0
        """Numbers are counted in each space; the files of all spaces are in one folder."""
        self._held: dict[int, int] = {}
        self._pid = os.getpid()
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def present(self) -> bool:
        """Whether the folder is still there; without it, everybody would look dead."""
        return os.fstat(self._handle).st_nlink > 0

    def path(self, number: int) -> str:
        return os.path.join(self._folder, f"{self.space}-{number}")

    def hold(self, number: int) -> None:
        """Prove, until the process ends or lets go, that this number is alive."""
        import fcntl  # late, since most commands have nothing to prove

        self.let_go(number)  # of a write that was undone half-way
        try:
            handle = os.open(self.path(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise StoreGoneError(
                f"{self._folder} was deleted while the store was open",
                next="open the store again: it starts afresh",
            ) from None
        self._held[number] = handle
        _HANDLES.add(handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _close(self._held.pop(number))  # the file is the other's, and stays
            raise BusyError(
                "another process has not let go yet of what it did not finish", next="try again"
            ) from None

    def let_go(self, number: int) -> None:
        handle = self._held.pop(number, None)
        # A forked child has no part in what its parent proves.
        if handle is not None and os.getpid() == self._pid:
            self.forget(number)
            _close(handle)

    def forget(self, number: int) -> None:
        """Remove the file of somebody who is gone; numbers are never used again."""
        try:
            os.unlink(self.path(number))
        except FileNotFoundError:
            return

    def alive(self, number: int) -> bool:
        return is_held(self.path(number))

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        while self._held:
            _close(self._held.popitem()[1])
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def is_held(file: str) -> bool:
    """Whether the process that keeps this file locked still lives."""
    import fcntl

    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _close(handle: int) -> None:
    if handle in _HANDLES:
        _HANDLES.remove(handle)
        os.close(handle)


def _let_go_in_child() -> None:
    # A forked child shares the locks; were it to keep them, a dead parent would look alive.
    while _HANDLES:
        os.close(_HANDLES.pop())


os.register_at_fork(after_in_child=_let_go_in_child)


class Bells:
    def __init__(self, folder: str, numbered: Callable[[int], str]) -> None:
        self._folder = folder
        self._numbered = numbered
        self._open: dict[str, int] = {}
        self._ears: list[int] = []
        """Kept by `waiting` for the next who listens."""

    def path(self, topic: str) -> str:
        if topic.isdigit():
            return self._numbered(int(topic))
        return os.path.join(self._folder, topic.partition(":")[0])

    def ring(self, topics: set[str]) -> None:
        """Wake those who listen; where that fails, they are gone, or find it at their next look."""
        for topic in topics:
            try:
                handle = self._open.get(topic)
                if handle is not None:
                    os.pwrite(handle, b"!", 0)
                elif topic.isdigit():
                    self._ring_number(topic)
                else:
                    self._open[topic] = handle = os.open(
                        self.path(topic), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                    )
                    os.pwrite(handle, b"!", 0)
            except OSError:
                continue

    def _ring_number(self, topic: str) -> None:
        handle = os.open(self.path(topic), os.O_RDWR | os.O_CLOEXEC)
        try:
            os.pwrite(handle, b"!", 0)
        finally:
            os.close(handle)

    def listen(self, topics: tuple[str, ...], cancel: int | None) -> Listener:
        from dibs.storage.waiting import listen  # late, since most commands never wait

        return listen([self.path(topic) for topic in topics], cancel, self._ears)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
        while self._ears:
            os.close(self._ears.pop())
