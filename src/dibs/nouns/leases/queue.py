"""The queue for leases: tickets, and the hand-over.

When something is freed, the same transaction hands it to the first ticket whose every
resource is free; a ticket for several resources is granted as a whole or not at all. A ticket
whose process is gone is dropped on the way.

    alice holds a.        bob asks for a and b, waits: ticket 7.
    carol asks for b:     waits behind ticket 7, although nobody holds b.
    alice releases a:     bob holds a and b, in alice's transaction. Only bob wakes.
"""

from __future__ import annotations

from dibs.errors import BusyError, StaleError
from dibs.names.paths import near, resources_overlap
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import LEASES, Want, granted, lease_record
from dibs.nouns.leases.looking import is_taken, takers, too_late
from dibs.nouns.leases.own import (
    HELP_MS,
    WITHDRAW_S,
    for_the_queue,
    held_by_caller,
    keep_tickets,
    learn,
    own_key,
)
from dibs.operation import OPERATIONS
from dibs.records import called, plain, to_text
from dibs.space.scope import SPACE
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from dibs.errors import TimeoutError
    from dibs.names.paths import Resource
    from dibs.nouns.leases.looking import Taken
    from dibs.records import Grant
    from dibs.space.scope import Scope
    from dibs.space.signing import Keyring
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Read, Write

    Looked = tuple[Grant | None, int | None, Callable[[], Grant | None] | None]


BEHIND = 5
"""How many blockers a ticket names in the journal."""


class Queued(Exception):
    """Raised by a claim that must wait in a thread that may not; its ticket stays queued."""

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket


class Ticket:
    """Everything that one claim waits for; its number is its place in every queue."""

    def __init__(
        self,
        scope: Scope,
        tx: Write,
        wants: list[Want],
        ttl_ms: int,
        note: str,
        wait_s: float,
        since: int,
        line: str = "",
        key: str | None = None,
        request: object = None,
    ) -> None:
        """Join the queue, in the transaction that found something in the way.

        since: the store time from which the wait counts; waiting for the turn is part of it
        line: what it waits for; the first thread in a line looks for all of this process
        key: the key under which the answer is stored, in the transaction that grants it
        """
        self.scope = scope
        self.wants = wants
        self.key = key
        self._wait_s = wait_s
        self._end = since + round(wait_s * 1000)
        digest = None if key is None else scope.digest("leases.claim", request)
        self.number = tx.seq
        caller, liveness = scope.caller, tx.store.liveness
        tx.queued = True
        tx.hold(tx.seq)
        until: Row = {"number": tx.seq, "deadline": None if liveness else tx.now + grants.TICKET_MS}
        until["signature"] = tx.store.ledger.ticket(until)
        for want in wants:
            tx.run(
                LEASES.enqueue,
                base=want.resource.base,
                resource=want.resource.text,
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
                answer_key=key,
                request=digest,
                **until,
            )
            said: dict[str, Any] = {"ticket": tx.seq, "mode": want.mode, "note": note}
            if want.resource.kind == "dir":
                said["kind"] = "dir"
            if want.behind:
                said["behind"] = behind(want)
            tx.event("lease.queued", want.resource.text, said, grows=True)
        self._topics = (f"{self.number}:{line}",)
        # A waiter that listens before it is in the queue cannot have missed anything.
        self.listener = scope.store.listen_soon(self._topics)
        if not scope.store.numbers:
            scope.store.kept_at = scope.store.clock.now()
        scope.store.numbers.add(self.number)

    @property
    def left_s(self) -> float:
        return max(0.0, (self._end - self.scope.store.clock.now()) / 1000)

    def collect(self) -> Grant:
        """Wait until it is served, and help to serve the queue when a holder lapses."""

        def waiting() -> tuple[Grant | None, int | None]:
            grant, due_in_ms, more = self.brought() or self.look()
            try:
                return (more and more()) or grant, due_in_ms
            except BusyError:
                if grant is not None:
                    raise
                return None, HELP_MS  # a busy store is no reason to lose the place

        store = self.scope.store
        grant = store.wait(waiting, self._topics, self.left_s, listener=self.listener)
        if grant is None:
            raise self.too_late()
        return grant

    def brought(self) -> Looked | None:
        """The grant, if the bell brought it because a thread of this process served the ticket."""
        grant = None if self.listener is None else self.listener.given
        return None if grant is None else self._served(grant)

    def look(self) -> Looked:
        """What it was granted, or when the first blocker is due; and what to do then.

        After a grant, record the current content of the files; otherwise help to serve the queue.
        """
        # Needed once it has been served; asked ahead, it saves a trip on waking up.
        ticket = (LEASES.ticket, {"number": self.number})
        held = [(LEASES.held, own_key(self.scope, want.resource)) for want in self.wants]
        if self.key is not None:
            held.append(self.scope.asked_before(self.key))
        with self.scope.read(lambda: [ticket, *held]) as tx:
            queued = bool(tx.rows(LEASES.ticket, number=self.number))
            if queued:
                due_in_ms, stuck = self._outlook(tx)
            else:
                grant = self._answer(tx, self._granted(tx, self.number))
        if queued:
            if stuck:
                return None, 1, self._settle
            return None, due_in_ms, self._keep if self.scope.store.liveness is None else None
        return self._served(grant)

    def _served(self, grant: Grant) -> Looked:
        changed = self._changed()
        return grant, None, (lambda: self._see(grant, changed)) if changed else None

    def _keep(self) -> None:
        """Show that the waiters of this process still wait."""
        keep_tickets(self.scope.store)

    def too_late(self) -> TimeoutError:
        return too_late(self.scope, self.wants, self._wait_s)

    def _answer(self, tx: Read, grant: Grant) -> Grant:
        """The stored answer: a repeated call gets the same one."""
        if self.key is None:
            return grant
        asked, given = self.scope.asked_before(self.key)
        row = tx.row(asked, **given)
        if row is None:
            return grant
        first: Grant = OPERATIONS["leases.claim"].load(from_text(row["answer"]))
        return first

    def _changed(self) -> list[tuple[Resource, str | None]]:
        """The files whose content has changed during the wait, and what it is now."""
        found = [(one.resource, self.scope.place.content_hash(one.resource)) for one in self.wants]
        known = [want.content_hash for want in self.wants]
        return [now for now, before in zip(found, known, strict=True) if now[1] != before]

    def _see(self, grant: Grant, changed: list[tuple[Resource, str | None]]) -> Grant:
        """Note the content of the files as it is now."""
        with self.scope.write() as tx:
            for resource, found in changed:
                row = held_by_caller(tx, self.scope, resource)
                if row is not None:
                    learn(tx, row, found)
            seen = self._granted(tx, grant.epoch)
            answer = {"agent": self.scope.caller.agent, "key": self.key}
            tx.run(SPACE.amend, answer=to_text(plain(seen)), **answer)
            return seen

    def _granted(self, tx: Read, since: int) -> Grant:
        """What happened to a ticket that is no longer in the queue."""
        leases = []
        for want in self.wants:
            row = held_by_caller(tx, self.scope, want.resource)
            served = row is not None and row["mode"] in (want.mode, grants.EXCLUSIVE)
            if row is None or not served or row["deadline"] <= tx.now:
                raise StaleError(
                    f"{called(want.resource.text)} was granted while you were away and has ended "
                    "since, or you lost your place because this session was silent",
                    next="claim it again",
                )
            leases.append(lease_record(row, tx.now))
        return granted(leases, since)

    def _in_the_way(self, tx: Read) -> list[Row]:
        """What blocks it: the first tickets ahead are enough, since all others wait for them."""
        session = self.scope.caller.session
        return grants.each_once(
            row
            for want in self.wants
            for row in grants.in_the_way_of(tx, want, session, self.number)[1]
        )

    def _outlook(self, tx: Read) -> tuple[int | None, bool]:
        """When the first holder's lease expires, and whether the queue is stuck until then."""
        rows = self._in_the_way(tx)
        left = [max(0, row["deadline"] - tx.now) for row in rows if not row["waiting"]]
        return min(left, default=None), not rows or any(grants.lapsed(tx, rows))

    def _settle(self) -> None:
        """Clear away expired blockers, and serve the queue."""
        from dibs.nouns.recovery import clear  # which needs this module

        with for_the_queue(self.scope.store) as tx:
            clear(tx, self.scope.keys, self._in_the_way(tx))
            grants.hand_over(tx, self.scope.keys, tx.rows(LEASES.ticket, number=self.number))

    def withdraw(self) -> None:
        """Leave the queue, and give back what the ticket was granted meanwhile."""
        with for_the_queue(self.scope.store, WITHDRAW_S) as tx:
            freed = drop_ticket(tx, self.number, "withdrawn")
            if not freed:
                rows = [held_by_caller(tx, self.scope, want.resource) for want in self.wants]
                freed = [row for row in rows if row and row["epoch"] > self.number]
                grants.free(tx, freed, "released")
                tx.run(SPACE.forget, agent=self.scope.caller.agent, key=self.key)
            if not freed:
                tx.discard()
            grants.hand_over(tx, self.scope.keys, freed)

    def let_go(self) -> None:
        """Stop showing that somebody in this process waits."""
        if self.listener is not None:
            self.listener.close()
        self.scope.store.numbers.discard(self.number)
        if self.scope.store.liveness is not None:
            self.scope.store.liveness.let_go(self.number)


def behind(want: Want) -> list[tuple[str, int]]:
    """Who blocks what is waited for: the first agents and their sessions."""
    found = dict.fromkeys((row["agent"], row["session"]) for row in want.behind)
    return list(found)[:BEHIND]


def drop_ticket(tx: Write, number: int, why: str) -> list[Row]:
    """Remove a ticket from the queue; return what it waited for, to be handed on."""
    rows = tx.rows(LEASES.ticket, number=number)
    tx.run(LEASES.dequeue, number=number)
    if why != "withdrawn" and tx.store.liveness is not None:
        tx.store.liveness.forget(number)
    for row in rows:
        tx.event(
            "lease.unqueued",
            row["resource"],
            {"ticket": number, "why": why, **({"kind": "dir"} if row["kind"] == "dir" else {})},
            agent=row["agent"],
            session=row["session"],
        )
    return rows


def serve(tx: Write, keys: Keyring, freed: list[Row]) -> None:
    """Give what was freed to its waiters, first come, first served.

    freed: the leases and tickets that no longer block
    """
    from heapq import merge

    while freed:
        taken: Taken = {}
        tried: set[int] = set()
        lines = [_line(tx, row, taken) for row in freed]
        lines += [_other_names(tx, row) for row in freed if row["inode"] is not None]
        freed = []
        for number, row in merge(*lines, key=lambda one: one[0]):
            if number not in tried and not is_taken(taken, row):
                tried.add(number)
                freed += _serve(tx, keys, number, row, taken)


def _line(tx: Write, freed: Row, taken: Taken) -> Iterator[tuple[int, Row]]:
    """The waiters for something that was freed, in order, until it is taken again."""
    from heapq import merge

    around, after, full = near(freed["base"]), 0, True
    while full and not takers(taken, freed):
        rows = tx.rows(LEASES.queue_around, **grants.first_of(around, after))
        full = len(rows) >= grants.PAGE  # the last ticket comes with all its rows
        for row in rows:
            after = row["epoch"]
            yield after, row
            if takers(taken, freed):
                full = True
                break
    if full:
        for _, checkout, waits in takers(taken, freed)[:1]:
            yield from merge(
                _again(freed, waits, after),
                _elsewhere(tx, around, checkout, after),
                key=lambda one: one[0],
            )


def _again(freed: Row, waits: list[Row], after: int) -> Iterator[tuple[int, Row]]:
    """Further waits of the session that has it now, behind all others."""
    freed_resource = grants.resource_of(freed)
    for row in waits:
        if row["number"] > after and resources_overlap(grants.resource_of(row), freed_resource):
            yield row["number"], {**row, "epoch": row["number"]}


def _elsewhere(
    tx: Write, around: Row, checkout: str | None, after: int
) -> Iterator[tuple[int, Row]]:
    """Waiters that want it in one checkout only, and not in that of the present holder."""
    full = checkout is not None
    while full:
        asked = {**around, "after": after, "checkout": checkout, "limit": grants.PAGE}
        rows = tx.rows(LEASES.queue_here, **asked)
        full = len(rows) == grants.PAGE
        for row in rows:
            after = row["epoch"]
            yield after, row


def _other_names(tx: Write, freed: Row) -> Iterator[tuple[int, Row]]:
    """Waiters for the same file by another name (hard links)."""
    rows = tx.rows(LEASES.same_file, inode=freed["inode"], base=freed["base"])
    for row in sorted(rows, key=lambda row: row["epoch"]):
        if row["waiting"]:
            yield row["epoch"], row


def _asked_to_serve(row: Row) -> list[tuple[Query, Row]]:
    """The queries that `_serve` will need, as far as one row of the ticket shows."""
    want = Want(grants.resource_of(row), grants.EXCLUSIVE, None)
    return [
        (LEASES.ticket, {"number": row["epoch"]}),
        grants.asked_of([row]),
        (LEASES.around, want.near),
        (LEASES.queue_around, grants.ahead(want, row["epoch"], grants.AHEAD)),
        (LEASES.tickets_of_session, {"session": row["session"]}),
    ]


def _serve(
    tx: Write, keys: Keyring, number: int, row: Row, taken: Taken | None = None
) -> list[Row]:
    """Grant one ticket if everything it wants is free; return what became free on the way.

    row: one row of the ticket; it tells which queries will be needed
    taken: what is no longer free for others; the wants of this ticket are added
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
        # Granted or not, all later tickets wait for this one.
        waits = tx.rows(LEASES.tickets_of_session, session=session["id"])
        for want in wants:
            if want.mode == grants.EXCLUSIVE:
                resource = want.resource
                key = resource.text if resource.kind == "glob" else resource.base
                taken.setdefault(key, []).append((session["id"], resource.checkout, waits))
    owned = []
    freed: list[Row] = []
    for want in wants:
        own, in_the_way = grants.in_the_way_of(tx, want, session["id"], number)
        over = [row for row in in_the_way if not row["waiting"] and row["deadline"] <= tx.now]
        grants.free(tx, over, "expired")
        freed += over
        if len(over) < len(in_the_way):
            return freed
        if own is not None and own["mode"] == grants.EXCLUSIVE and own["deadline"] > tx.now:
            # Another wait of this session was granted more meanwhile; sharing takes nothing away.
            want.mode = grants.EXCLUSIVE
        owned.append(own)
    tx.run(LEASES.dequeue, number=number)
    first = rows[0]
    leases = [
        grants.grant(
            tx,
            keys,
            want,
            agent=first["agent"],
            session=session["id"],
            ttl_ms=first["ttl_ms"],
            note=first["note"],
            own=own,
            ticket=first,
        )
        for want, own in zip(wants, owned, strict=True)
    ]
    grant = granted(leases, number)
    if first["answer_key"] is not None:
        # Together with the grant; otherwise a repeated call with this key would be granted twice.
        tx.run(
            SPACE.remember_first,
            agent=first["agent"],
            key=first["answer_key"],
            operation="leases.claim",
            request=first["request"],
            answer=to_text(plain(grant)),
            at=tx.wall,
        )
    tx.ring(number, grant)
    return freed


def serve_ticket(tx: Write, keys: Keyring, number: int) -> bool:
    """Grant one ticket if all it wants is free; return whether it left the queue."""
    rows = tx.rows(LEASES.ticket, number=number)
    grants.hand_over(tx, keys, _serve(tx, keys, number, {**rows[0], "epoch": number}))
    return not tx.rows(LEASES.ticket, number=number)
