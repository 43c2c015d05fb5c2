"""Who may hold what: the rules of leases and of the queue for them, inside a transaction.

A lease is in the way of a claim if both cover some path and one of them is exclusive. So is
a ticket ahead in the queue: a newcomer never overtakes, even if what it wants is free at the
moment. Tickets are numbered by seq, so the order of the queue is the order of the asking.

A claim `here` is for one checkout: what is held in another is not in its way. It is in the way
of all who claim without that word, wherever they are.

When something is freed, the same transaction hands it to the first ticket whose every
resource is free; a ticket for several resources is granted as a whole or not at all. A ticket
whose process is gone is dropped on the way.

    alice holds a.        bob asks for a and b, waits: ticket 7.
    carol asks for b:     waits behind ticket 7, although nobody holds b.
    alice releases a:     bob holds a and b, in alice's transaction. Only bob wakes.
"""

from __future__ import annotations

from dibs.errors import DeadlockError
from dibs.names.paths import Resource, near, resources_overlap
from dibs.records import Blocker, Lease
from dibs.storage.queries import Queries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.space.signing import Keyring
    from dibs.storage.driver import Ahead, Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Read, Write

LEASES = Queries("leases")
SESSIONS = Queries("agents")
EXCLUSIVE = "exclusive"
SHARED = "shared"
TICKET_MS = 15_000
"""How long a ticket lives without a sign of its waiter, where processes cannot be seen."""


class Want:
    """A resource somebody wants, and how.

    here: in its checkout only, so that nobody in another one is in the way
    near: the keys of all that could overlap with it
    """

    __slots__ = ("content_hash", "here", "mode", "near", "resource")

    def __init__(
        self, resource: Resource, mode: str, content_hash: str | None, here: bool = False
    ) -> None:
        self.resource = resource
        self.mode = mode
        self.content_hash = content_hash
        self.here = here and resource.checkout is not None
        self.near = near(resource.base)


def resource_of(row: Row) -> Resource:
    return Resource(
        row["resource"], row["kind"], row["base"], row["inode"], checkout=row.get("checkout")
    )


def look(tx: Read, want: Want, session: int, before: int | None) -> tuple[Row | None, list[Row]]:
    """The session's own lease on exactly this resource, and all that is in the way.

    before: the ticket that asks; tickets behind it are not in its way.
    """
    resource = want.resource
    if tx.queued:
        tx.ahead(lambda: [(LEASES.around, want.near), (LEASES.queue_around, want.near)])
    found = tx.rows(LEASES.around, **want.near)
    if tx.queued:
        found += tx.rows(LEASES.queue_around, **want.near)
    if resource.inode is not None:
        found += tx.rows(LEASES.same_file, inode=resource.inode, base=resource.base)
    own = None
    in_the_way = []
    for row in found:
        if row["session"] == session:
            if not row["waiting"] and row["resource"] == resource.text:
                own = row
        elif (
            (row["mode"] == EXCLUSIVE or want.mode == EXCLUSIVE)
            and not (row["waiting"] and before is not None and row["epoch"] >= before)
            and not (want.here and row["checkout"] not in (None, resource.checkout))
            and (
                (row["kind"] != "glob" and resource.kind != "glob")
                or resources_overlap(resource_of(row), resource)
            )
        ):
            in_the_way.append(row)
    return own, in_the_way


def each_once(rows: Iterable[Row]) -> list[Row]:
    """Without those that were found again: one lease may be in the way of several wants."""
    found = {(row["waiting"], row["resource"], row["session"], row["epoch"]): row for row in rows}
    return list(found.values())


def sessions_of(tx: Read, rows: Iterable[Row]) -> dict[int, Row]:
    numbers = sorted({row["session"] for row in rows})
    return {row["id"]: row for row in tx.rows(SESSIONS.several, sessions=numbers)}


def lapsed(tx: Read, rows: list[Row]) -> tuple[list[Row], list[Row], set[int]]:
    """Those of the rows that block nobody any more: leases, tickets, and dead sessions."""
    leases, tickets, dead = [], [], set()
    sessions = sessions_of(tx, rows)
    for row in rows:
        session = sessions.get(row["session"])
        # What an ended session held was freed with it: such a row was made without dibs.
        stray = session is None or session["ended_at"] is not None
        if session is not None and not stray and not tx.store.alive(session, tx.now):
            dead.add(row["session"])
        elif row["waiting"]:
            if stray or not ticket_alive(tx, row, row["epoch"]):
                tickets.append(row)
        elif stray or row["deadline"] <= tx.now:
            leases.append(row)
    return leases, tickets, dead


def ticket_alive(tx: Read, row: Row, number: int) -> bool:
    if row["deadline"] is not None:
        return bool(row["deadline"] > tx.now)
    return tx.store.lock_held(number)


def grant(
    tx: Write,
    keys: Keyring,
    want: Want,
    *,
    agent: str,
    session: int,
    ttl_ms: int,
    note: str,
    task: str | None = None,
    own: Row | None = None,
    ticket: int | None = None,
) -> Lease:
    """Write the lease. What the session holds already it keeps, epoch and all, for longer.

    ticket: the one that waited for it, if it comes from the queue
    """
    resource = want.resource
    renewed = own is not None and own["mode"] == want.mode and own["deadline"] > tx.now
    deadline = tx.now + ttl_ms
    if own is not None and renewed:
        keys.require("lease", own, resource.text)
        epoch, granted_at, content_hash = own["epoch"], own["granted_at"], own["content_hash"]
        # Held in two checkouts, it is held in all of them.
        checkout = own["checkout"] if own["checkout"] == resource.checkout else None
        # Not tied to a task that asks for it too, nor cut short: it was held for another reason.
        note, task = note or own["note"], own["task"]
        ttl_ms, deadline = max(ttl_ms, own["ttl_ms"]), max(deadline, own["deadline"])
    else:
        epoch, granted_at, content_hash = tx.seq, tx.wall, want.content_hash
        checkout = resource.checkout
    row: Row = {
        "base": resource.base,
        "resource": resource.text,
        "session": session,
        "kind": resource.kind,
        "mode": want.mode,
        "inode": resource.inode,
        "agent": agent,
        "epoch": epoch,
        "note": note,
        "task": task,
        "content_hash": content_hash,
        "checkout": checkout,
        "granted_at": granted_at,
        "ttl_ms": ttl_ms,
        "deadline": deadline,
    }
    row["signature"] = keys.lease(row)
    tx.run(LEASES.grant, row)
    said = {"mode": want.mode, "epoch": epoch, "ttl_ms": ttl_ms, "note": note, "task": task}
    if ticket is not None:
        said["ticket"] = ticket
    tx.event(
        "lease.renewed" if renewed else "lease.claimed",
        resource.text,
        said,
        agent=agent,
        session=session,
    )
    return lease_record(row, tx.now)


def free(tx: Write, rows: list[Row], how: str) -> None:
    """End leases: released, expired or freed. They have to be handed on."""
    for row in rows:
        tx.run(LEASES.remove, base=row["base"], resource=row["resource"], session=row["session"])
        tx.event(
            f"lease.{how}",
            row["resource"],
            {"epoch": row["epoch"]},
            agent=row["agent"],
            session=row["session"],
        )


def revoke(tx: Write, rows: list[Row], reason: str) -> None:
    """Take leases away from those who hold them. They have to be handed on."""
    for row in rows:
        tx.run(LEASES.remove, base=row["base"], resource=row["resource"], session=row["session"])
        # An act of the caller: the holder has done nothing.
        tx.event(
            "lease.revoked",
            row["resource"],
            {
                "holder": row["agent"],
                "holder_session": row["session"],
                "epoch": row["epoch"],
                "reason": reason,
            },
        )


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


def hand_over(tx: Write, keys: Keyring, freed: list[Row]) -> None:
    """Give what was freed to those who wait for it, first come, first served.

    freed: the leases and tickets that are no more in the way
    """
    while freed and tx.queued:
        waiting: dict[int, Row] = {}
        for row in freed:
            _, rows = look(tx, Want(resource_of(row), EXCLUSIVE, None), 0, None)
            waiting |= {row["epoch"]: row for row in rows if row["waiting"]}
        freed = []
        for number in sorted(waiting):
            tx.ahead(_asked_to_serve(waiting[number]))
            freed += _serve(tx, keys, number)


def _asked_to_serve(row: Row) -> Ahead:
    """What `_serve` is going to ask, as far as one of the ticket's rows says."""

    def asked() -> list[tuple[Query, Row]]:
        near = Want(resource_of(row), EXCLUSIVE, None).near
        return [
            (LEASES.ticket, {"number": row["epoch"]}),
            (SESSIONS.several, {"sessions": [row["session"]]}),
            (LEASES.around, near),
            (LEASES.queue_around, near),
        ]

    return asked


def _serve(tx: Write, keys: Keyring, number: int) -> list[Row]:
    """Grant one ticket if all it wants is free; return what became free on the way."""
    rows = tx.rows(LEASES.ticket, number=number)
    if not rows:
        return []
    session = sessions_of(tx, rows).get(rows[0]["session"])
    alive = session is not None and tx.store.alive(session, tx.now)
    if session is None or not alive or not ticket_alive(tx, rows[0], number):
        return drop_ticket(tx, number, "dead")
    wants = [
        Want(resource_of(row), row["mode"], row["content_hash"], bool(row["here"])) for row in rows
    ]
    owned = []
    freed: list[Row] = []
    for want in wants:
        own, in_the_way = look(tx, want, session["id"], number)
        over = [row for row in in_the_way if not row["waiting"] and row["deadline"] <= tx.now]
        free(tx, over, "expired")
        freed += over
        if len(over) < len(in_the_way):
            return freed
        if own is not None and own["mode"] == EXCLUSIVE and own["deadline"] > tx.now:
            # Another wait of this session has got more meanwhile; to share takes nothing away.
            want.mode = EXCLUSIVE
        owned.append(own)
    tx.run(LEASES.dequeue, number=number)
    for want, own, row in zip(wants, owned, rows, strict=True):
        grant(
            tx,
            keys,
            want,
            agent=row["agent"],
            session=row["session"],
            ttl_ms=row["ttl_ms"],
            note=row["note"],
            own=own,
            ticket=number,
        )
    tx.ring(number)
    return freed


def refuse_deadlock(tx: Read, wants: list[Want], agent: str, session: int) -> None:
    """Refuse a wait that would close a circle of sessions waiting for each other."""
    came: dict[int, tuple[int, dict[str, str]]] = {}
    front: list[tuple[int, str, Want, int | None]] = [
        (session, agent, want, None) for want in wants
    ]
    for waiter, name, want, before in front:
        for row in look(tx, want, waiter, before)[1]:
            holder = row["session"]
            step = {"agent": name, "wants": want.resource.text, "held_by": row["agent"]}
            if holder == session:
                raise deadlock([*_way(came, waiter), step])
            if holder not in came:
                came[holder] = (waiter, step)
                # The list grows while it is read: that is the search.
                front += [
                    (
                        holder,
                        row["agent"],
                        Want(resource_of(wait), wait["mode"], None, bool(wait["here"])),
                        wait["number"],
                    )
                    for wait in tx.rows(LEASES.tickets_of_session, session=holder)
                ]


def _way(came: dict[int, tuple[int, dict[str, str]]], waiter: int) -> list[dict[str, str]]:
    """The steps that led from the one who asks to this waiter."""
    steps = []
    while waiter in came:
        waiter, step = came[waiter]
        steps.append(step)
    return steps[::-1]


def deadlock(steps: list[dict[str, str]]) -> DeadlockError:
    told = "; ".join(f"{s['agent']} waits for {s['wants']} of {s['held_by']}" for s in steps)
    return DeadlockError(
        f"waiting would never end: {told}",
        next="release what you hold that they want, then claim all you need in one call",
        cycle=[*(step["agent"] for step in steps), steps[0]["agent"]],
        steps=steps,
    )


def lease_record(row: Row, now: int) -> Lease:
    return Lease.of(row, expires_in_ms=max(0, row["deadline"] - now))


def blocker_record(row: Row, now: int) -> Blocker:
    waiting = bool(row["waiting"])
    return Blocker.of(
        row,
        waiting=waiting,
        since_at=row["granted_at"],
        expires_in_ms=None if waiting else max(0, row["deadline"] - now),
    )
