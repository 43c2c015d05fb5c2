"""SHA-256 and HMAC from Python's own C code.

`hashlib` and `hmac` load OpenSSL, which takes longer than everything else a command does. The
module behind them that does not is named differently from version to version; where it is
missing, `hashlib` serves. A test holds the results against `hmac`.
"""

from __future__ import annotations

from _operator import _compare_digest as same

try:
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Hmac", "same", "sha256"]

BLOCK = 64
INNER = bytes(byte ^ 0x36 for byte in range(256))
OUTER = bytes(byte ^ 0x5C for byte in range(256))


class Hmac:
    """HMAC-SHA256 (RFC 2104) of texts that all begin alike."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes, beginning: bytes = b"") -> None:
        padded = key.ljust(BLOCK, b"\0")
        if len(padded) != BLOCK:
            raise ValueError(f"a key has at most {BLOCK} bytes here, not {len(key)}")
        self._inner: Any = sha256(padded.translate(INNER) + beginning)
        self._outer: Any = sha256(padded.translate(OUTER))

    def digest(self, rest: bytes) -> Any:
        """The hash object over the beginning and the rest: ask it for `digest` or `hexdigest`."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(rest)
        outer.update(inner.digest())
        return outer
