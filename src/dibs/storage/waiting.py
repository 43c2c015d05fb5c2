"""Sleeping until a bell rings, on one machine, and how another thread ends such a wait.

The kernel reports the byte that a writer leaves in a bell's file (inotify on Linux; where there
is none, a waiter looks at the files' times every 20 ms). Only those who wait load this module.

A process that serves many callers has many who wait. If each had an ear of its own, a thousand
would be woken by every write. So it has a *hub*, one ear for all of them, which wakes those whose
topic an event concerns; whoever makes the hub says which these are. What this process writes
itself the hub is told; for what others write, one thread follows the journal.

As everywhere, being woken is a hint: who is woken looks again.
"""

from __future__ import annotations

import os
import select
import sys
import time
from _thread import allocate_lock
from contextvars import ContextVar

from dibs.errors import CancelledError, ClosedError, UnavailableError
from dibs.storage.folder import open_own
from dibs.storage.queries import Queries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dibs.storage.driver import Driver, Listener, Row
    from dibs.storage.store import Store

SPACE = Queries("space")
IN_MODIFY = 0x2
ALL_BYTES = 65_536
"""All that a pipe holds, so that one read takes every ring."""
POLL_S = 0.02
PATIENCE_S = 0.5
"""How long a lost hint can cost; also how soon the death of a process is noticed."""
PAGE = 1000
WAIT_S = 3600.0
RETRY_S = 0.5
PACE_S = 0.005
"""How long to rest between two looks at the journal."""
STOP_S = 5.0


class Cancel:
    """A wait in another thread can be ended through this."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.called = False

    def __call__(self) -> None:
        self.called = True
        os.write(self._write, b"!")

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


CANCEL: ContextVar[Cancel | None] = ContextVar("cancel", default=None)


def listen(paths: list[str], cancel: int | None, idle: list[int]) -> Listener:
    """Listen to the bells at these paths; `idle` are inotify handles that nobody uses now."""
    for path in paths:
        os.close(open_own(path, os.O_RDWR | os.O_CREAT))
    if sys.platform == "linux":
        try:
            return InotifyListener(paths, cancel, idle)
        except OSError:
            # The kernel allows a user only so many (128 by default); the next waits by looking.
            pass
    return PollListener(paths, cancel)


class Ear:
    """Hears what can be read from a handle, and that a wait is cancelled."""

    def __init__(self, handle: int, cancel: int | None) -> None:
        self._handle = handle
        self._poll = select.poll()
        self._poll.register(handle, select.POLLIN)
        if cancel is not None:
            self._poll.register(cancel, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        ready = self._poll.poll(seconds * 1000)
        if any(handle == self._handle for handle, _ in ready):
            os.read(self._handle, ALL_BYTES)
        return bool(ready)


class InotifyListener(Ear):
    """The kernel takes 10 ms and more to close an inotify handle, so it is kept for the next."""

    patience_s = PATIENCE_S

    def __init__(self, paths: list[str], cancel: int | None, idle: list[int]) -> None:
        # Imported here because only those who wait need it, and it is not cheap.
        import ctypes

        self._libc = ctypes.CDLL(None, use_errno=True)
        self._idle = idle
        self._watches: list[int] = []
        try:
            handle = idle.pop()
        except IndexError:
            handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if handle < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        super().__init__(handle, cancel)
        for path in paths:
            watch = self._libc.inotify_add_watch(self._handle, os.fsencode(path), IN_MODIFY)
            if watch < 0:
                error = OSError(ctypes.get_errno(), "inotify_add_watch", path)
                self.close()
                raise error
            self._watches.append(watch)

    def close(self) -> None:
        for watch in self._watches:
            self._libc.inotify_rm_watch(self._handle, watch)
        try:
            os.read(self._handle, ALL_BYTES)  # what it has not looked at is not for the next
        except BlockingIOError:
            pass
        self._idle.append(self._handle)


class PollListener:
    patience_s = PATIENCE_S

    def __init__(self, paths: list[str], cancel: int | None) -> None:
        self._paths = paths
        self._cancel = cancel
        self._seen = self._times()

    def _times(self) -> list[int]:
        try:
            return [os.stat(path).st_mtime_ns for path in self._paths]
        except FileNotFoundError:
            return []  # the store is being deleted; the next look finds that out

    def wait(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while True:
            before, self._seen = self._seen, self._times()
            if self._seen != before:
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            watched = [] if self._cancel is None else [self._cancel]
            if select.select(watched, [], [], min(left, POLL_S))[0]:
                return True

    def close(self) -> None:
        self._paths = []


class Looker:
    """Waits by looking: through a pooler, no connection is one's own to listen with."""

    patience_s = 0.1

    def __init__(self, cancel: int | None) -> None:
        self._poll = select.poll()
        if cancel is not None:
            self._poll.register(cancel, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        return bool(self._poll.poll(seconds * 1000))

    def close(self) -> None:
        """Nothing is open."""


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

    def start(self, store: Store, driver: Driver) -> None:
        """Follow the journal of a store, with an ear of its own to that driver's bells."""
        from threading import Thread  # late, since only a daemon has a hub

        with store.read() as tx:
            self._seq = tx.rows(SPACE.position)[0]["seq"]
        self._thread = Thread(target=self._follow, args=(store, driver), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Follow no more; after this the store may be closed."""
        self._cancel()
        self._thread.join(STOP_S)

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

    def _wake(self, events: list[Row], after: int, gap: bool = False) -> None:
        """Wake those whom these events concern, which are the next ones after a seq.

        gap: some before them were pruned, so that nobody knows whom they concerned
        """
        last, woken = events[-1]["seq"], set[HubListener]()
        with self._lock:
            # Who comes later has not looked yet, and will.
            for event in events if self._waiters else ():
                concerned = self._touched(event["kind"], event["subject"], event["data"] or "")
                woken.update(*(self._waiters.get(key, ()) for key in concerned))
            for listener in woken.union(*self._waiters.values()) if gap else woken:
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

        while True:
            try:
                found = store.wait(look, self._nouns, WAIT_S, driver)
            except (CancelledError, ClosedError):
                self._cancel.close()
                return
            except (UnavailableError, OSError):  # such as when no descriptor is left
                if select.select([self._cancel], [], [], RETRY_S)[0]:
                    self._cancel.close()
                    return
                continue
            if found is not None:
                after, events = found
                self._wake(events, after, gap=events[0]["seq"] != after + 1)


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
