"""The files that dibs keeps for itself, and nobody else's.

A cloned repository, an unpacked archive or another user may have put something where dibs keeps
its own. So `Own` and `open_own` are the only way to what lies below `.dibs` or the user's data
folder. No link is followed. Each folder from there downwards, and each file, belongs to this user
and is writable by nobody else; a file that is written to has one name. Folders that only the group
may write are closed: git makes them so where the umask is 002. What else is not as dibs makes it is
refused by name. The checkout around `.dibs` may be as it likes.
"""

from __future__ import annotations

import os

from dibs.errors import DiskFullError, ReadOnlyError, StorageError, UnfitError
from dibs.records import folder as shown

READ_LIMIT = 16 << 20
PART = ".part-"
"""In the name of a file that is being written, before something random."""
FILE_TYPE, _DIRECTORY, _LINK, REGULAR = 0o170000, 0o040000, 0o120000, 0o100000
# Without O_NONBLOCK a fifo would wait for its writer.
SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
        """What is in a folder; nothing if there is none."""
        try:
            return os.listdir(self.folder(folder))
        except FileNotFoundError:
            return []

    def status(self, name: str) -> os.stat_result | None:
        """What the disk says of a file or a folder itself; None if there is none."""
        try:
            return os.lstat(self.file(name))
        except FileNotFoundError:
            return None

    def read(self, name: str, limit: int = READ_LIMIT, private: bool = True) -> bytes | None:
        """What a file holds; None if there is none, or it is larger than the limit.

        private: what others may read is not as dibs makes it, and counts as none: git may have
            put it there
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
        """Add to a file at once: several processes may do so at the same time."""
        path = self.file(name, make=True)
        handle = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with open(handle, "ab", 0) as target:
            target.write(content)

    def write(self, name: str, content: bytes, sync: bool = False) -> None:
        """Put a file there as a whole, for this user alone: others read it all the time.

        sync: so that it is there, new or old, after a power cut too
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
        """Create a file unless there is one; whether there was none."""
        path = self.file(name, make=True)
        return not os.path.lexists(path) and write_once(path, content)

    def remove(self, name: str) -> None:
        try:
            os.unlink(self.file(name))
        except FileNotFoundError:
            pass  # another was faster, or there was none


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
    if status.st_mode & FILE_TYPE != _DIRECTORY:
        raise refused(path, status, "is not a folder")
    if status.st_uid != os.geteuid() or status.st_mode & 0o002:
        raise refused(path, status)
    if status.st_mode & 0o077:
        tighten(path, status.st_mode & 0o700)


def tighten(path: str, mode: int) -> None:
    """Close to others what is ours, and was put there by git, such as out of a stash."""
    try:
        os.chmod(path, mode)
    except OSError:
        if os.lstat(path).st_mode & 0o020:
            raise
        return  # a disk that can only be read; `dibs doctor` says so


def open_own(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a file of dibs in a folder that was checked."""
    try:
        handle = os.open(path, flags | SAFELY, 0o600)
    except OSError:
        if os.path.islink(path):
            raise refused(path, os.lstat(path)) from None
        raise
    status = os.fstat(handle)
    plain = status.st_mode & FILE_TYPE == REGULAR
    alone = flags & (os.O_WRONLY | os.O_RDWR) == 0 or status.st_nlink < 2
    if plain and alone and status.st_uid == os.geteuid() and not status.st_mode & 0o002:
        return handle
    os.close(handle)
    raise refused(path, status, "is not a plain file" if not plain else "has another name, too")


def write_once(path: str, content: bytes) -> bool:
    """Create a private file with its content in one step; False if somebody else was faster."""
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


def refused(path: str, status: os.stat_result, otherwise: str = "") -> UnfitError:
    """Say why something is not taken for dibs' own, and what to do about it."""
    why, then = otherwise, "look at it, then delete it or move it away"
    if status.st_mode & FILE_TYPE == _LINK:
        why = "is a link, and dibs follows no links there"
        if path.endswith("/.dibs"):
            then = "make it a folder; to keep the store elsewhere, set DIBS_URL to a path there"
    elif status.st_uid != os.geteuid():
        why = f"belongs to the user {user(status.st_uid)}, and you are {user(os.geteuid())}"
        then = chown(path, status.st_uid)
    elif status.st_mode & 0o002:
        why = "may be written by everybody"
        then = f"look at what is there, then chmod go-w {shown(path)}"
    return UnfitError(f"{shown(path)} {why}", next=then, untrusted=path)


def chown(path: str, owner: int) -> str:
    """What to do with a file of dibs that somebody else owns."""
    if os.geteuid() == 0:
        return f"run dibs as {user(owner)}"
    mine = f"if it is yours, as after sudo dibs: sudo chown -R {user(os.geteuid())} {shown(path)}"
    return f"run dibs as {user(owner)}; {mine}"


def user(uid: int) -> str:
    """A user by the name that the system knows, else by the number."""
    from pwd import getpwuid

    try:
        return getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


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
                f"{shown(there)} belongs to the user {user(owner)}, and you are "
                f"{user(os.geteuid())}",
                next=chown(there, owner),
                owner=owner,
            )
        return ReadOnlyError(
            f"{shown(path)} cannot be written: {error.strerror}",
            next="check the owner and the mode of the folder, or choose another store",
        )
    return StorageError(f"{shown(path)}: {error.strerror}", next="look at the disk")


def foreign(path: str) -> tuple[str, int] | None:
    """What somebody else owns in a folder of ours, on the way to a path, and who it is."""
    mine = os.geteuid()
    while (parent := os.path.dirname(path)) != path:
        try:
            owner, around = os.lstat(path).st_uid, os.lstat(parent).st_uid
        except OSError:
            owner = around = mine  # nothing is there, or it cannot be seen from here
        if owner != mine == around:
            return path, owner
        path = parent
    return None
