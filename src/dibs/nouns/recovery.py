"""What happens when a session ends: everything it held is freed immediately.

Leaving, dying, and being found dead by another claimer all come through here, in the
transaction of the one that notices. Leases go to their waiters, tasks become available again, and
tickets leave the queue.
"""

from __future__ import annotations

from dibs.nouns.leases import grants
from dibs.nouns.leases.queue import drop_ticket
from dibs.nouns.work.landings import bring_back
from dibs.nouns.work.tasks import give_back
from dibs.storage.queries import Queries
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.space.signing import Keyring
    from dibs.storage.driver import Row
    from dibs.storage.store import Write

AGENTS = Queries("agents")
LEASES = Queries("leases")
TASKS = Queries("work")


def end_session(tx: Write, keys: Keyring, session: int, why: str) -> None:
    """Mark the session as ended and free what it held."""
    ended = tx.row(AGENTS.end, session=session, at=tx.wall, why=why)
    if ended is None:
        return
    agent = ended["agent"]
    tx.event(f"session.{why}", agent, {"session": session}, agent=agent, session=session)
    freed = tx.rows(LEASES.of_session, session=session)
    grants.free(tx, freed, "freed")
    for number in {row["number"] for row in tx.rows(LEASES.tickets_of_session, session=session)}:
        freed += drop_ticket(tx, number, why)
    for row in tx.rows(TASKS.of_session, session=session):
        lose_task(tx, keys, row, why)
    if tx.store.liveness is not None and ended["process_bound"]:
        tx.store.liveness.forget(session)
    grants.hand_over(tx, keys, freed)


def lose_task(tx: Write, keys: Keyring, row: Row, why: str) -> None:
    """Put a task back; if it is a landing and now dead, the tasks handed in with it come back."""
    reason = give_back(tx, row, why)
    if reason is not None:
        bring_back(tx, keys, row["id"], "dead", reason, (row["agent"], row["session"]))


def lapse_task(tx: Write, keys: Keyring, row: Row) -> None:
    """A claim expired: free the task and the files taken with it."""
    lose_task(tx, keys, row, "let the claim expire")
    grants.hand_over(tx, keys, free_with_task(tx, keys, row))


def free_with_task(tx: Write, keys: Keyring, row: Row) -> list[Row]:
    """Release the leases that were claimed together with a task."""
    leases = leave_to_others(tx, keys, row, taken_with(tx, row))
    grants.free(tx, leases, "released")
    return leases


def taken_with(tx: Write, row: Row, held: list[Row] | None = None) -> list[Row]:
    """The leases that were claimed together with a task and are still held.

    held: all leases of its claimer, if they are known
    """
    if held is None:
        held = tx.rows(LEASES.of_session, session=row["session"])
    return [lease for lease in held if lease["task"] == row["id"]]


def leave_to_others(tx: Write, keys: Keyring, row: Row, leases: list[Row]) -> list[Row]:
    """The leases of a task that end with it: its claimer's other tasks need the rest."""
    others = tx.rows(TASKS.of_session, session=row["session"]) if leases else []
    needing = {
        text: other["id"]
        for other in others
        if other["id"] != row["id"]
        for text, *_ in from_text(other["declared"]) or ()
    }
    for lease in leases:
        if lease["resource"] in needing:
            keys.require("lease", lease, lease["resource"])
            lease["task"] = needing[lease["resource"]]
            lease["signature"] = keys.lease(lease)
            tx.run(LEASES.tie, lease)
            said = {"epoch": lease["epoch"], "left_ms": max(0, lease["deadline"] - tx.now)}
            tx.event(
                "lease.renewed",
                lease["resource"],
                {**said, "task": lease["task"]},
                agent=lease["agent"],
                session=lease["session"],
            )
    return [lease for lease in leases if lease["task"] == row["id"]]


def clear(tx: Write, keys: Keyring, rows: list[Row]) -> bool:
    """Free what expired holders and waiters keep; return whether there was anything."""
    leases, tickets, dead = grants.lapsed(tx, rows)
    grants.free(tx, leases, "expired")
    freed = [*leases]
    for number in {row["epoch"] for row in tickets}:
        freed += drop_ticket(tx, number, "dead")
    for session in sorted(dead):
        end_session(tx, keys, session, "died")
    grants.hand_over(tx, keys, freed)
    return bool(leases or tickets or dead)


def end_dead_sessions(tx: Write, keys: Keyring, sessions: list[Row]) -> bool:
    """End the sessions whose process is gone; return whether there were any."""
    dead = [row for row in sessions if not tx.store.alive(row, tx.now)]
    for row in dead:
        end_session(tx, keys, row["id"], "died")
    return bool(dead)
