"""Whether git tracks a file, read from its index without running git.

An index is read from its beginning, as long as names sort before the one that is searched for, so a
large one costs no more than a small one. Version 4 omits what a name has in common with the one
before it. A split index has most names in a second file, and says which of them no longer count.
Names are compared without case, since some disks ignore it.

A folder that a sparse index holds as one entry has no file on the disk, so it does not count.
"""

from __future__ import annotations

import os

from dibs.errors import UnfitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from typing import BinaryIO

LIMIT = 256 << 20
"""How much of an index is read; two million files need less."""
LINK_LIMIT = 4 << 20
FIXED = 40
"""How many bytes of an entry come before its hash."""
HASHES = (20, 32)
MODE = slice(24, 28)
FOLDER = 0o040000
EXTENDED = 0x4000
NAME_LENGTH = 0xFFF


def tracked(index: str, name: str, shared: frozenset[str] = frozenset()) -> str | None:
    """The first tracked file whose name begins with this one, which should never be shared.

    A name with a slash at its end is a folder, which may also be tracked as one thing: as a link,
    a file or a submodule.
    """
    folder, wanted = os.path.dirname(index), os.fsencode(name).lower()
    try:
        split = [file for file in os.listdir(folder) if file.startswith("sharedindex.")]
        with opened(index) as source:
            found = first(source, wanted, shared, bool(split))
            base = link(source, folder, split) if split and not found else None
        if base is not None:
            with opened(base[0]) as source:
                found = first(source, wanted, shared, False, base[1])
    except FileNotFoundError:
        return None  # git has replaced it; the new one is read next time
    except ValueError as error:
        raise unfit(index, str(error)) from None
    except OSError as error:
        raise unfit(index, f"it cannot be read: {error.strerror}") from None
    return found


def opened(file: str) -> BinaryIO:
    """Open an index, which must be a regular file; anything else could block or never end."""
    # Without O_NONBLOCK a fifo would wait for its writer.
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if os.fstat(handle).st_mode & 0o170000 != 0o100000:
        os.close(handle)
        raise unfit(file, "it is not a regular file")
    return open(handle, "rb")


def unfit(file: str, why: str) -> UnfitError:
    return UnfitError(
        f"git's index {file!r} cannot be used: {why}",
        next="see what git status says; if that does not help, move it away and run git reset",
    )


def first(
    source: BinaryIO,
    wanted: bytes,
    shared: frozenset[str],
    split: bool,
    deleted: Container[object] = (),
) -> str | None:
    """The first name with this beginning; a split index is read to the end, to find its link."""
    last = wanted + b"\xff"  # of all spellings, lower case sorts last
    for at, (name, mode) in enumerate(entries(source, split)):
        lower = name.lower()
        if lower.startswith(wanted) or lower + b"/" == wanted:
            text = os.fsdecode(name)
            if mode & 0o170000 != FOLDER and text not in shared and at not in deleted:
                return text
        elif name > last and not split:
            return None
    return None


def entries(source: BinaryIO, split: bool) -> Iterator[tuple[bytes, int]]:
    """Each name and its mode; a `ValueError` for what git did not write."""
    head = exactly(source, 12)
    version, count = (int.from_bytes(head[at : at + 4], "big") for at in (4, 8))
    if head[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("dibs only knows versions 2, 3 and 4")
    hash_bytes = hash_length(source, version) if count else 0
    name, walked = b"", 12
    for _ in range(count):
        entry = exactly(source, FIXED + hash_bytes + 2)
        flags = int.from_bytes(entry[-2:], "big")
        extended = 2 if flags & EXTENDED and version > 2 else 0
        exactly(source, extended)
        length, before, common = flags & NAME_LENGTH, name, 0
        if version == 4:
            byte = exactly(source, 1)[0]
            cut = byte & 127
            while byte & 128:
                byte = exactly(source, 1)[0]
                cut = ((cut + 1) << 7) | (byte & 127)
                if cut > LIMIT:
                    raise ValueError("it is damaged")
            common = len(before) - cut
        if common < 0 or common > length < NAME_LENGTH:
            raise ValueError("it is damaged")
        name = before[:common] + exactly(source, max(0, length - common))
        size = len(entry) + extended + len(name)
        end = exactly(source, 1)
        while end != b"\0" and length == NAME_LENGTH and len(name) < LINK_LIMIT:
            name += end
            size += 1
            end = exactly(source, 1)
        if version < 4:
            end += exactly(source, 7 - size % 8)
        if end.strip(b"\0") or not (split or before <= name != b""):
            raise ValueError("it is damaged")
        walked += size + len(end) - common
        if walked > LIMIT:
            raise ValueError("it is too large to read")
        yield name, int.from_bytes(entry[MODE], "big")


def hash_length(source: BinaryIO, version: int) -> int:
    """The length of hashes, chosen so that the first name is as long as its flags say."""
    data = source.read(FIXED + NAME_LENGTH + 64)
    source.seek(12)
    for length in HASHES:
        at = FIXED + length + 2
        flags = int.from_bytes(data[at - 2 : at], "big")
        at += (2 if flags & EXTENDED and version > 2 else 0) + (version == 4)
        name = data[at : at + (flags & NAME_LENGTH) + 1]
        if flags & NAME_LENGTH == NAME_LENGTH or name.find(b"\0") == flags & NAME_LENGTH:
            return length
    raise ValueError("it is damaged")


def exactly(source: BinaryIO, count: int) -> bytes:
    data = source.read(count)
    if len(data) < count:
        raise ValueError("it is cut off")
    return data


def link(source: BinaryIO, folder: str, split: list[str]) -> tuple[str, Deleted] | None:
    """The second file of a split index, and which of its entries do not count."""
    while len(head := source.read(8)) == 8:
        size = int.from_bytes(head[4:], "big")
        if head[:4] != b"link":
            source.seek(size, os.SEEK_CUR)
            continue
        if size > LINK_LIMIT:
            raise ValueError("it is damaged")
        data = exactly(source, size)
        for name in split:
            digits = name.partition(".")[2]
            if len(digits) in (40, 64) and data[: len(digits) // 2].hex() == digits:
                return os.path.join(folder, name), Deleted(data[len(digits) // 2 :])
        break
    return None


class Deleted:
    """A bitmap of git (EWAH): markers, each for a run of equal words and some words after it.

    It must be queried in ascending order.
    """

    def __init__(self, data: bytes) -> None:
        count = int.from_bytes(data[4:8], "big")
        self._words = data[8 : 8 + 8 * count]
        self._at = self._start = 0

    def __contains__(self, place: object) -> bool:
        assert isinstance(place, int)
        word, bit = divmod(place, 64)
        while self._at < len(self._words):
            marker = self._word(self._at)
            run, literal = marker >> 1 & 0xFFFFFFFF, marker >> 33
            beyond = word - self._start - run
            if beyond < 0:
                return bool(marker & 1)
            if beyond < literal:
                return bool(self._word(self._at + 8 * (1 + beyond)) >> bit & 1)
            self._start += run + literal
            self._at += 8 * (1 + literal)
        return False

    def _word(self, at: int) -> int:
        return int.from_bytes(self._words[at : at + 8], "big")
