"""Moments: what a caller means by a seq or a time, in one form that can be sent.

A seq stays a whole number. A time becomes ISO 8601 in UTC with milliseconds, on the caller's side:
only there are the caller's clock and time zone known. Reading that form again gives the same
form, so a daemon may do so.

    1234                          a seq: digits alone are always a seq, even 2026
    90s  1h30m  2d  1w  5 min     that long ago, to the millisecond: a day has 24 hours here
    now  today  yesterday         by the caller's calendar
    2026-11-16  14:00  14:00:30   a day; a time of today
    2026-11-16T14:00              also `yesterday 14:00`, and all with a zone: Z, +01:00

Without a zone, a time is in the caller's zone. A day means its beginning, or for `until` its end;
a time to the second means that whole second, so that times shown by `dibs log` can be used as
arguments. If a time occurs twice when clocks go back, `since` takes the first, others the second.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta, timezone

from dibs.arguments import duration
from dibs.errors import InvalidError
from dibs.records import iso

SINCE, UNTIL, AT = "since", "until", "at"
ACCEPTED = (
    "give a seq such as 1234, or a time: 90s, 5 min, 1h30m, 2d or 1w (that long ago), now, today, "
    "yesterday, 2026-11-16, 14:00, 2026-11-16T14:00:30, or that with Z or +01:00"
)
DAY, TICK = timedelta(days=1), timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CALENDAR = re.compile(
    r"(?:(?P<day>\d{4}-\d\d-\d\d|today|yesterday)(?:[T ](?=\d)|\Z))?"
    r"(?:(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
    r" ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)


def canonical(what: str, value: object, side: str, now: datetime | None = None) -> str:
    """A time in its one form; side: since, until or at, which decides what a day means."""
    if not isinstance(value, (str, date)):
        kind = type(value).__name__
        raise InvalidError(f"{what} must be a seq or a time, not {kind}", next=ACCEPTED)
    now = now or datetime.fromtimestamp(time.time_ns() // 1_000_000 / 1000, UTC)
    try:
        found = of_text(value, side, now) if isinstance(value, str) else of_date(value, side)
        milliseconds = None if found is None else (found - EPOCH) // TICK
    except (ValueError, OverflowError, OSError):
        milliseconds = None  # no such day, or outside the calendar
    if milliseconds is None:
        text = ascii(value if isinstance(value, str) else str(value))
        shown = text if len(text) <= 80 else f"{text[:80]}…"
        raise InvalidError(f"{what} is {shown}, which is neither a seq nor a time", next=ACCEPTED)
    if milliseconds < 0:
        raise InvalidError(f"{what} is before 1970", next="give a later time, or omit it")
    return iso(milliseconds)


def milliseconds_of(moment: str) -> int:
    """The milliseconds of a time in its one form."""
    return (datetime.fromisoformat(moment) - EPOCH) // TICK


def of_date(value: date, side: str) -> datetime:
    """A day, or a time to the microsecond, as Python has them."""
    if not isinstance(value, datetime):
        return day(value, side)
    return local(value) if value.tzinfo is None else value.astimezone(UTC)


def local(value: datetime) -> datetime:
    """A time in the caller's zone. Where clocks skip it, `astimezone` would be an hour off."""
    seconds = value.replace(microsecond=0).timestamp()
    return EPOCH + timedelta(seconds=seconds, microseconds=value.microsecond)


def of_text(text: str, side: str, now: datetime) -> datetime | None:
    """The time in a text; None if there is none."""
    if text.casefold() == "now":
        return now
    if (ago_s := duration(text)) is not None:
        return now - timedelta(seconds=ago_s)
    found = CALENDAR.fullmatch(text)
    if found is None or not text:
        return None
    zone = zone_of(found["zone"])
    today = now.astimezone(zone).date()
    word = (found["day"] or "today").casefold()
    which = {"today": today, "yesterday": today - DAY}.get(word) or date.fromisoformat(word)
    if found["hour"] is None:
        return day(which, side)
    second, fraction = int(found["second"] or 0), found["fraction"]
    clock = datetime(
        which.year, which.month, which.day, int(found["hour"]), int(found["minute"]), second
    )
    if zone is None:
        twice = [local(clock.replace(fold=fold)) for fold in (0, 1)]
        instant = min(twice) if side == SINCE else max(twice)
    else:
        instant = clock.replace(tzinfo=zone)
    if fraction is not None:
        return instant + int(fraction.ljust(9, "0")[:9]) // 1_000_000 * TICK
    whole = found["second"] is not None and side != SINCE
    return instant + timedelta(seconds=1) - TICK if whole else instant


def zone_of(text: str | None) -> timezone | None:
    """The zone in a text; None for the caller's own."""
    if text is None:
        return None
    if text.upper() in ("Z", "UTC"):
        return UTC
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(text[1:3]), minutes=int(text[-2:])))


def day(which: date, side: str) -> datetime:
    """The beginning of a day in the caller's zone, or its last millisecond.

    Where midnight is skipped or occurs twice, the day begins with its first existing time.
    """
    begins = which + DAY if side == UNTIL else which
    found = local(datetime(begins.year, begins.month, begins.day))
    return found - TICK if side == UNTIL else found
