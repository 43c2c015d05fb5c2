"""`/mcp` of a daemon, as the real agent CLIs use it: each with a token of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from tests.clients.client import CLIENTS, run, start
from tests.clients.repository import add_daemon
from tests.clients.script import claim, mcp, say
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import Shell

pytestmark = pytest.mark.clients

# Copilot reads the server from the file of Claude Code, and no token from the environment.
WITH_TOKEN = [name for name in CLIENTS if name != "copilot"]
RING = [(WITH_TOKEN[i - 1], WITH_TOKEN[i]) for i in range(len(WITH_TOKEN))]


@pytest.fixture
def daemon(repository: Path, shell: Shell) -> Iterator[Daemon]:
    """A daemon that every client finds in the repository."""
    with serving(shell) as daemon:
        for name in WITH_TOKEN:
            add_daemon(name, repository, f"{daemon.url}/mcp")
        yield daemon
        ended = daemon.stop()
        assert (ended.code, ended.err) == (0, ""), ended


def token(daemon: Daemon, name: str) -> dict[str, str]:
    return {"DIBS_TOKEN": daemon.token_of(name)}


@pytest.mark.parametrize(("first", "second"), RING)
def test_a_second_client_is_told_who_holds_it_and_gets_it_afterwards(
    first: str, second: str, repository: Path, daemon: Daemon
) -> None:
    enough = Event()
    # Claude Code has no session that could end, so what it holds has to be released.
    release = [mcp("release", resource="a.py").when(enough.is_set)] if first == "claude" else []
    script = [claim("a.py", note="rename a"), *release, say().when(enough.is_set)]
    with start(first, repository, script, variables=token(daemon, first)) as holder:
        granted = holder.answer(0)
        assert granted["status"] == "claimed"
        again = claim("a.py", wait_s=60).when(lambda: holder.gone)
        with start(
            second, repository, [claim("a.py"), again, say()], variables=token(daemon, second)
        ) as other:
            busy = other.answer(0)
            assert (busy["status"], busy["held_by"]) == ("busy", first)
            assert busy["note"] == "rename a"
            enough.set()
            regained = other.answer(1)
            assert regained["status"] == "claimed", regained
            assert regained["epoch"] > granted["epoch"]
            other.finish()
        holder.finish()


def test_what_a_client_without_sessions_holds_outlives_it(
    repository: Path, daemon: Daemon, shell: Shell
) -> None:
    variables = token(daemon, "claude")
    held = run("claude", repository, [claim("a.py"), say()], variables)
    assert held.answer(0)["status"] == "claimed"
    assert shell.as_("bob")("claim", "a.py").code == 1
    script = [claim("a.py"), mcp("release", resource="a.py"), say()]
    again = run("claude", repository, script, variables)
    assert again.answer(0)["status"] == "already_claimed"
    assert again.answer(1)["status"] == "released"
    shell.as_("bob").ok("claim", "a.py")
