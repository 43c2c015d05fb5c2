"""The user's commands that may resolve a conflict, or repair a failed verification."""

from __future__ import annotations

import os
import re
from functools import partial

from dibs.errors import UnavailableError
from dibs.landing.verifying import tail_of
from dibs.surroundings.git import elsewhere, git, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from dibs.landing.verifying import Runner, Worktree

LIMIT_S = 1_800.0
MARKERS = re.compile(rb"^(<{7}|>{7}) ", re.MULTILINE)
READ_BYTES = 64 << 20
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "dibs"), ("EMAIL", "dibs@localhost"))
}


def resolved(
    worktree: Worktree,
    runner: Runner,
    command: str,
    tip: str,
    commit: str,
    files: tuple[str, ...],
    told: Mapping[str, str | None],
) -> tuple[str, str]:
    """Let a command resolve the conflicts of a merge; return the tree, or why there is none."""
    folder = worktree.at(tip)
    call = partial(git, cwd=folder, environment=elsewhere() | IDENTITY, timeout_s=600)
    call("merge", "-q", "--no-commit", "--no-ff", commit, codes=(0, 1))
    listed = {"DIBS_LAND_FILES": "\n".join(files), "DIBS_LAND_COMMIT": commit}
    said = ran(worktree, runner, command, folder, {**told, **listed})
    if said:
        return "", said
    there = [file for file in files if os.path.lexists(f"{folder}/{file}")]
    for file in there:
        if has_markers(f"{folder}/{file}"):
            return "", f"{file} still has conflict markers"
    try:
        call("add", "-u")
        call("add", "-f", "--", *(f":(top,literal){file}" for file in there))
        if names(call("ls-files", "-u", "-z")):
            return "", "files are still in conflict"
        return call("write-tree").decode().strip(), ""
    except UnavailableError as error:
        return "", error.message


def repaired(
    worktree: Worktree,
    runner: Runner,
    command: str,
    end: str,
    before: str,
    commit: str,
    text: str,
    told: Mapping[str, str | None],
) -> tuple[str, tuple[str, ...]]:
    """Let a command repair a merge; return the new merge and its paths, "" if there is none.

    before: the end of the train before the merge
    text: the message of the merge
    """
    folder = worktree.at(end)
    if ran(worktree, runner, command, folder, {**told, "DIBS_LAND_COMMIT": end}):
        return "", ()
    # With the same author as the merge: the user's own name, if git knows it.
    call = partial(git, cwd=folder, environment=elsewhere(), timeout_s=600)
    try:
        call("add", "-A")
        tree = call("write-tree").decode().strip()
        if tree == call("rev-parse", f"{end}^{{tree}}").decode().strip():
            return "", ()
        files = names(call("diff-tree", "-r", "-z", "--name-only", "--no-renames", before, tree))
        known = call("var", "GIT_COMMITTER_IDENT", codes=(0, 128))
        write = partial(call, environment=elsewhere() if known else elsewhere() | IDENTITY)
        parents = ("-p", before, "-p", commit)
        made = write("commit-tree", *parents, tree, input=f"{text}\n".encode())
    except UnavailableError:
        return "", ()
    return made.decode().strip(), tuple(files)


def ran(
    worktree: Worktree, runner: Runner, command: str, folder: str, told: Mapping[str, str | None]
) -> str:
    """Run a command in a checkout; return "" if it succeeds, otherwise how it ended."""
    file, log = worktree.new_log()
    try:
        code, ended = runner.run(command, folder, log, LIMIT_S, told)
    finally:
        os.close(log)
    if ended:
        return ended
    if code:
        return f"exit code {code}: {tail_of(file)[-500:]}"
    os.unlink(file)
    return ""


def has_markers(file: str) -> bool:
    if os.path.islink(file) or not os.path.isfile(file):
        return False
    with open(file, "rb") as text:
        return MARKERS.search(text.read(READ_BYTES)) is not None
