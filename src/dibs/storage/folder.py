"""The files beside a SQLite store, and whether its disk can be trusted with one.

For a database `x.db` the folder `x.db.d` holds the space key, the bells and the liveness
files: 0700 and 0600, since who can read them can act for others.
"""

from __future__ import annotations

import os

from dibs.errors import DiskFullError, ExistsError, ReadOnlyError, StorageError, UnfitError

# SQLite's locks and shared memory need one kernel; these file systems join several.
NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs beegfs ceph cifs fuse.glusterfs fuse.rclone fuse.s3fs fuse.sshfs gfs2 gpfs lustre "
    "ncpfs nfs nfs4 ocfs2 orangefs smb3 smbfs".split()
)


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
            if not os.path.exists(self.key_file):
                write_once(self.key_file, os.urandom(32))
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
