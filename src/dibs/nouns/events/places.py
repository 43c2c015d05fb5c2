"""Where a moment is in the journal: from a seq or a time to the events after it or up to it.

The journal is ordered by seq. An event's time is what the wall clock said, which may be wrong or
may be set back. So a time is only used to find a place, and every event between two places is
returned, whatever its clock said:

    since a time: from the first event that is not older
    until a time: to the last event that is not newer

Where the clock was set back, both include more rather than less. The journal has no index by time,
since every write would pay for it. It is searched by samples: the times of a few hundred events,
equally spaced, show between which of them the place is; that part and its neighbour are sampled
again, and finally read. In a journal of up to `READ` events the answer is exact. In a longer one,
a wrong clock that came and went between two samples is not noticed: its events stay where they
are in the order, and do not move the place.
"""

from __future__ import annotations

from dibs.storage.clock import SEQ_LIMIT
from dibs.storage.queries import Queries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

    from dibs.storage.driver import Row
    from dibs.storage.store import Read

    Moment = int | str | datetime | None
    """As a caller gives it. Once checked, a time is text in a single form."""

EVENTS = Queries("events")
SPACE = Queries("space")
SAMPLES = 256
READ = 4096
"""How many places are read one by one rather than sampled."""


def between(tx: Read, since: Moment, until: Moment) -> tuple[int, int]:
    """The seq after which, and the seq up to which, the events of a span are.

    A seq is used as it is: `since` is the last one that was seen, `until` the last one wanted.
    """
    return after(tx, since), upto(tx, until)


def after(tx: Read, since: Moment) -> int:
    """The seq after which the events since a moment begin; 0 for all that are kept."""
    if since is None or isinstance(since, int):
        return since or 0
    at, (low, end) = milliseconds(since), kept(tx)
    high, found = end, end + 1
    while high - low >= READ:
        places = samples(tx, low, high)
        late = next((n for n, (_, one) in enumerate(places) if one["at"] >= at), len(places))
        if late < len(places):
            found, high = places[late][1]["seq"], places[late][0] - 1
        low = places[max(0, late - 2)][1]["seq"]
    first = tx.rows(EVENTS.first_since, low=low, high=high, at=at)[0]["seq"]
    return (found if first is None else first) - 1


def upto(tx: Read, until: Moment) -> int:
    """The seq of the last event that is not newer than a moment."""
    if until is None or isinstance(until, int):
        return SEQ_LIMIT if until is None else until
    at, (low, high) = milliseconds(until), kept(tx)
    found = low - 1
    while high - low >= READ:
        places = samples(tx, low, high)
        early = max((n for n, (_, one) in enumerate(places) if one["at"] <= at), default=-1)
        if early >= 0:
            found = places[early][1]["seq"]
            low = found + 1
        if early + 2 < len(places):
            high = places[early + 2][0]
    last = tx.rows(EVENTS.last_until, low=low, high=high, at=at)[0]["seq"]
    return found if last is None else last


def milliseconds(moment: object) -> int:
    """The wall-clock time of a moment."""
    from dibs.moments import milliseconds_of  # late, since programs continue from a seq

    return milliseconds_of(str(moment))


def kept(tx: Read) -> tuple[int, int]:
    """The seqs between which events are kept."""
    position = tx.rows(SPACE.position)[0]
    first, last = position["pruned_seq"] + 1, position["seq"]
    if not type(first) is type(last) is int:
        raise TypeError("a seq is not a whole number")  # a search for infinity never ends
    return first, last


def samples(tx: Read, low: int, high: int) -> list[tuple[int, Row]]:
    """Sample places from one seq to another, each with the next event from there."""
    step = (high - low) // SAMPLES + 1
    rows = tx.rows(EVENTS.times, low=low, high=high, step=step)
    return [(low + n * step, row) for n, row in enumerate(rows)]
