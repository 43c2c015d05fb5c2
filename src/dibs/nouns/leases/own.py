"""A session's own leases: found for an operation on them, or refused with the reason.

Also what a session does for its own tickets: it shows that somebody still waits.
"""

from __future__ import annotations

from dibs.errors import InvalidError, NotFoundError, NotYoursError, StaleError
from dibs.names.paths import Resource, is_name, near
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import LEASES, Want
from dibs.records import called, held_by
from dibs.storage.store import Read, Write, from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.space.scope import Noun, Scope
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Store

KEEP_TICKET_S = 5
HELP_MS = 3_000
"""How long a waiter that could not help the queue waits before it looks again."""
WITHDRAW_S = 5
"""How long it waits for the turn among other threads of its process that leave the queue."""
STALL_S = 1.0
"""How long it waits while nobody passes the turn on; its own wait may end meanwhile."""


def asked_first(noun: Noun, *resources: str, **_: object) -> list[tuple[Query, Row]]:
    """The queries that `own_leases` will need, if they can be known without reading the disk."""
    scope = noun.scope
    if not resources:
        return [(LEASES.of_session, {"session": scope.session})]
    asked = []
    for text in resources:
        try:
            if isinstance(text, str) and is_name(text):
                asked.append((LEASES.held, own_key(scope, scope.place.resource(text))))
        except InvalidError:
            continue  # `own_leases` refuses it later, on both databases
    return asked


def asked_to_release(noun: Noun, *resources: str, **how: object) -> list[tuple[Query, Row]]:
    """The same, and the waiters, if this process has any waiter."""
    asked = asked_first(noun, *resources, **how)
    if noun.scope.store.numbers:
        lines = [near(held["base"]) for query, held in asked if query is LEASES.held]
        asked += [(LEASES.queue_around, grants.first_of(line)) for line in lines]
    return asked


def own_leases(
    tx: Write, scope: Scope, resources: tuple[str, ...], everything: bool, epoch: int | None
) -> list[Row]:
    """The caller's leases on these resources, in force and with that epoch, or a refusal."""
    if (everything and resources) or not (everything or resources or epoch):
        raise InvalidError(
            "it is not clear which leases are meant",
            next="name the resources, give the epoch of their grant, or say everything",
        )
    if not resources:
        rows = tx.rows(LEASES.of_session, session=scope.caller.session)
        rows = [row for row in rows if row["deadline"] > tx.now and epoch in (None, row["epoch"])]
        if not rows and epoch is not None:
            raise StaleError(
                f"your grant with epoch {epoch} has ended",
                next="claim it again, and check what has changed meanwhile",
                epoch=epoch,
            )
    else:
        found = {found.text: found for found in map(scope.place.resource, resources)}
        rows = [own_lease(tx, scope, resource, epoch) for resource in found.values()]
    for row in rows:
        scope.keys.require("lease", row, row["resource"])
    return rows


def stale(row: Row, why: str) -> StaleError:
    return StaleError(
        f"your lease on {called(row['resource'])} {why}",
        next="claim it again, and check what has changed meanwhile",
        epoch=row["epoch"],
    )


def own_lease(tx: Write, scope: Scope, resource: Resource, epoch: int | None) -> Row:
    row = held_by_caller(tx, scope, resource)
    if row is not None and row["deadline"] > tx.now and epoch in (None, row["epoch"]):
        return row
    name = called(resource.text)
    if row is not None:
        expired = row["deadline"] <= tx.now
        raise stale(row, "has expired" if expired else "has another epoch")
    want = Want(resource, grants.EXCLUSIVE, None)
    _, rows = grants.look(tx, want, scope.caller.session, None)
    blockers = [grants.blocker_record(row, tx.now) for row in rows if not row["waiting"]]
    taken = taken_away(tx, scope, resource, epoch)
    if taken is not None:
        raise StaleError(
            f"{called(taken['agent'])} took away your lease on {name}",
            next="do not change it; read your inbox, and ask before you claim it again",
            blockers=blockers,
            epoch=taken["epoch"],
            reason=taken["reason"],
        )
    if epoch is not None:
        raise StaleError(
            f"you no longer hold {name}: your lease with epoch {epoch} has ended",
            next="claim it again, and check what has changed meanwhile",
            blockers=blockers,
        )
    if blockers:
        first = blockers[0]
        raise NotYoursError(
            f"{held_by(first.resource, first.agent)}, {elsewhere(scope, first.agent)}",
            next="ask the holder to release it, or queue for it (wait_s, --wait)",
            blockers=blockers,
        )
    raise NotFoundError(f"you hold no lease on {name}", next="list your leases")


def elsewhere(scope: Scope, agent: str) -> str:
    """Where an agent holds what this session does not; it may be the caller, who has several."""
    return "in another session" if agent == scope.caller.agent else "not by this session"


def taken_away(tx: Read, scope: Scope, resource: Resource, epoch: int | None) -> Row | None:
    """The event that says who took away the caller's lease on this resource, if somebody did."""
    session = scope.caller.session
    for event in tx.rows(LEASES.revoked, resource=resource.text, after=session):
        said = from_text(event["data"])
        if said["holder_session"] == session and epoch in (None, said["epoch"]):
            return {**said, "agent": event["agent"]}
    return None


def held_by_caller(tx: Read, scope: Scope, resource: Resource) -> Row | None:
    """The caller's own lease on this resource."""
    return tx.row(LEASES.held, **own_key(scope, resource))


def own_key(scope: Scope, resource: Resource) -> Row:
    """The key of the caller's lease on a resource."""
    return {"base": resource.base, "resource": resource.text, "session": scope.caller.session}


def learn(tx: Write, row: Row, content_hash: str | None) -> None:
    """Record the current content of a leased file."""
    row["content_hash"] = content_hash
    tx.run(LEASES.see, row)
    tx.event("lease.seen", row["resource"], {"content_hash": content_hash})


def keep_tickets(store: Store) -> None:
    """Show that all waiters of this process still wait, unless that was just done."""
    now = store.clock.now()
    if store.kept_at <= now <= store.kept_at + KEEP_TICKET_S * 1000:
        return
    before, store.kept_at = store.kept_at, now
    try:
        with for_the_queue(store) as tx:
            deadline = tx.now + grants.TICKET_MS
            rows = [{"number": number, "deadline": deadline} for number in sorted(store.numbers)]
            signed = [(row["number"], store.ledger.ticket(row)) for row in rows]
            if signed:
                tx.run(LEASES.keep_tickets, rows=signed, deadline=deadline)
    except BaseException:
        store.kept_at = before  # the next waiter that looks tries again
        raise


def for_the_queue(store: Store, wait_s: float = 0) -> Write:
    """A write by a waiter, which gives up if nobody passes the turn on.

    wait_s: how long it has, if hundreds may write the same; what is done for all waiters must
        not queue behind them
    """
    write = store.write(None, wait_s=wait_s)
    write.stall_s = STALL_S
    return write
