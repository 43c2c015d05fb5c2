"""What is staged in the index of a checkout, and by whom as far as it is known.

Inside a hook git says which index it is about to commit (GIT_INDEX_FILE): with `git commit -a`
or `git commit -- path` that is another file than the checkout's own, and only what it holds
goes into the commit. `git diff` reads that variable by itself.

Git does not say who put an entry into the index. The hook of a client looks at the index before
and after each shell tool: what is staged afterwards and was not before was staged by that
session, or by another whose tool ran at the same time; then both are noted, and nobody is kept
from committing it but a third. What was staged while no tool ran is nobody's: a person did it.

Who staged what is a note on the local disk, one folder for each checkout. It may be lost at any
time; then nothing is known, and nothing is stopped by it. As long as the index stays the same
file, to look costs one `stat`.
"""

from __future__ import annotations

import json
import os

from dibs.digest import sha256
from dibs.names.checkouts import git_directory
from dibs.surfaces.hooks.notes import Flights, read_note, stamp, write
from dibs.surroundings.git import elsewhere, git, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from dibs.names.paths import Place

Staged = tuple[str, dict[int, str]]
"""What is staged for one path, and the sessions that may have done it, by id and name."""
LEASE = "git:index"
# Settings of the user must not change what is listed. Without renames, both names of a file
# that was moved are there.
DIFF = (
    "diff", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", "--no-relative",
    "--no-ext-diff", "--no-color", "--ignore-submodules=none",
)  # fmt: skip


def staged_paths(
    cwd: str | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
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


def look(place: Place) -> None:
    """Look before a shell tool and after it, while the note that it is under way is there.

    A tool that has left no such note only reads, and has staged nothing.
    """
    notes = Notes(place)
    if notes.has_changed():
        with notes:
            notes.renew()


def refresh(place: Place) -> None:
    """Forget what is no longer staged."""
    notes = Notes(place)
    if os.path.isdir(notes.folder):
        with notes:
            notes.renew()


def known(place: Place) -> dict[str, Staged]:
    """What is noted for the checkout's own index, each entry by its path."""
    return Notes(place).read()


class Notes:
    """The folder of one checkout."""

    def __init__(self, place: Place) -> None:
        self._place = place
        name = sha256(os.fsencode(place.top)).hexdigest()[:16]
        self.folder = os.path.join(place.store_dir, "hooks", "staged", name)
        self._lock = -1

    def has_changed(self) -> bool:
        """Whether the index is another than when somebody last looked."""
        is_repository = self._place.checkout.kind == "repository"
        return is_repository and read_note(f"{self.folder}/index") != self._stamp()

    def _stamp(self) -> str:
        return stamp(os.path.join(git_directory(self._place.top), "index"))

    def renew(self) -> None:
        """Note what is staged now; what is new is by one of those whose tools run."""
        index = self._stamp()  # first: what changes while git reads is looked at again
        earlier, suspects = self.read(), self._suspects()
        found = {}
        for path, content in staged_paths(self._place.top, elsewhere()).items():
            known, sessions = earlier.get(path, ("", suspects))
            found[path] = (content, sessions if known == content else suspects)
        write(f"{self.folder}/staged", json.dumps(found))
        write(f"{self.folder}/index", index)

    def _suspects(self) -> dict[int, str]:
        flying = [one for one in Flights(self._place.store_dir).under_way() if one.command]
        # A long run of tests beside a `git add` is no reason to doubt who did that.
        flying = [one for one in flying if "git" in one.command] or flying
        return {flight.session: flight.agent for flight in flying}

    def read(self) -> dict[str, Staged]:
        try:
            noted = json.loads(read_note(f"{self.folder}/staged") or "{}")
            return {
                path: (content, {int(session): agent for session, agent in by.items()})
                for path, (content, by) in noted.items()
            }
        except (ValueError, TypeError, AttributeError):
            return {}  # of another release

    def __enter__(self) -> Self:
        import fcntl

        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self._lock = os.open(f"{self.folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)
