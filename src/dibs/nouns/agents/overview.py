"""The current state at one moment: who is here, what is held, what is in progress, what is stuck.

Everything is read in one transaction, so that no part contradicts another. What needs attention
is decided here, once, for the terminal, for agents and for the dashboard.
"""

from __future__ import annotations

from dibs.errors import TooLargeError
from dibs.nouns.agents.sessions import session_record
from dibs.nouns.agents.trains import trains
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import LEASES
from dibs.nouns.leases.looking import waiters
from dibs.nouns.work.landings import LANDING
from dibs.nouns.work.tasks import ANY, counts_of, task_record
from dibs.records import Attention, Blocker, Lease, Message, Overview, Presence, Session, Task
from dibs.space.scope import AGENTS, Scope
from dibs.storage.queries import Queries
from dibs.storage.store import Read, from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from dibs.storage.driver import Row

EVENTS = Queries("events")
MESSAGES = Queries("messages")
SPACE = Queries("space")
WORK = Queries("work")
OPEN = ("claimed", "available", "blocked", "failed", "dead")
SOON_MS = 300_000
"""A lease that expires sooner needs attention, unless it was claimed for less than this."""
RECENT_MS = 900_000
"""How long a death or an intrusion needs attention."""
LOOKED_BACK = 1_000
"""How many events to search for them."""
MESSAGES_SHOWN, LOOKED_AT = 20, 50
LEVELS = ("stuck", "ask", "soon")
STUCK = ("blocked", "never", "dead", "not_landed", "overdue")
"""What will not continue by itself."""
ASK = ("asked", "asks")


def overview(scope: Scope, tx: Read, agent: str | None, limit: int) -> Overview:
    """The whole overview; agent: whose messages to show."""
    seq, open_ = tx.rows(SPACE.position)[0]["seq"], tx.rows(AGENTS.open)
    here = presences(tx, open_)
    leases, waiting = grants.in_force(tx, None, None, limit), waiters(tx, limit)
    counts = counts_of(tx)
    tasks = [task for state in OPEN if counts.get(state) for task in in_state(tx, state, limit)]
    unread, messages, asked = 0, [], []
    if agent is not None:
        from dibs.nouns.messages.unread import unread_rows

        unread = unread_of(tx, agent)
        if unread:
            messages = genuine(scope, unread_rows(tx, agent, min(limit, MESSAGES_SHOWN)))
        asked = genuine(scope, tx.rows(MESSAGES.asked, agent=agent, limit=limit))
    attention = [
        *blocked(tx, waiting),
        *(asks(message) for message in asked),
        *questions(tx, limit),
        *stuck_tasks(tx, tasks, limit),
        *troubles(tx, seq, open_, {presence.agent for presence in here}),
        *ending(leases),
    ]
    attention.sort(key=lambda one: LEVELS.index(one.level))
    return Overview(
        space=scope.space,
        seq=seq,
        agents=here,
        leases=leases,
        waiting=waiting,
        tasks=tuple(tasks),
        counts=counts,
        unread=unread,
        messages=tuple(messages),
        attention=tuple(attention[:limit]),
        trains=trains(scope, tx, limit),
    )


def urgent(what: str, subject: str, **about: Any) -> Attention:
    level = "stuck" if what in STUCK else "ask" if what in ASK else "soon"
    return Attention(what=what, level=level, subject=subject, **about)


def presences(tx: Read, open_: list[Row], everybody: bool = False) -> tuple[Presence, ...]:
    """Who is here, by the open sessions; everybody: include agents without a session."""
    leases = {
        row["session"]: row["number"] for row in tx.rows(AGENTS.leases_by_session, now=tx.now)
    }
    tasks = {row["session"]: row["number"] for row in tx.rows(AGENTS.tasks_by_session, now=tx.now)}
    sessions: dict[str, list[Session]] = {}
    for row in open_:
        record = session_record(tx, row)
        if record.alive:
            sessions.setdefault(row["agent"], []).append(record)
    return tuple(
        Presence(
            agent=row["name"],
            sessions=tuple(sessions.get(row["name"], ())),
            leases=sum(leases.get(s.id, 0) for s in sessions.get(row["name"], ())),
            tasks=sum(tasks.get(s.id, 0) for s in sessions.get(row["name"], ())),
            unread=unread_of(tx, row["name"]),
            first_seen_at=row["first_seen_at"],
        )
        for row in tx.rows(AGENTS.agents)
        if everybody or row["name"] in sessions
    )


def unread_of(tx: Read, agent: str) -> int:
    """How many unread messages an agent has."""
    number: int = tx.rows(MESSAGES.count_unread, agent=agent)[0]["number"]
    return number


def in_state(tx: Read, state: str, limit: int) -> list[Task]:
    asked = ANY | {"state": state, "after": 0, "limit": limit, "now": tx.now}
    try:
        rows = tx.pages(WORK.list, "after", "number", **asked)
    except TooLargeError as error:  # an overview needs only the first of them
        rows = tx.rows(WORK.list, **asked | {"limit": error.details["limit"]})
    return [task_record(row, tx.now) for row in rows]


def genuine(scope: Scope, rows: list[Row]) -> list[Message]:
    from dibs.nouns.messages.unread import message_record

    return [message_record(row, False) for row in rows if scope.keys.fits("message", row)]


def blocked(tx: Read, waiting: tuple[Blocker, ...]) -> Iterator[Attention]:
    """Who waits for what, and who blocks it: the holder, or else an earlier waiter."""
    for place, ticket in enumerate(waiting):
        found: list[Row] = []
        # Each look reads the queue; for waiters far behind, no details are needed.
        for row in tx.rows(LEASES.ticket, number=ticket.epoch) if place < LOOKED_AT else ():
            if row["resource"] == ticket.resource:
                want = grants.Want(grants.resource_of(row), row["mode"], None, bool(row["here"]))
                in_the_way = grants.look(tx, want, row["session"], ticket.epoch)[1]
                found = grants.standing(tx, in_the_way)
        holders = [row for row in found if not row["waiting"]] or found
        blockers = tuple(grants.blocker_record(row, tx.now) for row in holders)
        who = {"agent": ticket.agent, "session": ticket.session, "says": ticket.note}
        yield urgent("blocked", ticket.resource, at=ticket.since_at, **who, blockers=blockers)


def asks(message: Message) -> Attention:
    said = {"agent": message.sender, "says": message.body, "at": message.sent_at}
    return urgent("asked", str(message.id), **said)


def questions(tx: Read, limit: int) -> Iterator[Attention]:
    """The tasks that wait for a person's answer."""
    for row in tx.rows(WORK.asking, limit=limit):
        yield urgent("asks", row["id"], agent=row["agent"], says=row["asked"], at=row["changed_at"])


def stuck_tasks(tx: Read, tasks: list[Task], limit: int) -> Iterator[Attention]:
    for row in tx.rows(WORK.never, limit=limit):
        yield urgent("never", row["task"], by=(row["needs"],), says=row["state"])
    for task in tasks:
        left = task.due_in_ms
        what = {"dead": "dead", "failed": "failed"}.get(task.state, "")
        if what == "dead" and task.kind == LANDING:
            what = "not_landed"
        if task.state == "claimed" and left is not None and left < SOON_MS:
            what = "task_ends" if (task.ttl_ms or 0) > SOON_MS else ""
        elif task.state != "claimed" and task.ttl_ms is not None:
            what = "overdue"  # not freed yet
        if what:
            who = {"agent": task.agent, "session": task.session, "says": task.reason}
            yield urgent(what, task.id, **who, due_in_ms=left)


def troubles(tx: Read, seq: int, open_: list[Row], here: set[str]) -> Iterator[Attention]:
    """Who died and did not come back, with what that freed; which files were overwritten."""
    since, freed, told = tx.wall - RECENT_MS, dict[int, list[str]](), set[str]()
    # Dead sessions that nobody has noticed yet: what they hold is free to be claimed.
    for row in open_:
        agent, session = row["agent"], row["id"]
        if agent not in here and agent not in told and not tx.store.alive(row, tx.now):
            told.add(agent)
            leases = [lease["resource"] for lease in tx.rows(LEASES.of_session, session=session)]
            tasks = [task["id"] for task in tx.rows(WORK.of_session, session=session)]
            held = (*leases, *tasks)
            yield urgent("died", agent, agent=agent, session=session, by=held, at=row["seen_at"])
    for row in tx.rows(EVENTS.troubles, after=seq - LOOKED_BACK, since=since, limit=LOOKED_BACK):
        agent, kind = row["agent"], row["kind"]
        if kind == "lease.intruded":
            said = from_text(row["data"])
            by = tuple(said["by"])
            yield urgent("overwritten", row["subject"], agent=said["holder"], by=by, at=row["at"])
        elif kind != "session.died":
            freed.setdefault(row["session"], []).append(row["subject"])
        elif agent not in here and agent not in told:
            told.add(agent)
            session, held = row["session"], tuple(freed.get(row["session"], ()))
            yield urgent("died", agent, agent=agent, session=session, by=held, at=row["at"])


def ending(leases: tuple[Lease, ...]) -> Iterator[Attention]:
    for lease in leases:
        if lease.expires_in_ms < SOON_MS < lease.ttl_ms:
            who = {"agent": lease.agent, "session": lease.session, "says": lease.note}
            yield urgent("lease_ends", lease.resource, **who, due_in_ms=lease.expires_in_ms)
