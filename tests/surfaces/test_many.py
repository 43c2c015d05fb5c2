"""Many at once on the command line and over HTTP: lines in, lines out, and what is refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dibs.surfaces.http.api import document, routes
from dibs.surfaces.http.worker import Pending, Worker
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import Answer, Shell, finish


@pytest.fixture
def alice(shell: Shell) -> Shell:
    return shell.as_("alice")


def given(shell: Shell, text: str, *words: str) -> Answer:
    return finish(shell.start(*words, stdin=subprocess.PIPE), given=text)


def lines(*items: Any) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


def told(answer: Answer) -> list[Any]:
    return [json.loads(line) for line in answer.out.splitlines()]


def test_lines_of_tasks_are_added_taken_and_completed(alice: Shell) -> None:
    text = lines({"id": "a"}, {"id": "b", "payload": {"é": 1}}) + "\n" + lines({"id": "c"})
    added = given(alice, text, "work", "add", "--many", "--json")
    assert (added.code, [task["id"] for task in told(added)]) == (0, ["a", "b", "c"])
    taken = alice.json("work", "next", "--limit", "2")
    assert [(task["id"], task["state"]) for task in taken] == [("a", "claimed"), ("b", "claimed")]
    done = lines(*({"id": task["id"], "epoch": task["epoch"], "result": 1} for task in taken))
    completed = given(alice, done, "work", "complete", "--many", "--json")
    assert [task["state"] for task in told(completed)] == ["completed", "completed"]
    sent = given(
        alice, lines({"body": "1", "to": "bob"}, {"body": "2", "to": "bob"}), "send", "--many"
    )
    assert sent.code == 0
    assert [one["body"] for one in alice.as_("bob").json("inbox")] == ["1", "2"]


def test_with_each_the_refused_lines_are_answered_and_the_exit_code_says_so(alice: Shell) -> None:
    text = lines({"id": "a"}, {"id": "a"}, {"name": "b"}, {"id": "c"})
    answer = given(alice, text, "work", "add", "--many", "--each", "--json")
    assert answer.code == 1
    assert [one.get("error") for one in told(answer)] == [None, "exists", "invalid", None]
    people = given(alice, text, "work", "add", "--many", "--each")
    assert people.code == 1
    assert "item 1: the task a already exists" in people.err
    assert "item 3: work.add has no argument 'name'" in people.err
    assert "next: " in people.err


def test_without_each_the_first_refusal_is_all(alice: Shell) -> None:
    alice.ok("work", "add", "b")
    answer = given(alice, lines({"id": "a"}, {"id": "b"}), "work", "add", "--many", "--json")
    assert answer.code == 1
    (refusal,) = told(answer)
    assert (refusal["error"], refusal["details"]["item"]) == ("exists", 1)
    assert [task["id"] for task in alice.json("work", "list")] == ["b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}\nnot json\n", "line 2 of the standard input is not JSON"),
        ('{"id": "a"', "line 1 of the standard input is not JSON"),
        (lines(*({"id": str(n)} for n in range(1001))), "1,001 items; the limit is 1,000"),
        (lines(*({"id": str(n), "payload": "x" * 900_000} for n in range(3))), "characters"),
        (" " * (17 << 20), "bytes on the standard input"),
    ],
    ids=["no-json", "cut", "many", "large", "huge"],
)
def test_what_is_wrong_with_the_lines_is_misuse(alice: Shell, text: str, says: str) -> None:
    answer = given(alice, text, "work", "add", "--many")
    assert answer.code == 2, answer
    assert says in answer.err and "next: " in answer.err
    assert alice.json("work", "list") == []


def test_no_lines_are_nothing_to_do(alice: Shell) -> None:
    answer = given(alice, "\n", "work", "add", "--many", "--json")
    assert (answer.code, answer.out) == (0, "")


def test_the_help_says_what_is_read(shell: Shell) -> None:
    said = shell.ok("work", "add", "--many", "--help").out
    assert "Reads JSON from the standard input, one value on each line" in said
    assert "--many" in shell.ok("work", "add", "--help").out


# Over HTTP.


@pytest.fixture
def daemon(shell: Shell) -> Iterator[Daemon]:
    with serving(shell) as daemon:
        yield daemon


def test_a_batch_over_http(daemon: Daemon) -> None:
    alice = daemon.client("alice")
    items = [{"id": "a", "priority": 1.0}, {"id": "b"}]
    assert [task["priority"] for task in alice("work.add_many", items=items)] == [1, 0]
    refused = alice.ask("work.add_many", {"items": [{"id": "c"}, {"id": "b"}]})
    assert (refused.status, refused.json["error"], refused.json["details"]["item"]) == (
        409, "exists", 1,
    )  # fmt: skip
    each = alice("work.add_many", items=[{"id": "c"}, {"id": "b"}, 7], each=True)
    assert [one.get("error") for one in each] == [None, "exists", "invalid"]
    wrong = alice.ask("work.add_many", {"items": [{"id": "d"}, {"colour": 1}]})
    assert (wrong.status, wrong.json["details"]["item"]) == (400, 1)
    assert [task["id"] for task in alice("work.next_many", limit=9)] == ["a", "b", "c"]


def test_what_would_be_too_large_an_answer_is_refused_before_it_is_done(daemon: Daemon) -> None:
    alice = daemon.client("alice")
    for number in range(8):
        alice("work.add", id=str(number), payload="x" * 1_000_000)
    taken = alice("work.next_many", limit=8)
    assert 1 <= len(taken) < 8
    more = [task["id"] for task in alice("work.next_many", limit=8)]
    every = [*(task["id"] for task in taken), *more]
    refused = alice.ask("work.complete_many", {"items": [{"id": id} for id in every]})
    assert (refused.status, refused.json["error"]) == (413, "too_large"), refused
    assert {alice("work.show", id=id)["state"] for id in every} == {"claimed"}
    assert len(alice("work.complete_many", items=[{"id": id} for id in every[:3]])) == 3


def test_large_batches_do_not_gather_in_one_group() -> None:
    """Everybody in a group waits for all of it."""

    class Recording(Worker):
        def _serve(self, jobs: list[Pending]) -> None:
            groups.append([pending.weight for pending in jobs])
            super()._serve(jobs)

    async def crowd() -> None:
        worker, begin = Recording("dibs-test", asyncio.get_running_loop(), 128), threading.Event()
        first = worker.do(begin.wait)
        await asyncio.sleep(0)
        weights = [1, 300, 300, *[1] * 130, 100, 28, 1]
        rest = [worker.do(lambda: None, weight) for weight in weights]
        begin.set()
        await asyncio.gather(first, *rest)
        await worker.stop()

    groups: list[list[int]] = []
    asyncio.run(crowd())
    assert groups == [[1], [1], [300], [300], [1] * 128, [1, 1, 100], [28, 1]]


def test_the_description_has_the_items_of_each_batch() -> None:
    found = document(routes())["paths"]["/v1/work/add_many"]["post"]
    body = found["requestBody"]["content"]["application/json"]["schema"]
    items = body["properties"]["items"]
    assert (items["type"], items["maxItems"]) == ("array", 1000)
    assert items["items"]["required"] == ["id"]
    assert items["items"]["properties"]["priority"]["type"] == "integer"
    answer = found["responses"]["200"]["content"]["application/json"]["schema"]
    names = [one["$ref"].rpartition("/")[2] for one in answer["items"]["anyOf"]]
    assert names == ["Task", "Error"]
