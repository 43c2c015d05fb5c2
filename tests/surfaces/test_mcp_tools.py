"""The tools of `dibs mcp`: what each answers, what is a refusal and what is misuse.

That every answer fits its schema, is the same as text, and marks what peers wrote, is checked for
each one in `mcp_client.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dibs.dibs import operations
from dibs.mcp.server import INSTRUCTIONS
from tests.surfaces.mcp_client import (
    HOSTILE,
    MODERN,
    TOOLS,
    Client,
    Json,
    Start,
    check_marks,
    clients,
    new_shell,
)
from tests.surfaces.shell import Shell, until

STANDARD = "status claim release wait work_next work_claim work_add work_done send inbox".split()
STATE = "get set list history delete clear_namespace export watch".split()
REST = {
    "leases_renew", "leases_list", "leases_waiting", "leases_outcomes", "leases_transfer",
    "work_renew", "work_cancel", "work_reopen", "work_show", "work_list",
    "work_put", "work_put_many", "work_edit", "work_remove", "work_wait", "work_plan",
    "work_land", "work_ask",
    "messages_announce", "messages_ack", "messages_delivery", "messages_history",
    "messages_search", "state_namespaces",
    "work_add_many", "work_next_many", "work_complete_many", "messages_send_many",
    "agents_beat", "agents_doing", "agents_leave", "agents_list", "agents_overview",
    "agents_verify",
    "events_since", "events_last", "events_latest", "events_watch", "events_report",
    "events_contention", "events_replay", "events_diff", "events_seal", "events_check_seal",
}  # fmt: skip
ANNOTATIONS = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
TOKEN = 4
"""About so many characters of English and JSON are one token."""


@pytest.fixture
def start(shell: Shell) -> Iterator[Start]:
    with clients(shell) as start:
        yield start


@pytest.fixture
def alice(start: Start, shell: Shell) -> Client:
    return start("--tools", "all", within=shell.as_("alice"))


@pytest.fixture
def bob(start: Start, shell: Shell) -> Client:
    return start("--tools", "all", within=shell.as_("bob"))


@pytest.fixture(scope="module")
def anyone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One server for all the calls that are refused before they reach the store."""
    with clients(new_shell(tmp_path_factory.mktemp("anyone"))) as start:
        yield start("--tools", "all")


# What is offered.


def test_the_ten_tools_come_first_and_always_in_one_order(start: Start) -> None:
    few, many = start(), start("--tools", "all", version="2025-06-18")
    named = [tool["name"] for tool in few.result("tools/list")["tools"]]
    assert named == STANDARD
    offered = [tool["name"] for tool in many.result("tools/list")["tools"]]
    assert offered[:10] == STANDARD
    assert offered[10:18] == STATE
    assert set(offered[18:]) == REST
    assert len(offered) == len(set(offered)) == 18 + len(REST)
    assert offered == [tool["name"] for tool in many.result("tools/list")["tools"]]


def test_what_is_offered_does_not_depend_on_who_asks_or_on_what_is_in_the_store(
    start: Start,
) -> None:
    first = start("--tools", "all")
    before = first.result("tools/list")["tools"]
    first.call("claim", resource="src/a.py", note=HOSTILE)
    first.call("work_add", id=HOSTILE, title=HOSTILE)
    second = start("--tools", "all", version="2024-11-05", name=HOSTILE)
    assert second.result("tools/list")["tools"] == before == first.result("tools/list")["tools"]
    assert before == list(TOOLS.values())
    assert second.greeting["instructions"] == INSTRUCTIONS


@pytest.mark.parametrize("name", TOOLS)
def test_a_definition_has_all_that_clients_want(name: str) -> None:
    tool = TOOLS[name]
    assert re.fullmatch(r"[a-z_]{1,64}", tool["name"])
    assert tool["description"].endswith((".", "?"))
    assert tool["annotations"].keys() == ANNOTATIONS
    assert all(type(value) is bool for value in tool["annotations"].values())
    assert tool["annotations"]["openWorldHint"] is False
    taken = tool["inputSchema"]
    assert taken["type"] == "object"
    assert set(taken.get("required", ())) <= taken["properties"].keys()
    for schema in taken["properties"].values():
        assert schema.get("type") or schema.get("anyOf")
    given = tool["outputSchema"]
    assert (given["type"], given["required"]) == ("object", ["status"])


def test_annotations_say_who_only_reads_and_who_destroys() -> None:
    def of(hint: str) -> set[str]:
        return {name for name, tool in TOOLS.items() if tool["annotations"][hint]}

    reads, destroys = of("readOnlyHint"), of("destructiveHint")
    assert not reads & destroys
    assert reads & set(STANDARD) == {"wait"}
    assert reads & set(STATE) == {"get", "list", "history", "export", "watch"}
    assert destroys == {
        "set", "delete", "clear_namespace", "agents_leave", "work_cancel", "work_remove",
    }  # fmt: skip
    for entry in operations().values():
        name = f"{entry.noun}_{entry.verb}"
        if name in REST:
            assert (name in reads) == (not entry.mutates), name


def test_every_operation_is_within_reach_of_some_tool_unless_it_is_for_others() -> None:
    for_people = {
        "leases_revoke", "work_revoke", "agents_add_token", "agents_tokens", "agents_revoke_token",
        "events_prune", "leases_take", "work_ack",
    }  # fmt: skip
    for_hooks = {"leases_see", "leases_report"}
    covered = {
        "leases_claim": "claim", "leases_release": "release", "leases_status": "status",
        "leases_wait": "wait", "work_add": "work_add", "work_claim": "work_claim",
        "work_next": "work_next", "work_complete": "work_done", "work_fail": "work_done",
        "work_abandon": "work_done", "messages_send": "send", "messages_inbox": "inbox",
        "agents_rename": "status", "state_clear": "clear_namespace",
        **{f"state_{verb}": verb for verb in STATE},
    }  # fmt: skip
    for entry in operations().values():
        name = f"{entry.noun}_{entry.verb}"
        assert (covered.get(name, name) in TOOLS) == (name not in for_people | for_hooks), name


def test_tools_and_instructions_fit_into_their_budget(start: Start) -> None:
    client = start(version="2025-11-25")
    listed = len(json.dumps(client.result("tools/list")))
    words = len(client.greeting["instructions"])
    print(f"tools/list {listed:,} characters, instructions {words:,}: "
          f"{listed + words:,}, about {(listed + words) // TOKEN:,} tokens")  # fmt: skip
    assert words < 1_000
    assert listed + words <= 7_000


# The ten.


def test_status_shows_everything_a_turn_needs(alice: Client, bob: Client) -> None:
    bob.call("claim", resource="src/b.py", note="the parser")
    bob.call("agents_beat", status="parsing")
    bob.call("work_add", id="open")
    bob.call("send", body="hello", to="alice")
    alice.call("claim", resource="src/a.py")
    alice.call("work_claim", id="mine")
    waiting = bob.begin_call("claim", {"resource": "src/a.py", "wait_s": 60})
    until(lambda: alice.call("leases_waiting")["result"], "bob in the queue")
    board = alice.call("status")
    assert (board["status"], board["you"]) == ("ok", "alice")
    here = {agent["name"]: agent for agent in board["agents"]}
    assert here.keys() == {"alice", "bob"}
    assert here["bob"] == {"name": "bob", "doing": "parsing", "leases": 1, "tasks": 0}
    assert [lease["resource"] for lease in board["leases"]] == ["src/a.py"]
    (held,) = board["held_by_others"]
    assert (held["resource"], held["held_by"], held["note"]) == ("src/b.py", "bob", "the parser")
    assert 1790 < held["expires_in_s"] <= 1800
    assert [task["id"] for task in board["tasks"]] == ["mine"]
    assert board["work_available"] == 1
    assert [(m["from"], m["body"]) for m in board["messages"]] == [("bob", "hello")]
    urgent = {what["what"]: what for what in board["attention"]}
    assert urgent.keys() == {"waited_for", "unread_messages"}
    assert (urgent["waited_for"]["resource"], urgent["waited_for"]["by"]) == ("src/a.py", "bob")
    assert alice.call("status")["messages"] == board["messages"]  # looking leaves them unread
    alice.call("release", resource="src/a.py")
    assert bob.outcome(waiting)["status"] == "claimed"


def test_status_says_what_ends_soon_and_what_has_failed_for_good(alice: Client) -> None:
    alice.call("claim", resource="src/a.py", ttl_s=100)
    alice.call("work_claim", id="hopeless")
    alice.call("work_renew", id="hopeless", ttl_s=100)
    urgent = {what["what"]: what for what in alice.call("status")["attention"]}
    assert urgent["lease_ends_soon"]["resource"] == "src/a.py"
    assert urgent["task_ends_soon"]["id"] == "hopeless"
    for _ in range(2):
        alice.call("work_done", id="hopeless", outcome="failed", reason="no way")
        alice.call("work_reopen", id="hopeless")
        alice.call("work_claim", id="hopeless")
    alice.call("work_cancel", id="hopeless")
    assert "task_ends_soon" not in {w["what"] for w in alice.call("status")["attention"]}


def test_status_tells_once_of_a_lease_that_was_lost(alice: Client, bob: Client) -> None:
    alice.call("claim", resource="src/a.py", ttl_s=1)
    waiting = bob.begin_call("claim", {"resource": "src/a.py", "wait_s": 60})
    assert bob.outcome(waiting)["status"] == "claimed"
    (lost,) = alice.call("status")["attention"]
    assert (lost["what"], lost["resource"]) == ("lease_lost", "src/a.py")
    assert alice.call("status")["attention"] == []


def test_an_agent_is_told_that_a_person_took_its_lease_away(alice: Client, shell: Shell) -> None:
    alice.call("claim", resources=["src/a.py", "src/b.py"])
    shell.person("somebody").ok("revoke", "src/a.py", "--reason", HOSTILE)
    board = alice.call("status")
    lost, unread = board["attention"]
    assert (lost["what"], lost["resource"]) == ("lease_lost", "src/a.py")
    assert unread == {"what": "unread_messages", "number": 1}
    assert [lease["resource"] for lease in board["leases"]] == ["src/b.py"]
    refused = alice.call("release", resource="src/a.py")
    assert (refused["status"], refused["reason"]) == ("stale", HOSTILE)
    assert "reason" in refused["untrusted"]
    assert alice.call("status")["attention"] == [unread]


def test_status_is_bounded_and_says_how_much_more_there_is(alice: Client, bob: Client) -> None:
    bob.call("claim", resources=[f"src/{n}.py" for n in range(30)])
    for n in range(25):
        bob.call("send", body=f"message {n}", to="alice")
    board = alice.call("status")
    assert len(board["held_by_others"]) == len(board["messages"]) == 20
    assert board["more"] == {"held_by_others": 10, "messages": 5}


def test_status_of_one_resource(alice: Client, bob: Client) -> None:
    free = alice.call("status", resource="src/a.py")
    assert (free["status"], free["resource"], free["yours"]) == ("available", "src/a.py", False)
    alice.call("claim", resource="src/", note="the lot")
    taken = bob.call("status", resource="src/a.py")
    assert (taken["status"], taken["held_by"], taken["note"]) == ("claimed", "alice", "the lot")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", taken["claimed_at"])
    assert 1790 < taken["expires_in_s"] <= 1800
    assert alice.call("status", resource="src/")["yours"] is True


def test_claim_answers_claimed_already_claimed_or_busy(alice: Client, bob: Client) -> None:
    claimed = alice.call("claim", resource="src/a.py", note="fix the parser")
    assert claimed.keys() == {"status", "resource", "epoch", "expires_in_s"}
    assert (claimed["status"], claimed["resource"]) == ("claimed", "src/a.py")
    again = alice.call("claim", resource="src/a.py", note="still at it")
    assert (again["status"], again["epoch"]) == ("already_claimed", claimed["epoch"])
    busy = bob.call("claim", resource="src/a.py")
    assert busy.keys() == {
        "status", "resource", "held_by", "blocked_by", "claimed_at", "note", "expires_in_s", "hint",
        "untrusted",
    }  # fmt: skip
    assert (busy["status"], busy["held_by"], busy["note"]) == ("busy", "alice", "still at it")
    assert busy["untrusted"] == ["note"]
    assert bob.call("claim", resource="src/b.py")["status"] == "claimed"


def test_claim_takes_all_or_nothing(alice: Client, bob: Client) -> None:
    both = alice.call("claim", resources=["src/a.py", "port:3000"])
    assert (both["status"], both["resources"]) == ("claimed", ["src/a.py", "port:3000"])
    refused = bob.call("claim", resource="src/b.py", resources=["src/*.py"])
    assert (refused["status"], refused["held_by"]) == ("busy", "alice")
    assert bob.call("status")["leases"] == []
    more = alice.call("claim", resources=["src/a.py", "src/c.py"])
    assert more["status"] == "claimed"
    assert more["epoch"] > both["epoch"]


def test_claim_can_be_shared(alice: Client, bob: Client) -> None:
    assert alice.call("claim", resource="docs/", mode="shared")["status"] == "claimed"
    assert bob.call("claim", resource="docs/", mode="shared")["status"] == "claimed"
    assert bob.call("claim", resource="docs/")["status"] == "busy"


def test_claim_says_how_many_are_in_the_way(start: Start, shell: Shell, alice: Client) -> None:
    for name in ("one", "two", "three"):
        start(within=shell.as_(name)).call("claim", resource="docs/", mode="shared")
    busy = alice.call("claim", resource="docs/")
    assert (busy["status"], busy["others_in_the_way"]) == ("busy", 2)


def test_claim_waits_in_line_or_says_that_it_waited_in_vain(alice: Client, bob: Client) -> None:
    alice.call("claim", resource="src/a.py", note="a while")
    vain = bob.call("claim", resource="src/a.py", wait_s=0.2)
    assert (vain["status"], vain["held_by"], vain["note"]) == ("busy", "alice", "a while")
    assert alice.call("leases_waiting")["result"] == []


def test_a_wait_that_would_close_a_cycle_is_refused(alice: Client, bob: Client) -> None:
    alice.call("claim", resource="src/a.py")
    bob.call("claim", resource="src/b.py")
    waiting = alice.begin_call("claim", {"resource": "src/b.py", "wait_s": 60})
    until(lambda: bob.call("leases_waiting")["result"], "alice in the queue")
    refused = bob.call("claim", resource="src/a.py", wait_s=60)
    assert refused["status"] == "deadlock"
    assert set(refused["cycle"]) == {"alice", "bob"}
    bob.call("release", everything=True)
    assert alice.outcome(waiting)["status"] == "claimed"


@pytest.mark.parametrize("outcome", ["released", "modified", "created", "deleted", "moved"])
def test_the_next_claimant_is_shown_what_became_of_it(
    alice: Client, bob: Client, outcome: str
) -> None:
    alice.call("claim", resource="src/a.py")
    where = {"moved_to": "src/z.py"} if outcome == "moved" else {}
    released = alice.call("release", resource="src/a.py", outcome=outcome, **where)
    assert released == {"status": "released", "resources": ["src/a.py"]}
    (said,) = bob.call("claim", resource="src/a.py")["outcomes"]
    assert (said["resource"], said["outcome"], said["by"]) == ("src/a.py", outcome, "alice")
    assert said.get("moved_to") == where.get("moved_to")


def test_release_frees_one_several_or_all(alice: Client) -> None:
    alice.call("claim", resources=["a", "b", "c", "d"])
    assert alice.call("release", resource="a")["resources"] == ["a"]
    assert alice.call("release", resources=["b", "c"])["resources"] == ["b", "c"]
    assert alice.call("release", everything=True)["resources"] == ["d"]
    assert alice.call("release", everything=True)["resources"] == []


def test_release_of_what_is_not_yours_is_refused(alice: Client, bob: Client) -> None:
    nothing = alice.call("release", resource="src/a.py")
    assert (nothing["status"], nothing["resource"]) == ("not_held", "src/a.py")
    bob.call("claim", resource="src/a.py", note=HOSTILE)
    refused = alice.call("release", resource="src/a.py")
    assert (refused["status"], refused["held_by"]) == ("not_held", "bob")
    assert bob.call("claim", resource="src/a.py")["status"] == "already_claimed"
    # It was refused for what it asked, not because alice's session has ended.
    assert alice.call("claim", resource="src/b.py")["status"] == "claimed"


def test_wait_answers_available_or_timeout(alice: Client, bob: Client) -> None:
    free = alice.call("wait", resource="src/a.py")
    assert (free["status"], free["resource"]) == ("available", "src/a.py")
    assert 0 <= free["elapsed_seconds"] < 30
    bob.call("claim", resource="src/a.py", note="mine")
    late = alice.call("wait", resource="src/a.py", timeout_s=0.3)
    assert (late["status"], late["held_by"], late["note"]) == ("timeout", "bob", "mine")
    assert late["elapsed_seconds"] >= 0.3
    assert alice.call("wait", resource="src/a.py", timeout_s=0)["status"] == "timeout"
    waiting = alice.begin_call("wait", {"resource": "src/a.py", "timeout_s": 60})
    bob.call("release", resource="src/a.py")
    assert alice.outcome(waiting)["status"] == "available"
    assert alice.call("status")["leases"] == []


def test_work_goes_from_hand_to_hand(alice: Client, bob: Client) -> None:
    added = alice.call("work_add", id="two", title="Second", priority=1, after=["one"])
    assert added == {"status": "added", "id": "two", "state": "blocked"}
    added = alice.call(
        "work_add", id="one", title="First", kind="code", tags=["python"], payload={"pr": 12}
    )
    assert added == {"status": "added", "id": "one", "state": "available"}
    assert bob.call("work_next")["status"] == "later"
    assert bob.call("work_next", tags=["python"], kind="prose")["status"] == "all_done"
    taken = bob.call("work_next", tags=["python"], kind="code")
    assert (taken["status"], taken["id"], taken["title"]) == ("claimed", "one", "First")
    assert (taken["payload"], taken["attempts"]) == ({"pr": 12}, 1)
    assert taken["epoch"] > 0 and 3590 < taken["expires_in_s"] <= 3600
    assert alice.call("work_next")["status"] == "later"
    done = bob.call("work_done", id="one", result={"merged": True})
    assert done == {"status": "completed", "id": "one", "state": "completed"}
    assert alice.call("work_next")["id"] == "two"
    failed = alice.call("work_done", id="two", outcome="failed", reason="tests hang")
    assert (failed["status"], failed["state"]) == ("failed", "failed")
    alice.call("work_reopen", id="two")
    again = bob.call("work_claim", id="two")
    assert again["status"] == "claimed"
    back = bob.call("work_done", id="two", outcome="abandoned", reason="not my field")
    assert (back["status"], back["state"]) == ("abandoned", "available")
    assert alice.call("work_next")["id"] == "two"


def test_work_claim_takes_the_task_and_its_files_or_nothing(alice: Client, bob: Client) -> None:
    mine = alice.call("work_claim", id="new", resources=["src/a.py", "src/b.py"], note="both")
    assert (mine["status"], mine["resources"]) == ("claimed", ["src/a.py", "src/b.py"])
    assert alice.call("work_claim", id="new")["epoch"] == mine["epoch"]
    taken = bob.call("work_claim", id="new")
    assert (taken["status"], taken["id"], taken["held_by"]) == ("busy", "new", "alice")
    files = bob.call("work_claim", id="other", resources=["src/b.py"])
    assert (files["status"], files["held_by"], files["blocked_by"]) == ("busy", "alice", "src/b.py")
    assert files["note"] == "both"
    assert bob.call("work_list", agent="bob")["result"] == []
    alice.call("work_done", id="new")
    assert bob.call("claim", resource="src/b.py")["status"] == "claimed"


@pytest.mark.parametrize(
    ("call", "arguments", "status"),
    [
        ("work_done", {"id": "unknown"}, "not_found"),
        ("work_done", {"id": "open"}, "stale"),
        ("work_done", {"id": "theirs", "outcome": "failed"}, "stale"),
        ("work_add", {"id": "open"}, "exists"),
        ("work_claim", {"id": "blocked"}, "wrong_state"),
        ("work_claim", {"id": "theirs"}, "busy"),
        ("work_next", {"kind": "none"}, "all_done"),
        ("work_next", {"kind": "none", "wait_s": 0.1}, "all_done"),
        ("release", {"resource": "src/none.py"}, "not_held"),
        ("release", {"resource": "src/theirs.py"}, "not_held"),
        ("claim", {"resource": "src/theirs.py"}, "busy"),
        ("wait", {"resource": "src/theirs.py", "timeout_s": 0.1}, "timeout"),
        ("send", {"body": "hi", "reply_to": 4_000_000}, "not_found"),
        ("get", {"namespace": "n", "key": "none"}, "not_found"),
        ("set", {"namespace": "n", "key": "k", "value": 2}, "conflict"),
        ("set", {"namespace": "n", "key": "none", "value": 2, "expected_version": 3}, "conflict"),
        ("delete", {"namespace": "n", "key": "none"}, "not_found"),
        ("delete", {"namespace": "n", "key": "k", "expected_version": 9}, "conflict"),
        ("watch", {"namespace": "n", "key": "k", "timeout_s": 0.1}, "timeout"),
        ("work_show", {"id": "unknown"}, "not_found"),
        ("work_reopen", {"id": "open"}, "wrong_state"),
        ("leases_renew", {"resources": ["src/none.py"]}, "not_found"),
        ("messages_ack", {"ids": [4_000_000]}, "not_found"),
        ("messages_delivery", {"id": 4_000_000}, "not_found"),
    ],
)
def test_a_refusal_is_a_normal_answer_with_a_status(
    alice: Client, bob: Client, call: str, arguments: Json, status: str
) -> None:
    bob.call("work_add", id="open", title=HOSTILE)
    bob.call("work_add", id="blocked", after=["open"], payload={"text": HOSTILE})
    bob.call("work_claim", id="theirs", resources=["src/theirs.py"], note=HOSTILE)
    bob.call("set", namespace="n", key="k", value=HOSTILE)
    answer = alice.call(call, **arguments)
    assert answer["status"] == status
    assert answer["hint"]


def test_messages_reach_one_agent_a_channel_or_everybody(alice: Client, bob: Client) -> None:
    bob.call("status")
    to_bob = alice.call("send", body="for you", to="bob")
    assert (to_bob["status"], to_bob["to"]) == ("sent", "bob")
    assert "hint" not in to_bob
    assert alice.call("send", body="for all")["to"] == "everybody"
    assert alice.call("send", body="for readers", channel="news")["to"] == "news"
    first, second = bob.call("inbox")["messages"]
    assert (first["from"], first["to"], first["body"]) == ("alice", "bob", "for you")
    assert (second["to"], second["body"]) == ("everybody", "for all")
    assert bob.call("inbox")["messages"] == []
    (news,) = bob.call("inbox", channel="news")["messages"]
    assert (news["to"], news["body"]) == ("news", "for readers")
    bob.call("send", body="thanks", reply_to=first["id"])
    (reply,) = alice.call("inbox", wait_s=30)["messages"]
    assert (reply["from"], reply["reply_to"]) == ("bob", first["id"])


def test_a_message_to_somebody_who_is_not_here_waits_for_them(
    alice: Client, start: Start, shell: Shell
) -> None:
    sent = alice.call("send", body="later", to="carol")
    assert "waits" in sent["hint"]
    carol = start(within=shell.as_("carol"))
    assert [one["body"] for one in carol.call("inbox")["messages"]] == ["later"]


def test_an_inbox_that_waited_in_vain_is_empty(alice: Client) -> None:
    assert alice.call("inbox", wait_s=0.2) == {"status": "ok", "messages": []}


# Versioned state.


def test_set_gives_the_version_or_the_conflict(alice: Client, bob: Client) -> None:
    place = {"namespace": "budget", "key": "total"}
    first = alice.call("set", **place, value=9000)
    assert first == {"status": "ok", "version": 1, "previous_version": 0}
    second = alice.call("set", **place, value=8000, expected_version=1)
    assert second == {"status": "ok", "version": 2, "previous_version": 1}
    lost = bob.call("set", **place, value=1, expected_version=1)
    assert lost.keys() >= {
        "status", "expected_version", "actual_version", "actual_updated_by", "actual_updated_at",
        "hint",
    }  # fmt: skip
    assert (lost["status"], lost["expected_version"], lost["actual_version"]) == ("conflict", 1, 2)
    assert (lost["actual_updated_by"], lost["actual_value"]) == ("alice", 8000)
    forced = bob.call("set", **place, value=None, force=True)
    assert (forced["version"], forced["previous_version"]) == (3, 2)
    assert alice.call("get", **place)["value"] is None
    new = bob.call("set", **place, value=5)
    assert (new["status"], new["expected_version"]) == ("conflict", 0)
    missing = bob.call("set", namespace="budget", key="no", value=1, expected_version=7)
    assert (missing["status"], missing["actual_version"]) == ("conflict", 0)


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}, "text", [1, {"a": None}], 1.5])
def test_any_json_can_be_set_and_got(alice: Client, value: Any) -> None:
    assert alice.call("set", namespace="n", key="k", value=value)["status"] == "ok"
    got = alice.call("get", namespace="n", key="k")
    assert (got["status"], got["value"], got["version"]) == ("ok", value, 1)
    assert (got["namespace"], got["key"], got["updated_by"]) == ("n", "k", "alice")


def test_get_of_nothing_and_of_what_was_deleted(alice: Client) -> None:
    assert alice.call("get", namespace="n", key="k")["status"] == "not_found"
    alice.call("set", namespace="n", key="k", value=1)
    assert alice.call("delete", namespace="n", key="k") == {"status": "deleted", "version": 2}
    assert alice.call("get", namespace="n", key="k")["status"] == "not_found"
    assert alice.call("set", namespace="n", key="k", value=2) == {
        "status": "ok", "version": 3, "previous_version": 0,
    }  # fmt: skip


def test_an_entry_can_have_an_end(alice: Client) -> None:
    alice.call("set", namespace="n", key="k", value=1, ttl_s=100)
    assert 90 < alice.call("get", namespace="n", key="k")["expires_in_s"] <= 100


def test_list_history_and_clear(alice: Client) -> None:
    for key in ("b", "a", "c"):
        alice.call("set", namespace="n", key=key, value=key)
    alice.call("set", namespace="n", key="a", value="A", expected_version=1)
    listed = alice.call("list", namespace="n")["entries"]
    assert [(one["key"], one["version"], one["value"]) for one in listed] == [
        ("a", 2, "A"), ("b", 1, "b"), ("c", 1, "c"),
    ]  # fmt: skip
    assert [one["key"] for one in alice.call("list", namespace="n", after="a", limit=1)["entries"]]
    versions = alice.call("history", namespace="n", key="a")["history"]
    assert [(one["version"], one["value"]) for one in versions] == [(2, "A"), (1, "a")]
    assert alice.call("state_namespaces")["result"] == {"n": 3}
    assert alice.call("clear_namespace", namespace="n") == {"status": "ok", "deleted": 3}
    assert alice.call("list", namespace="n")["entries"] == []
    newest = alice.call("history", namespace="n", key="a", limit=1)["history"][0]
    assert (newest["version"], newest["deleted"]) == (3, True)


def test_export_gives_records_by_key_each_with_its_history(alice: Client, bob: Client) -> None:
    for key in ("b", "a"):
        alice.call("set", namespace="n", key=key, value=1)
        bob.call("set", namespace="n", key=key, value=2, expected_version=1)
    alice.call("set", namespace="other", key="x", value=1)
    exported = alice.call("export", namespace="n")
    assert (exported["status"], exported["namespace"]) == ("ok", "n")
    assert (exported["record_count"], exported["history_count"]) == (2, 4)
    assert [record["key"] for record in exported["records"]] == ["a", "b"]
    for record in exported["records"]:
        assert (record["value"], record["version"], record["updated_by"]) == (2, 2, "bob")
        assert [one["version"] for one in record["history"]] == [2, 1]
    empty = alice.call("export", namespace="none")
    assert (empty["records"], empty["record_count"], empty["history_count"]) == ([], 0, 0)


def test_watch_gives_the_new_value_the_deletion_or_a_timeout(alice: Client, bob: Client) -> None:
    place = {"namespace": "n", "key": "k"}
    assert alice.call("watch", **place, timeout_s=0.2)["status"] == "timeout"
    watching = alice.begin_call("watch", {**place, "after_version": 0, "timeout_s": 60})
    bob.call("set", **place, value="new")
    seen = alice.outcome(watching)
    assert (seen["status"], seen["value"], seen["version"]) == ("ok", "new", 1)
    watching = alice.begin_call("watch", {**place, "after_version": 1, "timeout_s": 60})
    bob.call("delete", **place)
    assert alice.outcome(watching)["status"] == "deleted"


# Every other operation.


def test_the_other_operations_answer_with_their_records(alice: Client, bob: Client) -> None:
    def result(client: Client, tool: str, **arguments: Any) -> Any:
        answer = client.call(tool, **arguments)
        assert answer["status"] == "ok"
        return answer["result"]

    epoch = alice.call("claim", resources=["src/a.py", "docs/"], ttl_s=60)["epoch"]
    assert len(result(alice, "leases_renew", resources=["src/a.py"], ttl_s=600)) == 1
    assert len(result(alice, "leases_renew", epoch=epoch)) == 2
    assert len(result(alice, "leases_renew", everything=True)) == 2
    assert [lease["agent"] for lease in result(bob, "leases_list")] == ["alice", "alice"]
    assert result(bob, "leases_list", agent="bob") == []
    assert result(bob, "leases_waiting") == []
    alice.call("release", resource="docs/", outcome="modified")
    assert result(bob, "leases_outcomes", resources=["docs/x.md"])[0]["outcome"] == "modified"

    alice.call("work_claim", id="task")
    assert result(alice, "work_renew", id="task", ttl_s=60)["ttl_ms"] == 60_000
    assert result(bob, "work_show", id="task")["agent"] == "alice"
    assert [task["id"] for task in result(bob, "work_list", state="claimed")] == ["task"]
    assert bob.call("work_cancel", id="task", reason="twice")["status"] == "not_yours"
    assert result(alice, "work_cancel", id="task", reason="twice")["state"] == "cancelled"
    assert result(bob, "work_reopen", id="task")["state"] == "available"

    sent = result(alice, "messages_announce", body="the schema has changed")
    assert sent["kind"] == "announcement"
    (got,) = bob.call("inbox")["messages"]
    assert result(bob, "messages_ack", ids=[got["id"]]) == [got["id"]]
    (delivery,) = result(alice, "messages_delivery", id=got["id"])
    assert delivery["state"] == "acknowledged"
    assert result(bob, "messages_history", agent="alice")[0]["id"] == got["id"]
    assert result(bob, "messages_search", text="schema")[0]["id"] == got["id"]

    assert result(alice, "agents_beat", status="resting")["status"] == "resting"
    assert {one["agent"] for one in result(alice, "agents_list")} == {"alice", "bob"}
    assert result(alice, "agents_overview")["agents"] == result(alice, "agents_list")
    assert result(alice, "agents_verify") == []

    last = result(alice, "events_last")
    assert result(alice, "events_since", limit=1)[0]["seq"] == 1
    watching = alice.begin_call("events_watch", {"seq": last, "kind": "lease"})
    bob.call("claim", resource="src/b.py")
    assert alice.outcome(watching)["result"][0]["kind"] == "lease.claimed"
    assert result(bob, "agents_leave")["alive"] is False


def test_many_tasks_in_one_call(alice: Client, bob: Client) -> None:
    items = [{"id": "a"}, {"id": "b"}, {"id": "c", "after": ["a"]}]
    assert len(alice.call("work_add_many", items=items)["result"]) == 3
    refused = alice.call("work_add_many", items=[{"id": "d"}, {"id": "a"}])
    assert (refused["status"], refused["item"]) == ("exists", 1)
    each = alice.call("work_add_many", items=[{"id": "d"}, {"id": "a"}], each=True)["result"]
    assert (each[0]["id"], each[1]["error"]) == ("d", "exists")
    taken = alice.call("work_next_many", limit=2)
    assert [task["id"] for task in taken["tasks"]] == ["a", "b"]
    done = [{"id": task["id"], "epoch": task["epoch"]} for task in taken["tasks"]]
    completed = alice.call("work_complete_many", items=done)["result"]
    assert [task["state"] for task in completed] == ["completed", "completed"]
    assert "lost" not in json.dumps(alice.call("status"))
    sent = alice.call(
        "messages_send_many", items=[{"body": "1", "to": "bob"}, {"body": "2", "to": "bob"}]
    )
    assert len(sent["result"]) == len(bob.call("inbox")["messages"]) == 2


def test_a_cancelled_take_of_many_gives_them_back(alice: Client, bob: Client) -> None:
    waiting = alice.begin_call("work_next_many", {"limit": 5, "wait_s": 60})
    alice.cancel(waiting)
    alice.lives()
    bob.call("work_add_many", items=[{"id": "a"}, {"id": "b"}])
    taken = bob.call("work_next_many", limit=5, wait_s=30)
    assert [task["id"] for task in taken["tasks"]] == ["a", "b"]


def test_asked_again_with_one_key_an_operation_is_done_once(alice: Client) -> None:
    first = alice.call("messages_announce", body="once", idempotency_key="k")
    again = alice.call("messages_announce", body="once", idempotency_key="k")
    assert first["result"]["id"] == again["result"]["id"]


# Misuse.


@pytest.mark.parametrize("tool", TOOLS)
def test_every_argument_of_the_wrong_type_is_misuse(anyone: Client, tool: str) -> None:
    schema = TOOLS[tool]["inputSchema"]
    right: dict[str, Any] = {
        "string": "x", "number": 1, "integer": 1, "boolean": True, "array": ["x"], "object": {},
    }  # fmt: skip
    wrong: dict[str, list[Any]] = {
        "string": [5, True, [], {}, ["x"]],
        "number": ["1", True, [], {}],
        "integer": ["1", 1.5, True, [], {}],
        "boolean": ["true", 0, 1, [], {}],
        "array": ["x", 5, {}, True, [5] if tool != "messages_ack" else ["5"], [None]],
        "object": ["x", 5, [], True],
    }
    needed = {
        name: right[schema["properties"][name].get("type", "object")]
        for name in schema.get("required", ())
    }
    if "items" in needed:
        needed["items"] = [{}]
    for name, inner in schema["properties"].items():
        for value in wrong.get(inner.get("type", ""), []):
            answer = anyone.misuse(tool, **{**needed, name: value})
            assert answer["status"] == "invalid"
            assert name in answer["message"], (tool, name, value, answer)
        if "enum" in inner:
            answer = anyone.misuse(tool, **{**needed, name: "something else"})
            assert all(choice in answer["message"] for choice in inner["enum"])
    for name in needed:
        answer = anyone.misuse(tool, **{key: needed[key] for key in needed if key != name})
        assert answer["status"] == "invalid" and name in answer["message"]
    answer = anyone.misuse(tool, **needed, no_such_argument=1)
    assert answer["status"] == "invalid" and "no_such_argument" in answer["message"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("claim", {}),
        ("claim", {"resource": ""}),
        ("claim", {"resource": "../outside"}),
        ("claim", {"resource": "a", "ttl_s": 0}),
        ("claim", {"resource": "a", "ttl_s": -5}),
        ("claim", {"resource": "a", "ttl_s": 10**400}),
        ("claim", {"resource": "a", "wait_s": -1}),
        ("claim", {"resource": "a", "wait_s": 10**9}),
        ("claim", {"resource": "a", "wait_s": 10**400}),
        ("claim", {"resources": ["a"] * 1_000}),
        ("claim", {"resource": "a", "note": "n" * 2_001}),
        ("claim", {"resource": "a" * 100_000}),
        ("release", {}),
        ("release", {"resource": "a", "everything": True}),
        ("release", {"resource": "a", "outcome": "moved"}),
        ("release", {"resource": "a", "moved_to": "b"}),
        ("wait", {"resource": "a", "timeout_s": -1}),
        ("wait", {"resource": "a", "timeout_s": 86_401}),
        ("work_next", {"tags": ["x"] * 1_001}),
        ("work_next", {"wait_s": -0.001}),
        ("work_add", {"id": ""}),
        ("work_add", {"id": "x" * 201}),
        ("work_add", {"id": "x", "priority": 10**400}),
        ("work_add", {"id": "x", "after": ["x"]}),
        ("work_done", {"id": "x", "reason": "why"}),
        ("work_done", {"id": "x", "outcome": "failed", "result": {}}),
        ("send", {"body": ""}),
        ("send", {"body": "b" * 16_385}),
        ("send", {"body": "b", "to": "bob", "channel": "news"}),
        ("send", {"body": "b", "to": "two words"}),
        ("send", {"body": "b", "reply_to": -1}),
        ("inbox", {"channel": ""}),
        ("inbox", {"wait_s": 86_401}),
        ("status", {"name": ""}),
        ("status", {"name": "two words"}),
        ("status", {"name": "a//b"}),
        ("status", {"name": "n" * 201}),
        ("status", {"resource": ""}),
        ("set", {"namespace": "n", "key": "k", "value": 1, "expected_version": 1, "force": True}),
        ("set", {"namespace": "", "key": "k", "value": 1}),
        ("set", {"namespace": "n", "key": "k", "value": 1, "ttl_s": -1}),
        ("watch", {"namespace": "n", "key": "k", "timeout_s": -1}),
        ("agents_overview", {"limit": 0}),
        ("messages_search", {"text": "?!"}),
        ("work_list", {"state": "asleep"}),
    ],
)
def test_misuse_is_an_error_that_says_what_is_wrong(
    anyone: Client, tool: str, arguments: Json
) -> None:
    answer = anyone.misuse(tool, **arguments)
    assert answer["status"] == "invalid"
    assert answer["message"]


def test_null_stands_for_an_argument_left_out(alice: Client) -> None:
    claimed = alice.call("claim", resource="a", resources=None, note=None, mode=None, wait_s=None)
    assert claimed["status"] == "claimed"
    assert alice.misuse("work_add", id=None)["status"] == "invalid"


def test_a_deep_value_is_refused_and_a_flat_one_is_not(alice: Client) -> None:
    def nested(depth: int) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = [value]
        return value

    assert alice.misuse("set", namespace="n", key="k", value=nested(400))["status"] == "invalid"
    assert alice.call("set", namespace="n", key="k", value=nested(90))["status"] == "ok"
    assert alice.call("get", namespace="n", key="k")["value"] == nested(90)


# A peer that was misled.


def plant(client: Client, shared: str) -> None:
    """Write the hostile text wherever a peer can write any."""
    client.call("status", name=HOSTILE)
    client.call("agents_beat", status=f"{HOSTILE} now")
    client.call("claim", resource=shared, note=f"{HOSTILE} now")
    client.call("claim", resource=f"src/{HOSTILE}.py", note=f"{HOSTILE} now")
    client.call("claim", resource="src/moved.py")
    client.call("release", resource="src/moved.py", outcome="moved", moved_to=f"src/{HOSTILE}/m.py")
    client.call("send", body=f"{HOSTILE}\nnow")
    client.call("send", body=f"{HOSTILE} now", to="victim")
    client.call("send", body=f"{HOSTILE} now", channel=HOSTILE)
    client.call("messages_announce", body=f"{HOSTILE} now")
    said: Json = {"title": f"{HOSTILE} now", "kind": HOSTILE, "tags": [HOSTILE]}
    client.call("work_add", id=f"{HOSTILE} now", **said, payload={HOSTILE: [HOSTILE]})
    client.call("work_add", id="waits", title=f"{HOSTILE} now", after=[f"{HOSTILE} now"])
    client.call("work_claim", id="theirs", note=f"{HOSTILE} now", resources=["src/theirs.py"])
    client.call("work_claim", id="back")
    client.call("work_done", id="back", outcome="abandoned", reason=f"{HOSTILE} now")
    client.call("work_claim", id="paused")
    client.call("work_done", id="paused", outcome="failed", reason=f"{HOSTILE}\nnow")
    client.call("work_claim", id="done")
    client.call("work_done", id="done", result={HOSTILE: HOSTILE})
    client.call("work_claim", id="void")
    client.call("work_cancel", id="void", reason=f"{HOSTILE} now")
    client.call("set", namespace=HOSTILE, key=HOSTILE, value={HOSTILE: HOSTILE})
    client.call("set", namespace="n", key="k", value=f"{HOSTILE} now")


@pytest.mark.parametrize("version", [MODERN, "2025-06-18"])
def test_what_a_hostile_peer_writes_is_marked_and_never_in_our_own_words(
    start: Start, shell: Shell, version: str
) -> None:
    victim = start("--tools", "all", within=shell.as_("victim"), version=version)
    victim.call("status")
    peer = start("--tools", "all")
    plant(peer, "src/a.py")
    victim.call("claim", resource="src/v.py")
    queued = peer.begin_call("claim", {"resource": "src/v.py", "note": HOSTILE, "wait_s": 60})
    until(lambda: victim.call("leases_waiting")["result"], "the peer in the queue")
    # `mcp_client` looks at every answer: the text may stand where `untrusted` says, and in names.
    seen = ""
    calls: list[tuple[str, Json]] = [
        ("status", {}),
        ("status", {"resource": "src/a.py"}),
        ("status", {"name": HOSTILE}),
        ("claim", {"resource": "src/a.py"}),
        ("claim", {"resource": "src/a.py", "wait_s": 0.1}),
        ("claim", {"resource": "src/"}),
        ("claim", {"resource": "src/moved.py"}),
        ("release", {"resource": "src/a.py"}),
        ("wait", {"resource": "src/a.py", "timeout_s": 0.1}),
        ("work_claim", {"id": f"{HOSTILE} now"}),
        ("work_claim", {"id": "waits"}),
        ("work_claim", {"id": "theirs"}),
        ("work_claim", {"id": "paused"}),
        ("work_claim", {"id": "done"}),
        ("work_claim", {"id": "void"}),
        ("work_claim", {"id": "mine", "resources": ["src/theirs.py"]}),
        ("work_add", {"id": "waits"}),
        ("work_done", {"id": "theirs"}),
        ("work_done", {"id": "done"}),
        ("work_done", {"id": "paused", "outcome": "failed"}),
        ("work_done", {"id": f"{HOSTILE} now", "outcome": "abandoned"}),
        ("work_next", {"tags": [HOSTILE], "kind": HOSTILE}),
        ("work_next", {}),
        ("send", {"body": "hi", "to": HOSTILE}),
        ("inbox", {}),
        ("inbox", {"channel": HOSTILE}),
        ("get", {"namespace": HOSTILE, "key": HOSTILE}),
        ("set", {"namespace": "n", "key": "k", "value": 1}),
        ("list", {"namespace": HOSTILE}),
        ("history", {"namespace": HOSTILE, "key": HOSTILE}),
        ("export", {"namespace": HOSTILE}),
        ("watch", {"namespace": "n", "key": "k", "after_version": 0}),
        ("delete", {"namespace": HOSTILE, "key": HOSTILE, "expected_version": 7}),
        ("state_namespaces", {}),
        ("leases_list", {}),
        ("leases_waiting", {}),
        ("leases_outcomes", {"resources": ["src/"]}),
        ("work_list", {}),
        ("work_show", {"id": "done"}),
        ("work_reopen", {"id": "waits"}),
        ("agents_list", {}),
        ("messages_history", {}),
        ("messages_search", {"text": "now"}),
        ("events_since", {}),
    ]
    for tool, arguments in calls:
        answer = victim.call(tool, **arguments)
        seen += json.dumps(answer)
        assert HOSTILE not in answer.get("hint", "")
        assert HOSTILE not in answer["status"]
    misuse = victim.misuse("work_add", id=f"{HOSTILE} now 2", after=[f"{HOSTILE} now 2"])
    assert HOSTILE in misuse["message"] and "message" in misuse["untrusted"]
    for uri in ("dibs://board", "dibs://leases", "dibs://work", "dibs://inbox"):
        (content,) = victim.result("resources/read", {"uri": uri})["contents"]
        check_marks(json.loads(content["text"]))
        seen += content["text"]
    for method in ("tools/list", "prompts/list", "resources/list"):
        assert HOSTILE not in json.dumps(victim.result(method))
    prompt = victim.result("prompts/get", {"name": "coordinate"})
    assert HOSTILE not in json.dumps(prompt)
    # It was there to be seen.
    for said in (
        "note",
        "body",
        "title",
        "reason",
        "payload",
        "doing",
        "result",
        "value",
        "status",
    ):
        assert re.search(rf'"{said}": ?[{{"]+{HOSTILE}', seen), said
    victim.call("release", everything=True)
    assert peer.outcome(queued)["status"] == "claimed"


def test_progress_speaks_our_own_words(start: Start) -> None:
    peer, victim = start(), start()
    peer.call("claim", resource="src/a.py", note=HOSTILE)
    victim.begin_call("wait", {"resource": "src/a.py", "timeout_s": 60}, progressToken=HOSTILE)
    note = victim.hear(lambda m: m.get("method") == "notifications/progress", "progress")
    assert HOSTILE not in note["params"]["message"]
