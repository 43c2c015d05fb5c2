"""SHA-256 and a comparison in constant time, from Python's own C code.

`hashlib` and `hmac` load OpenSSL, which takes longer than everything else a command does. The
module behind them that does not is named differently from version to version; where it is
missing, `hashlib` serves.
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

__all__ = ["same", "sha256"]
