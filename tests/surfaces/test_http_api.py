"""Every operation over HTTP: the library's answers, its refusals, its waits and its journal."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.dibs import operations
from dibs.records import plain
from tests.contract.test_bad_input import RIGHT, cases
from tests.surfaces.daemon import Client, Daemon, Refusal, Stream, serving
from tests.surfaces.shell import PATIENCE_S, Shell, scrubbed, until

OPERATIONS = operations()
WAITING = sorted(name for name, entry in OPERATIONS.items() if "wait_s" in entry.arguments())


class Served:
    """A daemon, and how to open its space beside it."""

    def __init__(self, daemon: Daemon, url: str, space: str) -> None:
        self.daemon = daemon
        self.url = url
        self.space = space

    def open(self, space: str | None = None) -> dibs.Dibs:
        user = Path(self.daemon.shell.environment["XDG_DATA_HOME"]) / "dibs"
        return dibs.open(
            self.url, space=space or self.space, start=self.daemon.shell.folder, user_dir=user
        )

    @property
    def waiting(self) -> int:
        """How many calls wait in the daemon."""
        return self.metric("dibs_waiting")

    def metric(self, name: str) -> int:
        found = self.daemon.client().request("GET", "/metrics").body.decode()
        (line,) = [line for line in found.splitlines() if line.startswith(f"{name} ")]
        return int(float(line.split()[1]))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """One for the tests of this file, on each database in turn."""
    folder = tmp_path_factory.mktemp("api")
    repository = folder / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (folder / "home").mkdir()
    shell, url, space = Shell(repository, scrubbed(folder / "home")), "", "main"
    if request.param == "postgres":
        url, space = (
            request.getfixturevalue("postgres_url"),
            f"http-{folder.name}-{folder.stat().st_ino}",
        )
        shell = shell.with_(DIBS_URL=url, DIBS_SPACE=space)
    with serving(shell) as daemon:
        yield Served(daemon, url or str(repository / ".dibs/dibs.db"), space)


@pytest.fixture
def daemon(served: Served) -> Daemon:
    return served.daemon


# The same answers.

Answer = tuple[int, Any]


class OverHttp:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._clients: dict[str, Client] = {}

    def __call__(self, agent: str, operation: str, given: dict[str, Any]) -> Answer:
        if agent not in self._clients:
            self._clients[agent] = self._daemon.client(agent)
        reply = self._clients[agent].ask(operation, given)
        assert reply.headers["content-type"] == "application/json"
        return reply.status, reply.json


class InLibrary:
    def __init__(self, space: dibs.Dibs) -> None:
        self._space = space
        self._agents: dict[str, dibs.Agent] = {}

    def __call__(self, agent: str, operation: str, given: dict[str, Any]) -> Answer:
        if agent not in self._agents:
            self._agents[agent] = self._space.join(agent, shell=True)
        noun, verb = operation.split(".")
        method = getattr(getattr(self._agents[agent], noun), verb)
        argument = OPERATIONS[operation].many
        many = argument.name if argument else ""
        named = {name: value for name, value in given.items() if name != many}
        try:
            return 200, plain(method(*given.get(many, []), **named))
        except dibs.DibsError as error:
            return error.http_status, error.to_json()


def by_name(operation: str, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call as an object."""
    given = dict(options)
    for place, argument in enumerate(OPERATIONS[operation].arguments().values()):
        if argument.many and place < len(args):
            given[argument.name] = list(args[place:])
            break
        if place < len(args):
            given[argument.name] = args[place]
    return given


def settled(value: Any) -> Any:
    """An answer without what differs from moment to moment and from process to process."""
    if isinstance(value, list):
        # The groups of a report are in the order of their times, which differ.
        grouped = bool(value) and isinstance(value[0], dict) and "worked_ms" in value[0]
        ordered = sorted(value, key=lambda one: str(one["key"])) if grouped else value
        return [settled(item) for item in ordered]
    if not isinstance(value, dict):
        return value
    return {
        name: settled(item)
        for name, item in value.items()
        if not name.endswith(("_at", "_ms"))
        and name not in ("at", "time", "pid", "host", "secret", "space", "hash", "text")
    }


def renamed(value: Any, number: int) -> Any:
    """The same arguments for a world of their own."""
    if isinstance(value, str) and value not in ("moved", "MESSAGE", "TOKEN", "hello"):
        return f"{value}-{number}"
    return [renamed(item, number) for item in value] if isinstance(value, list) else value


def furnish(face: Callable[..., Answer], number: int) -> dict[str, int]:
    """A world in which the right calls go through, as in tests/contract/test_bad_input.py."""
    alice, bob = f"alice-{number}", f"bob-{number}"

    def do(agent: str, operation: str, **given: Any) -> Any:
        status, answer = face(agent, operation, renamed_all(given, number))
        assert status == 200, answer
        return answer

    do(alice, "leases.claim", resources=["port:1"])
    for id in ("open", "mine", "over"):
        do(alice, "work.add", id=id)
    do(alice, "work.claim", id="mine")
    do(alice, "work.cancel", id="over")
    do(alice, "state.set", namespace="plan", key="step", value=1)
    do(bob, "leases.claim", resources=["port:3"])
    do(bob, "work.claim", id="theirs")
    do(bob, "work.claim", id="asks")
    do(bob, "work.ask", id="asks", question="May I?")
    message = do(bob, "messages.send", body="hello", to="alice")["id"]
    return {"MESSAGE": message, "TOKEN": do(bob, "agents.add_token", name="ci")["id"]}


def renamed_all(given: dict[str, Any], number: int) -> dict[str, Any]:
    return {name: renamed(value, number) for name, value in given.items()}


def test_every_operation_answers_as_in_the_library(served: Served, tmp_path: Path) -> None:
    """The same calls to a daemon and to a store of its own: the same JSON, seq by seq.

    Each operation is called twice, so that refusals are compared too.
    """
    twin = Served(served.daemon, str(tmp_path / "twin.db"), f"{served.space}-twin")
    url = str(tmp_path / "fresh.db")
    if served.url.startswith("postgresql"):
        url = twin.url = served.url
    (tmp_path / "home").mkdir()
    shell = served.daemon.shell.with_(
        DIBS_URL=url, DIBS_SPACE=f"{served.space}-fresh", XDG_DATA_HOME=str(tmp_path / "home")
    )
    statuses: Counter[int] = Counter()
    with serving(shell) as fresh, twin.open() as space:
        # What the daemon itself has written.
        owner = space.join("dibs", shell=True)
        owner.agents.add_token("dibs", scope="admin")
        owner.agents.leave()
        there, here = OverHttp(fresh), InLibrary(space)
        # Whoever has left acts no more, and a pruned journal tells nothing.
        last = ["events.prune"]
        for number, name in enumerate([*sorted(RIGHT.keys() - {*last}), *last]):
            ids = furnish(here, number)
            assert ids == furnish(there, number)
            args, options = RIGHT[name]
            given = renamed_all(by_name(name, args, options), number)
            given = {
                key: ids.get(value, value) if isinstance(value, str) else value
                for key, value in given.items()
            }
            for _ in range(2):
                expected, answer = (
                    here(f"alice-{number}", name, given),
                    there(f"alice-{number}", name, given),
                )
                assert answer[0] == expected[0], (name, answer, expected)
                assert settled(answer[1]) == settled(expected[1]), name
                statuses[answer[0]] += 1
    assert statuses[200] > len(RIGHT) and statuses[409] > 3, statuses


def sendable(given: dict[str, Any]) -> bool:
    """Whether JSON can carry it, and we want to see it all."""
    try:
        text = json.dumps(given, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    # In JSON, 1.0 is the whole number 1.
    return ".0" not in text and len(text) < 100_000 and same(json.loads(text), given)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_every_refusal_is_the_library_s(served: Served) -> None:
    """Every argument of every operation, given what it must not be, in one and the same store."""
    there, number = OverHttp(served.daemon), 0
    with served.open() as space:
        here = InLibrary(space)
        ids = furnish(there, 9_999)
        here("alice-9999", "agents.beat", {})
        before = space.events.last()
        for name in sorted(RIGHT):
            for shown, args, options in cases(name, ids):
                given = by_name(name, args, options)
                if shown.endswith("with a key") or not sendable(given):
                    continue
                number += 1
                answer = there("alice-9999", name, given)
                assert answer[0] >= 400, shown
                expected = here("alice-9999", name, given)
                assert answer[0] == expected[0], (shown, answer, expected)
                assert settled(answer[1]) == settled(expected[1]), shown
        assert space.events.last() == before
    assert number > 800


# Waits.

CALLS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "leases.claim": ({"resources": ["IT"]}, "leases.release", {"resources": ["IT"]}),
    "leases.wait": ({"resources": ["IT"]}, "leases.release", {"resources": ["IT"]}),
    "work.next": ({"kind": "IT"}, "work.add", {"id": "IT", "kind": "IT"}),
    "work.next_many": ({"limit": 3, "kind": "IT"}, "work.add", {"id": "IT", "kind": "IT"}),
    "work.wait": ({"kind": "IT"}, "work.add", {"id": "IT", "kind": "IT"}),
    "messages.inbox": ({}, "messages.send", {"body": "hello", "to": "waiter-IT"}),
    # From a version on: a call counts as waiting before it has looked for the present one.
    "state.watch": (
        {"namespace": "IT", "key": "k", "after_version": 0},
        "state.set",
        {"namespace": "IT", "key": "k", "value": 1},
    ),
    "events.watch": ({"seq": -1, "agent": "holder-IT"}, "agents.beat", {"status": "moved"}),
}
"""A call that waits, and the call of somebody else that ends the wait."""


class Wait:
    """A call that has to wait, in a world of its own."""

    def __init__(self, served: Served, name: str) -> None:
        mark = f"it{next(NUMBERS)}"
        self.holder = served.daemon.client(f"holder-{mark}")
        self.agent = f"waiter-{mark}"
        self.waiter = served.daemon.client(self.agent)
        self.holder("leases.claim", resources=[mark], ttl_s=600)
        self.waiter("agents.beat")
        given, self.other, change = CALLS[name]
        self.given, self.change = marked(given, mark), marked(change, mark)
        if name == "events.watch":
            self.given["seq"] = self.holder("events.last")


NUMBERS = count(1)


def marked(value: Any, mark: str) -> Any:
    if isinstance(value, dict):
        return {name: marked(item, mark) for name, item in value.items()}
    if isinstance(value, list):
        return [marked(item, mark) for item in value]
    return value.replace("IT", mark) if isinstance(value, str) else value


def test_every_wait_is_here() -> None:
    assert sorted(CALLS) == WAITING


@pytest.mark.parametrize("name", WAITING)
def test_a_wait_is_answered_when_it_comes_about(served: Served, name: str) -> None:
    wait = Wait(served, name)
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(wait.waiter.ask, name, wait.given | {"wait_s": 600})
        until(lambda: served.waiting == 1, "the wait")
        assert not answer.done()
        wait.holder(wait.other, **wait.change)
        reply = answer.result(PATIENCE_S)
    assert reply.status == 200 and reply.json, reply


@pytest.mark.parametrize("name", WAITING)
def test_a_wait_that_ends_in_vain_says_so_as_the_library_does(served: Served, name: str) -> None:
    wait = Wait(served, name)
    given = wait.given | {"wait_s": 0.05}
    answer = OverHttp(served.daemon)(wait.agent, name, given)
    with served.open() as space:
        expected = InLibrary(space)(wait.agent, name, given)
    assert (answer[0], settled(answer[1])) == (expected[0], settled(expected[1]))


@pytest.mark.parametrize("name", WAITING)
def test_a_client_that_hangs_up_waits_no_more(served: Served, name: str) -> None:
    wait, daemon = Wait(served, name), served.daemon
    body = json.dumps(wait.given | {"wait_s": 600})
    with daemon.connect() as connection:
        connection.sendall(
            f"POST /v1/{name.replace('.', '/')} HTTP/1.1\r\nHost: {daemon.url[7:]}\r\n"
            f"Authorization: Bearer {daemon.token}\r\nDibs-Agent: {wait.agent}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        until(lambda: served.waiting == 1, "the wait")
        if name == "leases.claim":
            until(lambda: wait.holder("leases.waiting"), "the ticket")
    until(lambda: served.waiting == 0, "the end of the wait")
    assert wait.holder("leases.waiting") == []


# The journal as it happens.


def test_the_stream_tells_what_is_new(served: Served) -> None:
    alice = served.daemon.client("alice")
    alice("agents.beat")
    stream = Stream(served.daemon)
    assert stream.kind.startswith("text/event-stream")
    alice("messages.announce", body="<b>hello</b>\n\nevent: fake\ndata: {}")
    seq, kind, event = stream.next()
    assert (seq, kind) == (event["seq"], event["kind"]) and kind == "message.announced"
    assert event == alice("events.since", seq=seq - 1, limit=1)[0]
    stream.close()


def test_the_stream_begins_where_it_is_told(served: Served) -> None:
    alice = served.daemon.client("alice")
    first = alice("messages.announce", body="one")["id"]
    for query, headers in (
        (f"?since={first - 1}", {}),
        ("", {"Last_Event_ID": str(first - 1)}),
        ("?since=0", {"Last_Event_ID": str(first - 1)}),
    ):
        stream = Stream(served.daemon, query, **headers)
        assert stream.next()[0] == first
        stream.close()
    stream = Stream(served.daemon, "?since=1h")
    assert stream.next()[0] <= first
    stream.close()
    for query in (
        "?kind=leas",
        "?since=x",
        "?since=-1",
        "?since=",
        "?since=99999999999999999999",
        "?since=²",
    ):
        reply = served.daemon.client().request("GET", f"/v1/events{encoded(query)}")
        assert (reply.status, reply.error) == (400, "invalid"), query


def encoded(query: str) -> str:
    return query.replace("²", "%C2%B2")


def test_the_stream_can_be_narrowed(served: Served) -> None:
    alice, bob = served.daemon.client("alice"), served.daemon.client("bob")
    alice("agents.beat")
    bob("agents.beat")
    since = alice("events.last")
    streams = {
        query: Stream(served.daemon, f"?since={since}&{query}")
        for query in ("kind=entry", "kind=entry.set", "agent=bob", "subject=n/narrow")
    }
    alice("messages.announce", body="not for them")
    alice("state.set", namespace="n", key="other", value=1, force=True)
    bob("state.set", namespace="n", key="narrow", value=1, force=True)
    found = {query: stream.next()[2] for query, stream in streams.items()}
    for stream in streams.values():
        stream.close()
    assert found["kind=entry"]["agent"] == "alice"
    assert found["kind=entry.set"] == found["kind=entry"]
    assert found["agent=bob"]["agent"] == "bob"
    assert found["subject=n/narrow"] == found["agent=bob"]


def test_a_reader_whose_place_was_pruned_is_told_and_goes_on(served: Served) -> None:
    alice = served.daemon.client("alice")
    for number in range(5):
        alice("messages.announce", body=f"{number}")
    last = alice("events.last")
    owner = served.daemon.client()
    owner("events.prune", keep_s=0)
    stream = Stream(served.daemon, "?since=0")
    seq, kind, told = stream.next()
    assert (kind, told["error"], told["details"]["pruned_seq"]) == ("pruned", "pruned", seq)
    assert seq >= last - 1
    assert stream.next()[0] == seq + 1
    stream.close()


def test_readers_that_come_and_go_miss_nothing(served: Served) -> None:
    """R9 over HTTP, in short: writers, a process beside the daemon, readers with absences."""
    daemon, over = served.daemon, threading.Event()
    daemon.client("alice")("agents.beat")
    since = daemon.client()("events.last")

    def write(number: int) -> None:
        client = daemon.client(f"writer-{number}")
        for turn in range(60):
            client("messages.announce", body=f"{number}:{turn}")
            if turn % 7 == 0:
                client.ask("state.set", {"namespace": "r9", "key": "k", "value": turn})

    def read(seed: int) -> list[int]:
        pick, seqs = random.Random(seed), [since]
        while not (over.is_set() and seqs[-1] >= final[0]):
            stream = Stream(daemon, Last_Event_ID=str(seqs[-1]))
            for _ in range(pick.randint(1, 60)):
                if over.is_set() and seqs[-1] >= final[0]:
                    break
                seqs.append(stream.next()[0])
            stream.close()
            time.sleep(pick.random() * 0.01)
        return seqs

    final = [math.inf]
    with ThreadPoolExecutor(16) as threads, served.open() as space:
        readers = [threads.submit(read, seed) for seed in range(4)]
        writers = [threads.submit(write, number) for number in range(6)]
        beside = space.join("beside")
        for turn in range(60):
            beside.messages.announce(f"beside:{turn}")
        for writer in writers:
            writer.result(PATIENCE_S)
        final[0] = daemon.client()("events.last")
        over.set()
        # A last event, for readers that wait for one.
        daemon.client("alice")("agents.beat", status=f"over {final[0]}")
        found = [reader.result(PATIENCE_S) for reader in readers]
        beside.close()
    for seqs in found:
        last = seqs[-1]
        assert seqs == list(range(since, last + 1)), "one is missing, or came twice"


# Writes that share a transaction.


def test_a_refused_write_does_not_touch_its_neighbours(served: Served) -> None:
    daemon, people = served.daemon, 12
    mode = f"m{random.randrange(10**9)}"
    for number in range(people):
        daemon.client(f"p{number}")("agents.beat")
    before = daemon.client()("events.last")
    writes, commits = served.metric("dibs_writes_total"), served.metric("dibs_commits_total")

    def work(number: int) -> list[tuple[str, dict[str, Any], int, Any]]:
        client, pick, said = daemon.client(f"p{number}"), random.Random(number), []
        for turn in range(50):
            own = f"{mode}:{number}:{turn}"
            kinds: list[tuple[str, dict[str, Any]]] = [
                ("leases.claim", {"resources": [own]}),
                ("leases.claim", {"resources": [f"{mode}:shared:{turn % 5}"]}),
                ("leases.claim", {"resources": [own, f"{mode}:shared:{turn % 5}"]}),
                ("work.add", {"id": own}),
                ("work.claim", {"id": f"{mode}:task:{turn}"}),
                ("work.complete", {"id": "nothing of the kind"}),
                ("state.set", {"namespace": mode, "key": own, "value": turn}),
                ("state.set", {"namespace": mode, "key": own, "value": 1, "expected_version": 7}),
                ("messages.send", {"body": own, "to": f"p{(number + 1) % people}"}),
                ("messages.send", {"body": own, "to": "not a name"}),
                ("agents.beat", {"status": own}),
            ]
            operation, given = pick.choice(kinds)
            reply = client.ask(operation, given)
            assert reply.status in (200, 400, 404, 409), reply
            said.append((operation, given, reply.status, reply.json))
        return said

    with ThreadPoolExecutor(people) as threads:
        answers = [answer for said in threads.map(work, range(people)) for answer in said]
    grouped = served.metric("dibs_writes_total") - writes
    assert served.metric("dibs_commits_total") - commits < grouped, "nothing was shared"
    with served.open() as space:
        check_against(space, before, answers, mode)
        assert space.agents.verify() == ()


def check_against(space: dibs.Dibs, before: int, answers: list[Any], mode: str) -> None:
    """Every answer is what the store says, and the journal has no gap."""
    journal: list[dibs.Event] = []
    seq = before
    while events := space.events.since(seq, limit=1000):
        journal += events
        seq = events[-1].seq
    assert [event.seq for event in journal] == list(range(before + 1, seq + 1))
    held = {lease.resource: lease for lease in space.leases.list(limit=1000)}
    done = Counter(event.kind for event in journal)
    expected: Counter[str] = Counter()
    for operation, given, status, answer in answers:
        won = status == 200
        if operation == "leases.claim":
            for lease in answer["leases"] if won else []:
                assert held[lease["resource"]].epoch == lease["epoch"]
                assert held[lease["resource"]].agent == lease["agent"]
            if not won:
                # All of them or none: what was free stays free.
                own = given["resources"][0]
                assert "shared" in own or own not in held
        elif operation == "work.add":
            assert won and space.work.show(given["id"]).id == given["id"]
        elif operation == "work.claim" and won:
            assert space.work.show(given["id"]).epoch == answer["epoch"]
        elif operation == "work.complete":
            assert status == 404
        elif operation == "state.set":
            entry = space.state.get(mode, given["key"])
            if "expected_version" in given:
                assert (status, entry) == (409, None)
            else:
                assert entry is not None and (entry.value, entry.version) == (given["value"], 1)
        elif operation == "messages.send":
            assert won == (given["to"] != "not a name")
            expected["message.sent"] += won
        elif operation == "agents.beat":
            expected["session.status"] += won
    assert done["message.sent"] == expected["message.sent"]
    assert done["session.status"] == expected["session.status"]
    winners = Counter(
        answer["id"] for op, _, status, answer in answers if op == "work.claim" and status == 200
    )
    epochs = {(a["id"], a["epoch"]) for op, _, st, a in answers if op == "work.claim" and st == 200}
    assert len(epochs) == len(winners), "a task was given out twice"


SERVE_WITH_FAULTS = """
import ctypes, sys, threading
from dibs.surfaces.cli.main import main
faults = ctypes.CDLL(sys.argv[1])
def obey():
    for line in sys.stdin:
        kind, k, number, stay = map(int, line.split())
        if kind:
            faults.fault_arm(ctypes.c_int(kind), ctypes.c_long(k), number, stay)
        else:
            faults.fault_hits()
        print("armed", flush=True)
threading.Thread(target=obey, daemon=True).start()
sys.exit(main(["serve", "--port", "0"]))
"""
"""The daemon, and a thread that breaks its disk when it is told to."""


class FaultyDaemon(Daemon):
    """A daemon whose disk can be made to fail."""

    def __init__(self, shell: Shell, library: str) -> None:
        self._library = library
        super().__init__(shell)

    def start(self) -> None:
        command = [sys.executable, "-c", SERVE_WITH_FAULTS, self._library]
        shell = self.shell.with_(LD_PRELOAD=self._library)
        self.process = shell.spawn(command, stdin=subprocess.PIPE)
        self.await_ready()

    def disk(self, kind: int, k: int = 0, number: int = 0, stay: bool = False) -> None:
        """Let the k-th call of a kind fail, and all later ones if it stays; 0 ends that."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{kind} {k} {number} {int(stay)}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "armed\n"

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        super().close()


WRITE, SYNC = 1, 2
EIO, ENOSPC = 5, 28


@pytest.mark.parametrize(
    ("kind", "number", "code"),
    [(WRITE, ENOSPC, "disk_full"), (WRITE, EIO, "storage"), (SYNC, EIO, "storage")],
    ids=["the disk is full", "a write fails", "a sync fails"],
)
def test_a_commit_that_fails_is_told_to_nobody_as_done(
    shell: Shell, faulty_disk: str, kind: int, number: int, code: str
) -> None:
    daemon = FaultyDaemon(shell, faulty_disk)
    people, done, refused = 8, set(), Counter[str]()
    over = threading.Event()

    def work(number: int) -> None:
        client = daemon.client(f"p{number}")
        client("agents.beat")
        for turn in count():
            if over.is_set():
                return
            key = f"{number}:{turn}"
            reply = client.ask("state.set", {"namespace": "n", "key": key, "value": turn})
            if reply.status == 200:
                done.add(key)
            else:
                refused[reply.error] += 1
                assert reply.status == 503, reply

    try:
        with ThreadPoolExecutor(people) as threads:
            workers = [threads.submit(work, number) for number in range(people)]
            try:
                until(lambda: len(done) > 50, "some writes")
                for k in (0, 1, 2, 5):
                    had = len(done)
                    daemon.disk(kind, k, number)
                    until(lambda had=had: len(done) > had + 50, "writes after a fault")  # type: ignore[misc]
                daemon.disk(kind, 0, number, stay=True)
                failed = refused.total()
                until(lambda: refused.total() > failed + 20, "a disk that stays broken")
                daemon.disk(0)
                had = len(done)
                until(lambda: len(done) > had + 50, "writes on a disk that is well again")
            finally:
                over.set()
            for worker in workers:
                worker.result(PATIENCE_S)
        assert code in refused and refused.keys() <= {code, "storage"}, refused
        kept = daemon.client()("state.export", namespace="n")["entries"]
        assert done <= {entry["key"] for entry in kept}, "told as done, and not there"
        seqs = [event["seq"] for event in daemon.client()("events.since", seq=0, limit=1000)]
        assert seqs == list(range(1, len(seqs) + 1))
        assert daemon.stop().code == 0
        report = shell.ok("doctor").out
        assert "sound" in report
    finally:
        daemon.close()


@pytest.fixture(scope="module")
def faulty_disk(tmp_path_factory: pytest.TempPathFactory) -> str:
    import shutil

    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("the faulty disk needs a C compiler, on Linux")
    target = tmp_path_factory.mktemp("disk") / "faulty_disk.so"
    source = Path(__file__).parents[1] / "stress/faulty_disk.c"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(source)], check=True
    )
    return str(target)


# Sessions of processes elsewhere.


def test_a_session_elsewhere_lives_by_its_beats(served: Served) -> None:
    daemon = served.daemon
    joined = daemon.client("far")("agents.join", status="far away", ttl_s=1)
    session = joined["session"]
    assert (
        session["alive"] and not session["process_bound"] and 0 < session["expires_in_ms"] <= 1000
    )
    far = daemon.client("far", session=joined["token"])
    far("leases.claim", resources=["far:1"], ttl_s=600)
    for _ in range(5):
        assert far("agents.beat")["id"] == session["id"]
    # Nobody beats any more: what it held is free, though its own time is not over.
    near = daemon.client("near")
    assert near("leases.claim", resources=["far:1"], wait_s=30)["leases"][0]["agent"] == "near"
    with pytest.raises(Refusal, match="not_yours"):
        far("agents.beat")


def test_one_connection_serves_many_calls(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        body = b"{}"
        request = (
            f"POST /v1/events/last HTTP/1.1\r\nHost: {daemon.url[7:]}\r\n"
            f"Authorization: Bearer {daemon.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        # All at once, as a client may: the answers come in order.
        connection.sendall(request * 20)
        answer = b""
        while answer.count(b"HTTP/1.1 200 OK\r\n") < 20:
            fresh = connection.recv(65536)
            assert fresh, answer
            answer += fresh
