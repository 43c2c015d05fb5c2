"""How a period of the journal is read: from where to where, a window at a time.

There are three ways to find what began before the period: the last events before it are read too,
the tables have what is still open, and an end within the period is an event itself. One case is not
seen: something that began before the events that are read, and ended after a past period.

Reading is limited: it takes no more than the newest `MOST` events of the period, and no longer
than `LOCAL_S`; in a daemon, `SERVED_MOST` and `SERVED_S`. The result then covers a shorter period,
and says so. Events are counted, since a store that was restored leaves out most of its seqs.
"""

from __future__ import annotations

import time

from dibs.errors import InvalidError
from dibs.nouns.events import places
from dibs.nouns.events.history import History, Open, Period
from dibs.storage.queries import Queries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from dibs.nouns.events.history import Account
    from dibs.space.scope import Scope
    from dibs.storage.store import Read

    A = TypeVar("A", bound=Account)

EVENTS = Queries("events")
SPACE = Queries("space")
WINDOW = 5_000
"""How many events one read transaction looks at."""
BEFORE = 100_000
"""How many events before the period are read, to know what was open when it began."""
MOST, SERVED_MOST = 5_000_000, 400_000
LOCAL_S, SERVED_S = 300.0, 6.0
STANDING = 100_000
"""How many earlier leases, tickets and claims are looked at."""


class Reading:
    """A period of the journal, told to an account.

    period: the one that was read
    known_at, unknown, events, cut: as in a report
    """

    period: Period

    def __init__(self, scope: Scope, since: int | str | None, until: int | str | None) -> None:
        self._read = scope.read
        self._since = since
        self._until = until
        self.known_at: int | None = None
        self.events = self.unknown = 0
        self.cut = False
        served = scope.store.page_bytes is not None
        self._most = SERVED_MOST if served else MOST
        self._ends = time.monotonic() + (SERVED_S if served else LOCAL_S)

    def tell(self, make: Callable[[], A]) -> A:
        """Read the period, and tell it to an account; make: returns an empty account"""
        while True:
            account = make()
            if self._tell(account):
                return account

    def _tell(self, account: Account) -> bool:
        """Whether all of it was there; if not, it was pruned meanwhile."""
        self.events = 0
        with self._read() as tx:
            place = self._find(tx)
            history = History(self.period, account)
            if place:
                stood(tx, history, place)
        while place < self.period.last:
            if time.monotonic() > self._ends:
                self._end_at(history, place)
                break
            inside = place >= self.period.first
            upto = self.period.last if inside else self.period.first
            with self._read() as tx:
                if tx.rows(SPACE.position)[0]["pruned_seq"] > place:
                    return False
                window = tx.rows(EVENTS.oldest_events, after=place, upto=upto, limit=WINDOW)[0]
                if window["number"] == WINDOW:
                    upto = window["seq"]
                rows = tx.rows(EVENTS.told, after=place, upto=upto)
            for row in rows:
                history.take(row)
            self.events += window["number"] if inside else 0
            place = upto
        history.finish()
        self.unknown = history.unknown if self.known_at is not None else 0
        return True

    def _end_at(self, history: History, place: int) -> None:
        """Stop for lack of time: the period ends with what was read."""
        with self._read() as tx:
            end_at = at_of(tx, place)
        was, self.cut = self.period, True
        first = min(was.first, place)
        end_at = was.end_at if end_at is None else min(was.end_at, end_at)
        begin_at = min(was.begin_at, end_at)
        self.period = Period(first=first, last=place, begin_at=begin_at, end_at=end_at)
        history.period = self.period

    def _find(self, tx: Read) -> int:
        """Set the period; return the event after which reading begins."""
        since, until = self._since, self._until
        position = tx.rows(SPACE.position)[0]
        kept, end = position["pruned_seq"], position["seq"]
        asked = min(places.after(tx, since), end)
        first, last = max(kept, asked), min(places.upto(tx, until), end)
        oldest = tx.row(EVENTS.oldest)
        oldest_at = tx.wall if oldest is None else oldest["at"]
        begin_at, end_at = at_of(tx, first) or oldest_at, tx.wall
        if isinstance(since, str):
            begin_at = places.milliseconds(since)
        if isinstance(until, str):
            end_at = min(end_at, places.milliseconds(until) + 1)  # including that millisecond
        elif until is not None and until < end:
            end_at = at_of(tx, last) or oldest_at
        if since is not None and until is not None and (last < asked or end_at < begin_at):
            raise InvalidError("since is after until", next="give the earlier moment as since")
        end_at = max(begin_at, end_at)
        # The period begins with the first kept event: earlier ones may have been pruned.
        missing = kept > 0 and first == kept and not (isinstance(since, int) and since >= kept)
        hidden = missing and (not isinstance(since, str) or oldest_at > begin_at)
        self.known_at = oldest_at if hidden else None
        earliest = back(tx, last, self._most)
        self.cut = earliest > first
        if self.cut:
            first, self.known_at = earliest, None
            begin_at = min(end_at, at_of(tx, first) or begin_at)
        self.period = Period(first=first, last=max(first, last), begin_at=begin_at, end_at=end_at)
        return max(int(kept), back(tx, first, BEFORE))


def back(tx: Read, seq: int, number: int) -> int:
    """The event after which so many follow up to a seq; 0 if there are fewer."""
    row = tx.row(EVENTS.back, upto=seq, number=number) if seq > number else None
    return 0 if row is None else int(row["seq"])


def at_of(tx: Read, seq: int) -> int | None:
    """When an event was written; None if the journal has no event this early."""
    row = tx.row(SPACE.last, before=seq + 1)
    return None if row is None else int(row["at"])


def stood(tx: Read, history: History, upto: int) -> None:
    """Tell a history what is open now and began before the events that it reads."""

    def when(deadline: int) -> int:
        return tx.wall + deadline - tx.now

    asked = {"upto": upto, "limit": STANDING}
    for row in tx.rows(EVENTS.old_claims, **asked):
        claim = Open(row["agent"], row["session"], row["id"], (), None, when(row["due"]))
        history.stood("task", row["id"], claim)
    for row in tx.rows(EVENTS.old_leases, **asked):
        paths, began = (row["resource"],), row["granted_at"]
        lease = Open(row["agent"], row["session"], row["task"], paths, began, when(row["deadline"]))
        history.stood("lease", row["resource"], lease)
    for row in tx.rows(EVENTS.old_tickets, **asked):
        paths, began = (row["resource"],), row["since_at"]
        ticket = Open(row["agent"], row["session"], None, paths, began)
        history.stood("ticket", row["number"], ticket)
