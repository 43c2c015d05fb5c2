"""The worktree of a worker: `.dibs/worktrees/wN`, created once, used for many attempts.

Between two attempts it is *idle*: its HEAD is detached, and the last line of HEAD's reflog says so.
Nothing in an idle worktree is worth keeping. An attempt begins with its own branch, so a worker
that holds the slot and finds a worktree that is not idle knows that another worker died there. That
worker's uncommitted work is kept as a commit on the branch `dibs/kept/…`, made with a separate
index; only then are the files reset.

A worktree that cannot be cleaned, because it contains a repository or an unreadable file, stays as
it is, and the next attempt gets another folder.

Git runs here as if the person had typed it, with the filters of the repository, but without hooks.
"""

from __future__ import annotations

import os
import shutil
import time

from dibs.errors import DibsError, UnavailableError
from dibs.records import called
from dibs.storage.folder import Own
from dibs.surroundings.git import elsewhere, git, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.names.paths import Place

WORK, KEPT = "dibs/work", "dibs/kept"
"""The prefixes of branches of attempts, and of uncommitted work."""
IDLE, BEGUN = "dibs: idle", "dibs: attempt"
FOLDER = "worktrees"
TRIES = 6
RECENT = "1000"
"""How many merges are checked for branches that have landed."""
SPARE = 9
"""How many folders a slot may have, if earlier ones could not be cleaned."""
COMMITS = ("commit", "cherry-pick", "revert", "am")
"""How reflog lines begin when git has made a commit."""
BRANCHES = "%(refname) %(objectname) %(worktreepath)"
LOCKS = ("index.lock", "HEAD.lock")
KEEPER = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "dibs"), ("EMAIL", "dibs@localhost"))
}
LASTING = ("No space left", "Permission denied", "Read-only", "not a valid", "Disk quota")
"""Git's messages for errors that do not go away."""


def plain(*words: str, cwd: str, environment: dict[str, str] | None = None, **how: Any) -> str:
    """What git prints for a command, run as the person would."""
    mine = elsewhere() | {"GIT_REFLOG_ACTION": IDLE, "LC_ALL": "C"} | (environment or {})
    said = git(*words, cwd=cwd, environment=mine, settings=(), timeout_s=600, **how)
    return os.fsdecode(said).rstrip("\n")


def tip(top: str, name: str) -> str:
    """The commit that a branch points to; "" if there is no such branch."""
    return plain("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", cwd=top, codes=(0, 1))


def current_branch(top: str) -> str:
    """The branch that a checkout is on; "" for none."""
    said = plain("symbolic-ref", "--quiet", "HEAD", cwd=top, codes=(0, 1))
    # Not --short: if a tag has the same name, that prints heads/NAME.
    return said.removeprefix("refs/heads/")


def own_commit(top: str, mark: str) -> str:
    """The last commit in a checkout that was made with this mark in GIT_REFLOG_ACTION."""
    said = plain("log", "-g", "--format=%H %gs", "-n", RECENT, "HEAD", cwd=top)
    for line in said.splitlines():
        commit, _, action = line.partition(" ")
        if action.startswith(f"{mark}:"):
            return commit
    return ""


class Worktree:
    """The worktree of one slot; only the holder of the slot changes it."""

    def __init__(self, place: Place, number: int, name: str = "") -> None:
        """
        name: the folder, if it is not the slot's first
        """
        self._root = place.root
        self._own = Own(place.store_dir)
        self._number = number
        self.path = f"{place.store_dir}/{FOLDER}/{name or f'w{number}'}"

    def ready(self, base: str) -> str | None:
        """Create it, or take it over from a dead worker, and check out a commit.

        Return the branch on which work was kept, if there was any.
        """
        kept = None
        folder = self._own.folder(FOLDER, make=True)
        self._own.once(".gitignore", b"*\n")
        for spare in range(1, SPARE + 1):
            self.path = f"{folder}/w{self._number}" + (f".{spare}" if spare > 1 else "")
            if not self.is_there():
                self._make(base)
            kept = self.free() or kept
            if self._is_idle():
                self._reset(base)
                return kept
        raise UnavailableError(
            f"none of the folders {folder}/w{self._number}… can be cleaned",
            next="look at what is there, and remove what is no longer needed: git worktree list",
        )

    def begin(self, branch: str) -> None:
        """Begin an attempt on a new branch."""
        action = {"GIT_REFLOG_ACTION": BEGUN}
        plain("checkout", "-q", "-b", branch, cwd=self.path, environment=action)

    def head(self) -> str:
        return tip(self.path, "HEAD")

    def has_committed(self) -> bool:
        """Whether a commit was made in this attempt, according to HEAD's reflog."""
        said = plain("log", "-g", "--format=%gs", "-n", RECENT, "HEAD", cwd=self.path)
        for action in said.splitlines():
            if action.startswith(BEGUN):
                break
            if action.startswith(COMMITS):
                return True
        return False

    def commit(self, message: str) -> None:
        """Commit what the command left, as the user."""
        if self._changes():
            plain("add", "--all", cwd=self.path)
            action = {"GIT_REFLOG_ACTION": "commit"}
            plain("commit", "-q", "-m", message, cwd=self.path, environment=action)

    def point_branch(self, branch: str, commit: str) -> None:
        """Point the branch of the attempt to the commit that the worktree is at."""
        plain("update-ref", f"refs/heads/{branch}", commit, cwd=self.path)

    def free(self) -> str | None:
        """Keep uncommitted work, and make the worktree idle; return the branch with what was kept.

        If not all of it can be kept, it stays as it is. The branch of an attempt without commits
        is deleted.
        """
        if not self.is_there() or self._is_idle():
            return None
        for name in LOCKS:
            # Left by a git that died: nobody else works here.
            if os.path.lexists(f"{self._git_dir()}/{name}"):
                os.unlink(f"{self._git_dir()}/{name}")
        branch = None
        if self._changes():
            branch, whole = self._keep()
            if not whole:
                return branch
            plain("reset", "-q", "--hard", cwd=self.path)
            plain("clean", "-qfd", cwd=self.path)
            if self._changes():
                return branch
        if self._has_repository():
            return branch
        was, begun = current_branch(self.path), self._begun_at()
        self._set_idle(self.head())
        if was.startswith(f"{WORK}/") and tip(self._root, f"refs/heads/{was}") == begun:
            plain("update-ref", "-d", f"refs/heads/{was}", begun, cwd=self._root)
        return branch

    def _begun_at(self) -> str:
        """The commit that the attempt began at, according to HEAD's reflog; "" if unknown."""
        said = plain("log", "-g", "--format=%H %gs", "-n", RECENT, "HEAD", cwd=self.path)
        for line in said.splitlines():
            commit, _, action = line.partition(" ")
            if action.startswith(BEGUN):
                return commit
        return ""

    def _has_repository(self) -> bool:
        """Whether it contains a repository that was committed as a submodule, complete only here.

        Submodules of the project have a file `.git`, not a folder.
        """
        listed = plain("ls-files", "--stage", "-z", cwd=self.path).split("\0")
        inner = [line.partition("\t")[2] for line in listed if line.startswith("160000 ")]
        return any(os.path.isdir(f"{self.path}/{name}/.git") for name in inner)

    def _set_idle(self, head: str) -> None:
        """Detach HEAD with a line in its reflog, which git writes only if HEAD was on a branch."""
        if not current_branch(self.path):
            plain("symbolic-ref", "HEAD", f"refs/heads/{WORK}/w{self._number}", cwd=self.path)
        plain("update-ref", "--no-deref", "-m", IDLE, "HEAD", head, cwd=self.path)

    def remove(self) -> bool:
        """Remove it if it is idle or can be made idle; return whether it is gone."""
        self.free()
        if not self.is_there():
            return True
        if not self._is_idle():
            return False
        try:
            plain("worktree", "remove", "--force", self.path, cwd=self._root)
        except UnavailableError:  # perhaps it has submodules
            shutil.rmtree(self.path)
            plain("worktree", "prune", cwd=self._root)
        return True

    def drop(self, branch: str, base: str) -> None:
        """Delete the branch of an attempt whose folder is gone, if it has no commits."""
        plain("worktree", "prune", cwd=self._root)
        if tip(self._root, f"refs/heads/{branch}") == base:
            plain("update-ref", "-d", f"refs/heads/{branch}", base, cwd=self._root)

    def is_there(self) -> bool:
        try:
            found = plain("rev-parse", "--show-toplevel", cwd=self.path)
        except DibsError:
            return False  # there is no such folder, or it is partly removed
        return os.path.realpath(found) == os.path.realpath(self.path)

    def _git_dir(self) -> str:
        return plain("rev-parse", "--absolute-git-dir", cwd=self.path)

    def _is_idle(self) -> bool:
        git_dir = self._git_dir()
        if not os.path.lexists(f"{git_dir}/index"):
            return True  # it never had files
        try:
            with open(f"{git_dir}/logs/HEAD", "rb") as log:
                last = log.read().rstrip(b"\n").rpartition(b"\n")[2]
        except FileNotFoundError:
            return False
        return IDLE.encode() in last.partition(b"\t")[2]

    def _changes(self) -> list[str]:
        said = git(
            "status", "--porcelain", "-z", "--untracked-files=normal", cwd=self.path,
            environment=elsewhere(), settings=(), timeout_s=600,
        )  # fmt: skip
        return names(said)

    def _make(self, base: str) -> None:
        """Add it to the repository; git fails if others do so at the same time."""
        if os.path.lexists(self.path):
            shutil.rmtree(self.path)  # left by a worker that died while creating it
        pause_s = 0.05
        for left in reversed(range(TRIES)):
            try:
                plain("worktree", "prune", cwd=self._root)
                words = ("worktree", "add", "--force", "--detach", "--no-checkout", self.path, base)
                plain(*words, cwd=self._root)
                return
            except UnavailableError as error:
                if not left or any(word in error.message for word in LASTING):
                    raise UnavailableError(
                        f"the worktree {called(self.path, limit=300)} cannot be created: "
                        f"{error.message}",
                        next="free some space or fix the permissions there, then dibs swarm resume",
                    ) from error
                shutil.rmtree(self.path, ignore_errors=True)
                time.sleep(pause_s)
                pause_s *= 2

    def _reset(self, base: str) -> None:
        """Check out a commit; a worker that dies during this leaves it idle."""
        try:
            for name in LOCKS:
                if os.path.lexists(f"{self._git_dir()}/{name}"):
                    os.unlink(f"{self._git_dir()}/{name}")
            self._set_idle(self.head())
            plain("reset", "-q", "--hard", base, cwd=self.path)
            plain("clean", "-qfd", cwd=self.path)
        except UnavailableError as error:
            raise UnavailableError(
                f"the files of {called(self.path, limit=300)} cannot be written: {error.message}",
                next="free some space or fix the permissions there, then dibs swarm resume",
            ) from error

    def _keep(self) -> tuple[str, bool]:
        """Commit everything there on a separate branch, and touch nothing else.

        Return the branch, and whether everything could be read.
        """
        index = f"{self._git_dir()}/dibs-kept"
        alone = KEEPER | {"GIT_INDEX_FILE": index}
        head, was = self.head(), current_branch(self.path)
        try:
            shutil.copyfile(f"{self._git_dir()}/index", index)
        except FileNotFoundError:
            plain("read-tree", head, cwd=self.path, environment=alone)
        whole = True
        try:
            try:
                plain("add", "--all", cwd=self.path, environment=alone)
            except UnavailableError:
                whole = False
                anyway = ("add", "--all", "--ignore-errors")
                plain(*anyway, cwd=self.path, environment=alone, codes=(0, 1, 128))
            tree = plain("write-tree", cwd=self.path, environment=alone)
        finally:
            os.unlink(index)
        name = was.removeprefix(f"{WORK}/") or f"w{self._number}"
        says = f"Not committed by the worker on {was or 'no branch'}, kept by dibs"
        words = ("commit-tree", tree, "-p", head, "-m", says)
        commit = plain(*words, cwd=self.path, environment=alone)
        for spare in range(1, 1000):
            branch = f"{KEPT}/{name}" + (f".{spare}" if spare > 1 else "")
            if there := tip(self._root, f"refs/heads/{branch}"):
                if tip_tree(self._root, there) == tree:
                    return branch, whole  # already kept, by a worker that then died
                continue
            plain("update-ref", f"refs/heads/{branch}", commit, "", cwd=self._root)
            return branch, whole
        raise UnavailableError(f"there are too many branches {KEPT}/{name}-…")


def tip_tree(top: str, commit: str) -> str:
    return plain("rev-parse", f"{commit}^{{tree}}", cwd=top)


def by_slot(place: Place) -> dict[int, list[Worktree]]:
    """The existing worktrees, including those that could not be cleaned."""
    found: dict[int, list[Worktree]] = {}
    for name in sorted(Own(place.store_dir).names(FOLDER)):
        slot = name[1:].partition(".")[0]
        if name[:1] == "w" and slot.isdecimal():
            found.setdefault(int(slot), []).append(Worktree(place, int(slot), name))
    return found


def left_of(top: str, slug: str) -> list[str]:
    """The branches of earlier attempts with this slug."""
    found = []
    for folder in (WORK, KEPT):
        refs = f"refs/heads/{folder}/{slug}-*"
        for name in plain("for-each-ref", "--format=%(refname:short)", refs, cwd=top).splitlines():
            epoch = name.removeprefix(f"{folder}/{slug}-").replace(".", "")
            if epoch.isdecimal():  # otherwise it belongs to a longer slug
                found.append(name)
    return found


def drop_landed(top: str, onto: str) -> None:
    """Delete the branches of attempts that were merged into the target and have not moved since.

    A branch without commits is in the target's history too, but no merge brought it there. A
    branch that is checked out, in a worktree that was left as it is, stays: its HEAD needs it.
    """
    merges = plain(
        "rev-list", "--first-parent", "--merges", "--parents", "-n", RECENT, onto, cwd=top
    )
    brought = {commit for line in merges.splitlines() for commit in line.split()[2:]}
    words = ("for-each-ref", f"--format={BRANCHES}", f"refs/heads/{WORK}/")
    for line in plain(*words, cwd=top).splitlines():
        name, commit, *where = line.split()
        if commit in brought and not where:
            try:
                plain("update-ref", "-d", name, commit, cwd=top)
            except UnavailableError:
                continue  # it has moved, or somebody else was faster


def include(place: Place, path: str, patterns: Sequence[str]) -> list[str]:
    """Copy ignored files that a project needs from the main worktree; return what was left out.

    patterns: as in a `.gitignore`, besides those of `.worktreeinclude`
    """
    root = place.root
    words = ["ls-files", "-z", "--others", "--ignored"]
    wanted = [f"--exclude={pattern}" for pattern in patterns]
    if os.path.isfile(f"{root}/.worktreeinclude"):
        wanted.append("--exclude-from=.worktreeinclude")
    if not wanted or not os.path.lexists(f"{root}/.git"):
        return []  # a bare repository has no ignored files
    found = names(os.fsencode(plain(*words, *wanted, cwd=root)))
    ignored = set(names(os.fsencode(plain(*words, "--exclude-standard", cwd=root))))
    own = (".dibs/", ".git/")
    wanted_here = [one for one in found if one in ignored and not f"{one}/".startswith(own)]
    return [name for name in wanted_here if not copy(root, path, name)]


def copy(root: str, path: str, name: str) -> bool:
    """Copy a file, or a link that stays inside; never follow a link that leads out."""
    source, target = f"{root}/{name}", f"{path}/{name}"
    if not inside(root, os.path.dirname(source)):
        return False
    if os.path.islink(source):
        leads = os.readlink(source)
        if os.path.isabs(leads) or not inside(root, os.path.realpath(source)):
            return False
    elif not os.path.isfile(source):
        return False  # a pipe, or it is gone
    existing = os.path.dirname(target)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not inside(path, existing):
        return False
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if not inside(path, os.path.dirname(target)):
        return False
    if os.path.isdir(target) and not os.path.islink(target):
        return False
    if os.path.lexists(target):
        os.unlink(target)
    shutil.copy2(source, target, follow_symlinks=False)
    return True


def inside(root: str, path: str) -> bool:
    real, top = os.path.realpath(path), os.path.realpath(root)
    return real == top or real.startswith(f"{top}/")
