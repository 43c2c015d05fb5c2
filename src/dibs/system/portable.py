"""Systems without `/proc`, inotify and prctl, such as macOS; see `dibs.system`.

What is weaker there: a second process with the same number is distinguished by the second in which
it started; bells are heard within 20 ms; a signal from the terminal cannot be distinguished from
one that a process sends while the command has the terminal. There are no namespaces.
"""

from __future__ import annotations

import os
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from ctypes import Array, c_char
    from signal import Signals

    from dibs.system.linux import Inotify

DEPTH = 30
PS_S = 2.0
FRESH_S = 0.5
"""How long an answer of `ps` about a process is reused: one hook asks many times."""
MANY = 1000
STEP_S = 0.02
STATFS_BYTES, TYPE_AT, TYPE_BYTES = 4096, 72, 16
"""The offset of the file system's type in macOS's `struct statfs`."""
GUARD = 'read -r pid || exit 0; read -r over || kill -9 "$pid"'
"""Kills a command: it first reads the process id, and then notices that its writer has ended."""


def machine_id() -> str:
    """A text that is the same for all processes of this machine, whatever its name is."""
    import ctypes

    ask = getattr(ctypes.CDLL(None), "gethostuuid", None)
    found, wait = ctypes.create_string_buffer(16), (ctypes.c_long * 2)(1, 0)
    return os.uname().nodename if ask is None or ask(found, wait) else found.raw.hex()


def boot_id() -> str:
    """A text that is the same for all processes of one boot, and differs between boots."""
    import ctypes

    value, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    ask = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if ask is None or ask(b"kern.bootsessionuuid", value, ctypes.byref(size), None, 0):
        from dibs.errors import UnfitError

        raise UnfitError(
            "this system does not distinguish one boot from another, so it is unknown which "
            "sessions have survived",
            next="make /proc visible to this process (Linux), or use postgresql:// or a daemon",
        )
    return value.value.decode("ascii")


def time_namespace() -> str:
    """The time namespace of this process; empty where there is only one."""
    return ""


def pid_namespace() -> str:
    """The process namespace of this process."""
    return ""


_began: dict[int, tuple[float, str]] = {}
"""When processes started, and when that was asked."""


def started(pid: int) -> str | None:
    """When a process started; None if it has ended, "" if the system does not say."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except (PermissionError, OverflowError):
        pass  # it belongs to another user, and runs
    asked, began = _began.get(pid, (0.0, ""))
    if began and monotonic() - asked < FRESH_S:
        return began
    found = _asked(pid)
    if found:
        if len(_began) > MANY:
            _began.clear()
        _began[pid] = (monotonic(), found)
    return found


def _asked(pid: int) -> str | None:
    try:
        found = _ps("-o", "stat=,lstart=", "-p", str(pid))
    except OSError:
        return ""
    if not found or found[0].startswith("Z"):
        return None
    from calendar import timegm
    from time import strptime

    try:
        return str(timegm(strptime(" ".join(found[0].split()[1:]), "%a %b %d %H:%M:%S %Y")))
    except ValueError:
        return ""


def ancestors() -> Iterator[tuple[int, str]]:
    """The processes above this one, nearest first, with their names."""
    try:
        found = [line.split(None, 2) for line in _ps("-A", "-o", "pid=,ppid=,comm=")]
    except OSError:
        return
    known = {int(fields[0]): (int(fields[1]), fields[2]) for fields in found if len(fields) == 3}
    pid = os.getppid()
    for _ in range(DEPTH):
        if pid not in known:
            return  # the top
        above, command = known[pid]
        yield pid, command.rpartition("/")[2].removeprefix("-")  # a login shell begins with "-"
        pid = above


def words(pid: int) -> list[str]:
    """The command line of a process; empty if it has ended."""
    try:
        return " ".join(_ps("-ww", "-o", "args=", "-p", str(pid))).split()
    except OSError:
        return []


def started_with(variable: str) -> list[int]:
    """The processes that have this in their environment; none where the system does not say."""
    return []


def _ps(*arguments: str) -> list[str]:
    """The output of `ps`, the same in every language and time zone."""
    from subprocess import DEVNULL, PIPE, TimeoutExpired, run

    try:
        done = run(
            ["/bin/ps", *arguments], env={"LC_ALL": "C", "TZ": "UTC0"}, timeout=PS_S,
            stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, check=False,
        )  # fmt: skip
    except TimeoutExpired:
        raise OSError("ps does not answer") from None
    return os.fsdecode(done.stdout).splitlines()


def file_system(path: str) -> str | None:
    """The type of the file system that holds path, or None where the system does not say."""
    import ctypes

    library = ctypes.CDLL(None)
    # Older machines also have a variant with 64-bit inodes.
    ask = getattr(library, "statfs$INODE64", None)
    if ask is None and hasattr(library, "gethostuuid"):
        ask = library.statfs
    while not os.path.exists(path):
        path = os.path.dirname(path)
    found: Array[c_char] = ctypes.create_string_buffer(STATFS_BYTES)
    if ask is None or ask(os.fsencode(path), found):
        return None
    return found.raw[TYPE_AT : TYPE_AT + TYPE_BYTES].partition(b"\0")[0].decode("ascii", "replace")


def inotify(idle: list[int]) -> Inotify | None:
    """A watch on files, if the system has one; `idle` are unused handles."""
    return None


class Tether:
    """Ends a child when this process ends, whatever ends it.

    It is a shell that notices the end of this process by the end of a pipe, which only this process
    can write to once the child runs.
    """

    _all = ""
    """The sign before a process id that means its whole group."""

    def __init__(self) -> None:
        from subprocess import DEVNULL, Popen

        reading, self._writing = os.pipe()
        # In another session: a signal from the terminal must not end it first.
        self._guard = Popen(
            ["/bin/sh", "-c", GUARD], start_new_session=True,
            stdin=reading, stdout=DEVNULL, stderr=DEVNULL,
        )  # fmt: skip
        os.close(reading)

    def tie(self) -> None:
        """Called in the child between fork and exec: from then on its id is known."""
        os.write(self._writing, f"{self._all}{os.getpid()}\n".encode())

    def cut(self) -> None:
        """Stop: the child has ended, or none was started."""
        try:
            os.write(self._writing, b"over\nover\n")
        except BrokenPipeError:
            pass  # the shell was killed
        os.close(self._writing)
        self._guard.wait()


class GroupTether(Tether):
    """The same for a child that leads its own session, and for all processes it started."""

    _all = "-"

    def tie(self) -> None:
        os.setsid()
        super().tie()


def next_signal(signals: set[Signals], seconds: float, typed: bool = False) -> int:
    """Wait for one of these signals, which are blocked, for at most this long.

    Returns the number of a signal that a process sent; 0 if none came, or if the terminal sent it
    to the child too.

    typed: also return the number of one that came from the terminal
    """
    from signal import sigpending, sigwait
    from time import sleep

    here = sigpending() & signals
    if not here:
        sleep(min(seconds, STEP_S))
        return 0
    number = int(sigwait(here))
    return 0 if _is_typed(number) and not typed else number


def _is_typed(number: int) -> bool:
    """Whether the terminal may have sent a signal to the child too."""
    from signal import SIGINT, SIGQUIT

    if number not in (SIGINT, SIGQUIT):
        return False
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
