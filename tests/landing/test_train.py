"""A train of merges, beside `git merge` one after the other in the same order."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from dibs.landing.train import CONFLICT, CONTAINED, LANDED, MERGED, UNRELATED, Train
from tests.landing.generated import DIED, FILE, Files, Repository, Stream, environment, repository


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's own settings of git."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)


def compare(made: Repository, names: list[str]) -> Counter[str]:
    """Merge in both ways, and count how the branches ended."""
    commits = [made.id(f"{name}^{{commit}}") for name in names]
    counted: Counter[str] = Counter()
    with Train(str(made.path), made.id("main"), commits) as train:
        steps = [
            train.merge(one, f"merge {name}") for one, name in zip(commits, names, strict=True)
        ]
        end = train.write()
    made.git("checkout", "-q", "main")
    for name, commit, step in zip(names, commits, steps, strict=True):
        counted[step.how] += 1
        before = made.id("HEAD")
        files = made.merged(commit)
        if step.how == MERGED:
            assert files == (), (name, files)
            assert made.id("HEAD^{tree}") == made.id(f"{step.commit}^{{tree}}"), name
            assert made.git("rev-list", "--parents", "-1", step.commit).split()[2] == commit
            changed = made.git("diff", "--name-only", "--no-renames", "-z", "HEAD^1", "HEAD")
            assert set(step.files) == set(filter(None, changed.split("\0")))
        elif step.how in (LANDED, CONTAINED):
            assert files == () and made.id("HEAD") == before, name
        elif step.how == CONFLICT:
            assert files == DIED or (files is not None and set(files) == set(step.files)), name
        else:
            assert step.how == UNRELATED and files is None, name
    assert made.id("HEAD^{tree}") == made.id(f"{end}^{{tree}}")
    # All that was written is sound; not so what git itself leaves behind of some conflicts.
    made.git("branch", "landed", end)
    copy = ("clone", "-q", "--bare", "--no-local", "--single-branch", "-b", "landed", ".")
    made.git("-c", "transfer.fsckObjects=true", *copy, f"{made.path}-copy")
    return counted


@pytest.mark.parametrize("seed", range(8))
def test_a_train_of_8_is_as_git_merges_it(tmp_path: Path, seed: int) -> None:
    compare(*repository(tmp_path / "r", seed, 8))


def test_a_train_of_64_is_as_git_merges_it(tmp_path: Path) -> None:
    counted = compare(*repository(tmp_path / "r", 1, 64))
    assert counted[MERGED] >= 10 and counted[CONFLICT] >= 3, counted


@pytest.mark.stress
@pytest.mark.parametrize("branches", [8, 16, 32, 64, 128, 256, 512])
def test_trains_of_many_are_as_git_merges_them(tmp_path: Path, branches: int) -> None:
    all_: Counter[str] = Counter()
    for seed in range(max(1, 512 // branches)):
        all_ += compare(*repository(tmp_path / f"r{seed}", 1_000 * branches + seed, branches))
    print(f"\n{branches} branches a train: {dict(all_)}")


def plain(path: Path, base: Files, *branches: Files) -> tuple[Repository, list[str]]:
    """A repository with these branches, all from the same commit."""
    stream = Stream()
    start = stream.commit("main", base)
    names = []
    for number, files in enumerate(branches):
        names.append(f"b{number}")
        stream.commit(names[-1], files, start)
    made = Repository(path, environment(path.parent))
    made.git("fast-import", "--quiet", input=b"".join(stream.parts))
    return made, names


def text(word: str) -> tuple[str, str]:
    return FILE, "".join(f"{word} {number}\n" for number in range(20))


def test_a_file_added_to_a_directory_that_was_moved_goes_along_as_with_git(tmp_path: Path) -> None:
    base = {"old/a": text("a"), "old/b": text("b"), "x": text("x")}
    moved = {"new/a": text("a"), "new/b": text("b"), "x": text("x")}
    added = base | {"old/c": text("c")}
    compare(*plain(tmp_path / "one", base, moved, added))
    compare(*plain(tmp_path / "other", base, added, moved))


def test_a_file_that_is_deleted_beside_one_that_is_added_needs_no_merge(tmp_path: Path) -> None:
    base = {"src/a": text("a"), "src/b": text("b")}
    made, names = plain(tmp_path / "r", base, {"src/b": text("b")}, base | {"src/c": text("c")})
    assert compare(made, names)[MERGED] == 2


def test_a_merge_driver_of_the_repository_is_not_run(tmp_path: Path) -> None:
    base = {".gitattributes": (FILE, "* merge=own\n"), "a": text("a")}
    one, other = base | {"a": (FILE, "1\n")}, base | {"a": (FILE, "2\n")}
    made, names = plain(tmp_path / "r", base, one, other)
    ran = tmp_path / "ran"
    made.git("config", "merge.own.driver", f"touch {ran}")
    commits = [made.id(name) for name in names]
    with Train(str(made.path), made.id("main"), commits) as train:
        assert [train.merge(commit, "m").how for commit in commits] == [MERGED, CONFLICT]
    assert not ran.exists()


def test_attributes_are_those_of_the_target_not_of_a_checkout(tmp_path: Path) -> None:
    base = {".gitattributes": (FILE, "log merge=union\n"), "log": text("a")}
    one = base | {"log": (FILE, text("a")[1] + "one\n")}
    other = base | {"log": (FILE, text("a")[1] + "other\n")}
    made, names = plain(tmp_path / "r", base, one, other)
    made.git("checkout", "-q", "main")
    (made.path / ".gitattributes").write_text("")
    commits = [made.id(name) for name in names]
    with Train(str(made.path), made.id("main"), commits) as train:
        assert [train.merge(commit, "m").how for commit in commits] == [MERGED, MERGED]
    made.git("checkout", "-q", "-f", "main")
    compare(made, names)


def test_a_tree_that_is_taken_from_elsewhere_is_the_next_base(tmp_path: Path) -> None:
    base = {"a": text("a"), "b": text("b")}
    made, names = plain(
        tmp_path / "r", base, base | {"a": (FILE, "1\n")}, base | {"a": (FILE, "2\n")},
        base | {"c": text("c")},
    )  # fmt: skip
    commits = [made.id(name) for name in names]
    with Train(str(made.path), made.id("main"), commits) as train:
        train.merge(commits[0], "m")
        assert train.merge(commits[1], "m").files == ("a",)
        train.take(commits[1], "m", made.id(f"{commits[1]}^{{tree}}"))
        assert train.merge(commits[2], "m").how == MERGED
        end = train.write()
    assert made.git("show", f"{end}:a") == "2"
    assert made.git("ls-tree", "--name-only", end).split() == ["a", "b", "c"]


def test_a_repository_with_long_ids_works_too(tmp_path: Path) -> None:
    made = Repository(tmp_path / "r", environment(tmp_path), "--object-format=sha256")
    (made.path / "a").write_text("a\n")
    made.git("add", "a")
    made.git("commit", "-q", "-m", "first")
    for name in ("b0", "b1"):
        made.git("checkout", "-q", "-b", name, "main")
        (made.path / name).write_text("b\n")
        made.git("add", name)
        made.git("commit", "-q", "-m", name)
    made.git("checkout", "-q", "main")
    assert compare(made, ["b0", "b1"])[MERGED] == 2
