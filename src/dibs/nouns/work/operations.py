"""Work: tasks that are claimed by one session at a time.

    blocked ──> available ──> claimed ──> completed
                  ^  ^          │ │
                  │  └─ abandon ┘ ├─ fail ──> failed ──(pause)──> available
                  └── reopen ─────┴─ fail, attempts used up ──> dead

A person may take a claimed task away (`revoke`): then it is available, as if it were abandoned.
A claimed task also becomes blocked again when it is handed in with a branch to be landed (`land`,
see `landings`), or when it asks a person (`ask`), until one has answered (`ack`).

Promised: when many sessions claim one task, exactly one wins. `next` gives each task to one
worker: the highest priority first, the oldest first among equals, of those whose declared leases
are free for that worker. Tasks that declare what they change never run at the same time as a task
that overlaps. A task that does not fit is passed over at most 16 times for a later one that
overlaps with it; then it has its turn (see `fitting`). If there is no task, the refusal says why
(see `refusals`). Each claim carries an epoch, and renewing, completing, failing and abandoning
name the session and the epoch: a claimer that was too slow is refused and changes nothing.
`claim` and `next` take the task and its files, or nothing. `complete` stores the result, releases
the files, unblocks the tasks that waited for it, writes an entry and announces it, or does
nothing.

Not promised: that work is done only once. A claimer may do the work and die before it says so;
then another agent does it again.

A task depends on others by id, even on ids that nobody has added yet, so a plan can be entered
in any order. A cycle of dependencies is refused when its last edge is added.
"""

from __future__ import annotations

from dibs.arguments import NAME_LIMIT, NEWEST, NUMBER, TASK, Choice, Text, milliseconds
from dibs.errors import (
    ConflictError,
    EmptyError,
    ExistsError,
    HeldError,
    InvalidError,
    NotFoundError,
    NotYoursError,
    StaleError,
    StateError,
    TimeoutError,
)
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import named
from dibs.nouns.many import ahead, many
from dibs.nouns.messages.operations import post
from dibs.nouns.recovery import free_with_task, leave_to_others, taken_with
from dibs.nouns.state.operations import put_fields
from dibs.nouns.work import changing, claims, expecting, handing
from dibs.nouns.work.adding import ATTEMPTS, Adding, questions
from dibs.nouns.work.landings import LANDING, bring_back, landed, refuse_kind
from dibs.nouns.work.puts import Puts, asked, given
from dibs.nouns.work.tasks import (
    WORK,
    Claimed,
    backoff_ms,
    claimed,
    complete_group,
    progress_of,
    record_of,
    row_of,
    task_record,
)
from dibs.operation import EVERYBODY, OPERATIONS, PEOPLE, Items, operation, writes
from dibs.records import called
from dibs.space.scope import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, overload

    from dibs.errors import DibsError
    from dibs.records import Put, Task, WorkPlan
    from dibs.storage.driver import Row

    Calls = Sequence[dict[str, Any]]
    Key = str | None


class Work(Noun):
    @writes(
        ExistsError,
        by=EVERYBODY,
        events=("task.added",),
        kinds={"kind": Text(NAME_LIMIT)},
        ahead=lambda noun, **call: questions([call]),
        example="fix-login --title 'Fix the login' --tag python --after design",
    )
    def add(
        self,
        id: str,
        *,
        title: str = "",
        kind: str = "",
        priority: int = 0,
        tags: Sequence[str] = (),
        after: Sequence[str] = (),
        payload: Any = None,
        max_attempts: int = ATTEMPTS,
        delay_s: float = 0,
        leases: Sequence[str] = (),
        labels: Sequence[str] = (),
        parent: str | None = None,
        found_in: str | None = None,
        with_children: bool = False,
        idempotency_key: str | None = None,
    ) -> Task:
        """Add a task under an id of your choice.

        id: a unique name for it, such as github:owner/repo#12
        title: what to do
        kind: the kind of work; a worker can ask for one kind
        priority: higher numbers come first
        tags: what a worker must be able to do
        after: the ids of tasks that must be completed first
        payload: any JSON that the worker needs
        max_attempts: how many times it may be attempted before it is dead
        delay_s: how long until it can be claimed
        leases: paths or resources that it will change; they are claimed with it
        labels: words that describe it; unlike tags, they restrict nobody
        parent: the id of the task that it is part of
        found_in: the id of the task during which it was discovered
        with_children: make it a group that nobody claims and that completes with its last part
        """
        tx = self.tx
        refuse_kind(kind)
        plan: Adding = self.known or Adding(
            tx, self.scope, [{"id": id, "kind": kind, "tags": tags, "after": after}]
        )
        return plan.add(
            id,
            title=title,
            kind=kind,
            tags=tags,
            after=after,
            priority=priority,
            payload=payload,
            max_attempts=max_attempts,
            not_before=tx.now + milliseconds(delay_s) if delay_s else None,
            leases=leases,
            labels=labels,
            parent=parent,
            found_in=found_in,
            with_children=with_children,
        )

    if TYPE_CHECKING:

        @overload
        def add_many(
            self, items: Calls, *, each: Literal[False] = False, idempotency_key: Key = None
        ) -> tuple[Task, ...]: ...
        @overload
        def add_many(
            self, items: Calls, *, each: bool, idempotency_key: Key = None
        ) -> tuple[Task | DibsError, ...]: ...

    @writes(
        ExistsError,
        by=EVERYBODY,
        events=("task.added",),
        kinds={"items": Items("work.add")},
        ahead=lambda noun, items, **_: ahead(noun.scope, items, questions),
        cli="work add --many",
        example="< tasks.jsonl",
    )
    def add_many(
        self,
        items: Sequence[dict[str, Any]],
        *,
        each: bool = False,
        idempotency_key: str | None = None,
    ) -> tuple[Task | DibsError, ...]:
        """Add many tasks in one transaction, all or none.

        items: one object for each task, with the arguments of work.add
        each: add each one independently; the result of a refused one is its error
        """
        return many(self, "work.add", items, each, lambda calls: Adding(self.tx, self.scope, calls))

    @operation(
        HeldError,
        StateError,
        hashes=True,
        by=EVERYBODY,
        freely=PEOPLE,
        events=("task.added", "task.claimed", "task.renewed", "lease.claimed", "lease.renewed"),
        example="fix-login --lease src/login.py",
    )
    def claim(
        self,
        id: str,
        *,
        ttl_s: float = 3600,
        leases: Sequence[str] = (),
        note: str = "",
        idempotency_key: str | None = None,
    ) -> Task:
        """Claim a task, together with the files it needs: all or nothing.

        id: the task; it is added if it does not exist
        ttl_s: how long until the claim expires unless it is renewed
        leases: paths or resources to claim with it; they are released with it
        note: what you are going to do, shown to others who want those files
        """
        ttl_ms = milliseconds(ttl_s)
        # Files are hashed before the turn is taken, so that nobody waits for this disk.
        wants = named(self.scope, leases, grants.EXCLUSIVE) if leases else []
        request = [id, ttl_ms, [want.resource.text for want in wants], note]
        with self.scope.write() as tx:
            task = self.scope.once(
                tx,
                "work.claim",
                idempotency_key,
                request,
                lambda: claims.claim(tx, self.scope, id, ttl_ms, wants, note),
            )
        return claims.seen(self.scope, task)

    @operation(
        EmptyError,
        hashes=True,
        by=EVERYBODY,
        events=("task.claimed", "lease.claimed", "task.turn"),
        example="--tag python --wait 60s",
    )
    def next(
        self,
        *,
        kind: str | None = None,
        tags: Sequence[str] = (),
        ttl_s: float = 3600,
        wait_s: float = 0,
        idempotency_key: str | None = None,
    ) -> Task:
        """Claim the best available task that fits: highest priority, then oldest.

        kind: only tasks of this kind
        tags: what you can do; tasks that need other tags are left to others
        ttl_s: how long until the claim expires unless it is renewed
        wait_s: how long to wait for a task
        """
        return claims.next_tasks(
            self.scope, "work.next", 1, kind, tags, ttl_s, wait_s, idempotency_key
        )[0]

    @operation(
        EmptyError,
        hashes=True,
        by=EVERYBODY,
        events=("task.claimed", "lease.claimed", "task.turn"),
        cli="work next --limit",
        example="10 --tag python --wait 60s",
    )
    def next_many(
        self,
        limit: int,
        *,
        kind: str | None = None,
        tags: Sequence[str] = (),
        ttl_s: float = 3600,
        wait_s: float = 0,
        idempotency_key: str | None = None,
    ) -> tuple[Task, ...]:
        """Claim the best available tasks that fit, up to a limit.

        limit: the maximum number to claim
        kind: only tasks of this kind
        tags: what you can do; tasks that need other tags are left to others
        ttl_s: how long until the claims expire unless they are renewed
        wait_s: how long to wait for the first one
        """
        return claims.next_tasks(
            self.scope, "work.next_many", limit, kind, tags, ttl_s, wait_s, idempotency_key
        )

    @writes(
        StaleError,
        NotFoundError,
        by=EVERYBODY,
        freely=PEOPLE,
        events=("task.renewed",),
        example="fix-login --ttl 2h",
    )
    def renew(
        self,
        id: str,
        *,
        ttl_s: float | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Renew the claim on a task and on the files claimed with it; the epoch stays the same.

        id: the task
        ttl_s: how long from now; by default the time it was claimed for
        """
        tx = self.tx
        row = claims.own(tx, self.scope, id, epoch)
        if ttl_s is not None:
            row["ttl_ms"] = milliseconds(ttl_s)
        row["due"] = tx.now + row["ttl_ms"]
        leases = claims.prolong(tx, self.scope, row)
        tx.event("task.renewed", id, {"epoch": row["epoch"], "left_ms": row["ttl_ms"]})
        return task_record(row, tx.now, tuple(leases))

    @writes(
        StaleError,
        NotFoundError,
        ConflictError,
        by=EVERYBODY,
        events=("task.completed", "lease.released", "entry.set", "message.announced"),
        ahead=lambda noun, **call: claimed(noun.scope, [call]),
        example="fix-login --result '{\"pr\": 12}' --announce 'login works again'",
    )
    def complete(
        self,
        id: str,
        *,
        result: Any = None,
        announce: str = "",
        entry: dict[str, Any] | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Complete a task: store its result, release its files and unblock its dependents.

        id: the task
        result: any JSON that others should see
        announce: a message to everybody
        entry: a state entry to write with it: namespace, key, value and expected_version or force
        """
        tx = self.tx
        known: Claimed = self.known or Claimed(tx, self.scope, [{"id": id}])
        row = claims.own(tx, self.scope, id, epoch, known.rows)
        put = None if entry is None else put_fields(tx, self.scope, entry)
        kept = {} if result is None else {"result": result}
        settled = claims.settle(tx, self.scope, row, "completed", known, **kept)
        known.waiting.unblock(tx, id)
        if row["kind"] == LANDING:
            known.landings[id] = row["result"]
            if known.completed is None:
                landed(tx, known.landings)
        if row["parent"] is not None:
            known.parents[row["parent"]] = None
            if known.completed is None:
                complete_group(tx, row["parent"])
        if put is not None:
            put()
        if announce:
            post(tx, self.scope, announce, kind="announcement")
        return settled

    if TYPE_CHECKING:

        @overload
        def complete_many(
            self, items: Calls, *, each: Literal[False] = False, idempotency_key: Key = None
        ) -> tuple[Task, ...]: ...
        @overload
        def complete_many(
            self, items: Calls, *, each: bool, idempotency_key: Key = None
        ) -> tuple[Task | DibsError, ...]: ...

    @writes(
        StaleError,
        NotFoundError,
        ConflictError,
        by=EVERYBODY,
        events=("task.completed", "lease.released", "entry.set", "message.announced"),
        kinds={"items": Items("work.complete")},
        ahead=lambda noun, items, **_: ahead(
            noun.scope, items, lambda calls: claimed(noun.scope, calls)
        ),
        cli="work complete --many",
        example="< results.jsonl",
    )
    def complete_many(
        self,
        items: Sequence[dict[str, Any]],
        *,
        each: bool = False,
        idempotency_key: str | None = None,
    ) -> tuple[Task | DibsError, ...]:
        """Complete many tasks in one transaction, all or none.

        items: one object for each task, with the arguments of work.complete
        each: complete each one independently; the result of a refused one is its error
        """
        tx, scope = self.tx, self.scope
        made = many(self, "work.complete", items, each, lambda calls: Claimed(tx, scope, calls))
        self.known.store(tx, scope)
        if self.known.completed is not None:
            landed(tx, self.known.landings)
            for parent in self.known.parents:
                complete_group(tx, parent)
        return made

    @writes(
        StaleError,
        NotFoundError,
        by=EVERYBODY,
        events=("task.failed", "task.dead", "task.returned", "lease.released", "message.sent"),
        example="fix-login --reason 'the tests hang'",
    )
    def fail(
        self,
        id: str,
        *,
        reason: str = "",
        retry: bool = True,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Report that an attempt failed; the task is retried after a pause, or is dead.

        id: the task
        reason: why, shown to the next worker
        retry: false if no further attempt can succeed
        """
        tx = self.tx
        row = claims.own(tx, self.scope, id, epoch)
        if not retry or row["attempts"] >= row["max_attempts"]:
            dead = claims.settle(tx, self.scope, row, "dead", reason=reason)
            self._bring_back(dead)
            return dead
        pause = backoff_ms(row["attempts"])
        return claims.settle(tx, self.scope, row, "failed", reason=reason, due=tx.now + pause)

    def _bring_back(self, landing: Task) -> None:
        """If this is a landing, return the tasks that were handed in with it."""
        if landing.kind == LANDING:
            by = self.scope.caller.agent, self.scope.caller.session
            bring_back(self.tx, self.scope.keys, landing.id, landing.state, landing.reason, by)

    @writes(
        StaleError,
        NotFoundError,
        by=EVERYBODY,
        events=("task.abandoned", "lease.released"),
        example="fix-login --reason 'not my field'",
    )
    def abandon(
        self,
        id: str,
        *,
        reason: str = "",
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Give a task back; it is available immediately, and no attempt is counted.

        id: the task
        reason: why, shown to the next worker
        """
        row = claims.own(self.tx, self.scope, id, epoch)
        left = row["attempts"] - 1
        return claims.settle(self.tx, self.scope, row, "available", reason=reason, attempts=left)

    @writes(
        NotFoundError,
        StateError,
        NotYoursError,
        by=EVERYBODY,
        freely=PEOPLE,
        events=("task.cancelled", "task.returned", "lease.released", "message.sent"),
        destructive=True,
        example="fix-login --reason 'a duplicate'",
    )
    def cancel(self, id: str, *, reason: str = "", idempotency_key: str | None = None) -> Task:
        """Cancel a task; if it is claimed, only its claimer, its author, a person or an admin may.

        id: the task; if it was claimed, the claim ends
        reason: why
        """
        tx = self.tx
        row = row_of(tx, id)
        if row["state"] == "claimed" and not self._is_ours(row):
            if claims.revive(tx, self.scope, row):
                row = row_of(tx, id)
            elif self.scope.party not in OPERATIONS["work.cancel"].freely:
                raise NotYoursError(
                    f"{called(id)} is claimed by {called(row['agent'])}; only its claimer, its "
                    "author or a person may cancel it",
                    next="ask its claimer in a message, or a person",
                    task=task_record(row, tx.now),
                )
        if row["state"] in ("completed", "cancelled"):
            raise StateError(f"{called(id)} is {row['state']}", task=task_record(row, tx.now))
        tx.run(WORK.move, id=id, state="cancelled", reason=reason, due=None, at=tx.wall)
        tx.event("task.cancelled", id, {"reason": reason, "was": row["state"]})
        if row["session"] is not None:
            keys = self.scope.keys
            grants.hand_over(tx, keys, free_with_task(tx, keys, row))
        handing.leave_landing(tx, self.scope, row, "cancelled")
        complete_group(tx, row["parent"])
        cancelled = record_of(tx, id)
        self._bring_back(cancelled)
        return cancelled

    def _is_ours(self, row: Row) -> bool:
        """Whether the caller has claimed a task or one that it is part of, or has added it."""
        me = self.scope.caller.agent
        return me in (row["agent"], row["author"]) or row["agent"].startswith(f"{me}/")

    @writes(
        NotFoundError,
        StateError,
        by=PEOPLE,
        events=("task.revoked", "lease.revoked", "message.sent"),
        destructive=True,
        example="fix-login --reason 'bob is on holiday'",
    )
    def revoke(self, id: str, *, reason: str = "", idempotency_key: str | None = None) -> Task:
        """Take a task away from its claimer, on a person's decision; it is available immediately.

        id: the task; no attempt is counted, and the files claimed with it are released
        reason: why, shown to its claimer and to the next worker
        """
        tx = self.tx
        row = row_of(tx, id)
        if claims.revive(tx, self.scope, row):
            row = row_of(tx, id)
        if row["state"] != "claimed":
            raise StateError(
                f"nobody has claimed {called(id)}; it is {row['state']}",
                next="cancel it if it must not be done",
                task=task_record(row, tx.now),
            )
        if row["session"] == self.scope.caller.session:
            raise StateError(
                f"you have claimed {called(id)} yourself",
                next="abandon it",
                task=task_record(row, tx.now),
            )
        freed = leave_to_others(tx, self.scope.keys, row, taken_with(tx, row))
        said = {"holder": row["agent"], "holder_session": row["session"], "epoch": row["epoch"]}
        revoked = claims.unclaim(tx, row, "available", reason, attempts=row["attempts"] - 1)
        tx.event("task.revoked", id, {**said, "reason": reason})
        grants.revoke(tx, freed, reason)
        told = f"your task {called(id)} was taken away"
        post(tx, self.scope, f"{told}: {reason}" if reason else told, to=row["agent"])
        grants.hand_over(tx, self.scope.keys, freed)
        return revoked

    @writes(
        StaleError,
        NotFoundError,
        ExistsError,
        by=EVERYBODY,
        freely=PEOPLE,
        events=(
            "task.added",
            "task.reopened",
            "task.edited",
            "task.handed_in",
            "task.cancelled",
            "task.completed",
            "lease.released",
        ),
        example="feature --commit 8b1c0f6a2d4e7395b0c8d1e2f3a4b5c6d7e8f901 --task fix-login",
    )
    def land(
        self,
        branch: str,
        *,
        commit: str,
        onto: str = "main",
        task: str | None = None,
        check: str = "",
        priority: int = 0,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Queue a branch to be landed, and hand in the task it is for; see dibs land.

        branch: the branch; it replaces what the branch queued before for the same target
        commit: the full id of the commit to land
        onto: the branch to land it on
        task: the task that you claimed; it waits for the landing and completes with it
        check: the digest of a verification that the conductor must know
        priority: higher numbers come first
        epoch: refuse unless the task has this epoch
        """
        tx = self.tx
        landing = handing.land(tx, self.scope, branch, commit, onto, task, check, priority, epoch)
        if tx.next_seq == tx.seq and idempotency_key is None:
            tx.discard()  # the same was requested before
        return landing

    @writes(
        StaleError,
        NotFoundError,
        by=EVERYBODY,
        events=("task.asked", "lease.released"),
        example="fix-login 'May I delete the old accounts?'",
    )
    def ask(
        self,
        id: str,
        question: str,
        *,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Give a task back until a person answers a question; no attempt is counted.

        id: the task
        question: what a person must decide
        """
        return handing.ask(self.tx, self.scope, id, question, epoch)

    @writes(
        NotFoundError,
        StateError,
        by=PEOPLE,
        events=("task.acked", "task.refused", "task.returned", "task.dead", "message.sent"),
        example="fix-login --note 'yes, they are backed up'",
    )
    def ack(
        self, id: str, *, refuse: bool = False, note: str = "", idempotency_key: str | None = None
    ) -> Task:
        """Approve what a task asks, as a person; the task is available again.

        id: the task
        refuse: reject it; the task is dead
        note: why, shown to the next worker
        """
        return handing.ack(self.tx, self.scope, id, refuse, note)

    @writes(NotFoundError, StateError, by=EVERYBODY, events=("task.reopened",), example="fix-login")
    def reopen(self, id: str, *, idempotency_key: str | None = None) -> Task:
        """Make a task that has ended available again, with its attempts reset.

        id: the task
        """
        tx = self.tx
        row = row_of(tx, id)
        if claims.revive(tx, self.scope, row):
            row = row_of(tx, id)
        if row["state"] in ("available", "claimed", "blocked"):
            raise StateError(
                f"{called(id)} is {row['state']}, so it cannot be reopened",
                next="claim it, or cancel it first",
                task=task_record(row, tx.now),
            )
        needs = tx.rows(WORK.needs_of, id=id)
        opened = not row["with_children"] and all(need["state"] == "completed" for need in needs)
        later = row["not_before"] is not None and row["not_before"] > tx.now
        state = "available" if opened and not later else "blocked"
        due = row["not_before"] if opened and later else None
        tx.run(WORK.reopen, id=id, state=state, due=due, at=tx.wall)
        tx.event("task.reopened", id, {"was": row["state"]})
        return record_of(tx, id)

    @operation(NotFoundError, by=EVERYBODY, example="fix-login")
    def show(self, id: str) -> Task:
        """Show one task, with the leases held for it.

        id: the task
        """
        with self.scope.read() as tx:
            return record_of(tx, id)

    @operation(by=EVERYBODY, example="--state available", empty="no tasks", kinds={"after": NUMBER})
    def list(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        agent: str | None = None,
        tags: Sequence[str] = (),
        labels: Sequence[str] = (),
        text: str | None = None,
        parent: str | None = None,
        follows: str | None = None,
        precedes: str | None = None,
        everything: bool = False,
        after: int = 0,
        limit: int = 100,
    ) -> tuple[Task, ...]:
        """List tasks in the order they were added.

        state: only tasks in this state
        kind: only tasks of this kind
        agent: only tasks that this agent claimed last
        tags: only tasks that need all of these
        labels: only tasks that have all of these
        text: only tasks with this text in their title or id
        parent: only the parts of this task
        follows: only tasks that come after this one
        precedes: only tasks that come before this one
        everything: all of them, without a limit
        after: only tasks added after this seq
        """
        fits = expecting.matching(tags=tags, labels=labels, text=text)
        with self.scope.read() as tx:
            asked = {"state": state, "kind": kind, "agent": agent, "parent": parent, "now": tx.now}
            asked |= {"follows": follows, "precedes": precedes}
            rows = tx.pages(
                WORK.list,
                "after",
                "number",
                keep=fits,
                after=after,
                limit=NEWEST if everything else limit,
                **asked,
            )
            progress = progress_of(tx, [row["id"] for row in rows])
            return tuple(task_record(row, tx.now, progress=progress.get(row["id"])) for row in rows)

    @operation(
        TimeoutError,
        by=EVERYBODY,
        example="fix-login docs --any --wait 10m",
        kinds={"ids": TASK, "kind": Text(NAME_LIMIT)},
    )
    def wait(
        self,
        *ids: str,
        any: bool = False,
        state: str | None = None,
        kind: str | None = None,
        title_has: str | None = None,
        wait_s: float = 60,
    ) -> tuple[Task, ...]:
        """Wait until tasks have ended or are in a state, including tasks not added yet.

        ids: the tasks, which need not exist yet
        any: one of them is enough
        state: the state to wait for; by default completed, cancelled or dead
        kind: without ids: a task of this kind, in any state unless you name one
        title_has: without ids: a task with this text in its title
        wait_s: how long to wait
        """
        if bool(ids) == (kind is not None or title_has is not None):
            raise InvalidError(
                "wait either for named tasks, or for any task that matches kind or title_has",
                next="give ids, or kind, or title_has",
            )
        return expecting.wait(self.scope, ids, any, state, kind, title_has, wait_s)

    @writes(
        NotFoundError,
        NotYoursError,
        HeldError,
        StateError,
        by=EVERYBODY,
        freely=PEOPLE,
        events=("task.edited",),
        kinds={"kind": Text(NAME_LIMIT)},
        example="fix-login --priority 5 --label urgent",
    )
    def edit(
        self,
        id: str,
        *,
        title: str | None = None,
        kind: str | None = None,
        priority: int | None = None,
        tags: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        after: Sequence[str] | None = None,
        leases: Sequence[str] | None = None,
        parent: str | None = None,
        found_in: str | None = None,
        payload: Any = None,
        max_attempts: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Change a task; only its author or a person may, while nobody else has claimed it.

        id: the task; what you do not give stays as it is
        title: what to do
        kind: the kind of work
        priority: higher numbers come first
        tags: what a worker must be able to do; replaces the old tags
        labels: words that describe it; replaces the old labels
        after: the ids of tasks that must be completed first; replaces the old ids
        leases: paths or resources that it will change; replaces the old ones
        parent: the id of the task that it is part of
        found_in: the id of the task during which it was discovered
        payload: any JSON that the worker needs
        max_attempts: how many times it may be attempted before it is dead
        """
        given = {"title": title, "kind": kind, "priority": priority, "tags": tags}
        given |= {"labels": labels, "after": after, "leases": leases, "parent": parent}
        given |= {"found_in": found_in, "payload": payload, "max_attempts": max_attempts}
        return changing.edit(self.tx, self.scope, id, given)

    @writes(
        NotFoundError,
        NotYoursError,
        HeldError,
        StateError,
        by=EVERYBODY,
        freely=PEOPLE,
        events=("task.removed", "task.returned", "task.cancelled", "message.sent"),
        destructive=True,
        example="fix-login",
    )
    def remove(self, id: str, *, idempotency_key: str | None = None) -> Task:
        """Remove a task as if it had never been added; only its author or a person may.

        id: the task; refused while it is claimed or other tasks wait for it
        """
        return changing.remove(self.tx, self.scope, id)

    @operation(by=EVERYBODY, example="--agents 6")
    def plan(self, *, agents: int | None = None, limit: int = 200) -> WorkPlan:
        """Show how many agents can be busy now and over time, and what prevents more.

        agents: how many agents there are; the plan is then for that number
        limit: the maximum number of tasks to show
        """
        from dibs.nouns.work.planning import Facts, plan

        with self.scope.read() as tx:
            facts = Facts(tx)
        return plan(facts, agents, limit)

    @writes(
        NotYoursError,
        by=EVERYBODY,
        freely=PEOPLE,
        events=("task.added", "task.edited", "task.completed", "task.cancelled", "task.reopened"),
        kinds={"kind": Text(NAME_LIMIT), "state": Choice("open", "completed", "cancelled")},
        ahead=lambda noun, **call: asked([call]),
        example="github:owner/repo#12 --title 'Fix the login' --state open",
    )
    def put(
        self,
        id: str,
        *,
        title: str | None = None,
        kind: str | None = None,
        priority: int | None = None,
        tags: Sequence[str] | None = None,
        after: Sequence[str] | None = None,
        payload: Any = None,
        leases: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        parent: str | None = None,
        found_in: str | None = None,
        with_children: bool = False,
        state: str | None = None,
        result: Any = None,
        reopen: bool = False,
        idempotency_key: str | None = None,
    ) -> Put:
        """Add a task, or update it, to match what an external source says about it.

        id: its name there; what you do not give stays as it is
        title: what to do
        kind: the kind of work
        priority: higher numbers come first
        tags: what a worker must be able to do
        after: the ids of tasks that must be completed first
        payload: any JSON that the worker needs
        leases: paths or resources that it will change
        labels: words that describe it
        parent: the id of the task that it is part of
        found_in: the id of the task during which it was discovered
        with_children: make it a group that completes with its last part
        state: whether it has ended there; a task that is claimed here stays claimed
        result: its result there
        reopen: even if it has ended here, make it available again, or end it as it ended there
        """
        call = {name: value for name, value in locals().items() if name != "self"}
        puts: Puts = self.known or Puts(self.tx, self.scope, [call])
        made = puts.put(id, state, result, reopen, given(call))
        if self.known is None:
            puts.finish()
            if made.done == "kept" and idempotency_key is None:
                self.tx.discard()
        return made

    if TYPE_CHECKING:

        @overload
        def put_many(
            self,
            items: Calls,
            *,
            each: Literal[False] = False,
            dry_run: bool = False,
            idempotency_key: Key = None,
        ) -> tuple[Put, ...]: ...
        @overload
        def put_many(
            self, items: Calls, *, each: bool, dry_run: bool = False, idempotency_key: Key = None
        ) -> tuple[Put | DibsError, ...]: ...

    @writes(
        NotYoursError,
        by=EVERYBODY,
        freely=PEOPLE,
        events=("task.added", "task.edited", "task.completed", "task.cancelled", "task.reopened"),
        kinds={"items": Items("work.put")},
        ahead=lambda noun, items, **_: ahead(noun.scope, items, asked),
        cli="work put --many",
        example="< tasks.jsonl",
    )
    def put_many(
        self,
        items: Sequence[dict[str, Any]],
        *,
        each: bool = False,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> tuple[Put | DibsError, ...]:
        """Put many tasks in one transaction, all or none.

        items: one object for each task, with the arguments of work.put
        each: put each one independently; the result of a refused one is its error
        dry_run: only show what would be done
        """
        made = many(self, "work.put", items, each, lambda calls: Puts(self.tx, self.scope, calls))
        self.known.finish()
        if dry_run:
            self.tx.discard()
        return made
