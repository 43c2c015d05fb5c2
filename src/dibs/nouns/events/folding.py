"""The tables of an earlier moment, rebuilt from the journal.

Each write's events carry the rows that it changed. Applied one after the other to the rows that
the journal began with, they lead to the rows of any later moment. The events are read in pages,
each in its own transaction, so no writer has to wait; events never change.

The cost grows with the number of events up to the moment. So a store keeps some of the moments it
has passed, which share the rows that did not change between them, and continues from the nearest
one before the moment that is requested.
"""

from __future__ import annotations

import time
from _thread import allocate_lock

from dibs.errors import BusyError, PrunedError
from dibs.storage.base import LEDGER, based, image_in
from dibs.storage.images import TABLES, Fold
from dibs.storage.queries import Queries
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.storage.driver import Row
    from dibs.storage.store import Read, Store

EVENTS = Queries("events")
WANTED = frozenset(("agent", "session", "lease", "ticket", "task", "entry", "cursor"))
"""The tables that a moment is made of."""
PAGE = 500
"""How many events are read at once: each may carry a mebibyte."""
STEP = 10_000
"""Another moment is kept after this many events."""
KEPT, KEPT_ROWS = 64, 500_000
"""How many moments are kept at most, and how many rows they may have in total."""
SERVED_S = 5.0
"""How long a daemon reads for one call; the next call continues from there."""


class Folded:
    """The rows of one moment.

    seq: the last event
    now, wall: the store time of its write, and what the wall clock said
    """

    def __init__(self, seq: int, now: int, wall: int, fold: Fold) -> None:
        self.seq = seq
        self.now = now
        self.wall = wall
        self.fold = fold

    def copy(self) -> Folded:
        """A copy to continue from: the rows are shared, since they are never changed in place."""
        fold = Fold()
        fold.tables = {name: dict(rows) for name, rows in self.fold.tables.items()}
        return Folded(self.seq, self.now, self.wall, fold)

    def rows(self, table: str) -> list[Row]:
        known = TABLES[table]
        return [known.row(image) for image in self.fold.tables[table].values()]

    @property
    def size(self) -> int:
        return sum(map(len, self.fold.tables.values()))


class Folding:
    """The moments that a store has rebuilt from its journal so far."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = allocate_lock()
        self._kept: list[Folded] = []
        """By seq."""

    def at(self, seq: int) -> Folded:
        """The rows after the write that a seq belongs to, as a private copy."""
        serves = self._store.page_bytes is not None
        end = time.monotonic() + SERVED_S
        with self._lock:
            found = self._nearest(seq)
            began = found.seq
            while found.seq < seq:
                if not self._go_on(found, seq):
                    found = self._begin(seq)
                if found.seq - began >= STEP or found.seq >= seq:
                    began = found.seq
                    self._keep(found.copy())
                    if serves and found.seq < seq and time.monotonic() > end:
                        raise BusyError(
                            f"the journal has been read up to {found.seq:,}, and that is before "
                            f"{seq:,}",
                            next="ask again: the next call continues from there",
                        )
            return found

    def _nearest(self, seq: int) -> Folded:
        with self._store.read() as tx:
            base_seq(tx, seq)
        kept = [one for one in self._kept if one.seq <= seq]
        return kept[-1].copy() if kept else self._begin(seq)

    def _begin(self, seq: int) -> Folded:
        """The rows that the journal begins with."""
        fold = Fold()
        with self._store.read() as tx:
            base = base_seq(tx, seq)
            for row in based(tx):
                if row["noun"] in WANTED:
                    key, image = image_in(row)
                    fold.tables[row["noun"]][key] = image
        return Folded(base, 0, 0, fold)

    def _go_on(self, found: Folded, seq: int) -> bool:
        """Apply the next events, up to a seq; whether they are still there."""
        with self._store.read() as tx:
            if tx.rows(LEDGER.head)[0]["base_seq"] > found.seq:
                return False
            rows = tx.rows(EVENTS.changed, after=found.seq, limit=PAGE)
        for row in rows:
            found.now, *changes = from_text(row["changes"])
            for change in changes:
                if change[0].rstrip("?=-") in WANTED:
                    found.fold.apply(change)
            found.seq, found.wall = row["seq"], row["at"]
            if found.seq >= seq:
                break
        if not rows:
            found.seq = seq
        return True

    def _keep(self, folded: Folded) -> None:
        """Keep a moment; if there are too many, drop the one nearest to its neighbours."""
        kept = [one for one in self._kept if one.seq != folded.seq]
        kept = sorted([*kept, folded], key=lambda one: one.seq)
        while len(kept) > 2 and (len(kept) > KEPT or sum(one.size for one in kept) > KEPT_ROWS):
            gaps = [(kept[n + 1].seq - kept[n - 1].seq, n) for n in range(1, len(kept) - 1)]
            del kept[min(gaps)[1]]
        self._kept = kept


def base_seq(tx: Read, seq: int) -> int:
    """Where the kept journal begins; refused if a seq is not after that."""
    base: int = tx.rows(LEDGER.head)[0]["base_seq"]
    if base and seq <= base:
        raise unknown(seq, base)
    return base


def unknown(seq: int, base: int) -> PrunedError:
    return PrunedError(
        f"the state of the space at {seq} is no longer known: the journal is kept from {base} on",
        next=f"ask for a moment after {base}",
        pruned_seq=base,
        first_seq=base + 1,
    )
