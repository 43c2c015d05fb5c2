"""Two MCP servers, fifty agents, one store; then one server is killed.

Each server speaks for half of the agents, as it does for a client with several sessions. Every
agent has one call under way at a time, chosen at random: it claims, waits, changes its mind,
works, writes and reads. One server gets a SIGKILL in the middle of it all and is started again.

What is believed of the answers is held against each other and against the store: nobody holds
what another holds, what was acknowledged is there, and what nobody has is free.
"""

from __future__ import annotations

import random
import resource as limits
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

import dibs
from tests.surfaces.mcp_client import (
    Client,
    Json,
    Start,
    check_tool_answer,
    clients,
    look_into,
    new_shell,
)
from tests.surfaces.shell import Shell, until

AGENTS = 50
LOCKS, COUNTERS = 30, 4
SESSION_TTL_S = 30
"""How long a killed session lives on where processes cannot be seen."""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return new_shell(tmp_path)


class Held:
    """A time during which an agent had good reason to believe that something was its own."""

    def __init__(self, what: str, agent: str, epoch: int) -> None:
        self.what, self.agent, self.epoch = what, agent, epoch
        self.begin = time.monotonic_ns()
        self.end: int | None = None

    def over(self) -> None:
        self.end = time.monotonic_ns()


class Agent:
    """One of the fifty: what it holds, and the call it waits for."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.name = ""
        self.held: dict[str, Held] = {}
        self.tasks: dict[str, Held] = {}

    def lets_go(self) -> None:
        for held in (*self.held.values(), *self.tasks.values()):
            held.over()
        self.held, self.tasks = {}, {}


class Asked:
    """A call under way."""

    def __init__(self, agent: Agent, tool: str, arguments: Json) -> None:
        self.agent, self.tool, self.arguments = agent, tool, arguments
        self.cancelled = False
        self.given_up: list[Held] = []


class Book:
    """What all agents have been told."""

    def __init__(self) -> None:
        self.holdings: list[Held] = []
        self.added: set[str] = set()
        self.completed: Counter[str] = Counter()
        self.sent: dict[str, str | None] = {}
        self.read: Counter[tuple[str, str]] = Counter()
        self.versions: dict[tuple[str, int], Any] = {}
        self.answers: Counter[str] = Counter()
        self.calls = self.cancelled = 0
        self.cut_off: list[Asked] = []
        self.numbers = count()


class Crew:
    """The agents of one server."""

    def __init__(self, client: Client, agents: list[Agent], book: Book, seed: int) -> None:
        self.client, self.agents, self.book = client, agents, book
        self.pick = random.Random(seed)
        self.idle = list(agents)
        self.asked: dict[int | str, Asked] = {}
        self._heard = 0
        self.gone = False
        for agent in agents:
            agent.name = client.of(agent.session).call("status")["you"]

    # Asking.

    def play(self) -> None:
        """Let somebody who has nothing under way do something, or change its mind."""
        waiting = [id for id, asked in self.asked.items() if waits(asked) and not asked.cancelled]
        if waiting and (not self.idle or self.pick.random() < 0.08):
            id = self.pick.choice(waiting)
            self.asked[id].cancelled = True
            self.client.cancel(id)
            self._probe(id)
            self.book.cancelled += 1
        elif self.idle:
            agent = self.idle.pop(self.pick.randrange(len(self.idle)))
            self.ask(agent, *self._choose(agent))

    def _probe(self, id: int | str) -> None:
        """Ask something else under the id of a cancelled call: it is in use until then."""
        if not self.gone:
            self.client.begin("prompts/list", id=id)

    def ask(self, agent: Agent, tool: str, arguments: Json) -> None:
        asked = Asked(agent, tool, arguments)
        if tool == "release":
            for name in arguments.get("resources", list(agent.held)):
                asked.given_up.append(agent.held.pop(name))
        elif tool == "work_done":
            asked.given_up.append(agent.tasks.pop(arguments["id"]))
        for held in asked.given_up:
            held.over()
        id = self.client.begin_call(tool, arguments, sessionId=agent.session)
        self.asked[id] = asked
        self.book.calls += 1

    def _choose(self, agent: Agent) -> tuple[str, Json]:
        pick, number = self.pick, next(self.book.numbers)
        if agent.held and pick.random() < 0.3:
            some = pick.sample(sorted(agent.held), pick.randint(1, len(agent.held)))
            outcome = pick.choice(("released", "modified"))
            if pick.random() < 0.2:
                return "release", {"everything": True}
            return "release", {"resources": some, "outcome": outcome}
        if agent.tasks and pick.random() < 0.4:
            end = pick.choice(("completed", "completed", "completed", "abandoned"))
            return "work_done", {"id": pick.choice(sorted(agent.tasks)), "outcome": end}
        wait_s = pick.choice((0, 0, 0.02, 0.2, 2))
        free = [f"lock:{n}" for n in range(LOCKS) if f"lock:{n}" not in agent.held]
        match pick.choice(
            "claim claim claim add next next send send inbox inbox set status".split()
        ):
            case "claim":
                wanted = pick.sample(free, min(len(free), pick.choice((1, 1, 1, 2, 3))))
                return "claim", {"resources": wanted, "wait_s": wait_s, "note": f"n{number}"}
            case "add":
                return "work_add", {"id": f"task-{number}", "priority": pick.randrange(3)}
            case "next":
                return "work_next", {"wait_s": wait_s}
            case "send":
                to = pick.choice(self.agents).name if pick.random() < 0.8 else None
                where = {} if to is None else {"to": to}
                return "send", {"body": f"message-{number}", **where}
            case "inbox":
                return "inbox", {"wait_s": wait_s}
            case "set":
                key = f"counter-{pick.randrange(COUNTERS)}"
                known = [version for at, version in self.book.versions if at == key]
                return "set", {
                    "namespace": "n", "key": key, "value": number,
                    "expected_version": max(known, default=0),
                }  # fmt: skip
        return "status", {}

    # Being answered.

    def listen(self) -> None:
        """Take in all answers that have come since."""
        fresh = self.client.heard[self._heard :]
        self._heard += len(fresh)
        for message in fresh:
            asked = self.asked.get(message.get("id"))
            if asked is None:
                continue
            if asked.cancelled and "structuredContent" not in message.get("result", {}):
                self._probed(message)
                continue
            assert "result" in message, (asked.tool, asked.arguments, message)
            answer = check_tool_answer(asked.tool, message["result"])
            assert "isError" not in message["result"], (asked.arguments, answer)
            self._believe(asked, answer)
            if not asked.cancelled:
                self._free(message["id"])

    def _probed(self, message: Json) -> None:
        if "error" in message:
            assert "in use" in message["error"]["message"], message
            self._probe(message["id"])
        else:
            self._free(message["id"])

    def _free(self, id: int | str) -> None:
        self.idle.append(self.asked.pop(id).agent)

    def _believe(self, asked: Asked, answer: Json) -> None:
        book, agent, status = self.book, asked.agent, answer["status"]
        book.answers[f"{asked.tool} {status}"] += 1
        match asked.tool, status:
            case "claim", "claimed":
                for name in asked.arguments["resources"]:
                    agent.held[name] = self._hold(name, agent, answer["epoch"])
            case "work_next", "claimed":
                agent.tasks[answer["id"]] = self._hold(answer["id"], agent, answer["epoch"])
            case "work_add", "added":
                book.added.add(answer["id"])
            case "work_done", "completed":
                book.completed[answer["id"]] += 1
            case "send", "sent":
                book.sent[asked.arguments["body"]] = asked.arguments.get("to")
            case "inbox", "ok":
                book.read.update((agent.name, one["body"]) for one in answer["messages"])
            case "set", "ok":
                version = answer["version"]
                assert (asked.arguments["key"], version) not in book.versions, "set twice"
                book.versions[asked.arguments["key"], version] = asked.arguments["value"]
            case "claim", "busy" | "deadlock":
                pass
            case ("work_next", "all_done" | "later") | ("set", "conflict") | ("status", "ok"):
                pass
            case ("release", "released") | ("work_done", "abandoned"):
                pass
            case _:
                raise AssertionError((asked.tool, asked.arguments, answer))

    def _hold(self, what: str, agent: Agent, epoch: int) -> Held:
        held = Held(what, agent.name, epoch)
        self.book.holdings.append(held)
        return held

    def bury(self) -> None:
        """The server is gone: what it answered before counts, the rest nobody will know."""
        self.gone = True
        self.listen()
        for agent in self.agents:
            agent.lets_go()
        self.book.cut_off += self.asked.values()
        self.asked = {}

    def settled(self) -> bool:
        self.listen()
        return not self.asked


def waits(asked: Asked) -> bool:
    return bool(asked.arguments.get("wait_s"))


class Stage:
    """The store, its two servers, and everything that is checked in the end."""

    def __init__(self, shell: Shell, start: Start, seed: int) -> None:
        self.shell, self.start = shell, start
        self.pick = random.Random(seed)
        self.book = Book()
        half = AGENTS // 2
        self.people = [[Agent(f"s-{n}") for n in range(at, at + half)] for at in (0, half)]
        self.crews = [self.crew(0), self.crew(1)]
        self.held_by_killed = 0
        self.free_after_s = 0.0

    def crew(self, which: int) -> Crew:
        client = self.start("--tools", "all", name="codex-mcp-client")
        return Crew(client, self.people[which], self.book, self.pick.getrandbits(32))

    def play(self, calls: int) -> None:
        """Let everybody play until so many more calls were made."""
        end = self.book.calls + calls
        while self.book.calls < end:
            for crew in self.crews:
                crew.listen()
                # Bursts, so that calls of many agents are under way in each server.
                for _ in range(self.pick.randrange(1, 6)):
                    crew.play()
            time.sleep(0.0005)

    def rest(self) -> None:
        """Let everything come to its end that was asked."""
        until(lambda: all([crew.settled() for crew in self.crews]), "all calls answered")

    def kill(self, store: dibs.Dibs, at_once: bool) -> None:
        """Kill one server in the middle of its work, and look at once what it left."""
        dead, other = self.crews
        dead.listen()
        held = sorted({name for agent in dead.agents for name in (*agent.held, *agent.tasks)})
        names = {agent.name for agent in dead.agents}
        for agent in dead.agents:
            agent.lets_go()
        dead.client.kill()
        began = time.monotonic()
        dead.bury()
        self.held_by_killed += len(held)
        if at_once:
            # The first look after its end: nobody sees it hold or wait for anything any more.
            assert not names & {lease.agent for lease in store.leases.list()}
            self.free_after_s = max(self.free_after_s, time.monotonic() - began)
            assert not names & {ticket.agent for ticket in store.leases.waiting()}
            for name in (one for one in held if one.startswith("lock:")):
                asked = other.client.call("status", resource=name)
                assert asked.get("held_by") not in names, asked
            assert {one["name"] for one in other.client.call("status")["agents"]} & names == set()
        else:
            until(
                lambda: not names & {lease.agent for lease in store.leases.list()},
                "the end of the killed sessions",
                SESSION_TTL_S + 30,
            )
            self.free_after_s = max(self.free_after_s, time.monotonic() - began)
        # It is really free: somebody can have all of it that nobody else got meanwhile.
        self.rest()
        taken = {name for agent in other.agents for name in agent.held}
        left = [name for name in held if name.startswith("lock:") and name not in taken]
        if left:
            claimed = other.client.call("claim", resources=left)
            assert claimed["status"] == "claimed", claimed
            other.client.call("release", resources=left)
        self.crews[0] = self.crew(0)

    def compare_holdings(self, store: dibs.Dibs) -> None:
        """What the agents believe to hold is what the store says, no more and no less."""
        agents = [agent for crew in self.crews for agent in crew.agents]
        names = {agent.name for agent in agents}

        def believed() -> set[tuple[str, str, int]]:
            for crew in self.crews:
                crew.listen()
            return {
                (held.what, held.agent, held.epoch)
                for agent in agents
                for held in (*agent.held.values(), *agent.tasks.values())
            }

        def known() -> set[tuple[str, str, int]]:
            tasks = store.work.list(state="claimed", limit=1000)
            found = {(lease.resource, lease.agent, lease.epoch) for lease in store.leases.list()}
            found |= {(task.id, task.agent or "", task.epoch or 0) for task in tasks}
            return {entry for entry in found if entry[1] in names}

        # A cancelled call gives back what it was granted; that may take a moment.
        until(lambda: believed() == known(), "agreement with the store")
        assert store.leases.waiting() == ()

    def finish(self) -> None:
        """Everybody ends what it has begun, and reads what is left for it."""
        for crew in self.crews:
            for agent in crew.agents:
                voice = crew.client.of(agent.session)
                agent.lets_go()
                voice.call("release", everything=True)
                while messages := voice.call("inbox")["messages"]:
                    self.book.read.update((agent.name, one["body"]) for one in messages)
        for crew in self.crews:
            for agent in crew.agents:
                voice = crew.client.of(agent.session)
                mine = [one["id"] for one in voice.call("status")["tasks"]]
                while mine or (taken := voice.call("work_next"))["status"] == "claimed":
                    id = mine.pop() if mine else taken["id"]
                    assert voice.call("work_done", id=id)["status"] == "completed"
                    self.book.completed[id] += 1

    def check(self, store: dibs.Dibs) -> None:
        events = list(journal(store))
        self._check_mutual_exclusion(events)
        self._check_work(store)
        self._check_messages(store)
        self._check_versions(store)
        assert store.agents.verify() == ()

    def _check_mutual_exclusion(self, events: list[dibs.Event]) -> None:
        assert overlaps(self.book.holdings) == []
        assert second_holders(events) == []
        written = {
            (event.subject, event.agent, event.data["epoch"])
            for event in events
            if event.kind in ("lease.claimed", "lease.renewed", "task.claimed")
        }
        told = {(held.what, held.agent, held.epoch) for held in self.book.holdings}
        assert told <= written, sorted(told - written)[:5]

    def _check_work(self, store: dibs.Dibs) -> None:
        tasks: dict[str, dibs.Task] = {}
        after = 0
        while page := store.work.list(after=after, limit=1000):
            tasks |= {task.id: task for task in page}
            after = page[-1].seq
        cut_off = {a.arguments.get("id") for a in self.book.cut_off}
        assert self.book.added <= tasks.keys()
        assert {task.state for task in tasks.values()} <= {"completed"}
        assert not [id for id, times in self.book.completed.items() if times > 1]
        unknown = tasks.keys() - self.book.completed.keys()
        assert unknown <= cut_off, unknown - cut_off

    def _check_messages(self, store: dibs.Dibs) -> None:
        twice = [entry for entry, times in self.book.read.items() if times > 1]
        assert not twice, twice[:5]
        names = {agent.name for crew in self.crews for agent in crew.agents}
        # Whoever was reading when its server was killed may never have seen the answer.
        deaf = {asked.agent.name for asked in self.book.cut_off if asked.tool == "inbox"}
        lost = [
            (body, to)
            for body, to in self.book.sent.items()
            if to in names - deaf and (to, body) not in self.book.read
        ]
        known = {message.body: message.sender for message in history(store)}
        lost = [(body, to) for body, to in lost if known[body] != to]  # nobody reads their own
        assert not lost, lost[:5]
        assert self.book.sent.keys() <= known.keys()

    def _check_versions(self, store: dibs.Dibs) -> None:
        written: dict[tuple[str, int], Any] = {}
        for number in range(COUNTERS):
            newest = 2**62
            key = f"counter-{number}"
            while page := store.state.history("n", key, before=newest, limit=1000):
                written |= {(key, entry.version): entry.value for entry in page}
                newest = page[-1].version
        assert self.book.versions.items() <= written.items()


def overlaps(holdings: list[Held]) -> list[tuple[str, int, int]]:
    """What two agents believed to hold at once, or in another order than that of their epochs."""
    by_name: dict[str, list[Held]] = {}
    for held in holdings:
        by_name.setdefault(held.what, []).append(held)
    return [
        (name, one.epoch, two.epoch)
        for name, spans in by_name.items()
        for one, two in pairwise(sorted(spans, key=lambda held: held.begin))
        if one.end is None or one.end > two.begin or one.epoch >= two.epoch
    ]


def second_holders(events: list[dibs.Event]) -> list[Any]:
    """Grants in the journal of what another session still held."""
    holder: dict[str, int | None] = {}
    second = []
    for event in events:
        topic, _, verb = event.kind.partition(".")
        if topic not in ("lease", "task"):
            continue
        if verb == "claimed":
            if holder.get(event.subject, event.session) != event.session:
                second.append((event.subject, holder[event.subject], event.session))
            holder[event.subject] = event.session
        elif verb in ("released", "freed", "expired", "completed", "abandoned", "failed", "dead"):
            holder.pop(event.subject, None)
    return second


def journal(store: dibs.Dibs) -> Iterator[dibs.Event]:
    seq = 0
    while events := store.events.since(seq):
        yield from events
        seq = events[-1].seq


def history(store: dibs.Dibs) -> Iterator[dibs.Message]:
    before = 2**62
    while page := store.messages.history(before=before, limit=1000):
        yield from page
        before = page[-1].id


def perform(shell: Shell, calls: int, kills: int, seed: int, at_once: bool = True) -> str:
    began = time.monotonic()
    with clients(shell) as start:
        stage = Stage(shell, start, seed)
        with look_into(shell) as store:
            for _ in range(kills):
                stage.play(calls // (kills + 1))
                stage.kill(store, at_once)
            stage.play(calls // (kills + 1))
            stage.rest()
            stage.compare_holdings(store)
            stage.finish()
            stage.check(store)
        book = stage.book
    for wanted in ("claim claimed", "claim busy", "work_next claimed", "inbox ok", "set conflict"):
        assert book.answers[wanted] > 0, wanted
    assert book.cancelled > 0
    return (
        f"{AGENTS} agents in 2 servers, {kills} killed: {book.calls:,} calls, "
        f"{len(book.holdings):,} grants, {book.cancelled:,} cancelled, "
        f"{len(book.cut_off)} cut off, {sum(book.completed.values()):,} tasks done, "
        f"{sum(book.read.values()):,} messages read, {len(book.versions):,} versions, "
        f"0 held twice, 0 lost; all {stage.held_by_killed} that the killed held were seen free "
        f"after {stage.free_after_s:.2f} s at most; {time.monotonic() - began:.0f} s"
    )


def test_the_comparison_finds_a_second_holder() -> None:
    one, two = Held("lock:1", "one", 5), Held("lock:1", "two", 7)
    assert overlaps([one, two]) == [("lock:1", 5, 7)]
    one.end = two.begin
    assert overlaps([one, two]) == []
    one.epoch = 9
    assert overlaps([one, two]) == [("lock:1", 9, 7)]

    def event(kind: str, session: int) -> dibs.Event:
        return dibs.Event(seq=1, kind=kind, agent="a", session=session, subject="lock:1", data={},
                          at=0)  # fmt: skip

    first, second = event("lease.claimed", 1), event("lease.claimed", 2)
    assert second_holders([first, second]) == [("lock:1", 1, 2)]
    assert second_holders([first, event("lease.freed", 1), second]) == []


def test_fifty_agents_in_two_servers_of_which_one_is_killed(shell: Shell) -> None:
    print("\n" + perform(shell, calls=1_200, kills=1, seed=21))


@pytest.mark.stress
def test_fifty_agents_in_two_servers_of_which_one_is_killed_again_and_again(shell: Shell) -> None:
    print("\nMCP sqlite: " + perform(shell, calls=30_000, kills=10, seed=22))


@pytest.mark.stress
def test_fifty_agents_on_a_shared_database(
    shell: Shell, postgres_url: str, space_name: str
) -> None:
    """Nobody sees a process die there, so what it held is free when its session expires."""
    shared = shell.with_(DIBS_URL=postgres_url, DIBS_SPACE=space_name)
    print("\nMCP postgres: " + perform(shared, calls=10_000, kills=1, seed=23, at_once=False))


@pytest.mark.stress
def test_two_hundred_calls_may_wait_and_others_are_served_all_the_same(shell: Shell) -> None:
    _, hard = limits.getrlimit(limits.RLIMIT_NOFILE)
    assert hard == limits.RLIM_INFINITY or hard >= 2048
    command = ("bash", "-c", "ulimit -n 2048; exec dibs mcp")
    with clients(shell) as start:
        holder, client = start(), start(command=command)
        holder.call("claim", resource="src/a.py")
        wait: Json = {"resource": "src/a.py", "timeout_s": 600}
        waiting = [client.begin_call("wait", wait) for _ in range(200)]
        refused = client.ask("tools/call", {"name": "wait", "arguments": wait})
        assert "200 calls are waiting" in refused["error"]["message"]
        assert client.call("claim", resource="src/b.py")["status"] == "claimed"
        holder.call("release", resource="src/a.py")
        assert {client.outcome(id)["status"] for id in waiting} == {"available"}
