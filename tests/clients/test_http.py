"""`/mcp` of a daemon, as the real agent CLIs use it: each with a token of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from tests.clients.client import CLIENTS, run, start
from tests.clients.repository import add_daemon
from tests.clients.script import claim, mcp, say
from tests.clients.test_mcp import RING
from tests.surfaces.daemon import serving
from tests.surfaces.shell import Shell

pytestmark = pytest.mark.clients


@pytest.fixture
def served(repository: Path, shell: Shell) -> Iterator[Path]:
    """A repository in which every client finds the daemon, under its own name."""
    with serving(shell) as daemon:
        for name in CLIENTS:
            add_daemon(name, repository, f"{daemon.url}/mcp", daemon.token_of(name))
        yield repository
        ended = daemon.stop()
        assert (ended.code, ended.err) == (0, ""), ended


@pytest.mark.parametrize(("first", "second"), RING)
def test_a_second_client_is_told_who_holds_it_and_gets_it_afterwards(
    first: str, second: str, served: Path
) -> None:
    enough = Event()
    done = say().when(enough.is_set)
    # Claude Code has no session that could end, so what it holds has to be released.
    end = [mcp("release", resource="a.py").when(enough.is_set), say()]
    script = [claim("a.py", note="rename a"), *(end if first == "claude" else [done])]
    with start(first, served, script) as holder:
        granted = holder.answer(0)
        assert granted["status"] == "claimed"
        again = claim("a.py", wait_s=60).when(lambda: holder.gone)
        with start(second, served, [claim("a.py"), again, say()]) as other:
            busy = other.answer(0)
            assert (busy["status"], busy["held_by"]) == ("busy", first)
            assert busy["note"] == "rename a"
            enough.set()
            regained = other.answer(1)
            assert regained["status"] == "claimed", regained
            assert regained["epoch"] > granted["epoch"]
            other.finish()
        holder.finish()


def test_what_a_client_without_sessions_holds_outlives_it(served: Path, shell: Shell) -> None:
    assert run("claude", served, [claim("a.py"), say()]).answer(0)["status"] == "claimed"
    assert shell.as_("bob")("claim", "a.py").code == 1
    again = run("claude", served, [claim("a.py"), mcp("release", resource="a.py"), say()])
    assert again.answer(0)["status"] == "already_claimed"
    assert again.answer(1)["status"] == "released"
    shell.as_("bob").ok("claim", "a.py")
