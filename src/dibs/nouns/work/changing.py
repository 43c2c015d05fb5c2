"""Changes to tasks by their author or a person, and groups that end with their parts."""

from __future__ import annotations

from dibs.errors import HeldError, NotYoursError, StateError
from dibs.nouns.work.adding import Adding, declared_text, names_text
from dibs.nouns.work.claims import revive
from dibs.nouns.work.handing import leave_landing
from dibs.nouns.work.landings import LANDING, bring_back, is_parked, refuse_kind
from dibs.nouns.work.tasks import WORK, complete_group, record_of, row_of, task_record
from dibs.operation import OPERATIONS
from dibs.records import called, to_text
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.records import Task
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Write

NAMED = 3


def changeable(tx: Write, scope: Scope, id: str, operation: str) -> Row:
    """The task, if the caller may change it: its author or a person, while nobody else has it."""
    row = row_of(tx, id)
    if revive(tx, scope, row):
        row = row_of(tx, id)
    author = called(row["author"])
    if row["author"] != scope.caller.agent and scope.party not in OPERATIONS[operation].freely:
        raise NotYoursError(
            f"{called(id)} was added by {author}; only its author or a person may change it",
            next=f"ask {author} in a message, or a person",
            task=task_record(row, tx.now),
        )
    if row["state"] == "claimed" and row["session"] != scope.session:
        raise HeldError(
            f"{called(id)} is claimed by {called(row['agent'])}, who is working on it",
            next="message its claimer, or have a person revoke it",
            blockers=[],
            task=task_record(row, tx.now),
        )
    return row


def edit(tx: Write, scope: Scope, id: str, given: dict[str, Any]) -> Task:
    """Change the given fields of a task; a task that was set aside is looked at again."""
    row = changeable(tx, scope, id, "work.edit")
    refuse_kind(given["kind"])
    if row["kind"] == LANDING and any(
        value is not None for name, value in given.items() if name != "priority"
    ):
        raise StateError(
            f"{called(id)} is a landing: only its priority can be changed",
            next="cancel it and land the branch again",
            task=task_record(row, tx.now),
        )
    changed = {name: value for name, value in given.items() if value is not None}
    for name in ("tags", "labels"):
        if name in changed:
            changed[name] = names_text(changed[name])
    if "leases" in changed:
        leases = changed.pop("leases")
        if row["state"] == "claimed":
            raise StateError(
                f"{called(id)} is claimed, so the leases it declares are held",
                next="complete or abandon it first",
                task=task_record(row, tx.now),
            )
        changed["declared"] = declared_text(scope, leases)
    kind, tags = changed.get("kind", row["kind"]), given["tags"]
    if tags is None:
        tags = from_text(row["tags"])
    plan = Adding(tx, scope, [{"id": id, "kind": kind, "tags": tags}])
    if "parent" in changed:
        plan.refuse_own_part(id, changed["parent"])
    if "after" in changed:
        changed |= needs(tx, plan, row, changed.pop("after"))
    row |= changed
    number = tx.event("task.edited", id, {"fields": sorted(name for name, value in given.items()
                                                           if value is not None)})  # fmt: skip
    row["lane"] = plan.lane(row["kind"], row["tags"], number)
    tx.run(WORK.edit, row | {"at": tx.wall})
    return record_of(tx, id)


def needs(tx: Write, plan: Adding, row: Row, after: Sequence[str]) -> Row:
    """Replace what a task waits for, and return its resulting state."""
    id = row["id"]
    for need in after:
        plan.refuse_cycle(id, need)
    tx.run(WORK.forget_needs, id=id)
    for need in after:
        tx.run(WORK.need, id=id, needs=need)
    changed: Row = {"needs": to_text(list(after)) if after else "[]"}
    waits = row["with_children"] or is_parked(row)
    if row["state"] in ("available", "blocked") and not waits:
        states = {one["id"]: one["state"] for one in tx.rows(WORK.states, ids=list(after))}
        opened = all(states.get(need) == "completed" for need in after)
        later = row["not_before"] is not None and row["not_before"] > tx.now
        changed["state"] = "available" if opened and not later else "blocked"
        changed["due"] = row["not_before"] if opened and later else None
    return changed


def remove(tx: Write, scope: Scope, id: str) -> Task:
    row = changeable(tx, scope, id, "work.remove")
    if row["state"] == "claimed":
        raise StateError(
            f"you have claimed {called(id)}", next="abandon it first", task=task_record(row, tx.now)
        )
    waiting = [one["id"] for one in tx.rows(WORK.opened_by, ids=[id])]
    waiting = list(dict.fromkeys(waiting))
    if waiting and row["state"] != "completed":
        more = f" and {len(waiting) - NAMED} more" if len(waiting) > NAMED else ""
        raise StateError(
            f"{', '.join(map(called, waiting[:NAMED]))}{more} would wait for {called(id)} forever",
            next="remove these tasks first, or change what they wait for",
            task=task_record(row, tx.now),
        )
    removed = record_of(tx, id)
    tx.run(WORK.forget_needs, id=id)
    tx.run(WORK.remove, id=id)
    tx.event("task.removed", id, {"was": row["state"]})
    caller = scope.caller
    bring_back(tx, scope.keys, id, "removed", "", (caller.agent, caller.session))
    leave_landing(tx, scope, row, "removed")
    complete_group(tx, row["parent"])
    return removed
