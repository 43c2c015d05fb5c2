"""Moments: what a seq or a time means to whoever gives it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from dibs.arguments import KINDS
from dibs.errors import InvalidError
from dibs.moments import ACCEPTED, canonical, milliseconds_of
from dibs.records import iso

NOW = datetime(2026, 11, 18, 13, 0, 0, 250_000, UTC)


@pytest.fixture
def zone(request: pytest.FixtureRequest) -> Iterator[None]:
    """The process is in a zone, as TZ says it."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def meant(text: str, side: str = "since", now: datetime = NOW) -> str:
    return canonical(side, text, side, now)


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("90s", "2026-11-18T12:58:30.250Z", None),
        ("10m", "2026-11-18T12:50:00.250Z", None),
        ("1h30m", "2026-11-18T11:30:00.250Z", None),
        ("1h 30 min", "2026-11-18T11:30:00.250Z", None),
        ("1.5h", "2026-11-18T11:30:00.250Z", None),
        ("2D", "2026-11-16T13:00:00.250Z", None),
        ("1w", "2026-11-11T13:00:00.250Z", None),
        ("now", "2026-11-18T13:00:00.250Z", None),
        ("today", "2026-11-17T23:00:00.000Z", "2026-11-18T22:59:59.999Z"),
        ("yesterday", "2026-11-16T23:00:00.000Z", "2026-11-17T22:59:59.999Z"),
        ("2026-11-16", "2026-11-15T23:00:00.000Z", "2026-11-16T22:59:59.999Z"),
        ("2026-07-01", "2026-06-30T22:00:00.000Z", "2026-07-01T21:59:59.999Z"),
        ("14:00", "2026-11-18T13:00:00.000Z", None),
        ("9:05", "2026-11-18T08:05:00.000Z", None),
        ("yesterday 14:00", "2026-11-17T13:00:00.000Z", None),
        ("14:00:30", "2026-11-18T13:00:30.000Z", "2026-11-18T13:00:30.999Z"),
        ("2026-11-16T14:00", "2026-11-16T13:00:00.000Z", None),
        ("2026-11-16T14:00Z", "2026-11-16T14:00:00.000Z", None),
        ("2026-11-16 14:00:30 +05:30", "2026-11-16T08:30:30.000Z", "2026-11-16T08:30:30.999Z"),
        ("2026-11-16T14:00:30-0800", "2026-11-16T22:00:30.000Z", "2026-11-16T22:00:30.999Z"),
        ("2026-11-16T14:00:30.5", "2026-11-16T13:00:30.500Z", None),
        ("2026-11-16t14:00:30.123456z", "2026-11-16T14:00:30.123Z", None),
    ],
)
def test_a_time_has_one_form_which_means_itself(zone, text, since, until):
    assert meant(text, "since") == since
    assert meant(text, "until") == (until or since)
    for side in ("since", "until", "at"):
        found = meant(text, side)
        assert meant(found, side) == KINDS[side].check(side, found) == found
        assert iso(milliseconds_of(found)) == found


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_a_moment_is_the_beginning_of_a_day_and_the_end_of_a_second(zone):
    assert meant("2026-11-16", "at") == "2026-11-15T23:00:00.000Z"
    assert meant("14:00:30", "at") == "2026-11-18T13:00:30.999Z"


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_days_are_as_long_as_the_clocks_make_them(zone):
    # Clocks go forward on 29 March 2026, and back on 25 October.
    assert meant("2026-03-29") == "2026-03-28T23:00:00.000Z"
    assert meant("2026-03-29", "until") == "2026-03-29T21:59:59.999Z"
    assert meant("2026-10-25") == "2026-10-24T22:00:00.000Z"
    assert meant("2026-10-25", "until") == "2026-10-25T22:59:59.999Z"
    noon = datetime(2026, 10, 26, 11, tzinfo=UTC)
    assert meant("yesterday", now=noon) == "2026-10-24T22:00:00.000Z"
    # 24 hours before noon of that day, it was 13:00 by the clocks.
    assert meant("1d", now=datetime(2026, 3, 29, 10, tzinfo=UTC)) == "2026-03-28T10:00:00.000Z"
    # 02:30 occurs twice: nothing of either is left out.
    assert meant("2026-10-25T02:30") == "2026-10-25T00:30:00.000Z"
    assert meant("2026-10-25T02:30", "until") == "2026-10-25T01:30:00.000Z"
    # 02:30 does not occur.
    assert meant("2026-03-29T02:30") <= "2026-03-29T01:00:00.000Z"
    assert meant("2026-03-29T02:30", "until") >= "2026-03-29T01:00:00.000Z"


@pytest.mark.parametrize("zone", ["America/Sao_Paulo"], indirect=True)
def test_a_day_without_a_midnight_begins_when_it_does(zone):
    # On 4 November 2018, clocks went from 00:00 to 01:00.
    assert meant("2018-11-04") == "2018-11-04T03:00:00.000Z"
    assert meant("2018-11-03", "until") == "2018-11-04T02:59:59.999Z"


@pytest.mark.parametrize("zone", ["Asia/Tokyo"], indirect=True)
def test_today_is_that_of_the_zone_that_is_said(zone):
    late = datetime(2026, 11, 17, 20, tzinfo=UTC)  # the 18th in Tokyo
    assert meant("14:00", now=late) == "2026-11-18T05:00:00.000Z"
    assert meant("14:00Z", now=late) == "2026-11-17T14:00:00.000Z"


@pytest.mark.parametrize("zone", ["Asia/Tokyo"], indirect=True)
def test_python_s_own_times_are_taken(zone):
    check = KINDS["until"].check
    assert check("until", datetime(2026, 11, 16, 9)) == "2026-11-16T00:00:00.000Z"
    assert check("until", datetime(2026, 11, 16, 9, tzinfo=UTC)) == "2026-11-16T09:00:00.000Z"
    west = timezone(timedelta(hours=-8))
    assert check("until", datetime(2026, 11, 16, 9, 0, 0, 999_999, west)).endswith("00.999Z")
    assert check("until", date(2026, 11, 16)) == "2026-11-16T14:59:59.999Z"


@pytest.mark.parametrize("value", [0, 17, "17", "0017", "2026", "20261116"])
def test_digits_alone_are_a_seq(value):
    for name in ("since", "until", "at", "a", "b"):
        assert KINDS[name].check(name, value) == int(value)


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "x", "-5", "+5", "1.5", "h", "5y", "tomorrow", "1h ago", "٣h",
        "2026-13-01", "2026-02-30", "2026-1-1", "2026-11-16T", "2026-11-16T25:00",
        "2026-11-1614:00",
        "24:00", "14:60", "14:00:60", "2026-11-16T14:00+99:00", "2026-11-16Z", "T14:00",
        "9" * 25, "99999999w", "9" * 14 + "w", "0001-01-01", "1969-12-31T23:00Z",
        "now\n", "today\n",
        None, True, 1.5, b"1h", -1, 2**63, [], {}, timedelta(hours=1), datetime.min,
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_what_is_neither_is_refused_and_what_is_accepted_is_said(value):
    with pytest.raises(InvalidError) as refused:
        KINDS["since"].check("since", value)
    number = isinstance(value, int) and not isinstance(value, bool)
    if not number and "before 1970" not in refused.value.message:
        assert refused.value.next == ACCEPTED
