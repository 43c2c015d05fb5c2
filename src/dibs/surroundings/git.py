"""Run git, as few times as possible: each run costs as much as the rest of a hook.

All these runs only read, and the repository may come from a stranger. So every program that its
settings could make git run is switched off: `OFF` for every call, and the filters and merge drivers
of the repository's own settings for calls that could use them (`quieted`). Those of the user's
settings work, so files of git-lfs are recognised. No run contacts another machine. Commands that a
person asks for (`dibs merge`, commits) run the user's git unchanged.
"""

from __future__ import annotations

import os

from dibs.errors import InvalidError, UnavailableError
from dibs.names.checkouts import checkout_around

COMMIT = ("pre-commit", "pre-merge-commit")
LEARN = ("post-checkout", "post-merge", "post-rewrite")
HOOKS = (*COMMIT, "prepare-commit-msg", "post-commit", "pre-push", *LEARN)
"""The hooks of git that `dibs init` installs."""
STOPPING = (*COMMIT, "prepare-commit-msg", "pre-push")
"""Those that can prevent something; the others run too late for that."""

# These tie a git process to one repository. A hook has them, and must not pass them on to a git
# that looks at another repository.
LOCAL = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_WORK_TREE",
)  # fmt: skip


# Left out: what only other commands use, such as editors, pagers and aliases.
OFF = tuple(
    word
    for setting in (
        "core.fsmonitor=false", "core.alternateRefsCommand=",
        "core.askPass=", "core.sshCommand=false", "core.gitProxy=", "credential.helper=",
        "protocol.allow=never", "submodule.recurse=false", "fetch.recurseSubmodules=false",
        "status.submoduleSummary=false", "diff.submodule=short", "log.showSignature=false",
        "commit.gpgSign=false", "gpg.program=false", "gpg.ssh.program=false",
        "gpg.x509.program=false", "gpg.ssh.defaultKeyCommand=", "safe.bareRepository=explicit",
        "maintenance.auto=false", "gc.auto=0",
    )
    for word in ("-c", setting)
)  # fmt: skip
ALONE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "", "GIT_TERMINAL_PROMPT": "0"}
PLAIN = ("--no-ext-diff", "--no-textconv")
COMPARING = ("diff", "log", "show", "diff-tree", "diff-index", "diff-files")
UNFILTERED = (
    "rev-parse", "config", "cat-file", "rev-list", "log", "diff", "diff-tree", "merge-base",
    "worktree", "submodule", "version", "for-each-ref", "ls-tree",
)  # fmt: skip
"""Commands that read no file of the working tree. Those that write an index do read some."""
SECTIONS = (b"[filter", b"[merge", b"[lfs", b"[include")
"""The prefixes of settings that can name such a program."""
ELSEWHERE = {"GIT_DIR", "GIT_COMMON_DIR"}
MERGE_TREE = (2, 38)
"""The first version of git that can merge without a working tree."""
LFS = ("git-lfs clean -- %f", "git-lfs smudge -- %f", "git-lfs filter-process")
"""What `git lfs install --local` writes; it runs the user's own program."""


def git(
    *words: str,
    cwd: str | None = None,
    environment: dict[str, str] | None = None,
    input: bytes = b"",
    codes: tuple[int, ...] = (0,),
    settings: tuple[str, ...] = OFF,
    timeout_s: float = 60,
) -> bytes:
    """The output of a git command; an `UnavailableError` if it exits with another code.

    settings: None for commands that a person asks for, which use the filters of the repository
    timeout_s: a stranger's repository may have a file that git never finishes reading
    """
    import subprocess

    verb = words[place_of_verb(words)]
    command, environment = prepared(words, cwd, environment, settings)
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environment, input=input,
            capture_output=True, check=False, timeout=timeout_s,
        )  # fmt: skip
    except OSError as error:
        raise UnavailableError(f"git cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        why = f"git {verb} did not finish within {timeout_s:g} s"
        raise UnavailableError(why, next="check with git status") from None
    if done.returncode not in codes:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise UnavailableError(f"git {verb} failed: {said}", next="check with git status")
    return done.stdout


def place_of_verb(words: tuple[str, ...]) -> int:
    return next(place for place, word in enumerate(words) if word[:1] != "-" and "=" not in word)


def prepared(
    words: tuple[str, ...],
    cwd: str | None,
    environment: dict[str, str] | None,
    settings: tuple[str, ...] = OFF,
) -> tuple[list[str], dict[str, str]]:
    """The command line and environment of a git that runs no program of the repository."""
    at = place_of_verb(words)
    if words[at] in COMPARING:
        words = (*words[: at + 1], *PLAIN, *words[at + 1 :])
    environment = {**(os.environ if environment is None else environment), **ALONE}
    # A command that runs no hook may show where they are.
    hooks = () if words[at] == "rev-parse" else ("-c", "core.hooksPath=/dev/null")
    if words[at] not in UNFILTERED and settings:
        environment |= quieted(cwd, environment)
    return ["git", *settings, *hooks, *words], environment


def quieted(cwd: str | None, environment: dict[str, str]) -> dict[str, str]:
    """Options that switch off the filters and merge drivers of a repository's own settings.

    They also switch off the user's filters of the same name; then a file looks changed.
    """
    from dibs.names.owners import may_define

    place = os.path.realpath(cwd or os.getcwd())
    if not ELSEWHERE & environment.keys() and not may_define(place, SECTIONS):
        return {}  # most have none: this saves a run
    wanted = r"^(filter|merge|lfs)\..*\.(clean|smudge|process|required|driver)$"
    said = git("config", "-z", "--show-scope", "--get-regexp", wanted, cwd=cwd,
               environment=environment, codes=(0, 1))  # fmt: skip
    fields = os.fsdecode(said).split("\0")
    found = {}
    for scope, entry in zip(fields[::2], fields[1::2], strict=False):
        key, _, value = entry.partition("\n")
        if scope in ("local", "worktree") and value not in LFS:
            # An extension of git-lfs is also a program, which the user's git-lfs would run.
            name = "filter.lfs" if key.startswith("lfs.") else key.rpartition(".")[0]
            if key.startswith("merge."):
                found[key] = "false"  # files with another driver count as conflicts
            else:
                found |= {f"{name}.{what}": "" for what in ("clean", "smudge", "process")}
                found[f"{name}.required"] = "false"
    count = environment.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdecimal() and len(count) < 5 else 0
    added = {"GIT_CONFIG_COUNT": str(first + len(found))}
    for number, (key, value) in enumerate(found.items(), first):
        added |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return added


def elsewhere() -> dict[str, str]:
    """The environment of a git that finds its repository from its directory."""
    mine = {
        # Some clients switch hooks off in their shells; the repository still has them.
        name: "dibs.ignored" if value.lower() == "core.hookspath" else value
        for name, value in os.environ.items()
        if name not in LOCAL
    }
    # Reading must not write: a refreshed index would look like a change.
    return mine | {"GIT_OPTIONAL_LOCKS": "0"}


def names(output: bytes) -> list[str]:
    """The parts of an output of git with `-z`."""
    return [os.fsdecode(part) for part in output.split(b"\0") if part]


# Settings of the user must not change the list. Without renames, it has both names of a moved
# file.
STAGED = (
    "diff", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", "--no-relative",
    "--no-color", "--ignore-submodules=none",
)  # fmt: skip


def staged_paths(
    cwd: str | None = None, environment: dict[str, str] | None = None
) -> dict[str, str]:
    """Each path that differs between HEAD and the index, with its mode and blob there.

    Inside a hook git says which index it is about to commit (GIT_INDEX_FILE): with `git commit -a`
    or `git commit -- path` that is another file than the checkout's own, and only what it holds
    goes into the commit. `git diff` reads that variable by itself.
    """
    found, fields = {}, names(git(*STAGED, cwd=cwd, environment=environment))
    for described, path in zip(fields[::2], fields[1::2], strict=True):
        _, mode, _, blob, _ = described.split(" ")
        found[path] = f"{mode} {blob}"
    return found


def own_git_dir() -> str:
    """The git directory of the hook's checkout, as git reports it."""
    said = os.environ.get("GIT_DIR") or os.fsdecode(git("rev-parse", "--git-dir")).rstrip("\n")
    return os.path.realpath(said)


def can_merge(version: str) -> bool:
    """Whether this git can merge without a working tree, from the output of `git version`."""
    numbers = [int(part) for part in version.split()[2].split(".")[:2] if part.isdecimal()]
    return tuple(numbers) >= MERGE_TREE


def worktrees_of(top: str) -> dict[str, str]:
    """The branch of each worktree, by its folder; "" if it has none.

    A bare repository and worktrees that were moved away have no files, and are left out.
    """
    found, root = {}, checkout_around(os.path.realpath(top)).root
    # Without -z, which older versions do not support.
    said = git("worktree", "list", "--porcelain", cwd=top, environment=elsewhere())
    for block in os.fsdecode(said).split("\n\n"):
        facts = dict(line.partition(" ")[::2] for line in block.split("\n") if line)
        path = facts.get("worktree", "")
        if path and "bare" not in facts and is_of(path, root):
            found[path] = facts.get("branch", "").removeprefix("refs/heads/")
    return found


def is_of(path: str, root: str) -> bool:
    """Whether a worktree exists and belongs to this space: a repository may list any folder."""
    try:
        return os.path.exists(f"{path}/.git") and checkout_around(path).root == root
    except InvalidError:
        return False
