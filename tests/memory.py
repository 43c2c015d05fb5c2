"""`pytest --in-memory`: the folders of tests are in memory, where nothing waits for a disk.

They are a file system that only pytest and its children see, and that is gone when they are. That
takes the rights of root on Linux and enough memory; otherwise tests use the disk, and take longer.
Not /dev/shm, because dibs takes nothing below /dev for a file that somebody may edit.
"""

from __future__ import annotations

import ctypes
import getpass
import os
import sys
import tempfile
from pathlib import Path

import pytest

ROOM = 4 << 30
CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
MNT_DETACH = 2


def use_memory(config: pytest.Config) -> None:
    if sys.platform != "linux" or os.geteuid() or room() < 2 * ROOM:
        return
    libc = ctypes.CDLL(None)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        return  # a container that may not mount anything
    # Over the folder that pytest uses anyway: the paths of sockets must not become longer.
    folder = Path(tempfile.gettempdir(), f"pytest-of-{getpass.getuser()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    where = os.fsencode(folder)
    if not libc.mount(b"tmpfs", where, b"tmpfs", 0, b"mode=700,size=%d" % ROOM):
        config.add_cleanup(lambda: libc.umount2(where, MNT_DETACH))


def room() -> int:
    """How much memory is free, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, size = line.partition(":")
        if name == "MemAvailable":
            return int(size.split()[0]) << 10
    return 0
