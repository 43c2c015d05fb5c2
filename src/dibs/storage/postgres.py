"""The PostgreSQL driver: many machines, many spaces in one database.

Promised: a commit that returned is on the server's disk (`synchronous_commit=on`; with
`durability="fast"` a crash of the server may take the last moments back). An advisory lock
gives a space's writers turns; spaces do not wait for each other. The server's clock decides,
heartbeats prove liveness, and a client that freezes inside a transaction is cut off by the
server after `IDLE_MS`, so its turn is given back.

A connection that breaks while a commit is on its way leaves the outcome open; asked again
with the same idempotency key, the store answers what was answered first.

A write costs two round trips: what it has to read travels with the turn, what it writes with
the commit. The bell is NOTIFY, sent in a transaction of its own after the commit: inside, its
server-wide lock would make all spaces wait for each other's disk writes.

Behind a pooler that gives out connections for one transaction at a time, nothing outlives a
transaction: settings travel with its beginning, no statement is prepared, and who waits looks.
That there is one is noticed: the number of a connection is not the one the server knows it by.

A server that does not answer is given up after `ANSWER_S`, with all connections that were kept:
the next are made to whichever host of the address takes writes now.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

from dibs.errors import BusyError, DibsError, DisconnectedError
from dibs.storage.clock import SEQ_LIMIT, SystemClock, unseen_seq, unusable
from dibs.storage.driver import Kept
from dibs.storage.postgres_bell import bell_of
from dibs.storage.postgres_connect import CONNECT_S, SOON_S, Address, disconnected, translate, unfit
from dibs.storage.postgres_ears import LookingEar, PostgresEar
from dibs.storage.postgres_pipeline import Seat
from dibs.storage.postgres_transaction import PostgresConnection
from dibs.storage.queries import Queries
from dibs.storage.turns import Turns
from dibs.storage.waiting import Ears

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import psycopg
    from psycopg.pq.abc import PGconn

    from dibs.storage.clock import Clock
    from dibs.storage.driver import Listener, Rings, Row
    from dibs.storage.waiting import Cancel, Ear

POSTGRES = Queries("postgres")
SPACE = Queries("space")
CONNECTIONS = 16
"""How many a process may use at a time."""
KEPT = 4
"""How many of them it keeps for the next."""
SYNCHRONOUS = {"full": "on", "fast": "off"}
CALL_S = 9.0
"""How long a transaction may take in all, from the wait for its turn on."""
LINE_S = 6.5
"""How long a thread stands in line: those who find the server silent tell the next."""
TROUBLE_S = 10.0
"""So long after a server was silent, less time is spent on a new connection."""
REST_S = 1.0
"""So long after a connection timed out nobody tries again: a queue would take that time each."""
REPLICATED = ".replicated"
"""What the history of a server ends with that waits for its standbys before it acknowledges."""
RECENT_MS = 30 * 60_000
"""As long as most things are held: of an older journal there is little to keep."""


class PostgresDriver(Kept):
    boot, grouped, one_key = "", False, False
    version = 0
    liveness = None
    over, size_limit = False, 0  # the server has its own limits
    used = POSTGRES.used
    renew: Callable[[PostgresConnection], None]

    def __init__(self, url: str, durability: str, clock: Clock | None, key: bytes) -> None:
        self.hosts = Address(url)
        self.address = self.hosts.shown
        self.bell = bell_of(url, self.hosts)
        self._key = key
        self.synchronous = SYNCHRONOUS[durability]
        self.injected = clock is not None
        self.clock: Clock = clock or SystemClock()
        self.space = 0
        self.history = ""
        """The server's, as the space knows it."""
        self._newest = ""
        """The server's as it was last asked; the space may not have heard of it yet."""
        self.replicated = False
        """Whether it waits for standbys."""
        self.seen = 0
        """Where the journal ended after the last commit of this process."""
        self.behind = False
        """Whether the journal was found to end before that, or the history to be another."""
        self.pooled = False
        """Whether a pooler is before the server."""
        self._silent_at = self._rest_until = 0.0
        self._outage: DisconnectedError | None = None
        self._pid = os.getpid()
        self._closed = False
        # Not a semaphore: a seat may be left while garbage is collected, even within an `acquire`.
        self._seats: SimpleQueue[bool] = SimpleQueue()
        for _ in range(CONNECTIONS):
            self._seats.put(True)
        self.turns = Turns(line_s=LINE_S)
        self.ears = Ears(self._ear)
        self._kept: list[PostgresConnection] = []
        first = PostgresConnection(self)
        if self.pooled and not first.begins() and not PostgresConnection(self).begins():
            raise unfit(
                f"the pooler at {self.address} answers single statements, but ends the connection "
                "where a transaction begins",
                "set pool_mode = transaction there, or session; or connect to the server",
                "pooler",
            )
        self._kept.append(first)

    def key(self) -> bytes:
        return self._key

    def schema(self, text: str) -> str:
        # Text is compared by bytes, as in SQLite; the prefix ranges of paths rely on it.
        return text.replace(" TEXT", ' TEXT COLLATE "C"')

    def enter(
        self, space: Row, connection: PostgresConnection, fresh: bool = False
    ) -> dict[str, Any]:
        self.space = space["id"]
        seen = self.seen  # before the row is read: another thread may write meanwhile
        if connection.sets_up:
            # Nobody writes while the space goes on elsewhere: seq must not be taken twice.
            connection.take_turn(self.space)
            space |= connection.rows(SPACE.find, {"name": space["name"]})[0]
        now = connection.history()
        stayed = self.history in ("", now["history"])
        self._newest, self.replicated = now["history"] or "", now["replicated"]
        if not self.behind:
            self.history = self._newest

        def end(before: int) -> Row:
            found = connection.rows(SPACE.last, {"space": self.space, "before": before})
            return found[0] if found else {"seq": 0, "at": 0}

        fast = self.synchronous == SYNCHRONOUS["fast"]
        gone = gone_on(space, now, fast, seen, end)
        if not stayed and gone.get("seq", space["seq"]) == space["seq"]:
            # Somebody who missed nothing has gone on with the space; we may know what is lost.
            restored_seq = space["restored_seq"]
            if seen > end(restored_seq)["seq"]:
                return {**space, **gone, "ends": restored_seq}
        return gone

    def trusts_tokens(self, space: Row, version: int) -> bool:
        # Each space has its own key, so this is done when it is first opened with that.
        return not space["history"]

    def take(self, since: float = 0) -> PostgresConnection:
        if self._closed or os.getpid() != self._pid:
            raise unusable(self._pid)
        end = (since or time.monotonic()) + CALL_S
        try:
            seat = Seat(self._seats)
        except Empty:
            raise BusyError(
                f"{CONNECTIONS} connections of this process are in use", next="try again"
            ) from None
        try:
            connection = self._idle() or self._connect(end)
            connection.begin(end)
            if self.behind:
                self._renew(connection)
            connection.seat = seat
            return connection
        except BaseException:
            seat.leave()
            raise

    def _connect(self, end: float) -> PostgresConnection:
        connection = PostgresConnection(self)
        connection.begin(end)
        if self.history and connection.history()["history"] != self.history:
            self._renew(connection)
        return connection

    def refuse_upgraded(self) -> None:
        """Say so if a newer dibs has upgraded the store: then statements of ours may not fit it."""
        connection = PostgresConnection(self)
        try:
            version = connection.version()
        finally:
            connection.close()
        if version > self.version:
            from dibs.storage.prepare import upgraded

            raise upgraded(version, self.version)

    def _renew(self, connection: PostgresConnection) -> None:
        """Let the space go on above all that it has lost."""
        self.behind = True
        try:
            self.renew(connection)
        except BaseException:
            connection.close()
            raise
        self.history = self._newest
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

    def talk(self) -> PGconn:
        """A new connection; for a moment after one timed out, the same error at once."""
        begun, outage = time.monotonic(), self._outage
        if outage is not None and begun < self._rest_until:
            raise DisconnectedError(str(outage), next=outage.next, **outage.details)
        try:
            soon = begun - self._silent_at < TROUBLE_S
            return self.hosts.connect(SOON_S if soon else CONNECT_S)
        except DisconnectedError as error:
            if time.monotonic() - begun > REST_S:
                self._outage, self._rest_until = error, time.monotonic() + REST_S
                self.forsake()
                self.turns.fail(error)
            raise

    def meaning(self, error: psycopg.Error) -> tuple[DibsError, bool]:
        """The dibs error for one of PostgreSQL's, and whether no connection will do any more."""
        meant = translate(error)
        cause = meant.details["cause"]
        spoilt = cause in ("silent", "read_only", "pooler")
        if cause == "pooler":
            self.pooled = True  # it shows the server's own numbers
        if cause == "read_only" and self.hosts.several:
            meant = disconnected("the host that took writes is read-only now", cause, "25006")
        if spoilt:
            self.forsake()
        if cause == "silent":
            self.turns.fail(meant)
        return meant, spoilt

    def forsake(self) -> None:
        """The server does not answer, or will not do any more: keep no connection to it."""
        self._silent_at = time.monotonic()
        with suppress(IndexError):  # another thread may do the same
            while self._kept:
                self._kept.pop().close()

    def listen(self, topics: tuple[str, ...], cancel: Cancel | None) -> Listener:
        if self._closed or os.getpid() != self._pid:
            raise unusable(self._pid)
        return self.ears.listen(topics, cancel)

    def listen_soon(self, topics: tuple[str, ...], cancel: Cancel | None) -> Listener | None:
        return self.ears.listen_soon(topics, cancel)

    def _ear(self, cancel: Cancel) -> Ear:
        if self.pooled:
            return LookingEar(self, cancel)
        return PostgresEar(self, cancel)

    def rings_elsewhere(self, topics: Rings) -> bool:
        """Whether somebody waits in another process under one of these numbers."""
        return any(topic.isdigit() and not self.ears.has(topic) for topic in topics)

    def ring_here(self, topics: Rings) -> None:
        """Wake those who wait in this process: they need not hear of it from the server."""
        for topic, given in topics.items():
            if topic.isdigit():
                self.ears.ring(topic, given)

    def at_risk(self) -> list[tuple[str, str]]:
        connection = self.take()
        try:
            (now,) = connection.rows(POSTGRES.keeping, {})
        finally:
            self.give_back(connection)
        found = []
        for setting, on in (("fsync", now["synced"]), ("full_page_writes", now["whole_pages"])):
            if not on:
                says = f"{setting} is off: a power cut of the server can lose all that it holds"
                found.append((says, f"set {setting} = on there"))
        if now["standbys"] and not now["replicated"]:
            says = (
                f"commits do not wait for the server's standbys ({now['standbys']}): if one takes "
            )
            says += "over, the last acknowledged writes may be lost, and all sessions end"
            patroni = "with Patroni, synchronous_mode and synchronous_mode_strict"
            found.append((says, f"set synchronous_standby_names there ({patroni})"))
        return found

    def close(self) -> None:
        # A forked child that says goodbye on the shared sockets would cut its parent off.
        self._closed = True
        if os.getpid() == self._pid:
            self.bell.flush()
            self.ears.close()
            while self._kept:
                self._kept.pop().close()


def gone_on(space: Row, now: Row, fast: bool, seen: int, end: Callable[[int], Row]) -> Row:
    """What has to be stored in the row of a space whose server is as it is now.

    Another server, timeline or table means that a standby took over or that a dump was restored,
    so that the last commits may be lost. A server that was only started again has lost something
    if somebody writes without waiting for its disk: then its start is part of its history.

    A standby that takes over from a server which waited for standbys has all that was
    acknowledged, unless the one who promotes them has chosen another. Seq rises above what may
    have been granted in any case; sessions go on unless something speaks against it: a commit of
    this process is missing, or the journal is so old that a backup was put back.

    seen: where the journal ended after the last commit of this process
    end: the last event before a seq
    """
    known, _, started = space["history"].partition(" ")
    line = now["history"]
    if line is None:
        return {}  # a standby, which can only be read
    history = line + REPLICATED if now["replicated"] else line
    if started or fast:
        history = f"{line} {now['started']}"
    before = known.removesuffix(REPLICATED)
    moved = (before and before != line) or (started and started != str(now["started"]))
    seq, restored_seq = space["seq"], space["restored_seq"]
    missing = seq < max(restored_seq, seen)
    ends = 0
    if moved or missing:
        kept = known.endswith(REPLICATED) and not missing and promoted(before, line)
        kept = kept and end(SEQ_LIMIT)["at"] > now["now"] - RECENT_MS
        seq = restored_seq = unseen_seq(max(seq, seen), now["now"])
        ends = 0 if kept else seq
    elif history == space["history"]:
        return {}
    return {
        "boot": "",
        "time_namespace": "",
        "clock_offset": 0,
        "seq": seq,
        "restored_seq": restored_seq,
        "history": history,
        "ends": ends,
    }


def promoted(before: str, line: str) -> bool:
    """Whether a history is that of the same server and table on a later timeline."""
    then, now = before.split("."), line.split(".")
    return then[::2] == now[::2] and int(then[1], 16) < int(now[1], 16)
