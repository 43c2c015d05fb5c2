"""Seals: the end of the journal as a line that is kept where nobody who has the key can change it.

The chain proves that nobody without the key has changed the journal. Somebody with the key can
make another valid chain. A seal reveals that: at its seq, the other chain has another hash. A seal
says nothing about what came after it, so seal again from time to time.

When the journal is cut, the hash of the last removed event is kept with the space and in the event
that records the cut. A seal of an earlier event can no longer be compared.
"""

from __future__ import annotations

from time import gmtime, strftime

from dibs.arguments import SEAL
from dibs.errors import CorruptError, NotFoundError, PrunedError
from dibs.records import Seal, Sealed, called
from dibs.storage.base import LEDGER
from dibs.storage.clock import SEQ_LIMIT
from dibs.storage.queries import Queries
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Read

EVENTS = Queries("events")
SPACE = Queries("space")
PAGE = 500
PATIENCE_S = 600.0


def seal(scope: Scope) -> Seal:
    with scope.read() as tx:
        end = tx.rows(SPACE.enter, session=0)[0]
        last = tx.row(LEDGER.link, seq=end["seq"])
        at = tx.wall if last is None else last["at"]
    time = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(at // 1000))
    text = f"{SEAL} {end['seq']} {end['hash']} {time} {scope.space}"
    return Seal(space=scope.space, seq=end["seq"], hash=end["hash"], at=at, text=text)


def check(scope: Scope, text: str) -> Sealed:
    seq, wanted = read_seal(scope, text)
    with scope.long_read(PATIENCE_S) as tx:
        head = tx.rows(LEDGER.head)[0]
        if not scope.store.ledger.fits("space", head):
            raise CorruptError(
                "something other than dibs has changed the space's row, which says where the "
                "journal begins",
                next="dibs verify names the rows",
            )
        if seq < head["base_seq"]:
            found: str | None = kept(scope, tx, seq, head)
        else:
            found = hash_at(scope, tx, seq, head)
    what = "removed" if found is None else "whole" if found == wanted else "changed"
    return Sealed(seq=seq, what=what, holds=found == wanted, hash=found)


def read_seal(scope: Scope, text: str) -> tuple[int, str]:
    """What a seal says: the seq, and its hash."""
    _, seq, hash, _, space = text.split(" ", 4)
    if space != scope.space:
        raise NotFoundError(
            f"this is a seal of the space {called(space)}, not of {called(scope.space)}",
            next="check it in that space",
        )
    return int(seq), hash


def hash_at(scope: Scope, tx: Read, seq: int, head: Row) -> str | None:
    """The hash that the events up to one lead to; None if there is no event with that seq.

    It is computed, not read: an event may have been changed and its hash left as it was.
    """
    hash, after = head["head"], head["base_seq"]
    while after < seq:
        rows = tx.rows(LEDGER.chain, after=after, limit=PAGE)
        for row in rows:
            if row["seq"] > seq:
                return None
            hash, after = scope.store.ledger.hash(hash, row), row["seq"]
            if after == seq:
                break
        if not rows:
            return None
    return str(hash)


def kept(scope: Scope, tx: Read, seq: int, head: Row) -> str:
    """The hash of a removed event, if it was the last one of a cut that dibs has recorded."""
    after = head["base_seq"]
    values = {"agent": None, "subject": None, "kind": "space.pruned", "limit": PAGE}
    values |= {"upto": SEQ_LIMIT, "kind_low": "", "kind_high": ""}
    while rows := tx.rows(EVENTS.since, after=after, **values):
        for row in rows:
            after, said = row["seq"], from_text(row["data"])
            if said.get("upto") == seq and "head" in said:
                link = tx.row(LEDGER.link, seq=after)
                if link is not None and link["hash"] == hash_at(scope, tx, after, head):
                    return str(said["head"])
    raise PrunedError(
        f"the events up to {head['base_seq']} have been pruned, including the one that this "
        "seal is for",
        next="compare a later seal; seal again from time to time",
        pruned_seq=head["base_seq"],
        first_seq=head["base_seq"] + 1,
        pruned_at=None,
    )
