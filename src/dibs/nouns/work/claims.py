"""Who gets a task, which one is best, how a claim ends, and why one is refused.

A claim wins by one conditional statement. A task that is not simply available is looked at
again: it is new, already the caller's, or expired, or its claimer is dead; otherwise the claim
is refused.
"""

from __future__ import annotations

from dibs.arguments import milliseconds
from dibs.errors import EmptyError, HeldError, StaleError, StateError
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import Want, take
from dibs.nouns.leases.own import elsewhere, learn
from dibs.nouns.recovery import end_dead_sessions, lapse_task, leave_to_others, taken_with
from dibs.nouns.work.adding import Adding, names_text
from dibs.nouns.work.fitting import Finding, Search, ahead, declared
from dibs.nouns.work.landings import is_parked
from dibs.nouns.work.refusals import ENDED, LISTED, nothing
from dibs.nouns.work.tasks import (
    WORK,
    Claimed,
    came_of,
    open_up,
    record_of,
    row_of,
    run_rows,
    task_record,
)
from dibs.records import Task, called, purpose
from dibs.storage.store import Read, Write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.records import Lease
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query

SWEEP_MS = 1_000
"""How often `next` checks whether the claimers of tasks are still alive."""


class UnfinishedError(EmptyError):
    """Nothing was found among the tasks that one transaction looks at; never leaves dibs."""


def claim(tx: Write, scope: Scope, id: str, ttl_ms: int, wants: list[Want], note: str) -> Task:
    """Claim a task and the files wanted with it for the caller, or raise the reason."""
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
    said = {"epoch": row["epoch"], "attempts": row["attempts"], "left_ms": ttl_ms}
    tx.event(f"task.{verb}", id, said)
    if row["declared"]:
        named = {want.resource.text for want in wants}
        more = declared(row, scope.place)
        wants = [*wants, *(want for want in more if want.resource.text not in named)]
    files = take(tx, scope, wants, ttl_ms, note or row["title"] or id, id) if wants else None
    if again:
        return record_of(tx, id)
    return task_record(row, tx.now, files.leases if files else ())


def _claim_anyway(tx: Write, scope: Scope, asked: Row) -> Row:
    """Claim a task that is not simply available: it is new, the caller's, expired, or refused."""
    id = asked["id"]
    row = tx.row(WORK.one, id=id)
    if row is None:
        Adding(tx, scope, [{"id": id}]).add(id)
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
    """Extend the claim to `due`, and the leases claimed with it that are still held."""
    row["signature"] = scope.keys.task(row)
    tx.run(WORK.renew, row)
    leases = []
    for lease in tx.rows(grants.LEASES.of_session, session=row["session"]):
        if lease["task"] == row["id"] and lease["deadline"] > tx.now:
            scope.keys.require("lease", lease, lease["resource"])
            leases.append(grants.prolong(tx, scope, lease, row["ttl_ms"], row["due"]))
    return leases


def revive(tx: Write, scope: Scope, row: Row) -> bool:
    """Let a task that is due, or whose claimer is dead, change its state; return if it did.

    A task that is handed in comes back if the same is true of its landing.
    """
    if row["due"] is not None and row["due"] <= tx.now:
        _fall_due(tx, scope, row)
        return True
    if row["state"] == "claimed":
        sessions = tx.rows(grants.SESSIONS.several, sessions=[row["session"]])
        return end_dead_sessions(tx, scope.keys, sessions)
    if row["state"] == "blocked" and row["landing"] is not None:
        return revive(tx, scope, row_of(tx, row["landing"]))
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
    if task.with_children and task.state == "blocked":
        return StateError(
            f"{id} is a group: it completes when the last of its parts does",
            next="claim one of its parts (list the tasks by parent)",
            task=task,
        )
    if is_parked(row):
        waits = f"its landing {called(task.landing)}" if task.landing else "a person's answer"
        return StateError(
            f"{id} is blocked: it waits for {waits}",
            next="take another task; cancel its landing if the work must be done again"
            if task.landing
            else "take another task, or have a person answer with work ack",
            task=task,
        )
    if task.state == "blocked":
        return _blocked(tx, task)
    if task.state == "failed":
        return StateError(
            f"{id} has failed and pauses for {(task.due_in_ms or 0) // 1000} s"
            f"{purpose(task.reason)}",
            next="take another task; this one becomes available by itself",
            task=task,
        )
    return StateError(f"{id} is {task.state}", next="reopen it if it must be done again", task=task)


def _blocked(tx: Read, task: Task) -> StateError:
    """The refusal of a task that waits for others, each named with its state, or for its start."""
    id = called(task.id)
    needs = {need["needs"]: need["state"] for need in tx.rows(WORK.needs_of, id=task.id)}
    still = [need for need, state in needs.items() if state != "completed"]
    said = [f"{called(need)} ({needs[need] or 'not added'})" for need in still[:LISTED]]
    more = f", and {len(still) - LISTED} more" if len(still) > LISTED else ""
    wait = ", ".join(said) + more or f"its start in {(task.due_in_ms or 0) // 1000} s"
    next = "take another task; this one becomes available by itself"
    if ended := [need for need in still if needs[need] in ("cancelled", "dead")]:
        next = f"reopen {called(ended[0])}, which is {needs[ended[0]]}, or cancel this one"
    elif missing := [need for need in still if needs[need] is None]:
        next = f"add {called(missing[0])}, or edit what {id} comes after"
    return StateError(
        f"{id} is blocked: it waits for {wait}", next=next, task=task, waits_for=needs
    )


def claim_next(
    tx: Write, scope: Scope, kind: str | None, able: frozenset[str], ttl_ms: int, limit: int
) -> tuple[Task, ...]:
    """Claim the best tasks that fit for the caller, or raise if there is none.

    limit: the maximum number; the result is what that many single calls would find
    """
    # Even if there is something to do: what a dead claimer had may be more urgent.
    swept = tx.now - scope.store.swept_at >= SWEEP_MS
    if swept:
        sweep(tx, scope)
    taken: list[Task] = []
    more = fall_due(tx, scope)
    while True:
        finding = Finding(tx, scope, kind, able)
        taken += _give(tx, scope, finding, ttl_ms, limit - len(taken))
        if len(taken) == limit or finding.unfinished:
            break
        if more:
            more = fall_due(tx, scope)
        elif not swept and sweep(tx, scope):
            swept = True
        else:
            break
    if able:
        tx.run(WORK.able, tags=names_text(list(able)), session=scope.session)
    if not taken and finding.unfinished:
        raise UnfinishedError("there are more tasks to look at")
    if not taken:
        refusal = nothing(tx, finding, kind, able)
        refusal.details["seq"] = tx.next_seq - 1
        raise refusal
    return tuple(taken)


def sweep(tx: Write, scope: Scope) -> bool:
    """End dead sessions that have claimed something; return whether there were any."""
    if end_dead_sessions(tx, scope.keys, tx.rows(WORK.claimers)):
        return True
    scope.store.swept_at = tx.now  # what it finds is undone if the call is refused
    return False


def fall_due(tx: Write, scope: Scope) -> bool:
    """Let the first tasks that are due change their state; return whether there were any."""
    first_in_ms = due_in_ms(tx)
    if first_in_ms is None or first_in_ms > 0:
        return False
    for row in tx.rows(WORK.due, now=tx.now):
        _fall_due(tx, scope, row)
    return True


def _give(tx: Write, scope: Scope, finding: Finding, ttl_ms: int, limit: int) -> list[Task]:
    """Claim the best tasks that were found."""
    found = finding.plain(limit)
    if found is not None:
        for row in found:
            _take(tx, scope, row, ttl_ms, None, alone=len(found) == 1)
        if len(found) > 1:
            same = {name: found[0][name] for name in ("agent", "session", "ttl_ms", "due")}
            values = [(row["id"], row["epoch"], row["signature"], row["attempts"]) for row in found]
            run_rows(tx, WORK.take_many, values, at=tx.wall, **same)
        return [task_record(row, tx.now) for row in found]
    taken: list[Task] = []
    rows: list[Row] = []
    while len(taken) < limit and (best := finding.next()) is not None:
        row, wants, owned = best
        rows.append(row)
        if len(tx.fitting(rows)) < len(rows):
            break  # the answer is full
        _take(tx, scope, row, ttl_ms, finding.instead_of, alone=True)
        note = row["title"] or row["id"]
        leases = grants.grant_all(tx, scope, wants, ttl_ms, note, row["id"], owned)
        taken.append(task_record(row, tx.now, tuple(leases)))
        if len(taken) < limit:
            finding.look_again()
    return taken


def _take(
    tx: Write, scope: Scope, row: Row, ttl_ms: int, instead_of: str | None, alone: bool
) -> None:
    """Claim a task that is available; if there are many, they are stored together.

    instead_of: the better task that did not fit
    """
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
    said = {"epoch": row["epoch"], "attempts": row["attempts"], "left_ms": ttl_ms}
    if instead_of is not None:
        said["instead_of"] = instead_of
    tx.event("task.claimed", row["id"], said)


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

    def claim(crowd_s: float) -> tuple[Task, ...]:
        with scope.write(asked, crowd_s) as tx:

            def find() -> tuple[Task, ...]:
                return claim_next(tx, scope, kind, able, ttl_ms, limit)

            try:
                if one:
                    return (scope.once(tx, name, key, request, lambda: find()[0]),)
                return scope.once(tx, name, key, request, find)
            except EmptyError as error:
                # What was learned about the tasks is kept, so that the next call need not redo it.
                empty = error
        raise empty

    def try_all(crowd_s: float = 0) -> tuple[Task, ...]:
        while True:
            try:
                return claim(crowd_s)
            except UnfinishedError:
                pass  # others had the turn meanwhile

    def looked() -> list[tuple[Query, Row]]:
        waited = (WORK.asides_waited, {"session": scope.session})
        return [*ahead(scope, 1), waited, (WORK.claimers, {})]

    def look() -> tuple[tuple[Task, ...] | None, int | None]:
        # Only a look that finds something takes the turn from writers. All waiters look whenever
        # a task ends, so the queries of a look are sent together.
        with scope.read(looked) as tx:
            search = Search(tx, scope, kind, able)
            ends = [in_ms for in_ms in (due_in_ms(tx), search.due_in_ms()) if in_ms is not None]
            in_ms = min(ends, default=None)
            promising = (
                (in_ms is not None and in_ms <= 0) or search.is_promising() or dead_claimers(tx)
            )
        if promising:
            try:
                # Whatever woke this waiter has woken all of them.
                return try_all(wait_s), None
            except EmptyError:
                return None, in_ms
        return None, in_ms

    try:
        found: tuple[Task, ...] | None = try_all()
    except EmptyError:
        if not wait_s:
            raise
        found = scope.store.wait(look, ("task", "session", "lease"), wait_s)
        if found is None:
            raise
    assert found is not None
    return tuple([seen(scope, task) for task in found])


def seen(scope: Scope, task: Task) -> Task:
    """Record the content of the files that were claimed with a task, if not known yet.

    Which files these are is known only after the claim, and nobody waits for this disk.
    """
    files = {}
    for lease in task.leases:
        if lease.kind == "file" and lease.content_hash is None:
            content = scope.place.content_of(lease.resource)
            if content is not None:
                files[lease.resource] = content
    if not files:
        return task
    with scope.write() as tx:
        held = tx.rows(grants.LEASES.of_session, session=scope.session)
        for row in held:
            if row["task"] == task.id and row["content_hash"] is None and row["resource"] in files:
                learn(tx, row, files[row["resource"]])
        leases = tuple(grants.lease_record(row, tx.now) for row in held if row["task"] == task.id)
    return Task.of(task.__dict__, leases=leases)


def settle(
    tx: Write,
    scope: Scope,
    row: Row,
    state: str,
    known: Claimed | None = None,
    reason: str = "",
    event: str = "",
    said: dict[str, Any] | None = None,
    **changed: Any,
) -> Task:
    """End the caller's claim, and free the files that were claimed with it.

    known: what was read from the store, if the task is being completed
    event: its name in the journal, if not that of the state; said: what the event says
    """
    held, completed = (known.held, known.completed) if known is not None else (None, None)
    leases = leave_to_others(tx, scope.keys, row, taken_with(tx, row, held))
    epoch = row["epoch"]
    settled = unclaim(tx, row, state, reason, completed, **changed)
    verb = event or ("abandoned" if state == "available" else state)
    said = said or {"reason": reason}
    if state == "completed":
        said |= came_of(row["result"])
    tx.event(f"task.{verb}", row["id"], {"epoch": epoch, **said})
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
    """The task, if the caller's claim is in force and has that epoch, or a refusal.

    known: the rows of tasks that were read already, by id
    """
    row = row_of(tx, id, known)
    mine = row["state"] == "claimed" and is_own(tx, scope, row)
    if not mine or epoch not in (None, row["epoch"]):
        raise _stale(tx, scope, row)
    scope.keys.require("task", row, id)
    return row


def _stale(tx: Read, scope: Scope, row: Row) -> StaleError:
    task = task_record(row, tx.now)
    id, next = called(task.id), "do not work on it; take another task, or message its claimer"
    if row["session"] == scope.caller.session and row["due"] <= tx.now:
        said = f"your claim on {id} has expired"
        next = "claim it again if it is free, and check what has changed meanwhile"
    elif row["session"] == scope.caller.session:
        said = f"your claim on {id} has epoch {task.epoch}"
        next = "stop working on it, unless the newer claim is yours to use"
    elif task.state == "claimed":
        agent = task.agent or ""
        said = f"{id} is claimed by {called(agent)}, {elsewhere(scope, agent)}"
    else:
        now = "has failed" if task.state == "failed" else f"is {task.state}"
        said = f"you do not hold {id}, which {now}"
        next = "claim it when it is available; if you had claimed it, that claim has ended"
        if task.state in ENDED:
            next = "stop working on it; reopen it if it must be done again"
    return StaleError(said, next=next, task=task)
