"""Who gets a task, which is the best one, and why a claim is refused, inside a transaction.

A claim wins by one conditional statement. What is not simply available is looked at again: it
is new, the caller's already, past its time, or its claimer is dead; or else it is refused.
"""

from __future__ import annotations

from dibs.errors import EmptyError, HeldError, StateError
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import Want, take
from dibs.nouns.recovery import end_dead_sessions, lapse_task
from dibs.nouns.work.plan import insert
from dibs.nouns.work.tasks import WORK, open_up, record_of, row_of, task_record
from dibs.records import called, purpose
from dibs.storage.store import Read, Write, from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.records import Lease, Task
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row

SWEEP_MS = 1_000
"""How often `next` looks whether those who have claimed a task are still alive."""


def claim(tx: Write, scope: Scope, id: str, ttl_ms: int, wants: list[Want], note: str) -> Task:
    """Claim a task and the files wanted with it for the caller, or raise with the reason."""
    caller = scope.caller
    asked: Row = {
        "id": id,
        "agent": caller.agent,
        "session": caller.session,
        "epoch": tx.seq,
        "due": tx.now + ttl_ms,
    }
    asked |= {"signature": scope.keys.task(asked), "ttl_ms": ttl_ms, "at": tx.wall}
    row = tx.row(WORK.claim, **asked)
    if row is None:
        row = _claim_anyway(tx, scope, asked)
    again = row["epoch"] != tx.seq
    verb = "renewed" if again else "claimed"
    tx.event(f"task.{verb}", id, {"epoch": row["epoch"], "attempts": row["attempts"]})
    files = take(tx, scope, wants, ttl_ms, note or row["title"] or id, id) if wants else None
    if again:
        return record_of(tx, id)
    return task_record(row, tx.now, files.leases if files else ())


def _claim_anyway(tx: Write, scope: Scope, asked: Row) -> Row:
    """The task was not simply available: it is new, ours, lapsed, or the claim is refused."""
    id = asked["id"]
    row = tx.row(WORK.one, id=id)
    if row is None:
        insert(tx, scope, id)
    elif row["state"] == "claimed" and is_own(tx, scope, row):
        scope.keys.require("task", row, id)
        row |= {"due": asked["due"], "ttl_ms": asked["ttl_ms"]}
        prolong(tx, scope, row)
        return row
    elif not revive(tx, scope, row):
        raise _refusal(tx, row)
    claimed = tx.row(WORK.claim, **asked)
    if claimed is None:
        raise _refusal(tx, row_of(tx, id))
    return claimed


def is_own(tx: Read, scope: Scope, row: Row) -> bool:
    return bool(row["session"] == scope.caller.session and row["due"] > tx.now)


def prolong(tx: Write, scope: Scope, row: Row) -> list[Lease]:
    """Let the claim last until `due`, and with it the files claimed with it and still held."""
    row["signature"] = scope.keys.task(row)
    tx.run(WORK.renew, row)
    leases = []
    for lease in tx.rows(grants.LEASES.of_session, session=row["session"]):
        if lease["task"] == row["id"] and lease["deadline"] > tx.now:
            scope.keys.require("lease", lease, lease["resource"])
            leases.append(grants.prolong(tx, scope, lease, row["ttl_ms"], row["due"]))
    return leases


def revive(tx: Write, scope: Scope, row: Row) -> bool:
    """Let a task that is due, or whose claimer is dead, change its state; say if it did."""
    if row["due"] is not None and row["due"] <= tx.now:
        _fall_due(tx, scope, row)
        return True
    if row["state"] == "claimed":
        sessions = tx.rows(grants.SESSIONS.several, sessions=[row["session"]])
        return end_dead_sessions(tx, scope.keys, sessions)
    return False


def _fall_due(tx: Write, scope: Scope, row: Row) -> None:
    if row["state"] == "claimed":
        lapse_task(tx, scope.keys, row)
    else:
        open_up(tx, row["id"], None)


def _refusal(tx: Read, row: Row) -> HeldError | StateError:
    task, id = task_record(row, tx.now), called(row["id"])
    if task.state == "claimed":
        return HeldError(
            f"{id} is claimed by {called(task.agent or '')}, "
            f"{(task.due_in_ms or 0) // 1000} s left",
            next="take another task, or message its claimer",
            blockers=[],
            task=task,
        )
    if task.state == "blocked":
        needs = {need["needs"]: need["state"] for need in tx.rows(WORK.needs_of, id=task.id)}
        still = [need for need, state in needs.items() if state != "completed"]
        wait = ", ".join(map(called, still)) or f"its start in {(task.due_in_ms or 0) // 1000} s"
        ended = [need for need in still if needs[need] in ("cancelled", "dead")]
        return StateError(
            f"{id} is blocked: it waits for {wait}",
            next=f"reopen {called(ended[0])}, which is {needs[ended[0]]}, or cancel this one"
            if ended
            else "take another task; this one opens by itself",
            task=task,
            waits_for=needs,
        )
    if task.state == "failed":
        return StateError(
            f"{id} has failed and pauses for {(task.due_in_ms or 0) // 1000} s"
            f"{purpose(task.reason)}",
            next="take another task; this one opens by itself",
            task=task,
        )
    return StateError(
        f"{id} is {task.state}", next="reopen it if it has to be done again", task=task
    )


def claim_next(
    tx: Write, scope: Scope, kind: str | None, able: frozenset[str], ttl_ms: int
) -> Task:
    """Claim the best task that fits for the caller, or raise if there is none."""
    found = None
    while found is None and (due := tx.rows(WORK.due, now=tx.now)):
        for row in due:
            _fall_due(tx, scope, row)
        found = best(tx, kind, able)
    found = found or best(tx, kind, able)
    # Also when there is something to do: what a dead claimer had may be more urgent.
    store = scope.store
    if found is None or tx.now - store.swept_at >= SWEEP_MS:
        if end_dead_sessions(tx, scope.keys, tx.rows(WORK.claimers)):
            found = best(tx, kind, able)
        else:
            store.swept_at = tx.now  # a find is undone if the call ends in a refusal
    if found is None:
        counts = {row["state"]: row["number"] for row in tx.rows(WORK.counts)}
        raise EmptyError(
            "no task that fits is available",
            next="wait for one, add one, or say more of what you can do (tags)",
            counts=counts,
        )
    return claim(tx, scope, found, ttl_ms, [], "")


def best(tx: Read, kind: str | None, able: frozenset[str]) -> str | None:
    """The head of each lane that fits, and of these the best."""
    heads = []
    for lane in tx.rows(WORK.lanes):
        if kind in (None, lane["kind"]) and able.issuperset(from_text(lane["tags"])):
            head = tx.row(WORK.head, lane=lane["id"])
            if head is not None:
                heads.append((-head["priority"], head["number"], head["id"]))
    return min(heads)[2] if heads else None


def due_in_ms(tx: Read) -> int | None:
    row = tx.row(WORK.next_due)
    return None if row is None or row["due"] is None else row["due"] - tx.now


def dead_claimers(tx: Read) -> bool:
    return any(not tx.store.alive(row, tx.now) for row in tx.rows(WORK.claimers))
