"""A session's own leases: found for what it wants to do with them, or refused with the reason.

And what it does for its own tickets: it shows that somebody still waits.
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
"""How long after it could not help the queue one who waits looks again."""
WITHDRAW_S = 5
"""How long it stands among others of its process who leave the queue too."""
STALL_S = 1.0
"""How long it waits while nobody passes the turn on: its own wait may end meanwhile."""


def asked_first(noun: Noun, *resources: str, **_: object) -> list[tuple[Query, Row]]:
    """What `own_leases` is going to ask, where that can be said without looking for files."""
    scope = noun.scope
    if not resources:
        return [(LEASES.of_session, {"session": scope.session})]
    asked = []
    for text in resources:
        try:
            if isinstance(text, str) and is_name(text):
                asked.append((LEASES.held, own_key(scope, scope.place.resource(text))))
        except InvalidError:
            continue  # `own_leases` refuses it in its turn, on both databases
    return asked


def asked_to_release(noun: Noun, *resources: str, **how: object) -> list[tuple[Query, Row]]:
    """The same, and who waits for it, where somebody of this process waits for something."""
    asked = asked_first(noun, *resources, **how)
    if noun.scope.store.numbers:
        lines = [near(held["base"]) for query, held in asked if query is LEASES.held]
        asked += [(LEASES.queue_around, grants.first_of(line)) for line in lines]
    return asked


def own_leases(
    tx: Write, scope: Scope, resources: tuple[str, ...], everything: bool, epoch: int | None
) -> list[Row]:
    """The caller's leases on these resources, in force and of that epoch, or a refusal."""
    if (everything and resources) or not (everything or resources or epoch):
        raise InvalidError(
            "name the resources, or the epoch of their grant, or say everything",
            next="do one of these",
        )
    if not resources:
        rows = tx.rows(LEASES.of_session, session=scope.caller.session)
        rows = [row for row in rows if row["deadline"] > tx.now and epoch in (None, row["epoch"])]
        if not rows and epoch is not None:
            raise StaleError(
                f"your grant of epoch {epoch} is over",
                next="claim it again, and look at what changed meanwhile",
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
        next="claim it again, and look at what changed meanwhile",
        epoch=row["epoch"],
    )


def own_lease(tx: Write, scope: Scope, resource: Resource, epoch: int | None) -> Row:
    row = held_by_caller(tx, scope, resource)
    if row is not None and row["deadline"] > tx.now and epoch in (None, row["epoch"]):
        return row
    name = called(resource.text)
    if row is not None:
        expired = row["deadline"] <= tx.now
        raise stale(row, "has expired" if expired else "is of another epoch")
    want = Want(resource, grants.EXCLUSIVE, None)
    _, rows = grants.look(tx, want, scope.caller.session, None)
    blockers = [grants.blocker_record(row, tx.now) for row in rows if not row["waiting"]]
    taken = taken_away(tx, scope, resource, epoch)
    if taken is not None:
        raise StaleError(
            f"your lease on {name} was taken away by {called(taken['agent'])}",
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
            f"{held_by(resource.text, blockers[0].agent)}, not by this session",
            next="ask them to release it, or claim it with a wait",
            blockers=blockers,
        )
    raise NotFoundError(f"you hold no lease on {name}", next="look at what you hold: leases")


def taken_away(tx: Read, scope: Scope, resource: Resource, epoch: int | None) -> Row | None:
    """Who took the caller's lease on this resource away, and why, if somebody did."""
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
    """What names the caller's lease on a resource."""
    return {"base": resource.base, "resource": resource.text, "session": scope.caller.session}


def learn(tx: Write, row: Row, content_hash: str | None) -> None:
    """Note what is in the file of a lease now."""
    row["content_hash"] = content_hash
    tx.run(LEASES.see, row)
    tx.event("lease.seen", row["resource"], {"content_hash": content_hash})


def keep_tickets(store: Store) -> None:
    """Show that all who wait in this process still do, unless somebody just has."""
    now = store.clock.now()
    if store.kept_at <= now <= store.kept_at + KEEP_TICKET_S * 1000:
        return
    before, store.kept_at = store.kept_at, now
    try:
        with for_the_queue(store) as tx:
            numbers, deadline = sorted(store.numbers), tx.now + grants.TICKET_MS
            tx.run(LEASES.keep_tickets, numbers=numbers, deadline=deadline)
    except BaseException:
        store.kept_at = before  # the next who looks tries again
        raise


def for_the_queue(store: Store, wait_s: float = 0) -> Write:
    """A write by one who waits, and has no time for a turn that nobody passes on.

    wait_s: how long it has time, if hundreds may write the same; what is done for all who wait
        must not stand behind them
    """
    write = store.write(None, wait_s=wait_s)
    write.stall_s = STALL_S
    return write
