"""`/v1/metrics`: what the programs of agents say that they used, as OpenTelemetry sends it."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

import dibs
from tests.surfaces.daemon import Client, Daemon, serving
from tests.surfaces.shell import Shell
from tests.telemetry.receiver import COST, CUMULATIVE, TOKENS, S, as_json, counted

PROTOBUF = "application/x-protobuf"


@pytest.fixture(scope="module")
def daemon(place: Shell) -> Iterator[Daemon]:
    with serving(place) as daemon:
        yield daemon


class Program:
    """An agent's program: its session here, by a token, and what it counts."""

    def __init__(self, daemon: Daemon, agent: str, session: str) -> None:
        self.daemon, self.agent, self.id = daemon, agent, session
        self.token = daemon.token_of(agent)
        joined = daemon.client(agent, token=self.token)
        told = joined("agents.join", client=f"claude:{session}", ttl_s=3600)
        self.session = told["session"]["id"]
        self.client = daemon.client(token=self.token, session=told["token"])

    def send(self, body: bytes, client: Client | None = None, **headers: str | None) -> Any:
        named = {"Content-Type": PROTOBUF} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        sender = client or self.daemon.client(token=self.token)
        return sender.request("POST", "/v1/metrics", body, {**named})

    def used(self, **filters: Any) -> list[dict[str, Any]]:
        events = self.daemon.client()("events.since", kind="session.used", limit=1000)
        return [one for one in events if one["agent"] == self.agent]


@pytest.fixture
def program(daemon: Daemon, request: pytest.FixtureRequest) -> Program:
    name = f"p{time.monotonic_ns()}"
    return Program(daemon, name, f"s-{name}")


def ask(program: Program, value: float = 5, **more: Any) -> Any:
    now = time.time_ns()
    about = {"session__id": program.id, "type": "input", "model": "claude-opus-5"} | more
    return counted(TOKENS, value, now, now - S, **about)


@pytest.mark.parametrize("temporality", ["delta", "cumulative"])
def test_the_exporter_of_the_sdk_books_tokens_and_cost_on_the_task(
    program: Program, temporality: str
) -> None:
    program.client("work.add", id=f"task-{program.id}")
    program.client("work.claim", id=f"task-{program.id}")
    wanted = getattr(AggregationTemporality, temporality.upper())
    exporter = OTLPMetricExporter(
        endpoint=f"{program.daemon.url}/v1/metrics",
        headers={"Authorization": f"Bearer {program.token}"},
        compression=Compression.Gzip,
        preferred_temporality={Counter: wanted},
    )
    reader = InMemoryMetricReader(preferred_temporality={Counter: wanted})
    provider = MeterProvider([reader], Resource.create({"service.name": "claude-code"}))
    meter = provider.get_meter("com.anthropic.claude_code")
    tokens, cost = meter.create_counter(TOKENS), meter.create_counter(COST, "USD")
    other = meter.create_counter("claude_code.session.count")
    about = {"session.id": program.id, "model": "claude-opus-5"}
    for _ in range(3):
        tokens.add(100, about | {"type": "input"})
        tokens.add(20, about | {"type": "output"})
        tokens.add(7, about | {"type": "cacheRead"})
        tokens.add(3, about | {"type": "cacheCreation"})
        cost.add(0.0123456, about)
        other.add(1, about)
        found = reader.get_metrics_data()
        assert found is not None
        exporter.export(found)
        exporter.export(found)  # as after an answer that was lost
    provider.shutdown()
    exporter.shutdown()
    events = program.used()
    assert len(events) == 3
    total = {
        what: sum(event["data"].get(what, 0) for event in events)
        for what in (
            "input_tokens",
            "output_tokens",
            "cache_read_tokens",
            "cache_creation_tokens",
            "cost_usd",
        )
    }
    cost_total = round(total.pop("cost_usd") * 1_000_000)
    assert total == {
        "input_tokens": 300, "output_tokens": 60, "cache_read_tokens": 21,
        "cache_creation_tokens": 9,
    }  # fmt: skip
    assert abs(cost_total - 37_037) <= 2, "a point is rounded to a millionth of a dollar"
    for event in events:
        assert event["session"] == program.session
        assert event["data"]["task"] == f"task-{program.id}"
        assert event["data"]["model"] == "claude-opus-5"


def test_both_encodings_are_answered_in_kind(program: Program) -> None:
    reply = program.send(ask(program).SerializeToString())
    assert (reply.status, reply.headers["content-type"], reply.body) == (200, PROTOBUF, b"")
    for encoding in (None, "gzip"):
        body = as_json(ask(program))
        body = gzip.compress(body) if encoding else body
        reply = program.send(body, Content_Type="application/json", Content_Encoding=encoding)
        assert (reply.status, reply.json) == (200, {})
    assert len(program.used()) == 3


def test_nobody_books_on_another_ones_session(daemon: Daemon, program: Program) -> None:
    mallory = Program(daemon, f"m{time.monotonic_ns()}", "mallorys")
    mine = ask(mallory)
    both = counted(TOKENS, 9, time.time_ns(), request=mine, session__id=program.id, type="input")
    reply = mallory.send(both.SerializeToString())
    assert (reply.status, reply.error) == (403, "not_yours")
    assert not program.used() and not mallory.used(), "nothing of the request counts"
    admin = program.send(ask(program).SerializeToString(), daemon.client())
    assert admin.status == 200 and len(program.used()) == 1


def test_a_session_of_this_machines_user_is_booked_on_by_its_own_agent_only(
    daemon: Daemon, program: Program
) -> None:
    folder = daemon.shell.folder
    with dibs.open(start=str(folder), user_dir=daemon.shell.user_dir) as space:
        chosen = space.join("zoe", client="claude:zoes", ttl_s=600)
        made_up = space.join("claude-bagido", client="claude:made-up", ttl_s=600)
        for agent, status in ((chosen, 403), (made_up, 200)):
            session = {"claude-bagido": "made-up", "zoe": "zoes"}[agent.name]
            reply = program.send(ask(program, session__id=session).SerializeToString())
            assert reply.status == status, (agent.name, reply)
        [event] = made_up.events.since(kind="session.used", agent="claude-bagido")
        assert event.session == made_up.session
        # The token of a session opens this, and nothing else.
        own = daemon.client(token=chosen.token)
        assert program.send(ask(program).SerializeToString(), own).status == 200
        [event] = chosen.events.since(kind="session.used", agent="zoe")
        assert event.session == chosen.session
        assert own.request("POST", "/v1/events/last", "{}").status == 401
        forged = daemon.client(token=f"{chosen.session}.{'0' * 64}")
        assert program.send(ask(program).SerializeToString(), forged).status == 403
    elsewhere = daemon.client(token=program.client.headers["Dibs-Session"])
    assert program.send(ask(program).SerializeToString(), elsewhere).status == 401


def test_an_unknown_session_is_booked_on_the_tokens_agent(program: Program) -> None:
    for session in ("nobody-knows", "\x1b[2J", ""):
        reply = program.send(ask(program, session__id=session).SerializeToString())
        assert reply.status == 200
    events = program.used()
    assert [(one["session"], one["data"]["task"]) for one in events] == [(None, None)] * 3


def test_two_agents_that_say_no_session_are_two_series(daemon: Daemon) -> None:
    programs = [Program(daemon, f"q{number}-{time.monotonic_ns()}", f"q{number}")
                for number in range(2)]  # fmt: skip
    now = time.time_ns()
    same = counted(TOKENS, 5, now, now - S, CUMULATIVE, type="input").SerializeToString()
    for one in programs:
        assert one.send(same).status == 200
        assert sum(event["data"]["input_tokens"] for event in one.used()) == 5


def test_what_is_no_otlp_is_refused_and_books_nothing(daemon: Daemon, program: Program) -> None:
    good = ask(program).SerializeToString()
    cases: list[tuple[bytes, dict[str, Any]]] = [
        (b"\xff" * 50, {}),
        (good[:-1], {}),
        (b"[]", {"Content_Type": "application/json"}),
        (b"{", {"Content_Type": "application/json"}),
        (good, {"Content_Encoding": "gzip"}),
        (gzip.compress(bytes(100 << 20)), {"Content_Encoding": "gzip"}),
        (ask(program, value=1e30).SerializeToString(), {}),
    ]
    for body, headers in cases:
        reply = program.send(body, **headers)
        assert (reply.status, reply.error) == (400, "invalid"), reply
    assert program.send(good, Content_Type="text/plain").status == 415
    assert program.send(good, daemon.stranger()).status == 401
    read = daemon.client(token=daemon.token_of("looker", scope="read"))
    assert program.send(good, read).status == 403
    assert program.send(os.urandom(5 << 20)).status == 413
    assert daemon.client().request("GET", "/v1/metrics").status == 405
    assert not program.used()
    assert daemon.client()("events.last") > 0, "it still serves"


def test_only_this_page_takes_other_bodies_than_json(program: Program) -> None:
    client = program.daemon.client(token=program.token)
    reply = client.request("POST", "/v1/events/last", "{}", {"Content-Type": PROTOBUF})
    assert (reply.status, reply.error) == (415, "content_type")


def test_a_retry_after_a_kill_is_booked_once(shell: Shell) -> None:
    with serving(shell) as daemon:
        program = Program(daemon, "alice", "s")
        body = ask(program).SerializeToString()
        assert program.send(body).status == 200
        daemon.kill()
        daemon.start()
        assert program.send(body, daemon.client(token=program.token)).status == 200
        assert len(program.used()) == 1
        assert json.loads(shell.ok("log", "--kind", "session.used", "--json").out)
