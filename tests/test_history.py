"""What a report makes of single events: those that are rare, old, or of a wrong clock."""

from __future__ import annotations

from typing import Any

from dibs.nouns.events.accounts import Sums, day_name, tally
from dibs.nouns.events.contention import Meetings, percentile
from dibs.nouns.events.history import History, Period
from dibs.records import Tally, to_text

ALL = Period(first=0, last=1000, begin_at=0, end_at=1_000_000)


def row(
    seq: int, kind: str, subject: str, at: int, data: Any = None, **more: Any
) -> dict[str, Any]:
    text = None if data is None else to_text(data)
    return {
        "seq": seq, "kind": kind, "agent": "alice", "session": 1, "subject": subject,
        "data": text, "at": at, **more,
    }  # fmt: skip


def told(*rows: dict[str, Any], period: Period = ALL) -> Tally:
    sums = Sums("agent")
    history = History(period, sums)
    for one in rows:
        history.take(one)
    history.finish()
    return tally(None, sums.total)


def groups(by: str, *rows: dict[str, Any]) -> dict[str | None, Tally]:
    sums = Sums(by)
    history = History(ALL, sums)
    for one in rows:
        history.take(one)
    return {one.key: one for one in sums.tallies(100)[0]}


def test_what_sessions_used_is_booked_on_the_task_that_is_named_or_worked_on() -> None:
    used = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25}
    cached = {"cache_read_tokens": 7, "cache_creation_tokens": 3}
    found = groups(
        "task",
        row(1, "session.used", "alice", 1, used),
        row(2, "task.claimed", "t", 2, {"epoch": 2, "left_ms": 1000}),
        row(3, "session.used", "alice", 3, used | cached),
        row(4, "session.used", "alice", 4, used | {"task": "u", "model": "m"}),
    )
    assert {key: (one.input_tokens, one.cost_usd) for key, one in found.items()} == {
        None: (10, 0.25), "t": (10, 0.25), "u": (10, 0.25),
    }  # fmt: skip
    assert (found["t"].output_tokens, found["t"].cache_tokens) == (5, 10)


def test_a_clock_that_is_set_back_makes_no_time_negative() -> None:
    found = told(
        row(1, "lease.claimed", "a", 5000, {"epoch": 1, "ttl_ms": 60_000}),
        row(2, "lease.released", "a", 1000, {"epoch": 1}),
        row(3, "lease.queued", "a", 9000, {"ticket": 3}),
        row(4, "lease.unqueued", "a", 2000, {"ticket": 3, "why": "withdrawn"}),
    )
    assert (found.held_ms, found.waited_ms, found.gave_up) == (0, 0, 1)


def test_events_of_older_releases_say_less_and_still_count() -> None:
    found = told(
        row(1, "task.claimed", "t", 0),
        row(2, "lease.claimed", "a", 0, {"epoch": 1, "mode": "exclusive"}),
        row(3, "lease.renewed", "a", 1000, {"epoch": 1}),
        row(4, "task.renewed", "t", 2000),
        row(5, "lease.released", "a", 3000),
        row(6, "task.completed", "t", 4000, {"epoch": 1}),
    )
    assert (found.done, found.held_ms, found.worked_ms) == (1, 3000, 4000)


def test_a_renewal_lasts_as_long_as_the_claim_if_it_does_not_say() -> None:
    found = told(
        row(1, "lease.claimed", "a", 0, {"epoch": 1, "ttl_ms": 5000}),
        row(2, "lease.renewed", "a", 4000, {"epoch": 1}),
        row(3, "lease.expired", "a", 90_000, {"epoch": 1}),
    )
    assert (found.held_ms, found.expired) == (9000, 1)


def test_a_task_that_only_has_the_id_of_a_landing_is_a_task() -> None:
    id = "land:main:feature@0123456789ab"
    claimed, done = {"epoch": 2, "left_ms": 1000}, {"epoch": 2}
    landing = told(
        row(1, "task.added", id, 0, {"kind": "landing"}),
        row(2, "task.claimed", id, 1, claimed),
        row(3, "task.completed", id, 2, done),
    )
    assert (landing.landed, landing.done) == (1, 0)
    posing = told(
        row(1, "task.added", id, 0, {"kind": ""}),
        row(2, "task.claimed", id, 1, claimed),
        row(3, "task.completed", id, 2, done),
    )
    assert (posing.landed, posing.done) == (0, 1)


def test_a_lease_kept_for_another_task_counts_for_that_from_then_on() -> None:
    found = groups(
        "task",
        row(1, "task.claimed", "t", 0, {"epoch": 1, "left_ms": 90_000}),
        row(2, "lease.claimed", "a", 0, {"epoch": 1, "ttl_ms": 90_000, "task": "t"}),
        row(3, "lease.renewed", "a", 1000, {"epoch": 1, "left_ms": 9000, "task": "u"}),
        row(4, "task.renewed", "u", 2000, {"epoch": 1, "left_ms": 60_000}),
        row(5, "lease.released", "a", 41_000, {"epoch": 1}),
    )
    assert (found["t"].held_ms, found["u"].held_ms) == (1000, 40_000)


def test_what_nobody_knows_yet_is_left_alone() -> None:
    assert told(row(1, "lease.polished", "a", 0), row(2, "message.sent", "all", 0)) == Tally(
        key=None
    )


def test_percentiles_are_those_by_nearest_rank() -> None:
    assert percentile([], 50) == 0
    assert percentile([7], 99) == 7
    assert [percentile([1, 2, 3, 4], share) for share in (25, 26, 50, 51, 99, 100)] == [
        1, 2, 2, 3, 4, 4,
    ]  # fmt: skip


def test_a_wait_of_an_older_release_counts_for_its_paths_and_for_no_pair() -> None:
    met = Meetings()
    history = History(ALL, met)
    history.take(row(1, "lease.queued", "a", 0, {"ticket": 1, "mode": "exclusive"}))
    history.take(row(2, "lease.queued", "b", 0, {"ticket": 1, "mode": "exclusive"}))
    history.take(row(3, "lease.claimed", "a", 500, {"epoch": 3, "ticket": 1, "ttl_ms": 1}))
    history.take(row(4, "lease.claimed", "b", 500, {"epoch": 3, "ticket": 1, "ttl_ms": 1}))
    assert [(one.what, one.waited_ms) for one in met.paths(9)] == [("a", 500), ("b", 500)]
    assert (met.total.waits, met.pairs(9), met.splits(9), met.orders(9)) == (1, (), (), ())


def test_days_have_the_names_of_the_calendar() -> None:
    assert (day_name(0), day_name(20_775)) == ("1970-01-01", "2026-11-18")
