"""A command of git is denied if it would change what another agent holds, and only then.

What it would change is not an opinion: each command is run in a copy of the same repository, and
the working tree is compared before and after. Then the hook of a second agent is asked, while the
first one holds a single file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dibs.surfaces.hooks import hook, narrowing
from dibs.surfaces.hooks.before import abandon, before
from dibs.surroundings.commands import Globals
from dibs.surroundings.occasion import BEFORE, Occasion
from tests.surfaces.hooked import Client
from tests.surfaces.shell import Shell, finish, scrubbed
from tests.surfaces.test_hook_shell import files_of


class World(NamedTuple):
    """A repository in one state, in which somebody holds one file; and one to try commands in."""

    tried: Path
    held: dict[str, Shell]


LATER = "2030-01-01T00:00:00"
BASE = {
    name: f"one\ntwo\nthree\n{name}\n"
    for name in ("own.py", "calm.py", "held.py", "both.py", "pulled.py", "stashed.py", "sub/x.py")
}


def build(top: Path, shell: Shell) -> Path:
    """A repository with branches, a remote that is ahead, a stash, and nothing uncommitted."""
    repository, origin = top / "repository", top / "origin.git"

    def git(*words: str) -> None:
        answer = finish(shell.at(repository).spawn(["git", *words]))
        assert answer.code == 0, (words, answer)

    def commit(message: str, **files: str) -> None:
        for name, text in files.items():
            (repository / name.replace("_", ".")).write_text(text)
        git("add", "-A")
        git("commit", "-q", "-m", message)

    repository.mkdir(parents=True)
    git("init", "-q", "-b", "main")
    for key, value in {"user.name": "x", "user.email": "x@x", "pull.rebase": "false"}.items():
        git("config", key, value)
    (repository / "sub").mkdir()
    for name, text in BASE.items():
        (repository / name).write_text(text)
    (repository / ".gitignore").write_text("*.log\n.dibs/\n")
    commit("first")
    git("checkout", "-q", "-b", "other")
    commit("other", held_py="other\n" + BASE["held.py"], new_py="new\n")
    git("checkout", "-q", "-b", "clash", "main")
    commit("clash", both_py="clash\n")
    git("checkout", "-q", "-b", "apart", "main")
    (repository / "sub/x.py").write_text("apart\n")
    commit("apart")
    git("checkout", "-q", "main")
    commit("second", both_py="second\n" + BASE["both.py"])
    git("clone", "-q", "--bare", ".", str(origin))
    git("remote", "add", "origin", str(origin))
    git("branch", "-q", "ahead")
    git("checkout", "-q", "ahead")
    commit("ahead", pulled_py="ahead\n" + BASE["pulled.py"])
    git("push", "-q", "origin", "ahead:main", "apart:refs/heads/remote-only")
    git("checkout", "-q", "main")
    git("fetch", "-q", "origin")
    git("branch", "-q", "-u", "origin/main")
    (repository / "stashed.py").write_text("stashed\n")
    git("stash", "-q")
    shell.at(repository).sh("git format-patch -1 apart --stdout > ../apart.mbox")
    (repository / "sub.diff").write_text(
        "diff --git a/sub/x.py b/sub/x.py\n--- a/sub/x.py\n+++ b/sub/x.py\n"
        "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
    )
    return repository


def clean(_: Path) -> None: ...


def dirty(repository: Path) -> None:
    (repository / "held.py").write_text("not committed\n")
    (repository / "calm.py").write_text("not committed\n")
    (repository / "untracked.txt").write_text("not committed\n")


def merging(repository: Path) -> None:
    """In the midst of a merge, with another file that is not committed."""
    (repository / "calm.py").write_text("not committed\n")
    begin(repository, "merge")


def rebasing(repository: Path) -> None:
    begin(repository, "rebase")


def begin(repository: Path, word: str) -> None:
    """Begin what ends in a conflict."""
    words = ["git", word, "-q", "clash"]
    assert subprocess.run(words, cwd=repository, capture_output=True, check=False).returncode


STATES: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "clean": (clean, ["held.py", "calm.py", "both.py", "pulled.py", "stashed.py", "sub/x.py"]),
    "dirty": (dirty, ["held.py", "calm.py", "untracked.txt", "both.py", "pulled.py"]),
    "merging": (merging, ["both.py", "calm.py", "held.py"]),
    "rebasing": (rebasing, ["both.py", "calm.py"]),
}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    found = {}
    home = tmp_path_factory.mktemp("home")
    for state, (prepare, names) in STATES.items():
        top = tmp_path_factory.mktemp(state)
        shell = Shell(top, scrubbed(home))
        tried, held = build(top / "tried", shell), {}
        prepare(tried)
        for name in names:
            folder = top / name.replace("/", "-")
            held[name] = shell.at(folder / "repository")
            shutil.copytree(tried, held[name].folder, symlinks=True)
            shutil.copy(tried.parent / "apart.mbox", folder)
            held[name].as_("alice").ok("claim", name, "--ttl", "1h")
        found[state] = World(tried, held)
    return found


def changed_by(command: str, world: World, top: Path) -> set[str]:
    """What a command really changes."""
    shell = next(iter(world.held.values()))
    shutil.copytree(world.tried, top, symlinks=True)
    shutil.copy(world.tried.parent / "apart.mbox", top.parent)
    finish(shell.at(top).spawn(["git", "status"]))  # it has to see that nothing has changed
    before = files_of(top)
    finish(shell.at(top).with_(GIT_EDITOR="true").spawn(["bash", "-c", command]))
    after = files_of(top)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return {os.path.relpath(path, top) for path in changed}


COMMANDS = """
git checkout other
git checkout -q -f other
git checkout -m other
git checkout apart
git checkout --detach apart
git checkout -b new
git checkout -b new other
git checkout -B new apart
git checkout -t origin/remote-only
git checkout remote-only
git checkout nowhere
git checkout HEAD~1
git checkout v9 -- held.py
git checkout .
git checkout -- .
git checkout -- sub
git checkout -- '*.py'
git checkout other -- 'sub/*.py'
git restore '*.txt'
git stash push -- '*.py'
git checkout -- held.py
git checkout other -- held.py
git checkout other -- sub
git checkout HEAD~1 -- .
git checkout -f
git switch other
git switch -c new
git switch -c new apart
git switch --discard-changes apart
git switch -
git restore .
git restore sub
git restore held.py
git restore -s other held.py
git restore --source=other -- .
git restore --staged .
git restore -SW .
git reset
git reset --soft HEAD~1
git reset --hard
git reset --hard HEAD~1
git reset --hard other
git reset --hard origin/main
git reset --keep other
git reset --merge other
git merge -q other
git merge --no-edit apart
git merge -q clash
git merge --squash other
git merge --no-commit --no-ff apart
git merge --ff-only other
git merge --ff-only origin/main
git merge
git merge -s ours -q other
git merge nowhere
git merge --abort
git merge --continue
git merge --quit
git rebase other
git rebase apart
git rebase clash
git rebase --onto apart main~1
git rebase origin/main
git rebase other apart
git rebase --autostash other
git rebase -i HEAD~1
git rebase --abort
git rebase --continue
git rebase --skip
git rebase --quit
git pull
git pull -q --rebase
git pull origin main
git pull --ff-only
git pull --rebase --autostash
git pull origin remote-only
git fetch origin
git cherry-pick other
git cherry-pick -n apart
git cherry-pick main~1..other
git cherry-pick clash
git cherry-pick --abort
git revert --no-edit HEAD
git revert -n HEAD
git revert --no-edit HEAD~1..HEAD
git apply sub.diff
git apply --check sub.diff
git apply -R sub.diff
git diff main other -- new.py | git apply
git diff main apart -- sub | git apply
git diff main apart -- . ':!sub' | git apply
git diff main apart -- . ':(exclude)both.py' > ../x.diff; git apply ../x.diff
cd sub && git diff main apart -- . | git apply
git diff --name-only main apart -- . ':!sub' | xargs rm -f
git diff --name-only main...other | xargs rm -f
git fetch -q origin remote-only && git merge -q FETCH_HEAD
git fetch -q . other && git checkout FETCH_HEAD -- .
git checkout other -- . ':!new.py'
git checkout -- . ':(exclude)held.py'
cd sub && git checkout -- :/calm.py
git stash push -q -- ':!held.py'
git stash show -p stash@{0} | git apply
git clean -fd -- ':!untracked.txt'
git log --format=%H main..apart | tac | xargs -n1 git cherry-pick
for c in $(git rev-list --reverse main..other); do git cherry-pick $c; done
git checkout -q $(git rev-list -1 other)
git am ../apart.mbox
git am --abort
git stash
git stash push -q -m wip
git stash -u
git stash --all
git stash push held.py
git stash push -- sub
git stash --staged
git stash pop
git stash apply stash@{0}
git stash pop 1
git stash branch saved
git stash drop
git stash list
git stash show -p
git stash --help
git clean -n
git clean -f
git clean -fd
git clean -fdx -e .dibs
git clean -f sub
git clean -fq -- untracked.txt
git clean -fd -e '*.txt'
git commit -qam x
git add -A && git commit -qm x
git commit -q --amend --no-edit
git branch -f apart
git tag v1
git worktree add -q ../beside
git bisect start
git bisect start && git bisect bad && git bisect good HEAD~1
git bisect start && git bisect good HEAD~1 && git bisect bad HEAD
git bisect start HEAD HEAD~1
git bisect start other main~1
git bisect reset
git read-tree -u -m other
git read-tree other
git checkout-index -a
git checkout-index -f -a
git submodule update --init
git sparse-checkout list
git checkout apart && git merge -q other
git checkout other && git checkout -
git checkout main && git pull -q
git fetch -q && git rebase -q origin/main
git stash -q && git checkout -q apart && git stash pop -q
git add own.py; git commit -qm x; git checkout apart
cd sub && git checkout other
cd sub && git reset -q --hard
cd sub && git clean -fdq
git -C sub checkout -- .
git -C sub stash
""".strip().splitlines()

# Those that depend on what git is in the midst of.
UNDER_WAY = """
git checkout .
git checkout other
git checkout -m other
git switch apart
git switch --discard-changes apart
git restore .
git reset --hard
git reset --merge
git merge other
git merge --abort
git merge --continue
git rebase --abort
git rebase --continue
git rebase --skip
git cherry-pick --abort
git revert --abort
git stash
git stash push -- sub
git stash --staged
git pull
git checkout-index -f -a
git add -A && git commit -qm x
git add -A && git rebase --continue
""".strip().splitlines()

# Denied although the file is afterwards as it was before.
SPARE = {
    "git stash --all": "it would take the store of dibs away",
    "git checkout other && git checkout -": "another content is there in between",
    "git stash -q && git checkout -q apart && git stash pop -q": "their work is gone in between",
    "git rebase --autostash other": "their work is gone in between",
    "git pull --rebase --autostash": "their work is gone in between",
}


def refusal(shell: Shell, command: str) -> str:
    """What the hook of another agent says before a command, without a process of its own."""
    occasion = Occasion("claude", BEFORE)
    occasion.cwd, occasion.command, occasion.session = str(shell.folder), command, "bob"
    with Globals().open(start=occasion.cwd) as space:
        case = hook.case_of(space, occasion)
        edits = hook.planned(occasion)
        denied = "" if edits is None else before(case, edits).deny
        abandon(case)
        return denied


STEPS = [("clean dirty", command) for command in COMMANDS] + [
    ("merging rebasing", command) for command in UNDER_WAY
]


@pytest.mark.short(3)
@pytest.mark.parametrize(("states", "command"), STEPS)
def test_a_command_of_git_is_denied_if_it_changes_what_is_held_and_only_then(
    worlds: dict[str, World],
    tmp_path: Path,
    states: str,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = []
    shell = next(iter(worlds["clean"].held.values()))
    monkeypatch.setattr(narrowing, "ASK_S", 60)
    for key, value in (shell.environment | {"CLAUDE_PID": str(os.getpid())}).items():
        monkeypatch.setenv(key, value)
    for state in states.split():
        world = worlds[state]
        changed = changed_by(command, world, tmp_path / state)
        for name, shell in world.held.items():
            denied = refusal(shell, command)
            touched = any(f"{name}/".startswith(f"{one}/") for one in changed)
            if bool(denied) != touched and not (denied and command in SPARE):
                wrong.append(
                    f"{state}: {name} is {'' if touched else 'not '}changed; {denied[-100:]}"
                )
    assert not wrong, "\n".join(wrong)


# With the real hooks of two clients


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path, scrubbed(tmp_path / "home"))
    return shell.at(build(tmp_path, shell))


@pytest.fixture
def clients(shell: Shell) -> Iterator[tuple[Client, Client]]:
    both = Client(shell, "a"), Client(shell, "b")
    yield both
    for client in both:
        client.kill()


def leases(client: Client) -> list[str]:
    return [one["resource"] for one in client.shell.json("leases")]


def test_what_a_merge_changes_is_leased_for_its_time_and_nothing_else(
    clients: tuple[Client, Client],
) -> None:
    a, b = clients
    a.write("calm.py", "a\n")
    assert not b.before("Bash", command="git merge -q other && make test").denied
    assert leases(a) == ["calm.py", "held.py", "new.py"]
    assert '"held.py" is held by' in a.write("held.py", "a\n").denied
    assert not a.write("both.py", "a\n").denied
    b.shell.sh("git merge -q other")
    b.after("Bash", command="git merge -q other && make test")
    assert leases(a) == ["both.py", "calm.py"]
    assert not a.write("held.py", "a\n").denied


def test_what_one_holds_already_stays_held_after_a_command(clients: tuple[Client, Client]) -> None:
    a, b = clients
    a.write("calm.py", "a\n")
    b.before("Write", file_path=str(b.folder / "held.py"), content="x")
    assert not b.bash("git merge -q other").denied
    assert leases(a) == ["calm.py", "held.py"]


def asked(folder: Path) -> list[list[str]]:
    """The words of every git that was run, as git itself has noted them."""
    texts = [file.read_text() for file in folder.iterdir()]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return [line["argv"] for line in lines if line["event"] == "start"]


@pytest.mark.parametrize(
    "command", ["git checkout other", "git stash", "git clean -fd", "git pull"]
)
def test_git_is_not_asked_what_would_change_for_an_agent_that_is_alone(
    clients: tuple[Client, Client], tmp_path: Path, command: str
) -> None:
    a, b = clients
    b.write("own.py", "b\n")
    b.bash("git add own.py")
    runs = tmp_path / "runs"
    runs.mkdir()
    b.shell = b.shell.with_(GIT_TRACE2_EVENT=str(runs))
    assert b.before("Bash", command=command).quiet
    b.after("Bash", command=command)
    assert all(map(keeps, asked(runs)))
    a.write("calm.py", "a\n")
    b.before("Bash", command=command)
    assert not all(map(keeps, asked(runs)))


def keeps(words: list[str]) -> bool:
    """Whether git is asked for what has to be kept before a command can destroy it."""
    return not {"--porcelain=v2", "for-each-ref", "rev-list"}.isdisjoint(words)


def test_thousands_of_changed_files_are_no_thousands_of_leases(
    clients: tuple[Client, Client],
) -> None:
    a, b = clients
    b.shell.sh(
        "git checkout -q -b many && mkdir many && (cd many && touch f{1..3000}.py)"
        " && echo x > own.py && git add -A && git commit -qm many && git checkout -q main"
    )
    a.write("calm.py", "a\n")
    assert not b.before("Bash", command="git merge -q many").denied
    assert leases(a) == ["calm.py"]
    b.after("Bash", command="git merge -q many")
    a.before("Write", file_path=str(a.folder / "own.py"), content="a")
    assert '"own.py" is held by' in b.before("Bash", command="git merge -q many").denied


SLOW = """#!/bin/sh
case " $* " in *" status "*|*" diff "*) exec sleep 6;; esac
exec {git} "$@"
"""


def test_a_git_that_is_too_slow_stops_only_what_takes_work_away(
    clients: tuple[Client, Client], tmp_path: Path
) -> None:
    a, b = clients
    a.write("calm.py", "a\n")
    slow = tmp_path / "slow/git"
    slow.parent.mkdir()
    slow.write_text(SLOW.format(git=shutil.which("git")))
    slow.chmod(0o755)
    b.shell = b.shell.with_(PATH=f"{slow.parent}:{b.shell.environment['PATH']}")
    assert not b.before("Bash", command="git merge other").denied
    assert '"calm.py" is held by' in b.before("Bash", command="git reset --hard").denied


def test_the_store_is_not_cleaned_away_under_others(clients: tuple[Client, Client]) -> None:
    a, b = clients
    a.write("calm.py", "a\n")
    assert "git clean … -e .dibs" in b.before("Bash", command="git clean -fdx").denied
    assert not b.before("Bash", command="git clean -fdx -e .dibs").denied


def test_a_command_in_another_repository_is_nobodys_business_here(
    clients: tuple[Client, Client], tmp_path: Path
) -> None:
    a, b = clients
    a.write("calm.py", "a\n")
    b.shell.sh(f"git init -q {tmp_path / 'elsewhere'}")
    for command in ("git -C ../elsewhere reset --hard", "cd ../elsewhere && git stash"):
        assert b.before("Bash", command=command).quiet
    for command in ("GIT_DIR=.git git reset --hard", "git --git-dir=.git --work-tree=. stash"):
        assert '"calm.py" is held by' in b.before("Bash", command=command).denied


def test_an_unknown_branch_of_a_variable_is_left_to_the_look_afterwards(
    clients: tuple[Client, Client],
) -> None:
    a, b = clients
    a.write("calm.py", "a\n")
    assert not b.before("Bash", command='git checkout "$BRANCH"').denied
    assert b.before("Bash", command='git reset --hard "$BRANCH"').denied
