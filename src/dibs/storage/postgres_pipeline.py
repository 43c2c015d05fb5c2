"""A talk with a PostgreSQL server in which statements travel together.

What is sent is kept back until somebody needs an answer; then all of it goes in one packet, and
one packet comes back. That is libpq's pipeline mode, used without the cursors of psycopg, which
take longer for a statement than the server does.

Every packet ends with a sync: only after that does the server count as idle, and cuts off a
client that freezes inside a transaction.
"""

from __future__ import annotations

import select
from collections import deque
from itertools import count

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from psycopg.pq.abc import PGresult

PREPARED_VALUES = 40
"""A statement with a longer list is rarely the same twice: it is not worth keeping prepared."""


class Pipeline:
    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self._db = db
        self._pq = db.pgconn
        self._pq.nonblocking = 1
        self._pq.enter_pipeline_mode()
        self._poll = select.poll()
        self._poll.register(self._pq.socket, select.POLLIN)
        self._prepared: dict[str, bytes] = {}
        self._numbers = count()
        self._wanted: list[bool] = []
        """Of each answer to this packet: whether somebody waits for it."""
        self._new: list[str] = []
        """The statements that this packet prepares, if nothing before them fails."""
        self._packets: deque[tuple[list[bool], list[str]]] = deque()
        """The same of those that were sent and whose answers have not been read."""
        self._torn = False
        """Whether an interrupt or an error has left a step half done."""

    @property
    def usable(self) -> bool:
        """Whether the talk can go on, as far as can be known without asking the server."""
        if self._torn or self._pq.status != ConnStatus.OK:
            return False
        try:
            # Until there is no more: a server that hangs up says why before that.
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
        """Add a statement to the packet; `wanted` if its rows are."""
        data = _texts(values)
        self._start()
        self._add(text, data, wanted)
        self._torn = False

    def _start(self) -> None:
        """Begin a step; one that follows a step half done would read the answers of another."""
        if self._torn:
            raise psycopg.OperationalError("the talk was interrupted")
        self._torn = True

    def _add(self, text: str, data: list[bytes | None], wanted: bool) -> None:
        name = self._prepared.get(text)
        if name is None and len(data) <= PREPARED_VALUES:
            name = self._prepared[text] = b"s%d" % next(self._numbers)
            self._new.append(text)
            self._pq.send_prepare(name, text.encode())
            self._wanted.append(False)
        if name is None:
            self._pq.send_query_params(text.encode(), data)
        else:
            self._pq.send_query_prepared(name, data)
        self._wanted.append(wanted)

    def unwant(self) -> None:
        """Nobody waits any more for the answers to what has not been sent yet."""
        self._wanted = [False] * len(self._wanted)

    def exchange(self, after: tuple[str, tuple[Any, ...]] | None = None) -> list[PGresult]:
        """Send the packet and wait for its answers: those that are wanted, in order.

        after: a statement that follows in a packet of its own, whose answer nobody waits for
        """
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
            raise error_from_result(failed[0])
        return [result for result, is_wanted in zip(results, wanted, strict=True) if is_wanted]

    def tell(self) -> None:
        """Send the packet, and leave its answers to the next exchange."""
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
            either.poll()
            self._pq.consume_input()

    def _results(self) -> list[PGresult]:
        """The answers to one packet."""
        found: list[PGresult] = []
        while True:
            while self._pq.is_busy():
                self._poll.poll()
                self._pq.consume_input()
            result = self._pq.get_result()
            if result is None:  # the end of one statement's answers
                if self._pq.status != ConnStatus.OK:
                    raise psycopg.OperationalError("the connection is lost")
            elif result.status == ExecStatus.PIPELINE_SYNC:
                return found
            else:
                found.append(result)

    def close(self) -> None:
        self._db.close()


def _texts(values: Sequence[Any]) -> list[bytes | None]:
    return [None if value is None else _text(value) for value in values]


def _text(value: str | int) -> bytes:
    if isinstance(value, str):
        # The server takes the text up to there for the whole.
        if "\0" in value:
            raise psycopg.DataError("a text has a NUL in it")
        return value.encode()
    return b"%d" % value
