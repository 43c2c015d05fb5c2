"""Who gets a task, which is the best one, how a claim ends, and why one is refused.

A claim wins by one conditional statement. What is not simply available is looked at again: it
is new, the caller's already, past its time, or its claimer is dead; or else it is refused.
"""

from __future__ import annotations

from dibs.arguments import milliseconds
from dibs.errors import EmptyError, HeldError, StaleError, StateError
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import Want, take
from dibs.nouns.recovery import end_dead_sessions, lapse_task, taken_with
from dibs.nouns.work.plan import Plan
from dibs.nouns.work.tasks import (
    WORK,
    Claimed,
    open_up,
    record_of,
    row_of,
    run_rows,
    slices,
    task_record,
)
from dibs.records import called, purpose
from dibs.storage.store import Read, Write, from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.records import Lease, Task
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query

SWEEP_MS = 1_000
"""How often `next` looks whether those who have claimed a task are still alive."""
LANES_AHEAD = 16


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
        Plan(tx, scope, [{"id": id}]).add(id)
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
    tx: Write, scope: Scope, kind: str | None, able: frozenset[str], ttl_ms: int, limit: int
) -> tuple[Task, ...]:
    """Claim the best tasks that fit for the caller, or raise if there is none.

    limit: how many at most; what is found is what so many single calls would find
    """
    found: list[Row] = []
    first_in_ms = due_in_ms(tx)
    if first_in_ms is not None and first_in_ms <= 0:
        while len(found) < limit and (due := tx.rows(WORK.due, now=tx.now)):
            for row in due:
                _fall_due(tx, scope, row)
            found = best(tx, kind, able, limit)
    found = found or best(tx, kind, able, limit)
    # Also when there is something to do: what a dead claimer had may be more urgent.
    store = scope.store
    if len(found) < limit or tx.now - store.swept_at >= SWEEP_MS:
        if end_dead_sessions(tx, scope.keys, tx.rows(WORK.claimers)):
            found = best(tx, kind, able, limit)
        else:
            store.swept_at = tx.now  # a find is undone if the call ends in a refusal
    if not found:
        counts = {row["state"]: row["number"] for row in tx.rows(WORK.counts)}
        raise EmptyError(
            "no task that fits is available",
            next="wait for one, add one, or say more of what you can do (tags)",
            counts=counts,
        )
    taken = tuple(_take(tx, scope, row, ttl_ms, alone=len(found) == 1) for row in found)
    if len(found) > 1:
        same = {name: found[0][name] for name in ("agent", "session", "ttl_ms", "due")}
        rows = [(row["id"], row["epoch"], row["signature"]) for row in found]
        run_rows(tx, WORK.take_many, rows, at=tx.wall, **same)
    return taken


def _take(tx: Write, scope: Scope, row: Row, ttl_ms: int, alone: bool) -> Task:
    """Claim a task that is available; one of many is stored with the others."""
    caller = scope.caller
    row |= {
        "state": "claimed",
        "agent": caller.agent,
        "session": caller.session,
        "epoch": tx.next_seq,
        "due": tx.now + ttl_ms,
        "ttl_ms": ttl_ms,
        "attempts": row["attempts"] + 1,
        "changed_at": tx.wall,
    }
    row["signature"] = scope.keys.task(row)
    if alone:
        tx.run(WORK.take, row)
    tx.event("task.claimed", row["id"], {"epoch": row["epoch"], "attempts": row["attempts"]})
    return task_record(row, tx.now)


def best(tx: Read, kind: str | None, able: frozenset[str], limit: int = 1) -> list[Row]:
    """The heads of each lane that fits, and of these the best."""
    lanes = [
        lane["id"]
        for lane in tx.rows(WORK.lanes)
        if kind in (None, lane["kind"]) and able.issuperset(from_text(lane["tags"]))
    ]
    tx.store.hints = tuple(lanes[:LANES_AHEAD])
    heads = [row for rows in tx.ask(heads_of(lanes, limit)) for row in rows]
    heads = sorted(heads, key=lambda row: (-row["priority"], row["number"]))[:limit]
    if limit == 1:
        return heads
    found: dict[str, Row] = {}
    for ids in slices([row["id"] for row in heads]):
        found |= {row["id"]: row for row in tx.rows(WORK.several, ids=ids)}
        if len(tx.fitting(list(found.values()))) < len(found):
            break  # an answer holds no more
    return tx.fitting([found[row["id"]] for row in heads if row["id"] in found])


def heads_of(lanes: Sequence[int], limit: int) -> list[tuple[Query, Row]]:
    if limit == 1:
        return [(WORK.head, {"lane": lane}) for lane in lanes]
    return [(WORK.heads, {"lane": lane, "limit": limit}) for lane in lanes]


def ahead(scope: Scope, limit: int) -> list[tuple[Query, Row]]:
    """What `claim_next` asks first, if the lanes that fit are those that fitted the last time."""
    return [(WORK.next_due, {}), (WORK.lanes, {}), *heads_of(scope.store.hints, limit)]


def due_in_ms(tx: Read) -> int | None:
    row = tx.row(WORK.next_due)
    return None if row is None or row["due"] is None else row["due"] - tx.now


def dead_claimers(tx: Read) -> bool:
    return any(not tx.store.alive(row, tx.now) for row in tx.rows(WORK.claimers))


def next_tasks(
    scope: Scope,
    name: str,
    limit: int,
    kind: str | None,
    tags: Sequence[str],
    ttl_s: float,
    wait_s: float,
    key: str | None,
) -> tuple[Task, ...]:
    """Claim the best tasks that fit, as soon as there is one."""
    ttl_ms, able = milliseconds(ttl_s), frozenset(tags)
    one = name == "work.next"
    request = [kind, sorted(able), ttl_ms, *([] if one else [limit])]

    def asked() -> list[tuple[Query, Row]]:
        first = [scope.asked_before(key)] if key is not None else []
        return [*first, *ahead(scope, limit)]

    def claim() -> tuple[Task, ...]:
        with scope.write(asked) as tx:

            def find() -> tuple[Task, ...]:
                return claim_next(tx, scope, kind, able, ttl_ms, limit)

            if one:
                return (scope.once(tx, name, key, request, lambda: find()[0]),)
            return scope.once(tx, name, key, request, find)

    def look() -> tuple[tuple[Task, ...] | None, int | None]:
        # Only a look that finds something takes a turn from those who write.
        with scope.read() as tx:
            in_ms = due_in_ms(tx)
            promising = (in_ms is not None and in_ms <= 0) or bool(
                best(tx, kind, able) or dead_claimers(tx)
            )
        if promising:
            try:
                return claim(), None
            except EmptyError:
                return None, in_ms
        return None, in_ms

    try:
        return claim()
    except EmptyError:
        if not wait_s:
            raise
        found = scope.store.wait(look, ("task", "session"), wait_s)
        if found is None:
            raise
        return found


def settle(
    tx: Write,
    scope: Scope,
    row: Row,
    state: str,
    known: Claimed | None = None,
    reason: str = "",
    **changed: Any,
) -> Task:
    """End the caller's claim, and free the files that were claimed with it.

    known: what is known of the store, where the task is completed
    """
    held, completed = (known.held, known.completed) if known is not None else (None, None)
    leases = taken_with(tx, row, held)
    epoch = row["epoch"]
    settled = unclaim(tx, row, state, reason, completed, **changed)
    verb = "abandoned" if state == "available" else state
    tx.event(f"task.{verb}", row["id"], {"epoch": epoch, "reason": reason})
    grants.free(tx, leases, "released")
    grants.hand_over(tx, scope.keys, leases)
    return settled


def unclaim(
    tx: Write,
    row: Row,
    state: str,
    reason: str,
    completed: list[tuple[Any, ...]] | None = None,
    **changed: Any,
) -> Task:
    """End a claim; the row is that of the task from then on.

    completed: where to put it, if it is stored with others
    """
    row |= {"state": state, "reason": reason, "due": None, "changed_at": tx.wall, **changed}
    if completed is None:
        tx.run(WORK.settle, dict(row))
    else:
        completed.append((row["id"], row["epoch"], row["result"]))
    row |= {"session": None, "ttl_ms": None, "signature": None}
    return task_record(row, tx.now)


def own(
    tx: Write, scope: Scope, id: str, epoch: int | None, known: dict[str, Row] | None = None
) -> Row:
    """The task, if the caller's claim on it is in force and of that epoch, or a refusal.

    known: the rows of the tasks that are known, by their ids
    """
    row = row_of(tx, id, known)
    mine = row["state"] == "claimed" and is_own(tx, scope, row)
    if not mine or epoch not in (None, row["epoch"]):
        raise _stale(tx, scope, row)
    scope.keys.require("task", row, id)
    return row


def _stale(tx: Read, scope: Scope, row: Row) -> StaleError:
    task = task_record(row, tx.now)
    now = f"claimed by {called(task.agent or '')}" if task.state == "claimed" else task.state
    if row["session"] == scope.caller.session:
        now = "past its time" if row["due"] <= tx.now else f"yours at epoch {task.epoch}"
    return StaleError(
        f"you do not hold {called(task.id)} any more; it is {now}",
        next="stop working on it; claim it again if it is free",
        task=task,
    )
