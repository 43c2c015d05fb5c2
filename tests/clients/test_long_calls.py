"""Calls that wait: the client stays with them, or gives up, and the server knows which."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

import pytest

from tests.clients.client import CLIENTS, run, start
from tests.clients.repository import write
from tests.clients.script import claim, mcp, say
from tests.surfaces.shell import Shell, until

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("name", CLIENTS)
def test_a_claim_that_queues_is_granted_on_release(
    name: str, connected: Path, shell: Shell
) -> None:
    shell.as_("bob").ok("claim", "a.py")
    with start(name, connected, [claim("a.py", wait_s=60), say()]) as client:
        shell.waits()
        shell.as_("bob").ok("release", "a.py")
        assert client.answer(0)["status"] == "claimed"
        client.finish()


def test_a_claim_that_the_client_gave_up_is_not_granted(connected: Path, shell: Shell) -> None:
    with (connected / ".codex/config.toml").open("a") as config:
        config.write("tool_timeout_sec = 2\n")
    shell.as_("bob").ok("claim", "a.py")
    looked = Event()
    script = [claim("a.py", wait_s=60), say().when(looked.is_set)]
    with start("codex", connected, script) as client:
        shell.waits()
        assert "timed out" in client.result(0)
        until(lambda: shell.json("leases", "waiting") == [], "an empty queue")
        shell.as_("bob").ok("release", "a.py")
        shell.as_("ann").ok("claim", "a.py")
        looked.set()
        client.finish()


def test_a_wait_beyond_the_patience_of_a_client_is_answered(connected: Path, shell: Shell) -> None:
    # OpenCode gives up a call that stays silent for this long; by default a minute.
    settings = json.loads((connected / "opencode.json").read_text())
    settings["mcp"]["dibs"]["timeout"] = 6_000
    write(connected / "opencode.json", settings)
    shell.as_("bob").ok("claim", "a.py")
    client = run("opencode", connected, [mcp("wait", resource="a.py", timeout_s=9), say()])
    assert client.answer(0)["status"] == "timeout"
