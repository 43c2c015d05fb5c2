"""Leases: the right of one session to change a resource.

Promised: at any moment at most one live session holds an exclusive lease on a path, and no
other session holds an overlapping one, unless one of them claimed only its own checkout
(`here`); shared leases may overlap. Each grant carries an epoch, the seq at which it was made.
Renewing and releasing name the session and the epoch: a holder whose lease has expired is
refused and changes nothing. Waiters are served first come, first served; a release hands over
in its own transaction. A wait that could never end is refused immediately.

Not promised: that nobody writes to the file. A lease is advisory until a hook or a commit
checks it.

Who decides: the row in the store, together with the store's clock and the liveness of the
holder's session. A lease ends when it is released, when it expires, or when its session ends;
the next claimer clears it away in the same transaction that takes it. A person may take it away
earlier (`revoke`): the holder is told, and refused from then on.
"""

from __future__ import annotations

from dibs.arguments import milliseconds, shown
from dibs.errors import (
    BusyError,
    DeadlockError,
    HeldError,
    InvalidError,
    NotFoundError,
    NotYoursError,
    StaleError,
    StateError,
    TimeoutError,
)
from dibs.names.paths import Resource, near, resources_overlap
from dibs.nouns.leases import grants, looking
from dibs.nouns.leases.grants import LEASES, Want, lease_record, named, take
from dibs.nouns.leases.own import asked_first, asked_to_release, learn, own_leases
from dibs.operation import EVERYBODY, HOOKS, PEOPLE, operation, writes
from dibs.records import NAME_SHOWN, Availability, Blocker, Grant, Lease, Outcome, called
from dibs.space.scope import AGENTS, Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.nouns.leases.queue import Ticket
    from dibs.storage.driver import Row
    from dibs.storage.store import Read, Write


SUSPECTS = 10
"""The maximum number of agents that a report names."""


class Leases(Noun):
    @operation(
        HeldError,
        DeadlockError,
        TimeoutError,
        hashes=True,
        queues=True,
        by=EVERYBODY,
        freely=PEOPLE,
        events=("lease.claimed", "lease.renewed", "lease.queued", "lease.unqueued"),
        at_least_one=True,
        cli="claim",
        example="src/a.py docs/ --note 'fix the parser' --wait 60s",
    )
    def claim(
        self,
        *resources: str,
        mode: str = grants.EXCLUSIVE,
        ttl_s: float = 1800,
        note: str = "",
        here: bool = False,
        wait_s: float = 0,
        idempotency_key: str | None = None,
    ) -> Grant:
        """Claim paths, globs or named resources: all of them or none.

        resources: what to claim, such as src/a.py, docs/, src/**/*.sql or port:3000
        mode: exclusive, or shared with other shared claims
        ttl_s: how long until the claim expires unless it is renewed
        note: what you are going to do, shown to others who want it
        here: claim it in this checkout only, even if it is held in another worktree
        wait_s: how long to queue for it if it is held
        """
        wants = named(self.scope, resources, mode, here)
        ttl_ms = milliseconds(ttl_s)
        scope, caller = self.scope, self.scope.caller
        ticket: Ticket | None = None
        crowd_s: float = 0
        texts = [want.resource.text for want in wants]
        request = idempotency_key and [texts, mode, ttl_ms, note, here]
        turns, line = (scope.store.driver.turns, looking.line_of(wants)) if wait_s else (None, "")
        try:
            since = scope.store.clock.now() if wait_s else 0
            if turns is not None and turns.ask(line):
                crowd_s = wait_s
            around = [(LEASES.around, want.near) for want in wants]
            if wait_s:
                first = [grants.ahead(want, None, grants.AHEAD) for want in wants]
                around += [(LEASES.queue_around, one) for one in first]
            with scope.write(lambda: around, crowd_s) as tx:
                try:
                    return scope.once(
                        tx, "leases.claim", idempotency_key, request,
                        lambda: take(tx, scope, wants, ttl_ms, note),
                    )  # fmt: skip
                except HeldError:
                    if not wait_s:
                        raise
                    # Late, since most claims need not wait.
                    from dibs.nouns.leases.queue import Queued, Ticket

                    looking.refuse_deadlock(tx, wants, caller.agent, caller.session)
                    most = [want.most_ms for want in wants if want.most_ms is not None]
                    ttl_ms = min([ttl_ms, *most])
                    asked = (idempotency_key, request)
                    ticket = Ticket(scope, tx, wants, ttl_ms, note, wait_s, since, line, *asked)
            if scope.store.driver.grouped:
                queued, ticket = Queued(ticket), None
                raise queued
            return ticket.collect()
        except BaseException as error:
            if ticket is not None:
                ticket.withdraw()
            elif crowd_s and isinstance(error, BusyError):
                looking.unless_over(scope, wants, wait_s, since)
            raise
        finally:
            # Even if the withdrawal failed: nobody may queue behind a ticket without a waiter.
            if ticket is not None:
                ticket.let_go()
            if turns is not None:
                turns.asked(line)

    @writes(
        StaleError,
        NotFoundError,
        NotYoursError,
        by=EVERYBODY,
        freely=PEOPLE,
        events=("lease.renewed",),
        cli="renew",
        example="src/a.py --ttl 1h",
        ahead=asked_first,
    )
    def renew(
        self,
        *resources: str,
        everything: bool = False,
        ttl_s: float | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Lease, ...]:
        """Renew leases of this session, all or none; their epochs stay the same.

        resources: what to renew; without any, everything granted at `epoch`
        everything: renew everything this session holds
        ttl_s: how long from now; by default the time it was claimed for
        """
        tx = self.tx
        ttl_ms = None if ttl_s is None else milliseconds(ttl_s)
        renewed = []
        for row in own_leases(tx, self.scope, resources, everything, epoch):
            lasts = ttl_ms or row["ttl_ms"]
            lease = grants.prolong(tx, self.scope, row, lasts, tx.now + lasts)
            renewed.append(lease)
            said = {**grants.about(row), "left_ms": lease.expires_in_ms}
            tx.event("lease.renewed", lease.resource, said)
        if not renewed and idempotency_key is None:
            tx.discard()
        return tuple(renewed)

    @writes(
        StaleError,
        NotFoundError,
        NotYoursError,
        by=EVERYBODY,
        events=("lease.released",),
        cli="release",
        example="src/a.py",
        ahead=asked_to_release,
    )
    def release(
        self,
        *resources: str,
        everything: bool = False,
        outcome: str | None = None,
        moved_to: str | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Lease, ...]:
        """Release leases of this session, all or none; the next waiter gets them.

        resources: what to release; without any, everything granted at `epoch`
        everything: release everything this session holds
        outcome: what you did to it, shown to the next holder
        moved_to: where it is now, if it was moved
        """
        tx = self.tx
        if (moved_to is None) == (outcome == "moved"):
            raise InvalidError(
                "outcome=moved and moved_to must be given together", next="give both, or neither"
            )
        place = None if moved_to is None else self.scope.place.resource(moved_to)
        if place is not None and place.kind == "glob":
            raise InvalidError(
                f"moved_to is a pattern: {shown(moved_to)}", next="name the one path it moved to"
            )
        rows = own_leases(tx, self.scope, resources, everything, epoch)
        if place is not None and len(rows) > 1:
            raise InvalidError(
                f"{len(rows)} resources cannot all be moved to {called(place.text)}",
                next="release each with its own moved_to",
            )
        grants.free(tx, rows, "released")
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
        grants.hand_over(tx, self.scope.keys, rows)
        return tuple([lease_record(row, tx.now) for row in rows])

    @operation(
        StaleError,
        NotFoundError,
        NotYoursError,
        hashes=True,
        by=HOOKS,
        events=("lease.seen",),
        at_least_one=True,
        example="src/a.py",
    )
    def see(self, *resources: str) -> tuple[Lease, ...]:
        """Record the present content of files as the work of this session.

        resources: files that this session holds and changed
        """
        found = {
            want.resource.text: want for want in named(self.scope, resources, grants.EXCLUSIVE)
        }
        with self.scope.write() as tx:
            rows = own_leases(tx, self.scope, tuple(found), False, None)
            for row in rows:
                learn(tx, row, found[row["resource"]].content_hash)
            return tuple(lease_record(row, tx.now) for row in rows)

    @operation(
        NotFoundError,
        StaleError,
        hashes=True,
        by=HOOKS,
        events=("lease.intruded", "message.sent"),
        example="src/a.py --by bob",
    )
    def report(
        self,
        resource: str,
        *,
        was: str | None = None,
        by: Sequence[str] = (),
        doing: str = "",
        idempotency_key: str | None = None,
    ) -> Lease:
        """Report that others changed a leased file; tell its holder and them, once.

        resource: the file
        was: the content hash in its lease, so that each change is reported only once
        by: the agents that may have done it; empty if unknown
        doing: what they were doing
        """
        (want,) = named(self.scope, (resource,), grants.EXCLUSIVE)
        scope = self.scope
        if not scope.place.has(want.resource, want.content_hash):
            raise StaleError(
                f"{called(want.resource.text)} does not have that content", next="read it again"
            )
        with scope.write() as tx:
            request = [want.resource.text, was, list(by), doing]
            return scope.once(
                tx,
                "leases.report",
                idempotency_key,
                request,
                lambda: self._report(tx, want, was, by, doing),
            )

    def _report(
        self, tx: Write, want: Want, was: str | None, by: Sequence[str], doing: str
    ) -> Lease:
        place, now = want.resource, want.content_hash
        # A report can contain anything, so it may name only known agents, few of them, briefly.
        known = {row["name"] for row in tx.rows(AGENTS.agents)}
        by = [name for name in by if name in known][:SUSPECTS]
        doing = doing[:NAME_SHOWN]
        rows = grants.standing(tx, [
            {"waiting": 0, **row}
            for row in tx.rows(LEASES.on, base=place.base, resource=place.text, now=tx.now)
            if row["mode"] == grants.EXCLUSIVE and row["checkout"] == place.checkout
        ])  # fmt: skip
        if not rows:
            raise NotFoundError(
                f"nobody holds {called(place.text)}", next="there is nothing to report"
            )
        row = rows[0]
        if row["content_hash"] != was or now == was:
            raise StaleError(
                f"this change to {called(place.text)} was already reported", next="read it again"
            )
        tx.run(LEASES.see, row | {"content_hash": now})
        tx.event(
            "lease.intruded",
            place.text,
            {"holder": row["agent"], "holder_session": row["session"], **grants.about(row),
             "was": was, "now": now, "by": list(by), "doing": doing},
        )  # fmt: skip
        from dibs.nouns.leases.giving import tell_of_intrusion  # a claim does not need it

        tell_of_intrusion(tx, self.scope, row, by, doing)
        return lease_record(row | {"content_hash": now}, tx.now)

    @writes(
        NotFoundError,
        StateError,
        by=PEOPLE,
        events=("lease.revoked", "message.sent"),
        destructive=True,
        at_least_one=True,
        cli="revoke",
        example="src/a.py --reason 'the release needs it'",
    )
    def revoke(
        self, *resources: str, reason: str = "", idempotency_key: str | None = None
    ) -> tuple[Lease, ...]:
        """Take leases away from other agents, on a person's decision; the holders are told.

        resources: what must become free; every overlapping lease of other agents is taken away
        reason: why, shown to the agents that lose it
        """
        tx = self.tx
        found: dict[tuple[str, int], Row] = {}
        for resource in self._resources(resources):
            for row in self._of_others(tx, resource):
                found[row["resource"], row["session"]] = row
        rows = list(found.values())
        grants.revoke(tx, rows, reason)
        from dibs.nouns.leases.giving import tell_of_loss  # a claim does not need it

        tell_of_loss(tx, self.scope, rows, reason)
        grants.hand_over(tx, self.scope.keys, rows)
        return tuple(lease_record(row, tx.now) for row in rows)

    @writes(
        NotFoundError,
        StaleError,
        StateError,
        NotYoursError,
        HeldError,
        DeadlockError,
        by=EVERYBODY,
        events=("lease.transferred", "message.sent"),
        at_least_one=True,
        cli="transfer",
        example="src/a.py --to bob --note 'the tests are yours now'",
        ahead=asked_first,
    )
    def transfer(
        self,
        *resources: str,
        to: str,
        note: str = "",
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Lease, ...]:
        """Give leases of this session to another agent, all or none; the agent is told.

        They are never free in between, so waiters keep waiting. Each lease gets a new epoch, and
        lasts as long as it was claimed for.

        resources: what to give
        to: the agent to give it to, in its latest session; refused if it has none
        note: what it is for; by default the note it was claimed with
        """
        tx, scope = self.tx, self.scope
        rows = own_leases(tx, scope, resources, False, epoch)
        from dibs.nouns.leases import giving  # a claim does not need it

        receiver = giving.receiver_of(tx, scope, to)
        given = [giving.transfer(tx, scope.keys, row, receiver, note) for row in rows]
        giving.serve_receiver(tx, scope.keys, receiver)
        giving.tell_of_gift(tx, scope, to, rows, note)
        return tuple(given)

    @operation(
        by=PEOPLE,
        events=("lease.revoked", "message.sent", "lease.claimed", "lease.renewed"),
        destructive=True,
        at_least_one=True,
        hashes=True,
        cli="claim --take",
        example="src/a.py --reason 'the release needs it'",
    )
    def take(
        self,
        *resources: str,
        ttl_s: float = 1800,
        note: str = "",
        reason: str = "",
        idempotency_key: str | None = None,
    ) -> Grant:
        """Claim immediately, on a person's decision: from any holder and ahead of all waiters.

        resources: what to take; every overlapping lease of other agents is revoked
        ttl_s: how long until the claim expires unless it is renewed
        note: what you are going to do, shown to others who want it
        reason: why, shown to the agents that lose it
        """
        from dibs.nouns.leases.giving import take_away  # a claim does not need it

        scope, ttl_ms = self.scope, milliseconds(ttl_s)
        wants = named(scope, resources, grants.EXCLUSIVE)
        request = [[want.resource.text for want in wants], ttl_ms, note, reason]
        with scope.write() as tx:
            return scope.once(
                tx,
                "leases.take",
                idempotency_key,
                request,
                lambda: take_away(tx, scope, wants, ttl_ms, note, reason),
            )

    def _of_others(self, tx: Read, resource: Resource) -> list[Row]:
        """The leases of others that overlap with a resource; a refusal if there are none."""
        in_the_way = grants.look(tx, Want(resource, grants.EXCLUSIVE, None), 0, None)[1]
        rows = [row for row in grants.standing(tx, in_the_way) if not row["waiting"]]
        others = [row for row in rows if row["session"] != self.scope.caller.session]
        if rows and not others:
            raise StateError(f"you hold {called(rows[0]['resource'])} yourself", next="release it")
        if not rows:
            raise NotFoundError(f"nobody holds {called(resource.text)}", next="list the leases")
        return others

    @operation(by=EVERYBODY, cli="status", example="src/a.py")
    def status(self, *resources: str) -> tuple[Availability, ...]:
        """Show for each resource whether you can claim it, and if not, who holds it.

        resources: what to look at
        """
        wanted = self._resources(resources)
        wants = [Want(resource, grants.EXCLUSIVE, None) for resource in wanted]
        return looking.states(self.scope, wants)

    def _resources(self, texts: tuple[str, ...]) -> list[Resource]:
        return [self.scope.place.resource(text) for text in texts]

    @operation(by=EVERYBODY, cli="leases", example="--agent alice", empty="nothing is held")
    def list(
        self, *, agent: str | None = None, session: int | None = None, limit: int = 1000
    ) -> tuple[Lease, ...]:
        """List the leases in force, by name.

        agent: only those of this agent
        session: only those of this session
        """
        with self.scope.read() as tx:
            return grants.in_force(tx, agent, session, limit)

    @operation(by=EVERYBODY, empty="nobody is waiting")
    def waiting(self, *, limit: int = 1000) -> tuple[Blocker, ...]:
        """List who waits for what, in the order they came."""
        with self.scope.read() as tx:
            return looking.waiters(tx, limit)

    @operation(by=EVERYBODY, example="src/a.py", empty="no outcomes were recorded")
    def outcomes(self, *resources: str, limit: int = 100) -> tuple[Outcome, ...]:
        """Show what earlier holders did to these resources, as they said, the latest first.

        resources: what to ask about; includes the folders around them and the files inside
        limit: the maximum number for each
        """
        found: dict[str, Row] = {}
        wanted = self._resources(resources)
        with self.scope.read() as tx:
            for want in wanted:
                rows = tx.rows(LEASES.said, **near(want.base))
                said = [row for row in rows if resources_overlap(grants.resource_of(row), want)]
                found |= {row["resource"]: row for row in said[:limit]}
        latest = sorted(found.values(), key=lambda row: -int(row["seq"]))
        return tuple(map(Outcome.of, latest))

    @operation(
        TimeoutError,
        by=EVERYBODY,
        at_least_one=True,
        cli="wait",
        options={"wait_s": "timeout"},
        example="src/a.py --timeout 60s",
    )
    def wait(self, *resources: str, wait_s: float = 60) -> tuple[Availability, ...]:
        """Wait until all these resources are free, without claiming them.

        resources: what to wait for
        wait_s: the maximum time to wait
        """
        wants = named(self.scope, resources, grants.EXCLUSIVE)

        def look() -> tuple[tuple[Availability, ...] | None, int | None]:
            found = looking.states(self.scope, wants)
            left = [
                blocker.expires_in_ms
                for state in found
                for blocker in state.blockers
                if blocker.expires_in_ms is not None
            ]
            free = all(state.free for state in found)
            return (found if free else None), min(left, default=None)

        topics = tuple(f"lease:{want.resource.text}" for want in wants)
        free = self.scope.store.wait(look, (*topics, "session"), wait_s)
        if free is None:
            raise looking.too_late(self.scope, wants, wait_s)
        return free
