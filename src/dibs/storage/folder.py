"""The files that dibs keeps for itself, and whether a store is safe on a disk.

A cloned repository, an unpacked archive or another user may have put something where dibs keeps its
own files. So `Own` and `open_own` are the only way to files below `.dibs` or the data folder.
Links are not followed. Each folder from there downwards, and each file, must belong to this user
and be writable by nobody else; a file that is written to must have one name. Folders that are also
writable by the group are closed: git makes such folders where the umask is 002. Anything else that
is not as dibs makes it is refused by name. The checkout around `.dibs` is not checked.

For a database `x.db` the folder `x.db.d` holds the space key, the bells and the liveness files:
0700 and 0600, since somebody who can read them can act for others.

Liveness: the kernel knows who is alive. Each number that stands for a process (that of a session or
a waiter) has a small file that its process keeps locked. The kernel drops the lock however the
process ends, so if the lock is free, its holder is dead. Liveness says nothing about ownership:
a frozen process is alive, and what it holds is freed when it expires. Testers take the lock
shared, so they never mistake each other for the holder.

Bells: how a commit wakes waiters. A bell is a hint; the tables are the truth. After its commit a
writer writes into a file per topic, and `waiting` sleeps until that happens. A hint that is lost,
because the writer died right after its commit, costs a waiter at most one slow look. Each number
has its own bell, its liveness file, so that a write can wake exactly the waiter it concerns.

The bell holds the seq at which the journal ends. So a database that was rolled back is noticed,
since its journal ends earlier: it was deleted and created again, replaced by an older copy, or cut.
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
from dibs.records import folder as shown
from dibs.system import file_system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.storage.driver import Listener, Rings
    from dibs.storage.waiting import Cancel, Ears

# SQLite's locks and shared memory need one kernel; these file systems connect several, such as the
# host and the guest of a virtual machine. Some have the prefix `fuse.`.
NETWORK_FILE_SYSTEMS = frozenset(
    "9p acfs afs beegfs blobfuse blobfuse2 ceph ceph-fuse cifs coda curlftpfs cvmfs2 davfs davfs2 "
    "drvfs fakeowner fhgfs gcsfuse geesefs gfs gfs2 glusterfs goofys google-drive-ocamlfuse gpfs "
    "grpcfuse hgfs juicefs lustre mfs mmfs moosefs mount-s3 ncpfs nfs nfs4 ocfs2 orangefs osxfs "
    "panfs prl_fs pvfs2 rclone s3fs s3ql seaweedfs smb3 smbfs smbnetfs sshfs vboxsf virtiofs "
    "vmhgfs vmhgfs-fuse wekafs".split()
)
_HANDLES: set[int] = set()
"""All locked files of this process; a forked child must close them."""
READ_LIMIT = 16 << 20
FAST = "fast"
STORES = "stores"
"""The subfolder of the user's data folder with the notes about this user's stores."""
OLDER = b"older"
PART = ".part-"
"""Part of the name of a file that is being written, before a random part."""
_FILE_TYPE, _DIRECTORY, _LINK, _REGULAR = 0o170000, 0o040000, 0o120000, 0o100000
# Without O_NONBLOCK a fifo would wait for its writer.
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Own:
    """What dibs keeps below one folder; names are relative to it, with slashes."""

    def __init__(self, base: str) -> None:
        self.base = base

    def folder(self, name: str = "", make: bool = False) -> str:
        """The path of a folder, each step checked; make: create what is missing."""
        path = self.base
        check_folder(path, make)
        for part in name.split("/") if name else ():
            path = f"{path}/{part}"
            check_folder(path, make)
        return path

    def file(self, name: str, make: bool = False) -> str:
        """The path of a file, its folders checked."""
        folder, _, last = name.rpartition("/")
        return f"{self.folder(folder, make)}/{last}"

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder; empty if there is no folder."""
        try:
            return os.listdir(self.folder(folder))
        except FileNotFoundError:
            return []

    def status(self, name: str) -> os.stat_result | None:
        """The status of a file or a folder itself; None if there is none."""
        try:
            return os.lstat(self.file(name))
        except FileNotFoundError:
            return None

    def read(self, name: str, limit: int = READ_LIMIT, private: bool = True) -> bytes | None:
        """The content of a file; None if there is none, or it is larger than the limit.

        private: a file that others may read was not made by dibs, and counts as missing: git may
            have put it there
        """
        try:
            handle = open_own(self.file(name))
        except FileNotFoundError:
            return None
        with open(handle, "rb", 0) as source:
            if private and os.fstat(handle).st_mode & 0o077:
                return None
            content = b""
            while len(content) <= limit and (some := source.read(limit + 1 - len(content))):
                content += some
        return content if len(content) <= limit else None

    def append(self, name: str, content: bytes) -> None:
        """Append to a file in one step: several processes may do so at the same time."""
        path = self.file(name, make=True)
        handle = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with open(handle, "ab", 0) as target:
            target.write(content)

    def append_lines(self, name: str, content: bytes) -> None:
        """Append complete lines to a file, all of them, and sync them to the disk.

        A line that a killed process left incomplete gets a line of its own.
        """
        path = self.file(name, make=True)
        handle = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with open(handle, "r+b", 0) as target:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                content = b"\n" + content
            rest = memoryview(content)
            while rest:
                rest = rest[target.write(rest) :]
            os.fsync(handle)
        sync_folder(
            os.path.dirname(path)
        )  # the process that made the file may have been killed before its sync

    def write(self, name: str, content: bytes, sync: bool = False) -> None:
        """Write a whole file in one step, for this user alone: others read it all the time.

        sync: make sure that it is there, new or old, even after a power cut
        """
        path = self.file(name, make=True)
        part = f"{path}{PART}{os.urandom(4).hex()}"
        handle = open_own(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with open(handle, "wb", 0) as target:
            target.write(content)
            if sync:
                os.fsync(handle)
        os.replace(part, path)

    def once(self, name: str, content: bytes) -> bool:
        """Create a file unless it exists; return whether it was created."""
        path = self.file(name, make=True)
        return not os.path.lexists(path) and write_once(path, content)

    def remove(self, name: str) -> None:
        try:
            os.unlink(self.file(name))
        except FileNotFoundError:
            pass  # another process was faster, or there was none


def sync_folder(path: str) -> None:
    """Sync the names of new files in a folder to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_folder(path: str, make: bool = False) -> None:
    """Refuse a folder that is not this user's alone; make: create it if it is missing."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        if not make:
            raise
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass  # another process was faster
        status = os.lstat(path)
    if status.st_mode & _FILE_TYPE != _DIRECTORY:
        raise refused(path, status, "is not a folder")
    if status.st_uid != os.geteuid() or status.st_mode & 0o002:
        raise refused(path, status)
    if status.st_mode & 0o077:
        tighten(path, status.st_mode & 0o700)


def tighten(path: str, mode: int) -> None:
    """Remove others' access from our files that git put there, such as from a stash."""
    try:
        os.chmod(path, mode)
    except OSError:
        if os.lstat(path).st_mode & 0o020:
            raise
        return  # a read-only disk; `dibs doctor` says so


def open_own(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a file of dibs in a checked folder."""
    try:
        handle = os.open(path, flags | _SAFELY, 0o600)
    except OSError:
        if os.path.islink(path):
            raise refused(path, os.lstat(path)) from None
        raise
    status = os.fstat(handle)
    plain = status.st_mode & _FILE_TYPE == _REGULAR
    alone = flags & (os.O_WRONLY | os.O_RDWR) == 0 or status.st_nlink < 2
    if plain and alone and status.st_uid == os.geteuid() and not status.st_mode & 0o002:
        return handle
    os.close(handle)
    raise refused(path, status, "is not a regular file" if not plain else "has a second hard link")


def refused(path: str, status: os.stat_result, otherwise: str = "") -> UnfitError:
    """Say why something is not accepted as dibs' own, and what to do about it."""
    why, then = otherwise, "check it, then delete it or move it away"
    if status.st_mode & _FILE_TYPE == _LINK:
        why = "is a link, and dibs does not follow links there"
        if path.endswith("/.dibs"):
            then = "make it a folder; to keep the store elsewhere, set DIBS_URL to a path there"
    elif status.st_uid != os.geteuid():
        why = f"belongs to the user {user(status.st_uid)}, but you are {user(os.geteuid())}"
        then = chown(path, status.st_uid)
    elif status.st_mode & 0o002:
        why = "is writable by everybody"
        then = f"check what is there, then run chmod go-w {shown(path)}"
    return UnfitError(f"{shown(path)} {why}", next=then, untrusted=path)


def chown(path: str, owner: int) -> str:
    """What to do with a file of dibs that somebody else owns."""
    if os.geteuid() == 0:
        return f"run dibs as {user(owner)}"
    mine = f"or, if it is yours (after sudo dibs): sudo chown -R {user(os.geteuid())} {shown(path)}"
    return f"run dibs as {user(owner)}; {mine}"


def user(uid: int) -> str:
    """A user's name, or number if the system knows no name."""
    from pwd import getpwuid

    try:
        return getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class Folder:
    def __init__(self, database: str) -> None:
        self.path = database + ".d"
        self._own = Own(self.path)
        self.bells = os.path.join(self.path, "bells")
        self.alive = os.path.join(self.path, "alive")
        self.key_file = os.path.join(self.path, "key")

    def make(self) -> None:
        """Create what is missing."""
        try:
            for folder in ("bells", "alive"):
                self._own.folder(folder, make=True)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def offer(self, key: bytes) -> None:
        """Write the key, unless there is one; without a key, no bell there is ours."""
        try:
            if self._own.status("key") is None:
                for name in self._own.names("bells"):
                    self._own.remove(f"bells/{name}")
            self._own.once("key", key)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def receive(self, key: bytes) -> None:
        """Make the folder of a backup, with the key of the original."""
        self.offer(key)
        if self.key() != key:
            raise ExistsError(
                f"{shown(self.path)} belongs to another store", next="give another path"
            )

    def mark_fast(self) -> None:
        """Record that some process writes without waiting for the disk."""
        self._own.once(FAST, b"")

    def is_unsure(self) -> bool:
        """Whether any process has ever written without waiting for the disk."""
        return self._own.status(FAST) is not None

    def key(self) -> bytes:
        try:
            found = self._own.read("key", private=False)  # `dibs doctor` says so
        except OSError as error:
            raise disk_error(error, self.key_file) from error
        if not found:
            raise StorageError(f"{shown(self.key_file)} is gone", next="restore a backup")
        return found


class Note:
    """What the user's data folder says about the store at a path; `adoption` says what for.

    key: the key of the store, None if it has none yet
    known: whether this user made or adopted the store
    above: whether it replaced another store, above whose seqs it begins
    older: whether a release before there were notes made it, and none since has set it up
    life, schema, index: what was last seen there, "-" for nothing
    """

    def __init__(self, user_dir: str, database: str) -> None:
        self.path = database
        self.own = Own(os.path.realpath(user_dir))
        self.place = sha256(os.fsencode(database)).hexdigest()[:32]
        self.index_now = "-"
        self.read()

    def read(self) -> None:
        self.key: bytes | None = None
        self.known = self.above = self.older = False
        self.life = self.schema = self.index = "-"
        store = Folder(self.path)
        try:
            seen = os.lstat(store.key_file)
        except (FileNotFoundError, NotADirectoryError):
            return  # there is none, or a file is in the way, which is noticed when it is made
        except OSError as error:
            raise disk_error(error, store.key_file) from error
        self.key = store.key()
        if seen.st_mode & 0o077:  # as git restores it, such as from a stash
            tighten(store.key_file, seen.st_mode & 0o700)
            seen = os.lstat(store.key_file)
        self.born = seen.st_ctime_ns
        self.file = f"{STORES}/{fingerprint(self.key)}"
        try:
            found = self.own.read(self.file)
        except OSError as error:
            raise disk_error(error, self.own.base) from error
        if found is None:
            return
        head, *lines = found.split(b"\n")
        self.known, self.above, self.older = True, head == b"above", head == OLDER
        for line in lines:
            if line.startswith(self.place.encode()):
                _, life, schema, index, _ = line.split(b" ", 4)
                self.life, self.schema, self.index = life.decode(), schema.decode(), index.decode()
                return
            if line:
                self.life = "elsewhere"

    def stamp(self, inode: int, cookie: int) -> tuple[str, str]:
        """Life and schema of a database; SQLite changes the schema cookie with each change."""
        return f"{inode}.{self.born}", f"{inode}.{cookie}"


def fingerprint(key: bytes) -> str:
    """An id of a store that does not reveal its key."""
    text: str = sha256(b"dibs store\n" + key).hexdigest()
    return text[:32]


def write_once(path: str, content: bytes) -> bool:
    """Create a private file with its content in one step; False if another process was faster."""
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
        return False
    finally:
        os.unlink(draft)
    return True


def check_disk(database: str) -> None:
    """Refuse a place where SQLite cannot keep its promises."""
    try:
        seen = os.stat(database)
        links = seen.st_nlink
        if seen.st_uid != os.geteuid():
            raise refused(database, seen)
        check_log(f"{database}-wal", seen.st_mode)
    except FileNotFoundError:
        links = 1
    except OSError as error:
        raise disk_error(error, database) from error
    if links > 1:
        raise UnfitError(
            f"{shown(database)} has {links} hard links; a process that opens it by another name "
            "would not see its log, and would damage it",
            next="remove the other links, or copy the store with dibs backup",
        )
    kind = file_system(os.path.dirname(database))
    if (kind or "").lower().removeprefix("fuse.") in NETWORK_FILE_SYSTEMS:
        raise UnfitError(
            f"{shown(database)} is on a network file system ({kind}), where SQLite's locks do "
            "not work",
            next="keep the store on a local disk, or use postgresql:// to share it",
            file_system=kind,
        )


def check_log(log: str, mode: int) -> None:
    """Refuse a write-ahead log that SQLite did not make: SQLite gives it its database's mode.

    A log that came with a patch or a pull has the mode that git gives to files.
    """
    try:
        seen = os.lstat(log)
    except FileNotFoundError:
        return
    if seen.st_mode & _FILE_TYPE != _REGULAR or seen.st_uid != os.geteuid():
        raise refused(log, seen, "is not a regular file")
    if seen.st_size and seen.st_mode & ~mode & 0o077:
        raise UnfitError(
            f"{shown(log)} is not a file of dibs, by its mode: SQLite would copy it into the store",
            next="find out where it comes from, and delete it; if you changed the store's mode "
            f"yourself, run chmod 600 {shown(log)}",
            untrusted=log,
        )


def inode_of(path: str) -> int:
    """The inode of a file, 0 if there is none."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


def store_gone(path: str) -> StoreGoneError:
    return StoreGoneError(
        f"{shown(path)} was deleted or replaced while it was open, as git clean -fdx does; "
        "everything in it is lost, including what you held",
        next="open the store again, which makes a new one (an MCP server does so at the next call; "
        "for a daemon, run dibs serve), and claim again what you are working on",
    )


def disk_error(error: OSError, path: str) -> StorageError | ReadOnlyError | DiskFullError:
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(
            f"{shown(path)}: the disk is full", next="free some space and try again"
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        if error.errno != errno.EROFS and (found := foreign(path)) is not None:
            there, owner = found
            return ReadOnlyError(
                f"{shown(there)} belongs to the user {user(owner)}, but you are "
                f"{user(os.geteuid())}",
                next=chown(there, owner),
                owner=owner,
            )
        return ReadOnlyError(
            f"{shown(path)} cannot be written: {error.strerror}",
            next="check the folder's owner and permissions, or choose another store",
        )
    return StorageError(f"{shown(path)}: {error.strerror}", next="check the disk")


def foreign(path: str) -> tuple[str, int] | None:
    """What another user owns in our folders on the way to a path, and which user."""
    mine = os.geteuid()
    while (parent := os.path.dirname(path)) != path:
        try:
            owner, around = os.lstat(path).st_uid, os.lstat(parent).st_uid
        except OSError:
            owner = around = mine  # nothing is there, or it is not visible from here
        if owner != mine == around:
            return path, owner
        path = parent
    return None


class FileLiveness:
    """Proof that the process behind a number, such as a session's, still runs."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.space = 0
        """Each space has its own numbers; the files of all spaces are in one folder."""
        self._held: dict[int, int] = {}
        self._pid = os.getpid()
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _SAFELY)

    def present(self) -> bool:
        """Whether the folder still exists; without it, everybody would look dead."""
        return os.fstat(self._handle).st_nlink > 0

    def path(self, number: int) -> str:
        return os.path.join(self._folder, f"{self.space}-{number:d}")

    def hold(self, number: int) -> None:
        """Prove that this number is alive, until the process ends or lets go."""
        import fcntl  # late, since most commands have nothing to prove

        self.let_go(number)  # left from a write that was undone half-way
        try:
            handle = open_own(self.path(number), os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            raise store_gone(self._folder) from None
        self._held[number] = handle
        _HANDLES.add(handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _close(self._held.pop(number))  # the file belongs to the other process, and stays
            raise BusyError(
                "another process has not yet cleaned up an unfinished write", next="try again"
            ) from None

    def let_go(self, number: int) -> None:
        handle = self._held.pop(number, None)
        # A forked child does not share what its parent proves.
        if handle is not None and os.getpid() == self._pid:
            self.forget(number)
            _close(handle)

    def forget(self, number: int) -> None:
        """Remove the file of a process that is gone; numbers are never reused."""
        try:
            os.unlink(self.path(number))
        except FileNotFoundError:
            return

    def alive(self, number: int) -> bool:
        # For its own numbers this process need not ask the system.
        return (number in self._held and self.is_own()) or is_held(self.path(number))

    def is_own(self) -> bool:
        """Whether this is the process that opened it, not a forked child."""
        return os.getpid() == self._pid

    def numbers(self) -> list[int]:
        """The numbers of this space that have a file, locked or not."""
        names = [name.partition("-") for name in os.listdir(self._folder)]
        return sorted(int(n) for space, _, n in names if space == str(self.space) and n.isdecimal())

    def close(self) -> None:
        if not self.is_own():
            return
        while self._held:
            _close(self._held.popitem()[1])
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def is_held(file: str) -> bool:
    """Whether the process that locks this file is still alive."""
    import fcntl

    try:
        handle = open_own(file)
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
    # A forked child shares the locks; if it kept them, a dead parent would look alive.
    while _HANDLES:
        os.close(_HANDLES.pop())


os.register_at_fork(after_in_child=_let_go_in_child)


class Bells:
    PLACES = 8
    """Each of the last few seqs has its own place: a late writer does not hide a later one."""
    _ears: Ears | None = None

    def __init__(self, folder: str, liveness: FileLiveness) -> None:
        self._folder = folder
        self._liveness = liveness
        self._open: dict[str, int] = {}
        self._idle: list[int] = []
        """Kept by `waiting` for the next listener."""

    def path(self, topic: str) -> str:
        if topic.isdigit():
            return self._liveness.path(int(topic))
        return f"{self._folder}/{self._liveness.space}-{topic.partition(':')[0]}"

    def ring(self, topics: Rings, seq: int) -> None:
        """Wake the listeners; if that fails, they are gone, or notice at their next look."""
        text, place = seq.to_bytes(8, "big"), seq % self.PLACES * 8
        for topic, given in topics.items():
            try:
                handle = self._open.get(topic)
                if handle is not None:
                    os.pwrite(handle, text, place)
                elif topic.isdigit():
                    if self._ears is None or not self._ears.ring(topic, given):
                        self._ring_number(topic)
                else:
                    flags = os.O_RDWR | os.O_CREAT
                    self._open[topic] = handle = open_own(self.path(topic), flags)
                    os.pwrite(handle, text, place)
            except (OSError, UnfitError):
                continue

    def last(self) -> int:
        """Where the journal of the space ended when a bell was last rung, 0 if never."""
        seqs = [0]
        for name in os.listdir(self._folder):
            if name.startswith(f"{self._liveness.space}-"):
                handle = open_own(f"{self._folder}/{name}")
                noted = os.pread(handle, 8 * self.PLACES, 0)
                os.close(handle)
                seqs += [
                    int.from_bytes(noted[at : at + 8], "big") for at in range(0, len(noted), 8)
                ]
        # Nothing larger is handed out before the year 2109, so the file is damaged.
        return max(seq for seq in seqs if seq < 1 << 52)

    def _ring_number(self, topic: str) -> None:
        handle = open_own(self.path(topic), os.O_RDWR)
        try:
            os.pwrite(handle, b"!", 0)
        finally:
            os.close(handle)

    def listen(self, topics: tuple[str, ...], cancel: Cancel | None) -> Listener:
        if self._ears is None:
            from dibs.storage.waiting import Ears, file_ear  # late, since most commands never wait

            # Hundreds may come here at once: all use the first one that is made.
            vars(self).setdefault("_ears", Ears(file_ear(self.path, self._idle)))
        assert self._ears is not None
        return self._ears.listen(topics, cancel)

    def listen_soon(self, topics: tuple[str, ...], cancel: Cancel | None) -> Listener | None:
        return None if self._ears is None else self._ears.listen_soon(topics, cancel)

    def close(self) -> None:
        if self._ears is not None and self._liveness.is_own():
            self._ears.close()
        while self._open:
            os.close(self._open.popitem()[1])
        while self._idle:
            os.close(self._idle.pop())
