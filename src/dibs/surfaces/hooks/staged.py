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
    if place.checkout.kind == "repository":
        seen = read_note(f"{folder_of(place)}/index")
        if seen != index_stamp(place):
            renew(place)


def refresh(place: Place) -> None:
    """Forget what is no longer staged."""
    if os.path.isdir(folder_of(place)):
        renew(place)


def known(place: Place) -> dict[str, Staged]:
    """What is noted for the checkout's own index, each entry by its path."""
    try:
        noted = json.loads(read_note(f"{folder_of(place)}/staged") or "{}")
        return {
            path: (content, {int(session): agent for session, agent in by.items()})
            for path, (content, by) in noted.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}  # of another release


def folder_of(place: Place) -> str:
    name = sha256(os.fsencode(place.top)).hexdigest()[:16]
    return os.path.join(place.store_dir, "hooks", "staged", name)


def index_stamp(place: Place) -> str:
    return stamp(os.path.join(git_directory(place.top), "index"))


def renew(place: Place) -> None:
    """Note what is staged now; what is new is by one of those whose tools run."""
    import fcntl

    folder = folder_of(place)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(f"{folder}/lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        index = index_stamp(place)  # first: what changes while git reads is looked at again
        earlier, found = known(place), {}
        flying = [one for one in Flights(place.store_dir).under_way() if one.command]
        # A long run of tests beside a `git add` is no reason to doubt who did that.
        flying = [one for one in flying if "git" in one.command] or flying
        suspects = {flight.session: flight.agent for flight in flying}
        for path, content in staged_paths(place.top, elsewhere()).items():
            then, sessions = earlier.get(path, ("", suspects))
            found[path] = (content, sessions if then == content else suspects)
        write(f"{folder}/staged", json.dumps(found))
        write(f"{folder}/index", index)
