"""Worktrees side by side: what a commit says of them, what overlaps, and merging in turn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dibs.surroundings.git import can_merge
from tests.surfaces.repository import Worker, hooked
from tests.surfaces.shell import Shell, finish, until


@pytest.fixture
def main(shell: Shell) -> Worker:
    return hooked(shell)


@pytest.fixture
def linked(main: Worker) -> Worker:
    """The same person in a linked worktree, on a branch of its own."""
    main.did("worktree", "add", "-q", "-b", "feature", "../linked")
    return main.at(main.folder.parent / "linked")


def setting(worker: Worker, text: str) -> None:
    (worker.folder / ".dibs/config.toml").write_text(text)


# Commits.


def test_a_lease_in_another_worktree_warns(main: Worker, linked: Worker) -> None:
    main.as_("alice").ok("claim", "src/a.py", "--note", "fix the parser")
    bob = linked.as_("bob")
    bob.stage("src/a.py", "a = 2\n")
    answer = bob.git("commit", "-q", "-m", "mine")
    assert answer.code == 0
    assert "others hold in another worktree" in answer.err
    said = r'src/a\.py  alice holds src/a\.py "fix the parser", \d+s so far, 29m left, in'
    assert re.search(f'{said} "{re.escape(str(main.folder))}"\n', answer.err)
    assert "dibs overlap" in answer.err


def test_it_blocks_where_that_was_asked_for(main: Worker, linked: Worker) -> None:
    main.as_("alice").ok("claim", "src/a.py")
    setting(main, 'worktrees = "block"\n')
    bob = linked.as_("bob")
    bob.stage("src/a.py", "a = 2\n")
    answer = bob.git("commit", "-q", "-m", "mine")
    assert answer.code == 1
    assert "src/a.py  alice holds src/a.py" in answer.err


def test_it_is_not_mentioned_where_that_was_asked_for(main: Worker, linked: Worker) -> None:
    main.as_("alice").ok("claim", "src/a.py")
    setting(main, 'worktrees = "off"\n')
    bob = linked.as_("bob")
    bob.stage("src/a.py", "a = 2\n")
    answer = bob.git("commit", "-q", "-m", "mine")
    assert (answer.code, answer.err) == (0, "")


def test_a_lease_in_the_same_worktree_stops_whatever_the_setting(
    main: Worker, linked: Worker
) -> None:
    linked.as_("alice").ok("claim", "src/a.py")
    setting(main, 'worktrees = "off"\n')
    bob = linked.as_("bob")
    bob.stage("src/a.py", "a = 2\n")
    assert bob.git("commit", "-q", "-m", "mine").code == 1


def test_who_edits_here_what_is_held_elsewhere_is_known_here(main: Worker, linked: Worker) -> None:
    """As hooks do, it has claimed the file for its own checkout."""
    main.as_("alice").ok("claim", "src/a.py")
    linked.as_("carol").ok("claim", "src/a.py", "--here")
    bob = linked.as_("bob")
    bob.stage("src/a.py", "a = 2\n")
    answer = bob.git("commit", "-q", "-m", "mine")
    assert answer.code == 1
    assert "carol holds" in answer.err


def test_each_worktree_has_its_own_index(main: Worker, linked: Worker) -> None:
    look = main.folder.parent / "look"
    look.write_text("#!/bin/sh\ndibs leases --json > ../seen; echo message > $1\n")
    look.chmod(0o755)
    for worker, name in ((main, "git:index"), (linked, "git:index:linked")):
        worker.stage("src/b.py", f"b = '{name}'\n")
        worker.with_(GIT_EDITOR=str(look)).did("commit", "-q")
        (lease,) = json.loads((main.folder.parent / "seen").read_text())
        assert (lease["resource"], lease["note"]) == (name, "git commit")
    assert main.json("leases") == []


# What overlaps.


def overlap(worker: Worker, *words: str) -> dict[str, str]:
    """The files of the one pair of worktrees, and how each would merge."""
    answer = worker("overlap", "--json", *words)
    found = answer.json
    assert len(found) <= 1
    files = {file["path"]: file["merge"] for pair in found for file in pair["files"]}
    assert answer.code == int("conflict" in files.values()), answer
    return files


def objects(worker: Worker) -> set[Path]:
    return set((worker.folder / ".git/objects").rglob("*"))


def test_nothing_overlaps_where_nothing_was_changed_twice(main: Worker, linked: Worker) -> None:
    main.write("src/a.py", "a = 2\n")
    linked.write("src/b.py", "b = 2\n")
    answer = main("overlap")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "no two worktrees change the same files\n"


@pytest.mark.parametrize("how", ["unstaged", "staged", "committed"])
def test_a_file_that_both_change_is_shown_however_far_they_are(
    main: Worker, linked: Worker, how: str
) -> None:
    for worker in (main, linked):
        worker.write("src/b.py", f"b = '{worker.folder.name}'\n")
        if how != "unstaged":
            worker.did("add", "src/b.py")
        if how == "committed":
            worker.did("commit", "-q", "-m", "change")
    before = objects(main), main.did("status", "--porcelain"), linked.did("status", "--porcelain")
    assert overlap(main) == {"src/b.py": "conflict"}
    assert overlap(linked) == {"src/b.py": "conflict"}
    now = objects(main), main.did("status", "--porcelain"), linked.did("status", "--porcelain")
    assert now == before


def test_changes_in_different_places_of_a_file_merge_cleanly(main: Worker, linked: Worker) -> None:
    lines = [f"line {number}\n" for number in range(30)]
    main.stage("src/long.py", "".join(lines))
    main.did("commit", "-q", "-m", "long")
    linked.did("merge", "-q", "master")
    main.write("src/long.py", "".join(["top\n", *lines]))
    linked.write("src/long.py", "".join([*lines, "bottom\n"]))
    assert overlap(main) == {"src/long.py": "clean"}
    linked.write("src/long.py", "".join(["other\n", *lines]))
    assert overlap(main) == {"src/long.py": "conflict"}


def test_what_neither_git_knows_yet_overlaps_too(main: Worker, linked: Worker) -> None:
    main.write("new.py", "1\n")
    linked.write("new.py", "2\n")
    assert overlap(main) == {"new.py": "conflict"}
    (main.folder / ".gitignore").write_text("new.py\n")
    assert overlap(main) == {}


def test_a_file_that_one_removes_and_the_other_changes_conflicts(
    main: Worker, linked: Worker
) -> None:
    main.did("rm", "-q", "src/b.py")
    linked.write("src/b.py", "b = 2\n")
    assert overlap(main) == {"src/b.py": "conflict"}


def test_only_the_named_paths_are_shown(main: Worker, linked: Worker) -> None:
    for worker in (main, linked):
        for path in ("src/a.py", "src/b.py", "docs/a.md"):
            worker.write(path, f"{worker.folder.name}\n")
    assert sorted(overlap(main)) == ["docs/a.md", "src/a.py", "src/b.py"]
    assert sorted(overlap(main, "src")) == ["src/a.py", "src/b.py"]
    assert sorted(overlap(main.at(main.folder / "src"), "a.py")) == ["src/a.py"]
    assert sorted(overlap(main, "**/*.md")) == ["docs/a.md"]


def test_it_is_said_who_holds_what_overlaps(main: Worker, linked: Worker) -> None:
    for worker in (main, linked):
        worker.write("src/b.py", f"{worker.folder.name}\n")
    linked.as_("alice").ok("claim", "src/b.py")
    answer = main("overlap")
    assert answer.code == 1
    assert answer.out == (
        f"master and feature  ({main.folder}, {linked.folder})\n"
        f'  src/b.py  conflict  alice holds src/b.py in "{linked.folder}"\n'
    )


def test_a_worktree_inside_another_is_not_a_part_of_it(main: Worker) -> None:
    main.did("worktree", "add", "-q", "-b", "inner", "trees/inner")
    main.did("worktree", "add", "-q", "-b", "other", "trees/other")
    inner = main.at(main.folder / "trees/inner")
    inner.write("src/b.py", "b = 'inner'\n")
    assert overlap(main) == {}
    main.write("src/b.py", "b = 'main'\n")
    assert overlap(main) == {"src/b.py": "conflict"}


def test_worktrees_before_the_first_commit_can_be_compared(main: Worker) -> None:
    main.did("worktree", "add", "-q", "--detach", "../bare-start")
    fresh = main.at(main.folder.parent / "bare-start")
    fresh.did("checkout", "-q", "--orphan", "fresh")
    fresh.write("src/b.py", "b = 'fresh'\n")
    assert overlap(main)["src/b.py"] == "conflict"


def test_a_repository_in_an_oddly_named_folder_can_be_compared(main: Worker) -> None:
    odd = main.folder.parent / 'a:b "c" \\d'
    main.did("clone", "-q", str(main.folder), str(odd))
    main = main.at(odd)
    main.did("worktree", "add", "-q", "-b", "side", "../e:f")
    for worker in (main, main.at(odd.parent / "e:f")):
        worker.write("src/b.py", f"b = '{worker.folder.name}'\n")
    assert overlap(main) == {"src/b.py": "conflict"}


def test_a_repository_with_one_worktree_has_nothing_to_compare(main: Worker) -> None:
    main.write("src/b.py", "b = 2\n")
    assert main.json("overlap") == []


def test_an_older_git_is_known_by_its_version() -> None:
    assert not can_merge("git version 2.37.9")
    assert can_merge("git version 2.38.0")
    assert can_merge("git version 2.39.5 (Apple Git-154)")
    assert can_merge("git version 3.0.rc1")


# Merging in turn.


def test_merges_of_all_worktrees_take_turns(main: Worker, linked: Worker) -> None:
    script = "echo in >> $0; sleep 0.2; echo out >> $0"
    turns = main.folder.parent / "turns"
    running = [
        worker.as_(f"agent{number}").start("merge", "--", "sh", "-c", script, str(turns))
        for number, worker in enumerate((main, linked, main))
    ]
    for process in running:
        answer = finish(process)
        assert answer.code == 0, answer
    assert turns.read_text().split() == ["in", "out"] * 3


def test_a_branch_is_merged(main: Worker, linked: Worker) -> None:
    linked.stage("src/b.py", "b = 2\n")
    linked.did("commit", "-q", "-m", "on feature")
    main.stage("src/a.py", "a = 2\n")
    main.did("commit", "-q", "-m", "on main")
    answer = main.as_("alice")("merge", "feature")
    assert answer.code == 0, answer
    assert (main.folder / "src/b.py").read_text() == "b = 2\n"
    assert main.json("leases") == []


def test_a_fast_forward_does_not_change_files_of_others(main: Worker, linked: Worker) -> None:
    linked.stage("src/b.py", "b = 2\n")
    linked.did("commit", "-q", "-m", "on feature")
    main.as_("alice").ok("claim", "src/b.py")
    assert main("merge", "feature").code == 1
    assert (main.folder / "src/b.py").read_text() != "b = 2\n"
    main.as_("alice").ok("release", "src/b.py")
    assert main("merge", "feature").code == 0


def test_a_merge_of_files_that_the_caller_holds_is_its_own(main: Worker, linked: Worker) -> None:
    linked.stage("src/b.py", "b = 2\n")
    linked.did("commit", "-q", "-m", "on feature")
    main.stage("src/a.py", "a = 2\n")
    main.did("commit", "-q", "-m", "on main")
    main.as_("alice").ok("claim", "src/b.py")
    refusal = main.as_("bob")("merge", "feature")
    assert refusal.code == 1
    assert "the merge would change src/b.py, which alice holds here" in refusal.err
    assert main.did("status", "--porcelain") == ""
    answer = main.as_("alice")("merge", "feature")
    assert answer.code == 0, answer


def test_a_merge_that_waits_in_vain_does_not_begin(main: Worker, linked: Worker) -> None:
    slow = main.as_("alice").start("merge", "--", "sleep", "1000")
    until(lambda: main.json("leases"), "the merge slot")
    answer = linked.as_("bob")("merge", "--wait", "100ms", "--", "touch", "ran")
    assert answer.code == 1
    assert "alice" in answer.err
    assert not (linked.folder / "ran").exists()
    slow.terminate()
    finish(slow)


def test_a_person_can_merge_in_turn_too(main: Worker) -> None:
    answer = main("merge", "--", "sh", "-c", "dibs leases --json; echo ${DIBS_SESSION-none}")
    assert answer.code == 0, answer
    leases, session = answer.out.splitlines()
    assert json.loads(leases)[0]["resource"] == "git:merge"
    assert session == "none"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name one branch, or a command after --"),
        (("a", "b"), "'b' is an extra word"),
        (("a", "--", "true"), "name one branch, or a command after --"),
        (("--",), "name one branch, or a command after --"),
        (("--wait",), "--wait needs a value"),
        (("--wiat", "1s", "a"), "did you mean --wait?"),
    ],
)
def test_a_merge_of_nothing_is_refused(main: Worker, words: tuple[str, ...], said: str) -> None:
    answer = main("merge", *words)
    assert answer.code == 2
    assert said in answer.err
