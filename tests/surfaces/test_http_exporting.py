"""What a daemon tells OpenTelemetry, as its own messages read it on the other side."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, session_attributes
from opentelemetry.semconv.attributes import error_attributes, service_attributes
from opentelemetry.semconv.schemas import Schemas

from dibs.telemetry.otlp import SCHEMA
from dibs.telemetry.sending import Target
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import Shell
from tests.telemetry.receiver import Received, attributes, receiver

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "300"}


@pytest.fixture
def told() -> Iterator[tuple[str, Received]]:
    with receiver() as found:
        yield found


def figures(daemon: Daemon) -> dict[str, int]:
    text = daemon.client().request("GET", "/metrics").body.decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: int(number) for name, _, number in lines}


def eventually(look: Any, seconds: float = 20) -> Any:
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def test_claims_waits_and_tasks_arrive_as_spans_with_links(shell: Shell, told) -> None:
    url, received = told
    with serving(shell.with_(**SOON), "--otlp", url) as daemon:
        alice, bob = daemon.client("alice"), daemon.client("bob")
        traced = {"traceparent": TRACE}
        reply = alice.ask("work.claim", {"id": "t", "leases": ["src/a.py"]}, **traced)
        epoch = reply.json["epoch"]
        held = alice.ask("leases.claim", {"resources": ["port:1"], "note": "secret"}, **traced)
        waits = daemon.client("bob").ask  # its own connection, since it waits
        waiting = threading.Thread(
            target=lambda: waits("leases.claim", {"resources": ["port:1"], "wait_s": 20}, **traced)
        )
        waiting.start()
        eventually(lambda: daemon.client()("leases.waiting"))
        alice("leases.release", resources=["port:1"], epoch=held.json["epoch"])
        waiting.join()
        alice("work.fail", id="t", epoch=epoch, reason="secret")
        bob("leases.release", resources=["port:1"])
        received.wait(lambda: len(received.spans) >= 5)
        spans = {(one.name, attributes(one)["gen_ai.agent.name"]): one for one in received.spans
                 if attributes(one).get("dibs.resource") != "src/a.py"}  # fmt: skip
        task = spans["dibs.task", "alice"]
        [file] = [s for s in received.spans if attributes(s).get("dibs.resource") == "src/a.py"]
        assert (file.parent_span_id, file.trace_id) == (task.span_id, task.trace_id)
        assert (task.status.code, attributes(task)["error.type"]) == (2, "failed")
        wait, after = spans["dibs.wait", "bob"], spans["dibs.claim", "bob"]
        assert wait.trace_id == after.trace_id and wait.end_time_unix_nano
        assert wait.end_time_unix_nano == after.start_time_unix_nano
        for span in (task, wait, after, spans["dibs.claim", "alice"]):
            [link] = span.links
            assert (link.trace_id.hex(), link.span_id.hex()) == tuple(TRACE.split("-")[1:3])
            assert len(span.span_id) == 8 and len(span.trace_id) == 16
            assert span.end_time_unix_nano >= span.start_time_unix_nano > 10**18
        assert "secret" not in str(received.spans)
        about = {one.key: one.value.string_value for one in received.resources[0].attributes}
        assert about["service.name"] == "dibs"
        assert received.schemas == {SCHEMA}
        # The daemon counts them once the receiver has answered, which is after they have come.
        eventually(lambda: figures(daemon)["dibs_spans_sent_total"] == len(received.spans))
        assert figures(daemon)["dibs_spans_dropped_total"] == 0


def test_metrics_arrive_as_prometheus_has_them(shell: Shell, told) -> None:
    url, received = told
    with serving(shell.with_(OTEL_EXPORTER_OTLP_ENDPOINT=url, **SOON)) as daemon:
        daemon.client("alice")("leases.claim", resources=["port:1"])
        received.wait(lambda: "dibs.leases" in received.metrics and leases(received) == 1)
        names = {
            name.partition("{")[0].removesuffix("_total").replace("_", ".")
            for name in figures(daemon)
        }
        assert received.metrics.keys() == names
        calls = received.metrics["dibs.calls"].sum
        assert calls.is_monotonic and calls.aggregation_temporality == 2
        told = {
            tuple(attributes(point).items()): (point.as_int, point.start_time_unix_nano)
            for point in calls.data_points
        }
        number, start = told[("operation", "leases.claim"), ("status", "200")]
        assert number == 1 and 10**18 < start < time.time_ns()


def leases(received: Received) -> int:
    return int(received.metrics["dibs.leases"].gauge.data_points[0].as_int)


def test_a_restart_goes_on_where_the_last_daemon_was(shell: Shell, told) -> None:
    url, received = told
    variables = shell.with_(OTEL_METRICS_EXPORTER="none", **SOON)
    with serving(variables, "--otlp", url) as daemon:
        alice = daemon.client("alice")
        alice("leases.claim", resources=["port:1"])
        alice("leases.claim", resources=["port:2"])
        alice("leases.release", resources=["port:2"])
        received.wait(lambda: len(received.spans) == 1)
        eventually(lambda: figures(daemon)["dibs_spans_sent_total"] == 1)
        daemon.kill()
        shell.as_("bob").ok("claim", "port:3")  # while nobody sends
        shell.as_("bob").ok("release", "port:3")
        daemon.start()
        daemon.client("alice")("leases.release", resources=["port:1"])
        received.wait(lambda: len(received.spans) >= 3)
        time.sleep(0.5)
        resources = sorted(attributes(one)["dibs.resource"] for one in received.spans)
        assert resources == ["port:1", "port:2", "port:3"], "each once"
    assert not received.metrics


def test_a_receiver_that_is_gone_or_busy_gets_all_of_it_later(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with serving(shell.with_(OTEL_METRICS_EXPORTER="none", **SOON), "--otlp", url) as daemon:
        alice = daemon.client("alice")
        for number in range(3):
            alice("leases.claim", resources=[f"port:{number}"])
            alice("leases.release", resources=[f"port:{number}"])
        eventually(lambda: figures(daemon)["dibs_exports_failed_total"])
        with receiver(port) as (_, received):
            received.answers += [(503, {"Retry-After": "1"}, b""), (429, {}, b"")]
            received.wait(lambda: len(received.spans) == 3)
        assert figures(daemon)["dibs_spans_dropped_total"] == 0


def test_what_a_receiver_refuses_is_dropped_and_counted(shell: Shell, told) -> None:
    url, received = told
    with serving(shell.with_(OTEL_METRICS_EXPORTER="none", **SOON), "--otlp", url) as daemon:
        alice = daemon.client("alice")
        # One that is wrong for it, and one of which it says that it has taken one less.
        received.answers += [(400, {}, b"no"), (200, {}, b"\x0a\x02\x08\x01")]
        for number in range(2):
            alice("leases.claim", resources=["port:1"])
            alice("leases.release", resources=["port:1"])
            eventually(lambda n=number: figures(daemon)["dibs_spans_dropped_total"] == n + 1)
        received.answers.append((302, {"Location": f"{url}/elsewhere"}, b""))
        alice("leases.claim", resources=["port:1"])
        alice("leases.release", resources=["port:1"])
        eventually(lambda: figures(daemon)["dibs_spans_dropped_total"] == 3)
        assert figures(daemon)["dibs_spans_sent_total"] == 0 and not received.spans


def test_a_receiver_that_never_answers_keeps_nobody_waiting(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with serving(shell.with_(**SOON), "--otlp", url) as daemon:
            alice = daemon.client("alice")
            alice("leases.claim", resources=["port:1"])
            alice("leases.release", resources=["port:1"])
            time.sleep(0.5)
            before = time.monotonic()
            for _ in range(20):
                alice("leases.claim", resources=["port:1"])
            assert time.monotonic() - before < 5
            before = time.monotonic()
            ended = daemon.stop(signal.SIGTERM)
            assert ended.code == 0 and time.monotonic() - before < 5, ended


def test_the_trace_of_a_shell_and_of_a_tool_call_is_kept_with_the_claim(shell: Shell) -> None:
    shell.with_(TRACEPARENT=TRACE, DIBS_AGENT="alice").ok("claim", "port:1")
    shell.with_(TRACEPARENT="nonsense", DIBS_AGENT="alice").ok("claim", "port:2")
    with serving(shell) as daemon:
        remote = shell.with_(DIBS_URL=daemon.url, DIBS_TOKEN=daemon.token, TRACEPARENT=TRACE)
        remote.as_("bob").ok("claim", "port:3")
        events = daemon.client()("events.since", kind="lease.claimed")
        traces = {event["subject"]: event["data"].get("trace") for event in events}
    assert traces == {"port:1": TRACE, "port:2": None, "port:3": TRACE}


def test_a_daemon_that_nobody_asked_sends_nothing_and_loads_nothing(shell: Shell, told) -> None:
    url, received = told
    quiet = shell.with_(
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"{url}/v1/metrics",
        OTEL_METRICS_EXPORTER="otlp",
        CLAUDE_CODE_ENABLE_TELEMETRY="1",
        **SOON,
    )
    with serving(quiet) as daemon:  # the variables are an agent's, about itself
        daemon.client("alice")("leases.claim", resources=["port:1"])
        time.sleep(0.6)
        assert not any("spans" in name for name in figures(daemon))
    with serving(shell.with_(OTEL_SDK_DISABLED="true", **SOON), "--otlp", url) as daemon:
        daemon.client("alice")("leases.claim", resources=["port:2"])
        time.sleep(0.6)
    assert not received.headers
    script = (
        "import sys, dibs, dibs.surfaces.cli.main, dibs.surfaces.http.serve\n"
        "print([name for name in sys.modules if 'telemetry.sending' in name or 'exporting' in name"
        " or name.startswith('opentelemetry')])"
    )
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert loaded == "[]\n"


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "ftp://x"}, "OTLP/HTTP"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[x"}, "OTLP/HTTP"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:99999"}, "OTLP/HTTP"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x/ü"}, "OTLP/HTTP"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:secret@x"}, "no user or password"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "grpc",
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_BSP_SCHEDULE_DELAY": "-1"}, "whole"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_at_the_start(shell, variables, says) -> None:
    usual = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    answer = shell.with_(**usual | variables)("serve", "--port", "0")
    assert answer.code == 2 and says in answer.err and "secret" not in answer.err, answer


def test_headers_and_compression_are_those_of_the_variables(shell: Shell, told) -> None:
    url, received = told
    variables = {
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b,x=1",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "OTEL_SERVICE_NAME": "lab",
    }
    with serving(shell.with_(**SOON, **variables), "--otlp", f"{url}/"):
        received.wait(lambda: received.metrics)
    assert received.headers[0]["api-key"] == "a b"
    assert received.headers[0]["content-encoding"] == "gzip"


def test_names_are_those_of_the_pinned_conventions() -> None:
    assert Schemas.V1_44_0.value == SCHEMA
    assert gen_ai_attributes.GEN_AI_AGENT_NAME == "gen_ai.agent.name"
    assert session_attributes.SESSION_ID == "session.id"
    assert error_attributes.ERROR_TYPE == "error.type"
    assert service_attributes.SERVICE_NAME == "service.name"
    assert service_attributes.SERVICE_VERSION == "service.version"


def test_a_store_without_a_daemon_sends_a_period_at_once(shell: Shell, told) -> None:
    url, received = told
    alice = shell.as_("alice")
    for number in (1, 2):
        alice.ok("claim", f"port:{number}")
        alice.ok("release", f"port:{number}")
    seq = shell.json("events", "last")
    alice.ok("claim", "port:3")
    alice.ok("release", "port:3")
    answer = shell.ok("telemetry", "export", "--to", url)
    assert answer.out == f"sent 3 spans to {url}/v1/traces\n"
    assert shell.json("telemetry", "export", "--to", url, "--since", str(seq))["sent"] == 1
    ids = [one.span_id for one in received.spans]
    assert len(ids) == 4 and len(set(ids)) == 3, "the same span has the same id again"
    received.answers += [(400, {}, b"")]
    refused = shell("telemetry", "export", "--to", url)
    assert refused.code == 75 and "HTTP 400" in refused.err, refused
    assert shell("telemetry", "export").code == 2


ENDLESS = {
    "a header": (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "a promise": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "an end": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_an_answer_that_never_ends_is_cut_off(what: str) -> None:
    begins, again = ENDLESS[what]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            caller, _ = server.accept()
            with caller, contextlib.suppress(OSError):
                caller.recv(1 << 16)
                caller.sendall(begins)
                while True:
                    caller.sendall(again)
                    time.sleep(0.02)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/traces"
        began = time.monotonic()
        sent = Target(url, {}, 0.5, False, "").post(b"")
        assert 0.4 < time.monotonic() - began < 5
        thread.join(5)
        assert not thread.is_alive(), "the connection is closed"
    assert sent.again is not None and "no complete answer" in sent.why, sent


@pytest.mark.parametrize("wait", ["²", "-1", "1e9", "9" * 400, "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_any_retry_after_is_understood_or_ignored(told, wait: str) -> None:
    url, received = told
    received.answers += [(429, {"Retry-After": wait}, b"")]
    sent = Target(f"{url}/v1/traces", {}, 10, False, "").post(b"")
    assert sent.why == "HTTP 429" and sent.again is not None and sent.again >= 0
