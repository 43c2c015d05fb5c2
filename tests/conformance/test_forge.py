"""What `dibs work sync` asks of GitHub is what GitHub's own description allows.

Prism serves that description: it answers with the shapes in it and refuses requests that are not in
it. It does not look into the body of a PATCH, so its names are looked up here.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs.errors import InvalidError
from dibs.trackers.hosts import GitHub
from tests.conformance.tools import PACKAGES, PATIENCE_S, package
from tests.surfaces.shell import finish

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]  # to read it all takes Prism long

PRISM = "@stoplight/prism-cli"
DESCRIPTION = PACKAGES / "@octokit/openapi/generated/api.github.com.json"
ISSUE = "/repos/{owner}/{repo}/issues/{issue_number}"


@pytest.fixture(scope="module")
def prism(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = PACKAGES / PRISM / package(PRISM)["bin"]["prism"]
    command = [PACKAGES / "node/bin/node", script, "mock", "--errors", "-p", str(port), DESCRIPTION]
    log = tmp_path_factory.mktemp("prism") / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, text=True
        )
        try:
            listens(process, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            finish(process)


def listens(process: subprocess.Popen[str], port: int, log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(log.read_text()[-2000:])


class Recorded(GitHub):
    sent: list[dict[str, Any]]

    def send(self, here: str, body: dict[str, Any]) -> None:
        self.sent.append(body)
        super().send(here, body)


def test_every_request_of_a_sync_is_allowed(
    prism: str, record_property: Callable[[str, object], None]
) -> None:
    record_property("part", f"GitHub's description {package('@octokit/openapi')['version']}")
    tracker = Recorded("octocat/Hello-World", prism, "x", 1)
    tracker.sent = []
    assert list(tracker.listed("2026-01-01T00:00:00Z")) == []  # the example is a pull request
    (record,) = tracker.forge.pages(f"{tracker.top}/issues", **tracker.query)
    issue = tracker.issue(record)
    assert issue.id == "github:octocat/Hello-World#1347"
    closed = {"state": "cancelled", "title": "t", "labels": ["bug"], "assignee": "octocat"}
    tracker.push(issue, closed, "done", "<!-- dibs:1 -->")
    tracker.push(issue, {"state": "open", "assignee": ""}, "", "")
    described = json.loads(DESCRIPTION.read_text())["paths"][ISSUE]["patch"]["requestBody"]
    allowed = described["content"]["application/json"]["schema"]["properties"]
    for body in tracker.sent:
        assert body.keys() <= allowed.keys()
        assert body["state"] in allowed["state"]["enum"]
        assert body.get("state_reason") in [None, *allowed["state_reason"]["enum"]]


def test_a_request_that_is_not_in_the_description_is_refused(prism: str) -> None:
    """Else the test above would show nothing."""
    tracker = GitHub("octocat/Hello-World", prism, "x", 1)
    here = f"{tracker.top}/issues"
    with pytest.raises(InvalidError):
        tracker.forge.get(here, state="opened")
    with pytest.raises(InvalidError):
        tracker.forge.send("POST", f"{here}/1347/comments", {"text": "no body"})
