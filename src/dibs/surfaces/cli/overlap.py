"""`dibs overlap`: which files two worktrees both change, and whether they would merge cleanly.

The current state of each worktree (staged, unstaged and untracked files) becomes a temporary commit
on top of its HEAD, and git says how two of these would merge. Index and objects are temporary:
neither a worktree nor the repository is changed.
"""

from __future__ import annotations

import os
from functools import partial

from dibs.errors import InvalidError
from dibs.names.checkouts import git_directory
from dibs.names.paths import resources_overlap
from dibs.names.tracked import opened, unfit
from dibs.operation import EVERYBODY
from dibs.records import Blocker, called, folder, plain, quoted
from dibs.surroundings.git import OFF, can_merge, elsewhere, git, names, worktrees_of
from dibs.surroundings.wording import note, paint, print_json, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from dibs.dibs import Dibs
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
CLEAN, CONFLICT, UNKNOWN = "clean", "conflict", "unknown"
COLOURS = {CLEAN: "green", CONFLICT: "red", UNKNOWN: "yellow"}
SETTINGS = (*OFF, "-c", "core.safecrlf=false", "-c", "advice.addEmbeddedRepo=false")
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "dibs"), ("EMAIL", "dibs@localhost"))
}
INDEX_LIMIT = 1 << 30


def main(call: Globals, *paths: str) -> int:
    """Show which files two worktrees both change, whether they would merge, and who holds them.

    Uncommitted changes count too. Nothing is changed. The exit code is 1 if there would be a
    conflict.

    paths: only these files, directories and globs
    example: src/
    """
    with call.open() as space:
        pairs = find(space, paths)
    if call.json:
        print_json(plain(pairs))
    else:
        for pair in pairs:
            draw(pair)
        if not pairs:
            note("no two worktrees change the same files")
    return int(any(file["merge"] == CONFLICT for pair in pairs for file in pair["files"]))


def find(space: Dibs, paths: Sequence[str]) -> list[dict[str, Any]]:
    """Pairs of worktrees with the files that both change, how these merge, and who holds them."""
    place = space.scope.place
    if place.checkout.kind != "repository":
        raise InvalidError("this is not a git repository", next="cd into one")
    wanted = [place.resource(path) for path in paths]

    def is_wanted(path: str) -> bool:
        file = place.resource(f"path:{place.top}/{path}")
        return any(resources_overlap(file, one) for one in wanted)

    pairs = []
    for worktrees, found in overlaps(place.top):
        both = [path for path in found if not wanted or is_wanted(path)]
        held = holders(space, list(worktrees), both)
        files = [{"path": path, "merge": found[path], "holders": held[path]} for path in both]
        sides = [{"path": path, "branch": branch} for path, branch in worktrees.items()]
        if files:
            pairs.append({"worktrees": sides, "files": files})
    return pairs


def holders(space: Dibs, worktrees: list[str], paths: list[str]) -> dict[str, list[Blocker]]:
    """Who holds each path, in any worktree, each holder once."""
    from dibs.arguments import CLAIM_LIMIT

    here = f"file:{space.scope.place.machine}:"
    # A file that is held in another worktree also has a name for that worktree.
    roots = [f"path:{space.scope.place.top}", *(here + folder for folder in worktrees)]
    asked = [(path, f"{root}/{path}") for path in paths for root in roots]
    sessions: dict[str, dict[int, Blocker]] = {path: {} for path in paths}
    for start in range(0, len(asked), CLAIM_LIMIT):
        some = asked[start : start + CLAIM_LIMIT]
        states = space.leases.status(*(text for _, text in some))
        for (path, _), state in zip(some, states, strict=True):
            for one in state.blockers:
                if not one.waiting:
                    sessions[path].setdefault(one.session, one)
    return {path: list(those.values()) for path, those in sessions.items()}


def draw(pair: dict[str, Any]) -> None:
    sides, files = pair["worktrees"], pair["files"]
    names = [one["branch"] or os.path.basename(one["path"]) for one in sides]
    where = ", ".join(folder(one["path"]) for one in sides)
    say(f"{paint('bold', ' and '.join(map(called, names)))}  ({where})")
    width = max(len(called(file["path"])) for file in files)
    for file in files:
        held = ", ".join(holder(blocker) for blocker in file["holders"])
        state = paint(COLOURS[file["merge"]], file["merge"].ljust(len(CONFLICT)))
        say(f"  {called(file['path']).ljust(width)}  {state}  {held}".rstrip())
    if any(file["merge"] == UNKNOWN for file in files):
        note("git 2.38 or newer is needed to tell whether they would merge")


def holder(blocker: Blocker) -> str:
    where = (blocker.checkout or "").partition(":")[2]
    name = blocker.resource.removeprefix("file:").partition(":")[2] or blocker.resource
    said = f"{called(blocker.agent)} holds {called(name)}"
    return said + (f" in {quoted(where)}" if where else "")


def overlaps(top: str) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Each pair of worktrees that change the same paths, and how each of these would merge."""
    from itertools import combinations
    from tempfile import TemporaryDirectory

    found = worktrees_of(top)
    if len(found) < 2:
        return
    with TemporaryDirectory(prefix="dibs-") as folder:
        environment = apart(top, folder)
        commits = {}
        for number, path in enumerate(found):
            inside = [other for other in found if other.startswith(f"{path}/")]
            index = f"{folder}/index{number}"
            commits[path] = snapshot(path, inside, environment | {"GIT_INDEX_FILE": index})
        for one, other in combinations(found, 2):
            if files := compare(top, commits[one], commits[other], environment):
                yield {path: found[path] for path in (one, other)}, files


def apart(top: str, folder: str) -> dict[str, str]:
    """An environment in which git writes objects elsewhere and still reads the existing ones."""
    said = git("rev-parse", "--git-path", "objects", cwd=top, environment=elsewhere())
    objects = os.path.join(top, os.fsdecode(said).rstrip("\n"))
    # In quotes, so that a colon does not split the path.
    quoted = objects.replace("\\", "\\\\").replace('"', '\\"')
    os.mkdir(f"{folder}/objects")
    return {
        **elsewhere(),
        **IDENTITY,
        "GIT_OBJECT_DIRECTORY": f"{folder}/objects",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"',
    }


def snapshot(worktree: str, inside: list[str], environment: dict[str, str]) -> str:
    """The commit of a worktree's present state; `inside` are other worktrees in its directory."""
    copy_index(git_directory(worktree), environment["GIT_INDEX_FILE"])
    call = partial(git, cwd=worktree, environment=environment, settings=SETTINGS, timeout_s=600)
    staged = [line.split("\t", 1) for line in names(call("ls-files", "-s", "-z"))]
    # Git would look for changes inside a submodule, with the settings of the submodule.
    modules = [
        (path, described.split(" ")[1])
        for described, path in staged
        if described.startswith("160000 ") and os.path.lexists(f"{worktree}/{path}/.git")
    ]
    others = [path[len(worktree) + 1 :] for path in inside] + [path for path, _ in modules]
    call("add", "-A", "--", ":(top)", *(f":(top,exclude,literal){path}" for path in others))
    for path, before in modules:
        said = git("rev-parse", "-q", "--verify", "HEAD", cwd=f"{worktree}/{path}",
                   environment=elsewhere(), codes=(0, 1, 128))  # fmt: skip
        now = said.decode().strip() or before
        if now != before:
            call("update-index", "--cacheinfo", f"160000,{now},{path}")
    head = call("rev-parse", "-q", "--verify", "HEAD", codes=(0, 1)).decode().strip()
    parent = ["-p", head] if head else []
    tree = call("write-tree").decode().strip()
    return call("commit-tree", *parent, "-m", "as it is now", tree).decode().strip()


def copy_index(git_dir: str, copy: str) -> None:
    """Copy what git knows about each file, so that it reads only changed files.

    That includes the time of the index: git compares files that were written in that moment.
    """
    from shutil import copyfileobj

    for name in os.listdir(git_dir):
        if name.startswith("sharedindex."):
            opened(os.path.join(git_dir, name)).close()
    try:
        source = opened(os.path.join(git_dir, "index"))
    except FileNotFoundError:
        return
    with source, open(copy, "wb") as out:
        status = os.fstat(source.fileno())
        if status.st_size > INDEX_LIMIT:
            raise unfit(source.name, "it is too large")
        copyfileobj(source, out)
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))


def compare(top: str, one: str, other: str, environment: dict[str, str]) -> dict[str, str]:
    """The paths that both commits have changed since their merge base, and how each would merge."""
    call = partial(git, cwd=top, environment=environment, settings=SETTINGS, timeout_s=600)
    bases = call("merge-base", one, other, codes=(0, 1)).decode().split()
    base = bases[0] if bases else call("hash-object", "-t", "tree", "/dev/null").decode().strip()
    changed = [
        set(names(call("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, now)))
        for now in (one, other)
    ]
    both = changed[0] & changed[1]
    if not both:
        return {}
    if not can_merge(call("version").decode()):
        return dict.fromkeys(sorted(both), UNKNOWN)
    said = call(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z",
        "--allow-unrelated-histories", one, other, codes=(0, 1),
    )  # fmt: skip
    conflicting = set(names(said)[1:])  # after the tree
    return {path: CONFLICT if path in conflicting else CLEAN for path in sorted(both | conflicting)}
