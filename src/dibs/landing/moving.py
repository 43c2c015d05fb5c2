"""Moving a branch from one commit to another, together with its checkouts.

The branch moves only by compare-and-set: `git update-ref` with the old value. A checkout of the
branch must follow, because the next commit made there would undo whatever its index lacks. So the
index is locked meanwhile, as git locks it, and nobody can stage or commit in between. Uncommitted
changes stay as they are, as with `git merge`. If a file with uncommitted changes would have to
change, the checkout is not touched, and the branch does not move either.

The lock file says what is being done, and its owner holds a kernel lock on it. If the owner dies,
the next process that moves the branch notices, and finishes the work (`recover`).
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack
from functools import partial

from dibs.errors import UnavailableError
from dibs.names.checkouts import git_directory
from dibs.records import folder, visible
from dibs.surroundings.git import elsewhere, git, names, worktrees_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

MARK = b"dibs land "
INDEX = "index.dibs-land"
"""The new index that is built while `index.lock` is held."""
LOCK_S = 5.0
STEP_S = 0.05
TRIES = 10
NAMED = 5
UNDER_WAY = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
}
"""Git's files for operations in progress in a checkout."""
THEN = "then dibs land --run"


class InTheWayError(UnavailableError):
    """A checkout of the branch cannot follow it."""


def tip_of(top: str, branch: str) -> str:
    """The commit that a branch points to; "" if there is no such branch."""
    said = git(
        "rev-parse", "-q", "--verify", f"refs/heads/{branch}^{{commit}}", cwd=top,
        environment=elsewhere(), codes=(0, 1, 128),
    )  # fmt: skip
    return said.decode().strip()


def is_within(top: str, commit: str, tip: str) -> bool:
    """Whether a commit is part of the history of another."""
    answer = ("merge-base", "--is-ancestor", commit, tip)
    try:
        git(*answer, cwd=top, environment=elsewhere())
    except UnavailableError:
        return False
    return True


def move(top: str, branch: str, old: str, new: str) -> bool:
    """Move a branch and its checkouts; False if the branch is not where it was.

    Raises an `InTheWayError` if a checkout cannot follow; then nothing has changed.
    """
    with ExitStack() as stack:
        locked = [stack.enter_context(Locked(path, branch, old, new)) for path in on(top, branch)]
        for checkout in locked:
            checkout.check()
        if not set_ref(top, branch, old, new):
            return False
        for checkout in locked:
            checkout.follow()
    return True


def check(top: str, branch: str, old: str, new: str) -> None:
    """Refuse early what `move` would refuse after a long verification."""
    for path in on(top, branch):
        with Locked(path, branch, old, new) as checkout:
            checkout.check()


def on(top: str, branch: str) -> list[str]:
    """The checkouts that are on a branch."""
    return [path for path, name in worktrees_of(top).items() if name == branch]


def recover(top: str, branch: str) -> None:
    """Finish what a dead process began with the checkouts of a branch."""
    for path in on(top, branch):
        finish(path, branch)
        directory = git_directory(path)
        if not os.path.lexists(f"{directory}/index.lock"):
            for name in os.listdir(directory):
                if name.startswith(INDEX):
                    os.unlink(f"{directory}/{name}")


def set_ref(top: str, branch: str, old: str, new: str) -> bool:
    for left in reversed(range(TRIES)):
        try:
            git(
                "update-ref", "-m", "dibs land", f"refs/heads/{branch}", new, old, cwd=top,
                environment=elsewhere(),
            )  # fmt: skip
        except UnavailableError:
            if tip_of(top, branch) != old:
                return False
            if not left:
                raise
            time.sleep(STEP_S)  # another git has locked the branch
        else:
            return True
    return False


class Locked:
    """A checkout in which nobody else can stage or commit."""

    def __init__(self, path: str, branch: str, old: str, new: str) -> None:
        self._path, self._branch = path, branch
        self._old, self._new = old, new
        self._dir = git_directory(path)
        self._index = os.path.join(self._dir, INDEX)
        environment = elsewhere() | {"GIT_INDEX_FILE": self._index}
        self._git = partial(git, cwd=path, environment=environment, timeout_s=600)
        self._lock = -1

    def __enter__(self) -> Self:
        # Another name first: when the lock appears, it is complete and held.
        part = f"{self._index}-{os.getpid()}"
        self._lock = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.write(self._lock, MARK + f"{self._old} {self._new}\n".encode())
        until = time.monotonic() + LOCK_S
        try:
            while True:
                try:
                    os.link(part, f"{self._dir}/index.lock")
                except FileExistsError:
                    finish(self._path, self._branch)
                    if time.monotonic() > until:
                        lock = folder(f"{self._dir}/index.lock")
                        raise in_the_way(
                            self._path, f"another git is running there: {lock} exists",
                            f"wait until it ends, or remove that file if no git is running, {THEN}",
                        ) from None  # fmt: skip
                    time.sleep(STEP_S)
                else:
                    return self
        except BaseException:
            os.close(self._lock)
            raise
        finally:
            os.unlink(part)

    def __exit__(self, *_: object) -> None:
        for file in (self._index, f"{self._dir}/index.lock"):
            try:
                os.unlink(file)
            except FileNotFoundError:
                pass
        os.close(self._lock)

    def check(self) -> None:
        """Refuse if the checkout cannot follow the branch without changing somebody's work."""
        for name, what in UNDER_WAY.items():
            if os.path.lexists(f"{self._dir}/{name}"):
                then = f"finish or abort it (git status says how), {THEN}"
                raise in_the_way(self._path, f"a {what} is in progress there", then)
        copy(f"{self._dir}/index", self._index)
        self._git("update-index", "-q", "--refresh", codes=(0, 1))
        listed = ("--name-only", "-z", "--ignore-submodules=dirty")
        coming = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", self._old, self._new)
        changed = names(self._git("diff-files", *listed))
        changed += names(self._git("diff-index", "--cached", *listed, self._old))
        if both := sorted(set(changed) & set(names(self._git(*coming)))):
            few = ", ".join(visible(one) for one in both[:NAMED])
            why = f"these files would change, and have uncommitted changes there: {few}"
            raise in_the_way(self._path, why)
        try:
            self._git("read-tree", "-n", "-m", "-u", self._old, self._new)
        except UnavailableError as error:
            raise in_the_way(self._path, error.message) from None

    def follow(self) -> None:
        """Move the files and the index to the new commit."""
        try:
            self._git("read-tree", "-m", "-u", self._old, self._new)
        except UnavailableError:
            # Somebody has just changed a file: all others follow.
            bring(self._path, self._old, self._new)
        os.replace(self._index, f"{self._dir}/index")


def copy(index: str, to: str) -> None:
    """Copy an index with its time, by which git knows which files to check again."""
    from shutil import copy2

    if os.path.exists(to):
        os.unlink(to)
    if os.path.exists(index):
        copy2(index, to)


def in_the_way(path: str, why: str, then: str = "") -> InTheWayError:
    usual = f"commit, stash or move these changes, or check out another branch, {THEN}"
    return InTheWayError(f"the checkout {folder(path)} cannot follow: {why}", next=then or usual)


def finish(path: str, branch: str) -> None:
    """Finish what a dead process began in a checkout, if anything."""
    directory = git_directory(path)
    file = f"{directory}/index.lock"
    try:
        lock = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        said = os.read(lock, 256)
        if not said.startswith(MARK):
            return  # git's own
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # its owner is still working
        if not os.path.samestat(os.fstat(lock), os.stat(file)):
            return  # somebody else has finished it
        old, _, new = said.removeprefix(MARK).decode("ascii", "replace").strip().partition(" ")
        tip = tip_of(path, branch)
        if tip and new and is_within(path, new, tip):
            bring(path, old, new)
            os.replace(f"{directory}/{INDEX}", f"{directory}/index")
        os.unlink(file)
    except FileNotFoundError:
        return
    finally:
        os.close(lock)


def bring(path: str, old: str, new: str) -> None:
    """Update unchanged files from the old commit to the new one; files that differ stay.

    The index of the new commit, with staged changes, is left beside that of the checkout.
    """
    directory = git_directory(path)
    looking = partial(git, cwd=path, environment=elsewhere())
    # The staged changes; the index is locked, so they cannot change.
    described = names(looking("diff-index", "--cached", "--raw", "-z", "--no-renames",
                              "--no-abbrev", "--ignore-submodules=dirty", old))  # fmt: skip
    staged = [
        f"{facts.split(' ')[1]} {facts.split(' ')[3]}\t{name}\0"
        for facts, name in zip(described[::2], described[1::2], strict=True)
    ]

    def differing(commit: str, index: str) -> set[str]:
        call = partial(git, cwd=path, environment=elsewhere() | {"GIT_INDEX_FILE": index})
        call("read-tree", commit)
        call("update-index", "-q", "--refresh", codes=(0, 1))
        return set(names(call("diff-files", "--name-only", "-z", "--ignore-submodules=dirty")))

    index, before = f"{directory}/{INDEX}", f"{directory}/{INDEX}-old"
    from_old, from_new = differing(old, before), differing(new, index)
    os.unlink(before)
    call = partial(git, cwd=path, environment=elsewhere() | {"GIT_INDEX_FILE": index})
    said = names(call("diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new))
    ours = []
    for status, name in zip(said[::2], said[1::2], strict=True):
        if name in from_old:
            continue
        if status == "D":
            remove(path, name)
        elif name in from_new and not (status == "A" and os.path.lexists(f"{path}/{name}")):
            ours.append(name)
    listed = b"".join(os.fsencode(name) + b"\0" for name in ours)
    call("checkout-index", "-f", "-u", "-q", "-z", "--stdin", input=listed)
    call("update-index", "-z", "--index-info", input=os.fsencode("".join(staged)))


def remove(top: str, name: str) -> None:
    """Remove a file, and the folders that become empty."""
    above = os.path.dirname(f"{top}/{name}")
    if os.path.realpath(above) != os.path.realpath(top) + os.sep + os.path.dirname(name) and (
        os.path.dirname(name)
    ):
        return  # a folder in its path is a link now
    try:
        os.unlink(f"{top}/{name}")
        while name := os.path.dirname(name):
            os.rmdir(f"{top}/{name}")
    except OSError:
        return  # it is gone, or something else is in its place
