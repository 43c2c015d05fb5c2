"""Whether git tracks a file, read from its index without running git.

An index of version 4 leaves out what a name has in common with the one before it, so it is read
from its beginning; in the others a name stands as it is, behind its own length. A split index has
most names in a second file. Letters are compared without their case, as some disks do.
"""

from __future__ import annotations

import os

FIXED = 40
"""How many bytes of an entry stand before its hash."""
EXTENDED = 0x4000
NAME_LENGTH = 0xFFF


def tracked(index: str, name: str, shared: frozenset[str] = frozenset()) -> str | None:
    """The first tracked file whose name begins with this one, and that nobody means to share."""
    folder = os.path.dirname(index)
    split = [file for file in os.listdir(folder) if file.startswith("sharedindex.")]
    for file in (index, *(os.path.join(folder, one) for one in split)):
        with open(file, "rb") as source:
            data = source.read()
        wanted = os.fsencode(name).lower()
        names = compressed(data, folder) if data[4:8] == b"\0\0\0\4" else plain(data, wanted)
        for found in names:
            if found.lower().startswith(wanted) and os.fsdecode(found) not in shared:
                return os.fsdecode(found)
    return None


def plain(data: bytes, wanted: bytes) -> list[bytes]:
    """The names that begin so, in an index that has them whole."""
    found, lower, at = [], data.lower(), -1
    while (at := lower.find(wanted, at + 1)) >= 0:
        name = data[at : data.find(b"\0", at)]
        length = min(len(name), NAME_LENGTH)
        # The flags stand before the name; those of an extended entry have two bytes more.
        for before in (2, 4):
            flags = int.from_bytes(data[at - before : at - before + 2], "big")
            if flags & NAME_LENGTH == length and bool(flags & EXTENDED) == (before == 4):
                found.append(name)
                break
    return found


def compressed(data: bytes, folder: str) -> list[bytes]:
    """All names of an index of version 4."""
    hash_bytes = 32 if is_sha256(folder) else 20
    found, name, at = [], b"", 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        if at + FIXED + hash_bytes + 3 > len(data):
            break  # it is damaged, as git will say
        at += FIXED + hash_bytes
        at += 4 if data[at] & (EXTENDED >> 8) else 2
        cut = data[at] & 127
        while data[at] & 128:
            at += 1
            cut = ((cut + 1) << 7) | (data[at] & 127)
        end = data.find(b"\0", at + 1)
        name = name[: len(name) - cut] + data[at + 1 : end]
        found.append(name)
        at = end + 1
    return found


def is_sha256(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "config"), "rb") as source:
            text = source.read().lower()
    except OSError:
        return False
    return b"objectformat" in text and b"sha256" in text
