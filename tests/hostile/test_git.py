"""A stranger's `.git`: unpacked from an archive, it holds any file, of any kind, and runs nothing.

A clone has a git directory of the user's own. That of an archive is the stranger's: its settings,
its index, and where it says that its worktrees are.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dibs.errors import InvalidError, UnfitError
from dibs.names.owners import owner_of
from dibs.names.paths import find_place
from dibs.names.tracked import tracked
from dibs.setup import jsonc
from dibs.setup.files import Refusal
from dibs.setup.parts import Hook
from dibs.setup.targets import is_shell
from dibs.surfaces.hooks.before import recording
from dibs.surroundings.git import git as quiet_git
from tests.hostile.test_files import Victim, arm, marks, snapshot, victim  # noqa: F401 - fixtures
from tests.surfaces.hooked import Client
from tests.surfaces.shell import finish

FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda run: f'[filter "evil"]\n\tclean = {run}\n',
    "tab": lambda run: f'[filter\t"evil"]\n\tclean = {run}\n',
    "one line": lambda run: f'[core] [filter "evil"] clean = {run}\n',
    "dotted": lambda run: f"[FILTER.evil]\n\tclean = {run}\n",
    "bracket": lambda run: f'[core "a]b"] x = 1\n[filter "evil"]\n\tclean = {run}\n',
    "zero": lambda run: f'# \0\n[filter "evil"]\n\tclean = {run}\n',
    "large": lambda run: f'#{"x" * (1 << 20)}\n[filter "evil"]\n\tclean = {run}\n',
    "continued": lambda run: (
        f'[core]\n\tx = a\\\n[filter "evil"]\n\tclean = {run}\n[filter "evil"]\n\tclean = {run}\n'
    ),
    "includes": lambda run: "[include]\n\tpath = more\n",
    "includes if": lambda run: '[includeIf "gitdir:**"]\n\tpath = more\n',
}


def works(who: Victim, at: Path, name: str = "a.py") -> None:
    """A turn of a client in a folder: every git that hooks run looks at this file."""
    client = Client(who.shell.at(at), "s")
    try:
        client.start()
        client.write(name, "a = 2\n")
        client.before("Bash", command=f"git add {name}")
        client.after("Bash", command=f"git add {name}")
        client.stop()
    finally:
        client.kill()


@pytest.mark.parametrize("form", [*FORMS, "mark of byte order", "of the worktree"])
def test_no_way_to_write_settings_hides_a_filter(victim: Victim, marks: Path, form: str) -> None:  # noqa: F811
    (victim.origin / ".gitattributes").write_text("*.py filter=evil\n")
    victim.clone()
    other = victim.folder.parent / "other"
    victim.git("worktree", "add", "-q", "-b", "side", str(other))
    config = victim.folder / ".git/config"
    (victim.folder / ".git/more").write_text(FORMS["plain"](str(marks)))
    if form == "mark of byte order":
        config.write_text("\ufeff" + FORMS["plain"](str(marks)) + config.read_text())
    elif form == "of the worktree":
        victim.git("config", "extensions.worktreeConfig", "true")
        (victim.folder / ".git/config.worktree").write_text(FORMS["plain"](str(marks)))
    else:
        config.write_text(config.read_text() + FORMS[form](str(marks)))
    (other / "a.py").write_text("a = 4\n")
    works(victim, victim.folder)
    works(victim, other)
    victim.shell("overlap")


@pytest.mark.parametrize("inside", [[], ["refs"], ["refs", "objects"], ["HEAD"]])
def test_a_folder_that_git_passes_over_hides_no_filter(
    victim: Victim,  # noqa: F811
    marks: Path,  # noqa: F811
    inside: list[str],
) -> None:
    (victim.origin / ".gitattributes").write_text("*.py filter=evil\n")
    (victim.origin / "sub").mkdir()
    (victim.origin / "sub/a.py").write_text("a = 1\n")
    victim.clone()
    config = victim.folder / ".git/config"
    config.write_text(config.read_text() + FORMS["plain"](str(marks)))
    for name in ["", *inside]:
        (victim.folder / "sub/.git" / name).mkdir()
    place = find_place(str(victim.folder / "sub"), "/u")
    assert (place.root, place.top) == (str(victim.folder), str(victim.folder))
    works(victim, victim.folder / "sub")


def test_a_submodules_own_settings_run_nothing_in_overlap(victim: Victim, marks: Path) -> None:  # noqa: F811
    module = victim.outside.parent / "module"
    victim.git("init", "-q", "-b", "main", str(module), at=victim.origin)
    (module / "b.py").write_text("b = 1\n")
    (module / ".gitattributes").write_text("*.py filter=evil\n")
    victim.git("add", "-A", at=module)
    victim.git("commit", "-q", "-m", "b", at=module)
    local = ["-c", "protocol.file.allow=always"]
    victim.git(*local, "submodule", "add", "-q", str(module), "sub", at=victim.origin)
    victim.clone()
    victim.git(*local, "submodule", "update", "-q", "--init")
    other = victim.folder.parent / "other"
    victim.git("worktree", "add", "-q", "-b", "side", str(other))
    victim.git(*local, "submodule", "update", "-q", "--init", at=other)
    for folder in (victim.folder, other):
        moved = ["commit", "-q", "--allow-empty", "-m", f"in {folder.name}"]
        victim.git(*moved, at=folder / "sub")
        git_dir = victim.git("rev-parse", "--absolute-git-dir", at=folder / "sub").strip()
        with open(f"{git_dir}/config", "a") as config:
            config.write(FORMS["plain"](str(marks)))
        os.utime(folder / "sub/b.py")
    found = victim.shell("overlap", "--json").json
    assert [file["path"] for pair in found for file in pair["files"]] == ["sub"]
    works(victim, victim.folder, "sub/b.py")


# Each way to ask git what a command would change.
ASKING = """
git checkout side
git checkout -f side
git checkout remote-only
git checkout .
git checkout side -- a.py
git merge side
git rebase side
git pull --rebase
git cherry-pick side
git revert HEAD
git stash
git stash -a
git stash pop
git reset --hard side
git reset --merge side
git clean -fdx
git restore -s side .
git apply a.diff
git bisect start HEAD side
git submodule update
git rebase --abort
git cherry-pick -- --output=evil
git checkout --output=evil
git merge ext::evil
""".strip().splitlines()


def test_to_ask_git_what_a_command_would_change_runs_nothing(victim: Victim, marks: Path) -> None:  # noqa: F811
    off = arm(victim, marks)
    victim.git(*off, "checkout", "-q", "-b", "side")
    (victim.folder / "a.py").write_text("a = 5\n")
    victim.git(*off, "commit", "-q", "-a", "-m", "side")
    victim.git(*off, "checkout", "-q", "main")
    (victim.folder / "a.py").write_text("a = 6\n")
    victim.git(*off, "stash", "-q")
    (victim.folder / "a.diff").write_text("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n")
    (victim.folder / ".git/rebase-merge").mkdir()
    (victim.folder / ".git/rebase-merge/orig-head").write_text("--output=evil\n")
    (victim.folder / "new.py").write_text("n = 1\n")
    victim.shell.as_("other").ok("claim", "a.py", "new.py")
    os.utime(victim.folder / "a.py", (1, 1))  # so that its content has to be compared
    client = Client(victim.shell, "s")
    denied = [bool(client.before("Bash", command=command).denied) for command in ASKING]
    client.kill()
    assert {True, False} == {*denied}
    assert not list(victim.folder.rglob("evil"))


def test_an_extension_of_git_lfs_that_a_repository_defines_is_not_reached(
    victim: Victim,  # noqa: F811
    marks: Path,  # noqa: F811
) -> None:
    """The user's own git-lfs would run it: so that is not run here."""
    (victim.home / ".gitconfig").write_text(f'[filter "lfs"]\n\tclean = {marks}\n')
    (victim.origin / ".gitattributes").write_text("*.py filter=lfs\n")
    off = ["-c", "filter.lfs.clean="]
    victim.git(*off, "add", "-A", at=victim.origin)
    victim.git(*off, "commit", "-q", "-m", "innocent", at=victim.origin)
    victim.git(*off, "clone", "-q", str(victim.origin), str(victim.folder), at=victim.origin)
    victim.git("config", "lfs.Extension.evil.clean", "evil %f")
    (victim.folder / "a.py").write_text("a = 3\n")
    environment = victim.environment | {"GIT_CONFIG_GLOBAL": str(victim.home / ".gitconfig")}
    quiet_git("status", cwd=str(victim.folder), environment=environment)


def test_ordinary_settings_cost_no_second_git(victim: Victim, tmp_path: Path) -> None:  # noqa: F811
    victim.clone()
    runs = tmp_path / "runs"
    runs.mkdir()
    environment = victim.environment | {"GIT_TRACE2_EVENT": str(runs)}
    quiet_git("status", cwd=str(victim.folder), environment=environment)
    assert len(list(runs.iterdir())) == 1
    victim.git("config", "filter.x.clean", "cat")
    quiet_git("status", cwd=str(victim.folder), environment=environment)
    assert len(list(runs.iterdir())) == 3


def fourth(body: bytes, count: int = 0xFFFFFFFF) -> bytes:
    return b"DIRC" + struct.pack(">II", 4, count) + body


INDEXES: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "folder": os.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "sparse": lambda path: subprocess.run(["truncate", "-s", "1T", path], check=True),
    "sparse, with a head": lambda path: (
        path.write_bytes(b"DIRC" + struct.pack(">II", 2, 0xFFFFFFFF)),
        subprocess.run(["truncate", "-s", "1T", path], check=True),
    ),
    "fifth version": lambda path: path.write_bytes(b"DIRC" + struct.pack(">II", 5, 0)),
    "ones": lambda path: path.write_bytes(fourth(b"\x01" * 200)),
    "number without end": lambda path: path.write_bytes(fourth(b"\x01" * 62 + b"\xff" * 100)),
    "cut": lambda path: path.write_bytes(fourth(b"\x80" * 62 + b"\xff" * 3)),
    "name without end": lambda path: path.write_bytes(
        fourth(bytes(60) + b"\x0f\xff\0" + b"a" * 99)
    ),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_of_any_kind_is_refused_by_name(victim: Victim, name: str) -> None:  # noqa: F811
    victim.clone()
    index = victim.folder / ".git/index"
    index.unlink()
    INDEXES[name](index)
    answer = victim.shell("status")
    assert (answer.code, "git's index" in answer.err) == (75, True), answer
    assert "next: " in answer.err
    victim.works()
    victim.is_unharmed()


@pytest.mark.parametrize("name", INDEXES)
def test_a_shared_index_that_nothing_names_is_not_read(victim: Victim, name: str) -> None:  # noqa: F811
    victim.clone()
    INDEXES[name](victim.folder / f".git/sharedindex.{'a' * 40}")
    victim.shell.ok("claim", "a.py", "--as", "me")


@pytest.mark.parametrize("name", ["fifo", "folder", "device", "sparse"])
@pytest.mark.parametrize("file", ["index", f"sharedindex.{'a' * 40}"])
def test_overlap_copies_no_index_that_never_ends(victim: Victim, name: str, file: str) -> None:  # noqa: F811
    victim.clone()
    victim.git("worktree", "add", "-q", "-b", "side", str(victim.folder.parent / "other"))
    victim.shell.ok("status")
    path = victim.folder / ".git/worktrees/other" / file
    path.unlink(missing_ok=True)
    INDEXES[name](path)
    answer = victim.shell("overlap")
    if (name, file[:5]) == ("sparse", "share"):
        assert answer.code == 0, answer
    else:
        assert (answer.code, "git's index" in answer.err) == (75, True), answer


def test_overlap_looks_at_no_folder_that_is_not_of_the_repository(victim: Victim) -> None:  # noqa: F811
    victim.clone()
    own = victim.outside.parent / "own"
    victim.git("clone", "-q", str(victim.origin), str(own), at=victim.origin)
    victim.git("worktree", "add", "-q", "-b", "side", str(victim.folder.parent / "other"))
    (victim.folder / ".git/worktrees/other/gitdir").write_text(f"{own}/.git\n")
    for folder in (victim.folder, own):
        (folder / "a.py").write_text(f"{folder}\n")
    assert victim.shell.json("overlap") == []


@pytest.mark.parametrize("format", ["sha1", "sha256"])
@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("split", [False, True])
def test_what_is_tracked_is_what_git_says(
    tmp_path: Path, format: str, version: str, split: bool
) -> None:
    def git(*words: str, given: str = "") -> str:
        return subprocess.run(
            ["git", *words], cwd=tmp_path, input=given, check=True, capture_output=True, text=True
        ).stdout

    def found(name: str = ".dibs/") -> str | None:
        return tracked(str(tmp_path / ".git/index"), name, frozenset({".dibs/config.toml"}))

    git("init", "-q", f"--object-format={format}")
    blob = git("hash-object", "-w", "--stdin", given="x").strip()
    names = [".a", ".dab", ".dibs/config.toml", ".dibs-not", "b/.dibs/c", "z" * 150, "y" * 5000]
    names += [f"src/{number}/module_{number}.py" for number in range(3000)]
    git("update-index", "--index-info", given="".join(f"100644 {blob}\t{one}\n" for one in names))
    git("update-index", "--index-version", version)
    if split:
        git("update-index", "--split-index")
    assert (found(), found("b/.dibs/"), found("y")) == (None, "b/.dibs/c", "y" * 5000)
    for late, mode in ((".dibs/key", "100644"), (".DIBS/key", "120000"), (".dibs", "160000")):
        git("update-index", "--index-info", given=f"0 {'0' * len(blob)}\t.dibs/config.toml\n")
        git("update-index", "--add", "--cacheinfo", f"{mode},{blob},{late}")
        assert found() == late
        if split:
            git("update-index", "--no-split-index")
            git("update-index", "--split-index")
            assert found() == late
        git("update-index", "--force-remove", late)
        assert late not in git("ls-files").splitlines()
        assert found() is None
    assert found("src/2999/module_2999") == "src/2999/module_2999.py"


def test_an_entry_with_more_flags_is_read(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".dibs").mkdir()
    (tmp_path / ".dibs/key").write_text("")
    subprocess.run(["git", "-C", tmp_path, "add", "-N", "-f", ".dibs/key"], check=True)
    index = tmp_path / ".git/index"
    assert index.read_bytes()[7] == 3
    assert tracked(str(index), ".dibs/") == ".dibs/key"


def test_a_team_with_a_sparse_index_is_not_locked_out(victim: Victim) -> None:  # noqa: F811
    (victim.origin / ".dibs").mkdir()
    (victim.origin / ".dibs/config.toml").write_text("# ours\n")
    (victim.origin / "src").mkdir()
    (victim.origin / "src/b.py").write_text("b\n")
    victim.clone()
    victim.git("sparse-checkout", "set", "--cone", "--sparse-index", "src")
    assert ".dibs/" in victim.git("ls-files", "--sparse").splitlines()
    victim.shell.ok("claim", "src/b.py", "--as", "me")


def test_the_advice_unlocks_a_store_with_a_split_index(victim: Victim) -> None:  # noqa: F811
    (victim.origin / ".dibs").mkdir()
    (victim.origin / ".dibs/note.txt").write_text("x\n")
    victim.clone()
    victim.git("update-index", "--split-index")
    assert "git tracks .dibs/note.txt" in victim.shell("status").err
    victim.git("rm", "-r", "-q", "--cached", ".dibs")
    victim.git("commit", "-q", "-m", "as told")
    shutil.rmtree(victim.folder / ".dibs")
    victim.shell.ok("claim", "a.py", "--as", "me")


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"DIRC")
    with pytest.raises(UnfitError, match="it is cut off") as caught:
        tracked(str(tmp_path / "index"), ".dibs/")
    assert caught.value.next


def make_git_dir(path: Path, config: str = "") -> None:
    for name in ("objects", "refs"):
        (path / name).mkdir(parents=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    (path / "config").write_text(config)


def make_worktree(path: Path, common: Path | str, back: Path) -> None:
    path.mkdir(parents=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    (path / "commondir").write_text(f"{common}\n")
    (path / "gitdir").write_text(f"{back}\n")


@pytest.mark.parametrize("how", ["of git's kind", "common", "main", "bare", "copy", "main itself"])
def test_a_crafted_git_file_makes_no_store_elsewhere(victim: Victim, how: str) -> None:  # noqa: F811
    own, evil = victim.outside / "own", victim.folder
    victim.git("clone", "-q", str(commit(victim)), str(own), at=victim.origin)
    victim.git("clone", "-q", "--bare", str(victim.origin), f"{own}.git", at=victim.origin)
    victim.git("worktree", "add", "-q", "-b", "side", f"{victim.outside}/wt", at=own)
    evil.mkdir()
    leads = {"of git's kind": "g", "common": "g", "main": "c/worktrees/w", "main itself": "g"}
    leads |= {"bare": f"{own}.git", "copy": f"{own}/.git/worktrees/wt"}
    (evil / ".git").write_text(f"gitdir: {leads[how]}\n")
    core = f"[core]\n\tworktree = {own}\n"
    if how == "of git's kind":
        (evil / "g/common").mkdir(parents=True)
        (evil / "g/commondir").write_text("common\n")
        (evil / "g/common/config").write_text(core)
    elif how == "common":
        make_worktree(evil / "g", own / ".git", evil / ".git")
    elif how == "main":
        make_git_dir(evil / "c", core)
        make_worktree(evil / "c/worktrees/w", "../..", evil / ".git")
    elif how == "main itself":
        make_git_dir(evil / "g", core)
    victim.before = snapshot(victim.outside)
    (evil / "a.py").write_text("a = 1\n")
    victim.works()
    victim.is_unharmed()
    if how not in ("bare", "main itself"):
        with pytest.raises(InvalidError) as caught:
            find_place(str(evil), "/u")
        assert caught.value.next


def commit(who: Victim) -> Path:
    who.git("add", "-A", "-f", at=who.origin)
    who.git("commit", "-q", "-m", "innocent", at=who.origin)
    return who.origin


def test_honest_layouts_are_found_as_git_finds_them(victim: Victim, tmp_path: Path) -> None:  # noqa: F811
    victim.clone()
    root = str(victim.folder)
    for name in ("linked", "moved", "relative"):
        victim.git("worktree", "add", "-q", "-b", name, str(tmp_path / name))
    (tmp_path / "moved").rename(tmp_path / "away")
    meta = victim.folder / ".git/worktrees/relative"
    (meta / "gitdir").write_text("../../../../relative/.git\n")
    (tmp_path / "relative/.git").write_text("gitdir: ../clone/.git/worktrees/relative\n")
    for name in ("linked", "away", "relative"):
        place = find_place(str(tmp_path / name), "/u")
        assert (place.root, place.top) == (root, str(tmp_path / name))
    assert owner_of(str(tmp_path / "linked")) is owner_of(str(tmp_path / "relative")) is None
    assert owner_of(str(tmp_path / "away")) == str(tmp_path / "moved")
    victim.git("worktree", "repair", str(tmp_path / "away"))
    assert owner_of(str(tmp_path / "away")) is None
    apart = tmp_path / "apart"
    victim.git("init", "-q", "--separate-git-dir", str(tmp_path / "apart.git"), str(apart))
    assert find_place(str(apart), "/u").root == str(apart)
    assert owner_of(str(apart)) is None


@pytest.mark.parametrize("how", ["file", "link", "worktree", "submodule"])
@pytest.mark.parametrize("words", [["init", "--client", "claude"], ["init", "--remove"]])
def test_init_leaves_the_hooks_of_another_repository_alone(
    victim: Victim,  # noqa: F811
    how: str,
    words: list[str],
) -> None:
    own, evil = victim.outside / "own", victim.folder
    victim.git("clone", "-q", str(commit(victim)), str(own), at=victim.origin)
    victim.git("worktree", "add", "-q", "-b", "side", f"{victim.outside}/wt", at=own)
    if words[1] == "--remove":
        victim.shell.at(own).ok("init", "--client", "claude")
    shutil.rmtree(victim.outside / "wt")  # git has not noticed yet
    evil.mkdir()
    (evil / "a.py").write_text("a = 1\n")
    if how == "link":
        (evil / ".git").symlink_to(own / ".git")
    elif how == "submodule":
        victim.git("init", "-q")
        (evil / "sub").mkdir()
        (evil / "sub/.git").write_text(f"gitdir: {own}/.git\n")
        (evil / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n')
        head = victim.git("rev-parse", "HEAD", at=own).strip()
        victim.git("update-index", "--add", "--cacheinfo", f"160000,{head},sub")
        victim.git("config", "submodule.sub.url", "./sub")
    else:
        leads = f"{own}/.git" + ("/worktrees/wt" if how == "worktree" else "")
        (evil / ".git").write_text(f"gitdir: {leads}\n")
    hooks = snapshot(own / ".git/hooks")
    answer = victim.shell(*words)
    assert snapshot(own / ".git/hooks") == hooks
    assert f"{own}" in answer.err or f"{victim.outside}/wt" in answer.err, answer


OURS = '{"hooks": [{"type": "command", "command": "dibs hook claude"}]}'
THEIRS = '{"hooks": [{"type": "command", "command": "make"}]}'


@pytest.mark.parametrize("list", [[OURS] * 5000, [OURS, THEIRS, OURS, OURS], [THEIRS, OURS, OURS]])
@pytest.mark.parametrize("between", [", ", ",\n  ", ","])
def test_all_hooks_of_ours_are_taken_out_at_once(list: list[str], between: str) -> None:
    text = '{"hooks": {"Stop": [' + between.join(list) + "]}}"
    left = jsonc.parse(Hook(("hooks", "Stop"), {}).take(text, None)).value
    assert str(left).count("make") == len([one for one in list if one == THEIRS])
    assert "dibs" not in str(left)


@pytest.mark.parametrize(
    "text", ["9" * 100_000, "-1." + "0" * 100_000, "[" + "1," * 400_000 + "1]"]
)
def test_a_number_of_any_length_is_refused_by_name(text: str) -> None:
    with pytest.raises(Refusal, match=r"too many digits|larger than"):
        jsonc.parse('{"a": ' + text + "}")


def test_a_first_line_of_any_length_is_read() -> None:
    assert not is_shell("#!" + "/" * 1_000_000)
    assert is_shell("#! /usr/bin/env -S bash\n" + "/" * 1_000_000)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("git " + "-c " * 100_000 + "x", ""),
        ("git -c git " * 50_000, ""),
        ("git commit -m x", "commit"),
        ("cd x && /usr/bin/git -C y -c a=b --no-pager push;", "push"),
        ("$(git\tmerge)", "merge"),
        ("git commit-tree", ""),
        ("git pull_", ""),
        ("digit commit", ""),
        ("git log commit", ""),
        ("git git commit", "commit"),
        ("git - commit", ""),
        ("git", ""),
        ("git -c", ""),
    ],
)
def test_what_records_is_found_in_one_pass(command: str, found: str) -> None:
    assert recording(command) == found


def test_the_demo_runs_no_module_of_its_folder(victim: Victim) -> None:  # noqa: F811
    mark = victim.outside.parent / "ran"
    for name in ("apsw", "dibs", "starlette", "uvicorn", "random"):
        (victim.origin / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    victim.clone()
    demo = victim.shell.start("demo", ".", "--print", stdout=subprocess.PIPE)
    assert demo.stdout is not None
    assert any("sign-in" in demo.stdout.readline() for _ in range(9))
    demo.terminate()
    finish(demo)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["src", "src/api.py", ".dibs", ".dibs/demo.db"])
def test_the_demo_writes_through_no_link(victim: Victim, name: str) -> None:  # noqa: F811
    victim.link(name, victim.outside / ("new" if "." in name[1:] else ""))
    victim.clone()
    answer = victim.shell("demo", ".", "--print")
    assert (answer.code, "is a link" in answer.err) == (2, True), answer
    victim.is_unharmed()


def test_the_demo_takes_no_store_that_came_with_the_folder(victim: Victim) -> None:  # noqa: F811
    (victim.origin / ".dibs/user/dibs").mkdir(parents=True)
    (victim.origin / ".dibs/user/dibs/token").write_text("known")
    victim.clone()
    answer = victim.shell("demo", ".", "--print")
    assert (answer.code, "in use already" in answer.err) == (2, True), answer
