"""The PostgreSQL driver: many machines, many spaces in one database.

Promised: a commit that returned is on the server's disk (`synchronous_commit=on`; with
`durability="fast"` a crash of the server may take the last moments back). An advisory lock
gives a space's writers turns; spaces do not wait for each other. The server's clock decides,
heartbeats prove liveness, and a client that freezes inside a transaction is cut off by the
server after `IDLE_MS`, so its turn is given back.

A connection that breaks while a commit is on its way leaves the outcome open; asked again
with the same idempotency key, the store answers what was answered first.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

import psycopg

from dibs.errors import BusyError, ClosedError, ForkedError, InvalidError
from dibs.storage.clock import SystemClock
from dibs.storage.postgres_connection import CHANNEL, EVERYBODY, PostgresConnection, translate
from dibs.storage.waiting import PATIENCE_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.storage.clock import Clock
    from dibs.storage.driver import Row

CONNECT_S = 5
CONNECTIONS = 16
"""How many a process may use at a time."""
KEPT = 4
"""How many of them it keeps for the next."""
SYNCHRONOUS = {"full": "on", "fast": "off"}


class PostgresDriver:
    boot = ""
    liveness = None

    def __init__(self, url: str, durability: str, clock: Clock | None, key: bytes) -> None:
        self.url = url
        # Without user and password, since this is shown.
        self.address = "postgresql://" + url.partition("://")[2].rpartition("@")[2]
        self._key = key
        self.synchronous = SYNCHRONOUS[durability]
        self.injected = clock is not None
        self.clock: Clock = clock or SystemClock()
        self.space = 0
        self._pid = os.getpid()
        self._closed = False
        # Not a semaphore: a seat may be left while garbage is collected, even within an `acquire`.
        self._seats: SimpleQueue[bool] = SimpleQueue()
        for _ in range(CONNECTIONS):
            self._seats.put(True)
        self._kept: list[PostgresConnection] = []
        try:
            self._kept.append(PostgresConnection(self))
        except psycopg.ProgrammingError as error:
            raise InvalidError(f"this is not an address of a database: {error}") from error
        except psycopg.Error as error:
            raise translate(error) from error

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True, connect_timeout=CONNECT_S)

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
        if self._closed:
            raise ClosedError("this store has been closed", next="open it again")
        try:
            seat = Seat(self._seats)
        except Empty:
            raise BusyError(
                f"{CONNECTIONS} connections of this process are in use", next="try again"
            ) from None
        try:
            with suppress(IndexError):  # another thread may have taken the last one
                while True:
                    connection = self._kept.pop()
                    if connection.usable:
                        connection.seat = seat
                        return connection
                    connection.close()
            connection = PostgresConnection(self)
            connection.seat = seat
            return connection
        except BaseException as error:
            seat.leave()
            if isinstance(error, psycopg.Error):
                raise translate(error) from error
            raise

    def give_back(self, connection: PostgresConnection) -> None:
        seat, connection.seat = connection.seat, None
        if connection.usable and len(self._kept) < KEPT and not self._closed:
            self._kept.append(connection)
        else:
            connection.close()
        if seat is not None:
            seat.leave()

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
        self._closed = True
        if os.getpid() == self._pid:
            while self._kept:
                self._kept.pop().close()


class Seat:
    """The right to use a connection.

    It ends at the latest with the connection: an interrupt may keep that from being given back.
    """

    taken = False

    def __init__(self, seats: SimpleQueue[bool]) -> None:
        self._seats = seats
        self.taken = seats.get(timeout=CONNECT_S)

    def leave(self) -> None:
        if self.taken:
            self.taken = False
            self._seats.put(True)

    __del__ = leave


class PostgresListener:
    """A connection of its own that listens first, so that the look after it misses nothing."""

    patience_s = PATIENCE_S

    def __init__(self, driver: PostgresDriver, topics: tuple[str, ...], cancel: int | None) -> None:
        self._space = str(driver.space)
        self._topics = {EVERYBODY, *(topic.partition(":")[0] for topic in topics)}
        self._cancel = cancel
        try:
            self._db = driver.connect()
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
            self._db.pgconn.consume_input()
        except psycopg.Error as error:
            raise translate(error) from error
        while (notice := self._db.pgconn.notifies()) is not None:
            # Others may use the channel too: what they say need not be a space and topics.
            space, _, topics = notice.extra.decode(errors="replace").partition(" ")
            rung |= space == self._space and not self._topics.isdisjoint(topics.split())
        return rung

    def close(self) -> None:
        self._db.close()
