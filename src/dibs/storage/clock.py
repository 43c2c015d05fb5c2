"""Time, and the boot it is counted in.

Deadlines are kept in *store time*: milliseconds that a step of the wall clock does not
touch. On one machine that is the kernel's monotonic clock, shifted so that it goes on
where it was after a reboot; between machines it is the database server's clock. Wall time
stands beside it for display, and nothing is ever decided by it.

The monotonic clock restarts with the machine and may be shifted in a container, so a
deadline means something only together with its boot and its time namespace.

A clock given to `dibs.open` takes the place of both; that is how tests move time.
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
        """Somebody who sleeps until a bell rings."""

        def wait(self, seconds: float) -> bool:
            """Sleep until then, or until the time is over."""

    class Clock(Protocol):
        def now(self) -> int:
            """Store time in milliseconds."""

        def wall(self) -> int:
            """Wall time in milliseconds."""

        def sleep(self, listener: Sleeper, seconds: float) -> None:
            """Let time pass until the listener is rung, at most so many seconds."""


COPY = "copy"
"""What stands in place of a boot id in a store, and in its sessions, that went back in time."""


SILENCE: ContextVar[float | None] = ContextVar("silence", default=None)
"""How many seconds of silence the caller can bear, where that is less than usual.

A hook of a client must not keep its user waiting, and a renewal must leave time for the next. It
bounds the time in which nothing happens: no turn at a database whose turn nobody passes on, no
byte from a daemon or a server. What takes long and goes on is not cut short.
"""
HOOK_S = 0.6
"""What a hook can bear: with its own start and end it answers within a second, and a commit, which
runs three, within three."""


def bearable(seconds: float) -> float:
    """So many seconds, or fewer if the caller cannot bear them."""
    limit = SILENCE.get()
    return seconds if limit is None else min(seconds, limit)


BUSY_S = 4.5
BUSY_STEPS_S = (0.0002, 0.0005, *[0.0008] * 12, 0.002, 0.004)
"""Short at first: a crowd leaves a millisecond to others between two of its writes."""


class Patience:
    """How a connection waits for its turn.

    It gives up once nobody has written for as long as the caller can bear: then one process keeps
    the turn. In a crowd, where the turn is passed on, it waits up to twice as long: SQLite keeps no
    order, and on a busy machine the same one can lose for seconds.

    It does not know the connection: one that an interrupt loses in mid-transaction is then
    freed at once, and its lock with it, instead of when the garbage collector comes by.
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
        # Whoever tries in the right moment has the turn, so who has waited long tries more often.
        most = 2 if 0.03 < waited < 1 else len(BUSY_STEPS_S) - 1
        time.sleep(BUSY_STEPS_S[min(attempts, most)])
        return True

    def _last(self) -> int:
        try:
            return self._written()
        except (OSError, UnfitError):
            return -1  # nothing there that tells


class Torn:
    """What is left of a connection whose transaction was undone behind its back."""

    def execute(self, *_: object) -> Any:
        raise BusyError(
            "a signal handler used the store in the middle of this call, which was undone",
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
"""Not every JSON reader has 2**53 and more exactly; below it is room for the events of a write."""


def check_seq(seq: int) -> None:
    """Refuse to go on in a store whose journal says what no journal of dibs can."""
    if seq >= SEQ_LIMIT:
        raise CorruptError(
            f"the journal ends at {seq}, which dibs has not written", next="restore a backup"
        )


def unseen_seq(seq: int, wall: int) -> int:
    """A seq above all that were given out before this moment of the wall clock.

    No store gives out a thousand in a millisecond, so this rises faster than any counter, and
    each restoration begins above the one before it. It stays below 2**53, so that every JSON
    reader has it exactly.
    """
    check_seq(seq)
    return max(seq + 1, wall << 10)


def holders_clock(boot: str) -> Callable[[], float]:
    """The clock by which a holder counts the seconds that a store gives it.

    It must not stand still while the store's goes on. That of another machine goes on while this
    one sleeps; that of this machine, in this boot, does not.
    """
    if boot and boot == boot_id():
        return time.monotonic
    number = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS has only the second
    return lambda: time.clock_gettime(number)


def unusable(pid: int) -> ForkedError | ClosedError:
    """Why a store that the process of this number has opened cannot be used here any more."""
    if os.getpid() != pid:
        return ForkedError(
            "this store was opened before a fork", next="open the store again in the child"
        )
    return ClosedError("this store has been closed", next="open it again")


def stranger(caller: Caller) -> NotYoursError:
    """The caller's session is not the one that has its number here, if any has."""
    return NotYoursError(
        f"{caller.agent} has no session {caller.session} here: it was removed, or the store went "
        "back in time (deleted, restored, or a standby took over)",
        next="join again, then claim again what you still need",
        session=caller.session,
    )
