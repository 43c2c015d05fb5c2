"""The journal as a chain: it proves that nobody has changed the journal or the rows it describes.

The hash of an event covers the hash of the one before it, every field of the event, and what its
write changed (`changes`), which the last event of each write carries together with the store time.
It is keyed with a key of the space, so somebody who can only write to the database cannot make it.

What a write without an event changes waits in the space's row (`pending`) for the next event. A
few columns, which only show that somebody is still there, are in no event: their row is signed
(`Table.volatile`).

`base` holds the rows as of `base_seq`: what pruning has cut off, or what was there when the chain
began. Each has a tag, and the space's row has the sum of all tags, so none can be left out.

Not promised: a process that can read the space key can make another chain. A seal kept elsewhere
reveals it (`dibs audit check`).
"""

from __future__ import annotations

from dibs.digest import Keyed, same
from dibs.records import to_text
from dibs.storage.images import teller, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.storage.driver import Row
    from dibs.storage.images import Image, Teller
    from dibs.storage.queries import Query

HASH = 16
"""How many bytes the hash of an event and a signature have."""
TAG = 32
"""How many bytes the tag of a row of `base` has. It is longer, since tags are summed."""
SUM = 1 << 8 * TAG
SIGNED = ("base_seq", "base_sum", "head", "store_time", "wall_time", "pending", "chain", "swept")
"""What is signed in the space's row."""


class Ledger:
    __slots__ = ("_base", "_event", "_row", "tellers")

    def __init__(self, key: bytes, space: str) -> None:
        named = f"{space}\n".encode()
        self._event = Keyed(key, b"event\n" + named, HASH).hash
        self._row = Keyed(key, b"row\n" + named, HASH).hash
        self._base = Keyed(key, b"base\n" + named, TAG).hash
        self.tellers = Tellers(self.digest)

    def hash(self, before: str, event: Row) -> str:
        """The hash of an event that follows the one with that hash."""
        subject, named = event["subject"], (event["agent"], event["data"], event["changes"])
        if "None" in named or event["session"] == "None":
            before = f"{before} {named} {event['session']!r}"  # it would read like NULL
        # Only the subject may have line breaks, and its length is added, so fields stay distinct.
        return self._event(
            f"{before}\n{event['seq']} {event['session']} {event['at']} {len(subject)} "
            f"{event['kind']}\n{event['agent']}\n{event['data']}\n{event['changes']}\n{subject}"
        )

    def begin(self) -> str:
        """The hash that the first event follows."""
        return self._event("begin")

    def digest(self, table: str, values: Image) -> str:
        """The digest that replaces the values of a long row."""
        return self._row(f"digest {table}\n{to_json(values)}")

    def tag(self, noun: str, key: str, image: str) -> str:
        """The tag of a row of `base`."""
        return self._base(f"{noun} {len(key)}\n{key}{image}")

    def space(self, row: Row) -> str:
        """The signature of the chain's fields in the space's row, and of its times."""
        return self._row("space\n" + to_text([row[name] for name in SIGNED]))

    def signed_space(self, row: Row, columns: Row) -> Row:
        """The space's row with other values; one that dibs did not sign is not signed."""
        fits, row = self.fits("space", row), row | columns
        return row | {"signature": self.space(row)} if fits else row

    def session(self, row: Row) -> str:
        """The signature of a session's last sign of life."""
        names = ("id", "nonce", "seen_at", "deadline")
        return self._row("session\n" + to_text([row[name] for name in names]))

    def signed_session(self, row: Row, deadline: int | None) -> str:
        """The signature for another deadline; a forged one stays as it is."""
        if not self.fits("session", row):
            return str(row["signature"])
        return self.session(row | {"deadline": deadline})

    def ticket(self, row: Row) -> str:
        """The signature of a waiter's deadline."""
        return self._row(f"ticket\n{row['number']} {row['deadline']!r}")

    def fits(self, noun: str, row: Row) -> bool:
        """Whether a signature is valid."""
        try:
            right: str = getattr(self, noun)(row)
        except TypeError:
            return False  # a value that dibs never writes
        return same(str(row["signature"]).encode("utf-8", "replace"), right.encode())


class Tellers(dict["Query", "tuple[Teller, bool, bool]"]):
    """By query: the function that derives its changes (`images.teller`)."""

    def __init__(self, digest: Callable[[str, Image], str]) -> None:
        self._digest = digest

    def __missing__(self, query: Query) -> tuple[Teller, bool, bool]:
        told = self[query] = teller(query, self._digest)
        return told
