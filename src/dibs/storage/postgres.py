"""The PostgreSQL driver: many machines, many spaces in one database.

Promised: a commit that returned is on the server's disk (`synchronous_commit=on`; with
`durability="fast"` a crash of the server may take the last moments back). A space's row
lock gives its writers turns; spaces do not wait for each other. The server's clock decides,
heartbeats prove liveness, and a client that freezes inside a transaction is cut off by the
server after `IDLE_MS`, so its turn is given back.

A connection that breaks while a commit is on its way leaves the outcome open; asked again
with the same idempotency key, the store answers what was answered first.

Statements whose rows nobody waits for travel together (pipeline mode): a claim costs
three round trips, not eight. The bell is NOTIFY, sent in a transaction of its own right
after the commit: inside, its server-wide lock would make all spaces wait for each other's
disk writes.
"""

from __future__ import annotations

import logging
import os
import select
import time
from contextlib import ExitStack

import psycopg
from psycopg import errors as pg
from psycopg_pool import ConnectionPool, PoolTimeout

from dibs.errors import (
    BusyError,
    DibsError,
    DisconnectedError,
    DiskFullError,
    ForkedError,
    InvalidError,
    ReadOnlyError,
    StorageError,
    UnfitError,
)
from dibs.storage.bell import PATIENCE_S
from dibs.storage.clock import SystemClock
from dibs.storage.queries import Queries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.storage.clock import Clock
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query

SPACE = Queries("space")
POSTGRES = Queries("postgres")
SETUP_LOCK = 0x64696273
LOCK_MS = 4_500
IDLE_MS = 10_000
CONNECT_S = 5
SYNCHRONOUS = {"full": "on", "fast": "off"}
CHANNEL = "dibs"
PAYLOAD_LIMIT = 7_900
"""A notice takes 8,000 bytes; one that would be longer wakes everybody instead."""
EVERYBODY = "*"
# What the pool has to say is said again, better, by the error of the call it concerns.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class PostgresDriver:
    database = "postgres"
    boot = ""
    liveness = None

    def __init__(self, url: str, durability: str, clock: Clock | None, key: bytes) -> None:
        self.url = url
        # Without user and password, since this is shown.
        self.address = "postgresql://" + url.partition("://")[2].rpartition("@")[2]
        self._key = key
        self._synchronous = SYNCHRONOUS[durability]
        self.injected = clock is not None
        self.clock: Clock = clock or SystemClock()
        self.space = 0
        self._pid = os.getpid()
        self._check_address()
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            url,
            kwargs={"autocommit": True, "connect_timeout": CONNECT_S},
            configure=self._configure,
            min_size=1,
            max_size=16,
            timeout=CONNECT_S,
            open=True,
        )

    def _check_address(self) -> None:
        """Say at once what is wrong with an address; the pool would only say that it waited."""
        try:
            psycopg.connect(self.url, connect_timeout=CONNECT_S).close()
        except psycopg.ProgrammingError as error:
            raise InvalidError(f"this is not an address of a database: {error}") from error
        except psycopg.Error as error:
            raise translate(error) from error

    def _configure(self, connection: psycopg.Connection[Any]) -> None:
        for setting in (
            "search_path = dibs",
            f"synchronous_commit = {self._synchronous}",
            f"lock_timeout = {LOCK_MS}",
            f"idle_in_transaction_session_timeout = {IDLE_MS}",
            "default_transaction_isolation = 'read committed'",
        ):
            connection.execute(f"SET {setting}")

    def key(self) -> bytes:
        return self._key

    def schema(self, text: str) -> str:
        # Text is compared by bytes, as in SQLite; the prefix ranges of paths rely on it.
        return text.replace(" TEXT", ' TEXT COLLATE "C"')

    def enter(self, space: Row) -> dict[str, Any]:
        self.space = space["id"]
        return {}

    def take(self) -> PostgresConnection:
        if os.getpid() != self._pid:
            raise ForkedError(
                "this store was opened before a fork", next="open the store again in the child"
            )
        try:
            return PostgresConnection(self, self._pool.getconn())
        except PoolTimeout as error:
            raise DisconnectedError(
                "no connection to the database server could be had",
                next="check that the server runs and takes more connections, then try again",
            ) from error
        except psycopg.Error as error:
            raise translate(error) from error

    def give_back(self, connection: PostgresConnection) -> None:
        self._pool.putconn(connection.db)

    def listen(self, topics: tuple[str, ...], cancel: int | None) -> PostgresListener:
        return PostgresListener(self, topics, cancel)

    def backup(self, target: str) -> None:
        raise InvalidError(
            "a store on PostgreSQL is backed up with the server",
            next="use pg_dump, and copy the key",
        )

    def integrity(self) -> list[str]:
        """The server looks after its own files."""
        return []

    def log_bytes(self) -> int:
        return 0

    def shorten_log(self) -> None:
        """The server looks after its own log."""

    def private_files(self) -> list[str]:
        return []

    def close(self) -> None:
        # A forked child that says goodbye on the shared sockets would cut its parent off.
        if os.getpid() == self._pid:
            self._pool.close()


class PostgresConnection:
    def __init__(self, driver: PostgresDriver, db: psycopg.Connection[Any]) -> None:
        self._driver = driver
        self.db = db
        self._pipeline = ExitStack()
        self._pipe: psycopg.Pipeline | None = None
        self._later: list[tuple[Query, dict[str, Any]]] = []

    def begin_write(self, space: int, session: int) -> tuple[int, int, Row]:
        self.begin_group()
        return self.enter(space, session)

    def begin_group(self) -> None:
        try:
            self._pipe = self._pipeline.enter_context(self.db.pipeline())
            self.db.execute("BEGIN")
        except psycopg.Error as error:
            raise translate(error) from error

    def enter(self, space: int, session: int) -> tuple[int, int, Row]:
        try:
            self._send_later()
            self._send(SPACE.turn, {"space": space})
            clock = self._send(SPACE.now, {})
            enter = self._send(SPACE.enter, {"space": space, "session": session})
            if self._pipe is not None:
                self._pipe.sync()
            now: int = clock.fetchall()[0][0]
            entered = self._named(SPACE.enter, enter)[0]
            self._seq: int = entered["seq"]
        except psycopg.Error as error:
            raise translate(error) from error
        wall = now
        if self._driver.injected:
            now, wall = self._driver.clock.now(), self._driver.clock.wall()
        return now, wall, entered

    def begin_read(self) -> tuple[int, int]:
        try:
            self._pipe = self._pipeline.enter_context(self.db.pipeline())
            self.db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if self._driver.injected:
                return self._driver.clock.now(), self._driver.clock.wall()
            clock = self._send(SPACE.now, {})
            self._pipe.sync()
            now: int = clock.fetchall()[0][0]
        except psycopg.Error as error:
            raise translate(error) from error
        return now, now

    def begin_setup(self) -> None:
        try:
            self.db.execute("BEGIN")
            self._send(POSTGRES.set_up_alone, {"lock": SETUP_LOCK})
            self._send(POSTGRES.create_schema, {})
            self._send(POSTGRES.create_migration, {})
        except psycopg.Error as error:
            raise translate(error) from error

    def version(self) -> int:
        if not self.rows(POSTGRES.has_migration, {})[0]["there"]:
            return 0
        version: int = self.rows(POSTGRES.version, {})[0]["version"]
        return version

    def migrate(self, version: int, text: str) -> None:
        try:
            self._send_later()
            self.db.execute(text.encode())
            self._send(POSTGRES.note_version, {"version": version})
        except psycopg.Error as error:
            raise translate(error) from error

    def rows(self, query: Query, parameters: dict[str, Any]) -> list[Row]:
        try:
            self._send_later()
            cursor = self._send(query, parameters)
            if self._pipe is not None:
                # Not a mere flush: only after a sync is the server's time limit on the idle.
                self._pipe.sync()
            return self._named(query, cursor)
        except psycopg.Error as error:
            raise translate(error) from error

    def run(self, query: Query, parameters: dict[str, Any]) -> None:
        # Kept back, because a server that has got a statement without a sync does not count as
        # idle, and would wait for a client that freezes there for ever.
        self._later.append((query, parameters))

    def leave(self, space: int, seq: int, now: int, wall: int) -> None:
        if seq != self._seq:
            self.run(SPACE.leave, {"space": space, "seq": seq, "now": now, "wall": wall})

    def save(self) -> None:
        self._control("SAVEPOINT member")

    def keep(self) -> None:
        self._control("RELEASE member")

    def undo(self) -> None:
        self._later.clear()
        self._control("ROLLBACK TO member")
        self._control("RELEASE member")

    def _control(self, text: str) -> None:
        try:
            self._send_later()
            self.db.execute(text.encode())
        except psycopg.Error as error:
            raise translate(error) from error

    def commit(self, rings: set[str]) -> None:
        try:
            self._send_later()
            self.db.execute("COMMIT")
            if rings:
                topics = " ".join(sorted(rings))
                if len(topics) > PAYLOAD_LIMIT:
                    topics = EVERYBODY
                payload = f"{self._driver.space} {topics}"
                self._send(POSTGRES.notify, {"channel": CHANNEL, "payload": payload})
            self._pipeline.close()
        except psycopg.Error as error:
            raise translate(error) from error

    def rollback(self) -> None:
        self._later.clear()
        try:
            self._pipeline.close()
        except psycopg.Error:
            pass  # the error that led here is on its way to the caller already
        try:
            if self.db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self.db.execute("ROLLBACK")
        except psycopg.Error:
            self.db.close()

    def _send_later(self) -> None:
        for query, parameters in self._later:
            self._send(query, parameters)
        self._later.clear()

    def _send(self, query: Query, parameters: dict[str, Any]) -> psycopg.Cursor[Any]:
        text = query.compiled("postgres", parameters)
        return self.db.execute(text.encode(), parameters)

    def _named(self, query: Query, cursor: psycopg.Cursor[Any]) -> list[Row]:
        found = cursor.fetchall()
        columns = query.columns
        if columns is None:
            columns = query.columns = tuple(part.name for part in cursor.description or ())
        return [dict(zip(columns, row, strict=True)) for row in found]


class PostgresListener:
    """A connection of its own that listens first, so that the look after it misses nothing."""

    patience_s = PATIENCE_S

    def __init__(self, driver: PostgresDriver, topics: tuple[str, ...], cancel: int | None) -> None:
        self._space = str(driver.space)
        self._topics = {EVERYBODY, *(topic.partition(":")[0] for topic in topics)}
        self._cancel = cancel
        try:
            self._db = psycopg.connect(driver.url, autocommit=True, connect_timeout=CONNECT_S)
            self._db.execute(f"LISTEN {CHANNEL}")
        except psycopg.Error as error:
            raise translate(error) from error
        self._poll = select.poll()
        self._poll.register(self._db.fileno(), select.POLLIN)
        if cancel is not None:
            self._poll.register(cancel, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while True:
            ready = self._poll.poll(max(0.0, end - time.monotonic()) * 1000)
            if any(handle == self._cancel for handle, _ in ready) or self._rung():
                return True
            if not ready:
                return False

    def _rung(self) -> bool:
        rung = False
        try:
            for notice in self._db.notifies(timeout=0):
                space, *topics = notice.payload.split()
                rung |= space == self._space and not self._topics.isdisjoint(topics)
        except psycopg.Error as error:
            raise translate(error) from error
        return rung

    def close(self) -> None:
        self._db.close()


def translate(error: psycopg.Error) -> DibsError:
    """The dibs error for one of PostgreSQL's, by its code."""
    code = error.sqlstate or ""
    if isinstance(error, pg.LockNotAvailable):
        return BusyError(
            "another client keeps the space's turn",
            next="try again; a frozen client is cut off by the server within seconds",
            sqlstate=code,
        )
    if isinstance(error, (pg.DiskFull, pg.OutOfMemory)):
        return DiskFullError(
            "the database server's disk is full", next="free some space there", sqlstate=code
        )
    if isinstance(error, (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege)):
        return ReadOnlyError(
            "this database user may not write here",
            next="connect to the primary server, as a user that may create a schema",
            sqlstate=code,
        )
    if code.startswith(("28", "3D")):
        return UnfitError(
            f"the database server refuses this address: {error}".strip(),
            next="check user, password and database name",
            sqlstate=code,
        )
    if isinstance(error, psycopg.OperationalError) or code.startswith("57P"):
        return DisconnectedError(
            "the connection to the database server broke",
            next="try again; give an idempotency key so that a write is not done twice",
            sqlstate=code,
        )
    return StorageError(
        f"the database server refused a statement ({code})", next="report this", sqlstate=code
    )
