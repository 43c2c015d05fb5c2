"""Any earlier moment: what a replay gives is what the store gave then.

A machine makes a history of all kinds of writes. After each commit, whoever made it, the lists of
the store are remembered; at the end, moments of the history are replayed and compared with them.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

import dibs
from dibs.errors import DibsError
from dibs.nouns.agents.sessions import end_dead
from dibs.records import Moment
from dibs.storage.store import Write
from tests.clock import ManualClock
from tests.model.machines import SpaceMachine, run
from tests.model.test_leases_model import ParkingClock, Waiter

MOMENTS, EACH = 500, 80
SIZES = {"sqlite": (8, 100), "postgres": (8, 100)}
NAMES = st.sampled_from(["alice", "bob", "carol", "alice/tests"])
RESOURCES = ["src", "src/a.py", "src/b.py", "src/*.py", "docs/c.md", "port:1", "git:index"]
SOME = st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=3, unique=True)
TASKS = ["one", "two", "three", "four", "five", "six"]
IDS = st.sampled_from(TASKS)
OTHERS = st.lists(st.sampled_from(TASKS), max_size=2, unique=True)
MODES = st.sampled_from(["exclusive", "shared"])
PLACES = st.tuples(st.sampled_from(["budget", "plan"]), st.sampled_from(["a", "b", "c"]))
VALUES = st.sampled_from([0, "text ☃", {"deep": [1, None]}, [], True])
TTLS = st.sampled_from([5, 60, 3600])
WORDS = st.sampled_from(["", "why", "two\nlines", "☃ “words”"])
LINES = st.sampled_from(["", "a note", "☃ “words”"])
COMMITS = st.sampled_from(["a" * 40, "b" * 40])


class HistoryMachine(SpaceMachine):
    """All kinds of writes, and what the store listed after each."""

    replayed = 0

    def __init__(self) -> None:
        super().__init__()
        self.then: dict[int, dict[str, Any]] = {}
        self.waiters: list[Waiter] = []
        self.noted = 0
        RECORDERS.append(self)

    def new_clock(self) -> ManualClock:
        return ParkingClock()

    def committed(self) -> None:
        """Remember what the store lists now, if the journal has moved."""
        last = self.space.events.last()
        if last != self.noted:
            self.noted = last
            self.then[last] = listed(self.space)

    def tries(self, what: Any, *args: Any, **options: Any) -> None:
        """Do it; a refusal is as good."""
        try:
            what(*args, **options)
        except DibsError:
            pass
        self.let_waiters_look()

    def let_waiters_look(self) -> None:
        for waiter in self.waiters:
            waiter.look_again()
        for waiter in [one for one in self.waiters if one.over]:
            waiter.finish()
            self.waiters.remove(waiter)

    def every_signature_fits(self) -> None:
        """At the end: it reads the whole journal."""

    # Time and sessions.

    @rule(seconds=st.sampled_from([1, 4, 9]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)
        self.let_waiters_look()

    @precondition(lambda self: not self.waiters)
    @rule(seconds=st.sampled_from([20, 61, 3601]))
    def much_time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule(step=st.sampled_from([-5_000, 3_600_000]))
    def the_wall_clock_is_set(self, step):
        self.clock.wall_offset += step

    @rule(name=NAMES)
    def somebody_leaves(self, name):
        agent = self.agents.pop(name, None)
        if agent is not None:
            self.tries(agent.close)

    @precondition(lambda self: self.on_sqlite and not self.waiters)
    @rule(name=NAMES)
    def somebody_dies(self, name):
        """The kernel drops the lock, and somebody notices."""
        agent = self.agents.pop(name, None)
        if agent is not None:
            liveness = self.space.scope.store.liveness
            assert liveness is not None
            liveness.let_go(agent.session)
            end_dead(self.space.scope)

    @rule(name=NAMES, status=LINES)
    def beat(self, name, status):
        self.tries(self.agent(name).agents.beat, status=status or None)

    @rule(name=NAMES, number=st.integers(1, 3))
    def rename(self, name, number):
        agent = self.agents.get(name)
        if agent is not None and not self.waiters:
            self.tries(agent.agents.rename, f"renamed-{number}")

    # Leases.

    @rule(name=NAMES, some=SOME, mode=MODES, ttl_s=TTLS, note=LINES)
    def claim(self, name, some, mode, ttl_s, note):
        self.tries(self.agent(name).leases.claim, *some, mode=mode, ttl_s=ttl_s, note=note)

    @rule(name=NAMES, some=SOME, mode=MODES, ttl_s=TTLS)
    def claim_with_a_wait(self, name, some, mode, ttl_s):
        waiter = Waiter(self.agent(name), some, mode, ttl_s)
        waiter.begin()
        self.waiters.append(waiter)
        self.let_waiters_look()

    @precondition(lambda self: self.waiters)
    @rule()
    def somebody_gives_up(self):
        self.waiters[0].cancel()
        self.let_waiters_look()

    @rule(name=NAMES, some=SOME, outcome=st.sampled_from([None, "modified", "deleted"]))
    def release(self, name, some, outcome):
        self.tries(self.agent(name).leases.release, *some, outcome=outcome)

    @rule(name=NAMES)
    def release_everything(self, name):
        self.tries(self.agent(name).leases.release, everything=True)

    @rule(name=NAMES)
    def renew(self, name):
        self.tries(self.agent(name).leases.renew, everything=True)

    @rule(name=NAMES, to=NAMES, some=SOME)
    def transfer(self, name, to, some):
        self.tries(self.agent(name).leases.transfer, *some[:1], to=to, note="yours")

    @rule(name=NAMES, some=SOME, reason=WORDS)
    def revoke(self, name, some, reason):
        self.tries(self.agent(name).leases.revoke, *some, reason=reason)

    # Work.

    @rule(
        name=NAMES,
        id=IDS,
        after=OTHERS,
        parent=st.one_of(st.none(), IDS),
        leases=st.one_of(st.just([]), SOME),
        delay_s=st.sampled_from([0, 0, 8]),
        attempts=st.sampled_from([1, 3]),
        payload=VALUES,
        group=st.booleans(),
    )
    def add(self, name, id, after, parent, leases, delay_s, attempts, payload, group):
        self.tries(
            self.agent(name).work.add,
            id,
            title=f"Do {id}",
            tags=["python"] if id in ("one", "two") else [],
            labels=["late"],
            after=after,
            parent=parent,
            leases=[] if group else leases,
            delay_s=0 if group else delay_s,
            max_attempts=attempts,
            payload=payload,
            with_children=group,
        )

    @rule(name=NAMES)
    def add_many(self, name):
        tasks = [{"id": id, "title": "many"} for id in ("seven", "eight", "nine")]
        self.tries(self.agent(name).work.add_many, tasks, each=True)

    @rule(name=NAMES, id=IDS, ttl_s=TTLS)
    def claim_task(self, name, id, ttl_s):
        self.tries(self.agent(name).work.claim, id, ttl_s=ttl_s)

    @rule(name=NAMES, ttl_s=TTLS)
    def next_task(self, name, ttl_s):
        self.tries(self.agent(name).work.next, tags=["python"], ttl_s=ttl_s)

    @rule(name=NAMES, id=IDS, result=VALUES, place=PLACES)
    def complete(self, name, id, result, place):
        entry = {"namespace": place[0], "key": place[1], "value": id, "force": True}
        self.tries(
            self.agent(name).work.complete, id, result=result, entry=entry, announce=f"{id} done"
        )

    @rule(name=NAMES, id=IDS, reason=WORDS)
    def fail(self, name, id, reason):
        self.tries(self.agent(name).work.fail, id, reason=reason)

    @rule(name=NAMES, id=IDS, reason=WORDS)
    def abandon(self, name, id, reason):
        self.tries(self.agent(name).work.abandon, id, reason=reason)

    @rule(name=NAMES, id=IDS, what=st.sampled_from(["renew", "reopen", "remove", "show"]))
    def change_task(self, name, id, what):
        self.tries(getattr(self.agent(name).work, what), id)

    @rule(name=NAMES, id=IDS, reason=WORDS, what=st.sampled_from(["cancel", "revoke"]))
    def end_task(self, name, id, reason, what):
        self.tries(getattr(self.agent(name).work, what), id, reason=reason)

    @rule(name=NAMES, id=IDS, after=OTHERS, leases=SOME, priority=st.integers(-2, 2))
    def edit(self, name, id, after, leases, priority):
        self.tries(
            self.agent(name).work.edit,
            id,
            after=after,
            leases=leases,
            priority=priority,
            title="new",
        )

    @rule(name=NAMES, id=IDS, commit=COMMITS, branch=st.sampled_from(["feature", "fix"]))
    def land(self, name, id, commit, branch):
        self.tries(self.agent(name).work.land, branch, commit=commit, task=id)

    @rule(name=NAMES, land=st.booleans())
    def conduct(self, name, land):
        """Take what waits to be landed, and say how it went."""
        work = self.agent(name).work
        for task in work.list(kind="landing", state="available"):
            self.tries(work.claim, task.id)
            self.tries(work.complete if land else work.fail, task.id)

    @rule(name=NAMES, id=IDS)
    def ask(self, name, id):
        self.tries(self.agent(name).work.ask, id, "may I?")

    @rule(name=NAMES, id=IDS, refuse=st.booleans())
    def ack(self, name, id, refuse):
        self.tries(self.agent(name).work.ack, id, refuse=refuse)

    # State and messages.

    @rule(name=NAMES, place=PLACES, value=VALUES, ttl_s=st.sampled_from([None, 5, 60]))
    def set_entry(self, name, place, value, ttl_s):
        self.tries(self.agent(name).state.set, *place, value, force=True, ttl_s=ttl_s)

    @rule(name=NAMES, place=PLACES)
    def delete_entry(self, name, place):
        self.tries(self.agent(name).state.delete, *place)

    @rule(name=NAMES)
    def clear(self, name):
        self.tries(self.agent(name).state.clear, "plan")

    @rule(name=NAMES, to=NAMES)
    def send(self, name, to):
        self.tries(self.agent(name).messages.send, "hello", to=to)

    @rule(name=NAMES)
    def read_inbox(self, name):
        self.tries(self.agent(name).messages.inbox)

    def teardown(self) -> None:
        for waiter in self.waiters:
            waiter.cancel()
        self.let_waiters_look()
        RECORDERS.remove(self)
        try:
            chosen = random.Random(len(self.then)).sample(
                sorted(self.then), min(len(self.then), 80)
            )
            for seq in chosen:
                assert of_moment(self.space.events.replay(at=seq)) == self.then[seq], f"at {seq}"
            HistoryMachine.replayed += len(chosen)
            assert self.space.agents.verify() == ()
        finally:
            super().teardown()


RECORDERS: list[HistoryMachine] = []


def listed(space: dibs.Dibs) -> dict[str, Any]:
    """What the store lists now."""
    entries = [one for name in space.state.namespaces() for one in space.state.list(name)]
    return {
        "agents": told(space.agents.list()),
        "leases": told(space.leases.list()),
        "waiting": told(space.leases.waiting()),
        "tasks": told(space.work.list(everything=True)),
        "entries": told(entries),
        "counts": space.agents.overview(limit=1).counts,
    }


def of_moment(moment: Moment) -> dict[str, Any]:
    """What a replay lists, without what says which moment it is."""
    assert moment.cut == ()
    names = ("agents", "leases", "waiting", "tasks", "entries")
    return {name: told(getattr(moment, name)) for name in names} | {"counts": moment.counts}


def told(records: Any) -> list[Any]:
    """Records as JSON, without when a session was last heard of: beats are not in the journal."""
    return [without_beats(record.to_json()) for record in records]


def without_beats(fields: dict[str, Any]) -> dict[str, Any]:
    for session in fields.get("sessions", ()):
        del session["seen_at"], session["expires_in_ms"]
    return fields


@pytest.fixture
def recording(monkeypatch):
    """Every commit of this process is noticed by the machine that runs."""
    leave = Write.__exit__

    def noticed(self, kind, *rest):
        leave(self, kind, *rest)
        if kind is None and RECORDERS:
            RECORDERS[-1].committed()

    monkeypatch.setattr(Write, "__exit__", noticed)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("recording")
def test_a_replay_gives_what_the_store_gave_then(url, tmp_path):
    HistoryMachine.replayed = 0
    while HistoryMachine.replayed < MOMENTS:
        run(HistoryMachine, url, str(tmp_path / "user"), SIZES)
