"""Events: the journal of the space.

Promised: every write adds its event in its own transaction, and events are numbered in commit
order, so a reader that goes on from the last seq it saw gets every event once, in order. A reader
that stayed away until its place was pruned is told so, instead of being given a gap.

Pruning removes what is old and done with; it never touches what is held, unread or waited for,
and never seq: it, epochs and versions only rise.
"""

from __future__ import annotations

from dibs.arguments import milliseconds
from dibs.errors import PrunedError
from dibs.nouns.recovery import end_dead_sessions
from dibs.operation import EVERYBODY, PEOPLE, operation, writes
from dibs.records import Event, Pruned
from dibs.space.scope import Noun
from dibs.storage.queries import Queries
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

EVENTS = Queries("events")
SPACE = Queries("space")
AGENTS = Queries("agents")
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
                raise PrunedError(
                    f"the events up to {position['pruned_seq']} have been pruned, "
                    f"and you have seen only those up to {seq}",
                    next=f"read the present state, then go on from {position['pruned_seq']}",
                    pruned_seq=position["pruned_seq"],
                )
            rows = tx.rows(
                EVENTS.since,
                after=seq or 0,
                kind=kind,
                kind_low=f"{kind}.",
                kind_high=f"{kind}/",
                agent=agent,
                subject=subject,
                limit=limit,
            )
        return tuple(Event.of(row, data=from_text(row["data"])) for row in rows)

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

    @writes(by=PEOPLE, events=("space.pruned",), destructive=True, cli="gc", example="--keep 30d")
    def prune(self, *, keep_s: float = 30 * 86_400) -> Pruned:
        """Remove what is over and older than that; free what dead sessions hold.

        keep_s: how much of the past to keep
        """
        tx = self.tx
        before = tx.wall - milliseconds(keep_s)
        end_dead_sessions(tx, self.scope.keys, tx.rows(AGENTS.open))
        upto = tx.rows(EVENTS.last_before, before=before)[0]["seq"]
        tx.run(EVENTS.prune_outcomes, before=before)
        tx.run(EVENTS.prune_tokens, before=before, now=tx.now)
        messages = tx.rows(EVENTS.prune_messages, before=before)
        for row in messages:
            tx.run(EVENTS.prune_words, id=row["id"])
            tx.run(EVENTS.prune_acknowledgements, id=row["id"])
        tasks = tx.rows(EVENTS.prune_tasks, before=before)
        for row in tasks:
            tx.run(EVENTS.prune_dependencies, id=row["id"])
            if row["state"] == "completed":
                tx.run(EVENTS.prune_needs, id=row["id"])
        tx.run(EVENTS.prune_lanes)
        pruned = Pruned(
            events=len(tx.rows(EVENTS.prune_events, upto=upto)),
            messages=len(messages),
            tasks=len(tasks),
            versions=len(tx.rows(EVENTS.prune_versions, before=before)),
            answers=len(tx.rows(EVENTS.prune_answers, before=before)),
            sessions=len(tx.rows(EVENTS.prune_sessions, before=before)),
            pruned_seq=upto,
        )
        tx.run(EVENTS.pruned, upto=upto)
        tx.event("space.pruned", self.scope.store.name, {"upto": upto})
        return pruned
