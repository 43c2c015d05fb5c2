"""The SQLite driver: one file, many processes of one machine.

Promised: a commit that returned survives `kill -9` and a power cut (`synchronous=FULL`; with
`durability="fast"`, a power cut can lose the last writes). Writers take turns through `BEGIN
IMMEDIATE`; if a process keeps the turn longer than `BUSY_S`, because it is frozen, the others fail
with `BusyError`. Not promised: protection from a process of the same user that writes to the file
without dibs.

The library is `apsw`, for its own current SQLite: the interpreter's may have a bug that damages a
WAL file used by many processes. No other SQLite may open the file in this process, and nothing here
ever opens it as a plain file: closing any handle to it would drop SQLite's locks.
"""

from __future__ import annotations

import os
import time
from _thread import _count as other_threads
from _thread import get_ident
from _weakref import ref

import apsw

from dibs.errors import StorageError, StoreGoneError, UnfitError
from dibs.records import folder
from dibs.storage.clock import (
    BUSY_S,
    COPY,
    SEQ_LIMIT,
    Patience,
    SystemClock,
    Torn,
    check_seq,
    unseen_seq,
    unusable,
)
from dibs.storage.folder import (
    Bells,
    FileLiveness,
    Folder,
    Note,
    Own,
    check_disk,
    inode_of,
    store_gone,
)
from dibs.storage.queries import Queries, Query
from dibs.storage.sqlite_file import (
    APPLICATION_ID,
    HARDENED,
    Maintained,
    Versioned,
    as_sqlite,
    check_journal,
    check_own,
    check_program,
    claim_own,
    not_utf8,
    refuse_other_program,
    settle,
    translate,
)
from dibs.system import boot_id, time_namespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.storage.clock import Clock
    from dibs.storage.driver import Ahead, Listener, Rings, Row
    from dibs.storage.ledger import Ledger
    from dibs.storage.turns import Turns
    from dibs.storage.waiting import Cancel

SPACE = Queries("space")
SQLITE = Queries("sqlite")
NOTE_TIME_MS = 1_000
"""How far store time may go back if the wall clock is wrong after a reboot."""
PRESENT_NS = 1_000_000
"""How long a check that the file exists is valid."""
SIGNED_TOKENS = 10
"""The first schema in which tokens have a signature."""
SYNCHRONOUS = {"full": "FULL", "fast": "NORMAL"}


class SqliteDriver(Maintained):
    renew: Callable[[SqliteConnection], None]
    ledger: Ledger
    own: Own
    over, grouped, one_key = False, False, True
    database = ""
    used = SQLITE.used

    def __init__(self, note: Note, durability: str, clock: Clock | None, size_limit: int) -> None:
        self.size_limit = size_limit
        self.path = self.address = path = note.path
        # Used to check that the log still exists: asking about the log itself makes each commit
        # slower, since Linux updates the times of a file at its next write after that.
        self._beside_log, self._log = f"{path}-shm", f"{path}-wal"
        self._note = note
        self.own = note.own
        self._synchronous = SYNCHRONOUS[durability]
        check_disk(path)
        self.folder = Folder(path)
        if os.path.exists(path) and not os.path.isdir(self.folder.path):
            refuse_other_program(path)  # before anything is created beside it
        if not note.known:
            claim_own(note)
        self.folder.make()
        self.boot = boot_id()
        self._native_clock = SystemClock()
        self.clock: Clock = clock or self._native_clock
        self.liveness = FileLiveness(self.folder.alive)
        self.bells = Bells(self.folder.bells, self.liveness)
        self.seen = 0
        """Where the journal ended after the last commit of this process."""
        self._pid = os.getpid()
        self._closed = False
        # If it must be created: whether there was one with this key, or another before it.
        self._above = note.above or note.life != "-"
        self._present_until = 0
        self._turns: dict[int, ref[SqliteConnection]] = {}
        self._line: Turns | None = None
        self._idle: list[SqliteConnection] = []
        connection = SqliteConnection(self)
        self._inode = os.stat(path).st_ino
        # SQLite keeps its log as long as any process has the store open.
        self._log_inode = inode_of(self._beside_log)
        try:
            self._stamp = stamp = note.stamp(self._inode, connection.db.pragma("schema_version"))
            if stamp != (note.life, note.schema):
                check_own(connection.db, note, stamp)
        except apsw.Error as error:
            raise translate(error, path) from error
        self._idle.append(connection)

    def key(self) -> bytes:
        return self._note.key or self.folder.key()

    def schema(self, text: str) -> str:
        return as_sqlite(text)

    def settle(self, changed: bool = False) -> None:
        """Record what was checked, so that the next process does not have to.

        changed: whether we changed the modes of the files
        """
        note = self._note
        if changed:
            note.read()
            try:
                os.chmod(self._log, 0o600)  # otherwise its mode would not match its database
            except FileNotFoundError:
                pass  # nothing is logged now
        if changed or self._stamp != (note.life, note.schema) or note.index_now != note.index:
            self._apart(lambda db: settle(db, note, self._inode))

    def enter(self, space: Row, connection: Any, fresh: bool = False) -> dict[str, Any]:
        """Continue the time of the space, even after a reboot; return what must be stored."""
        self.liveness.space = space["id"]
        namespace, wall = time_namespace(), self._native_clock.wall()
        seq, restored_seq = space["seq"], space["restored_seq"]
        if self._synchronous == SYNCHRONOUS["fast"]:
            self.folder.mark_fast()
        last = self.bells.last()
        lost = space["boot"] == COPY or seq < max(last, restored_seq) or (fresh and self._above)
        if space["boot"] == self.boot:
            if space["time_namespace"] != namespace:
                raise UnfitError(
                    "this process runs in another time namespace than the store's other users, "
                    "so its clock cannot be compared with theirs",
                    next="start it outside that container, or share the store through postgresql://",
                )
            self._native_clock.offset = space["clock_offset"]
            if not lost:
                return {}
        else:
            # A power cut may have lost the last commits of processes that chose `fast`.
            lost = lost or (bool(space["boot"]) and self.folder.is_unsure())
            self._native_clock.offset = 0
            passed = max(0, wall - space["wall_time"])
            self._native_clock.offset = space["store_time"] + passed - self._native_clock.now()
        if lost:
            seq = restored_seq = unseen_seq(max(seq, last), wall)
        return {
            "boot": self.boot,
            "time_namespace": namespace,
            "clock_offset": self._native_clock.offset,
            "seq": seq,
            "restored_seq": restored_seq,
            "history": "",
        }

    def trusts_tokens(self, space: Row, version: int) -> bool:
        return self._note.older and 0 < version < SIGNED_TOKENS

    def last_seq(self) -> int:
        return max(self.seen, self.bells.last())

    def take(self, since: float = 0, more_s: float = 0) -> SqliteConnection:
        if self._closed or os.getpid() != self._pid:
            raise unusable(self._pid)
        try:
            return self._idle.pop()
        except IndexError:
            self.check_present()
            return SqliteConnection(self)

    @property
    def turns(self) -> Turns | None:
        if self._line is None and other_threads():  # otherwise there is no other thread
            from dibs.storage.turns import Gate, Turns

            self._line = Turns(Gate(f"{self.folder.bells}/crowd"))
        return self._line

    def begin_turn(self, connection: SqliteConnection) -> None:
        """Undo a transaction that this thread has left open: it would wait for itself.

        It was lost to an interrupt just before its `with` block was left, or it is further up the
        stack, below a signal handler that uses the store. Such a write fails as a whole when
        it continues.
        """
        thread = get_ident()
        lost = self._turns.get(thread)
        if lost is not None:
            left = lost()
            if left is not None and left is not connection:
                left.rollback()
                left.usable = False
                left._cursor = Torn()
        self._turns[thread] = connection.me

    def give_back(self, connection: SqliteConnection) -> None:
        self._turns.pop(get_ident(), None)
        if connection.usable:
            self._idle.append(connection)

    def stay_present(self) -> None:
        """Check that the file is still there, unless that was just done."""
        if time.monotonic_ns() > self._present_until:
            self.check_present()

    def check_present(self) -> None:
        """Refuse to continue with a deleted file: what is committed would vanish with it."""
        try:
            seen = os.stat(self.path)
            self.over = seen.st_size > self.size_limit
            there = seen.st_ino == self._inode and self.liveness.present()
            log = inode_of(self._beside_log)
            if there and log == (self._log_inode or log):
                self._log_inode = log
                self._present_until = time.monotonic_ns() + PRESENT_NS
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        raise store_gone(self.path)

    def listen(self, topics: tuple[str, ...], cancel: Cancel | None) -> Listener:
        self.check_present()
        try:
            return self.bells.listen(topics, cancel)
        except FileNotFoundError as error:
            raise store_gone(self.path) from error

    def listen_soon(self, topics: tuple[str, ...], cancel: Cancel | None) -> Listener | None:
        return self.bells.listen_soon(topics, cancel)

    def close(self) -> None:
        self._closed = True
        self.liveness.close()
        self.bells.close()
        if self._line is not None:
            self._line.close()
        if os.getpid() == self._pid:
            while self._idle:
                self._idle.pop().db.close()


class SqliteConnection(Versioned):
    crowd = False  # there is a gate for that

    def __init__(self, driver: SqliteDriver) -> None:
        self._driver = driver
        self.usable = True
        self.me = ref(self)
        # The database gets the key file's mode, 0600, from the start.
        uri = f"file:{in_uri(driver.path)}?modeof={in_uri(driver.folder.key_file)}"
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        try:
            self.db = apsw.Connection(uri, flags=flags, statementcachesize=100)
            if os.path.lexists(f"{driver.path}-journal"):
                check_journal(self.db, driver._note)
            for option, value in HARDENED:
                self.db.config(option, value)
            self.db.set_busy_handler(Patience(driver.bells.last))
            # Otherwise SQLite plans a statement again whenever its parameters change.
            self.db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # Every row is fetched before the next statement, so one cursor is enough.
            self._cursor: apsw.Cursor | Torn = self.db.cursor()
            if self.db.pragma("application_id") != APPLICATION_ID:
                check_program(self.db, driver.path)
            self._use_wal()
            for pragma in (
                f"synchronous={driver._synchronous}",
                "journal_size_limit=16777216",
                "mmap_size=0",
                "temp_store=MEMORY",
                "trusted_schema=OFF",
            ):
                self.db.execute(f"PRAGMA {pragma}").fetchall()
        except apsw.Error as error:
            raise translate(error, driver.path) from error

    def _use_wal(self) -> None:
        # SQLite does not ask the busy handler when several processes switch a fresh file to
        # WAL at once, so this retries itself.
        # Small pages: a write changes a few bytes in each of four pages, and logs all four.
        self.db.pragma("page_size", 1024)
        end = time.monotonic() + BUSY_S
        while True:
            try:
                if self.db.pragma("journal_mode", "wal") == "wal":
                    return
            except apsw.BusyError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.002)

    def begin_write(self, space: int, session: int, ahead: Ahead) -> tuple[int, int, Row]:
        self.begin_group()
        return self.enter(space, session, ahead)

    def begin_group(self) -> None:
        self._driver.stay_present()
        self._driver.begin_turn(self)
        self._control("BEGIN IMMEDIATE")
        if self.db.data_version() != self._data:
            self.refuse_upgraded()

    def enter(self, space: int, session: int, ahead: Ahead) -> tuple[int, int, Row]:
        clock = self._driver.clock
        now, wall = clock.now(), clock.wall()
        seen = self._driver.seen  # first: a signal handler may write in between
        last = self._last
        if last is not None and last["id"] == session:
            entered = last
        else:
            entered = self._look_again(last, {"space": space, "session": session}, seen)
        if now - entered["store_time"] >= NOTE_TIME_MS:
            self._note_time(space, now, wall)
            entered["store_time"] = now
        self._last = entered
        return now, wall, entered

    def _look_again(self, last: Row | None, parameters: Row, seen: int) -> Row:
        """What a write begins with; last: where the journal ends, if that is known."""
        if last is not None and (again := self.rows(SPACE.enter_again, parameters)):
            known = {name: last[name] for name in ("seq", "hash", "pending", "store_time")}
            return again[0] | known
        entered = self.rows(SPACE.enter, parameters)[0]
        if not seen <= entered["seq"] < SEQ_LIMIT:
            check_seq(entered["seq"])
            raise StoreGoneError(
                f"{folder(self._driver.path)} was rolled back while it was open, as by restoring a "
                "copy",
                next="open the store again, and claim again what you are working on",
            )
        entered["seq"] += 1
        return entered

    def _note_time(self, space: int, now: int, wall: int) -> None:
        """Record the time, signed; a forged row is left as it is, to be detected."""
        row = self.rows(SPACE.signed, {"space": space})[0]
        times = {"store_time": now, "wall_time": wall}
        row = self._driver.ledger.signed_space(row, times)
        self.run(SPACE.note_time, row | {"space": space})

    def begin_read(self, ahead: Ahead) -> tuple[int, int]:
        self._driver.stay_present()
        self._control("BEGIN")
        return self._driver.clock.now(), self._driver.clock.wall()

    def begin_setup(self) -> None:
        self._last = None
        self._control("BEGIN IMMEDIATE")

    def ahead(self, ahead: Ahead) -> None:
        """Does nothing: there are no round trips."""

    def rows(self, query: Query, parameters: dict[str, Any]) -> list[Row]:
        text, values = query.bind("sqlite", parameters)
        try:
            cursor = self._cursor.execute(text, values)
            # The names are read once there is a row: without one, SQLite has none.
            return [dict(zip(query.columns or query.named(cursor), row)) for row in cursor]  # noqa: B905 - the hot path
        except apsw.Error as error:
            raise self.failed(error) from error
        except UnicodeDecodeError as error:
            raise not_utf8(self._driver.path, query) from error

    def run(self, query: Query, parameters: dict[str, Any]) -> None:
        # On separate lines: a signal handler that runs in between may break the cursor.
        text, values = query.bind("sqlite", parameters)
        try:
            self._cursor.execute(text, values)
        except apsw.Error as error:
            raise self.failed(error) from error

    def version(self) -> int:
        found: int = self.rows(SQLITE.version, {})[0]["user_version"]
        self._last = None
        self._data = self.db.data_version() if found <= self._driver.version else -1
        return found

    def migrate(self, steps: list[tuple[int, str]]) -> None:
        for _, text in steps:
            self._control(text)
        self._control(f"PRAGMA user_version={steps[-1][0]}")
        self._control(f"PRAGMA application_id={APPLICATION_ID}")
        self._control("ANALYZE sqlite_schema")  # makes the table of estimates
        for query in (SQLITE.forget_estimates, SQLITE.estimate, SQLITE.estimate_queue):
            self.run(query, {})
        self._control("ANALYZE sqlite_schema")  # reads it

    def save(self) -> None:
        self._control("SAVEPOINT member")

    def keep(self) -> None:
        self._control("RELEASE member")

    def undo(self) -> None:
        if not self.db.in_transaction:
            # After some errors, such as a full disk, SQLite ends the whole transaction by itself.
            raise StorageError(
                f"{folder(self._driver.path)}: another write in the same group failed",
                next="try again",
            )
        self._last = None
        self._control("ROLLBACK TO member")
        self._control("RELEASE member")

    def commit(self, rings: Rings, seq: int) -> None:
        self._control("COMMIT")
        self._data = self.db.data_version()
        if rings:
            self._driver.seen = seq
            self._driver.bells.ring(rings, seq)

    def rollback(self) -> None:
        self._last = None
        # After some errors SQLite has rolled back by itself; a second rollback would hide them.
        if self.db.in_transaction:
            try:
                self.db.execute("ROLLBACK")
            except apsw.Error:
                self.usable = False
                self.db.close()  # the lock must be released, whatever is wrong with the disk

    def _control(self, text: str) -> None:
        try:
            self._cursor.execute(text)
        except apsw.Error as error:
            raise translate(error, self._driver.path) from error


def in_uri(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
