"""The file of a SQLite store as a whole: whether it is ours, copies, and what is wrong with it.

The meaning of SQLite's errors for users of dibs is defined here, by code.
"""

from __future__ import annotations

import os
import time

import apsw

from dibs.errors import (
    BusyError,
    CorruptError,
    DibsError,
    DiskFullError,
    ExistsError,
    InvalidError,
    ReadOnlyError,
    StorageError,
    UnavailableError,
    UnfitError,
)
from dibs.records import folder
from dibs.storage.clock import BUSY_S, COPY, SILENCE, bearable
from dibs.storage.folder import Folder, Note, inode_of, store_gone
from dibs.storage.queries import Queries, migrations, newest_migration
from dibs.system import boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.sqlite import SqliteDriver

    T = TypeVar("T")

SQLITE = Queries("sqlite")
SQLITE_VERSION = apsw.sqlite_lib_version()
APPLICATION_ID = 0x64696273
WAL_MODE = b"\2\2"
"""The header bytes of a database in WAL mode."""
HARDENED = (
    (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
)
"""Settings under which nothing in a file runs by itself, even before it was checked."""
WITH_TOKENS, NOTED_SCHEMA = 7, 10
"""The first schemas with access tokens, and with a note in the user's data folder."""


def refuse_other_program(path: str) -> None:
    """Check a file that has no dibs folder beside it, without leaving a trace."""
    if os.path.getsize(path):
        look(path, lambda db: None)


def look(path: str, do: Callable[[apsw.Connection], T]) -> T:
    """Read a dibs database without changing anything, and without trusting it."""
    try:
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            refuse_journal(db, path)
            for option, value in HARDENED:
                db.config(option, value)
            check_program(db, path)
            db.execute("BEGIN")  # one state throughout
            return do(db)
        finally:
            db.close()
    except apsw.Error as error:
        raise translate(error, path) from error


def refuse_journal(db: apsw.Connection, path: str, patience_s: float = 0) -> None:
    """Refuse a rollback journal beside a database in WAL mode: its pages would be played back.

    Dibs never makes one there, except for a moment while it creates a store. Call this before
    anything else is done with the connection.
    """
    journal, end = f"{path}-journal", time.monotonic() + patience_s
    # Asked through SQLite: closing a file of our own would drop its locks.
    while os.path.lexists(journal) and db.read("main", 0, 18, 2) == (True, WAL_MODE):
        if time.monotonic() >= end:
            raise UnfitError(
                f"{folder(journal)} is not a file of dibs: SQLite would copy it into the store",
                next="find out where it comes from, and delete it; the store itself is unchanged",
                untrusted=path,
            )
        time.sleep(0.05)


def check_journal(db: apsw.Connection, note: Note) -> None:
    """Refuse a rollback journal, unless the store is being made; see above."""
    if note.life == "-" and not note.older:
        return  # it has not been set up yet
    made_again = note.life.partition(".")[0] != str(inode_of(note.path))
    refuse_journal(db, note.path, BUSY_S if made_again else 0)


def as_sqlite(text: str) -> str:
    """A migration in the form SQLite needs."""
    # The primary key is the table: one b-tree to write instead of two.
    return text.replace("\n);", "\n) WITHOUT ROWID;")


def claim_own(note: Note) -> None:
    """Make a new store this user's own; refuse an unknown one that exists."""
    there = os.path.exists(note.path) and os.path.getsize(note.path)
    if note.key is None and there:
        note.read()  # another process may just have made both, the key first
        if note.key is None:
            raise UnfitError(
                f"{folder(note.path)} has lost its key, {folder(Folder(note.path).key_file)}",
                next="restore the key file from a backup, or remove the store",
            )
    if note.known:
        return
    from dibs.storage.adoption import make_key, save, unknown, unwritable

    if note.key is None:
        make_key(note)
    elif not there or not look(note.path, lambda db: is_of_this_boot(db, note.path)):
        note.read()  # another process may just have adopted it
        if not note.known:
            raise unknown(note)
    else:
        try:
            save(note, "-", "-", "-", older=True)
        except OSError as error:
            raise unwritable(note, error) from error


def is_of_this_boot(db: apsw.Connection, path: str) -> bool:
    """Whether an earlier release has used the store since this machine started."""
    version = int(db.pragma("user_version"))
    if not 0 < version < NOTED_SCHEMA:
        return False
    check_schema(db, version, path)
    return db.execute(*SQLITE.boots.bind("sqlite", {})).fetchall() == [(boot_id(),)]


def check_own(db: apsw.Connection, note: Note, stamp: tuple[str, str]) -> None:
    """Check a database that was not checked before, or that replaced another one."""
    db.execute("BEGIN")  # one state throughout: another process may be setting it up
    try:
        version = int(db.pragma("user_version"))
        if version == 0:
            return  # it will be set up
        if note.schema != stamp[1]:
            check_schema(db, version, note.path)
    finally:
        db.execute("ROLLBACK")
    if note.life in ("-", stamp[0]):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        note.read()
        if note.life not in ("-", stamp[0]):  # no other process was faster
            mark_copy(db)
            keep(note, stamp)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def settle(db: apsw.Connection, note: Note, inode: int) -> None:
    keep(note, note.stamp(inode, db.pragma("schema_version")))


def keep(note: Note, stamp: tuple[str, str]) -> None:
    """Update the note, if the user's data folder is writable."""
    from dibs.storage.adoption import save

    try:
        save(note, *stamp, note.index_now)
    except OSError:
        return


def check_schema(db: apsw.Connection, version: int, path: str) -> None:
    """Refuse a database with anything that dibs did not create, or created in another way."""
    steps = [text for number, _, text in migrations() if number <= version]
    if version != len(steps):
        return  # a newer release made it, which `prepare` reports
    ours = apsw.Connection(":memory:")
    for text in steps:
        ours.execute(as_sqlite(text))
    query, none = SQLITE.objects.bind("sqlite", {})
    expected, found = ({*one.execute(query, none)} for one in (ours, db))
    ours.close()
    odd = sorted({f"{row[0]} {row[1]}" for row in expected ^ found})
    if db.pragma("encoding") != "UTF-8":
        odd.append("the encoding")
    if odd:
        names = ", ".join(ascii(name)[1:-1][:60] for name in odd[:5])
        raise UnfitError(
            f"{folder(path)} was changed without dibs: {names}{' …' if len(odd) > 5 else ''}",
            next="restore a backup, or remove the store; dibs makes a new one",
            odd=odd[:50],
        )


def contents(db: apsw.Connection, path: str) -> Row:
    """What is in a store made by somebody else; refused if dibs could not have made it."""
    version = int(db.pragma("user_version"))
    if not WITH_TOKENS <= version <= newest_migration():
        raise UnfitError(
            f"another release of dibs made {folder(path)} (schema {version})",
            next="use it with that release, or remove the store",
        )
    check_schema(db, version, path)
    found: Row = {}
    for query in (SQLITE.spaces_there, SQLITE.agents_there, SQLITE.tokens_there):
        cursor = db.execute(*query.bind("sqlite", {}))
        # Without a row, SQLite has no column names.
        found[query.name.removesuffix("_there")] = [
            dict(zip([column[0] for column in cursor.get_description()], row, strict=True))
            for row in cursor
        ]
    return found | {
        "damage": [row[0] for row in db.execute("PRAGMA quick_check(5)") if row[0] != "ok"]
    }


def take_over(path: str, wall: int) -> None:
    """Revoke the tokens of a store made by somebody else, and end its sessions."""
    try:
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            refuse_journal(db, path)
            for option, value in HARDENED:
                db.config(option, value)
            with db:
                db.execute(*SQLITE.revoke_there.bind("sqlite", {"at": wall}))
                mark_copy(db)
        finally:
            db.close()
    except apsw.Error as error:
        raise translate(error, path) from error


def mark_copy(db: apsw.Connection) -> None:
    """Mark a store as one that may have been rolled back."""
    for query in (SQLITE.copy_spaces, SQLITE.copy_sessions):
        db.execute(*query.bind("sqlite", {"copy": COPY}))


def check_program(db: apsw.Connection, path: str) -> None:
    application = db.pragma("application_id")
    if application == APPLICATION_ID:
        return
    if application != 0 or db.pragma("schema_version") != 0:
        # Another process may be setting it up; then the mark is there next time.
        if db.pragma("application_id") == APPLICATION_ID:
            return
        raise UnfitError(
            f"{folder(path)} is a database of another program",
            next="give another path; dibs does not touch this file",
        )


def copy(db: apsw.Connection, target: str, key: bytes) -> None:
    """Copy the store as of one moment, while others write, with its key beside it.

    The copy is marked as one. When it is restored, it continues at a seq that the original,
    which may have continued after the copy was made, has not used.
    """
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError as error:
        raise ExistsError(f"{folder(target)} already exists", next="give another path") from error
    except FileNotFoundError as error:
        around = folder(os.path.dirname(target))
        raise InvalidError(f"there is no folder {around}", next="make it first") from error
    except OSError as error:
        raise ReadOnlyError(
            f"{folder(target)} cannot be created: {error.strerror}",
            next="check the folder's owner and permissions, or give another path",
        ) from error
    try:
        Folder(target).receive(key)
        made = apsw.Connection(target)
        try:
            for option, value in HARDENED:
                made.config(option, value)
            transfer(db, made)
            mark_copy(made)
        finally:
            made.close()
    except BaseException as error:
        os.unlink(target)  # half a backup is worse than none
        if isinstance(error, apsw.Error):
            raise translate(error, target) from error
        raise


def replace(db: apsw.Connection, source: str | None) -> None:
    """Replace everything in a store with a backup, or change nothing.

    It is one transaction, so a process that has the store open sees the old content or the new one.
    Its old grants are refused from then on: the seq continues above everything that was ever
    granted.
    """
    between = apsw.Connection("")  # a temporary file of SQLite's own
    try:
        if source is not None:
            look(source, lambda found: transfer(found, between))
            mark_copy(between)
        else:
            between.pragma("page_size", db.pragma("page_size"))  # another is refused
            between.pragma("application_id", APPLICATION_ID)  # dibs sets it up again
        transfer(between, db)
    finally:
        between.close()


def transfer(source: apsw.Connection, target: apsw.Connection) -> None:
    with target.backup("main", source, "main") as backup:
        backup.step()  # in one step: it would start again after every write


def names_of_spaces(db: apsw.Connection) -> list[str]:
    return [row[0] for row in db.execute(*SQLITE.space_names.bind("sqlite", {}))]


def translate(error: apsw.Error, path: str) -> DibsError:
    """The dibs error for one of SQLite's, by its code."""
    extended: int = getattr(error, "extendedresult", apsw.SQLITE_ERROR)
    code = extended & 0xFF
    kind, advice = _ERRORS.get(code, (StorageError, "check the disk"))
    name = apsw.mapping_extended_result_codes.get(extended) or apsw.mapping_result_codes.get(code)
    reason = _REASONS.get(extended) or _REASONS.get(code) or name
    return kind(f"{folder(path)}: {reason}", next=advice, sqlite=name)


def not_utf8(path: str, query: Query) -> CorruptError:
    """The error for a text that somebody else has written."""
    table = query.text.partition("FROM ")[2].partition(" ")[0].strip()
    return CorruptError(
        f"{folder(path)}: a text in the table {table} is not UTF-8; dibs did not write it",
        next="restore a backup",
    )


_ERRORS: dict[int, tuple[type[UnavailableError], str]] = {
    apsw.SQLITE_BUSY: (BusyError, "try again; if it persists, look for a frozen process"),
    apsw.SQLITE_FULL: (DiskFullError, "free some space and try again"),
    apsw.SQLITE_READONLY: (ReadOnlyError, "check the store's owner and permissions"),
    apsw.SQLITE_CANTOPEN: (ReadOnlyError, "check the store's owner and permissions"),
    apsw.SQLITE_PERM: (ReadOnlyError, "check the store's owner and permissions"),
    apsw.SQLITE_CORRUPT: (CorruptError, "restore a backup"),
    apsw.SQLITE_ERROR: (CorruptError, "restore a backup; if nobody changed it, report this"),
    apsw.SQLITE_NOTADB: (UnfitError, "give another path; dibs does not touch this file"),
}
_REASONS = {
    # SQLite says no more; it needed a few pages for the file that processes share.
    apsw.SQLITE_IOERR_SHMSIZE: "the shared file beside it cannot grow; the disk may be full",
    apsw.SQLITE_IOERR_SHMOPEN: "the shared file beside it cannot be created; the disk may be full",
    apsw.SQLITE_BUSY: "another process keeps writing to the store",
    apsw.SQLITE_FULL: "the disk is full",
    apsw.SQLITE_READONLY: "the store is read-only",
    apsw.SQLITE_CANTOPEN: "the store cannot be opened for writing",
    apsw.SQLITE_PERM: "opening the store is not permitted",
    apsw.SQLITE_CORRUPT: "the database is damaged",
    apsw.SQLITE_ERROR: "something other than dibs has changed the tables or their version",
    apsw.SQLITE_NOTADB: "this is not a dibs database",
    apsw.SQLITE_IOERR: "the disk failed a read, a write or a sync",
}


class Versioned:
    """What a connection knows about the schema that it finds."""

    db: apsw.Connection
    _driver: SqliteDriver
    _data = -1
    """SQLite's version number of the file when the schema was last checked."""
    _last: Row | None = None
    """The row that the last write here began with, kept up to date by it (`Write._entered`).

    The next write need not ask again unless `_data` shows that another connection has written.
    """

    def refuse_upgraded(self) -> None:
        """After others have written: refuse to continue if the schema has changed."""
        try:
            version = int(self.db.pragma("user_version"))
        except apsw.Error as error:
            raise translate(error, self._driver.path) from error
        if version == 0:
            raise store_gone(self._driver.path)  # it was emptied, and is going to be set up again
        if version > self._driver.version:
            from dibs.storage.prepare import upgraded

            raise upgraded(version, self._driver.version)
        self._last = None
        self._data = self.db.data_version()

    def failed(self, error: apsw.Error) -> DibsError:
        """Why a statement failed: the schema may be newer than this dibs."""
        if type(error) is apsw.SQLError:
            try:
                self.refuse_upgraded()
            except DibsError as refusal:
                return refusal
        return translate(error, self._driver.path)


class Maintained:
    """Operations on a whole file, by the driver that has it open."""

    path: str
    version = 0
    folder: Folder
    _log: str
    _note: Note

    def take(self, since: float = 0) -> Any:
        raise NotImplementedError

    def give_back(self, connection: Any) -> None:
        raise NotImplementedError

    def backup(self, target: str) -> None:
        self._apart(lambda db: copy(db, target, self._note.key or b""))

    def replace(self, source: str | None) -> None:
        self._apart(lambda db: replace(db, source))

    def integrity(self) -> list[str]:
        said = [row[0] for row in self._apart(lambda db: [*db.execute("PRAGMA integrity_check")])]
        return [] if said == ["ok"] else said

    def at_risk(self) -> list[tuple[str, str]]:
        return []  # there is no server

    def log_bytes(self) -> int:
        try:
            return os.stat(self._log).st_size
        except FileNotFoundError:
            return 0

    def shorten_log(self, patience_s: float = BUSY_S) -> None:
        before = SILENCE.get()
        SILENCE.set(bearable(patience_s))
        try:
            # First without the turn, so little is left to copy while others wait.
            self._apart(lambda db: db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE))
            self._apart(lambda db: db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE))
        finally:
            SILENCE.set(before)

    def _apart(self, do: Callable[[apsw.Connection], Any]) -> Any:
        """Do something with the file outside a transaction."""
        connection = self.take()
        try:
            return do(connection.db)
        except apsw.Error as error:
            raise translate(error, self.path) from error
        finally:
            self.give_back(connection)

    def private_files(self) -> list[str]:
        folder = self.folder
        return [self.path, folder.path, folder.bells, folder.alive, folder.key_file]
