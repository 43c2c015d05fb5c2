"""A talk with a PostgreSQL server in which statements travel together.

What is sent is kept back until somebody needs an answer; then all of it goes in one packet, and
one packet comes back. That is libpq's pipeline mode, used without the cursors of psycopg, which
take longer for a statement than the server does.

Every packet ends with a sync: only after that does the server count as idle, and cuts off a
client that freezes inside a transaction.
"""

from __future__ import annotations

import select
from itertools import count

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus

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
        self._new: list[str] = []
        """The statements that this packet prepares, if nothing before them fails."""
        self._numbers = count()
        self._wanted: list[bool] = []
        """Of each answer to come: whether somebody waits for it."""
        self._owed = 0
        """How many packets were sent whose answers nobody has read yet."""
        self._broken = False

    @property
    def usable(self) -> bool:
        """Whether the talk can go on, as far as can be known without asking the server."""
        if self._broken or self._pq.status != ConnStatus.OK:
            return False
        if self._poll.poll(0):
            try:
                self._pq.consume_input()
            except psycopg.Error:
                return False
        return self._pq.status == ConnStatus.OK

    @property
    def idle(self) -> bool:
        """Whether the server is in no transaction."""
        return self._pq.transaction_status == psycopg.pq.TransactionStatus.IDLE

    def send(self, text: str, values: Sequence[Any] = (), *, wanted: bool = False) -> None:
        """Add a statement to the packet; `wanted` if its rows are."""
        data = [None if value is None else _text(value) for value in values]
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

    def exchange(self) -> list[PGresult]:
        """Send the packet and wait for its answers: those that are wanted, in order."""
        wanted, new = self._wanted, self._new
        self.tell()
        self._broken = True  # unless all of it has come
        while self._owed:
            results = self._results()
            self._owed -= 1
        self._broken = False
        for result in results:
            if result.status == ExecStatus.FATAL_ERROR:
                for text in new:
                    del self._prepared[text]
                raise error_from_result(result)
        return [result for result, is_wanted in zip(results, wanted, strict=True) if is_wanted]

    def tell(self) -> None:
        """Send the packet, and leave its answers to the next exchange."""
        self._wanted, self._new = [], []
        self._broken = True
        self._pq.pipeline_sync()
        self._owed += 1
        while self._pq.flush():
            # The server may be waiting for us to read before it reads on.
            select.select([self._pq.socket], [self._pq.socket], [])
            self._pq.consume_input()
        self._broken = False

    def _results(self) -> list[PGresult]:
        """The answers to one packet."""
        found: list[PGresult] = []
        while True:
            while self._pq.is_busy():
                self._poll.poll()
                self._pq.consume_input()
            result = self._pq.get_result()
            if result is None:
                if self._pq.status != ConnStatus.OK:
                    raise psycopg.OperationalError("the connection is lost")
            elif result.status == ExecStatus.PIPELINE_SYNC:
                return found
            else:
                found.append(result)

    def close(self) -> None:
        self._db.close()


def _text(value: object) -> bytes:
    if isinstance(value, str):
        # The server takes the text up to there for the whole.
        if "\0" in value:
            raise psycopg.DataError("a text has a NUL in it")
        return value.encode()
    return b"%d" % value
