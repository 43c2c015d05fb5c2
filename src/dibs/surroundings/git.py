"""Run git, as few times as possible: each run costs as much as the rest of a hook."""

from __future__ import annotations

import os

from dibs.errors import UnavailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

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
    environment: Mapping[str, str] | None = None,
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
