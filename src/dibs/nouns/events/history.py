"""What the journal tells, followed event by event: what was held, worked on and waited for.

`History` reads events in order, once, and keeps only what is open: leases, tickets, claimed tasks.
It tells an account (see `accounts` and `contention`) what happened in a period, by these rules:

Times
    lease       from its claim to the event that ends it (released, expired, freed, revoked,
                transferred, claimed again in another mode), but never beyond its deadline: an
                expired lease may go unnoticed for hours. Renewals move the deadline, including
                those of the task that the lease was claimed with.
    claim       of a task: the same, until it completes, fails, is abandoned, handed in to a
                landing, lost, revoked or cancelled, or asks a person.
    wait        of a ticket: from joining the queue until it is granted or given up. A ticket for
                several resources is one wait.
    period      only the part inside it counts. What is open at its end counts up to the end.
                What began before the events that were read counts from the first of them.
                If a clock was set back, a time is zero, never negative.

Counts: an event counts if its seq is in the period
    done        tasks that completed: for the agent that claimed it, or that handed it in if it
                completed with its landing; for nobody if its last part or an external source
                completed it
    failed      attempts that their claimer reported as failed; `dead`: tasks that ended as dead
    returned    tasks that came back because their landing failed: for the agent that handed
                them in
    abandoned   tasks that were given back, also by a session that ended while it had them
    lapsed      claims on tasks that expired; `expired`: leases that expired
    died        sessions that died; `freed_leases` and `freed_tasks` are what that freed
    taken_over  tasks that were lost by a death or an expired claim, and claimed again
    waits       claims that were refused and joined the queue
    passed      tasks that `next` handed out ahead of a better one that did not fit
    revoked     leases and tasks that a person took away: for the agent that had them
    intrusions  leased files that others changed: for the holder, since it is not proved who did it
    landed      landings that completed, `not_landed` those that ended as dead: for the agent that
                queued them. A landing does not count as a task that is done, dead or cancelled.
    reopened    tasks that had ended and were opened again; they still count as done

Whose task
    A lease or a wait belongs to the task that it names, or else to the one that its session had
    claimed last and still had when it began (the claim had not expired), or else to none.

Denied calls write no rows, so a denial is visible only by what it led to: a place in the queue, or
another task. An agent that was refused and gave up, or did something without a task, is not seen.
"""

from __future__ import annotations

from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from dibs.storage.driver import Row

    class Account(Protocol):
        """Receives what happened in a period; paths: empty for what has no path"""

        def count(
            self, name: str, at: int, agent: str | None, task: str | None, paths: tuple[str, ...]
        ) -> None:
            """Something happened."""

        def spend(self, name: str, began: int, ended: int, what: Open) -> None:
            """Time passed, all of it in the period."""

        def wait(self, began: int, ended: int, ticket: Open) -> None:
            """An agent waited, at least for a moment of the period."""

        def use(self, at: int, agent: str | None, task: str | None, said: dict[str, Any]) -> None:
            """A session used tokens."""


LANDING_ID = 12
"""How many digits of a commit the id of a landing ends with."""
_HEX = frozenset("0123456789abcdef")


class Period:
    """The part of the journal that counts.

    first: events after this seq count; last: up to this one
    begin_at, end_at: the time that counts
    """

    __slots__ = ("begin_at", "end_at", "first", "last")

    def __init__(self, first: int, last: int, begin_at: int, end_at: int) -> None:
        self.first = first
        self.last = last
        self.begin_at = begin_at
        self.end_at = end_at


class Open:
    """Something that has begun but not ended: a lease, a claim on a task, or a ticket.

    began: None if that was before the events that were read
    deadline: when it expires, as far as is known
    counts: whether it began in the period
    behind: for a ticket, who blocked each path when it began: agents and their tasks
    """

    __slots__ = (
        "agent", "began", "behind", "counts", "deadline", "paths", "session", "task", "ttl_ms"
    )  # fmt: skip

    def __init__(
        self,
        agent: str | None,
        session: int | None,
        task: str | None,
        paths: tuple[str, ...],
        began: int | None,
        deadline: int | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        self.agent = agent
        self.session = session
        self.task = task
        self.paths = paths
        self.began = began
        self.deadline = deadline
        self.ttl_ms = ttl_ms
        self.counts = False
        self.behind: dict[str, list[tuple[str, str | None]]] = {}


class History:
    """Reads the events of a journal and tells an account; see above for the rules."""

    def __init__(self, period: Period, account: Account) -> None:
        self.period = period
        self.unknown = 0
        """How much of what ended in the period began before the events that were read."""
        self._account = account
        self._known_at = period.begin_at
        """When the first event that was read was written."""
        self._read = False
        self._leases: dict[tuple[str, int | None], Open] = {}
        self._tied: dict[str, set[tuple[str, int | None]]] = {}
        """The leases that were claimed with a task."""
        self._tickets: dict[int, Open] = {}
        self._left_queue = 0
        """The ticket that left the queue last; the events of its other resources follow."""
        self._claims: dict[str, Open] = {}
        self._working: dict[int | None, dict[str, None]] = {}
        """The tasks that each session has claimed, the last one last."""
        self._lost: set[str] = set()
        self._handed_in: dict[str, str | None] = {}
        self._landings: dict[str, str | None] = {}
        """Who queued each landing."""
        self._no_landings: set[str] = set()
        """Tasks that only look like landings by their ids."""
        self._died: int | None = None
        self._takes: dict[str, Callable[[Row], None]] = {
            "lease.claimed": self._lease_claimed,
            "lease.renewed": self._lease_renewed,
            "lease.released": self._lease_ended,
            "lease.expired": self._lease_ended,
            "lease.freed": self._lease_ended,
            "lease.transferred": self._lease_ended,
            "lease.revoked": self._lease_revoked,
            "lease.queued": self._queued,
            "lease.unqueued": self._unqueued,
            "lease.intruded": self._intruded,
            "task.added": self._task_added,
            "task.claimed": self._task_claimed,
            "task.renewed": self._task_renewed,
            "task.completed": self._task_completed,
            "task.failed": self._task_failed,
            "task.dead": self._task_dead,
            "task.refused": self._task_dead,
            "task.freed": self._task_freed,
            "task.abandoned": self._task_abandoned,
            "task.asked": self._task_asked,
            "task.handed_in": self._task_handed_in,
            "task.returned": self._task_returned,
            "task.cancelled": self._task_cancelled,
            "task.removed": self._task_removed,
            "task.revoked": self._task_revoked,
            "task.reopened": self._task_reopened,
            "session.left": self._session_ended,
            "session.died": self._session_ended,
            "session.revoked": self._session_ended,
            "session.used": self._used,
        }

    def stood(self, kind: str, name: str | int, what: Open) -> None:
        """Add something that is open now and began before the first event that will be read.

        kind: lease, ticket or task
        """
        if kind == "lease":
            self._leases[str(name), what.session] = what
            if what.task is not None:
                self._tied.setdefault(what.task, set()).add((str(name), what.session))
        elif kind == "task":
            self._begin_claim(str(name), what)
        else:
            ticket = self._tickets.setdefault(int(name), what)
            if ticket is not what:
                ticket.paths += what.paths

    def take(self, row: Row) -> None:
        """Take the next event."""
        if not self._read:
            self._read, self._known_at = True, row["at"]
        take = self._takes.get(row["kind"])
        if take is not None:
            take(row)

    def finish(self) -> None:
        """End: there are no more events, and what is open counts up to the end of the period."""
        for lease in self._leases.values():
            self._spend("held_ms", self.period.end_at, lease)
        for claim in self._claims.values():
            self._spend("worked_ms", self.period.end_at, claim)
        for ticket in self._tickets.values():
            self._account.wait(*self._inside(self.period.end_at, ticket), ticket)

    # What happened, and how long it took

    def _counts(self, row: Row) -> bool:
        return self.period.first < int(row["seq"]) <= self.period.last

    def _count(self, row: Row, name: str, agent: str | None, task: str | None, *paths: str) -> None:
        if self._counts(row):
            self._account.count(name, row["at"], agent, task, paths)

    def _inside(self, ended: int, what: Open) -> tuple[int, int]:
        """When the part of it that is in the period began and ended."""
        period = self.period
        began = self._known_at if what.began is None else what.began
        if what.deadline is not None:
            ended = min(ended, what.deadline)
        began = min(max(began, period.begin_at), period.end_at)
        return began, max(began, min(ended, period.end_at))

    def _spend(self, name: str, ended: int, what: Open) -> None:
        inside = self._inside(ended, what)
        if inside[0] < inside[1]:
            self._account.spend(name, *inside, what)

    def _end(self, row: Row, name: str, what: Open) -> None:
        if self._counts(row):
            if what.began is None:
                self.unknown += 1
            self._spend(name, row["at"], what)

    def _task_of(self, session: int | None, at: int) -> str | None:
        """The task that a session has claimed last, unless the claim has expired by then."""
        for id in reversed(self._working.get(session, {})):
            deadline = self._claims[id].deadline
            if deadline is None or deadline > at:
                return id
        return None

    # Leases

    def _lease_claimed(self, row: Row) -> None:
        said, path = said_of(row), row["subject"]
        key = path, row["session"]
        self._served(row, said)
        if key in self._leases:
            self._end_lease(row, key)
        task = said.get("task")
        if task is not None:
            self._tied.setdefault(task, set()).add(key)
        else:
            task = self._task_of(row["session"], row["at"])
        ttl_ms = said.get("ttl_ms")
        deadline = None if ttl_ms is None else row["at"] + ttl_ms
        self._leases[key] = Open(row["agent"], key[1], task, (path,), row["at"], deadline, ttl_ms)
        self._count(row, "leases", row["agent"], task, path)

    def _lease_renewed(self, row: Row) -> None:
        said, key = said_of(row), (row["subject"], row["session"])
        self._served(row, said)
        lease = self._leases.get(key)
        if lease is None:
            task = said.get("task") or self._task_of(key[1], row["at"])
            lease = self._leases[key] = Open(row["agent"], key[1], task, (key[0],), None)
        task = said.get("task")
        if task is not None and task != lease.task:
            # It was claimed with a task that has ended, and is kept for another.
            self._end_lease(row, key)
            lease = Open(lease.agent, key[1], task, (key[0],), row["at"], ttl_ms=lease.ttl_ms)
            self._leases[key] = lease
            self._tied.setdefault(task, set()).add(key)
        left_ms = said.get("left_ms", lease.ttl_ms)
        lease.deadline = None if left_ms is None else row["at"] + left_ms

    def _lease_ended(self, row: Row) -> None:
        key, how = (row["subject"], row["session"]), row["kind"][len("lease.") :]
        lease = self._end_lease(row, key, row["agent"])
        if how == "expired":
            self._count(row, "expired", lease.agent, lease.task, key[0])
        elif how == "freed" and key[1] == self._died:
            self._count(row, "freed_leases", lease.agent, lease.task, key[0])

    def _lease_revoked(self, row: Row) -> None:
        said, path = said_of(row), row["subject"]
        lease = self._end_lease(row, (path, said.get("holder_session")), said.get("holder"))
        self._count(row, "revoked", lease.agent, lease.task, path)

    def _end_lease(self, row: Row, key: tuple[str, int | None], agent: str | None = None) -> Open:
        lease = self._leases.pop(key, None)
        if lease is None:
            task = said_of(row).get("task") or self._task_of(key[1], row["at"])
            lease = Open(agent, key[1], task, (key[0],), None)
        tied = self._tied.get(lease.task or "")
        if tied is not None:
            tied.discard(key)
            if not tied:
                del self._tied[lease.task or ""]
        self._end(row, "held_ms", lease)
        return lease

    def _intruded(self, row: Row) -> None:
        said, path = said_of(row), row["subject"]
        lease = self._leases.get((path, said.get("holder_session")))
        self._count(row, "intrusions", said.get("holder"), lease.task if lease else None, path)

    # The queue

    def _queued(self, row: Row) -> None:
        said, path = said_of(row), row["subject"]
        ticket = self._tickets.get(said["ticket"])
        if ticket is None:
            task = self._task_of(row["session"], row["at"])
            ticket = Open(row["agent"], row["session"], task, (), row["at"])
            ticket.counts = self._counts(row)
            self._tickets[said["ticket"]] = ticket
        ticket.paths += (path,)
        if "behind" in said:
            ticket.behind[path] = [
                (name, self._task_of(one, row["at"])) for name, one in said["behind"]
            ]

    def _unqueued(self, row: Row) -> None:
        said = said_of(row)
        if said.get("why") == "withdrawn":
            self._leave_queue(row, said["ticket"], "gave_up")
        else:
            self._leave_queue(row, said["ticket"])

    def _served(self, row: Row, said: dict[str, Any]) -> None:
        if "ticket" in said:
            self._leave_queue(row, said["ticket"], "served")

    def _leave_queue(self, row: Row, number: int, name: str = "") -> None:
        if number == self._left_queue:
            return
        self._left_queue = number
        ticket = self._tickets.pop(number, None)
        if not self._counts(row):
            return
        if ticket is None:
            self.unknown += 1
            session = row["session"]
            task = self._task_of(session, row["at"])
            ticket = Open(row["agent"], session, task, (row["subject"],), None)
        self._account.wait(*self._inside(row["at"], ticket), ticket)
        if name:
            self._account.count(name, row["at"], ticket.agent, ticket.task, ticket.paths)

    # Tasks

    def _begin_claim(self, id: str, claim: Open) -> None:
        self._claims[id] = claim
        self._working.setdefault(claim.session, {})[id] = None

    def _end_claim(self, row: Row, agent: str | None = None, session: int | None = None) -> Open:
        """End the claim on a task; it belonged to this agent, as far as is known."""
        id = row["subject"]
        claim = self._claims.pop(id, None)
        if claim is None:
            claim = Open(agent, session, id, (), None)
        working = self._working.get(claim.session)
        if working is not None:
            working.pop(id, None)
            if not working:
                del self._working[claim.session]
        self._end(row, "worked_ms", claim)
        return claim

    def _end_own_claim(self, row: Row) -> Open:
        return self._end_claim(row, row["agent"], row["session"])

    def _is_landing(self, id: str) -> bool:
        return has_id_of_landing(id) and id not in self._no_landings

    def _task_added(self, row: Row) -> None:
        id = row["subject"]
        if has_id_of_landing(id):
            if said_of(row).get("kind") == "landing":
                self._landings[id] = row["agent"]
            else:
                self._no_landings.add(id)

    def _task_claimed(self, row: Row) -> None:
        said, id = said_of(row), row["subject"]
        left_ms = said.get("left_ms")
        deadline = None if left_ms is None else row["at"] + left_ms
        if id in self._claims:
            self._end_own_claim(row)
        self._begin_claim(id, Open(row["agent"], row["session"], id, (), row["at"], deadline))
        self._count(row, "claims", row["agent"], id)
        if id in self._lost:
            self._lost.discard(id)
            self._count(row, "taken_over", row["agent"], id)
        if "instead_of" in said:
            self._count(row, "passed", row["agent"], id)

    def _task_renewed(self, row: Row) -> None:
        said, id = said_of(row), row["subject"]
        claim = self._claims.get(id)
        if claim is None:
            claim = Open(row["agent"], row["session"], id, (), None)
            self._begin_claim(id, claim)
        if "left_ms" not in said:
            claim.deadline = None
            return
        claim.deadline = row["at"] + said["left_ms"]
        for key in self._tied.get(id, ()):
            if key[1] == claim.session:
                self._leases[key].deadline = claim.deadline

    def _task_completed(self, row: Row) -> None:
        said, id = said_of(row), row["subject"]
        by = None
        if "epoch" in said:
            by = self._end_own_claim(row).agent
        elif "landing" in said:
            by = self._handed_in.get(id)
        if self._is_landing(id):
            self._count(row, "landed", self._landings.get(id), id)
        else:
            self._count(row, "done", by, id)
        self._forget(id)

    def _task_failed(self, row: Row) -> None:
        claim = self._end_own_claim(row)
        if not self._is_landing(row["subject"]):
            self._count(row, "failed", claim.agent, row["subject"])

    def _task_dead(self, row: Row) -> None:
        said, id = said_of(row), row["subject"]
        by = self._handed_in.get(id)
        if "epoch" in said:
            by = self._end_own_claim(row).agent
            if "why" in said:
                self._count_lost(row, said, by)
            elif not self._is_landing(id):
                self._count(row, "failed", by, id)
        if self._is_landing(id):
            self._count(row, "not_landed", self._landings.get(id), id)
        else:
            self._count(row, "dead", by, id)
        self._forget(id)

    def _task_freed(self, row: Row) -> None:
        said = said_of(row)
        self._count_lost(row, said, self._end_own_claim(row).agent)
        if said.get("why") not in ("left", "revoked"):
            self._lost.add(row["subject"])

    def _count_lost(self, row: Row, said: dict[str, Any], agent: str | None) -> None:
        """A claim ended without its claimer; why: how"""
        ends = {"died": "freed_tasks", "left": "abandoned", "revoked": "abandoned"}
        self._count(row, ends.get(said.get("why", ""), "lapsed"), agent, row["subject"])

    def _task_abandoned(self, row: Row) -> None:
        claim = self._end_own_claim(row)
        if not self._is_landing(row["subject"]):
            self._count(row, "abandoned", claim.agent, row["subject"])

    def _task_asked(self, row: Row) -> None:
        self._end_own_claim(row)

    def _task_handed_in(self, row: Row) -> None:
        if "epoch" in said_of(row):
            self._end_own_claim(row)
        self._handed_in[row["subject"]] = row["agent"]

    def _task_returned(self, row: Row) -> None:
        id = row["subject"]
        self._count(row, "returned", self._handed_in.pop(id, None), id)

    def _task_cancelled(self, row: Row) -> None:
        id = row["subject"]
        if said_of(row).get("was") == "claimed":
            self._end_claim(row)
        if not self._is_landing(id):
            self._count(row, "cancelled", row["agent"], id)
        self._forget(id)

    def _task_removed(self, row: Row) -> None:
        self._forget(row["subject"])
        self._no_landings.discard(row["subject"])

    def _forget(self, id: str) -> None:
        """A task has ended."""
        self._lost.discard(id)
        self._handed_in.pop(id, None)
        self._landings.pop(id, None)

    def _task_revoked(self, row: Row) -> None:
        said = said_of(row)
        claim = self._end_claim(row, said.get("holder"), said.get("holder_session"))
        self._count(row, "revoked", claim.agent, row["subject"])

    def _task_reopened(self, row: Row) -> None:
        id = row["subject"]
        if self._is_landing(id):
            self._landings[id] = row["agent"]
        else:
            self._count(row, "reopened", row["agent"], id)

    # Sessions

    def _session_ended(self, row: Row) -> None:
        self._died = row["session"] if row["kind"] == "session.died" else None
        if self._died is not None:
            self._count(row, "died", row["agent"], None)

    def _used(self, row: Row) -> None:
        if self._counts(row):
            said = said_of(row)
            task = said.get("task") or self._task_of(row["session"], row["at"])
            self._account.use(row["at"], row["agent"], task, said)


def said_of(row: Row) -> dict[str, Any]:
    """The data of an event, as an object; some events of older releases have none."""
    said: dict[str, Any] = from_text(row["data"]) or {}
    return said


def has_id_of_landing(id: str) -> bool:
    """Whether an id looks like that of a landing: land:TARGET:BRANCH@COMMIT."""
    commit = id[-LANDING_ID:]
    return id.startswith("land:") and id[:-LANDING_ID][-1:] == "@" and _HEX.issuperset(commit)
