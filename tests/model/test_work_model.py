"""Tasks against a small model: the whole state machine, `next`, epochs, dependencies, landings.

In the model, a task changes its state at the very moment when it is due. The store lets it
lie until somebody looks for work, so what it shows is brought up to date before comparing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

import dibs
from dibs.errors import (
    EmptyError,
    ExistsError,
    HeldError,
    InvalidError,
    NotFoundError,
    NotYoursError,
    StaleError,
    StateError,
)
from dibs.nouns.work import handing
from dibs.records import Task as Record
from tests.model.machines import SIZES, SpaceMachine, run

AGENTS = st.sampled_from(["alice", "bob", "carol"])
NAMES = ["t1", "t2", "t3", "t4", "t5", "t6"]
IDS = st.sampled_from(NAMES)
TAGS = ["python", "sql"]
SETS_OF_TAGS = st.lists(st.sampled_from(TAGS), unique=True, max_size=2)
KINDS = st.sampled_from(["", "review"])
COMMITS = ["1" * 40, "2" * 40]
LANDINGS = [f"land:main:feature@{commit[:12]}" for commit in COMMITS]
ANY = st.sampled_from([*NAMES, *LANDINGS])
TTLS = st.sampled_from([5, 60])
ENDED = ("completed", "failed", "dead", "cancelled")


@dataclass
class Task:
    state: str
    number: int
    priority: int = 0
    kind: str = ""
    tags: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    max_attempts: int = 3
    not_before: int | None = None
    attempts: int = 0
    due: int | None = None
    agent: str | None = None
    session: int | None = None
    epoch: int | None = None
    result: object = None
    ttl_ms: int = 0
    author: str = ""
    landing: str | None = None
    asked: str | None = None
    acked: str | None = None

    @property
    def asks(self) -> bool:
        return self.state == "blocked" and self.asked is not None and self.acked is None

    @property
    def parked(self) -> bool:
        return self.asks or (self.state == "blocked" and self.landing is not None)

    def come_back(self) -> None:
        """Its landing has ended without it."""
        self.landing = None
        self.unclaim("dead" if self.attempts >= self.max_attempts else "available")

    def unclaim(self, state: str, due: int | None = None) -> None:
        self.state, self.due, self.session = state, due, None

    def lose(self) -> None:
        """Its claimer is lost, which has cost an attempt."""
        self.unclaim("dead" if self.attempts >= self.max_attempts else "available")


SETTLING = frozenset(
    {"task.freed", "task.available", "task.dead", "session.died", "session.expired"}
    | {"task.returned", "message.sent"}
)
"""What somebody who asks for a task notes of others on the way, whatever it gets."""


class WorkMachine(SpaceMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[str, Task] = {}
        self.claims: list[tuple[str, int, str, int]] = []  # agent, session, task, epoch

    # The model.

    def fall_due(self) -> None:
        for task in self.tasks.values():
            if task.due is not None and task.due <= self.now:
                if task.state == "claimed":
                    task.lose()
                else:
                    task.unclaim("available")
        bring_back(self.tasks)

    def handed_in(self, landing: str) -> list[str]:
        return [
            id
            for id, task in self.tasks.items()
            if task.state == "blocked" and task.landing == landing
        ]

    def completed(self, *ids: str) -> None:
        """Open what has waited for these, and complete what was handed in with them."""
        for landing in ids:
            inside = self.handed_in(landing)
            for id in inside:
                task, result = self.tasks[id], self.tasks[landing].result
                task.unclaim("completed")
                task.result = task.result if result is None else result
            if inside:
                self.completed(*inside)
        for other in self.tasks.values():
            waits = other.state == "blocked" and not other.parked and set(ids) & set(other.after)
            if waits and self.complete_all(other.after):
                later = other.not_before is not None and other.not_before > self.now
                other.state = "blocked" if later else "available"
                other.due = other.not_before if later else None

    def complete_all(self, after: list[str]) -> bool:
        return all(self.tasks[id].state == "completed" for id in after if id in self.tasks) and (
            set(after) <= self.tasks.keys()
        )

    def closes_cycle(self, id: str, after: list[str]) -> bool:
        front, seen = list(after), set()
        while front:
            here = front.pop()
            if here == id:
                return True
            if here not in seen:
                seen.add(here)
                front += self.tasks[here].after if here in self.tasks else []
        return False

    def owned(self, name: str, id: str) -> Task | None:
        task, agent = self.tasks.get(id), self.agents.get(name)
        if task is None or agent is None or task.state != "claimed":
            return None
        return task if task.session == agent.session else None

    def take(self, name: str, id: str, ttl_s: int, record: Record) -> None:
        task, agent = self.tasks[id], self.agents[name]
        assert record.epoch is not None
        for _, _, earlier, epoch in self.claims:
            if earlier == id:
                assert record.epoch > epoch
        task.state, task.agent, task.session = "claimed", name, agent.session
        task.attempts += 1
        task.epoch = record.epoch
        task.due, task.ttl_ms = self.now + ttl_s * 1000, ttl_s * 1000
        self.claims.append((name, agent.session, id, record.epoch))

    # What agents do.

    @rule(seconds=st.sampled_from([1, 5, 10, 45]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)
        self.fall_due()

    @rule(
        name=AGENTS,
        id=IDS,
        priority=st.integers(-1, 1),
        kind=KINDS,
        tags=SETS_OF_TAGS,
        after=st.lists(IDS, unique=True, max_size=2),
        max_attempts=st.integers(1, 3),
        delay_s=st.sampled_from([0, 0, 0, 5, 60]),
    )
    def add(self, name, id, priority, kind, tags, after, max_attempts, delay_s):
        agent = self.agent(name)

        def add() -> Record:
            return agent.work.add(
                id,
                priority=priority,
                kind=kind,
                tags=tags,
                after=after,
                max_attempts=max_attempts,
                delay_s=delay_s,
            )

        if id in self.tasks:
            with self.refused(ExistsError):
                add()
            return
        if self.closes_cycle(id, after):
            with self.refused(InvalidError):
                add()
            return
        opened = self.complete_all(after)
        record = add()
        not_before = self.now + delay_s * 1000 if delay_s else None
        self.tasks[id] = Task(
            state="available" if opened and not delay_s else "blocked",
            number=self.space.events.last(),
            priority=priority,
            kind=kind,
            tags=sorted(tags),
            after=after,
            max_attempts=max_attempts,
            not_before=not_before,
            due=not_before if opened else None,
            author=name,
        )
        assert record.state == self.tasks[id].state

    @rule(name=AGENTS, id=ANY, ttl_s=TTLS)
    def claim(self, name, id, ttl_s):
        agent = self.agent(name)
        task = self.tasks.get(id)
        if task is None and id in LANDINGS:
            return
        if self.owned(name, id):
            assert task is not None
            record = agent.work.claim(id, ttl_s=ttl_s)
            assert (record.epoch, record.attempts) == (task.epoch, task.attempts)
            task.due, task.ttl_ms = self.now + ttl_s * 1000, ttl_s * 1000
        elif task is None:
            # An unknown id is added by this.
            number = self.space.events.last() + 1
            record = agent.work.claim(id, ttl_s=ttl_s)
            self.tasks[id] = Task("available", number, author=name)
            self.take(name, id, ttl_s, record)
        elif task.state == "available":
            self.take(name, id, ttl_s, agent.work.claim(id, ttl_s=ttl_s))
        else:
            with self.refused(HeldError if task.state == "claimed" else StateError):
                agent.work.claim(id, ttl_s=ttl_s)

    @rule(
        name=AGENTS,
        kind=st.sampled_from([None, None, "", "review"]),
        tags=st.sampled_from([[], ["python"], ["sql"], TAGS, TAGS, ["land:main"], ["land:main"]]),
        ttl_s=TTLS,
    )
    def next(self, name, kind, tags, ttl_s):
        agent = self.agent(name)
        fitting = [
            (-task.priority, task.number, id)
            for id, task in self.tasks.items()
            if task.state == "available"
            and kind in (None, task.kind)
            and set(task.tags) <= set(tags)
        ]
        if not fitting:
            with self.refused(EmptyError, settling=SETTLING):
                agent.work.next(kind=kind, tags=tags, ttl_s=ttl_s)
            return
        record = agent.work.next(kind=kind, tags=tags, ttl_s=ttl_s)
        assert record.id == min(fitting)[2]
        self.take(name, record.id, ttl_s, record)

    @rule(name=AGENTS, id=ANY, ttl_s=st.one_of(st.none(), TTLS))
    def renew(self, name, id, ttl_s):
        agent = self.agent(name)
        task = self.owned(name, id)
        if task is None:
            with self.refused(StaleError, NotFoundError):
                agent.work.renew(id, ttl_s=ttl_s)
            return
        assert agent.work.renew(id, ttl_s=ttl_s).epoch == task.epoch
        task.ttl_ms = task.ttl_ms if ttl_s is None else ttl_s * 1000
        task.due = self.now + task.ttl_ms

    @rule(name=AGENTS, id=ANY, result=st.sampled_from([None, 1, {"ok": True}]))
    def complete(self, name, id, result):
        agent = self.agent(name)
        task = self.owned(name, id)
        if task is None:
            with self.refused(StaleError, NotFoundError):
                agent.work.complete(id, result=result)
            return
        agent.work.complete(id, result=result)
        task.unclaim("completed")
        task.result = task.result if result is None else result
        self.completed(id)

    @rule(name=AGENTS, id=ANY, retry=st.booleans())
    def fail(self, name, id, retry):
        agent = self.agent(name)
        task = self.owned(name, id)
        if task is None:
            with self.refused(StaleError, NotFoundError):
                agent.work.fail(id, retry=retry)
            return
        agent.work.fail(id, retry=retry)
        if not retry or task.attempts >= task.max_attempts:
            task.unclaim("dead")
            bring_back(self.tasks)
        else:
            task.unclaim("failed", self.now + 10_000 * 2 ** (task.attempts - 1))

    @rule(name=AGENTS, id=ANY)
    def abandon(self, name, id):
        agent = self.agent(name)
        task = self.owned(name, id)
        if task is None:
            with self.refused(StaleError, NotFoundError):
                agent.work.abandon(id)
            return
        agent.work.abandon(id)
        task.attempts -= 1
        task.unclaim("available")

    @rule(name=AGENTS, id=ANY)
    def revoke(self, name, id):
        agent = self.agent(name)
        task = self.tasks.get(id)
        if task is None or task.state != "claimed" or self.owned(name, id):
            with self.refused(StateError, NotFoundError):
                agent.work.revoke(id)
            return
        agent.work.revoke(id)
        task.attempts -= 1
        task.unclaim("available")

    @rule(name=AGENTS, id=ANY)
    def cancel(self, name, id):
        agent = self.agent(name)
        task = self.tasks.get(id)
        if task is None or task.state in ("completed", "cancelled"):
            with self.refused(StateError, NotFoundError):
                agent.work.cancel(id)
            return
        if task.state == "claimed" and name not in (task.agent, task.author):
            with self.refused(NotYoursError):
                agent.work.cancel(id)
            return
        agent.work.cancel(id)
        landing = task.landing if task.state == "blocked" else None
        task.unclaim("cancelled")
        bring_back(self.tasks)
        if landing is None or self.handed_in(landing):
            return
        if self.tasks[landing].state in ("available", "blocked", "failed"):
            self.tasks[landing].unclaim("cancelled")

    @rule(name=AGENTS, id=ANY)
    def reopen(self, name, id):
        agent = self.agent(name)
        task = self.tasks.get(id)
        if task is None or task.state not in ENDED:
            with self.refused(StateError, NotFoundError):
                agent.work.reopen(id)
            return
        agent.work.reopen(id)
        self.begin_again(task)

    def begin_again(self, task):
        opened = self.complete_all(task.after)
        later = task.not_before is not None and task.not_before > self.now
        task.unclaim(
            "available" if opened and not later else "blocked",
            task.not_before if opened and later else None,
        )
        task.attempts, task.landing = 0, None
        if task.acked is None:
            task.asked = None

    @rule(
        name=AGENTS,
        commit=st.sampled_from([0, 1]),
        task=st.one_of(st.none(), IDS),
        own=st.sampled_from([True, True, True, False]),
    )
    def land(self, name, commit, task, own):
        agent = self.agent(name)
        id, other = LANDINGS[commit], self.tasks.get(LANDINGS[1 - commit])
        if own and task is not None:  # or hardly anything would be handed in
            task = min((one for one in NAMES if self.owned(name, one)), default=None)
        landing, given = self.tasks.get(id), self.tasks.get(task) if task else None
        fresh = landing is None or landing.state in ("dead", "cancelled")
        replaces = fresh and other is not None and other.state not in ("completed", "cancelled")
        waits = [] if not replaces else self.handed_in(LANDINGS[1 - commit])
        there = given is not None and (
            task in waits or (given.landing == id and given.state in ("blocked", "completed"))
        )
        if task is not None and not there and self.owned(name, task) is None:
            with self.refused(StaleError, NotFoundError):
                agent.work.land("feature", commit=COMMITS[commit], task=task)
            return
        record = agent.work.land("feature", commit=COMMITS[commit], task=task)
        if landing is None:
            landing = self.tasks[id] = Task("available", record.seq, author=name, kind="landing")
            landing.tags, landing.max_attempts = ["land:main"], handing.ATTEMPTS
        elif fresh:
            self.begin_again(landing)
        for one in waits:
            self.tasks[one].landing = id
        if replaces and other is not None and other.state != "claimed":
            other.unclaim("cancelled")
        if given is not None and not there:
            given.unclaim("blocked")
            given.landing, given.asked, given.acked = id, None, None
            if landing.state == "completed":
                self.completed(id)

    @rule(name=AGENTS, id=ANY)
    def ask(self, name, id):
        agent = self.agent(name)
        task = self.owned(name, id)
        if task is None:
            with self.refused(StaleError, NotFoundError):
                agent.work.ask(id, "May I?")
            return
        agent.work.ask(id, "May I?")
        task.attempts -= 1
        task.unclaim("blocked")
        task.asked, task.acked = "May I?", None

    @rule(name=AGENTS, id=ANY, refuse=st.booleans())
    def ack(self, name, id, refuse):
        agent = self.agent(name)
        task = self.tasks.get(id)
        if task is None or not task.asks:
            with self.refused(StateError, NotFoundError):
                agent.work.ack(id, refuse=refuse)
            return
        agent.work.ack(id, refuse=refuse)
        task.unclaim("dead" if refuse else "available")
        task.acked = None if refuse else name
        bring_back(self.tasks)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), verb=st.sampled_from(["renew", "complete", "fail", "abandon"]))
    def use_an_old_epoch(self, data, verb):
        name, session, id, epoch = data.draw(st.sampled_from(self.claims))
        agent = self.agents.get(name)
        if agent is None or agent.session != session:
            return
        task = self.owned(name, id)
        if task is not None and task.epoch == epoch:
            return
        with self.refused(StaleError):
            getattr(agent.work, verb)(id, epoch=epoch)

    def lose_session(self, name: str) -> dibs.Agent | None:
        agent = self.agents.pop(name, None)
        for task in self.tasks.values():
            if agent is not None and task.session == agent.session:
                task.lose()
        bring_back(self.tasks)
        return agent

    @rule(name=AGENTS)
    def leave(self, name):
        agent = self.lose_session(name)
        if agent is not None:
            agent.close()
            with self.refused(NotYoursError):
                agent.work.next()

    @precondition(lambda self: self.on_sqlite)
    @rule(name=AGENTS)
    def die(self, name):
        """The kernel drops the session's lock; nobody says goodbye."""
        agent = self.lose_session(name)
        if agent is not None:
            liveness = self.space.scope.store.liveness
            assert liveness is not None
            liveness.let_go(agent.session)
            # Within a second, whoever looks for work finds out.
            self.clock.advance(1)
            self.fall_due()

    # What must hold after each step.

    def up_to_date(self, record: Record) -> Task:
        """The record as the model would have it: what is due has happened."""
        shown = Task(
            state=record.state,
            number=self.tasks[record.id].number,
            priority=record.priority,
            kind=record.kind,
            tags=list(record.tags),
            after=list(record.after),
            max_attempts=record.max_attempts,
            not_before=self.tasks[record.id].not_before,
            attempts=record.attempts,
            due=None if record.due_in_ms is None else self.now + record.due_in_ms,
            agent=record.agent,
            session=record.session,
            epoch=record.epoch,
            result=record.result,
            ttl_ms=self.tasks[record.id].ttl_ms,
            author=record.author,
            landing=record.landing,
            asked=record.asked,
            acked=record.acked,
        )
        sessions = [agent.session for agent in self.agents.values()]
        if shown.state == "claimed" and shown.session not in sessions:
            shown.lose()
        elif shown.due is not None and shown.due <= self.now:
            if shown.state == "claimed":
                shown.lose()
            else:
                shown.unclaim("available")
        return shown

    @invariant()
    def tasks_are_those_of_the_model(self):
        records = self.space.work.list(limit=1000)
        assert [record.id for record in records] == sorted(
            self.tasks, key=lambda id: self.tasks[id].number
        )
        shown = {record.id: self.up_to_date(record) for record in records}
        bring_back(shown)
        for id, expected in self.tasks.items():
            assert dataclasses.asdict(shown[id]) == dataclasses.asdict(expected), id

    @invariant()
    def what_is_handed_in_has_a_landing_that_is_open(self):
        for record in self.space.work.list(state="blocked"):
            if record.landing is not None:
                open_ = ("available", "blocked", "claimed", "failed")
                row = self.space.work.show(record.landing)
                lapsed = row.state == "dead" and row.ttl_ms is not None
                assert row.state in open_ or lapsed, record.id


def bring_back(tasks: dict[str, Task]) -> None:
    """Let come back what was handed in with a landing that has ended without it."""
    for task in tasks.values():
        landing = tasks.get(task.landing or "") if task.state == "blocked" else None
        if landing is not None and landing.state in ("dead", "cancelled"):
            task.come_back()


@pytest.mark.parametrize("size", SIZES)
def test_tasks_behave_like_the_model(url, tmp_path, size, monkeypatch):
    monkeypatch.setattr(handing, "ATTEMPTS", 2)  # or no landing would ever lose its last conductor
    run(WorkMachine, url, str(tmp_path / "user"), size)
