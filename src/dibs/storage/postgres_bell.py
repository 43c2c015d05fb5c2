"""PostgreSQL's bell: NOTIFY, at a pace that leaves the server to writers.

A notice takes a lock of the whole server at its commit, and wakes every listening connection in
any space. A process that rings only now and then does so with its commit. Notices that follow soon
after are collected over all its spaces, and one thread sends them together. Between two notices it
pauses, longer if the server is slow, and at most for `REST_MOST_S`.

A bell is a hint. If the process dies before it has rung, waiters notice what happened when they
look by themselves, within `PATIENCE_S`.
"""

from __future__ import annotations

import atexit
import os
import time
from queue import Empty, SimpleQueue
from threading import Lock, Thread

import psycopg

from dibs.errors import DibsError
from dibs.storage.postgres_connect import SOON_S, Address
from dibs.storage.postgres_pipeline import ask
from dibs.storage.queries import Queries
from dibs.storage.waiting import EVERYBODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg.pq.abc import PGconn

POSTGRES = Queries("postgres")
PAYLOAD_LIMIT = 7_900
"""A notice can have 8,000 bytes; a longer one wakes everybody instead."""
REST_LEAST_S, REST_MOST_S = 0.001, 0.2
QUICK_S = 0.000_25
"""How long a notice takes on an idle server; the pause after it is as long. If a notice takes ten
times as long, the pause is a hundred times as long."""
KEPT_S = 2.0
"""How long the thread and its connection are kept when there is nothing to ring."""


class Bell:
    """The bells that one process rings at one server.

    No lock is waited for: a signal handler may ring while the same thread does.
    """

    def __init__(self, hosts: Address) -> None:
        self._hosts = hosts
        self._rest_s, self._next = REST_LEAST_S, 0.0
        self._gathered: SimpleQueue[tuple[str, frozenset[str]]] = SimpleQueue()
        self._rings = Lock()
        """Held by the thread that rings, while there is one."""

    def at_once(self) -> bool:
        """Whether one more may be rung with its commit; if so, it must be."""
        now = time.monotonic()
        if now < self._next or not self._gathered.empty():
            return False
        self._next = now + self._rest_s
        return True

    def later(self, channel: str, topics: Iterable[str]) -> None:
        """Ring this soon; what it announces must have been committed."""
        self._gathered.put((channel, frozenset(topics)))
        self._start()

    def _start(self) -> None:
        if self._rings.acquire(blocking=False):
            try:
                Thread(target=self._run, name="dibs-bell", daemon=True).start()
            except RuntimeError:
                self._rings.release()  # no more threads: the next ring tries again

    def _run(self) -> None:
        talk = None
        try:
            while True:
                # Put back with the others: closing the store rings all that is left.
                self._gathered.put(self._gathered.get(timeout=KEPT_S))
                time.sleep(max(0.0, self._next - time.monotonic()))
                found = self._all()
                if not found:
                    continue  # it was rung when a store was closed
                talk, took_s = self._send(talk, found)
                self._rest_s = min(REST_MOST_S, max(REST_LEAST_S, took_s * took_s / QUICK_S))
                self._next = time.monotonic() + self._rest_s
        except Empty:
            pass  # nobody rings any more
        finally:
            if talk is not None:
                talk.finish()
            self._rings.release()
        if not self._gathered.empty():
            self._start()

    def _all(self) -> list[tuple[str, frozenset[str]]]:
        """What has been collected so far; the thread and `flush` may each take some of it."""
        found = []
        try:
            while True:
                found.append(self._gathered.get_nowait())
        except Empty:
            return found

    def _send(
        self, talk: PGconn | None, gathered: list[tuple[str, frozenset[str]]]
    ) -> tuple[PGconn | None, float]:
        """Ring each channel once; return the connection, if still usable, and how long it took."""
        rung: dict[str, set[str]] = {}
        for channel, topics in gathered:
            rung.setdefault(channel, set()).update(topics)
        began = time.monotonic()
        try:
            if talk is None:
                talk, began = self._hosts.connect(SOON_S), time.monotonic()
            notices = [notice(channel, topics) for channel, topics in rung.items()]
            ask(talk, *ringing(notices), SOON_S)
        except (psycopg.Error, DibsError):
            # Waiters look anyway, and writers are told what is wrong.
            if talk is not None:
                talk.finish()
                talk = None
        return talk, time.monotonic() - began

    def flush(self) -> None:
        """Ring what is left, since there may be nobody to do it later."""
        gathered = self._all()
        talk = self._send(None, gathered)[0] if gathered else None
        if talk is not None:
            talk.finish()


def notice(channel: str, topics: Iterable[str]) -> str:
    payload = " ".join(sorted(topics))
    return f"{channel} {payload if len(payload) <= PAYLOAD_LIMIT else EVERYBODY}"


def ringing(notices: list[str]) -> tuple[str, tuple[str, ...]]:
    """The statement that rings these."""
    return POSTGRES.notify.bind("postgres", {"notices": notices})


_BELLS: dict[tuple[int, str], Bell] = {}


def bell_of(url: str, hosts: Address) -> Bell:
    """The bell of this process at that address, which all its spaces there share."""
    found = _BELLS.get((os.getpid(), url))
    if found is None:
        found = _BELLS.setdefault((os.getpid(), url), Bell(hosts))
        atexit.register(found.flush)
    return found
