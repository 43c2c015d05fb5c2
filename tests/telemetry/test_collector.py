"""A real OpenTelemetry collector takes what a daemon sends: `make collector` builds it first."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.surfaces.conftest import new_shell
from tests.surfaces.daemon import serving
from tests.surfaces.shell import Shell, until

pytestmark = pytest.mark.collector

COLLECTOR = Path(__file__).resolve().parents[2] / ".collector/otelcol"
CONFIG = """\
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}
exporters:
  debug: {{verbosity: detailed}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [debug]}}
    metrics: {{receivers: [otlp], exporters: [debug]}}
"""
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return new_shell(tmp_path)


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a collector, and the file of what it has taken."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    config, log = tmp_path / "config.yaml", tmp_path / "log"
    config.write_text(CONFIG.format(port=port))
    with log.open("wb") as output:
        words = [str(COLLECTOR), "--config", str(config)]
        process = subprocess.Popen(words, stdout=output, stderr=output)
    try:
        until(lambda: "Everything is ready" in log.read_text(), "the collector")
        yield f"http://127.0.0.1:{port}", log
    finally:
        process.terminate()
        process.wait(30)


def test_spans_and_metrics_are_taken(shell: Shell, collector: tuple[str, Path]) -> None:
    url, log = collector
    soon = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "300"}
    with serving(shell.with_(**soon), "--otlp", url) as daemon:
        alice = shell.with_(DIBS_AGENT="alice", TRACEPARENT=TRACE)
        alice.ok("work", "claim", "t", "--lease", "src/a.py")
        alice.ok("work", "complete", "t")
        until(lambda: "dibs.task.attempt" in log.read_text(), "the task's span")
        until(lambda: "-> Name: dibs.tasks" in log.read_text(), "the metrics")
        text = daemon.client().request("GET", "/metrics").body.decode()
    time.sleep(0.2)
    told = log.read_text()
    names = re.findall(r"^    Name +: (\S+)$", told, re.MULTILINE)
    assert sorted(names) == ["dibs.claim", "dibs.task"], told
    assert told.count(f"-> Trace ID: {TRACE.split('-')[1]}") == 2, "both are linked"
    measured = {name.split(" ")[2] for name in text.splitlines() if name.startswith("# TYPE")}
    assert {name.removesuffix("_total").replace("_", ".") for name in measured} == set(
        re.findall(r"^     -> Name: (dibs\.\S+)$", told, re.MULTILINE)
    )
    assert not re.search(r"\terror\t", told), told
