"""Calls that wait: they hold up nobody, they can be cancelled, and nothing is lost by that."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dibs
from dibs.mcp.calls import PROGRESS_S
from tests.surfaces.mcp_client import PREFIX, Client, Json, Start, clients, look_into
from tests.surfaces.shell import Shell, until

LEGACY = "2025-11-25"
PROGRESS = "notifications/progress"
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = PREFIX + "subscriptionId"

# Everything that waits, until something happens that never does by itself.
WAITING: dict[str, tuple[str, Json]] = {
    "events": ("events_watch", {"seq": 0, "subject": "n/k", "wait_s": 600}),
    "wait": ("wait", {"resource": "src/a.py", "timeout_s": 600}),
    "claim": ("claim", {"resource": "src/a.py", "wait_s": 600}),
    "work_next": ("work_next", {"wait_s": 600}),
    "inbox": ("inbox", {"wait_s": 600}),
    "watch": ("watch", {"namespace": "n", "key": "k", "timeout_s": 600}),
}


@pytest.fixture
def start(on_each: Shell) -> Iterator[Start]:
    with clients(on_each) as start:
        yield start


@pytest.fixture
def alice(start: Start, on_each: Shell) -> Client:
    """The one who holds what others wait for."""
    client = start("--tools", "all", within=on_each.as_("alice"))
    client.call("claim", resource="src/a.py")
    return client


@pytest.fixture
def bob(start: Start, on_each: Shell, alice: Client) -> Client:
    """The one who waits."""
    client = start("--tools", "all", within=on_each.as_("bob"))
    client.call("status")
    return client


@pytest.fixture
def store(on_each: Shell, alice: Client) -> Iterator[dibs.Dibs]:
    with look_into(on_each) as space:
        yield space


def bring_about(alice: Client, number: int = 0) -> None:
    """All that somebody could be waiting for."""
    alice.call("release", resource="src/a.py")
    alice.call("work_add", id=f"task-{number}")
    alice.call("send", body="hello", to="bob")
    alice.call("set", namespace="n", key="k", value=1, force=True)


def said(client: Client, id: int | str) -> list[Json]:
    """The answers of a tool to the request of that id: one, or none."""
    return [
        message["result"]["structuredContent"]
        for message in list(client.heard)
        if message.get("id") == id and "structuredContent" in message.get("result", {})
    ]


def settle(client: Client, id: int | str) -> Json | None:
    """Wait until the server is done with a request, and give its answer if there is one.

    An id is in use as long as its request is under way, and then another one may have it.
    """
    while True:
        before = len(client.heard)
        client.begin("prompts/list", id=id)
        message = client.hear(
            lambda m: m.get("id") == id and "structuredContent" not in m.get("result", {}),
            f"an end of {id}",
            after=before,
        )
        if "result" in message:
            answers = said(client, id)
            assert len(answers) <= 1, answers
            return answers[0] if answers else None
        assert "in use" in message["error"]["message"]
        time.sleep(0.001)


# Side by side.


def test_calls_that_wait_hold_up_nobody(alice: Client, bob: Client, store: dibs.Dibs) -> None:
    waiting = {name: bob.begin_call(*call) for name, call in WAITING.items()}
    until(store.leases.waiting, "bob in the queue")
    assert bob.call("status")["you"] == "bob"
    assert bob.call("claim", resource="src/b.py")["status"] == "claimed"
    assert bob.result("tools/list")["tools"]
    assert bob.misuse("claim")["status"] == "invalid"
    assert not any(bob.answered(id) for id in waiting.values())
    bring_about(alice)
    answers = {name: bob.outcome(id) for name, id in waiting.items()}
    assert answers["claim"]["status"] == "claimed"
    assert answers["work_next"]["id"] == "task-0"
    assert answers["inbox"]["messages"][0]["body"] == "hello"
    assert answers["watch"]["value"] == 1
    assert answers["events"]["result"][0]["kind"] == "entry.set"
    # The queue came before those who only look.
    bob.call("release", resource="src/a.py")
    assert answers["wait"]["status"] == "available"


def test_a_wait_of_the_usual_length_holds_up_nobody_either(alice: Client, bob: Client) -> None:
    """Also where the client says null for what it leaves out."""
    left_out = bob.begin_call("wait", {"resource": "src/a.py"})
    null = bob.begin_call("wait", {"resource": "src/a.py", "timeout_s": None})
    place = {"namespace": "n", "key": "k", "after_version": 0}  # whenever it looks first
    watch = bob.begin_call("watch", {**place, "timeout_s": None})
    assert bob.call("status")["you"] == "bob"
    assert not any(bob.answered(id) for id in (left_out, null, watch))
    bring_about(alice)
    assert bob.outcome(left_out)["status"] == bob.outcome(null)["status"] == "available"
    assert bob.outcome(watch)["status"] == "ok"


def test_many_calls_wait_side_by_side(alice: Client, bob: Client, store: dibs.Dibs) -> None:
    looking = [bob.begin_call(*WAITING["wait"]) for _ in range(17)]
    queued = bob.begin_call(*WAITING["claim"])
    until(store.leases.waiting, "bob in the queue")
    assert bob.call("status")["status"] == "ok"
    alice.call("release", resource="src/a.py")
    assert bob.outcome(queued)["status"] == "claimed"
    bob.call("release", resource="src/a.py")
    assert {bob.outcome(id)["status"] for id in looking} == {"available"}


def test_a_waiter_gets_it_as_soon_as_it_is_free(alice: Client, bob: Client) -> None:
    waiting = bob.begin_call(*WAITING["claim"])
    until(lambda: alice.call("leases_waiting")["result"], "bob in the queue")
    assert alice.call("status")["attention"][0]["what"] == "waited_for"
    alice.call("release", resource="src/a.py", outcome="modified")
    claimed = bob.outcome(waiting)
    assert (claimed["status"], claimed["outcomes"][0]["outcome"]) == ("claimed", "modified")
    assert alice.call("claim", resource="src/a.py")["held_by"] == "bob"


# Cancelling.


def test_a_cancelled_call_is_over_and_not_answered(
    alice: Client, bob: Client, store: dibs.Dibs
) -> None:
    for number, (name, call) in enumerate(WAITING.items()):
        id = bob.begin_call(*call)
        if name == "claim":
            until(store.leases.waiting, "bob in the queue")
        bob.cancel(id)
        assert settle(bob, id) is None, name
        assert store.leases.waiting() == ()
        bring_about(alice, number)
        bob.lives()
        assert said(bob, id) == [], name
        # Whatever it would have got is there for whoever asks next.
        assert alice.call("claim", resource="src/a.py")["status"] == "claimed"
        taken = alice.call("work_next")
        assert (taken["id"], taken["attempts"]) == (f"task-{number}", 1)
        assert [one["body"] for one in bob.call("inbox")["messages"]] == ["hello"]


def test_whoever_is_behind_a_cancelled_waiter_moves_up(
    alice: Client, bob: Client, start: Start, on_each: Shell, store: dibs.Dibs
) -> None:
    carol = start(within=on_each.as_("carol"))
    first = bob.begin_call(*WAITING["claim"])
    until(lambda: len(store.leases.waiting()) == 1, "bob in the queue")
    second = carol.begin_call(*WAITING["claim"])
    until(lambda: len(store.leases.waiting()) == 2, "carol behind bob")
    bob.cancel(first)
    assert settle(bob, first) is None
    alice.call("release", resource="src/a.py")
    assert carol.outcome(second)["status"] == "claimed"


def test_a_call_can_be_cancelled_before_it_has_begun_to_wait(bob: Client, store: dibs.Dibs) -> None:
    for _ in range(5):
        for tool, arguments in WAITING.values():
            id = bob.begin_call(tool, arguments)
            bob.cancel(id)
            assert settle(bob, id) is None
    assert store.leases.waiting() == ()


def test_only_the_call_that_is_named_is_cancelled(alice: Client, bob: Client) -> None:
    one, two = bob.begin_call(*WAITING["wait"]), bob.begin_call(*WAITING["wait"])
    bob.cancel(one)
    assert settle(bob, one) is None
    alice.call("release", resource="src/a.py")
    assert bob.outcome(two)["status"] == "available"


class Race:
    """One waits, and at the moment it would get something, it changes its mind."""

    def __init__(self, alice: Client, bob: Client, store: dibs.Dibs, seed: int) -> None:
        self.alice, self.bob, self.store = alice, bob, store
        self.pick = random.Random(seed)
        self.seen: Counter[str] = Counter()

    def run(self, waits: tuple[str, Json], tool: str, arguments: Json) -> Json | None:
        """Begin to wait, then bring it about and cancel in some order, a moment apart."""
        id = self.bob.begin_call(*waits)
        if waits[0] == "claim":
            until(self.store.leases.waiting, "bob in the queue")
        else:
            time.sleep(self.pick.random() * 0.002)
        # From well before the hand-over to well after it; most are in between.
        apart = self.pick.choice((1, 1, 1, 1, 20)) * self.pick.random() * 0.004
        if self.pick.random() < 0.4:
            self.bob.cancel(id)
            time.sleep(apart)
            done = self.alice.begin_call(tool, arguments)
        else:
            done = self.alice.begin_call(tool, arguments)
            time.sleep(apart)
            self.bob.cancel(id)
        self.alice.outcome(done)
        answer = settle(self.bob, id)
        self.seen["answered" if answer else "not answered"] += 1
        return answer

    def claims(self) -> None:
        release = ("release", {"resource": "src/a.py"})
        answer = self.run(WAITING["claim"], *release)
        assert self.store.leases.waiting() == ()
        if answer is not None:
            assert answer["status"] == "claimed"
            assert self.alice.call("claim", resource="src/a.py")["held_by"] == "bob"
            self.bob.call("release", resource="src/a.py")
        assert self.alice.call("claim", resource="src/a.py")["status"] == "claimed"

    def works(self, number: int) -> None:
        id = f"task-{number}"
        answer = self.run(WAITING["work_next"], "work_add", {"id": id})
        if answer is None:
            answer = self.alice.call("work_next")
            worker = self.alice
        else:
            worker = self.bob
            assert self.alice.call("work_next")["status"] == "later"
        # It is the same one, and nobody's attempt was counted that did not get it.
        assert (answer["status"], answer["id"], answer["attempts"]) == ("claimed", id, 1)
        worker.call("work_done", id=id)

    def reads(self, number: int) -> list[str]:
        """The messages that an inbox gives out, here and afterwards."""
        send = {"body": f"message {number}", "to": "bob"}
        answer = self.run(WAITING["inbox"], "send", send)
        if answer is None:
            answer = self.bob.call("inbox")
        return [one["body"] for one in answer["messages"]]


def race(alice: Client, bob: Client, store: dibs.Dibs, rounds: int, seed: int) -> str:
    told = []
    for kind in ("claim", "work_next", "inbox"):
        game = Race(alice, bob, store, seed)
        for number in range(rounds):
            if kind == "claim":
                game.claims()
            elif kind == "work_next":
                game.works(number)
            else:
                assert game.reads(number) == [f"message {number}"]
        told.append(f"{kind} {game.seen['answered']}/{game.seen['not answered']}")
    dead = store.work.list(state="dead")
    assert dead == ()
    given_back = [
        event
        for event in store.events.since(kind="lease.released", agent="bob", limit=1000)
        if event.subject == "src/a.py"
    ]
    return f"{rounds} cancelled waits each, answered/not: {', '.join(told)}; " + (
        f"{len(given_back)} grants of bob released"
    )


def test_what_a_cancelled_call_was_granted_is_free_and_no_message_is_lost(
    alice: Client, bob: Client, store: dibs.Dibs
) -> None:
    race(alice, bob, store, rounds=15, seed=11)


@pytest.mark.stress
def test_a_thousand_calls_are_cancelled_at_the_moment_of_the_hand_over(
    alice: Client, bob: Client, store: dibs.Dibs
) -> None:
    print(f"\nMCP cancelling: {race(alice, bob, store, rounds=330, seed=12)}")


def time_out(alice: Client, bob: Client, store: dibs.Dibs, rounds: int, seed: int) -> str:
    pick, seen = random.Random(seed), Counter[str]()
    for _ in range(rounds):
        wait_s = 0.02
        id = bob.begin_call("claim", {"resource": "src/a.py", "wait_s": wait_s})
        time.sleep(wait_s * (0.7 + 0.6 * pick.random()))
        alice.call("release", resource="src/a.py")
        answer = bob.outcome(id)
        seen[answer["status"]] += 1
        assert store.leases.waiting() == ()
        if answer["status"] == "claimed":
            bob.call("release", resource="src/a.py")
        assert alice.call("claim", resource="src/a.py")["status"] == "claimed"
    assert seen.keys() <= {"claimed", "busy"}, seen
    return f"{rounds} waits that end at the hand-over: {dict(seen)}"


def test_a_wait_that_ends_at_the_moment_of_the_hand_over_is_answered(
    alice: Client, bob: Client, store: dibs.Dibs
) -> None:
    time_out(alice, bob, store, rounds=15, seed=13)


@pytest.mark.stress
def test_many_waits_that_end_at_the_moment_of_the_hand_over_are_answered(
    alice: Client, bob: Client, store: dibs.Dibs
) -> None:
    print(f"\nMCP timing out: {time_out(alice, bob, store, rounds=500, seed=14)}")


# Progress.


@pytest.fixture
def start_here(shell: Shell) -> Iterator[Start]:
    """Where one database is as good as the other."""
    with clients(shell) as start:
        yield start


def test_progress_is_told_to_those_who_asked_and_only_while_they_wait(
    start_here: Start, shell: Shell
) -> None:
    alice = start_here("--tools", "all")
    alice.call("claim", resource="src/a.py")
    bob = start_here("--tools", "all", within=shell.as_("bob"))
    legacy = start_here(version=LEGACY)
    asked = bob.begin_call(*WAITING["wait"], progressToken="p")
    zero = bob.begin_call(*WAITING["watch"], progressToken=0)
    silent = bob.begin_call(*WAITING["wait"])
    tokens: list[Any] = [None, [], 1.5, {}]
    odd = [bob.begin_call(*WAITING["wait"], progressToken=token) for token in tokens]
    also = legacy.begin_call(*WAITING["wait"], progressToken=7)
    # A subscription has no end, so there is nothing to tell of it.
    listening = {"notifications": {"resourceSubscriptions": ["dibs://inbox"]}}
    endless = bob.begin("subscriptions/listen", listening, progressToken="endless")

    def told(client: Client, token: Any) -> list[Json]:
        return [note for note in client.notes(PROGRESS) if note["progressToken"] == token]

    until(lambda: len(told(bob, "p")) >= 2 and told(bob, 0) and told(legacy, 7), "progress")
    bring_about(alice)
    for id in (asked, zero, silent, *odd):
        bob.outcome(id)
    legacy.outcome(also)
    bob.cancel(endless)
    before = len(bob.notes(PROGRESS))
    time.sleep(PROGRESS_S + 0.5)
    bob.lives()
    assert len(bob.notes(PROGRESS)) == before, "progress after the answer"
    assert {str(note["progressToken"]) for note in bob.notes(PROGRESS)} == {"p", "0"}
    for client, token in ((bob, "p"), (bob, 0), (legacy, 7)):
        notes = told(client, token)
        steps = [note["progress"] for note in notes]
        assert steps == sorted(set(steps)) and steps[0] > 0
        assert {note["total"] for note in notes} == {600}
        assert {note["message"] for note in notes} == {"still waiting"}


# Following the pages.


Change = Callable[[], object]


def changes(alice: Client) -> list[tuple[Change, set[str]]]:
    """What alice can do, and which of bob's pages that changes."""
    return [
        (lambda: alice.call("claim", resource="src/c.py"), {"board", "leases"}),
        (lambda: alice.call("release", resource="src/c.py"), {"board", "leases"}),
        (lambda: alice.call("work_add", id="new"), {"board", "work"}),
        (lambda: alice.call("send", body="hello", to="bob"), {"board", "inbox"}),
        (lambda: alice.call("send", body="hello"), {"board", "inbox"}),
        (lambda: alice.call("agents_beat", status="resting"), {"board", "leases", "work"}),
    ]


def follow(alice: Client, told: Callable[[], list[str]], among: set[str]) -> None:
    """Make each change in turn, and hear of exactly the pages it touches."""
    for change, pages in changes(alice):
        before = len(told())
        change()
        wanted = {f"dibs://{page}" for page in pages & among}
        until(lambda: set(told()[before:]) >= wanted, f"{wanted} announced")  # noqa: B023
        assert set(told()[before:]) <= wanted


ALL = {"board", "leases", "work", "inbox"}


def test_a_client_of_the_handshake_eras_subscribes_to_pages(
    alice: Client, bob: Client, start: Start, on_each: Shell
) -> None:
    client = start(version=LEGACY, within=on_each.as_("bob"))
    for page in sorted(ALL):
        assert client.result("resources/subscribe", {"uri": f"dibs://{page}"}) == {}

    def told() -> list[str]:
        assert all(note.keys() == {"uri"} for note in client.notes(UPDATED))
        return [note["uri"] for note in client.notes(UPDATED)]

    follow(alice, told, ALL)
    for page in ("board", "leases", "work"):
        assert client.result("resources/unsubscribe", {"uri": f"dibs://{page}"}) == {}
    before = len(told())
    alice.call("claim", resource="src/d.py")
    alice.call("send", body="between others", to="carol")
    alice.call("send", body="for you", to="bob")
    until(lambda: told()[before:], "the inbox announced")
    assert set(told()[before:]) == {"dibs://inbox"}
    client.result("resources/unsubscribe", {"uri": "dibs://inbox"})
    client.result("resources/unsubscribe", {"uri": "dibs://inbox"})
    before = len(told())
    alice.call("send", body="nobody listens", to="bob")
    assert client.result("resources/subscribe", {"uri": "dibs://leases"}) == {}
    alice.call("claim", resource="src/e.py")
    until(lambda: told()[before:], "the leases announced")
    assert set(told()[before:]) == {"dibs://leases"}


@pytest.mark.parametrize("id", ["listen:0", 0])
def test_a_modern_client_listens_under_the_id_of_its_request(
    alice: Client, bob: Client, id: int | str
) -> None:
    asked = {
        "resourceSubscriptions": [f"dibs://{page}" for page in sorted(ALL)] + ["dibs://no", 5],
        "toolsListChanged": True,
        "promptsListChanged": True,
    }
    bob.begin("subscriptions/listen", {"notifications": asked}, id=id)
    bob.hear(lambda m: m.get("method") == ACKNOWLEDGED, "acknowledgement")
    (acknowledged,) = bob.notes(ACKNOWLEDGED)
    assert acknowledged["_meta"] == {SUBSCRIPTION: id}
    assert acknowledged["notifications"] == {
        "resourceSubscriptions": sorted(f"dibs://{page}" for page in ALL)
    }

    def told() -> list[str]:
        notes = bob.notes(UPDATED)
        for note in notes:
            assert note["_meta"] == {SUBSCRIPTION: id}
            assert type(note["_meta"][SUBSCRIPTION]) is type(id)
        return [note["uri"] for note in notes]

    follow(alice, told, ALL)
    bob.cancel(id)
    assert settle(bob, id) is None
    before = len(told())
    other = bob.begin("subscriptions/listen", {"notifications": {}})
    bob.hear(lambda m: m.get("params", {}).get("_meta") == {SUBSCRIPTION: other}, "the second")
    alice.call("claim", resource="src/z.py")
    bob.lives()
    assert len(told()) == before
    assert bob.notes(ACKNOWLEDGED)[-1]["notifications"] == {}


def test_two_that_listen_at_once_are_both_told(alice: Client, bob: Client) -> None:
    def listen(*pages: str) -> int | str:
        uris = [f"dibs://{page}" for page in pages]
        return bob.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})

    one, two = listen("leases"), listen("leases", "inbox")
    until(lambda: len(bob.notes(ACKNOWLEDGED)) == 2, "both acknowledged")
    alice.call("claim", resource="src/c.py")

    def told(id: int | str) -> set[str]:
        return {n["uri"] for n in bob.notes(UPDATED) if n["_meta"][SUBSCRIPTION] == id}

    until(lambda: told(one) and told(two), "both told")
    alice.call("send", body="hello", to="bob")
    until(lambda: len(told(two)) == 2, "the second told of the inbox")
    assert told(one) == {"dibs://leases"}


def test_what_has_changed_can_be_read(alice: Client, bob: Client) -> None:
    def read(page: str) -> Json:
        (content,) = bob.result("resources/read", {"uri": f"dibs://{page}"})["contents"]
        found: Json = json.loads(content["text"])
        return found

    alice.call("send", body="hello", to="bob")
    alice.call("work_add", id="task", title="Fix it")
    assert read("leases")["leases"][0]["resource"] == "src/a.py"
    assert read("work")["available"][0]["title"] == "Fix it"
    assert read("inbox")["messages"][0]["body"] == "hello"
    assert read("board")["you"] == "bob"
    assert read("inbox")["messages"][0]["body"] == "hello"  # reading leaves it unread
    assert read("inbox")["untrusted"] == ["messages[].body"]
