"""Leases: the right of one session to change a resource.

Promised: at any moment at most one live session holds an exclusive lease on a path, and none
holds an overlapping one; several may share. Each grant carries an epoch, the seq at which it
was made, and renewing or releasing names the session and the epoch: a holder whose lease has
lapsed is refused and changes nothing. Waiters are served first come, first served; a release
hands over in its own transaction. A wait that could never end is refused at once.

Not promised: that nobody writes to the file. A lease is advisory until a hook or a commit
checks it.

Who decides: the row in the store, together with the store's clock and the liveness of the
holder's session. A lease ends when it is released, when its time is over, or when its session
ends; whoever wants it next clears it away in the same transaction that takes it. A person may
take it away before that (`revoke`): its holder is told, and refused from then on.
"""

from __future__ import annotations

from dibs.errors import (
    DeadlockError,
    HeldError,
    InvalidError,
    NotFoundError,
    NotYoursError,
    StaleError,
    StateError,
    TimeoutError,
)
from dibs.nouns import grants
from dibs.nouns.grants import LEASES, Want, lease_record
from dibs.nouns.paths import Resource, ancestors, below, resources_overlap
from dibs.nouns.recovery import clear
from dibs.nouns.scope import Noun
from dibs.operation import (
    LIST_LIMIT,
    NEWEST,
    TTL_MAX_S,
    TTL_MIN_S,
    WAIT_MAX_S,
    check_choice,
    check_filter,
    check_integer,
    check_seconds,
    check_text,
    operation,
    shown,
    writes,
)
from dibs.records import Availability, Grant, Outcome
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.nouns.scope import Scope
    from dibs.records import Blocker, Lease
    from dibs.storage.driver import Row
    from dibs.storage.store import Read, Write

MODES = (grants.EXCLUSIVE, grants.SHARED)
OUTCOMES = ("released", "modified", "created", "deleted", "moved")
KEEP_TICKET_S = 5
CLAIM_LIMIT = 200
MENTIONED = 3
"""How many names the message to somebody who has lost leases spells out."""


class Leases(Noun):
    @operation(
        HeldError,
        DeadlockError,
        TimeoutError,
        InvalidError,
        mutates=True,
        cli="claim",
        example="src/a.py docs/ --note 'fix the parser' --wait 60s",
    )
    def claim(
        self,
        *resources: str,
        mode: str = grants.EXCLUSIVE,
        ttl_s: float = 1800,
        note: str = "",
        wait_s: float = 0,
        idempotency_key: str | None = None,
    ) -> Grant:
        """Claim paths, globs or named resources: all of them or none.

        resources: what to claim, such as src/a.py, docs/, src/**/*.sql or port:3000
        mode: exclusive, or shared with others who share
        ttl_s: seconds until the claim lapses unless it is renewed
        note: what you are going to do, shown to those who want it too
        wait_s: how many seconds to queue for it if it is held
        idempotency_key: asked again with the same one, the first answer is given
        """
        wants = named(self.scope, resources, mode)
        ttl_ms = check_seconds("ttl_s", ttl_s, TTL_MIN_S, TTL_MAX_S)
        check_text("note", note)
        wait_ms = check_seconds("wait_s", wait_s, 0, WAIT_MAX_S)
        scope, caller, ticket = self.scope, self.scope.caller, 0
        request = [[want.resource.text for want in wants], mode, ttl_ms, note]
        try:
            with scope.write() as tx:
                try:
                    return scope.once(
                        tx,
                        "leases.claim",
                        idempotency_key,
                        request,
                        lambda: take(tx, scope, wants, ttl_ms, note),
                    )
                except HeldError:
                    if not wait_ms:
                        raise
                    grants.refuse_deadlock(tx, wants, caller.agent, caller.session)
                    ticket = self._enqueue(tx, wants, ttl_ms, note)
            grant = self._collect(ticket, wants, wait_s)
            if idempotency_key is None:
                return grant
            with scope.write() as tx:
                return scope.once(tx, "leases.claim", idempotency_key, request, lambda: grant)
        except BaseException:
            if ticket:
                self._withdraw(ticket, wants)
            raise
        finally:
            # Also when the withdrawal failed: nobody queues behind a ticket without a waiter.
            if ticket and scope.store.liveness is not None:
                scope.store.liveness.let_go(ticket)

    def _enqueue(self, tx: Write, wants: list[Want], ttl_ms: int, note: str) -> int:
        caller, liveness = self.scope.caller, tx.store.liveness
        tx.queued = True
        tx.hold(tx.seq)
        for want in wants:
            tx.run(
                LEASES.enqueue,
                base=want.resource.base,
                resource=want.resource.text,
                number=tx.seq,
                kind=want.resource.kind,
                mode=want.mode,
                inode=want.resource.inode,
                session=caller.session,
                agent=caller.agent,
                note=note,
                content_hash=want.content_hash,
                ttl_ms=ttl_ms,
                since_at=tx.wall,
                deadline=None if liveness else tx.now + grants.TICKET_MS,
            )
            tx.event("lease.queued", want.resource.text, {"ticket": tx.seq, "mode": want.mode})
        return tx.seq

    def _collect(self, ticket: int, wants: list[Want], wait_s: float) -> Grant:
        """Wait until the ticket is served, and help to serve the queue when a holder lapses."""
        store = self.scope.store
        kept_at = store.clock.now()

        def waiting() -> tuple[Grant | None, int | None]:
            nonlocal kept_at
            with store.read() as tx:
                rows = tx.rows(LEASES.ticket, number=ticket)
                if not rows:
                    return self._granted(tx, wants, ticket), None
                due_in_ms, stuck = self._outlook(tx, ticket, wants)
            if stuck:
                self._settle(ticket, wants)
                return None, 1
            if store.liveness is None and store.clock.now() - kept_at > KEEP_TICKET_S * 1000:
                kept_at = store.clock.now()
                with store.write(None) as write:
                    deadline = write.now + grants.TICKET_MS
                    write.run(LEASES.keep_ticket, number=ticket, deadline=deadline)
            return None, due_in_ms

        grant = store.wait(waiting, (str(ticket),), wait_s)
        if grant is None:
            raise self._too_late(wants, wait_s)
        return self._see(grant, wants)

    def _see(self, grant: Grant, wants: list[Want]) -> Grant:
        """Note the content of the files as it is now: it may have changed during the wait."""
        changed = {}
        for want in wants:
            found = self.scope.place.content_hash(want.resource)
            if found != want.content_hash:
                changed[want.resource.text] = (want.resource, found)
        if not changed:
            return grant
        with self.scope.write() as tx:
            for resource, found in changed.values():
                tx.run(
                    LEASES.see,
                    base=resource.base,
                    resource=resource.text,
                    session=self.scope.caller.session,
                    content_hash=found,
                )
                tx.event("lease.seen", resource.text, {"content_hash": found})
            return self._granted(tx, wants, grant.epoch)

    def _too_late(self, wants: list[Want], wait_s: float) -> TimeoutError:
        states = self._states(wants)
        return TimeoutError(
            f"{', '.join(state.resource for state in states)} did not become free "
            f"within {wait_s:g} s",
            next="work on something else, or wait longer",
            blockers=[blocker for state in states for blocker in state.blockers],
        )

    def _granted(self, tx: Read, wants: list[Want], since: int) -> Grant:
        """What became of a ticket that is no longer in the queue."""
        leases = []
        for want in wants:
            row = self._held(tx, want.resource)
            served = row is not None and row["mode"] in (want.mode, grants.EXCLUSIVE)
            if row is None or not served or row["deadline"] <= tx.now:
                raise StaleError(
                    f"{want.resource.text} was granted while you were away, and lost again since",
                    next="claim it again",
                )
            leases.append(lease_record(row, tx.now))
        return granted(leases, since)

    def _held(self, tx: Read, resource: Resource) -> Row | None:
        """The caller's own lease on this resource."""
        return tx.row(
            LEASES.held,
            base=resource.base,
            resource=resource.text,
            session=self.scope.caller.session,
        )

    def _in_the_way(self, tx: Read, ticket: int, wants: list[Want]) -> list[Row]:
        session = self.scope.caller.session
        return [row for want in wants for row in grants.look(tx, want, session, ticket)[1]]

    def _outlook(self, tx: Read, ticket: int, wants: list[Want]) -> tuple[int | None, bool]:
        """When the first holder's time is over, and whether the queue is stuck until then."""
        rows = self._in_the_way(tx, ticket, wants)
        left = [max(0, row["deadline"] - tx.now) for row in rows if not row["waiting"]]
        return min(left, default=None), not rows or any(grants.lapsed(tx, rows))

    def _settle(self, ticket: int, wants: list[Want]) -> None:
        """Clear away those in the way who have lapsed, and serve the queue."""
        with self.scope.store.write(None) as tx:
            clear(tx, self.scope.keys, self._in_the_way(tx, ticket, wants))
            grants.hand_over(tx, self.scope.keys, [want.resource for want in wants])

    def _withdraw(self, ticket: int, wants: list[Want]) -> None:
        """Leave the queue, and give back what the ticket was granted meanwhile."""
        with self.scope.store.write(None) as tx:
            freed = grants.drop_ticket(tx, ticket, "withdrawn")
            if not freed:
                rows = [self._held(tx, want.resource) for want in wants]
                meanwhile = [row for row in rows if row and row["epoch"] > ticket]
                freed = grants.free(tx, meanwhile, "released")
            if not freed:
                tx.discard()
            grants.hand_over(tx, self.scope.keys, freed)

    @writes(StaleError, NotFoundError, NotYoursError, cli="renew", example="src/a.py --ttl 1h")
    def renew(
        self,
        tx: Write,
        *resources: str,
        everything: bool = False,
        ttl_s: float | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Lease, ...]:
        """Renew leases of this session, all of them or none; their epochs stay.

        resources: what to renew; none for all that was granted at `epoch`
        everything: renew all that this session holds
        ttl_s: seconds from now; by default as long as it was claimed for
        epoch: refuse if the lease is of another epoch
        idempotency_key: asked again with the same one, the first answer is given
        """
        ttl_ms = None if ttl_s is None else check_seconds("ttl_s", ttl_s, TTL_MIN_S, TTL_MAX_S)
        renewed = []
        for row in self._own(tx, resources, everything, epoch):
            row["ttl_ms"] = ttl_ms or row["ttl_ms"]
            row["deadline"] = tx.now + row["ttl_ms"]
            row["signature"] = self.scope.keys.lease(row)
            tx.run(LEASES.renew, row)
            tx.event("lease.renewed", row["resource"], {"epoch": row["epoch"]})
            renewed.append(lease_record(row, tx.now))
        if not renewed and idempotency_key is None:
            tx.discard()
        return tuple(renewed)

    @writes(StaleError, NotFoundError, NotYoursError, cli="release", example="src/a.py")
    def release(
        self,
        tx: Write,
        *resources: str,
        everything: bool = False,
        outcome: str | None = None,
        moved_to: str | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Lease, ...]:
        """Release leases of this session, all of them or none, to whoever waits for them.

        resources: what to release; none for all that was granted at `epoch`
        everything: release all that this session holds
        outcome: what became of it, for the next: released, modified, created, deleted, moved
        moved_to: where it is now, if it was moved
        epoch: refuse if the lease is of another epoch
        idempotency_key: asked again with the same one, the first answer is given
        """
        if outcome is not None:
            check_choice("outcome", outcome, OUTCOMES)
        if (moved_to is None) == (outcome == "moved"):
            raise InvalidError(
                "the outcome moved and moved_to belong together", next="give both, or neither"
            )
        place = None if moved_to is None else self.scope.place.resource(moved_to)
        if place is not None and place.kind == "glob":
            raise InvalidError(
                f"moved_to is a pattern: {shown(moved_to)}", next="name the one path where it is"
            )
        rows = self._own(tx, resources, everything, epoch)
        if place is not None and len(rows) > 1:
            raise InvalidError(
                f"{len(rows)} resources cannot all be moved to {place.text}",
                next="release each with its own moved_to",
            )
        freed = grants.free(tx, rows, "released")
        if outcome is not None:
            for row in rows:
                tx.run(
                    LEASES.say,
                    base=row["base"],
                    resource=row["resource"],
                    kind=row["kind"],
                    outcome=outcome,
                    moved_to=place and place.text,
                    agent=row["agent"],
                    epoch=row["epoch"],
                    seq=tx.seq,
                    released_at=tx.wall,
                )
        if not rows and idempotency_key is None:
            tx.discard()
        grants.hand_over(tx, self.scope.keys, freed)
        return tuple(lease_record(row, tx.now) for row in rows)

    def _own(
        self, tx: Write, resources: tuple[str, ...], everything: bool, epoch: int | None
    ) -> list[Row]:
        """The caller's leases on these resources, in force and of that epoch, or a refusal."""
        if epoch is not None:
            check_integer("epoch", epoch, 1, NEWEST)
        if (everything and resources) or not (everything or resources or epoch):
            raise InvalidError(
                "name the resources, or the epoch of their grant, or say everything",
                next="do one of these",
            )
        if not resources:
            rows = tx.rows(LEASES.of_session, session=self.scope.caller.session)
            rows = [
                row for row in rows if row["deadline"] > tx.now and epoch in (None, row["epoch"])
            ]
            if not rows and epoch is not None:
                raise StaleError(
                    f"your grant of epoch {epoch} is over",
                    next="claim it again, and look at what changed meanwhile",
                    epoch=epoch,
                )
        else:
            found = {found.text: found for found in map(self.scope.place.resource, resources)}
            rows = [self._own_lease(tx, resource, epoch) for resource in found.values()]
        for row in rows:
            self.scope.keys.require("lease", row, row["resource"])
        return rows

    def _stale(self, row: Row, why: str) -> StaleError:
        return StaleError(
            f"your lease on {row['resource']} {why}",
            next="claim it again, and look at what changed meanwhile",
            epoch=row["epoch"],
        )

    def _own_lease(self, tx: Write, resource: Resource, epoch: int | None) -> Row:
        row = self._held(tx, resource)
        if row is not None and row["deadline"] > tx.now and epoch in (None, row["epoch"]):
            return row
        name = resource.text
        if row is not None:
            expired = row["deadline"] <= tx.now
            raise self._stale(row, "has expired" if expired else "is of another epoch")
        want = Want(resource, grants.EXCLUSIVE, None)
        _, rows = grants.look(tx, want, self.scope.caller.session, None)
        blockers = [grants.blocker_record(row, tx.now) for row in rows if not row["waiting"]]
        taken = self._taken_away(tx, resource, epoch)
        if taken is not None:
            raise StaleError(
                f"your lease on {name} was taken away by {taken['agent']}",
                next="leave it alone; read your inbox, and ask before you claim it again",
                blockers=blockers,
                epoch=taken["epoch"],
                reason=taken["reason"],
            )
        if epoch is not None:
            raise StaleError(
                f"you no longer hold {name}: your lease of epoch {epoch} is over",
                next="claim it again, and look at what changed meanwhile",
                blockers=blockers,
            )
        if blockers:
            raise NotYoursError(
                f"{name} is held by {blockers[0].agent}, not by this session",
                next="ask them to release it, or claim it with a wait",
                blockers=blockers,
            )
        raise NotFoundError(f"you hold no lease on {name}", next="look at what you hold: list")

    def _taken_away(self, tx: Read, resource: Resource, epoch: int | None) -> Row | None:
        """Who took the caller's lease on this resource away, and why, if somebody did."""
        session = self.scope.caller.session
        for event in tx.rows(LEASES.revoked, resource=resource.text, after=session):
            said = from_text(event["data"])
            if said["holder_session"] == session and epoch in (None, said["epoch"]):
                return {**said, "agent": event["agent"]}
        return None

    @writes(
        NotFoundError,
        StateError,
        InvalidError,
        cli="revoke",
        example="src/a.py --reason 'the release needs it'",
    )
    def revoke(
        self,
        tx: Write,
        *resources: str,
        reason: str = "",
        idempotency_key: str | None = None,
    ) -> tuple[Lease, ...]:
        """Take leases away from others, for a person who decides; they are told.

        resources: what must become free; every lease of others that overlaps with it is taken
        reason: why, for those who lose it
        idempotency_key: asked again with the same one, the first answer is given
        """
        check_text("reason", reason, lines=True)
        if not resources:
            raise InvalidError("nothing was named", next="name at least one path or resource")
        found: dict[tuple[str, int], Row] = {}
        for resource in self._resources(resources):
            for row in self._of_others(tx, resource):
                found[row["resource"], row["session"]] = row
        rows = list(found.values())
        freed = grants.revoke(tx, rows, reason)
        self._tell(tx, rows, reason)
        grants.hand_over(tx, self.scope.keys, freed)
        return tuple(lease_record(row, tx.now) for row in rows)

    def _of_others(self, tx: Read, resource: Resource) -> list[Row]:
        """The leases of others that overlap with a resource, or a refusal if there is none."""
        in_the_way = grants.look(tx, Want(resource, grants.EXCLUSIVE, None), 0, None)[1]
        rows = [row for row in standing(tx, in_the_way) if not row["waiting"]]
        others = [row for row in rows if row["session"] != self.scope.caller.session]
        if rows and not others:
            raise StateError(f"you hold {rows[0]['resource']} yourself", next="release it")
        if not rows:
            raise NotFoundError(f"nobody holds {resource.text}", next="look at what is held: list")
        return others

    def _tell(self, tx: Write, rows: list[Row], reason: str) -> None:
        """Send each of those who have lost leases one message."""
        from dibs.nouns.messages import post  # a claim does not need it

        lost: dict[str, list[str]] = {}
        for row in rows:
            lost.setdefault(row["agent"], []).append(row["resource"])
        for agent, names in lost.items():
            what = ", ".join(names[:MENTIONED])
            if len(names) > MENTIONED:
                what += f" and {len(names) - MENTIONED} more"
            body = f"your {'lease' if len(names) == 1 else 'leases'} on {what} "
            body += "was taken away" if len(names) == 1 else "were taken away"
            post(tx, self.scope, f"{body}: {reason}" if reason else body, to=agent)

    @operation(InvalidError, cli="status", example="src/a.py")
    def status(self, *resources: str) -> tuple[Availability, ...]:
        """Say of each resource whether it is free for you, and if not, who has it.

        resources: what to look at
        """
        wanted = self._resources(resources)
        return self._states([Want(resource, grants.EXCLUSIVE, None) for resource in wanted])

    def _resources(self, texts: tuple[str, ...]) -> list[Resource]:
        if len(texts) > CLAIM_LIMIT:
            raise InvalidError(f"{len(texts)} resources in one call; the limit is {CLAIM_LIMIT}")
        return [self.scope.place.resource(text) for text in texts]

    def _states(self, wants: list[Want]) -> tuple[Availability, ...]:
        session = self.scope.session
        states = []
        with self.scope.store.read() as tx:
            for want in wants:
                rows = standing(tx, grants.look(tx, want, session, None)[1])
                states.append(
                    Availability(
                        resource=want.resource.text,
                        free=not rows,
                        blockers=tuple(grants.blocker_record(row, tx.now) for row in rows),
                    )
                )
        return tuple(states)

    @operation(InvalidError, cli="leases", example="--agent alice")
    def list(
        self, *, agent: str | None = None, session: int | None = None, limit: int = 1000
    ) -> tuple[Lease, ...]:
        """List the leases in force, by name.

        agent: only those of this agent
        session: only those of this session
        limit: at most so many
        """
        check_filter("agent", agent)
        if session is not None:
            check_integer("session", session, 0, NEWEST)
        check_integer("limit", limit, 1, LIST_LIMIT)
        with self.scope.store.read() as tx:
            rows = tx.rows(LEASES.all, now=tx.now, agent=agent, session=session, limit=limit)
            sessions = grants.sessions_of(tx, rows)
            return tuple(
                lease_record(row, tx.now)
                for row in rows
                if row["session"] in sessions and tx.store.alive(sessions[row["session"]], tx.now)
            )

    @operation(InvalidError)
    def waiting(self, *, limit: int = 1000) -> tuple[Blocker, ...]:
        """List who waits for what, first come first.

        limit: at most so many
        """
        check_integer("limit", limit, 1, LIST_LIMIT)
        with self.scope.store.read() as tx:
            rows = standing(tx, tx.rows(LEASES.queue, limit=limit))
            return tuple(grants.blocker_record(row, tx.now) for row in rows)

    @operation(InvalidError, example="src/a.py")
    def outcomes(self, *resources: str, limit: int = 100) -> tuple[Outcome, ...]:
        """Show what earlier holders said they had done to these resources, the latest first.

        resources: what to ask about; also says what is around and inside them
        limit: at most so many for each
        """
        check_integer("limit", limit, 1, LIST_LIMIT)
        found: dict[str, Row] = {}
        wanted = self._resources(resources)
        with self.scope.store.read() as tx:
            for want in wanted:
                above, (low, high) = ancestors(want.base), below(want.base)
                rows = tx.rows(LEASES.said, ancestors=above, low=low, high=high)
                said = [row for row in rows if resources_overlap(grants.resource_of(row), want)]
                found |= {row["resource"]: row for row in said[:limit]}
        latest = sorted(found.values(), key=lambda row: -int(row["seq"]))
        return tuple(outcome_record(row) for row in latest)

    @operation(TimeoutError, InvalidError, cli="wait", example="src/a.py --timeout 60s")
    def wait(self, *resources: str, wait_s: float = 60) -> tuple[Availability, ...]:
        """Wait until all these resources are free, without claiming them.

        resources: what to wait for
        wait_s: how many seconds at most
        """
        wants = named(self.scope, resources, grants.EXCLUSIVE)
        check_seconds("wait_s", wait_s, 0, WAIT_MAX_S)

        def look() -> tuple[tuple[Availability, ...] | None, int | None]:
            states = self._states(wants)
            left = [
                blocker.expires_in_ms
                for state in states
                for blocker in state.blockers
                if blocker.expires_in_ms is not None
            ]
            free = all(state.free for state in states)
            return (states if free else None), min(left, default=None)

        topics = tuple(f"lease:{want.resource.text}" for want in wants)
        states = self.scope.store.wait(look, (*topics, "session"), wait_s)
        if states is None:
            raise self._too_late(wants, wait_s)
        return states


def named(scope: Scope, resources: Sequence[str], mode: str) -> list[Want]:
    """What these texts name, each once, with the content that files have now."""
    if not resources:
        raise InvalidError("nothing was named", next="name at least one path or resource")
    if len(resources) > CLAIM_LIMIT:
        raise InvalidError(
            f"{len(resources)} resources in one call; the limit is {CLAIM_LIMIT}",
            next="claim their directory, or a glob",
        )
    check_choice("mode", mode, MODES)
    found = {resource.text: resource for resource in map(scope.place.resource, resources)}
    return [Want(resource, mode, scope.place.content_hash(resource)) for resource in found.values()]


def take(
    tx: Write, scope: Scope, wants: list[Want], ttl_ms: int, note: str, task: str | None = None
) -> Grant:
    """Grant all that is wanted to the caller, or raise with what is in the way."""
    caller = scope.caller
    while True:
        seen = [grants.look(tx, want, caller.session, None) for want in wants]
        # Who waits for what the caller holds does not keep the caller from holding it on.
        in_the_way = [
            row
            for want, (own, rows) in zip(wants, seen, strict=True)
            for row in rows
            if not (row["waiting"] and keeps(tx, own, want, caller.session))
        ]
        if not in_the_way:
            break
        if not clear(tx, scope.keys, in_the_way):
            raise held(tx, in_the_way)
    leases, opened = [], []
    for want, (own, _) in zip(wants, seen, strict=True):
        if own is not None and own["mode"] != want.mode == grants.SHARED:
            opened.append(want.resource)
        leases.append(
            grants.grant(
                tx,
                scope.keys,
                want,
                agent=caller.agent,
                session=caller.session,
                ttl_ms=ttl_ms,
                note=note,
                task=task,
                own=own,
            )
        )
    grants.hand_over(tx, scope.keys, opened)
    return granted(leases, tx.seq)


def outcome_record(row: Row) -> Outcome:
    return Outcome(
        resource=row["resource"],
        outcome=row["outcome"],
        moved_to=row["moved_to"],
        agent=row["agent"],
        epoch=row["epoch"],
        released_at=row["released_at"],
    )


def granted(leases: list[Lease], since: int) -> Grant:
    """The grant, and which of its leases are from before that seq."""
    kept = tuple(lease.resource for lease in leases if lease.epoch < since)
    epoch = max(lease.epoch for lease in leases)
    return Grant(epoch=epoch, leases=tuple(leases), kept=kept)


def keeps(tx: Read, own: Row | None, want: Want, session: int) -> bool:
    """Whether the caller holds what it wants already: this very thing, or what it lies in."""
    above = tx.rows(LEASES.above, ancestors=ancestors(want.resource.base), session=session)
    around = [own, *above] if own else above
    return any(
        row["deadline"] > tx.now
        and row["mode"] in (want.mode, grants.EXCLUSIVE)
        and (row is own or row["kind"] != "glob")
        for row in around
    )


def held(tx: Read, rows: list[Row]) -> HeldError:
    """Say who holds it, since when, for what, until when, and what to do next."""
    blockers = [grants.blocker_record(row, tx.now) for row in rows]
    first = next((blocker for blocker in blockers if not blocker.waiting), blockers[0])
    doing = f" ({first.note})" if first.note else ""
    since = f"for {(tx.wall - first.since_at) // 1000} s"
    if first.expires_in_ms is None:
        message = f"{first.agent} has been waiting for {first.resource}{doing} {since}"
    else:
        message = (
            f"{first.resource} is held by {first.agent}{doing} {since}, "
            f"{first.expires_in_ms // 1000} s left"
        )
    if len(blockers) > 1:
        message += f", and {len(blockers) - 1} more in the way"
    return HeldError(
        message,
        next="claim it with a wait to queue for it, message the holder, or work elsewhere",
        blockers=blockers,
    )


def standing(tx: Read, rows: list[Row]) -> list[Row]:
    """Without those that have lapsed and only wait to be cleared away."""
    leases, tickets, dead = grants.lapsed(tx, rows)
    gone = [id(row) for row in leases + tickets]
    return [row for row in rows if id(row) not in gone and row["session"] not in dead]
