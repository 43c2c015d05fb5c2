"""Run git, as few times as possible: each run costs as much as the rest of a hook."""

from __future__ import annotations

import os

from dibs.errors import UnavailableError

COMMIT = ("pre-commit", "pre-merge-commit")
LEARN = ("post-checkout", "post-merge", "post-rewrite")
HOOKS = (*COMMIT, "prepare-commit-msg", "post-commit", "pre-push", *LEARN)
"""The hooks of git that `dibs init` installs."""
STOPPING = (*COMMIT, "prepare-commit-msg", "pre-push")
"""Those that can keep something from happening; the others come too late for that."""

# What ties a git process to one repository; a hook has them, and must not hand them on to a
# git that is to look at another one.
LOCAL = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_WORK_TREE",
)  # fmt: skip


def git(
    *words: str,
    cwd: str | None = None,
    environment: dict[str, str] | None = None,
    input: bytes = b"",
    codes: tuple[int, ...] = (0,),
) -> bytes:
    """What a git command prints; an `UnavailableError` if it ends with another code than these."""
    import subprocess

    try:
        done = subprocess.run(
            ["git", *words], cwd=cwd, env=environment, input=input, capture_output=True, check=False
        )
    except OSError as error:
        raise UnavailableError(f"git cannot be run: {error.strerror}") from error
    if done.returncode not in codes:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        name = next(word for word in words if word[:1] != "-" and "=" not in word)
        raise UnavailableError(f"git {name} failed: {said}", next="see what git status says")
    return done.stdout


def elsewhere() -> dict[str, str]:
    """The environment for a git that is to find its repository from where it runs."""
    mine = {
        # Some clients switch hooks off in their shells; the repository has them all the same.
        name: "dibs.ignored" if value.lower() == "core.hookspath" else value
        for name, value in os.environ.items()
        if name not in LOCAL
    }
    # To look must not write: a refresh of the index would look like a change of it.
    return mine | {"GIT_OPTIONAL_LOCKS": "0"}


def names(output: bytes) -> list[str]:
    """The parts of what git prints with `-z`."""
    return [os.fsdecode(part) for part in output.split(b"\0") if part]


# Settings of the user must not change what is listed. Without renames, both names of a file
# that was moved are there.
STAGED = (
    "diff", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", "--no-relative",
    "--no-ext-diff", "--no-color", "--ignore-submodules=none",
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
    """The git directory of the hook's checkout, as git says it."""
    said = os.environ.get("GIT_DIR") or os.fsdecode(git("rev-parse", "--git-dir")).rstrip("\n")
    return os.path.realpath(said)
