"""What sessions have used: tokens and money, as the agents' own programs count them.

A program sends its counts to a daemon repeatedly, and again if no answer comes. Each count
belongs to a series, and says which time it covers. It is recorded as an event of the journal,
`session.used`, for its session and for the task that the session had claimed at that time. The
event says which points of which series it was made from, so the journal itself knows what has
been recorded: a point that comes twice counts once, even after a restart and with several daemons.

Promised: a point is recorded once, as long as the journal still has its last record. Money is
counted in millionths of a dollar, and an event has at most six decimal places of it, so a sum
rounded to six places is exact. Not promised: that the numbers are right. They are what the program
reports.
"""

from __future__ import annotations

from typing import NamedTuple

from dibs.nouns.work.tasks import CLAIM_ENDS
from dibs.space.scope import AGENTS, CLIENT, origin_of
from dibs.storage.clock import SEQ_LIMIT
from dibs.storage.queries import Queries
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Read

EVENTS = Queries("events")
SPACE = Queries("space")
USED = "session.used"
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")
COST = "cost_usd"
MICRO = 1_000_000
SCANNED = 50_000
"""How many seqs one read searches."""
POINTS_KEPT = 64
"""How many points of a series are remembered; anything older was recorded already."""
SERIES_KEPT = 100_000
CLAIMS_KEPT_MS = 3_600_000
"""How long after its end a claim is remembered, for usage that is reported late."""
Booked = tuple[int, int, int]
"""A point that was recorded: its start, its time and its value."""


class Amount(NamedTuple):
    """A point of a series, in the terms of dibs.

    client: the program's name and its own id for the session, "" if it gives none
    what: one of `TOKENS`, or `COST`, whose value is in millionths of a dollar
    start, time: in nanoseconds since 1970
    delta: whether it counts from the point before it, not from the start of the series
    """

    client: str
    model: str
    what: str
    series: str
    start: int
    time: int
    value: int
    delta: bool


class Holder(NamedTuple):
    """Who something is recorded for: an agent and, if that is known, its session.

    label: the label of the session
    parts: sessions whose tasks also count, usually those of its subagents
    """

    agent: str
    session: int | None = None
    label: str = ""
    parts: tuple[int, ...] = ()


class Claim:
    """A task that a session has had, from a time to a time, or still has."""

    __slots__ = ("since", "task", "until")

    def __init__(self, task: str, since: int) -> None:
        self.task = task
        self.since = since
        self.until: int | None = None

    def overlap(self, start: int, end: int) -> int:
        """For how many milliseconds of that time it was held; less than 0 if it was not."""
        return min(end, self.until if self.until is not None else end) - max(start, self.since)


class Books:
    """What the journal says up to a seq: what was recorded, and who had which task when."""

    def __init__(self) -> None:
        self.seq = 0
        self._series: dict[str, list[Booked]] = {}
        self._open: dict[str, Claim] = {}
        self._claims: dict[int, list[Claim]] = {}
        self._claimed_at = 0

    def catch_up(self, scope: Scope) -> None:
        """Read the events since then, in one thread at a time."""
        while True:
            with scope.store.read() as tx:
                last = tx.rows(SPACE.position)[0]["seq"]
                upto = min(last, self.seq + SCANNED)
                rows = tx.rows(EVENTS.booked, after=self.seq, upto=upto)
            for row in rows:
                self._take(row)
            self.seq = upto
            if upto == last:
                self._forget()
                return

    def _take(self, row: Row) -> None:
        kind, subject = row["kind"], row["subject"]
        if kind == USED:
            for series, *point in points_in(row):
                kept = self._series.pop(series, [])  # those in use are last
                self._series[series] = [*kept[1 - POINTS_KEPT :], tuple(point)]
        elif kind == "task.claimed" or kind in CLAIM_ENDS:
            before = self._open.pop(subject, None)
            if before is not None:
                before.until = row["at"]
            if kind == "task.claimed" and row["session"] is not None:
                self._open[subject] = claim = Claim(subject, row["at"])
                self._claims.setdefault(row["session"], []).append(claim)
                self._claimed_at = row["at"]

    def _forget(self) -> None:
        """Forget claims that ended long ago, and the least recently used series."""
        while len(self._series) > SERIES_KEPT:
            del self._series[next(iter(self._series))]
        before = self._claimed_at - CLAIMS_KEPT_MS
        kept = {
            session: [one for one in claims if one.until is None or one.until >= before]
            for session, claims in self._claims.items()
        }
        self._claims = {session: claims for session, claims in kept.items() if claims}

    def points(self, series: str) -> list[Booked]:
        return self._series.get(series, [])

    def task(self, holder: Holder, start_ms: int, end_ms: int) -> str | None:
        """The task that a session had claimed at that time: the one it had for the longest.

        The session's own tasks come before those of its parts.
        """
        for sessions in ((holder.session,), holder.parts):
            claims = [one for id in sessions for one in self._claims.get(id or 0, ())]
            claims = [one for one in claims if one.overlap(start_ms, end_ms) >= 0]
            if claims:
                return max(claims, key=lambda one: (one.overlap(start_ms, end_ms), one.since)).task
        return None


def points_in(row: Row) -> list[Any]:
    data = from_text(row["data"])
    found: list[Any] = data["points"]
    return found


def holder_of(scope: Scope, client: str) -> Holder | None:
    """The last session with this id of a program, whichever agent joined it."""
    with scope.store.read() as tx:
        labels = [CLIENT + client]
        labels += [origin_of(row["id"]) + CLIENT + client for row in tx.rows(AGENTS.tokens)]
        row = tx.row(AGENTS.last_of_clients, labels=tuple(labels))
        if row is None:
            return None
        label = row["label"]
        return Holder(row["agent"], row["id"], label, within(tx, f"{label}:"))


def holder_by(scope: Scope, agent: str, origin: str) -> Holder:
    """An agent whose session is unknown; sessions joined from an origin count as its parts."""
    if not origin:
        return Holder(agent)
    with scope.store.read() as tx:
        return Holder(agent, parts=within(tx, origin))


def within(tx: Read, start: str) -> tuple[int, ...]:
    """The sessions whose labels begin with this prefix, which ends with a colon."""
    rows = tx.rows(AGENTS.labelled_within, low=start, high=f"{start[:-1]};")
    return tuple(row["id"] for row in rows)


def holder_in(scope: Scope, session: int) -> Holder:
    """The session with that number."""
    with scope.store.read() as tx:
        row = tx.rows(AGENTS.one, session=session)[0]
    return Holder(row["agent"], row["id"], row["label"])


def book(
    scope: Scope, books: Books, amounts: Iterable[Amount], holder: Callable[[str], Holder]
) -> int:
    """Record what is new in these amounts, in one transaction; return the number of events.

    books: as they were a moment ago; what has been recorded since is read here
    holder: the agent that the sessions of a program belong to, by the program's id for them
    """
    with scope.store.write(None) as tx:
        since: dict[str, list[Booked]] = {}
        for row in tx.rows(EVENTS.booked, after=books.seq, upto=SEQ_LIMIT):
            if row["kind"] == USED:
                for series, *point in points_in(row):
                    since.setdefault(series, []).append(tuple(point))
        used: dict[tuple[Holder, str, str | None], dict[str, Any]] = {}
        for amount in sorted(amounts, key=lambda one: one.time):
            news = since.setdefault(amount.series, [])
            before = books.points(amount.series) + news
            more = change(before, amount)
            if not more:
                continue
            news.append((amount.start, amount.time, amount.value))
            owner = holder(amount.client)
            start = amount.start if amount.delta or not before else max(amount.start, before[-1][1])
            end_ms = min(amount.time // 1_000_000, tx.wall)
            task = books.task(owner, min(start // 1_000_000, end_ms), end_ms)
            said = used.setdefault((owner, amount.model, task), {"points": []})
            said[amount.what] = said.get(amount.what, 0) + more
            said["points"].append((amount.series, *news[-1]))
        for (owner, model, task), said in used.items():
            numbers = {what: said[what] for what in TOKENS if what in said}
            if COST in said:
                numbers[COST] = said[COST] / MICRO
            about = {**numbers, "model": model, "task": task, "points": said["points"]}
            tx.event(USED, owner.agent, about, agent=owner.agent, session=owner.session)
        if not used:
            tx.discard()
    return len(used)


def change(before: list[Booked], amount: Amount) -> int:
    """How much a point adds to what was recorded of its series; 0 if it is not new."""
    start, time, value = amount.start, amount.time, amount.value
    if amount.delta:
        # Two processes may count for one session, so points are not always in order.
        if any(point[:2] == (start, time) for point in before):
            return 0
        late = len(before) >= POINTS_KEPT and time <= min(point[1] for point in before)
        return 0 if late else value
    if not before:
        return value
    last = before[-1]
    if time <= last[1]:
        return 0
    began_again = start > last[0] or value < last[2]
    return value if began_again else value - last[2]
