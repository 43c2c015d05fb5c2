"""What `dibs land` says to whoever reads it: what happened, and what to do next."""

from __future__ import annotations

import os
from pathlib import Path

from tests.landing.world import World


def test_a_branch_without_a_commit_of_its_own_does_not_complete_a_task(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.git("branch", "empty", "main")
    alice = made.dibs.as_("alice")
    alice.ok("work", "claim", "fix")
    answer = alice("land", "empty", "--task", "fix")
    assert answer.code == 1, answer
    assert "empty has no commit that main does not have, so fix stays yours" in answer.err
    assert "commit your work and land it again" in answer.err
    assert made.dibs.json("work", "show", "fix")["state"] == "claimed"
    assert made.landings() == {}
    # What a landing has brought there may be asked for again.
    made.commit("empty", {"one.txt": "1\n"})
    assert alice("land", "empty").code == 0
    assert alice("land", "empty", "--task", "fix").code == 0
    assert made.dibs.json("work", "show", "fix")["state"] == "completed"


def test_what_is_on_the_target_already_is_not_called_landed_now(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.git("branch", "empty", "main")
    answer = made.land("empty")
    assert "empty was already on main" in answer.err and "landed" not in answer.err


def test_who_names_no_other_branch_is_told_to(tmp_path: Path) -> None:
    made = World(tmp_path)
    for words in ((), ("main",)):
        answer = made.land(*words, code=2)
        assert "main cannot be landed onto itself" in answer.err
        assert "dibs land BRANCH" in answer.err


def test_a_repository_without_a_commit_is_called_so(tmp_path: Path) -> None:
    made = World(tmp_path)
    new = tmp_path / "new"
    made.git("init", "-q", "-b", "main", str(new))
    answer = made.dibs.at(new)("land")
    assert answer.code == 2 and "main has no commit yet" in answer.err, answer


def test_what_is_under_way_in_the_checkout_is_named(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.commit("one", {"one.txt": "x\n"})
    made.commit("clash", {"a.txt": "theirs\n"})
    made.commit("main", {"a.txt": "ours\n"})
    made.repository.run("merge", "clash")
    answer = made.land("one", code=75)
    assert "a merge is in progress there" in answer.err and "finish or abort it" in answer.err
    made.git("merge", "--abort")
    lock = made.path / ".git/index.lock"
    lock.touch()
    answer = made.land("--run", code=75)
    assert f"{lock} exists" in answer.err and "remove that file if no git is running" in answer.err
    os.unlink(lock)
    made.land("--run")


def test_a_command_that_prints_without_end_is_ended(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.commit("one", {"one.txt": "x\n"})
    answer = made.land("one", "--verify", "yes", code=1)
    assert "it was stopped because it printed more than 64 MiB" in answer.err
    assert made.landings()["one"]["state"] == "dead"


def test_a_tag_of_the_same_name_is_not_the_target(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.git("tag", "main")
    made.commit("one", {"one.txt": "x\n"}, start="refs/heads/main")
    made.git("tag", "one")
    made.git("checkout", "-q", "one", "--")
    answer = made.land()
    assert "one is on main" in answer.err, answer
    assert "one.txt" in made.files("refs/heads/main")
