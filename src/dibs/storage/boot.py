"""Which boot and which clock this process lives in.

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
