"""Sleeping until a bell rings, on one machine, and how another thread ends such a wait.

The kernel reports the byte that a writer leaves in a bell's file (inotify on Linux; where there
is none, a waiter looks at the files' times every 20 ms). Only those who wait load this module.
"""

from __future__ import annotations

import os
import select
import sys
import time
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.storage.driver import Listener

IN_MODIFY = 0x2
ALL_BYTES = 65_536
"""All that a pipe holds, so that one read takes every ring."""
POLL_S = 0.02
PATIENCE_S = 0.5
"""How long a lost hint can cost; also how soon the death of a process is noticed."""


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
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
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
