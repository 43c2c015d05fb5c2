"""Who may hold what: the rules of leases and of the queue for them, inside a transaction.

A lease blocks a claim if both cover some path and one of them is exclusive. So does a ticket
ahead in the queue: a newcomer never overtakes, even if what it wants is free at the moment.
Tickets are numbered by seq, so the queue has the order in which claims were made.

A claim `here` is for one checkout: leases in other checkouts do not block it. It blocks every
claim made without `here`, in any checkout.
"""

from __future__ import annotations

from dibs.arguments import milliseconds
from dibs.errors import HeldError
from dibs.names.paths import Resource, ancestors, is_whole_tree, near, resources_overlap
from dibs.operation import PEOPLE
from dibs.records import Blocker, Grant, Lease, in_the_way
from dibs.storage.queries import Queries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from dibs.space.scope import Scope
    from dibs.space.signing import Keyring
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Read, Write

LEASES = Queries("leases")
SESSIONS = Queries("agents")
EXCLUSIVE = "exclusive"
SHARED = "shared"
AHEAD = 8
"""How many of the tickets ahead are looked at: one live ticket is enough to block."""
PAGE = 16
"""How many tickets that may be served are looked at in one step."""
LAST = 1 << 62
TICKET_MS = 15_000
"""How long a ticket lives without a sign of its waiter, where processes are not visible."""


class Want:
    """A resource that somebody wants, and how.

    here: for its checkout only, so leases in other checkouts do not block it
    near: the keys of everything that could overlap with it
    most_ms: the longest time the caller may hold it, if there is such a limit
    behind: what blocked it when it was refused
    """

    __slots__ = ("behind", "content_hash", "here", "mode", "most_ms", "near", "resource")

    def __init__(
        self, resource: Resource, mode: str, content_hash: str | None, here: bool = False
    ) -> None:
        self.resource = resource
        self.mode = mode
        self.content_hash = content_hash
        self.here = here and resource.checkout is not None
        self.near = near(resource.base)
        self.most_ms: int | None = None
        self.behind: Sequence[Row] = ()


def resource_of(row: Row) -> Resource:
    return Resource(
        row["resource"], row["kind"], row["base"], row["inode"], checkout=row.get("checkout")
    )


def look(
    tx: Read, want: Want, session: int, before: int | None, tickets: int = AHEAD
) -> tuple[Row | None, list[Row]]:
    """The session's own lease on exactly this resource, and what blocks a claim.

    That is every lease in the way, and the first waiters: however long a queue is, nobody reads
    all of it to find out that there is one.

    before: the ticket that asks; tickets behind it do not block it
    tickets: how many tickets to look at, unless none of them blocks
    """
    resource, own = want.resource, None
    if tx.queued:
        asked = ahead(want, before, tickets)
        tx.ahead(lambda: [(LEASES.around, want.near), (LEASES.queue_around, asked)])
    found = tx.rows(LEASES.around, **want.near)
    if resource.inode is not None:
        found += tx.rows(LEASES.same_file, inode=resource.inode, base=resource.base)
    in_the_way = []
    for row in found:
        if row["session"] == session and not row["waiting"] and row["resource"] == resource.text:
            own = row
        elif stands_in(want, session, before, row):
            in_the_way.append(row)
    # One live ticket is enough to block.
    lasting = any(not row["waiting"] and row["deadline"] > tx.now for row in in_the_way)
    while tx.queued:
        waiting = tx.rows(LEASES.queue_around, **asked)
        first = [row for row in waiting if stands_in(want, session, before, row)]
        if first or len(waiting) < tickets or lasting:
            in_the_way += first
            break
        tickets *= 8
        asked = ahead(want, before, tickets)
    return own, in_the_way


def first_of(around: Row, after: int = 0) -> Row:
    """The arguments of `queue_around` for the next waiters that may get what is freed there."""
    return {**around, "after": after, "before": LAST, "limit": PAGE}


def ask_around(tx: Read, wants: Sequence[Want]) -> None:
    """Send the queries that `look` will need for each of these in one trip."""

    def asked() -> list[tuple[Query, Row]]:
        leases = [(LEASES.around, want.near) for want in wants]
        if not tx.queued:
            return leases
        return [*leases, *((LEASES.queue_around, ahead(want, None, AHEAD)) for want in wants)]

    if len(wants) > 1:
        tx.ahead(asked)


def ahead(want: Want, before: int | None, tickets: int) -> Row:
    """The arguments of `queue_around` for the first tickets, or the first ahead of one."""
    return {**want.near, "after": 0, "before": before or LAST, "limit": tickets}


def stands_in(want: Want, session: int, before: int | None, row: Row) -> bool:
    """Whether a nearby lease or ticket blocks another session."""
    resource = want.resource
    return (
        row["session"] != session
        and (row["mode"] == EXCLUSIVE or want.mode == EXCLUSIVE)
        and not (row["waiting"] and before is not None and row["epoch"] >= before)
        and not (want.here and row["checkout"] not in (None, resource.checkout))
        and (
            (row["kind"] != "glob" and resource.kind != "glob")
            or resources_overlap(resource_of(row), resource)
        )
    )


def each_once(rows: Iterable[Row]) -> list[Row]:
    """Without duplicates: one lease may block several wants."""
    found = {(row["waiting"], row["resource"], row["session"], row["epoch"]): row for row in rows}
    return list(found.values())


def sessions_of(tx: Read, rows: Iterable[Row]) -> dict[int, Row]:
    query, given = asked_of(rows)
    return {row["id"]: row for row in tx.rows(query, **given)}


def stakes(session: int) -> list[tuple[Query, Row]]:
    """The queries for what a session waits for and what it holds."""
    given = {"session": session}
    return [(LEASES.tickets_of_session, given), (LEASES.of_session, given)]


def asked_of(rows: Iterable[Row]) -> tuple[Query, Row]:
    """The queries for the sessions of leases and tickets."""
    return SESSIONS.several, {"sessions": sorted({row["session"] for row in rows})}


def lapsed(tx: Read, rows: list[Row]) -> tuple[list[Row], list[Row], set[int]]:
    """The leases, tickets and dead sessions among the rows that no longer block anybody."""
    leases, tickets, dead = [], [], set()
    sessions = sessions_of(tx, rows)
    for row in rows:
        session = sessions.get(row["session"])
        # What an ended session held was freed with it, so such a row was written without dibs.
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


def standing(tx: Read, rows: list[Row]) -> list[Row]:
    """Without those that have expired and only need to be cleared away."""
    leases, tickets, dead = lapsed(tx, rows)
    gone = [id(row) for row in leases + tickets]
    return [row for row in rows if id(row) not in gone and row["session"] not in dead]


def named(scope: Scope, resources: Sequence[str], mode: str, here: bool = False) -> list[Want]:
    """The resources these texts name, each once, with the current content hash of files."""
    place = scope.place
    wants: dict[str, Want] = {}
    for text in resources:
        resource = place.resource(text)
        known = wants.get(resource.text)
        if known is None:
            known = wants[resource.text] = Want(resource, mode, place.content_hash(resource), here)
            if not resource.base or resource.base[-1] == "/":
                known.most_ms = most_ms(scope, resource)
        elif known.resource.checkout != resource.checkout:
            # A resource named in two checkouts is wanted in all of them.
            known.here, known.resource.checkout = False, None
    return list(wants.values())


def most_ms(scope: Scope, resource: Resource) -> int | None:
    """How long the caller may hold a resource; None if only its time to live limits that.

    A whole tree keeps everybody else from working, so an agent may hold it only for a short
    while, and cannot extend that by renewing. People decide for themselves.
    """
    if not is_whole_tree(resource) or scope.party in PEOPLE:
        return None
    return milliseconds(scope.door.tree_s())


def within(tx: Read, row: Row, most: int, before: int) -> None:
    """Limit a lease to that time since its grant; before: when it would have ended so far"""
    left = max(0, most - max(0, tx.wall - row["granted_at"]))
    row["ttl_ms"] = min(row["ttl_ms"], most)
    row["deadline"] = min(row["deadline"], max(before, tx.now + left))


def prolong(tx: Write, scope: Scope, row: Row, ttl_ms: int, deadline: int) -> Lease:
    """Renew a lease of the caller."""
    before = row["deadline"]
    row |= {"ttl_ms": ttl_ms, "deadline": deadline}
    if not row["base"] and (most := most_ms(scope, resource_of(row))) is not None:
        within(tx, row, most, before)
    row["signature"] = scope.keys.lease(row)
    tx.run(LEASES.renew, row)
    return lease_record(row, tx.now)


def take(
    tx: Write, scope: Scope, wants: list[Want], ttl_ms: int, note: str, task: str | None = None
) -> Grant:
    """Grant everything that is wanted to the caller, or raise with what blocks it."""
    caller = scope.caller
    while True:
        ask_around(tx, wants)
        seen = [in_the_way_of(tx, want, caller.session) for want in wants]
        in_the_way = each_once(row for _, rows in seen for row in rows)
        if not in_the_way:
            break
        from dibs.nouns.recovery import clear  # late: most claims meet nobody

        if not clear(tx, scope.keys, in_the_way):
            for want, (_, rows) in zip(wants, seen, strict=True):
                want.behind = rows
            raise held(tx, in_the_way)
    owned = [own for own, _ in seen]
    return granted(grant_all(tx, scope, wants, ttl_ms, note, task, owned), tx.seq)


def grant_all(
    tx: Write,
    scope: Scope,
    wants: list[Want],
    ttl_ms: int,
    note: str,
    task: str | None = None,
    owned: list[Row | None] | None = None,
) -> list[Lease]:
    """Write the leases of the caller, who already holds what is in `owned`."""
    caller = scope.caller
    if owned is None:
        owned = [look(tx, want, caller.session, None)[0] for want in wants]
    leases, opened = [], []
    for want, own in zip(wants, owned, strict=True):
        if own is not None and own["mode"] != want.mode == SHARED:
            opened.append(own)
        leases.append(
            grant(
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
    hand_over(tx, scope.keys, opened)
    return leases


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
    ticket: Row | None = None,
) -> Lease:
    """Write the lease. One that the session already holds keeps its epoch and is extended.

    ticket: the one that waited for it, if it comes from the queue
    """
    resource = want.resource
    renewed = own is not None and own["mode"] == want.mode and own["deadline"] > tx.now
    deadline = tx.now + ttl_ms
    if own is not None and renewed:
        keys.require("lease", own, resource.text)
        epoch, granted_at, content_hash = own["epoch"], own["granted_at"], own["content_hash"]
        # A resource held in two checkouts is held in all of them.
        checkout = own["checkout"] if own["checkout"] == resource.checkout else None
        # Neither tied to a task that also wants it nor shortened: it was held for another reason.
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
    if want.most_ms is not None:
        within(tx, row, want.most_ms, own["deadline"] if own is not None and renewed else 0)
    row["signature"] = keys.lease(row)
    tx.run(LEASES.grant, row)
    said = {"mode": want.mode, "epoch": epoch, "ttl_ms": row["ttl_ms"], "note": note, "task": task}
    if renewed:
        said["left_ms"] = row["deadline"] - tx.now
    if resource.kind == "dir":
        said["kind"] = "dir"
    if ticket is not None:
        said["ticket"] = ticket["number"]
        said["waited_ms"] = max(0, tx.wall - ticket["since_at"])
    tx.event(
        "lease.renewed" if renewed else "lease.claimed",
        resource.text,
        said,
        agent=agent,
        session=session,
        grows=not renewed,
    )
    return lease_record(row, tx.now)


def granted(leases: list[Lease], since: int) -> Grant:
    """The grant, with those of its leases that were granted before that seq as kept."""
    epoch, kept = 0, []
    for lease in leases:
        epoch = max(epoch, lease.epoch)
        if lease.epoch < since:
            kept.append(lease.resource)
    return Grant(epoch=epoch, leases=tuple(leases), kept=tuple(kept))


def in_the_way_of(
    tx: Read, want: Want, session: int, number: int | None = None
) -> tuple[Row | None, list[Row]]:
    """What `look` finds; a session that already holds it does not queue.

    number: the ticket that asks
    """
    own, rows = look(tx, want, session, number)
    if not any(row["waiting"] for row in rows):
        return own, rows
    above = {"ancestors": ancestors(want.resource.base), "session": session}
    tx.ahead(lambda: [(LEASES.above, above), asked_of(rows), *stakes(session)])
    if keeps(tx, own, want, tx.rows(LEASES.above, **above)):
        rows = [row for row in rows if not row["waiting"]]
    return own, rows


def keeps(tx: Read, own: Row | None, want: Want, above: list[Row]) -> bool:
    """Whether a session already holds what it wants: the resource itself, or a folder around it."""
    around = [own, *above] if own else above
    return any(
        row["deadline"] > tx.now
        and row["mode"] in (want.mode, EXCLUSIVE)
        and (row is own or row["kind"] != "glob")
        for row in around
    )


def held(tx: Read, rows: list[Row]) -> HeldError:
    """Say who holds it, since when, what for, until when, and what to do next."""
    blockers = [blocker_record(row, tx.now) for row in rows]
    return HeldError(
        in_the_way(blockers, tx.wall),
        next="queue for it (wait_s, --wait), message the holder, or work on something else",
        blockers=blockers,
    )


def in_force(tx: Read, agent: str | None, session: int | None, limit: int) -> tuple[Lease, ...]:
    """The leases of live sessions, by name."""
    if session is None:
        rows = tx.rows(LEASES.all, now=tx.now, agent=agent, limit=limit)
    else:
        rows = [
            row
            for row in tx.rows(LEASES.of_session, session=session)
            if row["deadline"] > tx.now and agent in (None, row["agent"])
        ][:limit]
    sessions = sessions_of(tx, rows).items()
    alive = {number for number, session in sessions if tx.store.alive(session, tx.now)}
    return tuple(lease_record(row, tx.now) for row in rows if row["session"] in alive)


def about(row: Row) -> dict[str, Any]:
    """What the journal says about a lease: which one it is, its task, and what it covers.

    Most leases are on files, so the kind is given only for directories.
    """
    said = {"epoch": row["epoch"]}
    if row.get("task") is not None:
        said["task"] = row["task"]
    if row["kind"] == "dir":
        said["kind"] = "dir"
    return said


def free(tx: Write, rows: list[Row], how: str) -> None:
    """End leases: released, expired or freed. The caller must hand them on."""
    for row in rows:
        tx.run(LEASES.remove, base=row["base"], resource=row["resource"], session=row["session"])
        tx.event(
            f"lease.{how}", row["resource"], about(row), agent=row["agent"], session=row["session"]
        )


def revoke(tx: Write, rows: list[Row], reason: str) -> None:
    """Take leases away from their holders. The caller must hand them on."""
    for row in rows:
        tx.run(LEASES.remove, base=row["base"], resource=row["resource"], session=row["session"])
        # The caller did this, not the holder.
        tx.event(
            "lease.revoked",
            row["resource"],
            {
                "holder": row["agent"],
                "holder_session": row["session"],
                "reason": reason,
                **about(row),
            },
        )


def hand_over(tx: Write, keys: Keyring, freed: list[Row]) -> None:
    """Give what was freed to its waiters, first come, first served.

    freed: the leases and tickets that no longer block
    """
    if freed and tx.queued:
        from dibs.nouns.leases.queue import serve  # late: there is hardly ever a waiter

        serve(tx, keys, freed)


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
