"""The bell: how a commit wakes those who wait, on one machine.

A bell is a hint; the tables are the truth. After its commit a writer writes one byte into
a file per topic, and a waiter sleeps until the kernel reports that (inotify on Linux; where
there is none, it looks at the files' times every 20 ms). A hint that is lost, because the
writer died right after its commit, costs a waiter at most one slow look.

A ticket in a lease's queue has a bell of its own, its liveness file, so that a release
wakes the one who got the lease and nobody else.
"""

from __future__ import annotations

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

IN_MODIFY = 0x2
POLL_S = 0.02
PATIENCE_S = 0.5
"""How long a lost hint can cost; also how soon the death of a process is noticed."""


class Bells:
    def __init__(self, folder: str, ticket: Callable[[int], str]) -> None:
        self._folder = folder
        self._ticket = ticket
        self._open: dict[str, int] = {}
        self._ears: list[int] = []

    def path(self, topic: str) -> str:
        if topic.isdigit():
            return self._ticket(int(topic))
        return os.path.join(self._folder, topic.partition(":")[0])

    def ring(self, topics: set[str]) -> None:
        """Wake those who listen; where that fails, they find it at their next slow look."""
        for topic in topics:
            try:
                handle = self._open.get(topic)
                if handle is not None:
                    os.pwrite(handle, b"!", 0)
                elif topic.isdigit():
                    self._ring_ticket(topic)
                else:
                    self._open[topic] = handle = os.open(
                        self.path(topic), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                    )
                    os.pwrite(handle, b"!", 0)
            except OSError:
                continue

    def _ring_ticket(self, topic: str) -> None:
        try:
            handle = os.open(self.path(topic), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # its owner has gone; the next look at the queue finds that out
        try:
            os.pwrite(handle, b"!", 0)
        finally:
            os.close(handle)

    def listen(self, topics: tuple[str, ...], cancel: int | None) -> InotifyListener | PollListener:
        paths = [self.path(topic) for topic in topics]
        for path in paths:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if sys.platform != "linux":
            return PollListener(paths, cancel)
        try:
            return InotifyListener(paths, cancel, self._ears)
        except OSError:
            # The kernel allows a user only so many (128 by default); the next waits by looking.
            return PollListener(paths, cancel)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
        while self._ears:
            os.close(self._ears.pop())


class InotifyListener:
    """The kernel takes 10 ms and more to close an inotify handle, so it is kept for the next."""

    patience_s = PATIENCE_S

    def __init__(self, paths: list[str], cancel: int | None, idle: list[int]) -> None:
        # Imported here because only those who wait need it, and it is not cheap.
        import ctypes

        self._libc = ctypes.CDLL(None, use_errno=True)
        self._idle = idle
        self._watches: list[int] = []
        try:
            self._inotify = idle.pop()
        except IndexError:
            self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._inotify < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._poll = select.poll()
        self._poll.register(self._inotify, select.POLLIN)
        if cancel is not None:
            self._poll.register(cancel, select.POLLIN)
        for path in paths:
            watch = self._libc.inotify_add_watch(self._inotify, os.fsencode(path), IN_MODIFY)
            if watch < 0:
                error = OSError(ctypes.get_errno(), "inotify_add_watch", path)
                self.close()
                raise error
            self._watches.append(watch)

    def wait(self, seconds: float) -> bool:
        ready = self._poll.poll(seconds * 1000)
        if any(handle == self._inotify for handle, _ in ready):
            os.read(self._inotify, 65536)
        return bool(ready)

    def close(self) -> None:
        for watch in self._watches:
            self._libc.inotify_rm_watch(self._inotify, watch)
        try:
            os.read(self._inotify, 65536)  # what it has not looked at is not for the next
        except BlockingIOError:
            pass
        self._idle.append(self._inotify)


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
            times = self._times()
            if times != self._seen:
                self._seen = times
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            watched = [] if self._cancel is None else [self._cancel]
            if select.select(watched, [], [], min(left, POLL_S))[0]:
                return True

    def close(self) -> None:
        self._paths = []
