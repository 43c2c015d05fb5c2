"""The mark of a chain: which one a space has, in the user's data folder.

Whoever can write to the database can remove the chain with everything that belongs to it. The space
then looks like one from before there was a chain, and begins another. So each chain has a random
name, and the one that was seen first is noted here, beside the notes of the stores. `verify` says
if the space has another.

The file is named by a keyed hash, so it tells nothing about the key. The hash covers which database
it is: two servers may each have a space of this name, with the same key. The file is never
overwritten, also not by `dibs reset`: a person who knows why there is another chain removes it.
"""

from __future__ import annotations

from dibs.errors import DibsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.storage.folder import Own
    from dibs.storage.ledger import Ledger


class Mark:
    def __init__(self, own: Own, ledger: Ledger, database: str = "") -> None:
        """database: which one it is, if several may have spaces with one key"""
        self._own = own
        self._file = f"chains/{ledger.digest('chain', [database])}"
        self.path = f"{own.base}/{self._file}"

    def differs(self, chain: str) -> bool:
        """Whether another chain was seen here first; one that is the first is noted."""
        try:
            self._own.once(self._file, chain.encode())
            seen = self._own.read(self._file)
        except (DibsError, OSError):
            return False  # nothing can be kept here, such as in a sandbox
        return seen is not None and seen != chain.encode()
