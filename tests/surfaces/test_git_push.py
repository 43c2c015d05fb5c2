"""What leaves a checkout, and what git itself changes in it."""

from __future__ import annotations

import json

import pytest

from dibs.names.paths import find_place
from dibs.surfaces.hooks import git_events
from tests.surfaces.repository import Worker, hooked
from tests.surfaces.shell import Shell


@pytest.fixture
def person(shell: Shell) -> Worker:
    worker = hooked(shell)
    worker.did("init", "-q", "--bare", "../remote.git")
    worker.did("remote", "add", "origin", "../remote.git")
    worker.did("push", "-q", "-u", "origin", "master")
    return worker


@pytest.fixture
def alice(person: Worker) -> Worker:
    return person.as_("alice")


@pytest.fixture
def bob(person: Worker) -> Worker:
    return person.as_("bob")


def pass_by(worker: Worker, path: str = "src/a.py") -> None:
    """Commit a file past the check."""
    worker.stage(path, f"by {worker.environment['DIBS_AGENT']}\n")
    worker.did("commit", "-q", "--no-verify", "-m", f"by {worker.environment['DIBS_AGENT']}")


# Before a push.


@pytest.mark.parametrize("branch", ["master", "new"])
def test_what_was_committed_under_the_lease_of_another_is_not_pushed(
    alice: Worker, bob: Worker, branch: str
) -> None:
    alice.ok("claim", "src/a.py", "--note", "fix the parser")
    pass_by(bob)
    answer = bob.git("push", "-q", "origin", f"HEAD:{branch}")
    assert answer.code == 1
    assert "committed while others held them:\n  src/a.py  alice holds src/a.py" in answer.err
    assert "--no-verify" not in answer.err
    alice.ok("release", "src/a.py")
    bob.did("push", "-q", "origin", f"HEAD:{branch}")


def test_a_person_is_told_and_may_decide(person: Worker, alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    pass_by(bob)
    answer = person.git("push", "-q")
    assert answer.code == 1
    assert "git push --no-verify" in answer.err
    person.did("push", "-q", "--no-verify")


def test_the_holders_own_commits_can_be_pushed_by_anybody(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    pass_by(alice)
    bob.did("push", "-q")


def test_what_was_committed_before_the_lease_can_be_pushed(alice: Worker, bob: Worker) -> None:
    pass_by(bob)
    alice.ok("claim", "src/a.py")
    bob.did("push", "-q")


def test_what_the_remote_has_already_is_not_looked_at(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    pass_by(bob)
    bob.did("push", "-q", "--no-verify")
    bob.stage("src/b.py", "b = 2\n")
    bob.did("commit", "-q", "-m", "mine")
    bob.did("push", "-q")
    bob.did("push", "-q", "origin", "HEAD:another")


def test_a_branch_can_be_removed_from_the_remote(alice: Worker, bob: Worker) -> None:
    bob.did("push", "-q", "origin", "HEAD:old")
    alice.ok("claim", "src/a.py")
    bob.did("push", "-q", "origin", ":old")


def test_a_push_of_nothing_is_let_through(bob: Worker) -> None:
    """A manager may hand on an empty line where git said nothing."""
    assert bob.sh("echo | dibs hook git pre-push origin ../remote.git").code == 0
    assert bob.sh("echo | dibs hook git post-rewrite rebase").code == 0
    assert not (bob.folder / ".dibs/hooks/failures.log").exists()


def test_commits_that_nobody_noted_can_be_pushed(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    (bob.folder / ".git/hooks/post-commit").unlink()
    pass_by(bob)
    bob.did("push", "-q")


def test_a_commit_that_was_rebased_is_still_by_who_made_it(alice: Worker, bob: Worker) -> None:
    bob.did("branch", "base")
    alice.ok("claim", "src/a.py")
    pass_by(alice)
    bob.did("checkout", "-q", "base")
    bob.stage("src/b.py", "b = 2\n")
    bob.did("commit", "-q", "-m", "mine")
    bob.did("rebase", "-q", "base", "master")
    assert bob.commits()[:2] == ["by alice", "mine"]
    bob.did("push", "-q", "-f")


def test_only_the_latest_commits_are_noted(bob: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    place = find_place(str(bob.folder), "")
    monkeypatch.setattr(git_events, "KEPT", 10)
    for number in range(200):
        git_events.note_made(place, [(f"{number:040x}", (number, number + 1))])
    noted = git_events.makers(place)
    assert 10 <= len(noted) <= 50
    assert noted[f"{199:040x}"] == (199, 200)


# What git itself changes.


def intrusions(worker: Worker) -> list[str]:
    lines = worker.ok("log", "--kind", "lease.intruded", "--json").out.splitlines()
    return [json.loads(line)["subject"] for line in lines]


def hash_of(worker: Worker, path: str) -> str:
    (lease,) = [one for one in worker.json("leases") if one["resource"] == path]
    found: str = lease["content_hash"]
    return found


@pytest.fixture
def feature(bob: Worker) -> None:
    """A branch on which src/b.py is another, and the main branch has gone on."""
    bob.did("checkout", "-q", "-b", "feature")
    bob.stage("src/b.py", "b = 2\n")
    bob.did("commit", "-q", "-m", "on feature")
    bob.did("checkout", "-q", "master")
    bob.stage("src/a.py", "a = 2\n")
    bob.did("commit", "-q", "-m", "on main")


@pytest.mark.usefixtures("feature")
@pytest.mark.parametrize(
    "command",
    [
        ("checkout", "-q", "feature"),
        ("checkout", "-q", "feature", "--", "src/b.py"),
        ("merge", "-q", "--no-edit", "feature"),
        ("rebase", "-q", "feature"),
    ],
)
def test_what_git_does_to_files_of_its_caller_is_its_callers_work(
    alice: Worker, bob: Worker, command: tuple[str, ...]
) -> None:
    alice.ok("claim", "docs/")  # so that bob is not alone
    bob.ok("claim", "src/b.py")
    before = hash_of(bob, "src/b.py")
    answer = bob.git(*command)
    assert (answer.code, answer.err) == (0, "")
    assert hash_of(bob, "src/b.py") != before
    assert intrusions(bob) == []
    assert bob.json("inbox") == []


@pytest.mark.usefixtures("feature")
@pytest.mark.parametrize("start", ["master", "master~"])  # not ahead of the branch: no merge commit
@pytest.mark.parametrize("how", ["checkout", "merge", "rebase"])
def test_what_git_does_to_files_of_others_is_reported_to_them(
    alice: Worker, bob: Worker, how: str, start: str
) -> None:
    """Even if their holder has no hooks, which would know its own work."""
    bob.did("checkout", "-q", "-b", "work", start)
    alice.ok("claim", "src/b.py")
    words = ("--no-verify", "--no-edit") if how == "merge" else ()
    answer = bob.git(how, "-q", *words, "feature")
    assert answer.code == 0
    assert '"src/b.py" is held by "alice"' in answer.err
    assert intrusions(bob) == ["src/b.py"]
    (message,) = alice.json("inbox")
    assert 'src/b.py, which you hold, was changed by bob ("git")' in message["body"]


@pytest.mark.usefixtures("feature")
def test_what_git_did_not_touch_may_be_its_holders_own_work(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/new.py")
    alice.write("src/new.py", "by alice\n")
    bob.did("checkout", "-q", "feature")
    bob.did("commit", "-q", "--amend", "-m", "again")
    assert intrusions(bob) == []


@pytest.mark.usefixtures("feature")
def test_a_person_who_switches_branches_leaves_no_session(person: Worker, alice: Worker) -> None:
    alice.ok("claim", "docs/")
    person.did("checkout", "-q", "feature")
    assert [who["agent"] for who in person.json("agents")] == ["alice", "bob"]


def test_a_new_worktree_begins_without_a_word(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/b.py")
    answer = bob.git("worktree", "add", "-q", "-b", "side", "../side")
    assert (answer.code, answer.err) == (0, "")
    assert intrusions(bob) == []


def test_an_intruder_is_named_when_the_commit_is_stopped(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    bob.stage("src/a.py", "a = 2\n")
    (lease,) = bob.json("leases")
    bob.ok("leases", "report", "src/a.py", "--was", lease["content_hash"], "--by", "bob")
    answer = bob.git("commit", "-m", "mine")
    assert answer.code == 1
    assert "left; changed under that lease by bob\n" in answer.err
