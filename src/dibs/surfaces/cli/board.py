"""What `dibs top` shows: rows that can be selected, and the details of each.

The functions that make the lines quote all words of agents (`called`, `words`).
"""

from __future__ import annotations

from typing import NamedTuple

from dibs.errors import NotFoundError
from dibs.nouns.work.landings import LANDING
from dibs.records import called, quoted, span
from dibs.surfaces.cli import show
from dibs.surroundings.wording import ago, blocker_line, paint, since, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dibs.dibs import Dibs
    from dibs.records import Attention, Lease, Message, Overview

LEASE, TASK, AGENT, MESSAGE = "lease", "task", "agent", "message"
SHOWN = 20
MESSAGES = 8
RECENT = 10
ABOUT = {
    **dict.fromkeys(("blocked", "lease_ends", "overwritten"), LEASE),
    **dict.fromkeys(
        ("asks", "dead", "failed", "never", "not_landed", "overdue", "task_ends"), TASK
    ),
    "asked": MESSAGE,
    "died": AGENT,
}
"""What each kind of thing that needs attention is about."""


class Row(NamedTuple):
    """A line that can be selected.

    what: the kind of thing: a lease, a task, an agent or a message; empty for a plain line
    name: which one
    session: the session that holds it, if it is a lease
    """

    what: str
    name: str
    text: str
    session: int | None = None


class Board:
    """The present state, from one overview.

    agent: the agent that looks, which may have messages
    """

    def __init__(self, space: Dibs, agent: str | None) -> None:
        self.space = space
        self.found: Overview = space.agents.overview(agent=agent, limit=1000)
        self.messages: tuple[Message, ...] = space.messages.history(limit=MESSAGES)

    @property
    def title(self) -> str:
        return paint("bold", f"dibs  {called(self.found.space)}  seq {self.found.seq}")

    def sections(self, pattern: str = "") -> Iterator[tuple[str, list[Row]]]:
        """The rows under their headings; with a filter, only those that contain it."""

        def fits(row: Row) -> bool:
            return pattern.casefold() in row.text.casefold()

        for title, rows in (
            ("needs attention", filter(fits, map(self._urgent, self.found.attention))),
            ("agents", filter(fits, self._agents())),
            ("workers", filter(fits, self._workers())),
            ("trains", filter(fits, self._trains())),
            ("leases", filter(fits, self._leases())),
            ("work", self._work(fits)),
            ("messages", filter(fits, self._messages())),
        ):
            if kept := list(rows):
                yield title, kept

    def _urgent(self, one: Attention) -> Row:
        what = ABOUT[one.what]
        # Only the holder can release what somebody waits for.
        session = one.blockers[0].session if one.blockers else one.session
        name = one.blockers[0].resource if what == LEASE and one.blockers else one.subject
        return Row(what, name, show.urgent(one), session)

    def _agents(self) -> Iterator[Row]:
        for who in self.found.agents:
            counts = f"leases {who.leases}  tasks {who.tasks}  unread {who.unread}"
            text = f"{called(who.agent):<20} {counts}  {show.status_of(who)}"
            yield Row(AGENT, who.agent, text)

    def _workers(self) -> Iterator[Row]:
        for name, text in show.workers(self.found):
            yield Row(AGENT, name, text)

    def _trains(self) -> Iterator[Row]:
        for train in self.found.trains:
            head, *lines = show.train_lines([train])
            yield Row("", "", head)
            for one, line in zip(train.landings, lines, strict=True):
                yield Row(TASK, one.id, line)

    def _leases(self) -> Iterator[Row]:
        size = max((len(called(lease.resource)) for lease in self.found.leases), default=0)
        for lease in self.found.leases:
            text = (
                f"{called(lease.resource):<{size}}  {called(lease.agent):<12} "
                f"{span(lease.expires_in_ms):>4} left  {words(lease.note)}"
            )
            yield Row(LEASE, lease.resource, text, lease.session)

    def _work(self, fits: Callable[[Row], bool]) -> Iterator[Row]:
        """The first tasks of each state that fit, and how many more there are."""
        for state in ("claimed", "available", "blocked"):
            loaded = [task for task in self.found.tasks if task.state == state]
            # Landings are shown with the trains.
            rows = [
                Row(TASK, task.id, f"{show.state_of(task)}  {words(task.title)}")
                for task in loaded
                if task.kind != LANDING
            ]
            names = [called(row.name) for row in rows]
            size = max(map(len, names[:SHOWN]), default=0)
            named = (
                row._replace(text=f"{name:<{size}}  {row.text}")
                for row, name in zip(rows, names, strict=True)
            )
            kept = [row for row in named if fits(row)]
            yield from kept[:SHOWN]
            rest, unread = len(kept[SHOWN:]), self.found.counts.get(state, 0) - len(loaded)
            more = [f"{rest:,} more {state}"] if rest else []
            more += [f"{unread:,} {state} that are not loaded"] if unread else []
            if more:
                yield Row("", "", f"… {' and '.join(more)}")

    def _messages(self) -> Iterator[Row]:
        for one in self.messages:
            says = words(one.body.splitlines()[0])
            head = f"{called(one.sender)} → {show.receiver(one)} {ago(one.sent_at)}"
            yield Row(MESSAGE, str(one.id), f"{head}: {says}")

    def lease(self, row: Row) -> Lease | None:
        """The lease that a row is about, as it is now."""
        if row.what != LEASE:
            return None
        mine = [one for one in self.found.leases if one.resource == row.name]
        return next((one for one in mine if one.session == row.session), mine[0] if mine else None)

    def asks(self, row: Row) -> str | None:
        """The question that the task of a row asks a person, if it is still open."""
        asked = [one for one in self.found.attention if one.what == "asks"]
        return next(
            (one.says for one in asked if (row.what, row.name) == (TASK, one.subject)), None
        )

    def details(self, row: Row) -> Iterator[str]:
        """Everything known about a row, line by line."""
        yield paint("bold", f"{row.what} {called(row.name)}")
        if row.what == LEASE:
            yield from self._of_lease(row)
        elif row.what == TASK:
            yield from self._of_task(row.name)
        elif row.what == AGENT:
            yield from self._of_agent(row.name)
        else:
            yield from self._of_message(int(row.name))

    def _of_lease(self, row: Row) -> Iterator[str]:
        holders = [one for one in self.found.leases if one.resource == row.name]
        if not holders:
            yield "nobody holds it now"
        for lease in holders:
            yield from facts({
                "held by": f"{called(lease.agent)}, session {lease.session}",
                "for": since(lease.granted_at),
                "left": f"{span(lease.expires_in_ms)} of {span(lease.ttl_ms)}",
                "mode": lease.mode,
                "note": words(lease.note),
                "task": lease.task and called(lease.task),
                "worktree": lease.checkout and quoted(lease.checkout),
            })  # fmt: skip
        yield from under("who waits", (
            blocker_line(one) for one in self.found.waiting
            if one.resource == row.name or self._behind(one.session, one.resource, row.name)
        ))  # fmt: skip
        recent = self.space.events.latest(subject=row.name, limit=RECENT)
        yield from under("what happened", map(show.event_line, recent))

    def _behind(self, session: int, resource: str, held: str) -> bool:
        """Whether a lease blocks somebody who waits for a resource."""
        return any(
            blocker.resource == held
            for one in self.found.attention
            if (one.what, one.session, one.subject) == ("blocked", session, resource)
            for blocker in one.blockers
        )

    def _of_task(self, id: str) -> Iterator[str]:
        try:
            task = self.space.work.show(id)
        except NotFoundError:
            yield "this task no longer exists"
            return
        yield from facts({
            "state": show.state_of(task),
            "title": words(task.title),
            "added by": called(task.author),
            "added": ago(task.added_at),
            **show.task_facts(task),
        })  # fmt: skip
        recent = self.space.events.latest(task=id, limit=RECENT)
        yield from under("what happened", map(show.event_line, recent))

    def _of_agent(self, name: str) -> Iterator[str]:
        presence = [one for one in self.found.agents if one.agent == name]
        if not presence:
            yield "it has no session now"
        for session in (one for who in presence for one in who.sessions):
            where = f"{called(session.host)}, process {session.pid}" if session.pid else "-"
            said = f"  {words(session.status)}" if session.status else ""
            yield f"  session {session.id}, joined {ago(session.joined_at)}, {where}{said}"
        yield from under("holds", (
            f"{called(one.resource)}  {span(one.expires_in_ms)} left  {words(one.note)}"
            for one in self.found.leases if one.agent == name
        ))  # fmt: skip
        yield from under("waits for", (
            f"{called(one.resource)} for {since(one.since_at)}"
            for one in self.found.waiting if one.agent == name
        ))  # fmt: skip
        yield from under("works on", (
            f"{called(one.id)}  {words(one.title)}"
            for one in self.found.tasks if one.agent == name and one.state == "claimed"
        ))  # fmt: skip
        sent = self.space.messages.history(agent=name, limit=MESSAGES)
        yield from under("messages", (line for one in reversed(sent) for line in letter(one)))
        recent = self.space.events.latest(agent=name, limit=RECENT)
        yield from under("what happened", map(show.event_line, recent))

    def _of_message(self, id: int) -> Iterator[str]:
        thread = next((one.thread for one in self.messages if one.id == id), id)
        found = self.space.messages.history(thread=thread)
        if not found:
            yield "this message no longer exists"
            return
        for one in reversed(found):
            yield from (f"  {line}" for line in letter(one))
        try:
            readers = self.space.messages.delivery(id)
        except NotFoundError:
            return
        yield from under("readers", (f"{called(one.agent)} {one.state}" for one in readers))


def letter(one: Message) -> Iterator[str]:
    yield f"{called(one.sender)} → {show.receiver(one)} {ago(one.sent_at)}"
    yield from (f"> {line}" for line in one.body.splitlines())


def facts(pairs: dict[str, str | None]) -> Iterator[str]:
    size = max(map(len, pairs))
    yield from (f"  {name:<{size}}  {value}" for name, value in pairs.items() if value)


def under(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = [f"  {line}" for line in lines]
    if found:
        yield from ("", paint("bold", title), *found)
