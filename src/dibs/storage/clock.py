"""Time, and the boot it is counted in: the clock, and which processes run.

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
import sys
import time
from _contextvars import ContextVar

from dibs.errors import BusyError, ClosedError, CorruptError, ForkedError, NotYoursError, UnfitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from dibs.storage.driver import Listener
    from dibs.storage.store import Caller

    class Clock(Protocol):
        def now(self) -> int:
            """Store time in milliseconds."""

        def wall(self) -> int:
            """Wall time in milliseconds."""

        def sleep(self, listener: Listener, seconds: float) -> None:
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

    Whoever cannot bear the whole time gives up once nobody has written for as long as it can: then
    one process keeps the turn. In a crowd, where the turn is passed on, it waits like the others.

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
            self._since, self._pause_s = now, bearable(BUSY_S) / 2
            self._seen: int | None = None
            self._looked = now
        waited = now - self._since
        if waited >= BUSY_S:
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

    def sleep(self, listener: Listener, seconds: float) -> None:
        listener.wait(seconds)


def boot_id() -> str:
    """A text that is the same for all processes of one boot, and for no other boot."""
    if sys.platform == "linux":
        # As bytes: `open` would import its codec.
        with open("/proc/sys/kernel/random/boot_id", "rb") as source:
            return source.read().strip().decode("ascii")
    import ctypes

    value = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(64)
    if ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", value, ctypes.byref(size), None, 0):
        raise OSError("this system does not tell its boot apart from others")
    return value.value.decode("ascii")


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


def time_namespace() -> str:
    """The clock this process sees; empty where there is only one."""
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return ""


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


def process_name(pid: int) -> str:
    """A process, told apart from those of other containers and from earlier ones of its number."""
    try:
        return f"{os.stat(f'/proc/{pid}/ns/pid').st_ino}:{pid}:{_started(pid)}"
    except OSError:
        return str(pid)


def is_process_name(text: str) -> bool:
    """Whether this can be such a name; one that comes from elsewhere can be any text."""
    parts = text.split(":")
    pid = parts[len(parts) // 2]
    shaped = len(parts) in (1, 3) and all(parts[:2]) and not text.strip("0123456789:")
    return shaped and len(pid) < 10  # the system takes no larger number


def runs(host: str, process: str) -> bool:
    """Whether a process still runs, by its name; yes if that cannot be seen from here."""
    if host != os.uname().nodename:
        return True
    namespace, _, rest = process.rpartition(":")[0].partition(":")
    if not namespace:
        return _signalled(process)
    try:
        if str(os.stat("/proc/self/ns/pid").st_ino) != namespace:
            return True
        return f"{rest}:{_started(int(rest))}" == process.partition(":")[2]
    except OSError:
        return False


def _started(pid: int) -> str:
    """When a process began, in ticks since the boot; nothing for one that has ended."""
    with open(f"/proc/{pid}/stat", "rb") as source:
        # The name in parentheses may hold anything, parentheses too.
        fields = source.read().rpartition(b")")[2].split()
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def _signalled(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is somebody else's, and runs
    return True
