"""Events: the journal of the space.

Promised: every write adds its event in its own transaction, and events are numbered in commit
order. A reader that continues from the last seq it saw therefore gets every event once, in
order. A reader that stayed away until its place was pruned is told so, and never gets a gap.

Pruning removes what is old and finished, in short slices. It never touches what is held, unread
or waited for, and never lowers seq: seq, epochs and versions only rise. See `pruning`.
"""

from __future__ import annotations

from dibs.arguments import Choice, When, milliseconds
from dibs.errors import NotFoundError, PrunedError
from dibs.nouns.events import places
from dibs.nouns.events.choosing import Filter
from dibs.nouns.events.kinds import TOPICS, EventKind
from dibs.operation import EVERYBODY, PEOPLE, operation
from dibs.records import Contention, Difference, Event, Moment, Pruned, Report, Seal, Sealed
from dibs.space.scope import Noun
from dibs.storage.queries import Queries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

    from dibs.storage.driver import Row
    from dibs.storage.store import Read

EVENTS = Queries("events")
SPACE = Queries("space")
LOOKED_BACK = 10_000
"""How many of the last events are searched for the one that says when pruning happened."""
SERVED_S = 4.0
"""How long a daemon prunes for one call."""
EVENT = EventKind()


class Events(Noun):
    @operation(
        PrunedError,
        by=EVERYBODY,
        cli="log",
        example="--kind lease --agent bob",
        kinds={"seq": When("since"), "kind": EVENT},
    )
    def since(
        self,
        seq: int | str | datetime | None = None,
        *,
        until: int | str | datetime | None = None,
        kind: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        task: str | None = None,
        path: str | None = None,
        limit: int = 1000,
    ) -> tuple[Event, ...]:
        """Show the first events after a seq or since a time, in order.

        seq: the last seq you have seen, or a time such as 1h or 2026-11-16; by default all
        until: the last seq you want, or a time
        kind: only this kind, such as lease.claimed, or a group of kinds, such as lease
        agent: only what this agent did
        subject: only what was done to this resource, task, entry or agent
        task: only events about this task and the leases held for it
        path: only events about leases that overlap with this path
        """
        chosen = Filter(self.scope.place, kind, agent, subject, task, path)
        with self.scope.read() as tx:
            if isinstance(seq, int):
                refuse_pruned(tx, seq)
            after, upto = places.between(tx, seq, until)
            return tuple(chosen.first(tx, after, upto, limit))

    @operation(by=EVERYBODY, example="--kind lease --limit 20", kinds={"kind": EVENT})
    def latest(
        self,
        *,
        since: int | str | datetime | None = None,
        until: int | str | datetime | None = None,
        kind: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        task: str | None = None,
        path: str | None = None,
        limit: int = 1000,
    ) -> tuple[Event, ...]:
        """Show the last events, in order.

        since: only events after this seq, or since a time such as 1h or 2026-11-16
        until: only events up to this seq, or until a time
        kind: only this kind, such as lease.claimed, or a group of kinds, such as lease
        agent: only what this agent did
        subject: only what was done to this resource, task, entry or agent
        task: only events about this task and the leases held for it
        path: only events about leases that overlap with this path
        """
        chosen = Filter(self.scope.place, kind, agent, subject, task, path)
        with self.scope.read() as tx:
            after, upto = places.between(tx, since, until)
            return tuple(chosen.last(tx, after, upto, limit))

    @operation(by=EVERYBODY)
    def last(self) -> int:
        """Show the seq of the last write, where a reader of only new events starts."""
        with self.scope.read() as tx:
            return places.kept(tx)[1]

    @operation(PrunedError, by=EVERYBODY, example="17 --wait 60s", kinds={"kind": EVENT})
    def watch(
        self,
        seq: int,
        *,
        kind: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        task: str | None = None,
        path: str | None = None,
        limit: int = 1000,
        wait_s: float = 60,
    ) -> tuple[Event, ...]:
        """Wait for events after a seq and return them in order; none if nothing happened.

        seq: the last seq you have seen
        kind: only this kind, such as lease.claimed, or a group of kinds, such as lease
        agent: only what this agent did
        subject: only what was done to this resource, task, entry or agent
        task: only events about this task and the leases held for it
        path: only events about leases that overlap with this path
        wait_s: the maximum time to wait
        """
        chosen = Filter(self.scope.place, kind, agent, subject, task, path)
        seen = seq

        def look() -> tuple[tuple[Event, ...] | None, None]:
            nonlocal seen
            with self.scope.read() as tx:
                end: int = refuse_pruned(tx, seen)["seq"]
                found = chosen.first(tx, seen, end, limit)
            if not found:
                seen = max(seen, end)  # they are not looked at again
            return tuple(found) or None, None

        return self.scope.store.wait(look, TOPICS, wait_s) or ()

    @operation(by=EVERYBODY, cli="audit seal")
    def seal(self) -> Seal:
        """Seal the journal: print its end as one line, to be kept elsewhere."""
        from dibs.nouns.events.seals import seal  # late, since it is rarely used

        return seal(self.scope)

    @operation(NotFoundError, PrunedError, by=EVERYBODY, cli="audit check", example="@seal.txt")
    def check_seal(self, seal: str) -> Sealed:
        """Compare the journal with a seal.

        seal: the line that was kept
        """
        from dibs.nouns.events.seals import check

        return check(self.scope, seal)

    @operation(
        PrunedError, NotFoundError, by=EVERYBODY, long=True, cli="replay", example="--at 14:00"
    )
    def replay(
        self, *, at: int | str | datetime, text: str | None = None, limit: int = 1000
    ) -> Moment:
        """Show who was here, what was held and which tasks were open at an earlier moment.

        at: a seq or a time
        text: only tasks with this text in their title or id
        limit: the maximum number of each
        """
        from dibs.nouns.events.replaying import replay  # late, since it is rarely used

        return replay(self.scope, at, text, limit)

    @operation(
        PrunedError, NotFoundError, by=EVERYBODY, long=True, cli="diff", example="yesterday 412"
    )
    def diff(
        self, a: int | str | datetime, b: int | str | datetime, *, limit: int = 1000
    ) -> Difference:
        """Show what changed between two moments, and who changed it.

        a: a seq or a time
        b: another seq or time
        limit: the maximum number of changes
        """
        from dibs.nouns.events.replaying import diff

        return diff(self.scope, a, b, limit)

    @operation(
        by=EVERYBODY,
        cli="report",
        example="--since yesterday --by agent",
        kinds={"by": Choice("agent", "task", "path", "day")},
    )
    def report(
        self,
        *,
        since: int | str | None = None,
        until: int | str | None = None,
        by: str = "agent",
        east_s: int = 0,
        limit: int = 100,
    ) -> Report:
        """Report what was done, held, waited for and recovered in a period.

        since: a seq or a time; by default the first event that is kept
        until: a seq or a time; by default now
        by: group by agent, task, path or day
        east_s: the time zone in which days are counted, in seconds ahead of UTC
        limit: the maximum number of groups
        """
        from dibs.nouns.events.reporting import report  # late, since most calls do not need it

        return report(self.scope, since, until, by, east_s * 1000, limit)

    @operation(by=EVERYBODY, cli="contention", example="--since 1d")
    def contention(
        self, *, since: int | str | None = None, until: int | str | None = None, limit: int = 20
    ) -> Contention:
        """Show who waits for whom now, and what agents waited for in a period.

        since: a seq or a time; by default the first event that is kept
        until: a seq or a time; by default now
        limit: the maximum number of each: waiters, paths, pairs, savings
        """
        from dibs.nouns.events.reporting import contention

        return contention(self.scope, since, until, limit)

    @operation(
        by=PEOPLE,
        events=("space.pruned",),
        destructive=True,
        sliced=True,
        cli="gc",
        example="--keep 30d",
    )
    def prune(self, *, keep_s: float | None = None) -> Pruned:
        """Remove records that have ended and are older than that; free what dead sessions hold.

        keep_s: how far back to keep records; by default what the settings say, or 30 days
        """
        from dibs.nouns.events.pruning import prune  # late, since it is rarely used

        # A call to a daemon is limited in time; its client asks again until everything is done.
        serves = self.scope.store.page_bytes is not None
        keep_ms = None if keep_s is None else milliseconds(keep_s)
        return prune(self.scope, keep_ms, SERVED_S if serves else None)


def refuse_pruned(tx: Read, seq: int) -> Row:
    """The journal's end and the last pruned seq; refused if more was pruned than was seen."""
    position: Row = tx.rows(SPACE.position)[0]
    if seq < position["pruned_seq"]:
        raise pruned(tx, seq, position)
    return position


def pruned(tx: Read, seq: int, position: Row) -> PrunedError:
    """Say up to which seq the journal was pruned, where it begins now, and since when."""
    upto = position["pruned_seq"]
    first = tx.row(EVENTS.oldest)
    said = tx.row(EVENTS.said_pruned, after=position["seq"] - LOOKED_BACK)
    return PrunedError(
        f"the events up to {upto} have been pruned, but you have seen only those up to {seq}",
        next=f"read the current state, then continue from {upto}",
        pruned_seq=upto,
        first_seq=upto + 1 if first is None else first["seq"],
        pruned_at=None if said is None else said["at"],
    )
