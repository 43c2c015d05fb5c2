"""Sleeping until a bell rings, and how another thread ends such a wait.

A process may have a thousand waiters. They sleep in one *room*: one thread listens, and wakes the
waiters that a bell concerns. On one machine the kernel reports the byte that a writer leaves in a
bell's file (inotify on Linux; elsewhere the thread checks the files' times every 20 ms); a server
sends its notices. Only processes that wait load this module.

Being woken is a hint: a woken waiter looks again. Hints may get lost and processes may die, so
somebody has to look now and then without one. In each line, that is the first waiter.
"""

from __future__ import annotations

import os
import select
import time
from _thread import RLock, allocate_lock, start_new_thread
from contextvars import ContextVar

from dibs.errors import DibsError, StorageError
from dibs.storage.folder import open_own
from dibs.system import inotify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    from dibs.system.linux import Inotify

    class Ear(Protocol):
        """What one thread of a process hears bells with, for all its waiters."""

        def watch(self, topic: str) -> None: ...

        def unwatch(self, topic: str) -> None: ...

        def hear(self, seconds: float) -> Iterable[str]:
            """Wait for bells, or until it is cancelled; return which have rung."""

        def close(self) -> None: ...


POLL_S = 0.02
STEP_NS = 20_000_000
PATIENCE_S = 0.5
"""The delay that a lost hint can cause; also how soon a process's death is noticed."""
STOP_S = 5.0
IDLE_S = 5.0
"""How long an unused ear is kept."""
UNASKED_S, UNASKED_PER_S = 10.0, 10.0
"""The longest time without a look, and the maximum number of looks per second in a line."""
FRESH_S = 1.0
"""How long a notification is valid: a process that was frozen since must look again."""
EVERYBODY = "*"


class Cancel:
    """A wait in another thread can be ended through this."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.called = False
        self.wake: Callable[[], None] | None = None
        """Tells a waiter that sleeps in a room, where no handle is waited for."""

    def __call__(self) -> None:
        self.called = True
        os.write(self._write, b"!")
        wake = self.wake
        if wake is not None:
            wake()

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


CANCEL: ContextVar[Cancel | None] = ContextVar("cancel", default=None)


class HubListener:
    """A waiter in a room."""

    def __init__(self, room: Room, keys: list[str], line: str, cancel: Cancel | None) -> None:
        self.keys = keys
        self.line = line
        self._room = room
        self._rung = False
        self.told: Callable[[], None] | None = None
        """Called instead of waking a thread, if no thread waits."""
        self._given: tuple[float, Any] | None = None
        self.error: DibsError | None = None
        self._gate = allocate_lock()
        self._gate.acquire()
        if cancel is not None:
            cancel.wake = self.ring
        self._cancel = cancel

    @property
    def leads(self) -> bool:
        """Whether it is the first in its line, which looks for all of them, or is in none."""
        return self._room.leads(self)

    @property
    def patience_s(self) -> float:
        """When to look without a hint, as a safety net: the first in a line does so sooner."""
        return max(UNASKED_S, self._room.length(self.line) / UNASKED_PER_S)

    def ring(self, given: object = None) -> None:
        """Wake it; given: what it waited for, if this process granted it."""
        if given is not None:
            self._given = time.monotonic(), given
        self._rung = True
        self.nudge()

    @property
    def given(self) -> Any:
        """What it was brought a moment ago; None if it must look."""
        given = self._given
        return given[1] if given is not None and time.monotonic() - given[0] < FRESH_S else None

    def nudge(self) -> None:
        """Make it look without a bell."""
        told = self.told
        if told is not None:
            told()
            return
        try:
            self._gate.release()
        except RuntimeError:
            return  # it is awake, or about to be

    def wait(self, seconds: float) -> bool:
        self._gate.acquire(timeout=seconds)
        if self.error is not None:
            raise self.error
        rung, self._rung = self._rung, False
        return rung

    def close(self) -> None:
        self._room.forget(self)
        if self._cancel is not None:
            self._cancel.wake = None


class Room:
    """Who sleeps, and what wakes which waiter."""

    def __init__(self) -> None:
        self._lock = RLock()  # a signal handler may write while its thread is in here
        self._waiters: dict[str, set[HubListener]] = {}
        self._lines: dict[str, dict[HubListener, None]] = {}

    def _enter(self, listener: HubListener) -> None:
        for key in listener.keys:
            self._waiters.setdefault(key, set()).add(listener)
        self._lines.setdefault(listener.line, {})[listener] = None

    def forget(self, listener: HubListener) -> None:
        with self._lock:
            for key in listener.keys:
                waiters = self._waiters.get(key, set())
                waiters.discard(listener)
                if not waiters:
                    self._waiters.pop(key, None)
            line = self._lines.get(listener.line, {})
            line.pop(listener, None)
            if not line:
                self._lines.pop(listener.line, None)

    def leads(self, listener: HubListener) -> bool:
        if not listener.line:
            return True  # nobody else waits for the same
        with self._lock:
            return next(iter(self._lines.get(listener.line, (listener,)))) is listener

    def length(self, line: str) -> int:
        """How many are in a line; 0 for waiters without one."""
        return len(self._lines.get(line, ())) if line else 0

    def ring(self, key: str, given: object = None) -> bool:
        """Wake the waiters for this key; return whether there are any."""
        with self._lock:
            found = list(self._waiters.get(key, ()))
            for listener in found:
                listener.ring(given)
            return bool(found)

    def has(self, key: str) -> bool:
        """Whether there are waiters for this key."""
        return key in self._waiters

    def nudge(self, alone: bool = True) -> None:
        """Make the first of each line look, and on request all that are in none."""
        with self._lock:
            for line, listeners in self._lines.items():
                for listener in listeners if line or alone else ():
                    listener.nudge()
                    if line:
                        break


class Ears(Room):
    """The room of a process that has a store open, and its ear."""

    def __init__(self, listen: Callable[[Cancel], Ear]) -> None:
        super().__init__()
        self._listen = listen
        self._making = RLock()
        """Held while an ear is made, which may take seconds; leaving does not need it."""
        self._watching = RLock()
        """Held while a waiter enters or leaves: otherwise one could remove another's watch."""
        self._ear: Ear | None = None
        self._cancel: Cancel | None = None
        self._over = allocate_lock()
        self._error: DibsError | None = None
        """Why the last ear stopped."""

    def listen(self, topics: tuple[str, ...], cancel: Cancel | None) -> HubListener:
        listener = self._listener(topics, cancel)
        while True:
            with self._making:
                if self._seat(listener, self._ear or self._make()):
                    return listener
            if self._error is not None:
                raise self._error

    def listen_soon(self, topics: tuple[str, ...], cancel: Cancel | None) -> HubListener | None:
        """The same if there is an ear already."""
        ear = self._ear
        if ear is None:
            return None
        listener = self._listener(topics, cancel)
        return listener if self._seat(listener, ear) else None

    def _listener(self, topics: tuple[str, ...], cancel: Cancel | None) -> HubListener:
        keys = list(dict.fromkeys(topic.partition(":")[0] for topic in topics))
        return HubListener(self, keys, line_of(topics), cancel)

    def _seat(self, listener: HubListener, ear: Ear) -> bool:
        """Let it wait here; not if the ear has just ended."""
        with self._watching:
            if self._ear is not ear:
                return False
            with self._lock:
                self._enter(listener)
            try:
                for key in listener.keys:
                    ear.watch(key)
            except BaseException:
                super().forget(listener)
                raise
        return True

    def _make(self) -> Ear:
        cancel, over = Cancel(), allocate_lock()
        over.acquire()
        try:
            ear = self._listen(cancel)
            self._error, self._ear, self._cancel, self._over = None, ear, cancel, over
            start_new_thread(self._follow, (ear, cancel, over))
        except BaseException:
            self._ear = None
            cancel.close()
            raise
        return ear

    def forget(self, listener: HubListener) -> None:
        with self._watching:
            super().forget(listener)
            ear = self._ear
            for key in listener.keys:
                if ear is not None and key not in self._waiters:
                    ear.unwatch(key)

    def _follow(self, ear: Ear, cancel: Cancel, over: LockType) -> None:
        look_at = used_at = time.monotonic()
        try:
            while not cancel.called:
                for key in ear.hear(max(0.0, look_at - time.monotonic())):
                    if key == EVERYBODY:
                        self._ring_all()
                    else:
                        self.ring(key)
                now = time.monotonic()
                if now >= look_at:
                    look_at = now + PATIENCE_S
                    self.nudge()
                    if self._waiters:
                        used_at = now
                    elif now - used_at > IDLE_S and self._retire(ear):
                        break
        except Exception as error:
            # The waiters are told, and look by themselves.
            if not isinstance(error, DibsError):
                error = StorageError(f"listening for changes failed: {error!r}", next="try again")
            self._retire(ear, error)
        finally:
            ear.close()
            over.release()
            if not cancel.called:  # otherwise the canceller closes it
                cancel.close()

    def _retire(self, ear: Ear, error: DibsError | None = None) -> bool:
        """Stop listening until a new waiter comes, unless there is one."""
        with self._watching, self._lock:
            if self._ear is not ear or (self._waiters and error is None):
                return False
            self._ear, self._error = None, error
            for listeners in self._lines.values():
                for listener in listeners:
                    listener.error = error
                    listener.nudge()
            return True

    def _ring_all(self) -> None:
        with self._lock:
            for listeners in self._lines.values():
                for listener in listeners:
                    listener.ring()

    def close(self) -> None:
        """Stop listening; after this the store may be closed."""
        with self._watching:
            ear, self._ear = self._ear, None
            cancel, over = self._cancel, self._over
            if ear is None or cancel is None:
                return
            cancel()
        self._ring_all()  # waiters that look now notice that it is closed
        over.acquire(timeout=STOP_S)
        cancel.close()


def line_of(topics: tuple[str, ...]) -> str:
    """The line of a waiter with a number (`17:name of the line`)."""
    numbered = [topic for topic in topics if topic[0].isdigit()]
    return numbered[0].partition(":")[2] if numbered else ""


class InotifyEar:
    def __init__(self, path: Callable[[str], str], cancel: Cancel, kernel: Inotify) -> None:
        self._path = path
        self._kernel = kernel
        self._watches: dict[str, int] = {}
        self._topics: dict[int, str] = {}
        self._poll = select.poll()
        self._poll.register(kernel.handle, select.POLLIN)
        self._poll.register(cancel, select.POLLIN)
        self._others = PollEar(path, cancel)
        """For files that the kernel does not watch: a user may have only so many watches."""

    def watch(self, topic: str) -> None:
        path = self._path(topic)
        os.close(open_own(path, os.O_RDWR | os.O_CREAT))
        if topic in self._watches:
            return
        watch = self._kernel.add(path)
        if watch < 0:
            self._others.watch(topic)
        else:
            self._watches[topic], self._topics[watch] = watch, topic

    def unwatch(self, topic: str) -> None:
        self._others.unwatch(topic)
        watch = self._watches.pop(topic, None)
        if watch is not None:
            self._topics.pop(watch, None)
            self._kernel.remove(watch)

    def hear(self, seconds: float) -> set[str]:
        rung = self._others.rung()
        most_s = POLL_S if self._others.seen else seconds
        for handle, _ in self._poll.poll(0 if rung else min(seconds, most_s) * 1000):
            if handle == self._kernel.handle:
                for watch in self._kernel.read():
                    if watch in self._topics:
                        rung.add(self._topics[watch])
                    elif watch < 0:  # the kernel has dropped some
                        rung.add(EVERYBODY)
        return rung

    def close(self) -> None:
        for watch in self._watches.values():
            self._kernel.remove(watch)
        self._kernel.put_away()


class PollEar:
    def __init__(self, path: Callable[[str], str], cancel: Cancel, step_s: float = POLL_S) -> None:
        self._path = path
        self._cancel = cancel
        self._step_s = step_s
        self.seen: dict[str, int] = {}

    def watch(self, topic: str) -> None:
        os.close(open_own(self._path(topic), os.O_RDWR | os.O_CREAT))
        self.seen.setdefault(topic, settled(self._time(topic)))

    def unwatch(self, topic: str) -> None:
        self.seen.pop(topic, None)

    def _time(self, topic: str) -> int:
        try:
            return os.stat(self._path(topic)).st_mtime_ns
        except FileNotFoundError:
            return 0  # the store is being deleted; the next look notices it

    def rung(self) -> set[str]:
        """What has rung since the last look."""
        times = {topic: self._time(topic) for topic in list(self.seen)}
        rung = {topic for topic, seen in times.items() if self.seen.get(topic, seen) != seen}
        for topic in rung:
            self.seen[topic] = settled(times[topic])
        return rung

    def hear(self, seconds: float) -> set[str]:
        end = time.monotonic() + seconds
        while True:
            rung = self.rung()
            left = min(end - time.monotonic(), self._step_s)
            if rung or left <= 0 or select.select([self._cancel], [], [], left)[0]:
                return rung

    def close(self) -> None:
        self.seen = {}


def settled(at: int) -> int:
    """A file's time, or None if it may be written again without a visible change.

    The disk's clock advances in steps. An extra wake-up only costs an extra look.
    """
    return at if abs(time.time_ns() - at) > STEP_NS else -1


def file_ear(
    path: Callable[[str], str], idle: list[int], step_s: float = POLL_S
) -> Callable[[Cancel], Ear]:
    """What hears the bells of a machine.

    idle: unused inotify handles
    step_s: how often it looks where the kernel reports nothing
    """

    def listen(cancel: Cancel) -> Ear:
        kernel = inotify(idle)
        if kernel is None:
            return PollEar(path, cancel, step_s)
        return InotifyEar(path, cancel, kernel)

    return listen
