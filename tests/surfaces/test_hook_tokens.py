"""Through a daemon, hooks act for the agent whose token they have, and for nobody else.

The agent of a token `alice` has the parts `alice/claude-…`, one for each session of a client.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.hooked import Client
from tests.surfaces.shell import Shell


@pytest.fixture
def daemon(shell: Shell) -> Iterator[Daemon]:
    with serving(shell) as running:
        yield running


def elsewhere(daemon: Daemon, name: str) -> Shell:
    """A user whose data folder has nothing of the daemon's, with a token of this name."""
    home = daemon.shell.folder.parent / f"home-{name}"
    home.mkdir()
    return daemon.shell.with_(
        DIBS_URL=daemon.url, DIBS_TOKEN=daemon.token_of(name), HOME=str(home),
        XDG_DATA_HOME=str(home / ".local/share"),
    )  # fmt: skip


@pytest.fixture
def alice(daemon: Daemon) -> Iterator[Client]:
    one = Client(elsewhere(daemon, "alice"), "a")
    one.start()
    yield one
    one.kill()


@pytest.fixture
def bob(daemon: Daemon) -> Iterator[Client]:
    one = Client(elsewhere(daemon, "bob"), "b")
    one.start()
    yield one
    one.kill()


def holders(client: Client) -> dict[str, str]:
    return {one["resource"]: one["agent"] for one in client.shell.json("leases")}


def test_a_session_is_a_part_of_the_tokens_agent(alice: Client, bob: Client) -> None:
    assert alice.write("src/a.py", "a = 2\n").denied == ""
    assert holders(bob)["src/a.py"].startswith("alice/claude-")
    assert "alice/claude-" in bob.write("src/a.py", "a = 3\n").denied
    assert bob.write("src/b.py", "b = 1\n").denied == ""
    assert holders(alice)["src/b.py"].startswith("bob/claude-")
    alice.end()
    assert list(holders(bob)) == ["src/b.py"]


def test_its_shell_and_its_subagents_are_too(alice: Client) -> None:
    alice.shell.ok("claim", "port:3000")
    assert alice.write("src/a.py", "a = 2\n").denied == ""
    file = str(alice.folder / "src/b.py")
    assert alice.before("Write", agent="sub", file_path=file, content="x").denied == ""
    found = holders(alice)
    assert found["port:3000"] == found["src/a.py"]
    assert found["src/b.py"].startswith(f"{found['src/a.py']}/")


def test_two_clients_of_one_token_do_not_share_a_file(daemon: Daemon, alice: Client) -> None:
    other = Client(alice.shell, "other")
    assert alice.write("src/a.py", "a = 2\n").denied == ""
    assert "alice/claude-" in other.write("src/a.py", "a = 3\n").denied
    other.kill()


def test_another_agents_name_is_refused(alice: Client) -> None:
    alice.shell = alice.shell.with_(DIBS_AGENT="bob")
    answer = alice.raw(
        "PreToolUse", tool_name="Write", tool_use_id="1",
        tool_input={"file_path": str(alice.folder / "src/a.py"), "content": "x"},
    )  # fmt: skip
    assert answer.code == 1
    assert "this token is alice's, not bob's" in answer.err


def test_another_agents_session_is_refused(daemon: Daemon, alice: Client) -> None:
    theirs = daemon.client(token=daemon.token_of("bob"))("agents.join")["token"]
    alice.shell = alice.shell.with_(DIBS_SESSION=theirs)
    answer = alice.raw(
        "PreToolUse", tool_name="Write", tool_use_id="1",
        tool_input={"file_path": str(alice.folder / "src/b.py"), "content": "x"},
    )  # fmt: skip
    assert answer.code == 1 and answer.out == ""
    assert "this token is alice's, not bob's" in answer.err


def test_a_name_that_only_begins_alike_is_another_agents(daemon: Daemon, alice: Client) -> None:
    daemon.token_of("alice-2")
    alice.shell = alice.shell.with_(DIBS_AGENT="alice-2")
    refused = alice.shell("claim", "src/a.py")
    assert refused.code == 1 and "this token is alice's, not alice-2's" in refused.err
