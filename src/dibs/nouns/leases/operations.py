"""Leases: the right of one session to change a resource.

Promised: at any moment at most one live session holds an exclusive lease on a path, and none
holds an overlapping one, unless it asked for another checkout alone (`here`); several may
share. Each grant carries an epoch, the seq at which it was made, and renewing or releasing names
the session and the epoch: a holder whose lease has lapsed is refused and changes nothing. Waiters
are served first come, first served; a release hands over in its own transaction. A wait that
could never end is refused at once.

Not promised: that nobody writes to the file. A lease is advisory until a hook or a commit
checks it.

Who decides: the row in the store, together with the store's clock and the liveness of the
holder's session. A lease ends when it is released, when its time is over, or when its session
ends; whoever wants it next clears it away in the same transaction that takes it. A person may
take it away before that (`revoke`): its holder is told, and refused from then on.
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
"""How many agents a report names."""


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
        mode: exclusive, or shared with others who share
        ttl_s: how long until the claim lapses unless it is renewed
        note: what you are going to do, shown to those who want it too
        here: in this checkout only, whoever holds it in another worktree
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
                    # Most claims need not wait.
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
            # Also when the withdrawal failed: nobody queues behind a ticket without a waiter.
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
        """Renew leases of this session, all of them or none; their epochs stay.

        resources: what to renew; none for all that was granted at `epoch`
        everything: renew all that this session holds
        ttl_s: how long from now; by default as long as it was claimed for
        """
        tx = self.tx
        ttl_ms = None if ttl_s is None else milliseconds(ttl_s)
        renewed = []
        for row in own_leases(tx, self.scope, resources, everything, epoch):
            lasts = ttl_ms or row["ttl_ms"]
            renewed.append(grants.prolong(tx, self.scope, row, lasts, tx.now + lasts))
            tx.event("lease.renewed", row["resource"], {"epoch": row["epoch"]})
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
        """Release leases of this session, all of them or none, to whoever waits for them.

        resources: what to release; none for all that was granted at `epoch`
        everything: release all that this session holds
        outcome: what became of it, for the next
        moved_to: where it is now, if it was moved
        """
        tx = self.tx
        if (moved_to is None) == (outcome == "moved"):
            raise InvalidError(
                "the outcome moved and moved_to belong together", next="give both, or neither"
            )
        place = None if moved_to is None else self.scope.place.resource(moved_to)
        if place is not None and place.kind == "glob":
            raise InvalidError(
                f"moved_to is a pattern: {shown(moved_to)}", next="name the one path where it is"
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
        """Note the content that files of this session have now, as its own work.

        resources: files that this session holds and has changed
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
        """Report that a leased file was changed by others; its holder and they are told, once.

        resource: the file
        was: the content hash that its lease says, so that each change is reported once
        by: the agents who may have done it; none if nobody knows
        doing: what they were doing
        """
        (want,) = named(self.scope, (resource,), grants.EXCLUSIVE)
        scope = self.scope
        if not scope.place.has(want.resource, want.content_hash):
            raise StaleError(
                f"{called(want.resource.text)} does not have that content", next="look at it again"
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
        # Whoever reports can say anything: only agents are named, and few of them, in few words.
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
                f"nobody holds {called(place.text)}", next="nothing has to be reported"
            )
        row = rows[0]
        if row["content_hash"] != was or now == was:
            raise StaleError(
                f"what became of {called(place.text)} is known already", next="look at it again"
            )
        tx.run(LEASES.see, row | {"content_hash": now})
        tx.event(
            "lease.intruded",
            place.text,
            {"holder": row["agent"], "holder_session": row["session"], "epoch": row["epoch"],
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
        """Take leases away from others, for a person who decides; they are told.

        resources: what must become free; every lease of others that overlaps with it is taken
        reason: why, for those who lose it
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
        """Give leases of this session to another agent, all of them or none; it is told.

        They are never free in between, so those who wait for them go on waiting. Each gets a new
        epoch, and lasts as long as it was claimed for.

        resources: what to give
        to: the agent who gets it, in its latest session; refused if it has none
        note: what for; by default what it was claimed for
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
        """Claim for a person who decides: at once, from whoever holds it and before all who wait.

        resources: what to take; every lease of others that overlaps with it is revoked
        ttl_s: how long until the claim lapses unless it is renewed
        note: what you are going to do, shown to those who want it too
        reason: why, for those who lose it
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
        """The leases of others that overlap with a resource, or a refusal if there is none."""
        in_the_way = grants.look(tx, Want(resource, grants.EXCLUSIVE, None), 0, None)[1]
        rows = [row for row in grants.standing(tx, in_the_way) if not row["waiting"]]
        others = [row for row in rows if row["session"] != self.scope.caller.session]
        if rows and not others:
            raise StateError(f"you hold {called(rows[0]['resource'])} yourself", next="release it")
        if not rows:
            raise NotFoundError(
                f"nobody holds {called(resource.text)}", next="look at what is held: leases"
            )
        return others

    @operation(by=EVERYBODY, cli="status", example="src/a.py")
    def status(self, *resources: str) -> tuple[Availability, ...]:
        """Say of each resource whether it is free for you, and if not, who has it.

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

    @operation(by=EVERYBODY, empty="nobody waits")
    def waiting(self, *, limit: int = 1000) -> tuple[Blocker, ...]:
        """List who waits for what, first come first."""
        with self.scope.read() as tx:
            return looking.waiters(tx, limit)

    @operation(by=EVERYBODY, example="src/a.py", empty="nobody has said anything")
    def outcomes(self, *resources: str, limit: int = 100) -> tuple[Outcome, ...]:
        """Show what earlier holders said they had done to these resources, the latest first.

        resources: what to ask about; also says what is around and inside them
        limit: at most so many for each
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
        wait_s: how long at most
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
