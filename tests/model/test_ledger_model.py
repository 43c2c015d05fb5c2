"""Reports and contention against a small model, over random histories.

The model never reads the journal. It looks at the tables before and after each step, and notes what
has become of what; and before the clock moves, it notes what is held, claimed and waited for, and
for how much of that time. A period is then a matter of adding up what lies in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

import dibs
from dibs.errors import DibsError, HeldError
from dibs.nouns.events.accounts import NAMES
from dibs.nouns.leases.grants import LEASES, named, take
from dibs.nouns.leases.looking import refuse_deadlock
from dibs.nouns.leases.queue import Ticket
from dibs.nouns.work.tasks import ANY, WORK
from dibs.space.scope import AGENTS as SESSIONS
from tests.model.machines import SIZES, SpaceMachine, run

Row = dict[str, Any]
Task = str | None
AGENTS = st.sampled_from(["alice", "bob", "carol", "dave"])
PATHS = ["src", "src/a.py", "src/b.py", "docs/c.md", "port:1"]
SOME = st.lists(st.sampled_from(PATHS), min_size=1, max_size=2, unique=True)
MODES = st.sampled_from(["exclusive", "exclusive", "shared"])
TTLS = st.sampled_from([5, 60, 50_000])
TICKS = st.sampled_from([0.001, 3, 50, 4_000, 90_000])
TASKS = st.sampled_from(["one", "two", "three", "group"])
COMMITS = ["a" * 40, "b" * 40]
DAY_MS = 86_400_000
BYS = st.sampled_from(["agent", "task", "path", "day"])
NOT_MODELLED = {
    "avoided", "expired", "intrusions", "input_tokens", "output_tokens", "cache_tokens", "cost_usd"
}  # fmt: skip
"""What is not in the tables; the contract tests have it."""


def overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


@dataclass
class Seen:
    """The tables at one moment."""

    seq: int
    now: int
    tasks: dict[str, Row]
    leases: dict[tuple[str, int], Row]
    tickets: dict[int, list[Row]]
    sessions: dict[int, str]

    def working_on(self, session: int, before: float = inf) -> Task:
        """The task that a session claimed last, before that epoch, and still has."""
        claimed = [
            row for row in self.tasks.values()
            if row["state"] == "claimed" and row["session"] == session and row["due"] > self.now
            and row["epoch"] < before
        ]  # fmt: skip
        return max(claimed, key=lambda row: row["epoch"])["id"] if claimed else None


@dataclass
class Fact:
    """Something that happened, or some time that went by."""

    name: str
    agent: Task
    task: Task
    paths: tuple[str, ...]
    at: int
    seq: int = 0
    until: int = 0


@dataclass
class Wait:
    """A ticket; behind: who was in the way of which path when it began, and for which task."""

    agent: str
    task: Task
    paths: tuple[str, ...]
    behind: dict[str, set[tuple[str, Task]]]
    began: int
    ended: int | None = None
    times: list[tuple[int, int]] = field(default_factory=list)


class LedgerMachine(SpaceMachine):
    def __init__(self) -> None:
        super().__init__()
        self.facts: list[Fact] = []
        self.waits: dict[int, Wait] = {}
        self.tickets: dict[int, Ticket] = {}
        self.begun_for: dict[tuple[str, int, int], Task] = {}
        """The task that each lease without one was claimed during."""
        self.queued_by: dict[str, str] = {}
        self.marks: list[int] = []
        self.unnoticed = False
        """Whether somebody may have died, and nobody has found out yet."""

    def agent(self, name: str) -> dibs.Agent:
        if name not in self.agents:  # who joins may find that somebody has died
            self.step(lambda: super(LedgerMachine, self).agent(name))
        return self.agents[name]

    # The model.

    def look(self) -> Seen:
        store = self.space.scope.store
        with store.read() as tx:
            tasks = tx.rows(WORK.list, **ANY, after=0, now=tx.now, limit=1000)
            leases = tx.rows(LEASES.all, now=-1, agent=None, limit=1000)
            tickets: dict[int, list[Row]] = {}
            for row in tx.rows(LEASES.queue, limit=1000):
                tickets.setdefault(row["epoch"], []).append(row)
            return Seen(
                seq=self.space.events.last(),
                now=self.now,
                tasks={row["id"]: row for row in tasks},
                leases={(row["resource"], row["session"]): row for row in leases},
                tickets=tickets,
                sessions={row["id"]: row["agent"] for row in tx.rows(SESSIONS.open)},
            )

    def step(self, act: Any, *said: tuple[str, str, str], leaves: int = 0) -> Any:
        """Do something, and learn what became of it.

        said: what is counted if it succeeds, for which agent and task
        leaves: the session that ends by itself
        """
        before, answer = self.look(), None
        try:
            answer = act()
        except DibsError:
            said = ()
        after = self.look()
        for name, agent, task in said:
            self.count(name, agent, task, after.seq)
        told = {(name, task): agent for name, agent, task in said}
        self.learn_tasks(before, after, told, leaves)
        self.learn_leases(before, after, leaves)
        self.learn_tickets(before, after)
        if after.seq > before.seq:
            self.marks.append(after.seq)
        return answer

    def count(self, name: str, agent: Task, task: Task, seq: int, *paths: str) -> None:
        self.facts.append(Fact(name, agent, task, paths, self.now, seq))

    def learn_tasks(
        self, before: Seen, after: Seen, said: dict[tuple[str, str], str], leaves: int
    ) -> None:
        for id, row in after.tasks.items():
            old = before.tasks.get(id) or {"state": "", "epoch": None, "landing": None}
            landing, state = row["kind"] == "landing", row["state"]
            if state == "completed" != old["state"]:
                by = self.queued_by[id] if landing else row["agent"]
                self.count("landed" if landing else "done", by, id, after.seq)
            if state == "dead" != old["state"]:
                by = self.queued_by[id] if landing else row["agent"]
                by = None if ("refused", id) in said else by
                self.count("not_landed" if landing else "dead", by, id, after.seq)
            claimed = row["epoch"] is not None and row["epoch"] > before.seq
            if old["state"] == "claimed" and (state != "claimed" or claimed):
                ended = {"complete", "failed", "fail", "abandoned", "abandon", "cancelled"}
                ended |= {"revoked", "handed_in", "asked"}
                by = said.get(("cancelled", id), old["agent"])
                lost = old["session"] not in after.sessions
                lost |= by != old["agent"] and old["due"] <= self.now
                if lost or not any((name, id) in said for name in ended):
                    name = "freed_tasks" if old["session"] not in after.sessions else "lapsed"
                    if old["session"] == leaves:
                        name = "abandoned"
                    self.count(name, old["agent"], id, after.seq)
                    spent = old["attempts"] >= old["max_attempts"]
                    if spent and {("cancelled", id), ("reopened", id)} & said.keys():
                        self.count("dead", old["agent"], id, after.seq)  # but not for long
            if claimed:
                self.count("claims", row["agent"], id, after.seq)
                was = old["state"], old.get("reason", "")
                if was[0] == "claimed" or was[1].endswith((" died", "let the claim expire")):
                    self.count("taken_over", row["agent"], id, after.seq)
            back = old["state"] == "blocked" and old["landing"] is not None
            if back and row["landing"] is None and state in ("available", "claimed"):
                self.count("returned", row["agent"], id, after.seq)

    def learn_leases(self, before: Seen, after: Seen, leaves: int) -> None:
        for key, row in after.leases.items():
            if row["epoch"] > before.seq:
                # One that was waited for may be granted just before its agent claims a task.
                begun_for = after.working_on(key[1], before=row["epoch"])
                self.begun_for[*key, row["epoch"]] = begun_for
                self.count("leases", row["agent"], self.task_of(row), after.seq, key[0])
        for session in before.sessions.keys() - after.sessions.keys() - {leaves}:
            self.count("died", before.sessions[session], None, after.seq)
            for key, row in before.leases.items():
                if key[1] == session:
                    task = self.task_of(row)
                    self.count("freed_leases", row["agent"], task, after.seq, key[0])

    def task_of(self, lease: Row) -> Task:
        begun: Task = self.begun_for[lease["resource"], lease["session"], lease["epoch"]]
        task: Task = lease["task"]
        return begun if task is None else task

    def learn_tickets(self, before: Seen, after: Seen) -> None:
        for number, rows in after.tickets.items():
            if number not in self.waits:
                agent, session = rows[0]["agent"], rows[0]["session"]
                behind = {row["resource"]: self.behind(after, row) for row in rows}
                self.waits[number] = wait = Wait(
                    agent=agent,
                    task=after.working_on(session),
                    paths=tuple(row["resource"] for row in rows),
                    behind={path: who for path, who in behind.items() if who},
                    began=after.seq,
                )
                self.count("waits", agent, wait.task, after.seq, *wait.paths)
        for number, rows in before.tickets.items():
            if number not in after.tickets:
                wait, session = self.waits[number], rows[0]["session"]
                wait.ended = after.seq
                held = all((path, session) in after.leases for path in wait.paths)
                # On a server, a ticket that its process no longer keeps alive is dead.
                held &= rows[0]["deadline"] is None or rows[0]["deadline"] > self.now
                name = "gave_up" if number not in self.tickets else "served" if held else ""
                if name:
                    self.count(name, wait.agent, wait.task, after.seq, *wait.paths)
                if number in self.tickets:
                    self.tickets.pop(number).let_go()

    def behind(self, seen: Seen, want: Row) -> set[tuple[str, Task]]:
        """Who is in the way of somebody who has just begun to wait."""

        def meets(row: Row) -> bool:
            return (
                row["session"] != want["session"]
                and "exclusive" in (row["mode"], want["mode"])
                and overlap(row["resource"], want["resource"])
            )

        found = [row for row in seen.leases.values() if meets(row)]
        holds = any(
            row["session"] == want["session"]
            and row["deadline"] > self.now
            and row["mode"] in (want["mode"], "exclusive")
            and (want["resource"] == path or want["resource"].startswith(f"{path}/"))
            for (path, _), row in seen.leases.items()
        )
        if not holds:
            ahead = [row for rows in seen.tickets.values() for row in rows]
            found += [row for row in ahead if row["epoch"] < want["epoch"] and meets(row)]
        return {(row["agent"], seen.working_on(row["session"])) for row in found}

    def waits_already(self, agent: dibs.Agent, *modes: str) -> bool:
        """Whether it could be granted something twice in one step, or a lease and a task in an
        order that the tables do not show."""
        mine = [row for rows in self.look().tickets.values() for row in rows
                if row["session"] == agent.session]  # fmt: skip
        return any(row["mode"] in modes or not modes for row in mine)

    # The steps.

    @initialize(paths=st.lists(SOME, min_size=3, max_size=3), claimed=st.integers(0, 4))
    def begin(self, paths, claimed):
        """There is work, and most of it is claimed: or hardly anything would be lost or landed."""
        self.add("group", [], False, 0, 1)
        for id, some in zip(("one", "two", "three"), paths, strict=True):
            self.add(id, some, True, 0, 2)
        for name in ("alice", "bob", "carol", "dave")[:claimed]:
            self.next_task(name, 4_000)

    @rule(seconds=TICKS)
    def tick(self, seconds):
        if self.unnoticed:  # who died and let a claim expire has done either first
            self.sweep()
        seen, now = self.look(), self.now
        self.clock.advance(seconds)
        for row in seen.leases.values():
            end = min(self.now, row["deadline"])
            task, paths = self.task_of(row), (row["resource"],)
            self.facts.append(Fact("held_ms", row["agent"], task, paths, now, until=end))
        for id, row in seen.tasks.items():
            if row["state"] == "claimed":
                end = min(self.now, row["due"])
                self.facts.append(Fact("worked_ms", row["agent"], id, (), now, until=end))
        for number in seen.tickets:
            wait = self.waits[number]
            wait.times.append((now, self.now))
            asked = wait.paths
            fact = Fact("waited_ms", wait.agent, wait.task, asked, now, until=self.now)
            self.facts.append(fact)

    @rule(name=AGENTS, paths=SOME, mode=MODES, ttl=TTLS)
    def claim(self, name, paths, mode, ttl):
        agent = self.agent(name)
        if not self.waits_already(agent, "shared"):
            self.step(lambda: agent.leases.claim(*paths, mode=mode, ttl_s=ttl))

    @rule(name=AGENTS, paths=SOME, mode=MODES, ttl=TTLS)
    def queue(self, name, paths, mode, ttl):
        agent = self.agent(name)
        scope = agent.scope
        if self.waits_already(agent):
            return

        def act() -> Ticket | None:
            wants = named(scope, paths, mode)
            with scope.write() as tx:
                try:
                    take(tx, scope, wants, ttl * 1000, "")
                except HeldError:
                    refuse_deadlock(tx, wants, name, agent.session)
                    ticket = Ticket(scope, tx, wants, ttl * 1000, "", 3600, tx.now)
                    self.tickets[ticket.number] = ticket
                    return ticket
            return None

        self.step(act)

    @precondition(lambda self: self.tickets)
    @rule(number=st.integers(0, 9))
    def withdraw(self, number):
        chosen = sorted(self.tickets)[number % len(self.tickets)]
        ticket = self.tickets.pop(chosen)
        self.step(ticket.withdraw)
        ticket.let_go()

    @precondition(lambda self: self.tickets)
    @rule(number=st.integers(0, 9))
    def help_queue(self, number):
        ticket = self.tickets[sorted(self.tickets)[number % len(self.tickets)]]

        def act() -> None:
            _, _, more = ticket.look()
            if more is not None:
                more()

        self.step(act)

    @rule(name=AGENTS, ttl=TTLS)
    def renew(self, name, ttl):
        agent = self.agent(name)
        self.step(lambda: agent.leases.renew(everything=True, ttl_s=ttl))

    @rule(name=AGENTS, path=st.sampled_from([None, *PATHS]))
    def release(self, name, path):
        agent = self.agent(name)
        named = [path] if path else []
        self.step(lambda: agent.leases.release(*named, everything=not named))

    @rule(name=AGENTS, to=AGENTS, path=st.sampled_from(PATHS))
    def transfer(self, name, to, path):
        agent = self.agent(name)
        if self.waits_already(self.agent(to)):
            return
        self.step(lambda: agent.leases.transfer(path, to=to))

    @rule(name=AGENTS, path=st.sampled_from(PATHS))
    def revoke(self, name, path):
        agent, before = self.agent(name), self.look()
        taken = self.step(lambda: agent.leases.revoke(path)) or ()
        for lease in taken:
            row = before.leases[lease.resource, lease.session]
            self.count("revoked", lease.agent, self.task_of(row), self.marks[-1], lease.resource)

    @rule(
        id=TASKS, paths=SOME, some=st.booleans(), priority=st.integers(0, 1), most=st.integers(1, 3)
    )
    def add(self, id, paths, some, priority, most):
        lead = self.agent("lead")
        given: dict[str, Any] = {"with_children": True} if id == "group" else {"max_attempts": most}
        if some:
            given |= {"leases": paths} if id != "group" else {}
            given |= {"parent": "group"} if id == "two" else {}
        self.step(lambda: lead.work.add(id, priority=priority, **given))

    @rule(name=AGENTS, id=TASKS, ttl=TTLS)
    def claim_task(self, name, id, ttl):
        agent = self.agent(name)
        if id in self.look().tasks and not self.waits_already(agent):
            self.step(lambda: agent.work.claim(id, ttl_s=ttl))

    @rule(name=AGENTS, ttl=TTLS)
    def next_task(self, name, ttl):
        agent = self.agent(name)
        if self.waits_already(agent):
            return
        self.sweep()  # what a death frees while somebody looks for work may not be looked at
        task = self.step(lambda: agent.work.next(ttl_s=ttl))
        if task is not None:
            seen = self.look()
            better = [
                row for row in seen.tasks.values()
                if row["state"] == "available" and row["kind"] != "landing"
                and (-row["priority"], row["number"]) < (-task.priority, task.seq)
            ]  # fmt: skip
            if better:
                self.count("passed", name, task.id, seen.seq)

    @rule(name=AGENTS, ttl=TTLS)
    def conduct(self, name, ttl):
        agent = self.agent(name)
        if self.waits_already(agent):
            return
        self.step(lambda: agent.work.next(kind="landing", tags=["land:main"], ttl_s=ttl))

    @rule(
        name=AGENTS,
        how=st.sampled_from(["complete", "complete", "fail", "abandon", "renew", "ask"]),
    )
    def end_task(self, name, how):
        agent, seen = self.agent(name), self.look()
        id = seen.working_on(agent.session)
        if id is None:
            return
        landing = seen.tasks[id]["kind"] == "landing"
        if how == "renew":
            self.step(lambda: agent.work.renew(id, ttl_s=60))
        elif how == "ask":
            self.step(lambda: agent.work.ask(id, "May I?"), ("asked", name, id))
        else:
            said = {"fail": "failed", "abandon": "abandoned"}.get(how, how)
            said = how if landing else said
            self.step(lambda: getattr(agent.work, how)(id), (said, name, id))

    @rule(name=AGENTS, commit=st.integers(0, 1), with_task=st.sampled_from([True, True, False]))
    def land(self, name, commit, with_task):
        agent, seen = self.agent(name), self.look()
        id = seen.working_on(agent.session) if with_task else None
        if id is not None and seen.tasks[id]["kind"] == "landing":
            id = None
        landing = f"land:main:feature@{COMMITS[commit][:12]}"
        new = seen.tasks.get(landing, {"state": "dead"})["state"] in ("dead", "cancelled")
        was = self.queued_by.get(landing)
        if new:
            self.queued_by[landing] = name
        said = [("handed_in", name, id)] if id is not None else []
        done = self.step(lambda: agent.work.land("feature", commit=COMMITS[commit], task=id), *said)
        if done is None and was is not None:
            self.queued_by[landing] = was

    @rule(id=TASKS, refuse=st.booleans())
    def ack(self, id, refuse):
        lead = self.agent("lead")
        said = [("refused", "lead", id)] if refuse else []
        self.step(lambda: lead.work.ack(id, refuse=refuse), *said)

    @rule(name=AGENTS, id=TASKS)
    def cancel(self, name, id):
        agent = self.agent(name)
        self.step(lambda: agent.work.cancel(id), ("cancelled", name, id))

    @rule(name=AGENTS, id=TASKS)
    def reopen(self, name, id):
        agent = self.agent(name)
        self.step(lambda: agent.work.reopen(id), ("reopened", name, id))

    @rule(id=TASKS)
    def revoke_task(self, id):
        lead, row = self.agent("lead"), self.look().tasks.get(id)
        if row is None or row["state"] != "claimed":
            return
        taken = [
            lease for lease in self.look().leases.values()
            if lease["session"] == row["session"] and lease["task"] == id
        ]  # fmt: skip
        if self.step(lambda: lead.work.revoke(id), ("revoked", row["agent"], id)) is not None:
            left = self.look().leases
            for lease in taken:
                if (lease["resource"], lease["session"]) not in left:
                    path = lease["resource"]
                    self.count("revoked", lease["agent"], id, self.marks[-1], path)

    @rule(name=AGENTS)
    def leave(self, name):
        agent = self.agents.pop(name, None)
        if agent is not None:
            self.step(agent.close, leaves=agent.session)

    @precondition(lambda self: self.on_sqlite)
    @rule(name=AGENTS)
    def die(self, name):
        """The kernel drops the session's lock; who looks next finds out."""
        agent = self.agents.pop(name, None)
        if agent is not None:
            liveness = self.space.scope.store.liveness
            assert liveness is not None
            liveness.let_go(agent.session)
            self.clock.advance(0)
            self.unnoticed = True
            mine = [row for row in self.look().tasks.values() if row["session"] == agent.session]
            if any(row["due"] <= self.now for row in mine if row["state"] == "claimed"):
                self.sweep()

    @rule()
    def sweep(self):
        """What lapsed sessions hold is freed; nothing is old enough to be removed."""
        self.step(lambda: self.agent("lead").events.prune(keep_s=3_000 * 86_400))
        self.unnoticed = False

    # What must hold.

    @precondition(lambda self: self.marks)
    @rule(by=BYS, one=st.integers(0, 99), other=st.integers(0, 99))
    def reports_and_contention_are_those_of_the_model(self, by, one, other):
        marks = [0, *self.marks]
        first, last = sorted((marks[one % len(marks)], marks[other % len(marks)]))
        self.compare(by, first, last)
        self.compare(by, 0, self.space.events.last())

    def compare(self, by: str, first: int, last: int) -> None:
        ends = last == self.space.events.last()
        begin = self.space.events.since(max(0, first - 1), limit=1)[0].at
        end = self.now if ends else self.space.events.since(max(0, last - 1), limit=1)[0].at
        until = None if ends else last
        report = self.space.events.report(since=first, until=until, by=by)
        total, groups = self.sums(by, first, last, begin, end)
        assert not report.cut
        assert report.unknown == 0
        assert counted(report.total) == total
        found = {one.key: counted(one) for one in report.groups}
        assert {key: sums for key, sums in found.items() if sums} == groups
        self.compare_contention(first, last, until, begin, end)

    def sums(
        self, by: str, first: int, last: int, begin: int, end: int
    ) -> tuple[dict[str, int], dict[Task, dict[str, int]]]:
        total: Counter[str] = Counter()
        groups: dict[Task, Counter[str]] = {}
        for fact in self.facts:
            if not fact.name.endswith("_ms"):
                if fact.name in NAMES and first < fact.seq <= last:
                    total[fact.name] += 1
                    for key in keys(by, fact, fact.at):
                        groups.setdefault(key, Counter())[fact.name] += 1
                continue
            at, until = max(fact.at, begin), min(fact.until, end)
            while at < until:
                upto = min(until, (at // DAY_MS + 1) * DAY_MS)
                total[fact.name] += upto - at
                for key in keys(by, fact, at):
                    groups.setdefault(key, Counter())[fact.name] += upto - at
                at = upto
        return dict(total), {key: dict(sums) for key, sums in groups.items()}

    def compare_contention(
        self, first: int, last: int, until: int | None, begin: int, end: int
    ) -> None:
        found = self.space.events.contention(since=first, until=until, limit=1000)
        inside = [
            (wait, sum(max(0, min(to, end) - max(at, begin)) for at, to in wait.times))
            for wait in self.waits.values()
            if wait.began <= last and (wait.ended is None or wait.ended > first)
        ]
        took = sorted(ms for _, ms in inside)
        assert (found.total.waits, found.total.waited_ms) == (len(took), sum(took))
        for percent, shown in (
            (50, found.total.p50_ms), (90, found.total.p90_ms), (99, found.total.p99_ms),
            (100, found.total.max_ms),
        ):  # fmt: skip
            assert shown == (took[ceil(len(took) * percent / 100) - 1] if took else 0)
        paths: dict[str, list[int]] = {}
        pairs: dict[tuple[str, ...], list[int]] = {}
        splits: Counter[str] = Counter()
        orders: Counter[tuple[Task, ...]] = Counter()
        for wait, ms in inside:
            for path in wait.behind:
                paths.setdefault(path, []).append(ms)
            met = set().union(*wait.behind.values())
            for agent in {agent for agent, _ in met}:
                pairs.setdefault(tuple(sorted((agent, wait.agent))), []).append(ms)
            if len(wait.behind) == 1:
                splits[next(iter(wait.behind))] += ms
            tasks = {task for _, task in met}
            if len(tasks) == 1 and None not in (*tasks, wait.task) and tasks != {wait.task}:
                orders[*tasks, wait.task] += ms
        assert {one.what: (one.waits, one.waited_ms, one.max_ms) for one in found.paths} == {
            path: (len(some), sum(some), max(some)) for path, some in paths.items()
        }
        assert {one.agents: (one.meets, one.waited_ms) for one in found.pairs} == {
            pair: (len(some), sum(some)) for pair, some in pairs.items()
        }
        assert {one.path: one.saved_ms for one in found.splits} == +splits
        assert {one.tasks: one.saved_ms for one in found.orders} == +orders
        waiting = {number for number in self.waits if self.waits[number].ended is None}
        assert {one.ticket for one in found.now} <= waiting

    def teardown(self) -> None:
        for by in ("agent", "task", "path", "day"):
            if self.marks:
                self.compare(by, self.marks[len(self.marks) // 3], self.space.events.last())
        for ticket in self.tickets.values():
            ticket.let_go()
        super().teardown()


def keys(by: str, fact: Fact, at: int) -> tuple[Task, ...]:
    if by == "path":
        return fact.paths or (None,)
    if by == "day":
        return (f"1970-01-{at // DAY_MS + 1:02}",)
    return (fact.agent,) if by == "agent" else (fact.task,)


def counted(tally: dibs.Tally) -> dict[str, int]:
    """What a tally says of what the model knows."""
    return {
        name: getattr(tally, name)
        for name in NAMES
        if name not in NOT_MODELLED and getattr(tally, name)
    }


@pytest.mark.parametrize("size", SIZES)
def test_reports_and_contention_are_those_of_the_model(url, tmp_path, size):
    run(LedgerMachine, url, str(tmp_path / "user"), size)
