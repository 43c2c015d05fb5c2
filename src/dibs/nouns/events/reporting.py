"""The answers of `events.report` and `events.contention`: what the journal says, as records."""

from __future__ import annotations

from dibs.nouns.events.accounts import Sums, tally
from dibs.nouns.events.contention import Meetings
from dibs.nouns.events.periods import Reading
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import LEASES, Want
from dibs.records import Contention, Report, Waiter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Read

    When = int | str | None

QUEUE = 10_000
"""How many places in queues are looked at; each ticket has one for each of its resources."""


def report(scope: Scope, since: When, until: When, by: str, east_ms: int, limit: int) -> Report:
    reading = Reading(scope, since, until)
    sums = reading.tell(lambda: Sums(by, east_ms))
    groups, rest = sums.tallies(limit)
    return Report(
        **told(scope, reading),
        by=by,
        total=tally(None, sums.total),
        groups=groups,
        group_count=len(sums.groups),
        rest=rest,
        cut=reading.cut,
    )


def contention(scope: Scope, since: When, until: When, limit: int) -> Contention:
    reading = Reading(scope, since, until)
    met = reading.tell(Meetings)
    with scope.read() as tx:
        now, number = waiters(tx, limit)
    return Contention(
        **told(scope, reading),
        now=now,
        waiting_count=number,
        served=met.ended["served"],
        gave_up=met.ended["gave_up"],
        total=met.total,
        paths=met.paths(limit),
        path_count=met.path_count,
        pairs=met.pairs(limit),
        splits=met.splits(limit),
        orders=met.orders(limit),
        cut=reading.cut or met.full,
    )


def told(scope: Scope, reading: Reading) -> dict[str, Any]:
    """What an answer says about the period that was read."""
    return {
        "space": scope.space,
        "since_at": reading.period.begin_at,
        "until_at": reading.period.end_at,
        "known_at": reading.known_at,
        "unknown": reading.unknown,
        "events": reading.events,
        "last_seq": reading.period.last,
    }


def waiters(tx: Read, limit: int) -> tuple[tuple[Waiter, ...], int]:
    """The first waiters with their blockers, and the number of waiters."""
    tickets: dict[int, list[Row]] = {}
    for row in grants.standing(tx, tx.rows(LEASES.queue, limit=QUEUE)):
        tickets.setdefault(row["epoch"], []).append(row)
    first = list(tickets.items())[:limit]
    return tuple(waiter(tx, number, rows) for number, rows in first), len(tickets)


def waiter(tx: Read, number: int, rows: list[Row]) -> Waiter:
    here = {row["resource"]: bool(row["here"]) for row in tx.rows(LEASES.ticket, number=number)}
    found = grants.each_once(
        other
        for row in rows
        for other in grants.look(
            tx,
            Want(grants.resource_of(row), row["mode"], None, here.get(row["resource"], False)),
            row["session"],
            number,
        )[1]
    )
    there = grants.standing(tx, found)
    holders = [row for row in there if not row["waiting"]] or there
    return Waiter(
        ticket=number,
        agent=rows[0]["agent"],
        session=rows[0]["session"],
        resources=tuple(row["resource"] for row in rows),
        note=rows[0]["note"],
        since_at=rows[0]["granted_at"],
        blockers=tuple(grants.blocker_record(row, tx.now) for row in holders),
    )
