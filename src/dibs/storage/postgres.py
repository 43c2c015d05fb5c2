"""The PostgreSQL driver: many machines, many spaces in one database.

Promised: a commit that returned is on the server's disk (`synchronous_commit=on`; with
`durability="fast"` a crash of the server may take the last moments back). An advisory lock
gives a space's writers turns; spaces do not wait for each other. The server's clock decides,
heartbeats prove liveness, and a client that freezes inside a transaction is cut off by the
server after `IDLE_MS`, so its turn is given back.

A connection that breaks while a commit is on its way leaves the outcome open; asked again
with the same idempotency key, the store answers what was answered first.

A write costs two round trips: what it has to read travels with the turn, what it writes with
the commit. The bell is NOTIFY, sent in a transaction of its own right after the commit: inside,
its server-wide lock would make all spaces wait for each other's disk writes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from queue import Empty, SimpleQueue

import psycopg

from dibs.errors import BusyError, DibsError, InvalidError, StorageError, StoreGoneError
from dibs.storage.clock import SEQ_LIMIT, SILENCE, SystemClock, bearable, check_seq, unusable
from dibs.storage.postgres_pipeline import (
    CHANNEL,
    EVERYBODY,
    Kept,
    Pipeline,
    PostgresListener,
    Seat,
    connect,
    does_not_fit,
    gone_on,
    named,
    translate,
)
from dibs.storage.queries import Queries, Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from psycopg.pq.abc import PGresult

    from dibs.storage.clock import Clock
    from dibs.storage.driver import Ahead, Row

    Bound = tuple[str, tuple[Any, ...]]
    """A statement and its values."""

SPACE = Queries("space")
POSTGRES = Queries("postgres")
SETUP_LOCK = TURN_LOCK = 0x64696273
LOCK_MS = 4_500
IDLE_MS = 10_000
PAYLOAD_LIMIT = 7_900
"""A notice takes 8,000 bytes; one that would be longer wakes everybody instead."""
CONNECTIONS = 16
"""How many a process may use at a time."""
KEPT = 4
"""How many of them it keeps for the next."""
SYNCHRONOUS = {"full": "on", "fast": "off"}


class PostgresDriver(Kept):
    boot, one_key = "", False
    liveness = None
    over, size_limit = False, 0  # the server has its own limits
    used = POSTGRES.used
    renew: Callable[[PostgresConnection], None]

    def __init__(self, url: str, durability: str, clock: Clock | None, key: bytes) -> None:
        self.url = url
        # Without user and password, since this is shown.
        self.address = "postgresql://" + url.partition("://")[2].rpartition("@")[2]
        self._key = key
        self.synchronous = SYNCHRONOUS[durability]
        self.injected = clock is not None
        self.clock: Clock = clock or SystemClock()
        self.space = 0
        self.history = ""
        """The server's, as the space knows it."""
        self.seen = 0
        """Where the journal ended after the last commit of this process."""
        self.behind = False
        """Whether the journal was found to end before that, or the history to be another."""
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

    def key(self) -> bytes:
        return self._key

    def schema(self, text: str) -> str:
        # Text is compared by bytes, as in SQLite; the prefix ranges of paths rely on it.
        return text.replace(" TEXT", ' TEXT COLLATE "C"')

    def enter(
        self, space: Row, connection: PostgresConnection, fresh: bool = False
    ) -> dict[str, Any]:
        self.space = space["id"]
        now = connection.history()
        self.history = now["history"] or ""
        return gone_on(space, now, self.synchronous == SYNCHRONOUS["fast"], self.seen)

    def trusts_tokens(self, space: Row, version: int) -> bool:
        # Each space has its own key, so this is done when it is first opened with that.
        return not space["history"]

    def take(self) -> PostgresConnection:
        if self._closed or os.getpid() != self._pid:
            raise unusable(self._pid)
        try:
            seat = Seat(self._seats)
        except Empty:
            raise BusyError(
                f"{CONNECTIONS} connections of this process are in use", next="try again"
            ) from None
        try:
            connection = self._idle() or self._connect()
            if self.behind:
                self._renew(connection)
            connection.seat = seat
            return connection
        except BaseException as error:
            seat.leave()
            if isinstance(error, psycopg.Error):
                raise translate(error) from error
            raise

    def _connect(self) -> PostgresConnection:
        connection = PostgresConnection(self)
        if self.history and connection.history()["history"] != self.history:
            self._renew(connection)
        return connection

    def _renew(self, connection: PostgresConnection) -> None:
        """Let the space go on above all that it has lost."""
        self.behind = True
        try:
            self.renew(connection)
        except BaseException:
            connection.close()
            raise
        self.behind = False

    def _idle(self) -> PostgresConnection | None:
        with suppress(IndexError):  # another thread may have taken the last one
            while not (connection := self._kept.pop()).usable:
                connection.close()
            return connection
        return None

    def give_back(self, connection: PostgresConnection) -> None:
        seat, connection.seat = connection.seat, None
        if connection.usable and len(self._kept) < KEPT and not self._closed:
            self._kept.append(connection)
        else:
            connection.close()
        if seat is not None:
            seat.leave()

    def listen(self, topics: tuple[str, ...], cancel: int | None) -> PostgresListener:
        return PostgresListener(self.url, self.space, topics, cancel)

    def close(self) -> None:
        # A forked child that says goodbye on the shared sockets would cut its parent off.
        self._closed = True
        if os.getpid() == self._pid:
            while self._kept:
                self._kept.pop().close()


class PostgresConnection:
    seat: Seat | None = None

    def __init__(self, driver: PostgresDriver) -> None:
        self._driver = driver
        db = connect(driver.url)
        db.execute(
            # What the pipeline sends and reads is UTF-8, whatever the user's settings say.
            "SET client_encoding = 'UTF8';"
            f"SET search_path = dibs; SET synchronous_commit = {driver.synchronous};"
            f"SET lock_timeout = {LOCK_MS}; SET idle_in_transaction_session_timeout = {IDLE_MS};"
            "SET default_transaction_isolation = 'read committed'".encode()
        )
        self._pipeline = Pipeline(db)
        self._later: list[tuple[Query, dict[str, Any]]] = []
        self._ahead: dict[Bound, list[Row]] = {}
        """The answers to what was asked ahead; good until anything else is asked or written."""
        self._unproven = False
        """Whether a write of the group was kept whose statements have not been answered yet."""
        self._lost: DibsError | None = None
        """Why such a write failed after it was kept."""

    @property
    def usable(self) -> bool:
        return self._pipeline.usable

    def begin_write(self, space: int, session: int, ahead: Ahead = None) -> tuple[int, int, Row]:
        asked = self._bound(ahead)  # first: if it fails, nothing has been sent
        self.begin_group()
        return self._enter(space, session, asked)

    def begin_group(self) -> None:
        self._say("BEGIN")
        if SILENCE.get() is not None:
            self._say(f"SET LOCAL lock_timeout = {round(bearable(LOCK_MS / 1000) * 1000)}")

    def enter(self, space: int, session: int, ahead: Ahead = None) -> tuple[int, int, Row]:
        return self._enter(space, session, self._bound(ahead))

    def _enter(
        self, space: int, session: int, asked: list[tuple[Query, Bound]]
    ) -> tuple[int, int, Row]:
        self._send_later()
        self._send(POSTGRES.turn, {"lock": TURN_LOCK, "space": space})
        self._send(POSTGRES.now, {}, wanted=True)
        self._send(SPACE.enter, {"space": space, "session": session}, wanted=True)
        seen = self._driver.seen
        clock, entered = self._ask(asked)
        row = named(SPACE.enter, entered)[0]
        if not seen <= row["seq"] < SEQ_LIMIT:
            check_seq(row["seq"])
            self._driver.behind = True
            raise StoreGoneError(
                f"{self._driver.address} went back in time while it was open",
                next="join again, then claim again what you still need",
            )
        row["seq"] += 1
        return *self._times(clock), row

    def begin_read(self, ahead: Ahead = None) -> tuple[int, int]:
        asked = self._bound(ahead)
        self._say("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._send(POSTGRES.now, {}, wanted=True)
        (clock,) = self._ask(asked)
        return self._times(clock)

    def ahead(self, ahead: Ahead) -> None:
        new = [one for one in self._bound(ahead) if one[1] not in self._ahead]
        if new:
            self._send_later()
            self._ask(new)

    def _bound(self, ahead: Ahead) -> list[tuple[Query, Bound]]:
        """What is asked ahead, each bound to the space."""
        if ahead is None:
            return []
        space = {"space": self._driver.space}
        return [(query, query.bind("postgres", given | space)) for query, given in ahead()]

    def _ask(self, ahead: list[tuple[Query, Bound]]) -> list[PGresult]:
        """Send all, and what is asked ahead; return the answers to what was wanted before."""
        for _, bound in ahead:
            self._send_bound(bound, wanted=True)
        results = self._exchange()
        for query, bound in reversed(ahead):
            self._ahead[bound] = named(query, results.pop())
        return results

    def _times(self, clock: PGresult) -> tuple[int, int]:
        found = named(POSTGRES.now, clock)[0]
        if found["version"] > self._driver.version:
            self._driver.refuse_upgraded()
        if self._driver.injected:
            return self._driver.clock.now(), self._driver.clock.wall()
        return found["now"], found["now"]

    def begin_setup(self) -> None:
        self._say("BEGIN")
        self._say("SET LOCAL synchronous_commit = on")  # what it notes of the server must stay
        self._send(POSTGRES.set_up_alone, {"lock": SETUP_LOCK})
        self._send(POSTGRES.create_schema, {})
        # Not in the same packet: a table is only prepared for once its schema is there.
        self._exchange()
        self._send(POSTGRES.create_migration, {})
        self._exchange()

    def version(self) -> int:
        if not self.rows(POSTGRES.has_migration, {})[0]["there"]:
            return 0
        return int(self.rows(POSTGRES.version, {})[0]["version"])

    def history(self) -> Row:
        return self.rows(POSTGRES.history, {})[0]

    def migrate(self, version: int, text: str) -> None:
        for statement in text.split(";\n"):
            self._say(statement)
            self._exchange()
        self._send(POSTGRES.note_version, {"version": version})

    def rows(self, query: Query, parameters: dict[str, Any]) -> list[Row]:
        if self._ahead:
            known = self._ahead.pop(query.bind("postgres", parameters), None)
            if known is not None:
                return known
            self._ahead.clear()  # this one may write as well
        self._send_later()
        self._send(query, parameters, wanted=True)
        (result,) = self._exchange()
        return named(query, result)

    def run(self, query: Query, parameters: dict[str, Any]) -> None:
        self._ahead.clear()
        self._later.append((query, parameters))

    def save(self) -> None:
        self._control("SAVEPOINT member")

    def keep(self) -> None:
        self._control("RELEASE member")
        self._unproven = True

    def undo(self) -> None:
        self._later.clear()
        self._ahead.clear()
        if self._lost is not None:
            # The mark that the server knows is that of the write before, which was kept.
            raise self._lost
        self._pipeline.unwant()
        self._control("ROLLBACK TO member")
        self._control("RELEASE member")

    def _control(self, text: str) -> None:
        self._send_later()
        self._say(text)

    def commit(self, rings: set[str], seq: int) -> None:
        self._ahead.clear()
        self._send_later()
        self._say("COMMIT", wanted=True)
        bell = None
        if rings:
            topics = " ".join(sorted(rings))
            if len(topics) > PAYLOAD_LIMIT:
                topics = EVERYBODY
            payload = f"{self._driver.space} {topics}"
            bell = POSTGRES.notify.bind("postgres", {"channel": CHANNEL, "payload": payload})
        (ended,) = self._exchange(bell)
        # After an error that somebody has caught, a commit undoes everything and is no error.
        if ended.command_status != b"COMMIT":
            raise StorageError("a statement before the commit failed", next="report this")
        if rings:
            self._driver.seen = seq

    def rollback(self) -> None:
        self._later.clear()
        self._ahead.clear()
        self._unproven, self._lost = False, None
        try:
            if self._pipeline.unsent:
                # It may fail, and then a rollback in the same packet is not run.
                self.close()
            elif self._pipeline.usable and not self._pipeline.idle:
                self._pipeline.send("ROLLBACK")
                self._pipeline.tell()
        except psycopg.Error:
            self.close()

    def close(self) -> None:
        self._pipeline.close()

    def _send_later(self) -> None:
        for query, parameters in self._later:
            self._send(query, parameters)
        self._later.clear()

    def _say(self, text: str, *, wanted: bool = False) -> None:
        self._send_bound((text, ()), wanted=wanted)

    def _send(self, query: Query, parameters: dict[str, Any], *, wanted: bool = False) -> None:
        self._send_bound(query.bind("postgres", parameters), wanted=wanted)

    def _send_bound(self, bound: Bound, *, wanted: bool) -> None:
        try:
            self._pipeline.send(*bound, wanted=wanted)
        except psycopg.Error as error:
            raise translate(error) from error

    def _exchange(self, after: Bound | None = None) -> list[PGresult]:
        try:
            results = self._pipeline.exchange(after)
        except psycopg.Error as error:
            if self._unproven:
                self._lost = translate(error)
            if does_not_fit(error):
                self._driver.refuse_upgraded()
            raise translate(error) from error
        self._unproven = False
        return results
