"""Leases and their queue against a small model, with waiters that take turns.

Overlap is decided here by listing paths, not by the rules of the source. Waiters do so
in real threads through the real `claim`, but only one thread runs at a time: the clock parks
a waiter where it would sleep, and the machine lets each look again after every step. So the
order of things is fixed, and the queue can be modelled exactly.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import product, takewhile

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

import dibs
from dibs.errors import (
    CancelledError,
    DeadlockError,
    DibsError,
    HeldError,
    NotFoundError,
    NotYoursError,
    StaleError,
    StateError,
)
from dibs.nouns.leases.grants import LEASES
from dibs.records import Grant
from dibs.storage.waiting import CANCEL, Cancel
from tests.clock import ManualClock
from tests.model.machines import SIZES, SpaceMachine, run

RESOURCES = [
    ".", "src", "src/a.py", "src/b.py", "src/sub", "src/sub/a.py", "docs/c.md",
    "src/*.py", "**/*.md", "*/a.py", "**/a.*", "d?cs", "port:1", "git:index",
]  # fmt: skip
FILES = ["src/a.py", "src/b.py", "src/sub/a.py", "docs/c.md"]
AGENTS = st.sampled_from(["alice", "bob", "carol", "dave"])
SOME = st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=3)
MODES = st.sampled_from(["exclusive", "exclusive", "shared"])
TTLS = st.sampled_from([5, 20, 60])
A_DAY_S = 86_400

WORDS = [
    ["src", "docs", "x"],
    ["a.py", "b.py", "c.md", "sub", "x"],
    ["a.py", "c.md", "x"],
    ["a.py", "c.md", "x"],
]
PATHS = [path for depth in (1, 2, 3, 4) for path in product(*WORDS[:depth])]


def matches(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(matches(pattern[1:], path[skip:]) for skip in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and matches(pattern[1:], path[1:])


def covered(resource: str) -> frozenset[object]:
    """All it covers: what it matches, and everything below that; a file is only itself."""
    if ":" in resource:
        return frozenset([resource])
    if resource in FILES:
        return frozenset([tuple(resource.split("/"))])
    pattern = () if resource == "." else tuple(resource.split("/"))
    return frozenset(
        path
        for path in PATHS
        if any(matches(pattern, path[:depth]) for depth in range(len(path) + 1))
    )


COVERED = {resource: covered(resource) for resource in RESOURCES}


def lies_in(resource: str, directory: str) -> bool:
    """Whether all that a resource can cover is below that directory."""
    if ":" in resource + directory or "*" in directory or "?" in directory:
        return False
    base = takewhile(lambda part: not {"*", "?"} & set(part), resource.split("/"))
    above = [] if directory == "." else directory.split("/")
    return directory not in FILES and list(base)[: len(above)] == above


def overlap(a: str, b: str) -> bool:
    return not COVERED[a].isdisjoint(COVERED[b])


@dataclass
class Lease:
    mode: str
    epoch: int
    deadline: int
    ttl_ms: int


class Waiter(threading.Thread):
    """Somebody in the queue: a real claim in a thread that runs only when it is told to."""

    def __init__(self, agent: dibs.Agent, resources: list[str], mode: str, ttl_s: float) -> None:
        super().__init__(daemon=True)
        self.agent = agent
        self.claim = lambda: agent.leases.claim(*resources, mode=mode, ttl_s=ttl_s, wait_s=A_DAY_S)
        self.cancel = Cancel()
        self.grant: Grant | None = None
        self.error: DibsError | None = None
        self.over = False
        self._go = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)

    def run(self) -> None:
        PARKED.waiter = self
        CANCEL.set(self.cancel)
        try:
            self.grant = self.claim()
        except DibsError as error:
            self.error = error
        finally:
            self.over = True
            self._paused.release()

    def park(self) -> None:
        self._paused.release()
        self._go.acquire()

    def begin(self) -> None:
        """Run until it waits or is done."""
        self.start()
        self._paused.acquire()

    def look_again(self) -> None:
        """Run until it waits again or is done; nothing to do if it is."""
        if not self.over:
            self._go.release()
            self._paused.acquire()

    def finish(self) -> None:
        self.join()
        self.cancel.close()


PARKED = threading.local()


class ParkingClock(ManualClock):
    """A clock on which time passes only when the machine says so."""

    def sleep(self, listener, seconds):
        PARKED.waiter.park()


@dataclass
class Ticket:
    number: int
    name: str
    session: int
    resources: list[str]
    mode: str
    ttl_ms: int
    waiter: Waiter = field(repr=False)


class LeaseMachine(SpaceMachine):
    def __init__(self) -> None:
        super().__init__()
        self.leases: dict[tuple[int, str], Lease] = {}
        self.tickets: list[Ticket] = []
        self.granted: list[tuple[int, str, str, int]] = []  # session, resource, mode, epoch
        self.names: dict[int, str] = {}

    def new_clock(self) -> ManualClock:
        return ParkingClock()

    # The model.

    def session(self, name: str) -> int:
        session = self.agent(name).session
        self.names[session] = name
        return session

    def in_the_way(
        self, session: int, resources: list[str], mode: str, before: int | None = None
    ) -> set[int]:
        """The sessions that hold what conflicts, or wait for it ahead."""
        found = set()
        for (holder, held), lease in self.leases.items():
            if (
                holder != session
                and lease.deadline > self.now
                and "exclusive" in (mode, lease.mode)
            ):
                found |= {holder for resource in resources if overlap(resource, held)}
        for ticket in self.tickets:
            ahead = before is None or ticket.number < before
            if ticket.session != session and ahead and "exclusive" in (mode, ticket.mode):
                found |= {
                    ticket.session
                    for resource in resources
                    for wanted in ticket.resources
                    if overlap(resource, wanted)
                }
        return found

    def blocked(self, session: int, resources: list[str], mode: str) -> bool:
        """Whether a claim is refused now; what the session holds already it claims again."""
        missing = []
        for resource in resources:
            around = [held for held in RESOURCES if held == resource or lies_in(resource, held)]
            own = [self.own(session, held) for held in around]
            if not any(lease and lease.mode in (mode, "exclusive") for lease in own):
                missing.append(resource)
        return bool(self.in_the_way(session, missing, mode))

    def would_wait_for_itself(self, session: int, resources: list[str], mode: str) -> bool:
        front, seen = list(self.in_the_way(session, resources, mode)), set()
        while front:
            other = front.pop()
            if other == session:
                return True
            if other not in seen:
                seen.add(other)
                for ticket in self.tickets:
                    if ticket.session == other:
                        front += self.in_the_way(
                            other, ticket.resources, ticket.mode, ticket.number
                        )
        return False

    def own(self, session: int, resource: str) -> Lease | None:
        lease = self.leases.get((session, resource))
        return lease if lease is not None and lease.deadline > self.now else None

    def grant(self, session: int, resources: list[str], mode: str, ttl_ms: int, epoch: int) -> None:
        """What is held in this mode already keeps its epoch; all else gets the new one."""
        for resource in dict.fromkeys(resources):
            own = self.own(session, resource)
            if own is not None and own.mode == mode:
                own.deadline = max(own.deadline, self.now + ttl_ms)
                own.ttl_ms = max(own.ttl_ms, ttl_ms)
                continue
            self.note(session, resource, mode, epoch)
            self.leases[session, resource] = Lease(mode, epoch, self.now + ttl_ms, ttl_ms)

    def note(self, session: int, resource: str, mode: str, epoch: int) -> None:
        """A new grant has a higher epoch than every earlier one that it conflicts with."""
        for other, earlier, earlier_mode, earlier_epoch in self.granted:
            conflict = "exclusive" in (mode, earlier_mode) and overlap(resource, earlier)
            if (other != session and conflict) or (other, earlier) == (session, resource):
                assert epoch > earlier_epoch, (other, earlier)
        self.granted.append((session, resource, mode, epoch))

    def settle(self) -> None:
        """Serve the queue in the model, let the waiters look, and compare."""
        served: list[Ticket] = []
        for ticket in list(self.tickets):
            if not self.in_the_way(ticket.session, ticket.resources, ticket.mode, ticket.number):
                self.tickets.remove(ticket)
                served.append(ticket)
                # Its epoch is known once the waiter has it; the place is taken from now on.
                self.reserve(ticket)
        for ticket in sorted([*self.tickets, *served], key=lambda ticket: ticket.number):
            ticket.waiter.look_again()
        for ticket in sorted([*self.tickets, *served], key=lambda ticket: ticket.number):
            # A waiter that has cleared the way is served by its own hand: it looks once more.
            ticket.waiter.look_again()
        for ticket in self.tickets:
            assert not ticket.waiter.over, (ticket, ticket.waiter.error)
        for ticket in served:
            assert ticket.waiter.over, ticket
            assert ticket.waiter.error is None, ticket
            self.confirm(ticket)

    def reserve(self, ticket: Ticket) -> None:
        for resource in dict.fromkeys(ticket.resources):
            own = self.own(ticket.session, resource)
            # What the session holds alone it does not lose to a wait for sharing it.
            if own is None or own.mode not in (ticket.mode, "exclusive"):
                self.leases[ticket.session, resource] = Lease(
                    ticket.mode, 0, self.now + ticket.ttl_ms, ticket.ttl_ms
                )
            else:
                own.deadline = max(own.deadline, self.now + ticket.ttl_ms)
                own.ttl_ms = max(own.ttl_ms, ticket.ttl_ms)

    def confirm(self, ticket: Ticket) -> None:
        grant = ticket.waiter.grant
        assert grant is not None
        ticket.waiter.finish()
        epochs = {lease.resource: lease.epoch for lease in grant.leases}
        assert epochs.keys() == set(ticket.resources)
        for resource, epoch in epochs.items():
            lease = self.leases[ticket.session, resource]
            if lease.epoch == 0:
                assert epoch > ticket.number
                lease.epoch = epoch
                self.note(ticket.session, resource, ticket.mode, epoch)
            assert lease.epoch == epoch

    # What agents do.

    @rule(seconds=st.sampled_from([1, 4, 9]))
    def time_passes(self, seconds):
        # No more than this at once: on PostgreSQL a waiter must be heard of within 15 s.
        self.clock.advance(seconds)
        self.settle()

    @rule(name=AGENTS, resources=SOME, mode=MODES, ttl_s=TTLS)
    def claim(self, name, resources, mode, ttl_s):
        session, agent = self.session(name), self.agent(name)
        if self.blocked(session, resources, mode):
            with self.refused(HeldError):
                agent.leases.claim(*resources, mode=mode, ttl_s=ttl_s)
            return
        epoch = self.space.events.last() + 1
        grant = agent.leases.claim(*resources, mode=mode, ttl_s=ttl_s)
        assert {lease.resource for lease in grant.leases} == set(resources)
        self.grant(session, resources, mode, ttl_s * 1000, epoch)
        self.settle()

    @rule(name=AGENTS, resources=SOME, mode=MODES, ttl_s=TTLS)
    def claim_with_a_wait(self, name, resources, mode, ttl_s):
        session, agent = self.session(name), self.agent(name)
        blocked = self.blocked(session, resources, mode)
        if blocked and self.would_wait_for_itself(session, resources, mode):
            with self.refused(DeadlockError):
                agent.leases.claim(*resources, mode=mode, ttl_s=ttl_s, wait_s=A_DAY_S)
            return
        last = self.space.events.last()
        waiter = Waiter(agent, resources, mode, ttl_s)
        waiter.begin()
        if not blocked:
            assert waiter.over
            assert waiter.error is None
            waiter.finish()
            self.grant(session, resources, mode, ttl_s * 1000, last + 1)
        else:
            assert not waiter.over, waiter.error
            self.tickets.append(
                Ticket(last + 1, name, session, resources, mode, ttl_s * 1000, waiter)
            )
        self.settle()

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def give_up_a_wait(self, data):
        ticket = data.draw(st.sampled_from(self.tickets))
        self.tickets.remove(ticket)
        ticket.waiter.cancel()
        ticket.waiter.look_again()
        assert ticket.waiter.over
        assert isinstance(ticket.waiter.error, CancelledError)
        ticket.waiter.finish()
        self.settle()

    @rule(name=AGENTS, resources=SOME, ttl_s=st.one_of(st.none(), TTLS))
    def renew(self, name, resources, ttl_s):
        session, agent = self.session(name), self.agent(name)
        own = [self.own(session, resource) for resource in resources]
        if None in own:
            with self.refused(StaleError, NotFoundError, NotYoursError):
                agent.leases.renew(*resources, ttl_s=ttl_s)
            return
        renewed = agent.leases.renew(*resources, ttl_s=ttl_s)
        assert {lease.resource for lease in renewed} == set(resources)
        self.prolong(own, ttl_s)

    @rule(name=AGENTS, ttl_s=st.one_of(st.none(), TTLS))
    def renew_everything(self, name, ttl_s):
        session, agent = self.session(name), self.agent(name)
        own = {held: self.own(session, held) for holder, held in self.leases if holder == session}
        kept = {held: lease for held, lease in own.items() if lease is not None}
        last = self.space.events.last()
        renewed = agent.leases.renew(everything=True, ttl_s=ttl_s)
        assert {lease.resource for lease in renewed} == kept.keys()
        assert self.space.events.last() == last + len(kept)
        self.prolong(kept.values(), ttl_s)

    def prolong(self, leases, ttl_s: int | None) -> None:
        for lease in leases:
            lease.ttl_ms = lease.ttl_ms if ttl_s is None else ttl_s * 1000
            lease.deadline = self.now + lease.ttl_ms

    @rule(name=AGENTS, resources=SOME)
    def release(self, name, resources):
        session, agent = self.session(name), self.agent(name)
        if None in [self.own(session, resource) for resource in resources]:
            with self.refused(StaleError, NotFoundError, NotYoursError):
                agent.leases.release(*resources)
            return
        agent.leases.release(*resources)
        for resource in set(resources):
            del self.leases[session, resource]
        self.settle()

    @rule(name=AGENTS)
    def release_everything(self, name):
        session, agent = self.session(name), self.agent(name)
        agent.leases.release(everything=True)
        self.leases = {key: lease for key, lease in self.leases.items() if key[0] != session}
        self.settle()

    @rule(name=AGENTS, resources=SOME)
    def revoke(self, name, resources):
        session, agent = self.session(name), self.agent(name)
        taken: dict[tuple[int, str], Lease] = {}
        refusal: type[DibsError] | None = None
        for resource in resources:
            around = {
                key: lease
                for key, lease in self.leases.items()
                if lease.deadline > self.now and overlap(resource, key[1])
            }
            others = {key: lease for key, lease in around.items() if key[0] != session}
            if not others:
                refusal = refusal or (StateError if around else NotFoundError)
            taken |= others
        if refusal is not None:
            with self.refused(refusal):
                agent.leases.revoke(*resources)
            return
        told = {(lease.session, lease.resource) for lease in agent.leases.revoke(*resources)}
        assert told == taken.keys()
        for key in taken:
            del self.leases[key]
        self.settle()
        # Whoever had it is refused, also if the queue has given the same session the same again.
        for (holder, resource), lease in taken.items():
            with self.refused(StaleError):
                self.agents[self.names[holder]].leases.renew(resource, epoch=lease.epoch)

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), verb=st.sampled_from(["renew", "release"]))
    def use_an_old_epoch(self, data, verb):
        session, resource, _, epoch = data.draw(st.sampled_from(self.granted))
        name = self.names[session]
        agent = self.agents.get(name)
        if agent is None or agent.session != session:
            return
        own = self.own(session, resource)
        if own is not None and own.epoch == epoch:
            return
        with self.refused(StaleError):
            getattr(agent.leases, verb)(resource, epoch=epoch)

    @rule(name=AGENTS)
    def leave(self, name):
        agent = self.agents.pop(name, None)
        if agent is None:
            return
        own = [ticket for ticket in self.tickets if ticket.session == agent.session]
        agent.close()
        self.tickets = [ticket for ticket in self.tickets if ticket not in own]
        for ticket in own:
            ticket.waiter.look_again()
            assert ticket.waiter.over
            assert isinstance(ticket.waiter.error, (StaleError, NotYoursError))
            ticket.waiter.finish()
        self.leases = {k: lease for k, lease in self.leases.items() if k[0] != agent.session}
        with self.refused(NotYoursError):
            agent.leases.claim("port:1")
        self.settle()

    @precondition(lambda self: self.on_sqlite)
    @rule(name=AGENTS)
    def die(self, name):
        """The kernel drops the session's lock; nobody says goodbye."""
        agent = self.agents.get(name)
        if agent is None or any(ticket.session == agent.session for ticket in self.tickets):
            return
        del self.agents[name]
        liveness = self.space.scope.store.liveness
        assert liveness is not None
        liveness.let_go(agent.session)
        self.leases = {k: lease for k, lease in self.leases.items() if k[0] != agent.session}
        self.settle()

    # What must hold after each step.

    @invariant()
    def leases_are_those_of_the_model(self):
        listed = self.space.leases.list()
        assert {
            (lease.session, lease.resource): (lease.mode, lease.epoch, lease.expires_in_ms)
            for lease in listed
        } == {
            key: (lease.mode, lease.epoch, lease.deadline - self.now)
            for key, lease in self.leases.items()
            if lease.deadline > self.now
        }
        for one in listed:
            for other in listed:
                if one.session != other.session and overlap(one.resource, other.resource):
                    assert (one.mode, other.mode) == ("shared", "shared")

    @invariant()
    def queue_is_that_of_the_model(self):
        with self.space.scope.store.read() as tx:
            rows = [
                (row["number"], row["session"], row["resource"], row["mode"])
                for ticket in self.tickets
                for row in tx.rows(LEASES.ticket, number=ticket.number)
            ]
            there = {
                row["number"]
                for name in self.agents
                for row in tx.rows(LEASES.tickets_of_session, session=self.agents[name].session)
            }
        assert sorted(rows) == sorted(
            (ticket.number, ticket.session, resource, ticket.mode)
            for ticket in self.tickets
            for resource in set(ticket.resources)
        )
        assert there == {ticket.number for ticket in self.tickets}

    @invariant()
    def status_tells_the_truth(self):
        for resource in (".", "src/a.py", "port:1"):
            (state,) = self.space.leases.status(resource)
            expected = self.in_the_way(0, [resource], "exclusive")
            assert {blocker.session for blocker in state.blockers} == expected
            assert state.free == (not expected)

    def teardown(self):
        for ticket in self.tickets:
            ticket.waiter.cancel()
            ticket.waiter.look_again()
            ticket.waiter.finish()
        super().teardown()


def test_the_list_of_paths_tells_all_overlaps_apart():
    """Each pair that can meet does so in a listed path, so the model misses none."""
    assert overlap("src/*.py", "**/a.*")
    assert overlap("d?cs", "docs/c.md")
    assert overlap("**/*.md", "src/sub")
    assert overlap("**/*.md", "*/a.py")
    assert not overlap("**/*.md", "src/sub/a.py")
    assert not overlap("src/a.py", "src/b.py")
    assert not overlap("*/a.py", "src/sub/a.py")
    assert not overlap("port:1", ".")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "src" / "sub").mkdir(parents=True)
    (folder / "docs").mkdir()
    monkeypatch.chdir(folder)


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("size", SIZES)
def test_leases_behave_like_the_model(url, tmp_path, size):
    run(LeaseMachine, url, str(tmp_path / "user"), size)
