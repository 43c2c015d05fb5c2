"""A place in the queue for leases, and the wait for its turn."""

from __future__ import annotations

from dibs.errors import StaleError
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import LEASES, lease_record
from dibs.nouns.leases.operations import granted, too_late
from dibs.nouns.leases.own import held_by_caller, learn, own_key
from dibs.nouns.recovery import clear

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.nouns.leases.grants import Want
    from dibs.records import Grant
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Read, Write

KEEP_TICKET_S = 5


class Ticket:
    """Everything that one claim waits for; its number is its place in every queue."""

    def __init__(self, scope: Scope, tx: Write, wants: list[Want], ttl_ms: int, note: str) -> None:
        """Stand in line, in the transaction that has found something in the way."""
        self.scope = scope
        self.wants = wants
        self.number = tx.seq
        caller, liveness = scope.caller, tx.store.liveness
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
                checkout=want.resource.checkout,
                here=int(want.here),
                ttl_ms=ttl_ms,
                since_at=tx.wall,
                deadline=None if liveness else tx.now + grants.TICKET_MS,
            )
            tx.event("lease.queued", want.resource.text, {"ticket": tx.seq, "mode": want.mode})

    def collect(self, wait_s: float) -> Grant:
        """Wait until it is served, and help to serve the queue when a holder lapses."""
        store = self.scope.store
        kept_at = store.clock.now()
        # What is asked once it has been served; asked ahead, it makes the waking one trip shorter.
        ticket = (LEASES.ticket, {"number": self.number})
        held = [(LEASES.held, own_key(self.scope, want.resource)) for want in self.wants]

        def waiting() -> tuple[Grant | None, int | None]:
            nonlocal kept_at
            with store.read(lambda: [ticket, *held]) as tx:
                rows = tx.rows(LEASES.ticket, number=self.number)
                if not rows:
                    return self._granted(tx, self.number), None
                due_in_ms, stuck = self._outlook(tx)
            if stuck:
                self._settle()
                return None, 1
            if store.liveness is None and store.clock.now() - kept_at > KEEP_TICKET_S * 1000:
                kept_at = store.clock.now()
                with store.write(None) as write:
                    deadline = write.now + grants.TICKET_MS
                    write.run(LEASES.keep_ticket, number=self.number, deadline=deadline)
            return None, due_in_ms

        grant = store.wait(waiting, (str(self.number),), wait_s)
        if grant is None:
            raise too_late(self.scope, self.wants, wait_s)
        return self._see(grant)

    def _see(self, grant: Grant) -> Grant:
        """Note the content of the files as it is now: it may have changed during the wait."""
        changed = {}
        for want in self.wants:
            found = self.scope.place.content_hash(want.resource)
            if found != want.content_hash:
                changed[want.resource.text] = (want.resource, found)
        if not changed:
            return grant
        with self.scope.write() as tx:
            for resource, found in changed.values():
                row = held_by_caller(tx, self.scope, resource)
                if row is not None:
                    learn(tx, row, found)
            return self._granted(tx, grant.epoch)

    def _granted(self, tx: Read, since: int) -> Grant:
        """What became of a ticket that is no longer in the queue."""
        leases = []
        for want in self.wants:
            row = held_by_caller(tx, self.scope, want.resource)
            served = row is not None and row["mode"] in (want.mode, grants.EXCLUSIVE)
            if row is None or not served or row["deadline"] <= tx.now:
                raise StaleError(
                    f"{want.resource.text} was granted while you were away, and lost again since",
                    next="claim it again",
                )
            leases.append(lease_record(row, tx.now))
        return granted(leases, since)

    def _in_the_way(self, tx: Read) -> list[Row]:
        session = self.scope.caller.session
        return grants.each_once(
            row for want in self.wants for row in grants.look(tx, want, session, self.number)[1]
        )

    def _outlook(self, tx: Read) -> tuple[int | None, bool]:
        """When the first holder's time is over, and whether the queue is stuck until then."""
        rows = self._in_the_way(tx)
        left = [max(0, row["deadline"] - tx.now) for row in rows if not row["waiting"]]
        return min(left, default=None), not rows or any(grants.lapsed(tx, rows))

    def _settle(self) -> None:
        """Clear away those in the way who have lapsed, and serve the queue."""
        with self.scope.store.write(None) as tx:
            clear(tx, self.scope.keys, self._in_the_way(tx))
            grants.hand_over(tx, self.scope.keys, tx.rows(LEASES.ticket, number=self.number))

    def withdraw(self) -> None:
        """Leave the queue, and give back what the ticket was granted meanwhile."""
        with self.scope.store.write(None) as tx:
            freed = grants.drop_ticket(tx, self.number, "withdrawn")
            if not freed:
                rows = [held_by_caller(tx, self.scope, want.resource) for want in self.wants]
                freed = [row for row in rows if row and row["epoch"] > self.number]
                grants.free(tx, freed, "released")
            if not freed:
                tx.discard()
            grants.hand_over(tx, self.scope.keys, freed)

    def let_go(self) -> None:
        """This process no longer proves that somebody waits."""
        if self.scope.store.liveness is not None:
            self.scope.store.liveness.let_go(self.number)
