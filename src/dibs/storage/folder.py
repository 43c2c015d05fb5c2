"""What lies beside a SQLite database, and whether its disk can be trusted with one.

For a database `x.db` the folder `x.db.d` holds the space key, the bells and the liveness
files: 0700 and 0600, since who can read them can act for others.
"""

from __future__ import annotations

import os

from dibs.digest import sha256
from dibs.errors import ExistsError, StorageError, StoreGoneError, UnfitError
from dibs.records import folder as shown
from dibs.storage.private import FILE_TYPE, REGULAR, Own, disk_error, refused, tighten

# SQLite's locks and shared memory need one kernel; these file systems join several.
NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs beegfs ceph cifs fuse.glusterfs fuse.rclone fuse.s3fs fuse.sshfs gfs2 gpfs lustre "
    "ncpfs nfs nfs4 ocfs2 orangefs smb3 smbfs".split()
)
FAST = "fast"
STORES = "stores"
"""Where the user's data folder has the notes of this user's stores."""
OLDER = b"older"


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
        """Put the key there, unless there is one; without one, no bell there is ours."""
        try:
            if self._own.status("key") is None:
                for name in self._own.names("bells"):
                    self._own.remove(f"bells/{name}")
            self._own.once("key", key)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def receive(self, key: bytes) -> None:
        """Make the folder of a backup, with the key that the original has."""
        self.offer(key)
        if self.key() != key:
            raise ExistsError(
                f"{shown(self.path)} belongs to another store", next="give another path"
            )

    def mark_fast(self) -> None:
        """Note that somebody writes without waiting for the disk."""
        self._own.once(FAST, b"")

    def is_unsure(self) -> bool:
        """Whether somebody has ever written without waiting for the disk."""
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
    """What the user's data folder says of the store at a path; `adoption` says what for.

    key: that of the store, None if it has none yet
    known: whether this user made or adopted the store
    above: whether it took the place of another, above whose seqs it begins
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
            return  # there is none, or a file is in the way, as whoever makes it finds out
        except OSError as error:
            raise disk_error(error, store.key_file) from error
        self.key = store.key()
        if seen.st_mode & 0o077:  # as git puts it back, such as out of a stash
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
        """Life and schema of a database, which SQLite gives another cookie with each change."""
        return f"{inode}.{self.born}", f"{inode}.{cookie}"


def fingerprint(key: bytes) -> str:
    """What tells a store apart from others, and does not tell its key."""
    text: str = sha256(b"dibs store\n" + key).hexdigest()
    return text[:32]


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
            "would not see its log and would damage it",
            next="remove the other links, or copy the store with the backup command",
        )
    kind = file_system(os.path.dirname(database))
    if kind in NETWORK_FILE_SYSTEMS:
        raise UnfitError(
            f"{shown(database)} is on a network file system ({kind}), where SQLite's locks do "
            "not hold",
            next="keep the store on a local disk, or use postgresql:// to share it",
            file_system=kind,
        )


def check_log(log: str, mode: int) -> None:
    """Refuse a write-ahead log that SQLite did not make: it gives one the mode of its database.

    One that came with a patch or a pull has the mode that git gives to files.
    """
    try:
        seen = os.lstat(log)
    except FileNotFoundError:
        return
    if seen.st_mode & FILE_TYPE != REGULAR or seen.st_uid != os.geteuid():
        raise refused(log, seen, "is not a plain file")
    if seen.st_size and seen.st_mode & ~mode & 0o077:
        raise UnfitError(
            f"{shown(log)} is not of dibs, by its mode: SQLite would put what is in it into the "
            "store",
            next="find out where it comes from, and delete that file; if you changed the mode of "
            f"the store yourself: chmod 600 {shown(log)}",
            untrusted=log,
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


def store_gone(path: str) -> StoreGoneError:
    return StoreGoneError(
        f"{shown(path)} was deleted or replaced while it was open, as git clean -fdx does; "
        "everything in it is gone, also what you held",
        next="open the store again, which starts afresh (an MCP server does so at the next call, a "
        "daemon after dibs stop and dibs serve), and claim again what you are working on",
    )
