"""The worktree of a worker: what is kept, what is copied, and what gets in the way."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from dibs.errors import UnavailableError
from dibs.names.paths import Place, find_place
from dibs.swarm.worktree import (
    KEPT,
    WORK,
    Worktree,
    by_slot,
    drop_landed,
    include,
    left_of,
    own_commit,
)
from tests.surfaces.shell import Shell
from tests.swarm.conftest import git


@pytest.fixture
def place(shell: Shell) -> Place:
    return find_place(str(shell.folder), str(shell.folder.parent / "user"))


@pytest.fixture
def worktree(place: Place) -> Worktree:
    return Worktree(place, 1)


def head(place: Place) -> str:
    return git(place.root, "rev-parse", "HEAD")


def begun(worktree: Worktree, place: Place, name: str = "t-1") -> Path:
    assert worktree.ready(head(place)) is None
    worktree.begin(f"{WORK}/{name}")
    return Path(worktree.path)


def test_one_attempt_after_the_other_has_the_same_folder_and_the_newest_files(
    worktree: Worktree, place: Place
) -> None:
    folder = begun(worktree, place)
    (folder / "b.txt").write_text("b\n")
    worktree.commit("b")
    assert worktree.free() is None
    (Path(place.root) / "c.txt").write_text("c\n")
    git(place.root, "add", ".")
    git(place.root, "commit", "-qm", "c")
    assert begun(worktree, place, "t-2") == folder
    assert sorted(one.name for one in folder.glob("*.txt")) == ["a.txt", "c.txt"]
    assert git(folder, "symbolic-ref", "--short", "HEAD") == f"{WORK}/t-2"
    assert git(place.root, "show", f"{WORK}/t-1:b.txt") == "b"


def test_what_was_not_committed_is_kept_on_a_branch_of_its_own(
    worktree: Worktree, place: Place
) -> None:
    folder = begun(worktree, place)
    (folder / "a.txt").write_text("changed\n")
    (folder / "new").mkdir()
    (folder / "new/file").write_text("new\n")
    git(folder, "add", "new/file")
    (folder / ".env").write_text("ignored\n")
    # As another process finds it, after this one was killed.
    branch = Worktree(place, 1).free()
    assert branch == f"{KEPT}/t-1"
    assert git(place.root, "show", f"{branch}:a.txt") == "changed"
    assert git(place.root, "show", f"{branch}:new/file") == "new"
    assert git(place.root, "rev-parse", f"{branch}^") == head(place)
    assert ".env" not in git(place.root, "ls-tree", "-r", "--name-only", branch)
    assert git(folder, "status", "--porcelain") == ""
    assert Worktree(place, 1).free() is None


def test_work_on_a_detached_head_and_with_stale_locks_is_kept_too(
    worktree: Worktree, place: Place
) -> None:
    folder = begun(worktree, place)
    git(folder, "checkout", "-q", "--detach")
    (folder / "a.txt").write_text("changed\n")
    git_dir = git(folder, "rev-parse", "--absolute-git-dir")
    for name in ("index.lock", "HEAD.lock"):
        Path(git_dir, name).write_text("")
    branch = worktree.free()
    assert branch == f"{KEPT}/w1"
    assert git(place.root, "show", f"{branch}:a.txt") == "changed"
    assert begun(worktree, place, "t-2") == folder


def test_a_conflict_in_the_middle_of_a_merge_is_kept(worktree: Worktree, place: Place) -> None:
    folder = begun(worktree, place)
    (folder / "a.txt").write_text("mine\n")
    worktree.commit("mine")
    git(folder, "checkout", "-q", "-b", "other", head(place))
    (folder / "a.txt").write_text("theirs\n")
    git(folder, "commit", "-qam", "theirs")
    subprocess.run(["git", "merge", f"{WORK}/t-1"], cwd=folder, capture_output=True, check=False)
    branch = worktree.free()
    assert branch is not None
    assert "<<<<<<<" in git(place.root, "show", f"{branch}:a.txt")
    assert begun(worktree, place, "t-2") == folder


def test_a_reset_that_was_cut_short_keeps_nothing(worktree: Worktree, place: Place) -> None:
    folder = begun(worktree, place)
    worktree.free()
    (folder / "a.txt").write_text("half of another commit\n")
    (folder / "rest").write_text("")
    assert begun(worktree, place, "t-2") == folder
    assert git(folder, "status", "--porcelain") == ""
    assert KEPT not in git(place.root, "branch", "--list", "--all")


@pytest.mark.parametrize("died", [False, True])
def test_the_branch_of_an_attempt_without_a_commit_goes_with_it(
    worktree: Worktree, place: Place, died: bool
) -> None:
    folder = begun(worktree, place)
    (folder / "b.txt").write_text("b\n")
    found = Worktree(place, 1).ready(head(place)) if died else worktree.free()
    assert found == f"{KEPT}/t-1"
    assert git(place.root, "branch", "--list", f"{WORK}/*") == ""
    begun(worktree, place, "t-2")
    (folder / "c.txt").write_text("c\n")
    worktree.commit("c")
    assert worktree.has_committed()
    assert worktree.free() is None
    assert git(place.root, "branch", "--list", f"{WORK}/*").strip() == f"{WORK}/t-2"


def test_a_worktree_that_was_half_made_is_made_again(worktree: Worktree, place: Place) -> None:
    folder = Path(worktree.path)
    folder.mkdir(parents=True, mode=0o700)
    os.chmod(folder.parent.parent, 0o700)
    (folder / ".git").write_text("gitdir: /nowhere\n")
    (folder / "junk").write_text("")
    assert begun(worktree, place) == folder
    assert not (folder / "junk").exists()


def test_a_repository_within_is_left_alone_and_the_next_attempt_goes_elsewhere(
    worktree: Worktree, place: Place
) -> None:
    folder = begun(worktree, place)
    git(folder, "init", "-q", "inner")
    (folder / "inner/precious").write_text("1\n")
    assert not worktree.remove()
    assert (folder / "inner/precious").exists()
    other = Worktree(place, 1)
    assert other.ready(head(place)) == f"{KEPT}/t-1"
    assert os.path.basename(other.path) == "w1.2"
    assert other.free() is None and other.remove()
    assert {slot: [one.path for one in found] for slot, found in by_slot(place).items()} == {
        1: [str(folder)]
    }


def test_a_repository_within_that_was_committed_is_left_alone_too(
    worktree: Worktree, place: Place
) -> None:
    folder = begun(worktree, place)
    git(folder, "init", "-q", "inner")
    who = ("-c", "user.name=x", "-c", "user.email=x@x")
    git(folder / "inner", *who, "commit", "-q", "--allow-empty", "-m", "precious")
    git(folder, "add", "inner")
    git(folder, "commit", "-q", "-m", "inner")
    git(place.root, "merge", "-q", "--no-ff", f"{WORK}/t-1")
    drop_landed(place.root, "HEAD")
    assert not worktree.remove()
    assert Worktree(place, 1).ready(head(place)) is None
    assert git(folder / "inner", "log", "--format=%s") == "precious"


def test_only_a_commit_of_this_attempt_counts_as_one(worktree: Worktree, place: Place) -> None:
    folder = begun(worktree, place)
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    assert worktree.has_committed()
    worktree.free()
    worktree.ready(head(place))
    worktree.begin(f"{WORK}/t-2")
    git(folder, "merge", "-q", "--ff-only", f"{WORK}/t-1")
    assert not worktree.has_committed()


def test_a_clean_worktree_is_removed(worktree: Worktree, place: Place) -> None:
    folder = begun(worktree, place)
    (folder / "cache").mkdir()
    (folder / "cache/x").write_text("ignored by git\n")
    assert worktree.remove()
    assert not folder.exists()
    assert str(folder) not in git(place.root, "worktree", "list")
    assert worktree.remove()


def test_worktrees_that_others_add_meanwhile_do_not_matter(place: Place, tmp_path: Path) -> None:
    wrong: list[str] = []
    over = threading.Event()

    def add_and_remove(name: str) -> None:
        path = str(tmp_path / name / "w1")  # the same last name as ours
        while not over.is_set():
            words = ["git", "worktree", "add", "-q", "--detach", path]
            subprocess.run(words, cwd=place.root, capture_output=True, check=False)
            words = ["git", "worktree", "remove", "--force", path]
            subprocess.run(words, cwd=place.root, capture_output=True, check=False)

    others = [threading.Thread(target=add_and_remove, args=(f"other{n}",)) for n in range(2)]
    for other in others:
        other.start()
    try:
        for number in range(1, 6):
            try:
                begun(Worktree(place, number), place, f"t-{number}")
            except UnavailableError as error:
                wrong.append(error.message)
    finally:
        over.set()
        for other in others:
            other.join()
    assert not wrong


def test_a_folder_that_cannot_be_written_is_named(worktree: Worktree, place: Place) -> None:
    begun(worktree, place)
    worktree.remove()
    folder = Path(worktree.path).parent
    folder.rmdir()
    folder.symlink_to("/tmp")
    with pytest.raises(Exception, match="is a link"):
        worktree.ready(head(place))


def test_a_full_disk_is_said_in_words(
    worktree: Worktree, place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (Path(place.root) / "big").write_bytes(os.urandom(1 << 20))
    git(place.root, "add", ".")
    git(place.root, "commit", "-qm", "big")
    # Files of more than a few blocks cannot be written by git: as on a disk that is full.
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True)
    narrow = tmp_path / "bin/git"
    narrow.parent.mkdir()
    narrow.write_text(f'#!/bin/sh\ntrap "" XFSZ\nulimit -f 64\nexec {real.stdout.strip()} "$@"\n')
    narrow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{narrow.parent}:{os.environ['PATH']}")
    with pytest.raises(UnavailableError, match=r"cannot be written.*(too large|unable to write)"):
        worktree.ready(head(place))


# Files that git ignores and a project needs.


def test_ignored_files_that_are_asked_for_are_copied_and_no_others(
    worktree: Worktree, place: Place
) -> None:
    top = Path(place.root)
    (top / ".env").write_text("SECRET=1\n")
    (top / "cache/deep").mkdir(parents=True)
    (top / "cache/deep/x").write_text("x\n")
    (top / "cache/y").write_text("y\n")
    (top / "untracked.txt").write_text("not ignored\n")
    (top / ".worktreeinclude").write_text(".env\nuntracked.txt\n.dibs/\n")
    folder = begun(worktree, place)
    assert include(place, str(folder), ["cache/deep/"]) == []
    assert (folder / ".env").read_text() == "SECRET=1\n"
    assert (folder / "cache/deep/x").exists()
    assert not (folder / "cache/y").exists()
    assert not (folder / "untracked.txt").exists()
    assert not (folder / ".dibs").exists()
    (top / ".env").write_text("SECRET=2\n")
    assert include(place, str(folder), []) == []
    assert (folder / ".env").read_text() == "SECRET=2\n"


def test_no_link_leads_out_of_the_repository(
    worktree: Worktree, place: Place, tmp_path: Path
) -> None:
    top, outside = Path(place.root), tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("secret\n")
    links = top / "links"
    links.mkdir()
    (links / "out").symlink_to(outside / "key")
    (links / "up").symlink_to("../../outside/key")
    (links / "in").symlink_to("../a.txt")
    (links / "folder").symlink_to(outside)
    folder = begun(worktree, place)
    # In the worktree, the folder that a file goes to leads elsewhere.
    (top / "cache").mkdir()
    (top / "cache/z").write_text("z\n")
    (folder / "cache").symlink_to(outside)
    left = include(place, str(folder), ["links/", "cache/"])
    assert sorted(left) == ["cache/z", "links/folder", "links/out", "links/up"]
    assert (folder / "links/in").readlink() == Path("../a.txt")
    assert sorted(one.name for one in outside.iterdir()) == ["key"]


# Branches.


def test_only_branches_that_a_merge_has_brought_are_dropped(
    worktree: Worktree, place: Place
) -> None:
    folder = begun(worktree, place, "landed-1")
    (folder / "b.txt").write_text("b\n")
    worktree.commit("b")
    worktree.free()
    begun(worktree, place, "open-2")
    (folder / "c.txt").write_text("c\n")
    worktree.commit("c")
    worktree.free()
    begun(worktree, place, "begun-3")  # it is at the target itself
    git(place.root, "merge", "-q", "--no-ff", "-m", "land", f"{WORK}/landed-1")
    drop_landed(place.root, "main")
    left = git(place.root, "for-each-ref", "--format=%(refname:short)", f"refs/heads/{WORK}/")
    assert left.split() == [f"{WORK}/begun-3", f"{WORK}/open-2"]


def test_what_earlier_attempts_have_left_is_found_by_name(place: Place) -> None:
    for name in ("work/t-5", "kept/t-5", "kept/t-5.2", "work/t-2-9", "kept/tt-1"):
        git(place.root, "branch", f"dibs/{name}")
    assert left_of(place.root, "t") == ["dibs/work/t-5", "dibs/kept/t-5", "dibs/kept/t-5.2"]


def test_a_commit_in_a_shared_checkout_is_found_by_its_mark(place: Place) -> None:
    for name in ("one", "two"):
        (Path(place.root) / name).write_text(name)
        git(place.root, "add", name)
        subprocess.run(
            ["git", "commit", "-qm", name], cwd=place.root, check=True,
            env=os.environ | {"GIT_REFLOG_ACTION": f"dibs {name}-1"},
        )  # fmt: skip
    assert own_commit(place.root, "dibs one-1") == git(place.root, "rev-parse", "HEAD^")
    assert own_commit(place.root, "dibs three-1") == ""
