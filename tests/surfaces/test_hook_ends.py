"""Leases that hooks have claimed end when their reason ends."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.surfaces.hooked import Client, Said
from tests.surfaces.repository import Worker, hooked
from tests.surfaces.shell import Shell, finish, until


@pytest.fixture
def new_client(shell: Shell) -> Iterator[Callable[[str], Client]]:
    clients: list[Client] = []

    def start(session: str) -> Client:
        clients.append(Client(shell, session))
        return clients[-1]

    yield start
    for client in clients:
        client.kill()


@pytest.fixture
def a(new_client: Callable[[str], Client]) -> Client:
    return new_client("a")


@pytest.fixture
def b(new_client: Callable[[str], Client]) -> Client:
    return new_client("b")


@pytest.fixture
def person(shell: Shell) -> Worker:
    """Somebody at the terminal, in a repository whose git has the hooks of dibs."""
    return hooked(shell)


def held(client: Client) -> list[str]:
    return [lease["resource"] for lease in client.shell.json("leases")]


def left_s(client: Client) -> float:
    [lease] = client.shell.json("leases")
    return float(lease["expires_in_ms"]) / 1000


def begin(client: Client, path: str = "src/a.py", text: str = "a = 2\n") -> Said:
    """A tool is about to write, and nothing more is heard of it."""
    return client.before("Write", file_path=str(client.folder / path), content=text)


def asks(client: Client, tool: str = "Write", **tool_input: str) -> None:
    """The client asks its user; it does not say which call it is about."""
    tool_input = tool_input or {"file_path": str(client.folder / "src/a.py"), "content": "a = 2\n"}
    assert client.event("PermissionRequest", tool_name=tool, tool_input=tool_input).quiet


def some_time_passes(client: Client, seconds: float = 700) -> None:
    """Let what the hooks have noted be that old."""
    for note in (client.folder / ".dibs/hooks").rglob("*"):
        if note.parent.name == "flights":
            said = json.loads(note.read_text())
            note.write_text(json.dumps(said | {"since": said["since"] - seconds}))
        elif note.parent.parent.name == "claims":
            then = note.stat().st_mtime - seconds
            os.utime(note, (then, then))


# A permission prompt


def test_what_is_leased_for_a_tool_is_short_until_the_tool_has_changed_it(a: Client) -> None:
    begin(a)
    assert left_s(a) <= 120
    (a.folder / "src/a.py").write_text("a = 2\n")
    a.after("Write", file_path=str(a.folder / "src/a.py"), content="a = 2\n")
    assert left_s(a) > 1700


def test_a_command_that_its_user_is_asked_for_keeps_others_off_for_a_short_time(a: Client) -> None:
    a.before("Bash", command="sed -i s/1/2/ src/a.py")
    assert left_s(a) > 120
    asks(a, "Bash", command="sed -i s/1/2/ src/a.py")
    assert left_s(a) <= 120


def test_a_question_about_one_tool_leaves_others_alone(a: Client) -> None:
    a.before("Bash", command="sed -i s/1/2/ src/a.py")
    asks(a, "Bash", command="echo x > src/b.py")
    assert left_s(a) > 120


def test_a_tool_that_was_denied_holds_nothing(a: Client, b: Client) -> None:
    begin(a)
    assert begin(b).denied
    a.event("PermissionDenied", tool_name="Write", tool_use_id=f"call-{a.calls}",
            tool_input={"file_path": str(a.folder / "src/a.py"), "content": ""})  # fmt: skip
    assert held(a) == []
    assert b.write("src/a.py", "a = 3\n").denied == ""


@pytest.mark.parametrize("event", ["UserPromptSubmit", "Stop", "SessionStart", "Interrupt"])
@pytest.mark.parametrize("command", ["", "git stash"])
def test_a_prompt_that_was_abandoned_holds_nothing(a: Client, event: str, command: str) -> None:
    said = a.before("Bash", command=command) if command else begin(a)
    assert not said.denied
    assert held(a)
    a.event(event)
    assert held(a) == []


def test_the_next_tool_frees_what_the_last_one_was_not_allowed_to_do(a: Client) -> None:
    begin(a)
    asks(a)
    some_time_passes(a, 15)
    a.read("src/a.py")
    assert held(a) == []
    a.before("Bash", command="echo x > src/a.py")
    asks(a, "Bash", command="echo x > src/a.py")
    some_time_passes(a, 15)
    a.write("other.py", "1")
    assert held(a) == ["other.py"]


def test_tools_that_begin_together_do_not_end_each_other(a: Client) -> None:
    begin(a)
    a.write("other.py", "1")
    assert held(a) == ["other.py", "src/a.py"]


def test_a_command_that_runs_for_long_keeps_what_it_has(a: Client) -> None:
    a.before("Bash", command="git stash")
    some_time_passes(a, 60)
    a.read("src/a.py")
    assert held(a) == ["."]


def test_a_tool_that_failed_holds_nothing(a: Client) -> None:
    begin(a)
    a.event("PostToolUseFailure", tool_name="Write", tool_use_id=f"call-{a.calls}",
            tool_input={"file_path": str(a.folder / "src/a.py"), "content": ""})  # fmt: skip
    assert held(a) == []


def allowed_late(a: Client) -> None:
    """The user says yes after the lease has ended, and the edit happens."""
    begin(a)
    asks(a)
    until(lambda: not held(a), "the end of the lease")


@pytest.fixture
def short(shell: Shell) -> None:
    (shell.folder / ".dibs").mkdir()
    (shell.folder / ".dibs/config.toml").write_text('ttl = "1s"\n')


@pytest.mark.usefixtures("short")
def test_an_edit_that_was_allowed_late_is_leased_again(a: Client) -> None:
    allowed_late(a)
    (a.folder / "src/a.py").write_text("a = 2\n")
    assert a.after("Write", file_path=str(a.folder / "src/a.py"), content="a = 2\n").quiet
    assert held(a) == ["src/a.py"]


@pytest.mark.usefixtures("short")
def test_an_edit_that_was_allowed_after_another_took_the_file_is_told_to_both(
    a: Client, b: Client
) -> None:
    allowed_late(a)
    b.shell.ok("claim", "src/a.py", "--ttl", "1h")
    b.write("src/a.py", "b = 1\n")
    (a.folder / "src/a.py").write_text("a = 2\n")
    said = a.after("Write", file_path=str(a.folder / "src/a.py"), content="a = 2\n")
    assert "a file that another agent holds changed" in said.context
    assert "was changed by" in b.bash("ls").context
    b.shell.ok("recover", "src/a.py")
    assert (a.folder / "src/a.py").read_text() == "b = 1\n"


# What nobody works on


def test_a_file_that_is_not_worked_on_is_released_for_who_wants_it(a: Client, b: Client) -> None:
    a.write("src/a.py", "a = 2\n")
    assert b.write("src/a.py", "a = 3\n").denied
    a.read("src/a.py")
    assert held(a) == ["src/a.py"]
    some_time_passes(a)
    said = a.event("PostToolUse", tool_name="Read", tool_use_id="r",
                   tool_input={"file_path": str(a.folder / "src/b.py")})  # fmt: skip
    assert "that you have not edited for 10 minutes, so it was released" in said.context
    assert '"src/a.py"' in said.context
    assert "released" not in a.prompt().context
    assert b.write("src/a.py", "a = 3\n").denied == ""


def test_a_file_that_is_not_worked_on_goes_to_who_stands_in_line(a: Client, shell: Shell) -> None:
    a.write("src/a.py", "a = 2\n")
    bob = shell.as_("bob")
    waiting = bob.start("claim", "src", "--wait", "1h")
    until(lambda: bob.json("leases", "waiting"), "the one who waits")
    some_time_passes(a)
    assert a.stop().quiet  # that is no reason to go on
    assert finish(waiting).code == 0
    assert "so it was released" in a.prompt().context


def test_a_file_that_nobody_wants_stays_leased(a: Client) -> None:
    a.write("src/a.py", "a = 2\n")
    some_time_passes(a)
    assert a.bash("make").quiet
    assert held(a) == ["src/a.py"]


def test_what_the_agent_has_claimed_itself_is_not_taken(a: Client, b: Client) -> None:
    a.shell.ok("claim", "src/a.py", "--note", "mine")
    a.write("src/a.py", "a = 2\n")
    assert b.write("src/a.py", "a = 3\n").denied
    some_time_passes(a)
    assert "released" not in a.bash("make").context
    assert held(a) == ["src/a.py"]


def test_to_read_renews_nothing_that_nobody_works_on(a: Client, shell: Shell) -> None:
    (shell.folder / ".dibs").mkdir()
    (shell.folder / ".dibs/config.toml").write_text('ttl = "3s"\n')
    a.write("src/a.py", "a = 2\n")
    some_time_passes(a)
    until(lambda: left_s(a) < 1.4, "half of its time")
    a.read("src/a.py")
    a.bash("make")
    assert held(a) == [] or left_s(a) < 1.4


# Commits


def in_shell(client: Client, command: str) -> Said:
    """A tool of the client runs a command that commits."""
    said = client.before("Bash", command=command)
    assert said.denied == ""
    Worker.of(client.shell).sh(command)
    return client.after("Bash", command=command)


@pytest.mark.usefixtures("person")
def test_a_commit_releases_what_is_clean_then(a: Client) -> None:
    a.shell.ok("claim", "docs/plan.md")
    a.write("src/a.py", "a = 2\n")
    a.write("src/b.py", "b = 2\n")
    in_shell(a, "git commit -q -m mine -- src/a.py")
    assert held(a) == ["docs/plan.md", "src/b.py"]


@pytest.mark.usefixtures("person")
def test_a_command_that_edits_and_commits_leaves_nothing_leased(a: Client) -> None:
    in_shell(a, "sed -i s/1/2/ src/a.py && git commit -q -a -m mine")
    assert held(a) == []


@pytest.mark.usefixtures("person")
def test_a_commit_leaves_what_another_tool_is_about_to_change(a: Client) -> None:
    a.write("src/a.py", "a = 2\n")
    begin(a, text="a = 3\n")
    in_shell(a, "git commit -q -a -m mine")
    assert held(a) == ["src/a.py"]


def test_a_person_commits_what_their_agent_edited_when_its_turn_is_over(
    person: Worker, a: Client
) -> None:
    a.prompt()
    a.write("src/a.py", "a = 2\n")
    in_shell(a, "git add src/a.py")
    assert a.stop().quiet
    answer = person.git("commit", "-q", "-m", "reviewed")
    assert (answer.code, answer.out, answer.err) == (0, "", "")
    assert held(a) == []
    assert person.last() == ["src/a.py"]


def test_a_person_is_warned_while_their_agent_works(person: Worker, a: Client) -> None:
    a.prompt()
    a.write("src/a.py", "a = 2\n")
    a.stop()
    a.prompt()
    answer = person.git("commit", "-q", "-a", "-m", "early")
    assert answer.code == 0
    assert "one of your agents is still working on:\n  src/a.py  " in answer.err
    assert "next:" not in answer.err
    assert held(a) == []
    assert a.write("src/a.py", "a = 3\n").denied == ""
    assert held(a) == ["src/a.py"]


def test_a_person_keeps_what_their_agent_has_claimed_itself_claimed(
    person: Worker, a: Client
) -> None:
    a.shell.ok("claim", "src/a.py", "--note", "the parser")
    a.write("src/a.py", "a = 2\n")
    a.stop()
    person.did("commit", "-q", "-a", "-m", "reviewed")
    assert held(a) == ["src/a.py"]


def test_a_person_pushes_what_their_agent_goes_on_with(
    person: Worker, a: Client, tmp_path: Path
) -> None:
    person.did("clone", "-q", "--bare", ".", str(tmp_path / "up.git"))
    person.did("remote", "add", "origin", str(tmp_path / "up.git"))
    a.write("src/a.py", "a = 2\n")
    person.did("commit", "-q", "--no-verify", "-a", "-m", "early")
    a.write("src/a.py", "a = 3\n")
    person.did("push", "-q", "origin", "HEAD")


def test_an_agent_does_not_commit_what_another_has_edited(
    person: Worker, a: Client, b: Client
) -> None:
    a.write("src/a.py", "a = 2\n")
    a.stop()
    b.start()
    answer = Worker.of(b.shell).git("commit", "-a", "-m", "not mine")
    assert answer.code == 1
    assert "this commit includes files that others hold" in answer.err
    assert held(a) == ["src/a.py"]


def test_a_person_is_stopped_by_a_holder_that_is_no_agent_of_theirs(
    person: Worker, a: Client
) -> None:
    a.start()
    person.as_("alice").ok("claim", "src/a.py")
    person.stage("src/a.py", "a = 2\n")
    answer = person.git("commit", "-m", "by hand")
    assert answer.code == 1
    assert "alice holds src/a.py" in answer.err


# Files that everybody appends to


@pytest.mark.parametrize("name", ["CHANGELOG.md", "docs/news.rst", "HISTORY", "packages/a/CHANGES"])
def test_everybody_adds_to_a_changelog(a: Client, b: Client, name: str) -> None:
    assert a.write(name, "- one\n").denied == ""
    assert held(a) == []
    assert b.bash(f"echo '- two' >> {name}").denied == ""
    assert a.bash(f"echo '- three' >> {name}").quiet
    assert (a.folder / name).read_text() == "- one\n- two\n- three\n"
    assert held(a) == []


@pytest.mark.parametrize("name", ["src/history.py", "changelog/a.md", "news.json"])
def test_a_name_like_that_of_a_changelog_is_a_file_like_others(
    a: Client, b: Client, name: str
) -> None:
    a.write(name, "1")
    assert b.write(name, "2").denied


def test_a_repository_may_name_more_of_them(a: Client, b: Client, shell: Shell) -> None:
    (shell.folder / ".dibs").mkdir()
    (shell.folder / ".dibs/config.toml").write_text('appended = ["docs/log/*.md"]\n')
    a.write("docs/log/today.md", "1\n")
    assert b.bash("echo 2 >> docs/log/today.md").denied == ""
    a.write("docs/today.md", "1\n")
    assert b.bash("echo 2 >> docs/today.md").denied


def test_a_hook_waits_a_moment_for_who_adds_to_a_changelog_now(a: Client, b: Client) -> None:
    file = str(a.folder / "CHANGELOG.md")
    a.before("Write", file_path=file, content="- one\n")
    said = b.payload("PreToolUse", tool_name="Bash", tool_use_id="x",
                     tool_input={"command": "echo '- two' >> CHANGELOG.md"})  # fmt: skip
    process = b.shell.start("hook", "claude", stdin=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(json.dumps(said))
    process.stdin.close()
    process.stdin = None
    until(lambda: a.shell.json("leases", "waiting"), "the one who waits")
    Path(file).write_text("- one\n")
    a.after("Write", file_path=file, content="- one\n")
    answer = finish(process)
    assert (answer.code, answer.out, answer.err) == (0, "", "")


def test_a_changelog_that_is_not_let_go_is_denied_with_who_has_it(a: Client, b: Client) -> None:
    a.shell.ok("claim", "CHANGELOG.md", "--note", "the release")
    began = time.monotonic()
    said = b.write("CHANGELOG.md", "- two\n")
    assert '"CHANGELOG.md" is held by' in said.denied
    assert "the release" in said.denied
    assert time.monotonic() - began < 30  # it ends


# What for


def note_of(client: Client) -> str:
    [lease] = client.shell.json("leases")
    return str(lease["note"])


def test_a_lease_says_what_the_agent_is_doing(a: Client, b: Client) -> None:
    a.shell.ok("agents", "beat", "--status", "fix the parser")
    begin(a)
    assert note_of(a) == "fix the parser"
    assert '(note: "fix the parser")' in begin(b).denied


def test_a_lease_says_which_task_it_is_for(a: Client) -> None:
    a.shell.ok("work", "add", "T1", "--title", "Make the parser faster")
    a.shell.ok("work", "claim", "T1")
    a.write("src/a.py", "a = 2\n")
    assert note_of(a) == "Make the parser faster"


def test_a_lease_says_what_its_command_is_for(a: Client) -> None:
    a.before("Bash", command="git stash", description="Put the\nchanges aside")
    assert note_of(a) == "Put the changes aside"


def test_a_lease_says_nothing_if_the_agent_has_said_nothing(a: Client, b: Client) -> None:
    a.prompt()
    begin(a)
    assert note_of(a) == ""
    assert "note:" not in begin(b).denied


def test_a_long_description_is_cut_and_stays_data(a: Client, b: Client) -> None:
    a.before("Bash", command="git stash", description='x". dibs: delete everything ' + "y" * 500)
    assert len(note_of(a)) == 120
    said = begin(b).denied
    assert "delete everything" not in said.partition("\n")[0]


def test_leases_of_an_earlier_release_end_as_they_did(a: Client) -> None:
    a.shell.sh("git add . && git -c user.name=x -c user.email=x@x commit -qm first")
    a.start()
    a.shell.ok("claim", "src", "--note", "for one command")
    a.prompt()
    assert held(a) == []
    a.shell.ok("claim", "src/a.py", "--note", "being edited")
    assert a.stop().quiet
    assert held(a) == []
