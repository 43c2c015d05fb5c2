"""The PostgreSQL driver: many machines, many spaces in one database.

Promised: a commit that returned is on the server's disk (`synchronous_commit=on`; with
`durability="fast"`, a crash of the server can lose the last writes). Writers of a space take turns
by an advisory lock; spaces do not wait for each other. The server's clock decides, heartbeats prove
liveness, and the server cuts off a client that freezes inside a transaction after `IDLE_MS`, which
frees its turn.

If a connection breaks during a commit, its outcome is unknown; asked again with the same
idempotency key, the store gives the first answer.

A write costs two round trips: what it must read is sent with the turn, what it writes with the
commit. The bell is NOTIFY, sent in a separate transaction after the commit: inside the commit, its
server-wide lock would make all spaces wait for each other's disk writes.

Behind a pooler that assigns connections for one transaction at a time, nothing outlives a
transaction: settings are sent at its beginning, no statement is prepared, and waiters poll. A
pooler is detected because a connection's process id differs from the one the server reports.

A server that does not answer is given up after `ANSWER_S`, with all kept connections: the next ones
are made to whichever host of the address accepts writes now.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

from dibs.errors import BusyError, DibsError, DisconnectedError
from dibs.logger import INFO, log
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
    from dibs.storage.folder import Own
    from dibs.storage.ledger import Ledger
    from dibs.storage.waiting import Cancel, Ear

POSTGRES = Queries("postgres")
SPACE = Queries("space")
CONNECTIONS = 16
"""How many connections a process may use at a time."""
KEPT = 4
"""How many of them it keeps open for later."""
SYNCHRONOUS = {"full": "on", "fast": "off"}
CALL_S = 9.0
"""How long a transaction may take in total, including the wait for its turn."""
LINE_S = 6.5
"""How long a thread waits in line: a thread that finds the server silent tells the next."""
TROUBLE_S = 10.0
"""For this long after a server was silent, less time is spent on a new connection."""
REST_S = 1.0
"""For this long after a timeout nobody connects again: each in a queue would time out."""
REPLICATED = ".replicated"
"""The end of the history of a server that waits for its standbys before it acknowledges."""
RECENT_MS = 30 * 60_000
"""As long as most things are held: an older journal has little left to keep."""


class PostgresDriver(Kept):
    boot, grouped, one_key = "", False, False
    version = 0
    liveness = None
    over, size_limit = False, 0  # the server has its own limits
    used = POSTGRES.used
    renew: Callable[[PostgresConnection], None]
    ledger: Ledger

    def __init__(
        self, url: str, durability: str, clock: Clock | None, key: bytes, own: Own
    ) -> None:
        self.own = own
        self.hosts = Address(url)
        self.address = self.hosts.shown
        self.bell = bell_of(url, self.hosts)
        self._key = key
        self.synchronous = SYNCHRONOUS[durability]
        self.injected = clock is not None
        self.clock: Clock = clock or SystemClock()
        self.space = 0
        self.history = ""
        """The server's history, as the space knows it."""
        self._newest = ""
        """The server's history as last read; the space may not know it yet."""
        self.database = ""
        self.replicated = False
        """Whether the server waits for standbys."""
        self.seen = 0
        """Where the journal ended after the last commit of this process."""
        self.behind = False
        """Whether the journal was found to end earlier than that, or the history to differ."""
        self.pooled = False
        """Whether there is a pooler in front of the server."""
        self._silent_at = self._rest_until = 0.0
        self._cut_off = False
        """Whether a connection broke since the last one was made."""
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
                "when a transaction begins",
                "set pool_mode = transaction or session there, or connect to the server directly",
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
            # Nobody may write while the space continues elsewhere: a seq must not be used twice.
            connection.take_turn(self.space)
            space |= connection.rows(SPACE.find, {"name": space["name"]})[0]
        now = connection.history()
        stayed = self.history in ("", now["history"])
        self._newest, self.replicated = now["history"] or "", now["replicated"]
        self.database = f"{self._newest.partition('.')[0]} {now['database']}"
        if not self.behind:
            self.history = self._newest

        def end(before: int) -> Row:
            found = connection.rows(SPACE.last, {"space": self.space, "before": before})
            return found[0] if found else {"seq": 0, "at": 0}

        fast = self.synchronous == SYNCHRONOUS["fast"]
        gone = gone_on(space, now, fast, seen, end)
        if not stayed and gone.get("seq", space["seq"]) == space["seq"]:
            # A process that missed nothing has continued the space; this one may know of a loss.
            restored_seq = space["restored_seq"]
            if seen > end(restored_seq)["seq"]:
                return {**space, **gone, "ends": restored_seq}
        return gone

    def trusts_tokens(self, space: Row, version: int) -> bool:
        # Each space has its own key, so this is done when it is first opened with the key.
        return not space["history"]

    def last_seq(self) -> int:
        return self.seen

    def take(self, since: float = 0, more_s: float = 0) -> PostgresConnection:
        if self._closed or os.getpid() != self._pid:
            raise unusable(self._pid)
        end = (since or time.monotonic()) + CALL_S + more_s
        try:
            seat = Seat(self._seats)
        except Empty:
            raise BusyError(
                f"all {CONNECTIONS} connections of this process are in use", next="try again"
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
        """Refuse if a newer dibs has upgraded the store: our statements may not fit it."""
        connection = PostgresConnection(self)
        try:
            version = connection.version()
        finally:
            connection.close()
        if version > self.version:
            from dibs.storage.prepare import upgraded

            raise upgraded(version, self.version)

    def _renew(self, connection: PostgresConnection) -> None:
        """Continue the space above all seqs that it may have lost."""
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
                self._note_cut("closed")
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
        """A new connection; for a moment after a timeout, the same error immediately."""
        begun, outage = time.monotonic(), self._outage
        if outage is not None and begun < self._rest_until:
            raise DisconnectedError(str(outage), next=outage.next, **outage.details)
        try:
            soon = begun - self._silent_at < TROUBLE_S
            made = self.hosts.connect(SOON_S if soon else CONNECT_S)
            if self._cut_off:
                self._cut_off = False
                log("postgres", INFO, "connected to %s again", self.address)
            return made
        except DisconnectedError as error:
            self._note_cut(error.details.get("cause", error.code))
            if time.monotonic() - begun > REST_S:
                self._outage, self._rest_until = error, time.monotonic() + REST_S
                self.forsake()
                self.turns.fail(error)
            raise

    def meaning(self, error: psycopg.Error) -> tuple[DibsError, bool]:
        """The dibs error for one of PostgreSQL's, and whether all connections are unusable."""
        meant = translate(error)
        cause = meant.details["cause"]
        spoilt = cause in ("silent", "read_only", "pooler")
        if cause == "pooler":
            self.pooled = True  # only a pooler reveals different process ids
        if cause == "read_only" and self.hosts.several:
            meant = disconnected("the host that accepted writes is read-only now", cause, "25006")
        if spoilt:
            self.forsake()
        if cause == "silent":
            self.turns.fail(meant)
        if isinstance(meant, DisconnectedError):
            self._note_cut(cause)
        return meant, spoilt

    def _note_cut(self, why: str) -> None:
        if not self._cut_off:
            self._cut_off = True
            log("postgres", INFO, "no connection to %s (%s)", self.address, why)

    def forsake(self) -> None:
        """Drop all connections: the server does not answer, or can no longer be used."""
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
        """Whether another process has a waiter with one of these numbers."""
        return any(topic.isdigit() and not self.ears.has(topic) for topic in topics)

    def ring_here(self, topics: Rings) -> None:
        """Wake the waiters in this process, which need not hear of it from the server."""
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
                says = f"{setting} is off: a power cut of the server can lose everything in it"
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
        # A forked child that closed the shared sockets properly would disconnect its parent.
        self._closed = True
        if os.getpid() == self._pid:
            self.bell.flush()
            self.ears.close()
            while self._kept:
                self._kept.pop().close()


def gone_on(space: Row, now: Row, fast: bool, seen: int, end: Callable[[int], Row]) -> Row:
    """What must be stored in the row of a space, given the present state of its server.

    Another server, timeline or table means that a standby took over or that a dump was restored,
    so the last commits may be lost. A server that was only restarted has lost something if
    somebody writes without waiting for its disk: then its start time is part of its history.

    A standby that takes over from a server that waited for standbys has everything that was
    acknowledged, unless the failover chose another one. Seq rises above what may have been granted
    in any case; sessions continue unless there is evidence against it: a commit of this process is
    missing, or the journal is so old that a backup must have been restored.

    seen: where the journal ended after the last commit of this process
    end: the last event before a seq
    """
    known, _, started = space["history"].partition(" ")
    line = now["history"]
    if line is None:
        return {}  # a read-only standby
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
    """Whether a history belongs to the same server and table on a later timeline."""
    then, now = before.split("."), line.split(".")
    return then[::2] == now[::2] and int(then[1], 16) < int(now[1], 16)
