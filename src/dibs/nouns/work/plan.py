"""How a task comes into the plan: its lane, what it waits for, and circles that are refused.

A lane holds the tasks of one kind and one set of tags, so that `next` finds the best one that
fits by looking at the head of each lane.
"""

from __future__ import annotations

from dibs.errors import ExistsError, InvalidError
from dibs.nouns.work.tasks import WORK, record_of
from dibs.records import called, to_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.space.scope import Scope
    from dibs.storage.store import Read, Write

ATTEMPTS = 3


def insert(
    tx: Write,
    scope: Scope,
    id: str,
    *,
    title: str = "",
    kind: str = "",
    priority: int = 0,
    tags: Sequence[str] = (),
    after: Sequence[str] = (),
    payload: str | None = None,
    max_attempts: int = ATTEMPTS,
    not_before: int | None = None,
) -> None:
    """Add a task; it is blocked while what it needs is not complete."""
    opened = all(_completed(tx, need) for need in after)
    later = not_before is not None
    said = {"title": title, "kind": kind, "priority": priority}
    number = tx.event("task.added", id, said, grows=True)
    added = tx.row(
        WORK.add,
        id=id,
        state="available" if opened and not later else "blocked",
        lane=_lane(tx, kind, to_text(list(tags)), number),
        priority=priority,
        number=number,
        title=title,
        kind=kind,
        tags=to_text(list(tags)),
        needs=to_text(list(after)),
        payload=payload,
        max_attempts=max_attempts,
        author=scope.caller.agent,
        at=tx.wall,
        not_before=not_before,
        due=not_before if opened else None,
    )
    if added is None:
        there = record_of(tx, id)
        raise ExistsError(
            f"there is a task {called(id)} already ({there.state})",
            next="claim it, or choose another id; reopen it if it has ended",
            task=there,
        )
    for need in after:
        _refuse_circle(tx, id, need)
        tx.run(WORK.need, id=id, needs=need)


def _completed(tx: Read, id: str) -> bool:
    row = tx.row(WORK.one, id=id)
    return row is not None and row["state"] == "completed"


def _lane(tx: Write, kind: str, tags: str, number: int) -> int:
    lane = tx.row(WORK.lane, kind=kind, tags=tags)
    if lane is None:
        tx.run(WORK.add_lane, id=number, kind=kind, tags=tags)
        return number
    found: int = lane["id"]
    return found


def _refuse_circle(tx: Read, id: str, need: str) -> None:
    """Walk from what is needed along its own needs; `id` must not be among them."""
    came_from = {need: id}
    front = [need]
    while front:
        here = front.pop()
        if here == id:
            circle, step = [id], came_from[id]
            while step != id:
                circle.append(step)
                step = came_from[step]
            circle = [*circle[:1], *reversed(circle[1:]), id]
            raise InvalidError(
                f"these tasks would wait for each other: {' after '.join(map(called, circle))}",
                next="leave one of these dependencies out",
                cycle=circle,
            )
        for row in tx.rows(WORK.needs_of, id=here):
            if row["needs"] not in came_from:
                came_from[row["needs"]] = here
                front.append(row["needs"])
