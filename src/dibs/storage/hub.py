"""One ear for all who wait in this process.

A process that serves many callers has many who wait. If each had an ear of its own, a thousand
would be woken by every write. Here those are woken whose topic an event concerns; whoever makes
the hub says which these are. What this process writes itself the hub is told; for what others
write, one thread follows the journal.

As everywhere, being woken is a hint: who is woken looks again.
"""

from __future__ import annotations

import os
import select
import time
from _thread import allocate_lock, start_new_thread

from dibs.errors import CancelledError, ClosedError, UnavailableError
from dibs.storage.queries import Queries
from dibs.storage.waiting import CANCEL, Cancel, Ear

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dibs.storage.driver import Driver, Row
    from dibs.storage.store import Store

SPACE = Queries("space")
PAGE = 1000
WAIT_S = 3600.0
RETRY_S = 0.5
PACE_S = 0.005
"""How long to rest between two looks at the journal."""
STOP_S = 5.0


class Hub:
    """Who waits for what, and the thread that wakes them."""

    def __init__(
        self,
        nouns: tuple[str, ...],
        keys: Callable[[str], Iterable[str]],
        touched: Callable[[str, str, str], Iterable[str]],
        moved: Callable[[int], None],
    ) -> None:
        """A hub for these topics.

        nouns: whose bells ring for all that the journal may hold
        keys: what a topic is woken by
        touched: from kind, subject and data of an event, the keys of those it may concern
        moved: called with each seq that the journal has come to
        """
        self._nouns = nouns
        self._keys = keys
        self._touched = touched
        self._moved = moved
        self._seq = 0
        """Up to where everybody has been woken."""
        self._lock = allocate_lock()
        self._waiters: dict[str, set[HubListener]] = {}
        self._cancel = Cancel()
        self._following = allocate_lock()
        """Held while the thread is at it."""

    def start(self, store: Store, driver: Driver) -> None:
        """Follow the journal of a store, with an ear of its own to that driver's bells."""
        with store.read() as tx:
            self._seq = tx.rows(SPACE.position)[0]["seq"]
        self._following.acquire()
        start_new_thread(self._follow, (store, driver))

    def stop(self) -> None:
        """Follow no more; after this the store may be closed."""
        self._cancel()
        self._following.acquire(timeout=STOP_S)

    def listen(self, topics: tuple[str, ...], cancel: int | None) -> HubListener:
        # Each once: two resources have the same ones above them.
        wanted = list(dict.fromkeys(key for topic in topics for key in self._keys(topic)))
        listener = HubListener(self, wanted, cancel)
        with self._lock:
            for key in listener.keys:
                self._waiters.setdefault(key, set()).add(listener)
        return listener

    def forget(self, listener: HubListener) -> None:
        with self._lock:
            for key in listener.keys:
                waiters = self._waiters[key]
                waiters.discard(listener)
                if not waiters:
                    del self._waiters[key]

    def told(self, events: list[Row]) -> None:
        """Wake those whom these events concern, which this process has just committed."""
        self._wake(events, events[0]["seq"] - 1)

    def _wake(self, events: list[Row], after: int) -> None:
        """Wake those whom these events concern, which are the next ones after a seq."""
        last, woken = events[-1]["seq"], set[HubListener]()
        with self._lock:
            # Who comes later has not looked yet, and will.
            for event in events if self._waiters else ():
                concerned = self._touched(event["kind"], event["subject"], event["data"] or "")
                woken.update(*(self._waiters.get(key, ()) for key in concerned))
            for listener in woken:
                listener.ring()
            if after <= self._seq < last:
                self._seq = last
        self._moved(last)

    def _follow(self, store: Store, driver: Driver) -> None:
        CANCEL.set(self._cancel)
        rested = 0.0

        def look() -> tuple[tuple[int, list[Row]] | None, None]:
            # Our own writes ring as well; who looked after each of them would do nothing else.
            nonlocal rested
            select.select([self._cancel], [], [], max(0.0, rested - time.monotonic()))
            rested = time.monotonic() + PACE_S
            after = self._seq
            with store.read() as tx:
                events = tx.rows(SPACE.moved, after=after, limit=PAGE)
            return ((after, events) if events else None), None

        try:
            while True:
                try:
                    found = store.wait(look, self._nouns, WAIT_S, driver)
                except (CancelledError, ClosedError):
                    self._cancel.close()
                    return
                except UnavailableError:
                    select.select([self._cancel], [], [], RETRY_S)
                    continue
                if found is not None:
                    after, events = found
                    self._wake(events, after)
        finally:
            self._following.release()


class HubListener(Ear):
    # The hub itself looks every half second, and the daemon looks after the dead: what is left
    # for these looks is to make up for a bug.
    patience_s = 20.0

    def __init__(self, hub: Hub, topics: list[str], cancel: int | None) -> None:
        self.keys = topics
        self._hub = hub
        read, self._write = os.pipe()  # no child inherits them
        os.set_blocking(read, False)
        os.set_blocking(self._write, False)
        super().__init__(read, cancel)

    def ring(self) -> None:
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            return  # full of rings that nobody has heard yet: one more would say nothing new

    def close(self) -> None:
        self._hub.forget(self)
        os.close(self._handle)
        os.close(self._write)
