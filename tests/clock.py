"""The clock that tests move: given to `dibs.open`, it takes the place of the system's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dibs.storage.clock import Sleeper


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

    def sleep(self, listener: Sleeper, seconds: float) -> None:
        if not listener.wait(0):
            self.advance(seconds)
