"""What agents would trip over: names given back, sizes, losses, mistaken identities."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.surfaces.mcp_client import HOSTILE, Client, Start, clients
from tests.surfaces.shell import Shell, until

LARGE = 40_000
"""More characters than any answer should have, however much is in the store."""


@pytest.fixture
def start(shell: Shell) -> Iterator[Start]:
    with clients(shell) as start:
        yield start


def test_a_name_that_is_shown_means_the_same_when_given_back(start: Start, shell: Shell) -> None:
    src = Path(shell.folder) / "src"
    src.mkdir(exist_ok=True)
    top, below = start(within=shell), start(within=shell.at(src))
    top.call("claim", resource="src/parser.py")
    (held,) = below.call("status")["held_by_others"]
    assert held["resource"] == "src/parser.py"
    assert below.call("claim", resource=held["resource"])["status"] == "busy"
    mine = below.call("claim", resource="src/new.py")["resource"]
    assert below.call("release", resource=mine)["status"] == "released"


def test_outside_a_repository_names_are_whole_paths(start: Start, shell: Shell, tmp_path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    one, two = (start(within=shell.at(outside)) for _ in range(2))
    shown = one.call("claim", resource="x.py")["resource"]
    assert shown == str(outside.resolve() / "x.py")
    refused = two.call("claim", resource=shown)
    assert (refused["status"], refused["blocked_by"]) == ("busy", shown)
    assert one.call("release", resource=shown)["resources"] == [shown]


def size(client: Client, tool: str, **arguments: object) -> int:
    id = client.begin_call(tool, arguments)
    client.outcome(id)
    return len(client.answer(id)["result"]["content"][0]["text"])


def test_no_answer_is_larger_than_a_model_can_bear(start: Start) -> None:
    loud, reader = start("--tools", "all"), start("--tools", "all")
    name = reader.call("status")["you"]
    for number in range(30):
        loud.call("claim", resource=f"src/{number}.py", note="n" * 2000)
        loud.call("send", body="b" * 16_000, to=name)
    loud.call("work_claim", id="heavy")
    loud.call("work_add", id="fat", title="t" * 2000, payload={"x": "y" * 500_000})
    assert size(reader, "status") < LARGE
    assert size(reader, "inbox") < LARGE
    assert size(reader, "work_done", id="fat") < LARGE
    assert size(reader, "work_add", id="fat") < LARGE
    assert size(reader, "claim", **{"z" * 100_000: 1}) < LARGE


def test_a_large_inbox_is_read_in_parts_and_loses_nothing(start: Start) -> None:
    sender, reader = start(), start()
    name = reader.call("status")["you"]
    bodies = [f"{number} " + "b" * 7_000 for number in range(10)]
    for body in bodies:
        sender.call("send", body=body, to=name)
    read: list[str] = []
    while True:
        answer = reader.call("inbox")
        read += [message["body"] for message in answer["messages"]]
        if "more" not in answer:
            break
    assert read == bodies


def test_an_agent_is_told_what_it_has_lost_to_time(start: Start) -> None:
    alice, bob = start(), start()
    alice.call("claim", resource="src/a.py", ttl_s=1)
    alice.call("claim", resource="src/b.py")
    until(lambda: bob.call("status", resource="src/a.py")["status"] == "available", "it lapses")
    board = alice.call("status")
    assert board["attention"][0] == {"what": "lease_lost", "resource": "src/a.py"}
    assert [lease["resource"] for lease in board["leases"]] == ["src/b.py"]
    assert alice.call("status")["attention"] == []


def test_an_agent_is_told_that_a_task_was_taken_from_it(start: Start, shell: Shell) -> None:
    alice = start()
    alice.call("work_claim", id="t", resources=["src/a.py"])
    shell.person("somebody").ok("work", "revoke", "t")
    lost = alice.call("status")["attention"][:2]
    assert lost == [
        {"what": "lease_lost", "resource": "src/a.py"},
        {"what": "task_lost", "id": "t"},
    ]


def test_what_was_given_up_is_not_lost(start: Start) -> None:
    alice = start()
    alice.call("claim", resources=["src/a.py", "src/b.py"])
    alice.call("work_claim", id="t", resources=["src/c.py"])
    alice.call("release", resource="src/a.py")
    alice.call("work_done", id="t")
    assert alice.call("status")["attention"] == []


def test_the_status_of_a_session_that_is_over_says_so(start: Start) -> None:
    alice = start("--tools", "all")
    alice.call("claim", resource="src/a.py")
    alice.call("agents_leave")
    assert alice.call("status")["status"] == "not_yours"
    assert alice.call("status")["status"] == "ok"


def test_a_mistake_never_puts_the_words_of_others_into_a_hint(start: Start, shell: Shell) -> None:
    os.symlink(f"/tmp/{HOSTILE}", Path(shell.folder) / "evil.py")
    answer = start().misuse("claim", resource="evil.py")
    assert HOSTILE in answer["message"]
    assert answer["untrusted"] == ["message"]
    assert HOSTILE not in answer["hint"]


def test_a_list_that_is_written_as_one_name_is_refused(start: Start) -> None:
    alice = start()
    both = alice.call("claim", resources=["m1.py", "m2.py"])
    assert "resource" not in both
    assert alice.misuse("claim", resource="m1.py, m2.py")["status"] == "invalid"


def test_a_refusal_says_what_is_in_the_way(start: Start) -> None:
    alice, bob = start(), start()
    alice.call("claim", resource="src/parser.py")
    busy = bob.call("claim", resources=["README.md", "src/"])
    assert (busy["status"], busy["blocked_by"]) == ("busy", "src/parser.py")
    assert busy["resources"] == ["README.md", "src/"]


def test_nobody_takes_the_made_up_name_of_one_who_is_away(start: Start) -> None:
    owner, mallory = start(), start()
    name = owner.call("status")["you"]
    owner.end()
    refused = mallory.call("status", name=name)
    assert (refused["status"], refused["you"] == name) == ("exists", False)


def test_another_session_of_the_same_name_is_not_oneself(start: Start, shell: Shell) -> None:
    one, two = (start(within=shell.as_("alice")) for _ in range(2))
    one.call("claim", resource="src/a.py")
    refused = two.call("claim", resource="src/a.py")
    assert (refused["status"], refused["held_by"]) == ("busy", "alice")
    assert refused["hint"] == "another session with your name has it; leave it to that one"


def test_why_a_task_was_given_back_reaches_the_next(start: Start) -> None:
    alice, bob = start(), start()
    alice.call("work_claim", id="t")
    alice.call("work_done", id="t", outcome="abandoned", reason="needs the API key")
    assert bob.call("work_next")["reason"] == "needs the API key"


def test_each_way_not_to_hold_a_task_has_a_hint_of_its_own(start: Start) -> None:
    alice, bob = start(), start()
    alice.call("work_claim", id="theirs")
    alice.call("work_add", id="open")
    bob.call("work_claim", id="done")
    bob.call("work_done", id="done")
    hints = {id: bob.call("work_done", id=id)["hint"] for id in ("theirs", "open", "done")}
    assert len(set(hints.values())) == 3
    assert "already completed" in hints["done"]
    assert bob.call("work_claim", id="theirs")["hint"] == hints["theirs"]


def test_the_trace_of_a_call_is_kept_with_what_it_claims(start: Start, shell: Shell) -> None:
    def trace(span: str) -> str:
        return f"00-0af7651916cd43dd8448eb211c80319c-{span * 16}-01"

    client = start(within=shell.with_(TRACEPARENT=trace("a")))
    client.call("claim", resource="port:1")
    client.call_in({"traceparent": trace("b")}, "claim", resource="port:2")
    client.call_in({"traceparent": trace("c")}, "claim", resource="port:3", wait_s=5)
    client.call_in({"traceparent": trace("d")}, "work_claim", id="t")
    client.call_in({"traceparent": "; rm -rf"}, "claim", resource="port:4")
    plain = start(within=shell)
    plain.call("claim", resource="port:5")
    events = [json.loads(line) for line in shell.ok("log", "--json").out.splitlines()]
    kept = {one["subject"]: one["data"].get("trace") for one in events if "claimed" in one["kind"]}
    assert kept == {
        "port:1": trace("a"), "port:2": trace("b"), "port:3": trace("c"), "t": trace("d"),
        "port:4": trace("a"), "port:5": None,
    }  # fmt: skip
