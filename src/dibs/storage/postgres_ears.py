"""How a process hears PostgreSQL's bell, for all its waiters.

A separate connection to the server listens. Each listener holds a shared lock; while nobody holds
it, writers do not notify. Through a pooler, the journal is polled instead.
"""

from __future__ import annotations

import json
import select
import time

import psycopg
from psycopg import errors as pg

from dibs.storage.postgres_pipeline import ANSWER_S, CHANNEL, EAR_LOCK, POSTGRES, ask
from dibs.storage.queries import Queries
from dibs.storage.waiting import EVERYBODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.storage.driver import Row
    from dibs.storage.postgres import PostgresDriver
    from dibs.storage.queries import Query
    from dibs.storage.waiting import Cancel

SPACE = Queries("space")
EAR_S = 20.0
"""How long a listening connection may hear nothing before it is checked."""
EAR_LOCK_MS = "1000"
POOLED_S = 0.1
"""How often the journal is polled for waiters behind a pooler."""
PAGE = 1000


class PostgresEar:
    """A separate connection that listens first, so that later looks miss nothing."""

    def __init__(self, driver: PostgresDriver, cancel: Cancel) -> None:
        self._driver = driver
        self._channel = CHANNEL.format(driver.space)
        self._cancel = cancel
        self._listen()

    def _listen(self) -> None:
        self._db = self._driver.talk()
        try:
            ask(self._db, f"LISTEN {self._channel}")
            self._be_heard_of()
        except psycopg.Error as error:
            self._db.finish()
            raise self._driver.meaning(error)[0] from error
        self._asked = False
        self._poll = select.poll()
        self._poll.register(self._db.socket, select.POLLIN)
        self._poll.register(self._cancel, select.POLLIN)

    def _be_heard_of(self) -> None:
        """Let writers know that this process listens."""
        given = {"ear": EAR_LOCK, "space": self._driver.space, "lock_ms": EAR_LOCK_MS}
        try:
            ask(self._db, *POSTGRES.listen.bind("postgres", given))
            self._known = True
        except pg.LockNotAvailable:
            self._known = False  # a commit is stuck, so there is nothing to hear yet
        self._heard = time.monotonic()

    def watch(self, topic: str) -> None:
        """Does nothing: the channel carries all of them."""

    def unwatch(self, topic: str) -> None:
        """Likewise."""

    def hear(self, seconds: float) -> set[str]:
        try:
            if self._deaf():
                self._db.finish()
                self._listen()
                return {EVERYBODY}  # it may have missed something
            ready = self._poll.poll(seconds * 1000)
            if not self._known:
                self._be_heard_of()  # nobody rings until then
                return self._rung() | {EVERYBODY}
            return self._rung() if ready else set()
        except psycopg.Error as error:
            raise self._driver.meaning(error)[0] from error

    def _deaf(self) -> bool:
        """Whether the server is silent; if it has been for a while, send it something."""
        silent_s = time.monotonic() - self._heard
        if self._asked:
            return silent_s > EAR_S + ANSWER_S
        if silent_s > EAR_S:
            self._db.send_query(f"LISTEN {self._channel}".encode())
            self._db.flush()
            self._asked = True
        return False

    def _rung(self) -> set[str]:
        rung: set[str] = set()
        self._db.consume_input()
        while self._asked and not self._db.is_busy():
            self._asked = self._db.get_result() is not None
            self._heard = time.monotonic()
        while (notice := self._db.notifies()) is not None:
            self._heard = time.monotonic()
            # Other programs may use the channel too, and may not send topics.
            rung.update(notice.extra.decode(errors="replace").split())
        return rung

    def close(self) -> None:
        self._db.finish()


class LookingEar:
    """Hears by polling, for all waiters of a process: behind a pooler no connection is its own.

    The journal has what a bell would have said.
    """

    def __init__(self, driver: PostgresDriver, cancel: Cancel) -> None:
        self._driver = driver
        self._numbers: set[str] = set()
        """The numbers that have waiters."""
        self._poll = select.poll()
        self._poll.register(cancel, select.POLLIN)
        self._seq: int = self._read(SPACE.position, {})[0]["seq"]

    def _read(self, query: Query, given: Row) -> list[Row]:
        connection = self._driver.take()
        asked = given | {"space": self._driver.space}
        try:
            connection.begin_read(lambda: [(query, asked)])
            return connection.rows(query, asked)
        finally:
            connection.rollback()
            self._driver.give_back(connection)

    def watch(self, topic: str) -> None:
        if topic.isdigit():
            self._numbers.add(topic)

    def unwatch(self, topic: str) -> None:
        self._numbers.discard(topic)

    def hear(self, seconds: float) -> set[str]:
        if self._poll.poll(min(seconds, POOLED_S) * 1000):
            return set()
        events = self._read(SPACE.moved, {"after": self._seq, "limit": PAGE})
        if not events:
            return set()
        gap = events[0]["seq"] != self._seq + 1  # some were pruned, and it is unknown whose
        self._seq = events[-1]["seq"]
        rung = {EVERYBODY} if gap else set()
        for event in events:
            rung.add(event["kind"].partition(".")[0])
            if self._numbers and event["data"]:
                # The event that assigned a number does not wake its own waiter.
                said = [value for value in json.loads(event["data"]).values() if type(value) is int]
                rung.update(str(one) for one in said if one < event["seq"])
        return rung

    def close(self) -> None:
        """Does nothing: nothing is open."""
