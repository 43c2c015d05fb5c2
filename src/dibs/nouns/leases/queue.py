"""The queue for leases: tickets, the hand-over, and waits that would never end.

When something is freed, the same transaction hands it to the first ticket whose every
resource is free; a ticket for several resources is granted as a whole or not at all. A ticket
whose process is gone is dropped on the way.

    alice holds a.        bob asks for a and b, waits: ticket 7.
    carol asks for b:     waits behind ticket 7, although nobody holds b.
    alice releases a:     bob holds a and b, in alice's transaction. Only bob wakes.
"""

from __future__ import annotations

from dibs.errors import DeadlockError, StaleError
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import LEASES, SESSIONS, Want, granted, lease_record
from dibs.nouns.leases.looking import too_late
from dibs.nouns.leases.own import held_by_caller, learn, own_key
from dibs.records import called

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.records import Grant
    from dibs.space.scope import Scope
    from dibs.space.signing import Keyring
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Read, Write

KEEP_TICKET_S = 5
PAGE = 16
ALL = 1 << 20


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
            said = {"ticket": tx.seq, "mode": want.mode}
            tx.event("lease.queued", want.resource.text, said, grows=True)

    def collect(self, wait_s: float) -> Grant:
        """Wait until it is served, and help to serve the queue when a holder lapses."""
        store = self.scope.store
        kept_at = store.clock.now()
        # What is asked once it has been served; asked ahead, it makes the waking one trip shorter.
        ticket = (LEASES.ticket, {"number": self.number})
        held = [(LEASES.held, own_key(self.scope, want.resource)) for want in self.wants]

        def waiting() -> tuple[Grant | None, int | None]:
            nonlocal kept_at
            with self.scope.read(lambda: [ticket, *held]) as tx:
                rows = tx.rows(LEASES.ticket, number=self.number)
                if not rows:
                    return self._granted(tx, self.number), None
                due_in_ms, stuck = self._outlook(tx)
            if stuck:
                self._settle()
                return None, 1
            if store.liveness is not None:
                return None, due_in_ms
            keep_ms = KEEP_TICKET_S * 1000
            if store.clock.now() - kept_at >= keep_ms:
                kept_at = store.clock.now()
                with store.write(None) as write:
                    deadline = write.now + grants.TICKET_MS
                    write.run(LEASES.keep_ticket, number=self.number, deadline=deadline)
            # Through a daemon nothing else may wake it before the ticket's time is over.
            return None, keep_ms if due_in_ms is None else min(due_in_ms, keep_ms)

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
                    f"{called(want.resource.text)} was granted while you were away, "
                    "and lost again since",
                    next="claim it again",
                )
            leases.append(lease_record(row, tx.now))
        return granted(leases, since)

    def _in_the_way(self, tx: Read) -> list[Row]:
        """What holds it up: the first of those ahead are enough, all others wait for them."""
        session = self.scope.caller.session
        return grants.each_once(
            row for want in self.wants for row in in_the_way_of(tx, want, session, self.number)[1]
        )

    def _outlook(self, tx: Read) -> tuple[int | None, bool]:
        """When the first holder's time is over, and whether the queue is stuck until then."""
        rows = self._in_the_way(tx)
        left = [max(0, row["deadline"] - tx.now) for row in rows if not row["waiting"]]
        return min(left, default=None), not rows or any(grants.lapsed(tx, rows))

    def _settle(self) -> None:
        """Clear away those in the way who have lapsed, and serve the queue."""
        from dibs.nouns.recovery import clear  # which needs this module

        with self.scope.store.write(None) as tx:
            clear(tx, self.scope.keys, self._in_the_way(tx))
            grants.hand_over(tx, self.scope.keys, tx.rows(LEASES.ticket, number=self.number))

    def withdraw(self) -> None:
        """Leave the queue, and give back what the ticket was granted meanwhile."""
        with self.scope.store.write(None) as tx:
            freed = drop_ticket(tx, self.number, "withdrawn")
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


def drop_ticket(tx: Write, number: int, why: str) -> list[Row]:
    """Take a ticket out of the queue; return what it waited for, to be handed on."""
    rows = tx.rows(LEASES.ticket, number=number)
    tx.run(LEASES.dequeue, number=number)
    if why != "withdrawn" and tx.store.liveness is not None:
        tx.store.liveness.forget(number)
    for row in rows:
        tx.event(
            "lease.unqueued",
            row["resource"],
            {"ticket": number, "why": why},
            agent=row["agent"],
            session=row["session"],
        )
    return rows


def serve(tx: Write, keys: Keyring, freed: list[Row]) -> None:
    """Give what was freed to those who wait for it, first come, first served.

    freed: the leases and tickets that are no more in the way
    """
    from heapq import merge

    while freed:
        taken: dict[str, int] = {}
        tried: set[int] = set()
        lines = [_line(tx, row, taken) for row in freed]
        freed = []
        for number, row in merge(*lines, key=lambda one: one[0]):
            # Behind somebody else's exclusive lease, or ticket, nobody is served.
            if number not in tried and taken.get(row["resource"]) in (None, row["session"]):
                tried.add(number)
                freed += _serve(tx, keys, number, row, taken)


def _line(tx: Write, freed: Row, taken: dict[str, int]) -> Iterator[tuple[int, Row]]:
    """Those who may wait for something that was freed, in their order, until it is taken again."""
    near, after = near_to(freed), 0
    if freed["inode"] is not None:
        rows = tx.rows(LEASES.same_file, inode=freed["inode"], base=freed["base"])
        waiting = {row["epoch"]: row for row in rows if row["waiting"]}
        yield from sorted(waiting.items())
    while freed["resource"] not in taken:
        asked = {**near, "after": after, "before": grants.LAST, "limit": PAGE}
        rows = tx.rows(LEASES.queue_around, **asked)
        for row in rows:
            after = row["epoch"]
            yield after, row
            if freed["resource"] in taken:
                break
        if len(rows) < PAGE:
            break
    # Whoever has it now may wait for it a second time, behind all others.
    for row in tx.rows(LEASES.tickets_of_session, session=taken.get(freed["resource"], 0)):
        if row["resource"] == freed["resource"] and row["number"] > after:
            yield row["number"], {**row, "epoch": row["number"]}


def near_to(row: Row) -> Row:
    return Want(grants.resource_of(row), grants.EXCLUSIVE, None).near


def _asked_to_serve(row: Row) -> list[tuple[Query, Row]]:
    """What `_serve` is going to ask, as far as one of the ticket's rows says."""
    want = Want(grants.resource_of(row), grants.EXCLUSIVE, None)
    return [
        (LEASES.ticket, {"number": row["epoch"]}),
        (SESSIONS.several, {"sessions": [row["session"]]}),
        (LEASES.around, want.near),
        (LEASES.queue_around, grants.ahead(want, row["epoch"], grants.AHEAD)),
    ]


def _serve(
    tx: Write, keys: Keyring, number: int, row: Row, taken: dict[str, int] | None = None
) -> list[Row]:
    """Grant one ticket if all it wants is free; return what became free on the way.

    row: one of the ticket's, which tells what is going to be asked
    taken: what nobody but one session can get any more; what the ticket wants is added to it
    """
    tx.ahead(lambda: _asked_to_serve(row))
    rows = tx.rows(LEASES.ticket, number=number)
    if not rows:
        return []
    session = grants.sessions_of(tx, rows).get(rows[0]["session"])
    alive = session is not None and tx.store.alive(session, tx.now)
    if session is None or not alive or not grants.ticket_alive(tx, rows[0], number):
        return drop_ticket(tx, number, "dead")
    wants = [
        Want(grants.resource_of(row), row["mode"], row["content_hash"], bool(row["here"]))
        for row in rows
    ]
    if taken is not None:
        # Granted or not, all who come after it wait for this one.
        alone = [want for want in wants if want.mode == grants.EXCLUSIVE and not want.here]
        taken.update((want.resource.text, session["id"]) for want in alone)
    owned = []
    freed: list[Row] = []
    for want in wants:
        own, in_the_way = in_the_way_of(tx, want, session["id"], number)
        over = [row for row in in_the_way if not row["waiting"] and row["deadline"] <= tx.now]
        grants.free(tx, over, "expired")
        freed += over
        if len(over) < len(in_the_way):
            return freed
        if own is not None and own["mode"] == grants.EXCLUSIVE and own["deadline"] > tx.now:
            # Another wait of this session has got more meanwhile; to share takes nothing away.
            want.mode = grants.EXCLUSIVE
        owned.append(own)
    tx.run(LEASES.dequeue, number=number)
    for want, own in zip(wants, owned, strict=True):
        grants.grant(
            tx,
            keys,
            want,
            agent=rows[0]["agent"],
            session=session["id"],
            ttl_ms=rows[0]["ttl_ms"],
            note=rows[0]["note"],
            own=own,
            ticket=number,
        )
    tx.ring(number)
    return freed


def in_the_way_of(tx: Read, want: Want, session: int, number: int) -> tuple[Row | None, list[Row]]:
    """What `grants.look` finds for a ticket; who holds it already waits behind nobody."""
    own, rows = grants.look(tx, want, session, number)
    if any(row["waiting"] for row in rows) and grants.keeps(tx, own, want, session):
        rows = [row for row in rows if not row["waiting"]]
    return own, rows


def serve_ticket(tx: Write, keys: Keyring, number: int) -> bool:
    """Grant one ticket if all it wants is free; say whether it is out of the queue."""
    rows = tx.rows(LEASES.ticket, number=number)
    grants.hand_over(tx, keys, _serve(tx, keys, number, {**rows[0], "epoch": number}))
    return not tx.rows(LEASES.ticket, number=number)


def refuse_deadlock(
    tx: Read, wants: list[Want], agent: str, session: int, number: int | None = None
) -> None:
    """Refuse a wait that would close a circle of sessions waiting for each other.

    number: the ticket, if there is one already
    """
    asked = {"session": session}
    if not (tx.rows(LEASES.of_session, **asked) or tx.rows(LEASES.tickets_of_session, **asked)):
        return  # nobody can be waiting for it, and the search would read the queue for each in it
    came: dict[int, tuple[int, dict[str, str]]] = {}
    looked: dict[tuple[str, str | None], tuple[int, list[Row]]] = {}
    front: list[tuple[int, str, Want, int | None]] = [
        (session, agent, want, number) for want in wants
    ]
    while front:
        met = set()
        for waiter, name, want, before in front:
            # Whoever is in the way of one is in the way of all behind it, and was met already.
            line = (want.resource.text, want.resource.checkout if want.here else None)
            until, rows = looked.get(line, (0, []))
            if (before or grants.LAST) > until:
                rows = grants.look(tx, want, 0, before, ALL)[1]
                if want.mode == grants.EXCLUSIVE:
                    own = [row for row in rows if row["session"] == session]
                    looked[line] = (before or grants.LAST, own)
            for row in rows:
                if not grants.stands_in(want, waiter, before, row):
                    continue
                holder = row["session"]
                step = {"agent": name, "wants": want.resource.text, "held_by": row["agent"]}
                if holder == session:
                    raise deadlock([*_way(came, waiter), step])
                if holder not in came:
                    came[holder] = (waiter, step)
                    met.add(holder)
        front = [
            (
                wait["session"],
                wait["agent"],
                Want(grants.resource_of(wait), wait["mode"], None, bool(wait["here"])),
                wait["number"],
            )
            for wait in tx.rows(LEASES.tickets_of_sessions, sessions=sorted(met))
        ]


def _way(came: dict[int, tuple[int, dict[str, str]]], waiter: int) -> list[dict[str, str]]:
    """The steps that led from the one who asks to this waiter."""
    steps = []
    while waiter in came:
        waiter, step = came[waiter]
        steps.append(step)
    return steps[::-1]


def deadlock(steps: list[dict[str, str]]) -> DeadlockError:
    parts = [[called(step[part]) for part in ("agent", "wants", "held_by")] for step in steps]
    told = "; ".join(f"{agent} waits for {wants} of {holder}" for agent, wants, holder in parts)
    return DeadlockError(
        f"waiting would never end: {told}",
        next="release what you hold that they want, then claim all you need in one call",
        cycle=[*(step["agent"] for step in steps), steps[0]["agent"]],
        steps=steps,
    )
