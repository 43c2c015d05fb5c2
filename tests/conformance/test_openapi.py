"""Schemathesis holds a daemon to its own OpenAPI document, and finds nothing.

It makes calls that the document allows and calls that it forbids, and checks every answer: its
status, its type, its schema, whether what is wrong is refused, whether a token is asked for.

One check is left out, `positive_data_acceptance`: that whatever the document allows is done. A
schema cannot say that a task exists or that a lease is held, so a good call may well be refused.

Operations that wait are tested apart, with a document that lets them wait for a moment only, and
requires them to say so. They get no wrong calls there, since a longer wait would count as one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import Answer, Shell, finish

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(420)]

TOOLS = Path(__file__).resolve().parents[2] / ".conformance/python"
PATIENCE_S = 400
OPTIONS = (
    "--exclude-checks=positive_data_acceptance --max-examples=20 --seed=1 "
    "--generation-database=none --report=json --report-json-path=report.json --no-color"
).split()
MOMENT_S = 0.2
CALLS = re.compile(r'^dibs_calls_total\{operation="(?P<name>\S+)",status="(?P<status>\d+)"\}')

Document = dict[str, Any]
Check = Callable[..., Answer]


@pytest.fixture
def daemon(shell: Shell) -> Iterator[Daemon]:
    with serving(shell) as daemon:
        yield daemon
        ended = daemon.stop()
        assert (ended.code, ended.err) == (0, ""), ended


@pytest.fixture
def document(daemon: Daemon) -> Document:
    found: Document = daemon.client().request("GET", "/openapi.json").json
    return found


@pytest.fixture
def check(daemon: Daemon, tmp_path: Path) -> Check:
    """Run schemathesis on that daemon, as its owner: anybody else is refused too much."""
    # The compiled modules that came with it are good; the shell's own place for them is empty.
    shell = daemon.shell.with_(PYTHONPATH=str(TOOLS)).at(tmp_path)

    def check(*words: str) -> Answer:
        command = [sys.executable, "-m", "schemathesis.cli", "run", *words, *OPTIONS]
        token = f"Authorization: Bearer {daemon.token}"
        return finish(shell.spawn([*command, "--url", daemon.url, "-H", token]), PATIENCE_S)

    return check


@pytest.fixture
def report(tmp_path: Path, record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Tell the summary how much was tested: of these operations, all."""

    def report(which: str, operations: int) -> None:
        found = json.loads((tmp_path / "report.json").read_text())
        assert found["operations"]["tested"] == operations, found
        calls = found["test_cases"]["generated"]
        record_property("part", f"schemathesis {metadata.version('schemathesis')}, {which}")
        record_property("figures", f"{calls:,} calls of {operations} operations, no failure")

    return report


def body(operation: Document) -> Document:
    found: Document = operation["post"]["requestBody"]["content"]["application/json"]["schema"]
    return found


def waiting(document: Document) -> list[str]:
    """The paths of the operations that can wait."""
    paths = document["paths"].items()
    return [path for path, operation in paths if "wait_s" in body(operation)["properties"]]


def assert_answered(daemon: Daemon) -> None:
    """That calls got past the door: whatever is turned away there passes every check."""
    metrics = daemon.client().request("GET", "/metrics")
    assert metrics.status == 200, f"it has revoked its own token: {metrics}"
    statuses: dict[str, set[str]] = {}
    for found in map(CALLS.match, metrics.body.decode().splitlines()):
        if found:
            statuses.setdefault(found["name"], set()).add(found["status"])
    assert not {name for name, seen in statuses.items() if "429" in seen}
    turned_away = {name for name, seen in statuses.items() if seen <= {"401", "403", "405", "415"}}
    assert statuses and not turned_away


def test_every_operation_is_as_its_document_says(
    daemon: Daemon, document: Document, check: Check, report: Callable[..., None]
) -> None:
    apart = waiting(document)
    words = [word for path in apart for word in ("--exclude-path", path)]
    answer = check(f"{daemon.url}/openapi.json", *words)
    assert answer.code == 0, answer
    assert_answered(daemon)
    report("calls right and wrong", len(document["paths"]) - len(apart))


def test_operations_that_wait_are_as_their_document_says(
    daemon: Daemon, document: Document, check: Check, report: Callable[..., None], tmp_path: Path
) -> None:
    paths = {path: document["paths"][path] for path in waiting(document)}
    for operation in paths.values():
        schema = body(operation)
        schema["properties"]["wait_s"]["maximum"] = MOMENT_S
        schema["required"] = [*schema.get("required", []), "wait_s"]
    (tmp_path / "waits.json").write_text(json.dumps({**document, "paths": paths}))
    answer = check("waits.json", "--mode=positive")
    assert answer.code == 0, answer
    assert_answered(daemon)
    report("calls that wait", len(paths))


def test_a_document_that_lies_is_found_out(
    document: Document, check: Check, tmp_path: Path
) -> None:
    path = "/v1/events/last"
    told = document["paths"][path]
    told["post"]["responses"]["200"]["content"]["application/json"]["schema"] = {"type": "string"}
    (tmp_path / "lie.json").write_text(json.dumps({**document, "paths": {path: told}}))
    answer = check("lie.json", "--mode=positive")
    assert answer.code == 1, answer
    assert "Response violates schema" in answer.out, answer
