"""The index of a checkout: where it is, and what is staged in it.

Inside a hook git says which index it is about to commit (GIT_INDEX_FILE): with `git commit -a`
or `git commit -- path` that is another file than the checkout's own, and only what it holds
goes into the commit. `git diff` reads that variable by itself.
"""

from __future__ import annotations

import os

from dibs.names.checkouts import git_directory
from dibs.surroundings.git import git, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from dibs.names.paths import Place

LEASE = "git:index"
# Settings of the user must not change what is listed. Without renames, both names of a file
# that was moved are there.
DIFF = (
    "diff", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", "--no-relative",
    "--no-ext-diff", "--no-color", "--ignore-submodules=none",
)  # fmt: skip


def staged(cwd: str | None = None, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Each path that differs between HEAD and the index, with its mode and blob there."""
    found, fields = {}, names(git(*DIFF, cwd=cwd, environment=environment))
    for described, path in zip(fields[::2], fields[1::2], strict=True):
        _, mode, _, blob, _ = described.split(" ")
        found[path] = f"{mode} {blob}"
    return found


def own_git_dir() -> str:
    """The git directory of the hook's checkout, as git says it."""
    said = os.environ.get("GIT_DIR") or os.fsdecode(git("rev-parse", "--git-dir")).rstrip("\n")
    return os.path.realpath(said)


def index_name(place: Place, directory: str) -> str:
    """What the index of a git directory is called among the leases of the space.

    `git:index` in the main checkout, `git:index:NAME` in the linked worktree of that name.
    """
    inside = os.path.relpath(directory, git_directory(place.root))
    return LEASE if inside == "." else f"{LEASE}:{inside.removeprefix('worktrees/')}"
