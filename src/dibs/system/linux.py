"""Linux: `/proc`, inotify and prctl; see `dibs.system`."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from signal import Signals

DEPTH = 30
MOUNTS = "/proc/self/mountinfo"
IN_MODIFY = 0x2
EVENT_BYTES = 16
"""The size of an inotify event for a file."""
ALL_BYTES = 4_096 * EVENT_BYTES
PR_SET_PDEATHSIG = 1
FROM_A_PROCESS = 0


def machine_id() -> str:
    """A text that is the same for all processes of this machine, whatever its name is."""
    try:
        with open("/etc/machine-id", "rb") as source:
            found = source.read(64).strip()
    except OSError:
        found = b""
    # An image that is booted on many machines has no id, or says so.
    return found.decode("ascii", "replace") if len(found) == 32 else os.uname().nodename


def boot_id() -> str:
    """A text that is the same for all processes of one boot, and differs between boots."""
    # As bytes: `open` would import its codec.
    with open("/proc/sys/kernel/random/boot_id", "rb") as source:
        return source.read().strip().decode("ascii")


def time_namespace() -> str:
    """The time namespace of this process; empty where there is only one."""
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return ""


def pid_namespace() -> str:
    """The process namespace of this process."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def started(pid: int) -> str | None:
    """When a process started; None if it has ended, "" if the system does not say."""
    try:
        fields = _fields(pid)[1]
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def ancestors() -> Iterator[tuple[int, str]]:
    """The processes above this one, nearest first, with their names."""
    pid = os.getppid()
    for _ in range(DEPTH):
        try:
            name, fields = _fields(pid)
        except OSError:
            return  # the top
        yield pid, os.fsdecode(name)
        pid = int(fields[1])


def _fields(pid: int) -> tuple[bytes, list[bytes]]:
    with open(f"/proc/{pid}/stat", "rb") as source:
        # The name in parentheses may hold anything, parentheses too.
        before, _, after = source.read().rpartition(b")")
    return before.partition(b"(")[2], after.split()


def words(pid: int) -> list[str]:
    """The command line of a process; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as source:
            return [os.fsdecode(word) for word in source.read().split(b"\0")]
    except OSError:
        return []


def started_with(variable: str) -> list[int]:
    """The processes that have this in their environment, as `NAME=value`."""
    mine, wanted, found = os.getpid(), os.fsencode(variable), []
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != mine:
            try:
                with open(f"/proc/{name}/environ", "rb") as source:
                    if wanted in source.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue  # it has ended, or belongs to another user
    return found


def file_system(path: str) -> str | None:
    """The type of the file system that holds path, or None where the system does not say."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as source:
            for line in source:
                fields = line.split()
                if fields[2] == wanted:
                    return fields[fields.index("-") + 1]
    except FileNotFoundError:
        return None
    return None


class Inotify:
    """Reports from the kernel about files that were written.

    Closing such a handle takes 10 ms or more, so it is kept for later.
    """

    def __init__(self, idle: list[int]) -> None:
        # Imported here because only waiters need it, and it is slow to import.
        import ctypes

        self._libc = ctypes.CDLL(None, use_errno=True)
        self._idle = idle
        try:
            self.handle: int = idle.pop()
        except IndexError:
            self.handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.handle < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def add(self, path: str) -> int:
        """Watch a file; return the number of the watch, negative if there are too many."""
        watch: int = self._libc.inotify_add_watch(self.handle, os.fsencode(path), IN_MODIFY)
        return watch

    def remove(self, watch: int) -> None:
        self._libc.inotify_rm_watch(self.handle, watch)

    def read(self) -> list[int]:
        """The watches whose files were written; negative if the kernel has dropped some."""
        data = os.read(self.handle, ALL_BYTES)
        return [
            int.from_bytes(data[at : at + 4], sys.byteorder, signed=True)
            for at in range(0, len(data), EVENT_BYTES)
        ]

    def put_away(self) -> None:
        try:
            while True:
                os.read(self.handle, ALL_BYTES)  # unread events are not for the next user
        except BlockingIOError:
            self._idle.append(self.handle)


def inotify(idle: list[int]) -> Inotify | None:
    """A watch on files, if the system has one; `idle` are unused handles."""
    try:
        return Inotify(idle)
    except OSError:
        return None  # the kernel allows a user only so many (128 by default)


class Tether:
    """Ends a child when this process ends, whatever ends it."""

    def __init__(self) -> None:
        import ctypes
        from signal import SIGKILL

        self._parent, self._kill = os.getpid(), SIGKILL
        self._control = ctypes.CDLL(None).prctl

    def tie(self) -> None:
        """Called in the child between fork and exec: only there can it ask for this."""
        self._control(PR_SET_PDEATHSIG, self._kill)
        if os.getppid() != self._parent:
            os.kill(os.getpid(), self._kill)

    def cut(self) -> None:
        """Stop: the child has ended, or none was started."""


def next_signal(signals: set[Signals], seconds: float, typed: bool = False) -> int:
    """Wait for one of these signals, which are blocked, for at most this long.

    Returns the number of a signal that a process sent; 0 if none came, or if the terminal sent it
    to the child too.

    typed: also return the number of one that came from the terminal
    """
    from signal import sigtimedwait

    came = sigtimedwait(signals, seconds)
    # After a freeze Python may return a signal that never came, with an invalid number.
    if came is None or came.si_signo not in signals:
        return 0
    return came.si_signo if typed or came.si_code <= FROM_A_PROCESS else 0
