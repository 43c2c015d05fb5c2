"""Events: the journal of the space.

Promised: every write adds its event in its own transaction, and events are numbered in commit
order, so a reader that goes on from the last seq it saw gets every event once, in order. A reader
that stayed away until its place was pruned is told so, instead of being given a gap.

Pruning removes what is old and done with, in short slices; it never touches what is held, unread or
waited for, and never seq: it, epochs and versions only rise. See `pruning`.
"""

from __future__ import annotations

from dibs.arguments import milliseconds
from dibs.errors import PrunedError
from dibs.operation import EVERYBODY, PEOPLE, operation
from dibs.records import Event, Pruned
from dibs.space.scope import Noun
from dibs.storage.clock import SEQ_LIMIT
from dibs.storage.queries import Queries
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.storage.driver import Row
    from dibs.storage.store import Read

EVENTS = Queries("events")
SPACE = Queries("space")
LOOKED_BACK = 10_000
"""How many of the last events are looked through for the one that says when it was pruned."""
SERVED_S = 4.0
"""How long a daemon prunes for one call."""
TOPICS = ("session", "lease", "task", "message", "entry", "token", "space")


class Events(Noun):
    @operation(PrunedError, by=EVERYBODY, cli="log", example="--kind lease --agent bob")
    def since(
        self,
        seq: int | None = None,
        *,
        kind: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        limit: int = 1000,
    ) -> tuple[Event, ...]:
        """Give the events after a seq, in order.

        seq: the last one you have seen; by default all that is kept
        kind: only this kind, such as lease.claimed, or lease for all of its kinds
        agent: only what this agent did
        subject: only what was done to this resource, task, entry or agent
        """
        with self.scope.read() as tx:
            position = tx.rows(SPACE.position)[0]
            if seq is not None and seq < position["pruned_seq"]:
                raise pruned(tx, seq, position)
            values = {"after": seq or 0, "limit": limit}
            rows = tx.rows(EVENTS.since, **values, **filters(kind, agent, subject))
        return tuple(Event.of(row, data=from_text(row["data"])) for row in rows)

    @operation(by=EVERYBODY, example="--kind lease --limit 20")
    def latest(
        self,
        *,
        kind: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        before: int | None = None,
        limit: int = 1000,
    ) -> tuple[Event, ...]:
        """Give the last events, in order.

        kind: only this kind, such as lease.claimed, or lease for all of its kinds
        agent: only what this agent did
        subject: only what was done to this resource, task, entry or agent
        before: the last ones before this seq
        """
        with self.scope.read() as tx:
            values = {"before": SEQ_LIMIT if before is None else before, "limit": limit}
            rows = tx.rows(EVENTS.latest, **values, **filters(kind, agent, subject))
        return tuple(Event.of(row, data=from_text(row["data"])) for row in reversed(rows))

    @operation(by=EVERYBODY)
    def last(self) -> int:
        """Give the seq of the last write: where a reader starts that wants only what is new."""
        with self.scope.read() as tx:
            seq: int = tx.rows(SPACE.position)[0]["seq"]
        return seq

    @operation(PrunedError, by=EVERYBODY, example="17 --wait 60s")
    def watch(
        self,
        seq: int,
        *,
        kind: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        limit: int = 1000,
        wait_s: float = 60,
    ) -> tuple[Event, ...]:
        """Wait for events after a seq, and give them in order; none if nothing happened.

        seq: the last one you have seen
        kind: only this kind, such as lease.claimed, or lease for all of its kinds
        agent: only what this agent did
        subject: only what was done to this resource, task, entry or agent
        wait_s: how long at most
        """

        def look() -> tuple[tuple[Event, ...] | None, None]:
            found = self.since(seq, kind=kind, agent=agent, subject=subject, limit=limit)
            return found or None, None

        return self.scope.store.wait(look, TOPICS, wait_s) or ()

    @operation(
        by=PEOPLE,
        events=("space.pruned",),
        destructive=True,
        sliced=True,
        cli="gc",
        example="--keep 30d",
    )
    def prune(self, *, keep_s: float = 30 * 86_400) -> Pruned:
        """Remove what is over and older than that; free what dead sessions hold.

        keep_s: how much of the past to keep
        """
        from dibs.nouns.events.pruning import prune  # late, since hardly anybody does

        # A call to a daemon has an end; its client asks again until all is done.
        serves = self.scope.store.page_bytes is not None
        return prune(self.scope, milliseconds(keep_s), SERVED_S if serves else None)


def filters(kind: str | None, agent: str | None, subject: str | None) -> Row:
    """Which events are wanted, as the queries ask for it."""
    return {
        "kind": kind,
        "kind_low": f"{kind}.",
        "kind_high": f"{kind}/",
        "agent": agent,
        "subject": subject,
    }


def pruned(tx: Read, seq: int, position: Row) -> PrunedError:
    """Say up to where the journal is gone, where it begins now, and since when."""
    upto = position["pruned_seq"]
    first = tx.row(EVENTS.oldest)
    said = tx.row(EVENTS.said_pruned, after=position["seq"] - LOOKED_BACK)
    return PrunedError(
        f"the events up to {upto} have been pruned, and you have seen only those up to {seq}",
        next=f"read the present state, then go on from {upto}",
        pruned_seq=upto,
        first_seq=upto + 1 if first is None else first["seq"],
        pruned_at=None if said is None else said["at"],
    )
