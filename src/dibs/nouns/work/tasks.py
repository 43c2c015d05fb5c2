"""How tasks change their state without their claimer, inside a transaction.

    blocked    -> available            its dependencies are complete, its start time has come
    failed     -> available            its pause before the next attempt has ended
    claimed    -> available or dead    its claimer died, left, or let the claim expire

A claim whose holder is lost counts as an attempt: a task that kills every agent that takes it
ends as `dead` instead of being handed out forever.
"""

from __future__ import annotations

from dibs.errors import NotFoundError, TooLargeError
from dibs.nouns.leases import grants
from dibs.records import Lease, Task, called
from dibs.storage.queries import Queries
from dibs.storage.store import Read, Write, from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query

WORK = Queries("work")
ANY: Row = dict.fromkeys(("state", "kind", "agent", "parent", "follows", "precedes"))
"""The arguments of the task list that select all tasks."""
SLICE = 100
CLAIM_ENDS = frozenset(
    "task.abandoned task.cancelled task.completed task.dead task.failed task.freed task.handed_in"
    " task.removed task.reopened task.revoked".split()
)
"""The events after which nobody has claimed the task."""
ROWS = 20
RESULT_SAID = 500
"""How many characters of a result, as JSON, the journal keeps."""
BACKOFF_MS = 10_000
BACKOFF_MAX_MS = 3_600_000


def backoff_ms(attempts: int) -> int:
    """The pause after that many attempts: 10 s, 20 s, 40 s ... at most an hour."""
    doubled: int = BACKOFF_MS * 2 ** min(attempts - 1, 20)
    return min(BACKOFF_MAX_MS, doubled)


def came_of(result: str | None) -> dict[str, Any]:
    """What the journal keeps of a result: all of it, or its beginning and its length."""
    if result is None:
        return {}
    if len(result) <= RESULT_SAID:
        return {"result": from_text(result)}
    return {"result": f"{result[:RESULT_SAID]}…", "result_length": len(result)}


def give_back(tx: Write, row: Row, why: str) -> str | None:
    """Put back a task whose claimer is lost; if that makes it dead, say why."""
    exhausted = row["attempts"] >= row["max_attempts"]
    state = "dead" if exhausted else "available"
    reason = f"its claimer {row['agent']} {why}"
    tx.run(WORK.move, id=row["id"], state=state, reason=reason, due=None, at=tx.wall)
    tx.event(
        f"task.{'dead' if exhausted else 'freed'}",
        row["id"],
        {"epoch": row["epoch"], "why": why, "attempts": row["attempts"]},
        agent=row["agent"],
        session=row["session"],
    )
    return reason if exhausted else None


def open_up(tx: Write, id: str, not_before: int | None) -> str:
    """Make a task available, or leave it blocked until its start time."""
    later = not_before is not None and not_before > tx.now
    state = "blocked" if later else "available"
    tx.run(WORK.move, id=id, state=state, reason="", due=not_before if later else None, at=tx.wall)
    if not later:
        tx.event("task.available", id)
    return state


class Waiting:
    """The tasks that wait for some that are about to be completed."""

    def __init__(self, rows: list[Row]) -> None:
        """
        rows: the rows of `opened_by`
        """
        self._rows: dict[str, Row] = {}
        self._needs: dict[str, set[str]] = {}
        self._by_need: dict[str, list[str]] = {}
        for row in rows:
            id = row["id"]
            self._rows[id] = row
            if row["state"] != "completed":
                self._needs.setdefault(id, set()).add(row["needs"])
                self._by_need.setdefault(row["needs"], []).append(id)

    def unblock(self, tx: Write, id: str) -> None:
        """Unblock the tasks whose last open dependency was this one, which is now complete."""
        for waiting in self._by_need.pop(id, ()):
            self._needs[waiting].discard(id)
            if not self._needs[waiting]:
                open_up(tx, waiting, self._rows[waiting]["not_before"])


def open_waiting(tx: Write, ids: list[str]) -> None:
    """Unblock the tasks that waited for some that are now stored as completed."""
    waiting: dict[str, list[Row]] = {}
    for row in tx.rows(WORK.opened_by, ids=ids):
        waiting.setdefault(row["id"], []).append(row)
    for id, rows in waiting.items():
        if all(row["state"] == "completed" for row in rows):
            open_up(tx, id, rows[0]["not_before"])


def complete_group(tx: Write, id: str | None) -> None:
    """Complete a group whose last part has ended, and in turn the groups it is part of."""
    while id is not None:
        row = tx.row(WORK.group, id=id)
        if row is None or not row["with_children"] or row["state"] != "blocked":
            return
        if not row["ended"] or row["open"]:
            return
        waiting = Waiting(tx.rows(WORK.opened_by, ids=[id]))
        tx.run(WORK.move, id=id, state="completed", reason="", due=None, at=tx.wall)
        tx.event("task.completed", id, {"reason": "its last part has ended"})
        waiting.unblock(tx, id)
        id = row["parent"]


class Claimed:
    """What is needed from the store to complete the caller's tasks, read at once."""

    def __init__(self, tx: Read, scope: Scope, wanted: Sequence[Row]) -> None:
        """
        wanted: the arguments of `work.complete` for each of the tasks
        """
        self.held, waiting, rows = tx.ask(claimed(scope, wanted))
        self.waiting = Waiting(waiting)
        self.completed: list[tuple[Any, ...]] | None = [] if len(wanted) > 1 else None
        """Those that are stored together at the end, if there are many."""
        self.parents: dict[str, None] = {}
        """Their groups, which are checked when all of them are stored."""
        self.landings: dict[str, str | None] = {}
        """The landings among them with their results: tasks may be handed in with these."""
        self.rows = {row["id"]: row for row in rows}
        for ids in slices(ids_of(wanted))[1:]:
            self._refuse_size(tx)
            self.rows |= {row["id"]: row for row in tx.rows(WORK.several, ids=ids)}
        self._refuse_size(tx)

    def store(self, tx: Write, scope: Scope) -> None:
        """Store those that were completed."""
        run_rows(
            tx, WORK.complete_many, self.completed or [], session=scope.caller.session, at=tx.wall
        )

    def _refuse_size(self, tx: Read) -> None:
        rows = list(self.rows.values())
        fitting = len(tx.fitting(rows))
        if fitting < len(rows):
            raise TooLargeError(
                f"{len(rows)} of these tasks have more payload than fits in one answer",
                next=f"complete about {fitting} in one call",
                limit=fitting,
            )


def ids_of(wanted: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(one["id"] for one in wanted))


def claimed(scope: Scope, wanted: Sequence[Row]) -> list[tuple[Query, Row]]:
    """The queries needed before these tasks are completed."""
    ids = ids_of(wanted)
    return [
        (grants.LEASES.of_session, {"session": scope.caller.session}),
        (WORK.opened_by, {"ids": ids}),
        (WORK.several, {"ids": ids[:SLICE]}),
    ]


def slices(ids: list[str]) -> list[list[str]]:
    """Ids in portions to be read at once: each task may have a payload of a mebibyte."""
    return [ids[start : start + SLICE] for start in range(0, len(ids), SLICE)]


def run_rows(tx: Write, query: Query, rows: list[tuple[Any, ...]], **same: Any) -> None:
    """Run a statement for many rows, in equal portions so that it is mostly the same text."""
    for start in range(0, len(rows), ROWS):
        tx.run(query, rows=rows[start : start + ROWS], **same)


def as_of(row: Row, now: int) -> Row:
    """A task as it is now: what is due counts as done, even if nobody has stored it yet."""
    due = row["due"]
    if due is None or due > now:
        return row
    changed = {"state": "available", "due": None}
    if row["state"] == "claimed":
        lost = f"its claimer {row['agent']} let the claim expire"
        changed |= {"reason": lost, "session": None}
        if row["attempts"] >= row["max_attempts"]:
            changed["state"] = "dead"
    return row | changed


def task_record(
    row: Row, now: int, leases: tuple[Lease, ...] = (), progress: Row | None = None
) -> Task:
    row = as_of(row, now)
    return Task.of(
        row,
        tags=tuple(from_text(row["tags"])),
        after=tuple(from_text(row["needs"])),
        payload=from_text(row["payload"]),
        result=from_text(row["result"]),
        seq=row["number"],
        due_in_ms=None if row["due"] is None else row["due"] - now,
        leases=leases,
        labels=tuple(from_text(row["labels"]) or ()),
        declared=tuple([text for text, *_ in from_text(row["declared"]) or ()]),
        with_children=bool(row["with_children"]),
        children=progress["children"] if progress else 0,
        children_done=progress["children_done"] if progress else 0,
    )


def counts_of(tx: Read) -> dict[str, int]:
    """How many tasks are in each state now."""
    counts = {str(row["state"]): row["number"] for row in tx.rows(WORK.counts)}
    for row in tx.rows(WORK.due_counts, now=tx.now):
        state, number = "dead" if row["last"] else "available", row["number"]
        counts[row["state"]] -= number
        counts[state] = counts.get(state, 0) + number
    return {state: number for state, number in counts.items() if number}


def row_of(tx: Read, id: str, known: dict[str, Row] | None = None) -> Row:
    row = tx.row(WORK.one, id=id) if known is None else known.get(id)
    if row is None:
        raise NotFoundError(f"there is no task {called(id)}", next="list the tasks, or add it")
    return row


def record_of(tx: Read, id: str) -> Task:
    """The task with the files claimed for it."""
    row = row_of(tx, id)
    held = tx.rows(grants.LEASES.of_session, session=row["session"])
    leases = [grants.lease_record(lease, tx.now) for lease in held if lease["task"] == id]
    return task_record(row, tx.now, tuple(leases), progress_of(tx, [id]).get(id))


def progress_of(tx: Read, ids: list[str]) -> dict[str, Row]:
    """The progress of those of these tasks that have parts."""
    found: dict[str, Row] = {}
    for some in slices(ids):
        found |= {row["parent"]: row for row in tx.rows(WORK.progress, ids=some)}
    return found
