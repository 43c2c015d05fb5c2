"""Which boot and which clock this process lives in, and which other processes run.

The monotonic clock restarts with the machine and may be shifted in a container, so a
deadline means something only together with these two.
"""

from __future__ import annotations

import os
import sys


def boot_id() -> str:
    """A text that is the same for all processes of one boot, and for no other boot."""
    if sys.platform == "linux":
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
            return source.read().strip()
    import ctypes

    value = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(64)
    if ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", value, ctypes.byref(size), None, 0):
        raise OSError("this system does not tell its boot apart from others")
    return value.value.decode("ascii")


def time_namespace() -> str:
    """The clock this process sees; empty where there is only one."""
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return ""


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
        return True
    return True
