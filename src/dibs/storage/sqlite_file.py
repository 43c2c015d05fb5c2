"""The file of a SQLite store as a whole: is it ours, copies of it, and what is wrong with it.

What SQLite's errors mean to those who use dibs is said here, by their codes.
"""

from __future__ import annotations

import os

import apsw

from dibs.errors import (
    BusyError,
    CorruptError,
    DibsError,
    DiskFullError,
    ExistsError,
    ReadOnlyError,
    StorageError,
    UnavailableError,
    UnfitError,
)
from dibs.storage.clock import COPY
from dibs.storage.folder import Folder
from dibs.storage.queries import Queries

SQLITE = Queries("sqlite")
SQLITE_VERSION = apsw.sqlite_lib_version()
APPLICATION_ID = 0x64696273


def refuse_other_program(path: str) -> None:
    """Look into a file that has no folder of ours beside it, and leave no trace."""
    if not os.path.getsize(path):
        return
    try:
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            check_program(db, path)
        finally:
            db.close()
    except apsw.Error as error:
        raise translate(error, path) from error


def check_program(db: apsw.Connection, path: str) -> None:
    application = db.pragma("application_id")
    if application == APPLICATION_ID:
        return
    if application != 0 or db.pragma("schema_version") != 0:
        # Another process may be setting it up right now; then the mark is there next time.
        if db.pragma("application_id") == APPLICATION_ID:
            return
        raise UnfitError(
            f"{path} is the database of another program",
            next="give another path; dibs does not touch this file",
        )


def copy(db: apsw.Connection, target: str, key: bytes) -> None:
    """Copy the store as of one moment, while others write, and its key beside it.

    The copy is marked as one. Restored, it goes on at a seq that the original, which may
    have gone on after the copy was made, has not given to anybody.
    """
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError as error:
        raise ExistsError(f"{target} is there already", next="give another path") from error
    except OSError as error:
        raise ReadOnlyError(f"{target} cannot be made: {error.strerror}") from error
    try:
        Folder(target).receive(key)
        made = apsw.Connection(target)
        try:
            with made.backup("main", db, "main") as backup:
                backup.step()  # all in one step: it begins again whenever somebody writes
            for query in (SQLITE.copy_spaces, SQLITE.copy_sessions):
                made.execute(*query.bind("sqlite", {"copy": COPY}))
        finally:
            made.close()
    except BaseException as error:
        os.unlink(target)  # half a backup is worse than none
        if isinstance(error, apsw.Error):
            raise translate(error, target) from error
        raise


def translate(error: apsw.Error, path: str) -> DibsError:
    """The dibs error for one of SQLite's, by its code."""
    extended: int = getattr(error, "extendedresult", apsw.SQLITE_ERROR)
    code = extended & 0xFF
    kind, advice = _ERRORS.get(code, (StorageError, "look at the disk"))
    name = apsw.mapping_extended_result_codes.get(extended) or apsw.mapping_result_codes.get(code)
    reason = _REASONS.get(extended) or _REASONS.get(code) or name
    return kind(f"{path}: {reason}", next=advice, sqlite=name)


_ERRORS: dict[int, tuple[type[UnavailableError], str]] = {
    apsw.SQLITE_BUSY: (BusyError, "try again; if it stays, look for a frozen process"),
    apsw.SQLITE_FULL: (DiskFullError, "free some space and try again"),
    apsw.SQLITE_READONLY: (ReadOnlyError, "check the owner and the mode of the store"),
    apsw.SQLITE_CANTOPEN: (ReadOnlyError, "check the owner and the mode of the store"),
    apsw.SQLITE_PERM: (ReadOnlyError, "check the owner and the mode of the store"),
    apsw.SQLITE_CORRUPT: (CorruptError, "restore a backup"),
    apsw.SQLITE_NOTADB: (UnfitError, "give another path; dibs does not touch this file"),
}
_REASONS = {
    # SQLite says no more; what it wanted was a few pages for the file that processes share.
    apsw.SQLITE_IOERR_SHMSIZE: "the shared file beside it cannot grow; the disk may be full",
    apsw.SQLITE_IOERR_SHMOPEN: "the shared file beside it cannot be made; the disk may be full",
    apsw.SQLITE_BUSY: "another process keeps the store's turn",
    apsw.SQLITE_FULL: "the disk is full",
    apsw.SQLITE_READONLY: "the store is read-only",
    apsw.SQLITE_CANTOPEN: "the store cannot be opened for writing",
    apsw.SQLITE_PERM: "the store may not be opened",
    apsw.SQLITE_CORRUPT: "the database is damaged",
    apsw.SQLITE_NOTADB: "this is not a database of dibs",
    apsw.SQLITE_IOERR: "the disk failed a read, a write or a sync",
}
