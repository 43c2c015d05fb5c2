"""The names of what is in an archive, read without unpacking it.

Anybody can write an archive, and a small one may hold gigabytes of zeros or millions of names. So
only a limited part is read, and the rest is unknown.
"""

from __future__ import annotations

import os
from itertools import islice
from stat import S_ISREG
from typing import cast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

PACKED_LIMIT = 64 << 20
READ_LIMIT = 32 << 20
"""How many bytes of the unpacked archive are read."""
MEMBERS_LIMIT = 5_000
LISTING_LIMIT = 1 << 20


def members(file: str, strip: int = 0) -> list[str]:
    """The names of the files in an archive; strip: how many leading folders to leave out.

    Empty if it is not an archive, or of an unknown kind.
    """
    import tarfile
    import zipfile
    import zlib

    found: list[str] = []
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as packed:
            status = os.fstat(handle)
            if not S_ISREG(status.st_mode) or status.st_size > PACKED_LIMIT:
                return []
            found.extend(islice(_names(packed), MEMBERS_LIMIT))
    except EOFError:
        pass  # keep what was found so far
    except (OSError, ValueError, tarfile.TarError, zipfile.BadZipFile, zlib.error):
        return []
    except (RecursionError, MemoryError, OverflowError, NotImplementedError):
        return []
    parts = [os.path.normpath(name).split("/")[strip:] for name in found]
    return ["/".join(part) for part in parts if part and part[0] not in ("", "..")]


def _names(packed: IO[bytes]) -> Iterator[str]:
    import tarfile
    import zipfile

    start = packed.read(6)
    packed.seek(0)
    if start.startswith(b"PK"):
        if not 0 < _listing(packed) <= LISTING_LIMIT:
            return
        with zipfile.ZipFile(packed) as archive:
            yield from (one.filename for one in archive.infolist() if not one.is_dir())
        return
    readable = cast("IO[bytes]", Bounded(_opened(packed, start)))
    with tarfile.open(fileobj=readable, mode="r|") as tar:
        yield from (one.name for one in tar if not one.isdir())


def _listing(packed: IO[bytes]) -> int:
    """The size of the list at the end of a zip, as it says itself."""
    packed.seek(max(0, packed.seek(0, os.SEEK_END) - (1 << 16)))
    _, mark, end = packed.read().rpartition(b"PK\5\6")
    packed.seek(0)
    return int.from_bytes(end[8:12], "little") if mark else 0


def _opened(packed: IO[bytes], start: bytes) -> IO[bytes]:
    if start.startswith(b"\x1f\x8b"):
        import gzip

        return gzip.open(packed)  # type: ignore[return-value]
    if start.startswith(b"BZh"):
        import bz2

        return bz2.open(packed)
    return packed


class Bounded:
    """Reads up to a limit, and stops a reader that follows a header beyond it."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._left = READ_LIMIT

    def read(self, size: int) -> bytes:
        if self._left <= 0:
            raise EOFError("enough was read of this archive")
        found = self._source.read(min(size, self._left))
        self._left = self._left - len(found) if found else 0
        return found
