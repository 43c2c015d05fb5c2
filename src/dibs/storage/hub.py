"""One ear for all who wait in this process.

A process that serves many callers has many who wait. If each had an ear of its own, a thousand
would be woken by every write. Here those are woken whose topic an event concerns: `message:bob`
by what is sent to bob or to everybody, `lease:src` by what happens to `src`, above it or below
it, and a plain `task` by every event of that noun. What this process writes itself the hub is
told; for what others write, one thread follows the journal.

As everywhere, being woken is a hint: who is woken looks again.
"""

from __future__ import annotations

import json
import os
import select
import time
from _thread import allocate_lock, start_new_thread

from dibs.errors import CancelledError, ClosedError, UnavailableError
from dibs.storage.queries import Queries
from dibs.storage.store import CANCEL, Cancel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dibs.storage.driver import Driver, Row
    from dibs.storage.store import Store

SPACE = Queries("space")
NOUNS = ("session", "lease", "task", "message", "entry", "token", "space")
PAGE = 1000
WAIT_S = 3600.0
RETRY_S = 0.5
PACE_S = 0.005
"""How long to rest between two looks at the journal."""
STOP_S = 5.0


class Hub:
    """Who waits for what, and the thread that wakes them."""

    def __init__(self, moved: Callable[[int], None]) -> None:
        """A hub that calls `moved` with each seq that the journal has come to."""
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
        start_new_thread(self._run, (store, driver))

    def stop(self) -> None:
        """Follow no more; after this the store may be closed."""
        self._cancel()
        self._following.acquire(timeout=STOP_S)

    def listen(self, topics: tuple[str, ...], cancel: int | None) -> HubListener:
        # Each once: two resources have the same ones above them.
        wanted = list(dict.fromkeys(key for topic in topics for key in keys(topic)))
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
        last = events[-1]["seq"]
        with self._lock:
            # Who comes later has not looked yet, and will.
            for listener in self._concerned(events) if self._waiters else ():
                listener.ring()
            if after <= self._seq < last:
                self._seq = last
        self._moved(last)

    def _concerned(self, events: list[Row]) -> set[HubListener]:
        woken: set[str] = set()
        for event in events:
            woken.update(touched(event["kind"], event["subject"], event["data"] or ""))
        return {listener for key in woken for listener in self._waiters.get(key, ())}

    def _run(self, store: Store, driver: Driver) -> None:
        try:
            self._follow(store, driver)
        finally:
            self._following.release()

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

        while True:
            try:
                found = store.wait(look, NOUNS, WAIT_S, driver)
            except (CancelledError, ClosedError):
                self._cancel.close()
                return
            except UnavailableError:
                select.select([self._cancel], [], [], RETRY_S)
                continue
            if found is not None:
                after, events = found
                self._wake(events, after)


def keys(topic: str) -> list[str]:
    """What a topic is woken by."""
    noun, _, subject = topic.partition(":")
    if noun != "lease" or not subject:
        return [topic, f"{noun}:"] if subject else [topic]
    above = list(ancestors(subject))
    return [f"at {above[0]}", *(f"under {base}" for base in above)]


def touched(kind: str, subject: str, data: str) -> Iterator[str]:
    """The keys of those whom an event may concern."""
    noun = kind.partition(".")[0]
    yield noun
    yield f"{noun}:{subject}"
    if noun == "lease":
        above = list(ancestors(subject))
        yield f"under {above[0]}"
        for base in above:
            yield f"at {base}"
        if '"ticket":' in data:
            yield str(json.loads(data)["ticket"])


def ancestors(subject: str) -> Iterator[str]:
    """The fixed part of a resource, and all that it lies in."""
    base = subject.partition("*")[0].partition("?")[0]
    if base != subject or base == ".":
        base = base.rpartition("/")[0]
    while base:
        yield base
        base = base.rpartition("/")[0]
    yield ""


class HubListener:
    # The hub itself looks every half second, and the daemon looks after the dead: what is left
    # for these looks is to mend a bug.
    patience_s = 20.0

    def __init__(self, hub: Hub, topics: list[str], cancel: int | None) -> None:
        self.keys = topics
        self._hub = hub
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._event, select.POLLIN)
        if cancel is not None:
            self._poll.register(cancel, select.POLLIN)

    def ring(self) -> None:
        os.eventfd_write(self._event, 1)

    def wait(self, seconds: float) -> bool:
        ready = self._poll.poll(seconds * 1000)
        if any(handle == self._event for handle, _ in ready):
            os.eventfd_read(self._event)
        return bool(ready)

    def close(self) -> None:
        self._hub.forget(self)
        os.close(self._event)
