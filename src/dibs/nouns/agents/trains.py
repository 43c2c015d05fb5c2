"""The trains: for each target the branches that wait to be landed, in order.

First what a conductor has claimed, then what comes next by priority and age, then what is retried
after a pause or waits for a person. The conductor is the session with the lease on the target.
"""

from __future__ import annotations

from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import LEASES
from dibs.nouns.work.landings import said_by
from dibs.nouns.work.tasks import WORK, as_of
from dibs.records import Landing, Train

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Read

STATES = ("claimed", "available", "failed", "blocked")


def trains(scope: Scope, tx: Read, limit: int) -> tuple[Train, ...]:
    rows = [as_of(row, tx.now) for row in tx.rows(WORK.landings, limit=limit)]
    rows = [row for row in rows if row["state"] in STATES]
    inside: dict[str, list[str]] = {}
    if rows:
        for row in tx.rows(WORK.handed_in, landings=[row["id"] for row in rows]):
            inside.setdefault(row["landing"], []).append(row["id"])
    found: dict[str, list[Landing]] = {}
    for row in sorted(rows, key=place):
        said = said_by(row)
        if not said:
            continue
        found.setdefault(str(said["onto"]), []).append(
            Landing(
                id=row["id"],
                branch=str(said["branch"]),
                commit=str(said["commit"]),
                state=row["state"],
                agent=row["author"],
                tasks=tuple(inside.get(row["id"], ())),
                asked=row["asked"] if row["acked"] is None else None,
                acked=row["acked"],
                reason=row["reason"],
                since_at=row["changed_at"],
                due_in_ms=None if row["due"] is None else row["due"] - tx.now,
            )
        )
    return tuple(train(scope, tx, target, found[target]) for target in sorted(found))


def place(row: Row) -> tuple[int, int, int]:
    return STATES.index(row["state"]), -row["priority"], row["number"]


def train(scope: Scope, tx: Read, target: str, landings: list[Landing]) -> Train:
    lease = scope.place.resource(f"land:{target}")
    held = tx.rows(LEASES.on, base=lease.base, resource=lease.text, now=tx.now)
    sessions = grants.sessions_of(tx, held) if held else {}
    alive = [row for row in held if tx.store.alive(sessions[row["session"]], tx.now)]
    by = alive[0] if alive else None
    return Train(
        target=target,
        conductor=None if by is None else by["agent"],
        since_at=None if by is None else by["granted_at"],
        landings=tuple(landings),
    )
