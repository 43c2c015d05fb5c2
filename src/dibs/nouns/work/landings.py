"""Landings: branches that wait to be merged, as tasks of kind `landing`, and what waits for them.

A landing says which commit of which branch goes onto which target. It needs the tag `land:TARGET`,
so only a conductor takes it. Its commit is in its id and its payload, which nobody can change:
a person approves exactly that commit.

A task that is *handed in* has no claimer. It is blocked, and `landing` says what it waits for:

    the landing completes                       the task completes with its result
    the landing is dead, cancelled or removed   the task comes back: available with the reason of
                                                the landing, or dead if its attempts are used up,
                                                and whoever handed it in is told
    the task is cancelled or removed            its landing is cancelled, unless a conductor has
                                                claimed it or other tasks wait for it too

All of this happens in the transaction that ends the one or the other, including the recovery from
a conductor's death. So a task that is handed in always has an open landing. A landing that is
claimed when its task is cancelled continues, since its commit may be on the target already; it
completes without the task.
"""

from __future__ import annotations

from dibs.errors import InvalidError
from dibs.nouns.work.tasks import WORK, came_of, complete_group, open_waiting
from dibs.records import called, quoted
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.space.signing import Keyring
    from dibs.storage.driver import Row
    from dibs.storage.store import Write

LANDING = "landing"
"""The kind of the tasks that only `work.land` makes."""
AT_ONCE = 1_000


def refuse_kind(kind: str | None) -> None:
    """Refuse a task that poses as a landing."""
    if kind == LANDING:
        raise InvalidError(
            "only work.land can make tasks of kind landing", next="use work.land, or dibs land"
        )


def said_by(row: Row) -> dict[str, Any]:
    """What a landing says: branch, commit, onto, task and agent.

    Empty if the task is no landing: before there were landings, any task could have that kind.
    """
    said = from_text(row["payload"])
    return said if isinstance(said, dict) and {"branch", "commit", "onto"} <= said.keys() else {}


def is_parked(row: Row) -> bool:
    """Whether a blocked task waits for its landing or for a person, not for other tasks."""
    return row["state"] == "blocked" and (
        row["landing"] is not None or (row["asked"] is not None and row["acked"] is None)
    )


def landed(tx: Write, results: dict[str, str | None]) -> None:
    """Complete the tasks handed in with these landings, which are stored as completed.

    results: the result of each landing, by its id
    """
    ids = list(results)
    for start in range(0, len(ids), AT_ONCE):
        rows = tx.rows(WORK.handed_in, landings=ids[start : start + AT_ONCE])
        for row in rows:
            landing = row["landing"]
            tx.run(WORK.end, id=row["id"], state="completed", result=results[landing], at=tx.wall)
            said = {"landing": landing, **came_of(results[landing])}
            tx.event("task.completed", row["id"], said)
        if rows:
            open_waiting(tx, [row["id"] for row in rows])
        for parent in dict.fromkeys(row["parent"] for row in rows):
            complete_group(tx, parent)


def bring_back(
    tx: Write, keys: Keyring, landing: str, state: str, reason: str, by: tuple[str, int]
) -> None:
    """Return the tasks that were handed in with a landing, which has ended without them.

    state: how it ended
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
            from dibs.nouns.messages.operations import send_as  # late: rarely needed

            told = f"{called(row['id'])} came back to you because {called(landing)} is {state}"
            told += f": {quoted(reason)}" if reason else ""
            send_as(tx, keys, by, told, to=row["agent"])
