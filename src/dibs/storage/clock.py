"""The clock that decides, and the one that people read.

Deadlines are kept in *store time*: milliseconds that a step of the wall clock does not
touch. On one machine that is the kernel's monotonic clock, shifted so that it goes on
where it was after a reboot; between machines it is the database server's clock. Wall time
stands beside it for display, and nothing is ever decided by it.

A clock given to `dibs.open` takes the place of both; that is how tests move time.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from dibs.storage.driver import Listener

    class Clock(Protocol):
        def now(self) -> int:
            """Store time in milliseconds."""

        def wall(self) -> int:
            """Wall time in milliseconds."""

        def sleep(self, listener: Listener, seconds: float) -> None:
            """Let time pass until the listener is rung, at most so many seconds."""


class SystemClock:
    """The monotonic clock of this machine plus the store's offset."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    def now(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self.offset

    def wall(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, listener: Listener, seconds: float) -> None:
        listener.wait(seconds)


class ManualClock:
    """A clock that stands still until it is moved; whoever waits moves it."""

    def __init__(self, now: int = 1_000_000) -> None:
        self._now = now
        self.wall_offset = 0

    def now(self) -> int:
        return self._now

    def wall(self) -> int:
        return self._now + self.wall_offset

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * 1000)

    def sleep(self, listener: Listener, seconds: float) -> None:
        if not listener.wait(0):
            self.advance(seconds)
