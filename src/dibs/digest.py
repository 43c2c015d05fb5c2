"""SHA-256, also of a file, and a comparison in constant time, from Python's own C code.

`hashlib` and `hmac` load OpenSSL, which takes longer than everything else a command does. The
module behind them that does not is named differently from version to version; where it is
missing, `hashlib` serves.
"""

from __future__ import annotations

import os
from _operator import _compare_digest as same

try:
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from hashlib import sha256

__all__ = ["content_hash", "same", "sha256"]
MAX_HASHED_BYTES = 64 << 20


def content_hash(file: str) -> str | None:
    """Give the SHA-256 of a regular file in hex.

    None if nothing is there, if it is no regular file, and for files over 64 MiB, whose
    reading would hold up the claim.
    """
    try:
        # Without O_NONBLOCK a fifo would wait for its writer.
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(fd)
        if status.st_mode & 0o170000 != 0o100000 or status.st_size > MAX_HASHED_BYTES:
            return None
        # One read more than the size shows whether somebody is writing to it right now.
        digest, left = sha256(), MAX_HASHED_BYTES
        chunk = os.read(fd, min(status.st_size, 1 << 18) + 1)
        while chunk:
            digest.update(chunk)
            left -= len(chunk)
            if left < 0:
                return None
            if left == MAX_HASHED_BYTES - status.st_size:
                break
            chunk = os.read(fd, 1 << 18)
        text: str = digest.hexdigest()
        return text
    except OSError:
        return None
    finally:
        os.close(fd)
