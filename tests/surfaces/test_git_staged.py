"""Who staged what: as the hooks of shell tools see it, and what a commit makes of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dibs.names.paths import Place, find_place
from dibs.surfaces.hooks.notes import Stagings
from tests.surfaces.repository import Worker, hooked
from tests.surfaces.shell import BIN, Shell


@pytest.fixture
def person(shell: Shell) -> Worker:
    return hooked(shell)


class Client:
    """An agent in Claude Code, whose hooks are called around each shell tool.

    part: the subagent of it that acts; its commands are told the session of the whole
    """

    def __init__(self, worker: Worker, name: str, part: str = "") -> None:
        # One process is one client, whichever session it is in; what it does here does not matter.
        self.process = worker.spawn(["sleep", "1000"])
        self.worker = worker.with_(
            DIBS_AGENT=name,
            CLAUDE_CODE_SESSION_ID=f"session-{name}",
            CLAUDE_PID=str(self.process.pid),
        )
        self.name = name
        self.part = part
        self.place: Place = find_place(str(worker.folder), "")
        with self.tool("make"):
            pass

    def hook(self, event: str, command: str) -> None:
        payload = {
            "session_id": f"session-{self.name}",
            "cwd": str(self.worker.folder),
            "hook_event_name": event,
            "tool_name": "Bash",
            "tool_use_id": f"call-{self.name}-{self.part}-{command}",
            "tool_input": {"command": command},
            "tool_response": {"stdout": "", "stderr": ""},
        }
        if self.part:
            payload |= {"agent_id": self.part, "agent_type": "general"}
        process = self.worker.start("hook", "claude", stdin=subprocess.PIPE)
        out, err = process.communicate(json.dumps(payload), timeout=30)
        assert (process.returncode, err) == (0, "")
        assert "deny" not in out

    @contextmanager
    def tool(self, command: str) -> Iterator[Worker]:
        """While a shell tool runs."""
        self.hook("PreToolUse", command)
        yield self.worker
        self.hook("PostToolUse", command)

    def stages(self, path: str) -> None:
        with self.tool(f"git add {path}") as shell:
            shell.stage(path, f"by {self.name}\n")

    def known(self) -> dict[str, list[str]]:
        return {
            path: sorted(sessions.values())
            for path, (_, sessions) in Stagings(self.place).known().items()
        }


@pytest.fixture
def client(person: Worker) -> Iterator[Callable[..., Client]]:
    """Starts clients in the person's repository, and ends them."""
    started: list[Client] = []

    def start(name: str, part: str = "") -> Client:
        started.append(Client(person, name, part))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def alice(client: Callable[..., Client]) -> Client:
    return client("alice")


@pytest.fixture
def bob(client: Callable[..., Client]) -> Client:
    return client("bob")


def test_a_commit_does_not_take_in_what_another_has_staged(alice: Client, bob: Client) -> None:
    alice.stages("src/a.py")
    bob.stages("src/b.py")
    assert bob.known() == {"src/a.py": ["alice"], "src/b.py": ["bob"]}
    answer = bob.worker.git("commit", "-m", "mine")
    assert answer.code == 1
    assert "others have staged:\n  src/a.py  staged by alice\n" in answer.err
    assert "src/b.py" not in answer.err
    bob.worker.did("commit", "-q", "-m", "mine", "--", "src/b.py")
    assert bob.worker.last() == ["src/b.py"]
    alice.worker.did("commit", "-q", "-m", "mine")
    assert alice.worker.last() == ["src/a.py"]
    assert alice.known() == {}


def test_what_a_client_edits_is_committed_by_it_and_by_nobody_else(
    alice: Client, bob: Client
) -> None:
    with alice.tool("echo a = 2 > src/a.py") as shell:
        shell.write("src/a.py", "a = 2\n")
    answer = bob.worker.git("commit", "-a", "-m", "swept in")
    assert answer.code == 1
    assert "src/a.py  alice holds src/a.py" in answer.err
    alice.worker.did("commit", "-q", "-a", "-m", "mine")


def test_the_name_of_a_file_cannot_write_to_the_terminal(alice: Client, bob: Client) -> None:
    alice.stages("src/\x1b[2Ja.py")
    answer = bob.worker.git("commit", "-m", "mine")
    assert answer.code == 1
    assert '  "src/\\u{1b}[2Ja.py"  staged by alice\n' in answer.err
    assert "\x1b" not in answer.err


def test_a_person_is_told_what_their_agent_has_staged_and_goes_on(
    person: Worker, alice: Client
) -> None:
    alice.stages("src/a.py")
    answer = person.git("commit", "-q", "-m", "by hand")
    assert answer.code == 0
    assert "still working on:\n  src/a.py  staged by alice\n" in answer.err


def test_what_a_person_staged_is_nobodys(person: Worker, alice: Client, bob: Client) -> None:
    person.stage("src/a.py", "by hand\n")
    bob.stages("src/b.py")
    assert bob.known() == {"src/a.py": [], "src/b.py": ["bob"]}
    bob.worker.did("commit", "-q", "-m", "all")


def test_a_tool_that_only_reads_has_staged_nothing(person: Worker, alice: Client) -> None:
    alice.stages("src/b.py")
    person.stage("src/a.py", "by hand\n")
    Stagings(alice.place).look()  # as after a tool that left no note
    assert alice.known() == {"src/a.py": [], "src/b.py": ["alice"]}


def test_whoever_stages_a_path_again_has_staged_it(
    person: Worker, alice: Client, bob: Client
) -> None:
    alice.stages("src/a.py")
    bob.stages("src/a.py")
    assert bob.known() == {"src/a.py": ["bob"]}
    person.stage("src/a.py", "by hand\n")
    alice.worker.did("commit", "-q", "-m", "what is staged now is of neither")


def test_a_session_that_is_over_has_nothing_staged(alice: Client, bob: Client) -> None:
    alice.stages("src/a.py")
    alice.worker.ok("agents", "leave")
    bob.worker.did("commit", "-q", "-m", "all")


def test_of_two_tools_at_once_it_may_have_been_either(
    person: Worker, alice: Client, bob: Client
) -> None:
    with alice.tool("git commit"), bob.tool("git add -A"):
        person.stage("src/a.py", "by one of them\n")
    assert bob.known() == {"src/a.py": ["alice", "bob"]}
    answer = person.as_("carol").git("commit", "-m", "swept in")
    assert answer.code == 1
    assert "src/a.py  staged by alice or bob" in answer.err
    alice.worker.did("commit", "-q", "-m", "mine")


def test_a_tool_beside_a_git_command_is_not_suspected(alice: Client, bob: Client) -> None:
    with alice.tool("pytest -q"):
        bob.stages("src/b.py")
    assert bob.known() == {"src/b.py": ["bob"]}


def test_what_was_staged_while_a_tool_runs_is_seen_by_the_next(alice: Client, bob: Client) -> None:
    with alice.tool("git add src && sleep 60") as shell:
        shell.stage("src/a.py", "by alice\n")
        with bob.tool("make"):
            assert bob.known() == {"src/a.py": ["alice"]}


def test_a_deletion_and_a_mode_are_staged_too(alice: Client, bob: Client) -> None:
    with alice.tool("git rm src/b.py; chmod +x src/a.py; git add src") as shell:
        shell.did("rm", "-q", "src/b.py")
        os.chmod(shell.folder / "src/a.py", 0o755)
        shell.did("add", "src")
    assert bob.known() == {"src/a.py": ["alice"], "src/b.py": ["alice"]}
    assert bob.worker.git("commit", "-m", "mine").code == 1


def test_tools_that_leave_the_index_alone_run_no_git(alice: Client) -> None:
    alice.stages("src/a.py")
    alice.worker = alice.worker.with_(PATH=str(BIN))
    assert not (BIN / "git").exists()
    with alice.tool("make"):
        pass
    assert alice.known() == {"src/a.py": ["alice"]}


def test_notes_that_cannot_be_read_stop_nobody(alice: Client, bob: Client) -> None:
    alice.stages("src/a.py")
    for file in (alice.worker.folder / ".dibs/hooks/staged").rglob("staged"):
        file.write_text("{")
    assert bob.known() == {}
    bob.worker.did("commit", "-q", "-m", "all")


# Which part of an agent runs git.


def lease_of(part: Client, path: str) -> str:
    """Have a part of an agent hold a file, as its edit tool would; its name."""
    with part.tool(f"echo edited > {path}") as shell:
        shell.write(path, "edited\n")
    (lease,) = [one for one in part.worker.json("leases") if one["resource"] == path]
    name: str = lease["agent"]
    assert name.startswith("alice/")
    return name


def test_a_subagent_commits_what_it_holds_although_git_is_told_its_parent(
    alice: Client, client: Callable[..., Client]
) -> None:
    part = client("alice", "one")
    name = lease_of(part, "src/a.py")
    alice.worker.stage("src/a.py", "by a part of alice\n")
    answer = alice.worker.git("commit", "-m", "by alice herself")
    assert answer.code == 1
    assert f"{name} holds src/a.py" in answer.err
    with part.tool("git commit -m mine"):
        alice.worker.did("commit", "-q", "-m", "by the part")


def test_two_subagents_do_not_pass_for_each_other(client: Callable[..., Client]) -> None:
    one, other = (client("alice", part) for part in ("one", "other"))
    name = lease_of(one, "src/a.py")
    with other.tool("git add -A && git commit"):
        other.worker.stage("src/a.py", "by the other\n")
        answer = other.worker.git("commit", "-m", "by the other")
    assert answer.code == 1
    assert f"{name} holds src/a.py" in answer.err
