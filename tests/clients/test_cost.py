"""What Claude Code says that it used reaches its task: its real export, to a real daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dibs.clients.claude import CLIENT
from tests.clients.client import run
from tests.clients.repository import add_daemon, add_server
from tests.clients.script import edit, mcp, say
from tests.clients.test_swarm import begun, swarm
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import Shell

__all__ = ["begun"]
pytestmark = pytest.mark.clients
WORK = [mcp("work_claim", id="issue-7"), mcp("work_done", id="issue-7", outcome="completed"), say()]


def used(daemon: Daemon) -> list[dict[str, Any]]:
    found = daemon.client()("events.since", kind="session.used", limit=1000)
    assert found, "nothing was booked"
    return list(found)


def total(events: list[dict[str, Any]], what: str) -> float:
    return sum(event["data"].get(what, 0) for event in events)


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_cost_is_booked_on_the_task_of_the_session(
    repository: Path, shell: Shell, protocol: str
) -> None:
    add_server("claude", repository)
    with serving(shell) as daemon:
        variables = CLIENT.metering(daemon.url, daemon.token_of("claude"))
        variables["OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"] = protocol
        client = run("claude", repository, WORK, variables)
        events = used(daemon)
        report = shell.json("report", "--by", "task")
        text = shell.ok("report", "--by", "task", "--cost").out
        [claimed] = daemon.client()("events.since", kind="task.claimed", limit=1000)
    assert {event["data"]["task"] for event in events} == {"issue-7"}, events
    assert {(event["agent"], event["session"]) for event in events} == {
        (claimed["agent"], claimed["session"])
    }
    # The scripted model says one token in and one out for each of its turns.
    assert total(events, "input_tokens") == total(events, "output_tokens") == client.turns, events
    cost = round(total(events, "cost_usd"), 6)
    assert cost > 0, events
    [task] = [one for one in report["groups"] if one["key"] == "issue-7"]
    assert (task["cost_usd"], task["input_tokens"]) == (cost, client.turns)
    assert f"${cost:.4f}" in text, text


def test_cost_is_booked_on_the_task_of_the_token_if_the_session_is_unknown(
    repository: Path, shell: Shell
) -> None:
    with serving(shell) as daemon:
        add_daemon("claude", repository, f"{daemon.url}/mcp")
        token = daemon.token_of("alice")
        variables = CLIENT.metering(daemon.url, token) | {"DIBS_TOKEN": token}
        run("claude", repository, WORK, variables)
        events = used(daemon)
    assert {(event["agent"], event["data"]["task"]) for event in events} == {("alice", "issue-7")}


def test_a_swarm_has_its_agents_tell_a_daemon_that_runs(
    begun: Path, shell: Shell, tmp_path: Path
) -> None:
    with serving(shell) as daemon:
        script = [edit("b.py", "b = 1\n"), say("done")]
        done = swarm("claude", begun, tmp_path / "scratch", script)
        events = used(daemon)
        status = shell.json("swarm", "status")["limits"]
    assert done.task["state"] == "completed", done
    assert {event["data"]["task"] for event in events} == {done.task["id"]}, events
    assert {event["agent"].rpartition("/")[2] for event in events} == {"w1"}
    # It says in its output what it cost, too, which counts once.
    assert abs(status["spent_usd"] - total(events, "cost_usd")) < 0.00001, (status, events)
    assert status["used_tokens"] == total(events, "input_tokens") + total(events, "output_tokens")
