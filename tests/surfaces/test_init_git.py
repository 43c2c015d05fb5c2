"""The git hooks of `dibs init`: beside those of others, and out again without a trace.

What the real `dibs hook git` decides is not the matter here, so a script of that name says what
it was asked, and ends as it is told.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from dibs.surroundings.git import HOOKS, STOPPING
from tests.surfaces.repository import Worker
from tests.surfaces.shell import Answer, Shell

STAND_IN = """\
#!/bin/sh
if [ "$2" = git ]; then
  echo "dibs $*" >> "$SEEN"
  case $3 in pre-push | post-rewrite) sed "s/^/  read /" >> "$SEEN" ;; esac
fi
[ "$3" != "$STOPS_AT" ] || exit "$STOPS_WITH"
"""
PREPARED = "dibs hook git prepare-commit-msg .git/COMMIT_EDITMSG message"
"""Asked between the hooks of others before a commit and the commit itself."""


class Repository:
    """A repository whose hooks are watched."""

    def __init__(self, shell: Shell, tmp_path: Path) -> None:
        bin_ = tmp_path / "stand-in"
        bin_.mkdir()
        (bin_ / "dibs").write_text(STAND_IN)
        (bin_ / "dibs").chmod(0o755)
        self.shell = shell
        self.folder = shell.folder
        self.hooks = shell.folder / ".git/hooks"
        self.log = tmp_path / "seen"
        who = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@y", "GIT_COMMITTER_NAME": "x",
               "GIT_COMMITTER_EMAIL": "x@y"}  # fmt: skip
        watched = {"SEEN": str(self.log), "STOPS_AT": "", "STOPS_WITH": "1"}
        path = f"{bin_}:{os.environ['PATH']}"
        self.user = shell.with_(PATH=path, **who, **watched)

    def hook(self, name: str, text: str, mode: int = 0o755) -> Path:
        path = self.hooks / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def git(self, line: str, **variables: str) -> Answer:
        return self.user.with_(**variables).sh(f"git {line}")

    def commit(self, **variables: str) -> Answer:
        return self.git("commit -q --allow-empty -m x", **variables)

    def parted(self) -> None:
        """A branch `other` that has gone on, as the one that is checked out has."""
        for line in ("commit -q --allow-empty -m x", "checkout -q -b other"):
            assert self.git(line).code == 0
        for name in ("theirs", "ours"):
            (self.folder / name).touch()
            assert self.git(f"add {name}").code == 0
            assert self.git(f"commit -q -m {name}").code == 0
            if name == "theirs":
                assert self.git("checkout -q -b ours HEAD~").code == 0
        self.seen()

    def seen(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def state(self) -> dict[str, tuple[int, str | bytes]]:
        """Every hook with its mode, and its link or its content."""
        found: dict[str, tuple[int, str | bytes]] = {}
        for path in sorted(self.hooks.iterdir()):
            mode = stat.S_IMODE(path.lstat().st_mode)
            found[path.name] = (mode, os.readlink(path) if path.is_symlink() else path.read_bytes())
        return found


@pytest.fixture
def repository(shell: Shell, tmp_path: Path) -> Repository:
    return Repository(shell, tmp_path)


# Alone.


def test_git_asks_dibs_at_each_hook(repository: Repository, tmp_path: Path) -> None:
    repository.shell.ok("init")
    bare = tmp_path / "there.git"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    assert repository.commit().code == 0
    expected = ["dibs hook git pre-commit", PREPARED, "dibs hook git post-commit"]
    assert repository.seen() == expected
    head = repository.git("rev-parse HEAD").out.strip()
    assert repository.git(f"push -q {bare} HEAD:refs/heads/main").code == 0
    assert repository.seen() == [
        f"dibs hook git pre-push {bare} {bare}",
        f"  read HEAD {head} refs/heads/main {'0' * 40}",
    ]
    repository.git("commit -q --amend --allow-empty -m y")
    seen = repository.seen()
    assert "dibs hook git post-rewrite amend" in seen
    assert any(line.startswith(f"  read {head} ") for line in seen)
    repository.git("checkout -q -b other")
    (line,) = repository.seen()
    assert line.startswith("dibs hook git post-checkout ") and line.endswith(" 1")


def test_git_asks_dibs_before_and_after_a_merge(repository: Repository) -> None:
    repository.shell.ok("init")
    repository.parted()
    assert repository.git("merge -q other").code == 0
    assert repository.seen() == [
        "dibs hook git pre-merge-commit",
        "dibs hook git prepare-commit-msg .git/MERGE_MSG merge",
        "dibs hook git post-merge 0",
    ]


@pytest.mark.parametrize("hook", STOPPING)
def test_git_stops_if_dibs_says_so(repository: Repository, tmp_path: Path, hook: str) -> None:
    repository.shell.ok("init")
    bare = tmp_path / "there.git"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    repository.parted()
    lines = {"pre-merge-commit": "merge -q other", "pre-push": f"push -q {bare} HEAD:refs/heads/a"}
    line = lines.get(hook, "commit -q --allow-empty -m x")
    assert repository.git(line, STOPS_AT=hook).code != 0
    repository.git("reset -q --merge")
    # Any other end is a failure of dibs, and its own policy decides about those.
    assert repository.git(line, STOPS_AT=hook, STOPS_WITH="70").code == 0


def test_a_clean_merge_of_a_held_file_stops(shell: Shell) -> None:
    """With the real `dibs hook git`."""
    person = Worker.of(shell)
    person.did("commit", "-q", "--allow-empty", "-m", "first")
    person.did("checkout", "-q", "-b", "feature")
    person.stage("theirs.py", "1\n")
    person.did("commit", "-q", "-m", "on feature")
    person.did("checkout", "-q", "-b", "work", "HEAD~")
    person.stage("ours.py", "1\n")
    person.did("commit", "-q", "-m", "on work")
    person.ok("init")
    person.as_("alice").ok("claim", "theirs.py")
    answer = person.as_("bob").git("merge", "-q", "--no-edit", "feature")
    assert answer.code == 1
    assert "theirs.py  alice holds theirs.py" in answer.err
    ways = (
        "wait for them (dibs wait theirs.py; git commit), or give up the merge (git merge --abort)"
    )
    assert f"next: {ways}\n" in answer.err
    # Nor in a second step, in which a part of it cannot be committed.
    assert f"next: {ways}\n" in person.as_("bob").git("commit", "--no-edit").err
    person.did("merge", "--abort")
    person.as_("alice").ok("release", "theirs.py")
    (person.folder / ".dibs/config.toml").write_text('protected = ["theirs.py"]\n')
    answer = person.as_("bob").git("merge", "-q", "--no-edit", "feature")
    assert "next: give up the merge (git merge --abort)\n" in answer.err
    assert person.commits()[0] == "on work"


def test_in_a_shell_without_hooks_those_of_the_repository_are_set_up(
    repository: Repository,
) -> None:
    """As in the shell of Gemini CLI, whose agent may be asked to run it."""
    off = {"COUNT": "1", "KEY_0": "core.hooksPath", "VALUE_0": ""}
    repository.shell.with_(**{f"GIT_CONFIG_{name}": text for name, text in off.items()}).ok("init")
    assert (repository.hooks / "pre-commit").exists()
    assert not (repository.folder / "pre-commit").exists()


def test_what_has_happened_is_not_stopped(repository: Repository) -> None:
    repository.shell.ok("init")
    path = repository.hooks / "post-commit"
    path.write_text(path.read_text() + 'echo mine >> "$SEEN"\n')
    assert repository.commit(STOPS_AT="post-commit").code == 0
    assert "mine" in repository.seen()


def test_without_dibs_git_goes_on_without_a_word(repository: Repository, tmp_path: Path) -> None:
    repository.shell.ok("init")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("git", "sh", "cat", "bash"):
        (tools / name).symlink_to(shutil.which(name) or name)
    answer = repository.commit(PATH=str(tools))
    assert answer.code == 0
    assert (answer.out, answer.err) == ("", "")


# Beside hooks of the user's own.

SHELLS = {
    "sh": "#!/bin/sh\n",
    "env": "#!/usr/bin/env bash\nset -euo pipefail\n",
    "strict": "#!/bin/bash -eu\n",
    "no first line": "",
}


@pytest.mark.parametrize("head", SHELLS)
@pytest.mark.parametrize("code", [0, 1, 7])
def test_a_shell_script_runs_after_ours_and_its_end_counts(
    repository: Repository, head: str, code: int
) -> None:
    text = f'{SHELLS[head]}echo mine "$0" >> "$SEEN"\nexit {code}\n'
    path = repository.hook("pre-commit", text, 0o750)
    before = repository.state()
    repository.shell.ok("init")
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert path.read_text().startswith(SHELLS[head].partition("\n")[0])
    assert (repository.commit().code == 0) == (code == 0)
    assert repository.seen()[:2] == ["dibs hook git pre-commit", "mine .git/hooks/pre-commit"]
    assert repository.commit(STOPS_AT="pre-commit").code == 1
    assert repository.seen() == ["dibs hook git pre-commit"]
    repository.shell.ok("init", "--remove")
    assert repository.state() == before


READS = {
    "sh": '#!/bin/sh\nwhile read -r a b c d; do echo "mine $c" >> "$SEEN"; done\n',
    "bash": '#!/bin/bash -e\nmapfile -t lines\necho "mine ${#lines[@]}" >> "$SEEN"\n',
}


@pytest.mark.parametrize("kind", READS)
def test_a_hook_that_reads_what_git_tells_it_still_can(
    repository: Repository, tmp_path: Path, kind: str
) -> None:
    repository.hook("pre-push", READS[kind])
    repository.shell.ok("init")
    bare = tmp_path / "there.git"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    repository.commit()
    repository.seen()
    repository.git(f"push -q {bare} HEAD:refs/heads/a HEAD:refs/heads/b")
    mine = [line for line in repository.seen() if line.startswith("mine")]
    assert mine == (["mine refs/heads/a", "mine refs/heads/b"] if kind == "sh" else ["mine 2"])
    repository.git(f"push -q {bare} HEAD:refs/heads/a")  # nothing to do: git says nothing
    mine = [line for line in repository.seen() if line.startswith("mine")]
    assert mine == ([] if kind == "sh" else ["mine 0"])


def test_another_language_is_moved_aside_and_called(repository: Repository) -> None:
    text = (
        "#!/usr/bin/env python3\nimport os, sys\n"
        "open(os.environ['SEEN'], 'a').write(f'mine {sys.argv[1:]} {sys.stdin.read()!r}\\n')\n"
        "sys.exit(int(os.environ.get('MINE', '0')))\n"
    )
    repository.hook("pre-commit", text)
    repository.hook("pre-push", text)
    before = repository.state()
    repository.shell.ok("init")
    assert repository.commit().code == 0
    assert repository.seen()[:2] == ["dibs hook git pre-commit", "mine [] ''"]
    assert repository.commit(MINE="3").code == 1
    assert repository.commit(STOPS_AT="pre-commit").code == 1
    repository.seen()
    pushed = repository.user.sh("printf 'a b c d\\n' | .git/hooks/pre-push one two")
    assert pushed.code == 0
    assert repository.seen()[-1] == "mine ['one', 'two'] 'a b c d\\n'"
    assert repository.shell("init", "--check").code == 0
    repository.shell.ok("init", "--remove")
    assert repository.state() == before


def test_a_program_and_a_link_are_moved_aside_and_called(repository: Repository) -> None:
    shutil.copy(shutil.which("false") or "/bin/false", repository.hooks / "pre-commit")
    shared = repository.folder / "shared.sh"
    shared.write_text('#!/bin/sh\necho "mine $0" >> "$SEEN"\n')
    shared.chmod(0o755)
    (repository.hooks / "post-commit").symlink_to("../../shared.sh")
    before, was = repository.state(), shared.read_text()
    repository.shell.ok("init")
    assert shared.read_text() == was
    assert repository.commit().code == 1
    assert repository.seen() == ["dibs hook git pre-commit"]
    assert repository.git("commit -q --allow-empty --no-verify -m x").code == 0
    assert repository.seen()[-1] == "mine .git/hooks/post-commit.before-dibs"
    repository.shell.ok("init", "--remove")
    assert repository.state() == before


def test_a_hook_that_is_switched_off_stays_off(repository: Repository) -> None:
    repository.hook("pre-commit", '#!/bin/sh\necho mine >> "$SEEN"\nexit 1\n', mode=0o644)
    before = repository.state()
    repository.shell.ok("init")
    assert repository.commit().code == 0
    assert "mine" not in repository.seen()
    shutil.rmtree(repository.folder / ".dibs")
    repository.shell.ok("init", "--remove")
    assert repository.state() == before


def test_a_hook_that_takes_the_place_of_ours_is_not_lost(repository: Repository) -> None:
    repository.hook("pre-commit", "#!/usr/bin/env python3\nprint('old')\n")
    repository.shell.ok("init")
    repository.hook("pre-commit", "#!/usr/bin/env python3\nprint('new')\n")
    before = repository.state()
    answer = repository.shell("init")
    assert answer.code == 1
    assert "pre-commit.before-dibs" in answer.out
    assert repository.state() == before


def test_an_older_block_is_replaced_where_it_stands(repository: Repository) -> None:
    repository.shell.ok("init")
    path = repository.hook("pre-commit", '#!/bin/sh\necho mine >> "$SEEN"\n')
    repository.shell.ok("init")
    path.write_text(path.read_text().replace("command -v dibs", "command -v dips"))
    assert repository.shell("init", "--check").code == 1
    repository.shell.ok("init")
    assert path.read_text().count("dibs:begin") == 1
    repository.shell.ok("init", "--remove")
    assert path.read_text() == '#!/bin/sh\necho mine >> "$SEEN"\n'


# Beside programs that look after hooks.


def test_core_hooks_path_is_honoured(repository: Repository) -> None:
    repository.hooks = repository.folder / "tools/hooks"
    repository.hook("pre-commit", '#!/bin/sh\necho mine >> "$SEEN"\n')
    before = repository.state()
    repository.git("config core.hooksPath tools/hooks")
    repository.shell.at(repository.folder / "src").ok("init")
    assert repository.commit().code == 0
    expected = ["dibs hook git pre-commit", "mine", PREPARED, "dibs hook git post-commit"]
    assert repository.seen() == expected
    assert not (repository.folder / ".git/hooks/pre-commit").exists()
    repository.shell.ok("init", "--remove")
    assert repository.state() == before


def test_hooks_that_other_repositories_share_are_left_alone(
    repository: Repository, tmp_path: Path
) -> None:
    shared = tmp_path / "shared-hooks"
    shared.mkdir()
    repository.git(f"config core.hooksPath {shared}")
    answer = repository.shell.ok("init")
    assert "core.hooksPath is" in answer.err and 'dibs hook git NAME "$@"' in answer.err
    assert list(shared.iterdir()) == []
    assert repository.shell("init", "--check").code == 0


HUSKY = """\
#!/usr/bin/env sh
[ "$HUSKY" = "2" ] && set -x
n=$(basename "$0")
s=$(dirname "$(dirname "$0")")/$n

[ ! -f "$s" ] && exit 0
[ "${HUSKY-}" = "0" ] && exit 0
sh -e "$s" "$@"
c=$?
[ $c != 0 ] && echo "husky - $n script failed (code $c)"
exit $c
"""


def test_husky_keeps_working_and_survives_its_own_installation(repository: Repository) -> None:
    inner = repository.folder / ".husky/_"
    inner.mkdir(parents=True)

    def install() -> None:
        (inner / "h").write_text(HUSKY)
        for name in HOOKS:
            (inner / name).write_text('#!/usr/bin/env sh\n. "$(dirname "$0")/h"')
            (inner / name).chmod(0o755)
        repository.git("config core.hooksPath .husky/_")

    install()
    mine = repository.folder / ".husky/pre-commit"
    mine.write_text('echo mine >> "$SEEN"\n')
    mine.chmod(0o644)
    repository.shell.ok("init")
    assert stat.S_IMODE(mine.stat().st_mode) == 0o644
    install()
    assert repository.commit().code == 0
    expected = ["dibs hook git pre-commit", "mine", PREPARED, "dibs hook git post-commit"]
    assert repository.seen() == expected
    assert repository.commit(STOPS_AT="pre-commit").code == 1
    assert repository.commit(STOPS_AT="pre-commit", STOPS_WITH="70").code == 0
    assert repository.shell("init", "--check").code == 0
    repository.shell.ok("init", "--remove")
    assert mine.read_text() == 'echo mine >> "$SEEN"\n'
    assert [path.name for path in mine.parent.iterdir() if path.is_file()] == ["pre-commit"]


# What the script of pre-commit does, without the program behind it.
PRE_COMMIT = """\
#!/usr/bin/env bash
# File generated by pre-commit: https://pre-commit.com
# ID: 138fd403232d2ddd5efb44317e38bf03
here="$(cd "$(dirname "$0")" && pwd)"
legacy="$here/$(basename "$0").legacy"
code=0
if [ -x "$legacy" ]; then "$legacy" "$@" || code=1; fi
echo framework >> "$SEEN"
exit $code
"""


def test_pre_commit_keeps_working_and_survives_its_own_installation(repository: Repository) -> None:
    path = repository.hook("pre-commit", PRE_COMMIT)
    before = repository.state()
    repository.shell.ok("init")
    assert path.read_text() == PRE_COMMIT
    path.write_text(PRE_COMMIT)  # as `pre-commit install` does
    assert repository.commit().code == 0
    expected = ["dibs hook git pre-commit", "framework", PREPARED, "dibs hook git post-commit"]
    assert repository.seen() == expected
    assert repository.commit(STOPS_AT="pre-commit").code == 1
    assert repository.shell("init", "--check").code == 0
    repository.shell.ok("init", "--remove")
    assert repository.state() == before


def test_pre_commit_that_is_installed_after_us_takes_us_along(repository: Repository) -> None:
    repository.shell.ok("init")
    path = repository.hooks / "pre-commit"
    path.rename(repository.hooks / "pre-commit.legacy")  # as `pre-commit install` does
    repository.hook("pre-commit", PRE_COMMIT)
    assert repository.shell("init", "--check").code == 0
    repository.commit()
    assert repository.seen()[:2] == ["dibs hook git pre-commit", "framework"]
    repository.shell.ok("init", "--remove")
    assert not (repository.hooks / "pre-commit.legacy").exists()
    assert path.read_text() == PRE_COMMIT


LEFTHOOK = """\
#!/bin/sh

if [ "$LEFTHOOK_VERBOSE" = "1" -o "$LEFTHOOK_VERBOSE" = "true" ]; then
  set -x
fi

if [ "$LEFTHOOK" = "0" ]; then
  exit 0
fi

call_lefthook()
{
  echo "lefthook $*" >> "$SEEN"
}

call_lefthook run "pre-commit" "$@"
"""


def test_lefthook_keeps_working_and_check_says_when_it_has_written_over_us(
    repository: Repository,
) -> None:
    path = repository.hook("pre-commit", LEFTHOOK)
    repository.shell.ok("init")
    assert repository.commit().code == 0
    assert repository.seen() == [
        "dibs hook git pre-commit",
        "lefthook run pre-commit",
        PREPARED,
        "dibs hook git post-commit",
    ]
    path.write_text(LEFTHOOK)  # as `lefthook install` does
    answer = repository.shell("init", "--check")
    assert (answer.code, answer.out) == (1, ".git/hooks/pre-commit: not as dibs init writes it\n")
    repository.shell.ok("init")
    assert repository.shell("init", "--check").code == 0
    repository.shell.ok("init", "--remove")
    assert path.read_text() == LEFTHOOK


def test_the_repositories_of_submodules_are_asked_too(
    repository: Repository, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    script = f"git init -q {other} && cd {other} && git commit -q --allow-empty -m x"
    assert repository.user.sh(script).code == 0
    add = f"git -c protocol.file.allow=always submodule --quiet add {other} sub"
    assert repository.user.sh(add).code == 0
    repository.shell.ok("init")
    assert repository.user.sh("cd sub && git commit -q --allow-empty -m y").code == 0
    message = repository.folder / ".git/modules/sub/COMMIT_EDITMSG"
    assert repository.seen() == [
        "dibs hook git pre-commit",
        f"dibs hook git prepare-commit-msg {message} message",
        "dibs hook git post-commit",
    ]
    repository.shell.ok("init", "--remove")
    hooks = repository.folder / ".git/modules/sub/hooks"
    assert [path.name for path in hooks.iterdir() if not path.name.endswith(".sample")] == []


def test_a_hook_of_git_that_runs_init_does_not_lead_it_astray(repository: Repository) -> None:
    """Git tells its hooks where it is, and that must not be taken for where we are."""
    other = repository.folder.parent / "another"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    repository.shell.with_(GIT_DIR=str(other / ".git")).ok("init")
    assert (repository.hooks / "pre-commit").exists()
    assert not (other / ".git/hooks/pre-commit").exists()
