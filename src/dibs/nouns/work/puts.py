"""Tasks as an external source has them: added where they are missing, changed where they differ.

What is not given stays as it is, and what is already the same writes no event, so a source can be
read again and again. A source may end a task that nobody works on. It does not take a task away
from its claimer or from its landing, cannot change landings themselves, and reopens a task that
has ended only when it is told to (`reopen`).
"""

from __future__ import annotations

from dibs.errors import NotYoursError
from dibs.nouns.work.adding import Adding, declared_text, names_text, parts, questions
from dibs.nouns.work.changing import needs
from dibs.nouns.work.claims import revive
from dibs.nouns.work.landings import LANDING, refuse_kind
from dibs.nouns.work.tasks import (
    WORK,
    came_of,
    complete_group,
    open_waiting,
    row_of,
    slices,
    task_record,
)
from dibs.operation import OPERATIONS
from dibs.records import Put, called, to_text
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Write

ENDED = ("completed", "cancelled")
NAMES = {"needs": "after", "declared": "leases"}
PLAIN = ("title", "kind", "priority", "parent", "found_in", "payload")
"""What is stored as it is given."""


class Puts:
    """Tasks that are put in one transaction, with everything needed from the store."""

    def __init__(self, tx: Write, scope: Scope, wanted: Sequence[Row]) -> None:
        """
        wanted: the arguments of `work.put` for each of the tasks
        """
        self._tx, self._scope = tx, scope
        self._plan = Adding(tx, scope, planned(wanted))
        self._rows: dict[str, Row] = {}
        for ids in slices(list(dict.fromkeys(one["id"] for one in wanted))):
            self._rows |= {row["id"]: row for row in tx.rows(WORK.several, ids=ids)}
        self._added: set[str] = set()
        self._completed: list[str] = []
        self._parents: dict[str, None] = {}

    def put(self, id: str, state: str | None, result: str | None, reopen: bool, fields: Row) -> Put:
        row, done = self._row_of(id), "kept"
        if row is not None and row["kind"] == LANDING:
            return Put(id=id, done=done, state=row["state"])  # no source has these
        refuse_kind(fields.get("kind"))
        if row is None:
            row, done = {"id": id, "parent": fields.get("parent"), "landing": None}, "added"
            row["state"] = self._plan.add(id, **fields).state
            self._added.add(id)
        elif changed := self._changes(row, fields):
            self._change(row, changed, fields.get("after", ()))
            done = "changed"
        if state is not None and self._end_or_reopen(row, state, result, reopen):
            done = "changed" if done == "kept" else done
        return Put(id=id, done=done, state=row["state"])

    def _row_of(self, id: str) -> Row | None:
        if id in self._added:  # the same id twice in one call
            self._rows[id] = row_of(self._tx, id)
            self._added.discard(id)
        return self._rows.get(id)

    def finish(self) -> None:
        """Unblock what waited for completed tasks, even if both came in one call."""
        for ids in parts(self._completed):
            open_waiting(self._tx, ids)
        for parent in self._parents:
            complete_group(self._tx, parent)

    def _changes(self, row: Row, fields: Row) -> Row:
        """What must be stored and is not stored yet."""
        stored: Row = {name: fields[name] for name in PLAIN if name in fields}
        if "after" in fields:
            stored["needs"] = to_text(list(fields["after"])) if fields["after"] else "[]"
        if "tags" in fields:
            stored["tags"] = names_text(fields["tags"])
        if "labels" in fields:
            stored["labels"] = names_text(fields["labels"]) if fields["labels"] else None
        if "leases" in fields:
            stored["declared"] = declared_text(self._scope, fields["leases"])
        if row["state"] == "claimed":
            stored.pop("declared", None)  # it is held
        return {name: value for name, value in stored.items() if not same(name, value, row)}

    def _change(self, row: Row, changed: Row, after: Sequence[str]) -> None:
        tx, scope, id = self._tx, self._scope, row["id"]
        if row["author"] != scope.caller.agent and scope.party not in OPERATIONS["work.put"].freely:
            author = called(row["author"])
            raise NotYoursError(
                f"{called(id)} was added by {author}; only its author or a person may change it",
                next=f"ask {author} in a message, or a person",
                task=task_record(row, tx.now),
            )
        if changed.get("parent") is not None:
            self._plan.refuse_own_part(id, changed["parent"])
        if "needs" in changed:
            changed |= needs(tx, self._plan, row, after)
            self._plan.know(id, {**row, **changed}["state"], after)
        said = sorted(NAMES.get(name, name) for name in changed if name not in ("state", "due"))
        number = tx.event("task.edited", id, {"fields": said}, grows=True)
        row |= changed
        if changed.keys() & {"kind", "tags"}:
            lane = tx.row(WORK.lane, kind=row["kind"], tags=row["tags"])
            row["lane"] = lane["id"] if lane else self._plan.lane(row["kind"], row["tags"], number)
        tx.run(WORK.edit, row | {"at": tx.wall})

    def _end_or_reopen(self, row: Row, state: str, result: str | None, reopen: bool) -> bool:
        """End or reopen the task as its source says, unless somebody works on it."""
        tx, id = self._tx, row["id"]
        if row["state"] == "claimed" and state in ENDED and revive(tx, self._scope, row):
            row |= row_of(tx, id)
        was = row["state"]
        worked_on = was == "claimed" or (was == "blocked" and row["landing"] is not None)
        if worked_on or was == state or (state in ENDED and was in ENDED and not reopen):
            return False
        if state not in ENDED:
            if was not in (*ENDED, "dead") or not reopen:
                return False
            waits = any(need["state"] != "completed" for need in tx.rows(WORK.needs_of, id=id))
            row["state"] = "blocked" if waits else "available"
            tx.run(WORK.reopen, id=id, state=row["state"], due=None, at=tx.wall)
            tx.event("task.reopened", id, {"was": was})
        else:
            row["state"] = state
            tx.run(WORK.end, id=id, state=state, result=result, at=tx.wall)
            tx.event(f"task.{state}", id, {"was": was, **came_of(result)})
            if state == "completed":
                self._completed.append(id)
            if row["parent"] is not None:
                self._parents[row["parent"]] = None
        self._plan.know(id, row["state"])
        return True


def same(name: str, value: Any, row: Row) -> bool:
    """Whether a field is stored already; the order of lists does not matter."""
    if name in ("needs", "labels"):
        return sorted(from_text(value) or ()) == sorted(from_text(row[name]) or ())
    return bool(value == row[name])


def given(call: Row) -> Row:
    """What a call says about the task itself."""
    left_out = ("id", "state", "result", "reopen", "idempotency_key")
    says = {name: one for name, one in call.items() if name not in left_out}
    return {name: one for name, one in says.items() if one is not None and one is not False}


def asked(wanted: Sequence[Row]) -> list[tuple[Query, Row]]:
    """The first queries."""
    return questions(planned(wanted))


def planned(wanted: Sequence[Row]) -> list[Row]:
    """The arguments of `work.add` for each of the tasks, as far as they are given."""
    return [{"id": one["id"], **given(one)} for one in wanted]
