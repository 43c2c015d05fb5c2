"""How a branch is queued to be landed, its task handed in, and how a task waits for a person."""

from __future__ import annotations

from dibs.arguments import NAME_LIMIT
from dibs.errors import ExistsError, InvalidError, StateError
from dibs.nouns.work import claims
from dibs.nouns.work.adding import Adding, names_text
from dibs.nouns.work.landings import LANDING, bring_back, is_parked, landed, said_by
from dibs.nouns.work.tasks import WORK, record_of, row_of, task_record
from dibs.operation import OPERATIONS
from dibs.records import called, to_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.records import Task
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Write

ATTEMPTS = 10
"""How many conductors may die on a landing; giving it back untried does not count."""
SHORT = 12
"""How many characters of a commit's id are in the id of its landing."""
QUEUED = ("available", "blocked", "failed")
"""A landing that nobody has claimed, and that has not ended."""
WAITS = "waits for its landing"
UNCLAIMED = ("available", "failed", "dead")


def beginning(onto: str, branch: str) -> str:
    """How the ids of all landings of a branch begin; names in git have no colon."""
    return f"land:{onto}:{branch}@"


def landing_id(onto: str, branch: str, commit: str) -> str:
    """The id of the landing of a commit."""
    return beginning(onto, branch) + commit[:SHORT]


def land(
    tx: Write,
    scope: Scope,
    branch: str,
    commit: str,
    onto: str,
    task: str | None,
    check: str,
    priority: int,
    epoch: int | None,
) -> Task:
    begins = beginning(onto, branch)
    id = landing_id(onto, branch, commit)
    if len(id) > NAME_LIMIT:
        raise InvalidError(
            f"the names {called(branch)} and {called(onto)} together are too long",
            next="rename the branch",
            limit=NAME_LIMIT,
        )
    tags = [f"land:{onto}", *([f"check:{check}"] if check else [])]
    older = waiting(tx, scope, begins, id)
    row = landing_of(tx, id, commit)
    fresh = row is None or row["state"] in ("dead", "cancelled")
    if row is None:
        said = {"branch": branch, "commit": commit, "onto": onto, "task": task}
        Adding(tx, scope, [{"id": id, "kind": LANDING, "tags": tags}]).add(
            id,
            title=f"land {branch} onto {onto}",
            kind=LANDING,
            priority=priority,
            tags=tags,
            payload=to_text({**said, "agent": scope.caller.agent}),
            max_attempts=ATTEMPTS,
            parent=task,
        )
    elif row["state"] != "completed":
        ask_again(tx, scope, row, tags, priority)
    for one in older if fresh else ():
        supersede(tx, id, one)
    if task is not None:
        hand_in(tx, scope, task, id, epoch)
        if row is not None and row["state"] == "completed":
            landed(tx, {id: row["result"]})
    return record_of(tx, id)


def waiting(tx: Write, scope: Scope, begins: str, id: str) -> list[Row]:
    """The other landings of a branch that have not ended, or are dead, as they are now."""
    found = []
    # From 'feature@' up to 'featureA', the next character: all ids with that prefix, including
    # those of a branch 'feature@x'.
    for row in tx.rows(WORK.landings_of, low=begins, high=f"{begins[:-1]}A"):
        if "@" not in row["id"][len(begins) :]:
            claims.revive(tx, scope, row_of(tx, row["id"]))
            found += [row_of(tx, row["id"])] if row["id"] != id else []
    return found


def supersede(tx: Write, id: str, earlier: Row) -> None:
    """A newer commit of a branch is queued: what waits for the earlier one now waits for it.

    If a conductor has claimed the earlier landing, that one lands or fails on its own.
    """
    tx.run(WORK.follow, landing=id, earlier=earlier["id"], at=tx.wall)
    if earlier["state"] != "claimed":
        cancel_queued(tx, earlier, f"superseded by {called(id)}")


def leave_landing(tx: Write, scope: Scope, row: Row, how: str) -> None:
    """A handed-in task ended without its landing: cancel the landing if it still waits."""
    id = row["landing"]
    if row["state"] != "blocked" or id is None or tx.rows(WORK.handed_in, landings=[id]):
        return
    claims.revive(tx, scope, row_of(tx, id))
    landing = row_of(tx, id)
    if landing["state"] in QUEUED:
        cancel_queued(tx, landing, f"its task {called(row['id'])} was {how}")


def cancel_queued(tx: Write, row: Row, reason: str) -> None:
    """Cancel a landing that nobody has claimed and no task waits for."""
    tx.run(WORK.move, id=row["id"], state="cancelled", reason=reason, due=None, at=tx.wall)
    tx.event("task.cancelled", row["id"], {"reason": reason, "was": row["state"]})


def landing_of(tx: Write, id: str, commit: str) -> Row | None:
    """The landing with this id, if this commit was queued before."""
    row = tx.row(WORK.one, id=id)
    if row is not None and (row["kind"] != LANDING or said_by(row).get("commit") != commit):
        raise ExistsError(
            f"the task {called(id)} already exists, and is not the landing of this commit",
            next="remove it, or rename the branch",
            task=task_record(row, tx.now),
        )
    return row


def ask_again(tx: Write, scope: Scope, row: Row, tags: list[str], priority: int) -> None:
    """Queue a dead or cancelled landing again; update one that waits to the latest request.

    Only the agent that asked for its check, or a person, may ask for another check.
    """
    id, was = row["id"], row["state"]
    if was in ("dead", "cancelled"):
        tx.run(WORK.reopen, id=id, state="available", due=None, at=tx.wall)
        tx.event("task.reopened", id, {"was": was})
        row |= row_of(tx, id)
    elif was == "claimed" or (row["author"] != scope.caller.agent and not is_free(scope)):
        return
    stored = names_text(tags)
    if (stored, priority) != (row["tags"], row["priority"]):
        plan = Adding(tx, scope, [{"id": id, "kind": LANDING, "tags": tags}])
        number = tx.event("task.edited", id, {"fields": ["priority", "tags"]})
        row |= {"tags": stored, "priority": priority, "lane": plan.lane(LANDING, stored, number)}
        tx.run(WORK.edit, row | {"at": tx.wall})


def is_free(scope: Scope) -> bool:
    return scope.party in OPERATIONS["work.land"].freely


def hand_in(tx: Write, scope: Scope, id: str, landing: str, epoch: int | None) -> None:
    """End the claim on a task: from now on it waits for its landing."""
    row = row_of(tx, id)
    if row["landing"] == landing and row["state"] in ("blocked", "completed"):
        return  # it was handed in before
    if row["state"] in UNCLAIMED and is_free(scope):
        agent = scope.caller.agent
        tx.run(WORK.hand_in, id=id, landing=landing, agent=agent, reason=WAITS, at=tx.wall)
        tx.event("task.handed_in", id, {"landing": landing})
        return
    row = claims.own(tx, scope, id, epoch)
    claims.settle(
        tx, scope, row, "blocked", reason=WAITS, event="handed_in", said={"landing": landing},
        landing=landing, asked=None, acked=None,
    )  # fmt: skip


def ask(tx: Write, scope: Scope, id: str, question: str, epoch: int | None) -> Task:
    row = claims.own(tx, scope, id, epoch)
    return claims.settle(
        tx, scope, row, "blocked", reason="waits for a person", event="asked",
        said={"question": question}, asked=question, acked=None, attempts=row["attempts"] - 1,
    )  # fmt: skip


def ack(tx: Write, scope: Scope, id: str, refuse: bool, note: str) -> Task:
    row, caller = row_of(tx, id), scope.caller
    if not is_parked(row) or row["landing"] is not None:
        raise StateError(
            f"{called(id)} does not wait for a person's answer; it is {row['state']}",
            next="see what waits for a person with dibs status",
            task=task_record(row, tx.now),
        )
    reason = note or (f"{caller.agent} refused it" if refuse else "")
    acked, state = (None, "dead") if refuse else (caller.agent, "available")
    tx.run(WORK.ack, id=id, state=state, reason=reason, acked=acked, at=tx.wall)
    tx.event(f"task.{'refused' if refuse else 'acked'}", id, {"note": note})
    if refuse:
        by = caller.agent, caller.session
        bring_back(tx, scope.keys, id, "dead", reason, by)
    return record_of(tx, id)
