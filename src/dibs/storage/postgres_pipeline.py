"""A conversation with a PostgreSQL server in which statements are sent together.

Statements are held back until an answer is needed; then all of them go in one packet, and one
packet comes back. That is libpq's pipeline mode, used without the cursors of psycopg, which take
longer for a statement than the server does.

Every packet ends with a sync: only after that does the server count as idle, and can cut off a
client that freezes inside a transaction.

Every wait for an answer has a limit: a server that stays silent for longer is given up.
"""

from __future__ import annotations

import select
import time
from collections import deque
from itertools import count
from queue import SimpleQueue

import psycopg
from psycopg import errors as pg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus

from dibs.storage.postgres_connect import Silent
from dibs.storage.queries import Queries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from psycopg.pq.abc import PGconn, PGresult

    from dibs.storage.driver import Row
    from dibs.storage.queries import Query

POSTGRES = Queries("postgres")
ANSWER_S = 6.0
"""How long a server may stay silent: longer than it waits for a turn (`LOCK_MS`)."""
LEAST_S = 1.0
SEAT_S = 5
CHANNEL = "dibs_{}"
"""One channel for each space: the server wakes all listeners, but sends each only its own."""
EAR_LOCK = 0x64696274
WARNING = b"01000"
BOOL, INT8, INT4, NUMERIC = 16, 20, 23, 1700
PREPARED_VALUES, LONG = 40, 100
"""A statement with a longer list rarely repeats: it is prepared when it comes again."""


def ask(talk: PGconn, text: str, values: Sequence[Any] = (), within_s: float = 0) -> PGresult:
    """Run one query, outside any pipeline."""
    end = time.monotonic() + (within_s or ANSWER_S)
    talk.nonblocking = 1
    talk.send_query_params(text.encode(), _texts(values))
    talk.flush()  # it is short, and nothing else is in transit
    watched = select.poll()
    watched.register(talk.socket, select.POLLIN)
    found = None
    while True:
        while talk.is_busy():
            if not watched.poll(max(0.0, end - time.monotonic()) * 1000):
                raise Silent("the server does not answer")
            talk.consume_input()
        result = talk.get_result()
        if result is None:
            break
        found = result
    if found is None:
        raise psycopg.OperationalError("the connection is lost")
    if found.status == ExecStatus.FATAL_ERROR:
        raise pg.error_from_result(found)
    return found


class Pipeline:
    def __init__(self, talk: PGconn, pooled: bool) -> None:
        """pooled: a pooler may give each transaction to another server.

        Then nothing is prepared, and a packet is answered before the next is sent: PgBouncer 1.18
        takes the end of one for the end of all, and gives the other answers to another client.
        """
        self._pq = talk
        self._pq.nonblocking = 1
        self._pooled = pooled
        self.end = 0.0
        """When the transaction should have ended, on the monotonic clock."""
        self.works: Callable[[], bool] | None = None
        """Tells whether a silent server is still working on a statement, if that is allowed."""
        self.warned = False
        """Whether the server has sent a warning."""
        self._pq.notice_handler = self._warn
        self._pq.enter_pipeline_mode()
        self._poll = select.poll()
        self._poll.register(self._pq.socket, select.POLLIN)
        self._prepared: dict[str, bytes] = {}
        self._long: set[str] = set()
        """Statements with long lists that have been sent once."""
        self._numbers = count()
        self._wanted: list[bool] = []
        """For each answer to this packet, whether it is needed."""
        self._new: list[str] = []
        """The statements that this packet prepares, if nothing before them fails."""
        self._packets: deque[tuple[list[bool], list[str]]] = deque()
        """The same for statements that were sent and whose answers have not been read."""
        self._torn = False
        """Whether an interrupt or an error has left a step half done."""

    def _warn(self, notice: PGresult) -> None:
        self.warned |= notice.error_field(DiagnosticField.SQLSTATE) == WARNING

    @property
    def usable(self) -> bool:
        """Whether the connection is usable, as far as is known without asking the server."""
        if self._torn or self._pq.status != ConnStatus.OK:
            return False
        try:
            # Until there is no more: a server that hangs up says why first.
            while self._poll.poll(0):
                self._pq.consume_input()
        except psycopg.Error:
            return False
        return self._pq.status == ConnStatus.OK

    @property
    def unsent(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._wanted)

    @property
    def idle(self) -> bool:
        """Whether the server is in no transaction, and nothing waits to be sent."""
        return not self.unsent and self._pq.transaction_status == TransactionStatus.IDLE

    def send(self, text: str, values: Sequence[Any] = (), *, wanted: bool = False) -> None:
        """Add a statement to the packet; `wanted` if its rows are needed."""
        data = _texts(values)
        self._start()
        self._add(text, data, wanted)
        self._torn = False

    def _start(self) -> None:
        """Begin a step; after an unfinished step it would read the answers of that one."""
        if self._torn:
            raise psycopg.OperationalError("the exchange with the server was interrupted")
        self._torn = True

    def _add(self, text: str, data: list[bytes | None], wanted: bool) -> None:
        name = self._prepared.get(text)
        if name is None and not self._pooled and self._is_usual(text, data):
            name = self._prepared[text] = b"s%d" % next(self._numbers)
            self._new.append(text)
            self._pq.send_prepare(name, text.encode())
            self._wanted.append(False)
        if name is None:
            self._pq.send_query_params(text.encode(), data)
        else:
            self._pq.send_query_prepared(name, data)
        self._wanted.append(wanted)

    def _is_usual(self, text: str, data: list[bytes | None]) -> bool:
        if len(data) <= PREPARED_VALUES:
            return True
        again = text in self._long
        if len(self._long) < LONG:
            self._long.add(text)
        return again

    def unwant(self) -> None:
        """Mark the answers to what has not been sent yet as not needed."""
        self._wanted = [False] * len(self._wanted)

    def exchange(self, after: tuple[str, tuple[Any, ...]] | None = None) -> list[PGresult]:
        """Send the packet and wait for its answers: the wanted ones, in order.

        after: a statement that follows in a separate packet, whose answer is not needed
        """
        if after is not None and self._pooled:
            results = self.exchange()
            try:
                self.send(*after)
                self.exchange()
            except psycopg.Error:
                self.close()  # what is needed is done
            return results
        text, data = (after[0], _texts(after[1])) if after is not None else ("", [])
        self._start()
        self._close_packet()
        packets = len(self._packets)
        if after is not None:
            self._add(text, data, wanted=False)
            self._close_packet()
        self._flush()
        for _ in range(packets):
            results, (wanted, new) = self._results(), self._packets.popleft()
            failed = [result for result in results if result.status == ExecStatus.FATAL_ERROR]
            if failed:
                for text in new:
                    del self._prepared[text]
        self._torn = False
        if failed:
            raise pg.error_from_result(failed[0])
        return [result for result, is_wanted in zip(results, wanted, strict=True) if is_wanted]

    def tell(self) -> None:
        """Send the packet, and leave its answers for the next exchange."""
        if self._pooled:
            self.exchange()
            return
        self._start()
        self._close_packet()
        self._flush()
        self._torn = False

    def _close_packet(self) -> None:
        self._pq.pipeline_sync()
        self._packets.append((self._wanted, self._new))
        self._wanted, self._new = [], []

    def _flush(self) -> None:
        while self._pq.flush():
            # The server may be waiting for us to read before it reads on.
            either = select.poll()
            either.register(self._pq.socket, select.POLLIN | select.POLLOUT)
            self._wait(either, time.monotonic() + ANSWER_S)

    def _results(self) -> list[PGresult]:
        """The answers to one packet."""
        found: list[PGresult] = []
        now = time.monotonic()
        end = min(now + ANSWER_S, max(self.end, now + LEAST_S))
        try:
            while True:
                while self._pq.is_busy():
                    end = self._wait(self._poll, end)
                result = self._pq.get_result()
                if result is None:  # the end of one statement's answers
                    if self._pq.status != ConnStatus.OK:
                        raise psycopg.OperationalError("the connection is lost")
                elif result.status == ExecStatus.PIPELINE_SYNC:
                    return found
                else:
                    found.append(result)
        except psycopg.OperationalError:
            # A server that hangs up says why first.
            for result in found:
                if result.status == ExecStatus.FATAL_ERROR:
                    raise pg.error_from_result(result) from None
            raise

    def _wait(self, watched: select.poll, end: float) -> float:
        """Wait for the server until then; return how long to wait if it has not finished."""
        while not watched.poll(max(0.0, end - time.monotonic()) * 1000):
            if self.works is None or not self.works():
                raise Silent("the server does not answer")
            end = time.monotonic() + ANSWER_S
        self._pq.consume_input()
        return time.monotonic() + ANSWER_S

    def close(self) -> None:
        self._pq.finish()


def _texts(values: Sequence[Any]) -> list[bytes | None]:
    return [None if value is None else _text(value) for value in values]


def _text(value: str | int) -> bytes:
    if isinstance(value, str):
        # The server would take the text up to there as the whole.
        if "\0" in value:
            raise psycopg.DataError("a text contains a NUL character")
        return value.encode()
    return b"%d" % value


def named(query: Query, result: PGresult) -> list[Row]:
    """The rows of an answer, with the names of their columns."""
    columns = query.columns
    if columns is None:
        names = [result.fname(place) or b"" for place in range(result.nfields)]
        columns = query.columns = tuple(name.decode() for name in names)
    readers = [_READERS.get(result.ftype(place), bytes.decode) for place in range(len(columns))]
    return [
        {
            name: None if (value := result.get_value(row, place)) is None else read(value)
            for place, (name, read) in enumerate(zip(columns, readers, strict=True))
        }
        for row in range(result.ntuples)
    ]


_READERS: dict[int, Callable[[bytes], Any]] = {
    BOOL: lambda value: value == b"t",
    INT8: int,
    INT4: int,
    NUMERIC: int,
}


class Seat:
    """The right to use a connection.

    It ends with the connection at the latest: an interrupt may prevent its return.
    """

    taken = False

    def __init__(self, seats: SimpleQueue[bool]) -> None:
        self._seats = seats
        self.taken = seats.get(timeout=SEAT_S)

    def leave(self) -> None:
        if self.taken:
            self.taken = False
            self._seats.put(True)

    __del__ = leave
