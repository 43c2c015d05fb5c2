"""SHA-256, HMAC, keyed BLAKE2b and a comparison in constant time, from Python's own C code.

`hashlib` and `hmac` load OpenSSL, which takes longer than everything else a command does. The
module behind them that does not has different names in different versions of Python; where it is
missing, `hashlib` is used.
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

try:
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Hmac", "Keyed", "same", "sha256"]

BLOCK = 64
INNER = bytes(byte ^ 0x36 for byte in range(256))
OUTER = bytes(byte ^ 0x5C for byte in range(256))


class Hmac:
    """HMAC-SHA256 (RFC 2104) of texts with a common beginning."""

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


class Keyed:
    """Keyed BLAKE2b (RFC 7693) of texts that all begin alike.

    It is a third of the work of HMAC-SHA256 where no instruction of the processor helps that.
    """

    __slots__ = ("_begun",)

    def __init__(self, key: bytes, beginning: bytes, size: int) -> None:
        """
        size: how many bytes a hash has
        """
        self._begun = blake2b(beginning, key=key, digest_size=size)

    def hash(self, rest: str) -> str:
        """The hash over the beginning and the rest, in hexadecimal digits."""
        begun = self._begun.copy()
        begun.update(rest.encode("utf-8", "surrogatepass"))
        return begun.hexdigest()
