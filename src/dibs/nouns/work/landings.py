"""Landings: branches that wait to be merged, as tasks of kind `landing`, and what waits for them.

A landing says which commit of which branch goes onto which target. It needs the tag `land:TARGET`,
so that only a conductor takes it, and says its commit in its id and its payload, which nobody can
change: what a person has acknowledged is that commit.

A task that is *handed in* has no claimer. It is blocked, and `landing` says what it waits for:

    the landing completes                       the task completes with its result
    the landing is dead, cancelled or removed   the task comes back: available with the reason of
                                                the landing, or dead if its attempts are used up,
                                                and whoever handed it in is told
    the task is cancelled or removed            its landing is cancelled, unless a conductor has
                                                claimed it or other tasks wait for it too

All of this happens in the transaction that ends the one or the other, also where that is the
recovery from a conductor's death. So a task that is handed in always has a landing that is open.
A landing that is claimed when its task is cancelled goes on, since its commit may be on the target
already; it completes without the task.
"""

from __future__ import annotations

from dibs.errors import InvalidError
from dibs.nouns.work.tasks import WORK, complete_group, open_waiting
from dibs.records import called, quoted
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.space.signing import Keyring
    from dibs.storage.driver import Row
    from dibs.storage.store import Write

LANDING = "landing"
"""The kind of the tasks that `work.land` makes, and nobody else."""
AT_ONCE = 1_000


def refuse_kind(kind: str | None) -> None:
    """Refuse a task that poses as a landing."""
    if kind == LANDING:
        raise InvalidError(
            "tasks of kind landing are made by work.land only", next="use work.land, or dibs land"
        )


def said_by(row: Row) -> dict[str, Any]:
    """What a landing says: branch, commit, onto, task and agent.

    Nothing if it is none: before there were landings, anybody could call a task one.
    """
    said = from_text(row["payload"])
    return said if isinstance(said, dict) and {"branch", "commit", "onto"} <= said.keys() else {}


def is_parked(row: Row) -> bool:
    """Whether a blocked task waits for its landing or for a person, not for other tasks."""
    return row["state"] == "blocked" and (
        row["landing"] is not None or (row["asked"] is not None and row["acked"] is None)
    )


def landed(tx: Write, results: dict[str, str | None]) -> None:
    """Complete the tasks that were handed in with these landings, which are stored as completed.

    results: what came of each landing, by its id
    """
    ids = list(results)
    for start in range(0, len(ids), AT_ONCE):
        rows = tx.rows(WORK.handed_in, landings=ids[start : start + AT_ONCE])
        for row in rows:
            landing = row["landing"]
            tx.run(WORK.end, id=row["id"], state="completed", result=results[landing], at=tx.wall)
            tx.event("task.completed", row["id"], {"landing": landing})
        if rows:
            open_waiting(tx, [row["id"] for row in rows])
        for parent in dict.fromkeys(row["parent"] for row in rows):
            complete_group(tx, parent)


def bring_back(
    tx: Write, keys: Keyring, landing: str, state: str, reason: str, by: tuple[str, int]
) -> None:
    """Let the tasks come back that were handed in with a landing, which has ended without them.

    state: how it has ended
    by: the agent and the session that the message is from
    """
    for row in tx.rows(WORK.handed_in, landings=[landing]):
        why = reason or f"its landing {called(landing)} is {state}"
        back = "dead" if row["attempts"] >= row["max_attempts"] else "available"
        tx.run(WORK.come_back, id=row["id"], state=back, reason=why, at=tx.wall)
        event = "task.dead" if back == "dead" else "task.returned"
        said = {"landing": landing, "reason": why, "attempts": row["attempts"]}
        tx.event(event, row["id"], said, agent=by[0], session=by[1])
        if row["agent"] != by[0]:
            from dibs.nouns.messages.operations import send_as  # hardly ever

            told = f"{called(row['id'])} came back to you, {called(landing)} is {state}"
            told += f": {quoted(reason)}" if reason else ""
            send_as(tx, keys, by, told, to=row["agent"])
