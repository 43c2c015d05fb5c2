"""The disk as it is now, as far as the reader of commands looks at it: never far, never for long.

A file may be anything, written by anybody: nothing but a regular file is opened, and nothing long
is read.
"""

from __future__ import annotations

import os
from itertools import islice
from stat import S_ISREG

from dibs.surfaces.hooks.shell.call import Disk

TEXT_LIMIT = 64 << 10
NAMES_LIMIT = 1_000


def kind_of(path: str) -> str:
    if os.path.isdir(path):
        return "directory"
    return "file" if os.path.lexists(path) else ""


def text_of(path: str) -> str | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as source:
            if not S_ISREG(os.fstat(handle).st_mode):
                return None
            content = source.read(TEXT_LIMIT + 1)
    except (OSError, ValueError):
        return None
    return content.decode("utf-8", "surrogateescape") if len(content) <= TEXT_LIMIT else None


def names_in(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            found = [entry.name for entry in islice(entries, NAMES_LIMIT + 1)]
    except (OSError, ValueError):
        return []
    return found if len(found) <= NAMES_LIMIT else []


DISK = Disk(kind_of, text_of, names_in)
