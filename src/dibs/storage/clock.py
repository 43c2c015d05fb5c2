"""Time, and the boot it is counted in.

Deadlines are kept in *store time*: milliseconds that changes of the wall clock do not affect.
On one machine that is the kernel's monotonic clock, shifted so that it continues where it was
after a reboot; across machines it is the database server's clock. Wall time is kept for display
only; nothing is ever decided by it.

The monotonic clock restarts with the machine and may be shifted in a container, so a
deadline means something only together with its boot and its time namespace.

A clock given to `dibs.open` replaces both; that is how tests move time.
"""

from __future__ import annotations

import os
import time
from _contextvars import ContextVar

from dibs.errors import BusyError, ClosedError, CorruptError, ForkedError, NotYoursError, UnfitError
from dibs.system import boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from dibs.storage.store import Caller

    class Sleeper(Protocol):
        """Sleeps until a bell rings."""

        def wait(self, seconds: float) -> bool:
            """Sleep until a bell rings, or until the time is up."""

    class Clock(Protocol):
        def now(self) -> int:
            """Store time in milliseconds."""

        def wall(self) -> int:
            """Wall time in milliseconds."""

        def sleep(self, listener: Sleeper, seconds: float) -> None:
            """Let time pass until the listener is rung, at most this many seconds."""


COPY = "copy"
"""Replaces the boot id in a store that was rolled back, and in its sessions."""


SILENCE: ContextVar[float | None] = ContextVar("silence", default=None)
"""How many seconds of silence the caller tolerates, if fewer than usual.

A hook must not keep the client's user waiting, and a renewal must leave time for the next. It
limits the time in which nothing happens: no turn at a database whose turn nobody passes on, no
byte from a daemon or a server. Something that takes long but makes progress is not cut short.
"""
HOOK_S = 0.6
"""What a hook tolerates: including its start and end it answers within a second, and a commit,
which runs three hooks, within three."""


def bearable(seconds: float) -> float:
    """This many seconds, or fewer if the caller tolerates fewer."""
    limit = SILENCE.get()
    return seconds if limit is None else min(seconds, limit)


BUSY_S = 4.5
BUSY_STEPS_S = (0.0002, 0.0005, *[0.0008] * 12, 0.002, 0.004)
"""Short at first: a crowd leaves others a millisecond between two of its writes."""


class Patience:
    """How a connection waits for its turn.

    It gives up once nobody has written for as long as the caller tolerates: then one process keeps
    the turn. In a crowd, where the turn is passed on, it waits up to twice as long: SQLite keeps
    no order, and on a busy machine the same process can lose for seconds.

    It does not know the connection: a connection that an interrupt loses in mid-transaction is
    then freed immediately, and its lock with it, not when the garbage collector runs.
    """

    def __init__(self, written: Callable[[], int]) -> None:
        """
        written: a number that changes when somebody writes
        """
        self._written = written

    def __call__(self, attempts: int) -> bool:
        now = time.monotonic()
        if attempts == 0:
            borne_s = bearable(BUSY_S)
            self._since, self._pause_s = now, borne_s / 2
            self._most_s = max(BUSY_S, 2 * borne_s)
            self._seen: int | None = None
            self._looked = now
        waited = now - self._since
        if waited >= self._most_s:
            return False
        if now - self._looked >= self._pause_s:
            seen, self._looked = self._last(), now
            if seen == self._seen:
                return False
            self._seen = seen
        # The turn goes to a thread that tries at the right moment, so long waiters try more often.
        most = 2 if 0.03 < waited < 1 else len(BUSY_STEPS_S) - 1
        time.sleep(BUSY_STEPS_S[min(attempts, most)])
        return True

    def _last(self) -> int:
        try:
            return self._written()
        except (OSError, UnfitError):
            return -1  # nothing there to tell by


class Torn:
    """Refuse to use a connection whose transaction was undone from outside."""

    def execute(self, *_: object) -> Any:
        raise BusyError(
            "a signal handler used the store during this call, so the call was undone",
            next="try again",
        )


class SystemClock:
    """The monotonic clock of this machine plus the store's offset."""

    offset = 0

    def now(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self.offset

    def wall(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, listener: Sleeper, seconds: float) -> None:
        listener.wait(seconds)


SEQ_LIMIT = (1 << 53) - (1 << 20)
"""Not every JSON reader is exact from 2**53 on; below is room for the events of a write."""


def check_seq(seq: int) -> None:
    """Refuse a store whose journal has a seq that dibs cannot have written."""
    if seq >= SEQ_LIMIT:
        raise CorruptError(
            f"the journal ends at {seq}, which dibs did not write", next="restore a backup"
        )


def unseen_seq(seq: int, wall: int) -> int:
    """A seq above all that were handed out before this moment of the wall clock.

    No store hands out a thousand in a millisecond, so this rises faster than any counter, and
    each restored store begins above the one before it. It stays below 2**53, so that every JSON
    reader has it exactly.
    """
    check_seq(seq)
    return max(seq + 1, wall << 10)


def holders_clock(boot: str) -> Callable[[], float]:
    """The clock by which a holder counts the seconds that a store gives it.

    It must not stop while the store's clock runs. The clock of another machine runs while this
    one sleeps; the clock of this machine, in this boot, does not.
    """
    if boot and boot == boot_id():
        return time.monotonic
    number = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS has only the second
    return lambda: time.clock_gettime(number)


def unusable(pid: int) -> ForkedError | ClosedError:
    """Why a store that the process with this number opened can no longer be used here."""
    if os.getpid() != pid:
        return ForkedError(
            "this store was opened before a fork", next="open the store again in the child"
        )
    return ClosedError("this store has been closed", next="open it again")


def stranger(caller: Caller) -> NotYoursError:
    """The caller's session is not the one with its number here, if there is one."""
    return NotYoursError(
        f"{caller.agent} has no session {caller.session} here: it was removed, or the store was "
        "rolled back (deleted, restored, or a standby took over)",
        next="join again, then reclaim what you still need",
        session=caller.session,
    )
