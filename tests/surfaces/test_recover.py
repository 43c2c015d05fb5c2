"""What was overwritten or removed comes back: nothing that an agent wrote is ever lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs.surfaces.hooks import contents
from tests.surfaces.hooked import Client
from tests.surfaces.repository import Worker
from tests.surfaces.shell import Shell


@pytest.fixture
def repository(shell: Shell) -> Worker:
    """A repository of two commits, with some files."""
    person = Worker.of(shell)
    for number in range(2):
        for name in ("src/a.py", "src/b.py", "docs/c.md"):
            person.write(name, f"{name} {number}\n")
        person.did("add", "-A")
        person.did("commit", "-q", "-m", f"commit {number}")
    return person


@pytest.fixture
def clients(repository: Worker) -> Iterator[list[Client]]:
    found = [Client(repository, name) for name in "ab"]
    yield found
    for client in found:
        client.kill()


@pytest.fixture
def a(clients: list[Client]) -> Client:
    return clients[0]


@pytest.fixture
def b(clients: list[Client]) -> Client:
    return clients[1]


def name_of(client: Client) -> str:
    name: str = client.shell.json("agents", "beat")["agent"]
    return name


def written(a: Client) -> dict[str, bytes]:
    """What an agent has in its files after some work: changed, new, staged and by a script."""
    a.write("src/a.py", "changed\n")
    a.write("new/é 1.txt", "new\n")
    a.bash("python3 -c \"open('src/b'+'.py','wb').write(bytes(range(256)))\"")
    a.bash("python3 -c \"import os; os.symlink('b.py', 'src/link')\"")
    names = ("src/a.py", "new/é 1.txt", "src/b.py")
    return {name: (a.folder / name).read_bytes() for name in names}


def brought_back(client: Client, mine: dict[str, bytes], agent: str) -> dict[str, Any]:
    """All of it by one command, to the byte."""
    said: dict[str, Any] = client.shell.json("recover", "--agent", agent, "--since", "10m")
    for name, content in mine.items():
        assert (client.folder / name).read_bytes() == content, said
    return said


@pytest.mark.parametrize(
    "command",
    [
        "git checkout . && git clean -fd",
        "git reset --hard HEAD~1 && git clean -fd",
        "git add -A && git reset --hard",
        "git stash -u && git stash drop",
        "rm -rf src new docs",
        "git clean -fdx && git restore .",
        "mv src/a.py src/b.py && rm -r new && git checkout HEAD~1 -- src",
    ],
)
def test_what_an_agent_destroys_itself_comes_back(a: Client, command: str) -> None:
    mine, me = written(a), name_of(a)
    said = a.bash(command).context
    assert said == "" or "(.dibs) was deleted" in said
    assert any(not (a.folder / name).exists() for name in mine)
    brought_back(a, mine, me)
    assert os.readlink(a.folder / "src/link") == "b.py"


def test_what_a_script_destroys_while_another_works_comes_back(a: Client, b: Client) -> None:
    b.start()
    mine = written(a)
    me = name_of(a)
    a.end()
    (a.folder / "reset").write_text("git checkout -q . ; git clean -qfd new")
    b.bash("sh ./reset")
    assert not (a.folder / "new").exists()
    said = b.shell.ok("recover").out
    assert "lost by" in said
    assert "sh ./reset" in said
    brought_back(b, mine, me)


def test_what_was_staged_and_then_changed_comes_back(a: Client) -> None:
    a.bash("printf one > src/a.py; git add src/a.py; printf two > src/a.py")
    a.bash("git reset --hard")
    found = a.shell.json("recover", "src/a.py", "--list")
    shown = [a.shell.ok("recover", "src/a.py", "--to", one["content_hash"], "--show").out
             for one in found if a.shell("recover", "src/a.py", "--dry-run", "--to",
                                         one["content_hash"]).code == 0]  # fmt: skip
    assert {"one", "two"} <= {*shown}
    a.shell.ok("recover", "src/a.py")
    assert (a.folder / "src/a.py").read_text() == "two"


def test_files_of_a_worktree_that_is_gone_are_put_elsewhere(
    a: Client, repository: Worker, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    repository.did("worktree", "add", "-q", str(linked))
    there = a.at(linked)
    there.write("src/a.py", "there\n")
    there.write("new.txt", "new\n")
    a.bash(f"git worktree remove --force {linked}")
    assert not linked.exists()
    me = name_of(a)
    skipped = a.shell("recover", "--agent", me, "--json").json
    assert skipped["recovered"] == []
    assert "--into DIR" in skipped["skipped"][0]["why"]
    refusal = a.shell("recover", str(linked / "new.txt"))
    assert (refusal.code, "is gone" in refusal.err) == (2, True)
    a.shell.ok("recover", "--agent", me, "--into", "back")
    assert (a.folder / "back/src/a.py").read_text() == "there\n"
    assert (a.folder / "back/new.txt").read_text() == "new\n"
    repository.did("worktree", "add", "-q", "-f", str(linked), "linked")
    a.shell.ok("recover", "--agent", me)
    assert (linked / "src/a.py").read_text() == "there\n"


def test_what_was_committed_or_worked_on_since_stays(a: Client, b: Client) -> None:
    b.start()
    a.write("src/a.py", "lost\n")
    a.write("src/b.py", "committed\n")
    a.write("docs/c.md", "lost too\n")
    me = name_of(a)
    a.bash("git commit -qm b src/b.py")
    a.bash("git checkout . ; git checkout -q HEAD~1")
    a.end()
    b.write("src/a.py", "b is here\n")
    plan = b.shell.json("recover", "--agent", me, "--dry-run")
    assert (a.folder / "docs/c.md").read_text() != "lost too\n"
    said = b.shell.json("recover", "--agent", me)
    assert said == plan
    assert [one["file"] for one in said["recovered"]] == [str(a.folder / "docs/c.md")]
    [skipped] = said["skipped"]
    assert f"{name_of(b)} has changed it since" in skipped["why"]
    assert (a.folder / "src/a.py").read_text() == "b is here\n"
    assert (a.folder / "src/b.py").read_text() == "src/b.py 1\n"


def test_what_another_holds_is_not_overwritten(a: Client, b: Client) -> None:
    b.start()
    a.write("src/a.py", "mine\n")
    me = name_of(a)
    a.bash("git checkout src/a.py")
    a.end()
    b.shell.ok("claim", "src/a.py")
    before = (a.folder / "src/a.py").read_text()
    person = a.shell.with_(CLAUDECODE="", CLAUDE_CODE_SESSION_ID="", CLAUDE_PID="")
    refusal = person("recover", "--agent", me)
    assert refusal.code == 1
    assert "is held by" in refusal.err
    assert (a.folder / "src/a.py").read_text() == before
    assert b.shell("recover", "--agent", me).code == 0
    assert (a.folder / "src/a.py").read_text() == "mine\n"
    # It can be undone.
    [now] = [
        one for one in b.shell.json("recover", "src/a.py", "--list") if one["agent"] == "recover"
    ]
    b.shell.ok("recover", "src/a.py", "--to", now["content_hash"])
    assert (a.folder / "src/a.py").read_text() == before


def test_stashes_and_branches_that_are_dropped_are_listed(a: Client) -> None:
    a.bash("git checkout -qb side; echo 1 > side.txt; git add .; git commit -qm side")
    a.bash("git checkout -q -")
    side = a.shell.sh("git rev-parse side").out.strip()
    a.bash("git branch -D side")
    a.bash("echo 2 > src/a.py; git stash -q")
    stash = a.shell.sh("git rev-parse stash@{0}").out.strip()
    a.bash("git stash drop")
    found = {one["commit"]: one["was"] for one in a.shell.json("recover")["commits"]}
    assert found[side] == "refs/heads/side"
    assert found[stash].startswith("WIP on")
    assert side in a.shell.ok("recover").out


def test_what_is_too_large_to_keep_is_said(a: Client) -> None:
    with open(a.folder / "large.bin", "wb") as file:
        file.truncate(5 << 20)
    a.write("small.txt", "small\n")
    a.bash("git clean -fd")
    said = a.shell.json("recover")
    assert "4 MiB" in said["not_kept"][str(a.folder / "large.bin")]
    assert "large.bin" in a.shell.ok("recover").err


def test_a_file_that_nobody_touched_since_is_not_read_again(a: Client) -> None:
    file = a.folder / "new.txt"
    file.write_text("new\n")
    os.utime(file, (1, 1))
    a.bash("git stash list; git branch x")
    # Nobody but the file itself could tell: the same size and time, another content.
    file.write_text("old\n")
    os.utime(file, (1, 1))
    a.bash("git branch y")
    kept = {one["content_hash"] for one in a.shell.json("recover")["contents"]}
    assert len(kept) == 1


def test_a_command_that_took_nothing_away_leaves_nothing_to_list(a: Client) -> None:
    a.write("src/a.py", "mine\n")
    a.bash("git stash list; git branch x")
    assert [one for one in a.shell.json("recover")["contents"] if one["by"]] == []
    assert a.shell("recover", "--agent", name_of(a)).code == 1


def test_an_edit_of_a_holder_while_another_works_is_no_loss(a: Client, b: Client) -> None:
    b.start()
    a.write("src/a.py", "one\n")
    b.before("Bash", command="make test")
    a.write("src/a.py", "two\n")
    b.after("Bash", command="make test")
    assert a.shell("recover", "--agent", name_of(a)).code == 1
    assert (a.folder / "src/a.py").read_text() == "two\n"


def test_a_repository_that_is_removed_as_a_whole_comes_back(a: Client, tmp_path: Path) -> None:
    mine = written(a)
    me = name_of(a)
    a.before("Bash", command=f"rm -rf {a.folder}")
    a.shell.sh(f"rm -rf {a.folder}/src {a.folder}/new {a.folder}/docs {a.folder}/.dibs")
    brought_back(a, mine, me)


def test_settings_of_a_repository_run_nothing(a: Client, tmp_path: Path) -> None:
    script, ran = tmp_path / "evil", tmp_path / "ran"
    script.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    script.chmod(0o755)
    for setting in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "diff.external"):
        a.shell.sh(f"git config {setting} {script}")
    (a.folder / ".gitattributes").write_text("* filter=evil\n")
    a.write("src/a.py", "mine\n")
    a.before("Bash", command="git reset --hard")
    a.after("Bash", command="git reset --hard")
    a.shell.ok("recover")
    assert not ran.exists()


def test_without_a_folder_of_the_users_own_contents_lie_beside_the_store(a: Client) -> None:
    Path(a.shell.environment["HOME"], ".local/share/dibs").mkdir(parents=True)
    Path(a.shell.environment["HOME"], ".local/share/dibs/kept").write_text("in the way")
    a.write("src/a.py", "mine\n")
    a.bash("git checkout src/a.py")
    assert (a.folder / ".dibs/kept/contents").is_dir()
    a.shell.ok("recover", "src/a.py")
    assert (a.folder / "src/a.py").read_text() == "mine\n"


def test_what_is_not_used_for_longest_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(contents, "TOTAL_LIMIT", 2500)
    store = contents.Contents(str(tmp_path / ".dibs"))
    file = tmp_path / "a.py"
    names = []
    for number in range(4):
        file.write_bytes(bytes([number]) * 1000)
        names.append(str(store.keep(str(file), "alice")))
        kept = store.own.file(contents.kept(names[-1]))
        os.utime(kept, (number, number))
    stranger = Path(store.own.file("kept/contents/stranger"))
    stranger.write_bytes(b"x" * 5000)
    store.prune()
    assert [store.has(name) for name in names] == [False, False, True, True]
    assert [one.content_hash for one in store.versions(str(file))] == [names[3], names[2]]
    assert list(store.files()) == [str(file)]
    assert stranger.exists()
