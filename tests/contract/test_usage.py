"""What sessions have used: booked once, on the session and the task it is of."""

from __future__ import annotations

import pytest

import dibs
from dibs.nouns.agents import usage
from dibs.nouns.agents.usage import Amount, Books, Holder
from tests.contract.waiting import ContractClock
from tests.contract.world import LONG_S, Opener, direct

MS = 1_000_000
CLIENT = "claude:5e55"


class Ledger:
    """Books what a test says, as a daemon does, and reads what was booked."""

    def __init__(self, space: dibs.Dibs, clock: ContractClock) -> None:
        self.space, self.clock = space, clock
        self.books = Books()

    def book(self, *amounts: Amount, catch_up: bool = True) -> int:
        if catch_up:
            self.books.catch_up(self.space.scope)
        return usage.book(self.space.scope, self.books, amounts, self.holder)

    def holder(self, client: str) -> Holder:
        return usage.holder_of(self.space.scope, client) or Holder("nobody")

    def point(self, value: int, time: int = 0, start: int = 0, **more) -> Amount:
        """A point whose times are milliseconds from the test's beginning."""
        begin = 1_000
        about = {
            "client": CLIENT,
            "model": "opus",
            "what": "input_tokens",
            "series": "s",
            "delta": True,
        }
        times = {"start": (begin + start) * MS, "time": (begin + time) * MS}
        return Amount(**{**about, **times, "value": value, "delta": True, **more})

    @property
    def events(self):
        return self.space.events.since(kind="session.used")

    def total(self, what: str = "input_tokens") -> int:
        return sum(event.data.get(what, 0) for event in self.events)


@pytest.fixture
def ledger(space, clock) -> Ledger:
    return Ledger(space, clock)


@direct("booking is a daemon's own")
def test_a_delta_that_comes_twice_counts_once(ledger: Ledger):
    first, second = ledger.point(10, 60, 0), ledger.point(5, 120, 60)
    assert ledger.book(first) == 1
    assert ledger.book(first, second) == 1
    assert ledger.book(second, first) == 0
    assert ledger.total() == 15


@direct("booking is a daemon's own")
def test_a_point_that_another_daemon_has_booked_meanwhile_counts_once(ledger, elsewhere, clock):
    other = Ledger(elsewhere, clock)
    ledger.book(ledger.point(1, 1))
    other.book(other.point(10, 60, 1))
    assert ledger.book(ledger.point(10, 60, 1), catch_up=False) == 0
    assert ledger.total() == 11


@direct("booking is a daemon's own")
def test_a_new_daemon_knows_what_the_last_one_booked(ledger, space, clock):
    ledger.book(ledger.point(10, 60), ledger.point(7, 60, series="sum", delta=False))
    after = Ledger(space, clock)
    assert after.book(ledger.point(10, 60), ledger.point(9, 90, series="sum", delta=False)) == 1
    assert after.total() == 10 + 9


@direct("booking is a daemon's own")
def test_a_cumulative_series_counts_what_it_has_risen_by(ledger: Ledger):
    for value, time in ((10, 10), (10, 20), (25, 30), (25, 30), (20, 25)):
        ledger.book(ledger.point(value, time, delta=False))
    assert ledger.total() == 25
    ledger.book(ledger.point(4, 50, 40, delta=False))  # it began again
    assert ledger.total() == 29
    ledger.book(ledger.point(3, 60, 40, delta=False))  # again, and did not say so
    assert ledger.total() == 32
    assert len(ledger.events) == 4, "what did not rise made no event"


@direct("booking is a daemon's own")
def test_deltas_of_two_processes_in_one_session_count_both(ledger: Ledger):
    ledger.book(ledger.point(10, 60, 0))
    ledger.book(ledger.point(5, 50, 1))
    assert ledger.total() == 15


@direct("booking is a daemon's own")
def test_points_of_several_series_are_one_event(ledger: Ledger):
    ledger.book(
        ledger.point(10, 60),
        ledger.point(3, 60, series="o", what="output_tokens"),
        ledger.point(2_500, 60, series="c", what="cost_usd"),
        ledger.point(9, 60, series="m", model="haiku"),
    )
    first, second = ledger.events
    said = {name: value for name, value in first.data.items() if "tokens" in name or "usd" in name}
    assert said == {"input_tokens": 10, "output_tokens": 3, "cost_usd": 0.0025}
    assert (first.data["model"], second.data["model"]) == ("opus", "haiku")


@direct("booking is a daemon's own")
def test_it_is_booked_on_the_session_and_the_task_it_had_then(opener: Opener, space, clock):
    agent = opener.join(space, "alice", client=CLIENT, ttl_s=LONG_S)
    ledger = Ledger(space, clock)
    agent.work.add("one")
    agent.work.add("two")

    def used(seconds: int, value: int) -> Amount:
        end = clock.wall() * MS
        return ledger.point(value, series=f"s{value}", start=0)._replace(
            start=end - seconds * 1000 * MS, time=end
        )

    ledger.book(used(10, 1))
    one = agent.work.claim("one")
    clock.advance(50)
    ledger.book(used(50, 2))
    agent.work.complete("one", epoch=one.epoch)
    ledger.book(used(40, 3))  # told after its end
    clock.advance(30)
    agent.work.claim("two")
    clock.advance(20)
    ledger.book(used(100, 4))  # one had more of this time than two
    ledger.book(used(20, 5))
    agent.close()
    ledger.book(used(20, 6))
    assert [(event.agent, event.session, event.data["task"]) for event in ledger.events] == [
        ("alice", agent.session, task) for task in (None, "one", "one", "one", "two", "two")
    ]


@direct("booking is a daemon's own")
def test_what_a_subagent_has_claimed_counts_if_the_agent_has_claimed_nothing(opener, space, clock):
    main = opener.join(space, "alice", client=CLIENT, ttl_s=LONG_S)
    part = opener.join(space, "alice/part", client=f"{CLIENT}:part", ttl_s=LONG_S)
    stranger = opener.join(space, "bob", client=f"{CLIENT}2", ttl_s=LONG_S)
    ledger = Ledger(space, clock)
    for agent, task in ((part, "parts"), (stranger, "others")):
        agent.work.claim(task)
    clock.advance(10)
    now = {"start": (clock.wall() - 10_000) * MS, "time": clock.wall() * MS}
    ledger.book(ledger.point(1, series="a")._replace(**now))
    main.work.claim("own")
    ledger.book(ledger.point(1, series="b")._replace(**now))
    assert [event.data["task"] for event in ledger.events] == ["parts", "own"]
    assert {event.session for event in ledger.events} == {main.session}


@direct("booking is a daemon's own")
def test_old_points_beyond_what_is_remembered_are_not_booked_again(ledger: Ledger):
    for number in range(usage.POINTS_KEPT + 5):
        ledger.book(ledger.point(1, number + 1, number))
    assert ledger.book(ledger.point(1, 1, 0)) == 0
    assert ledger.total() == usage.POINTS_KEPT + 5
