"""What the state machines share: a space of their own, a journal to watch, and settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test

import dibs
from dibs.errors import DibsError
from tests.clock import ManualClock

WEEK_S = 7 * 86_400

# Many examples on SQLite, fewer on PostgreSQL, which is slower; `make stress` runs more of both.
SHORT = {"sqlite": (50, 40), "postgres": (8, 30)}
FULL = {"sqlite": (1_000, 60), "postgres": (100, 60)}

SIZES = [
    pytest.param(SHORT, id="short"),
    pytest.param(FULL, id="full", marks=[pytest.mark.stress, pytest.mark.timeout(1800)]),
]


class SpaceMachine(RuleBasedStateMachine):
    """A fresh space, a clock that only the machine moves, and a journal that is read along."""

    url: str
    user_dir: str

    def __init__(self) -> None:
        super().__init__()
        self.clock = self.new_clock()
        self.space = dibs.open(
            self.url,
            space=f"model-{uuid4().hex}",
            clock=self.clock,
            user_dir=self.user_dir,
            start=os.path.join(self.user_dir, "tree"),
            durability="fast",
        )
        self.on_sqlite = not self.url.startswith("postgresql://")
        self.agents: dict[str, dibs.Agent] = {}
        self.cursor = 0

    def new_clock(self) -> ManualClock:
        return ManualClock()

    @property
    def now(self) -> int:
        return self.clock.now()

    def agent(self, name: str) -> dibs.Agent:
        """The agent's session, joined when it is first needed."""
        if name not in self.agents:
            self.agents[name] = self.space.join(name, ttl_s=WEEK_S)
        return self.agents[name]

    @contextmanager
    def refused(
        self, *kinds: type[DibsError], settling: frozenset[str] = frozenset()
    ) -> Iterator[None]:
        """The block must raise one of these, and leave no trace in the store.

        settling: the events of what had come about by itself, which it may have noticed
        """
        last = self.space.events.last()
        with pytest.raises(kinds):
            yield
        assert {event.kind for event in self.space.events.since(last)} <= settling

    @invariant()
    def journal_has_no_gap(self) -> None:
        events = self.space.events.since(self.cursor)
        last = self.space.events.last()
        assert [event.seq for event in events] == list(range(self.cursor + 1, last + 1))
        self.cursor = last

    @invariant()
    def every_signature_fits(self) -> None:
        assert self.space.agents.verify() == ()

    def teardown(self) -> None:
        for agent in self.agents.values():
            agent.close()
        self.space.close()


def run(machine: type[SpaceMachine], url: str, user_dir: str, size: dict[str, Any]) -> None:
    """Run the machine on one database, so many examples of so many steps."""
    for folder in (".git", "src/sub", "docs"):
        os.makedirs(os.path.join(user_dir, "tree", folder), exist_ok=True)
    for file in ("src/a.py", "src/b.py", "src/sub/a.py", "docs/c.md"):
        with open(os.path.join(user_dir, "tree", file), "w", encoding="utf-8"):
            pass
    examples, steps = size["postgres" if url.startswith("postgresql://") else "sqlite"]
    bound = type(machine.__name__, (machine,), {"url": url, "user_dir": user_dir})
    run_state_machine_as_test(
        bound,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
