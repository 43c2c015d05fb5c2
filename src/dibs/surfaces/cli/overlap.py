"""`dibs overlap`: which files two worktrees both change, and whether they would merge cleanly."""

from __future__ import annotations

import os

from dibs.errors import InvalidError
from dibs.operation import EVERYBODY
from dibs.surroundings.wording import note, paint, print_json, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.dibs import Dibs
    from dibs.names.paths import Resource
    from dibs.records import Blocker
    from dibs.surfaces.hooks.git.worktrees import Overlap
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
CLEAN, CONFLICT, UNKNOWN = "clean", "conflict", "unknown"
COLOURS = {CLEAN: "green", CONFLICT: "red", UNKNOWN: "yellow"}


class Pair:
    """Two worktrees with the files that both change, as they are shown."""

    def __init__(self, found: Overlap, files: dict[str, str], holders: dict[str, list[Blocker]]):
        self.worktrees = (found.one, found.other)
        self.files = files
        self.holders = holders

    def to_json(self) -> dict[str, Any]:
        from dibs.records import plain

        return {
            "worktrees": [{"path": one.path, "branch": one.branch} for one in self.worktrees],
            "files": [
                {"path": path, "merge": merge, "holders": plain(self.holders[path])}
                for path, merge in self.files.items()
            ],
        }


def main(call: Globals, *paths: str) -> int:
    """Show which files two worktrees both change, whether they would merge, and who holds them.

    Committed or not; nothing is changed by looking. The exit code is 1 if something would
    conflict.

    paths: only these files, directories and globs
    example: src/
    """
    with call.open() as space:
        pairs = find(space, list(paths))
    if call.json:
        print_json([pair.to_json() for pair in pairs])
    else:
        for pair in pairs:
            draw(pair)
        if not pairs:
            note("no two worktrees change the same files")
    return int(any(CONFLICT in pair.files.values() for pair in pairs))


def find(space: Dibs, words: list[str]) -> list[Pair]:
    from dibs.surfaces.hooks.git.worktrees import overlaps

    place = space.scope.place
    if place.checkout.kind != "repository":
        raise InvalidError("this is no git repository", next="cd into one")
    wanted = [place.resource(word) for word in words]
    pairs = []
    for found in overlaps(place.top):
        files = {
            path: UNKNOWN if clean is None else CLEAN if clean else CONFLICT
            for path, clean in found.paths.items()
            if not wanted or matches(place.resource(f"path:{place.top}/{path}"), wanted)
        }
        if files:
            pairs.append(Pair(found, files, holders(space, found, list(files))))
    return pairs


def matches(file: Resource, wanted: list[Resource]) -> bool:
    from dibs.names.paths import resources_overlap

    return any(resources_overlap(file, one) for one in wanted)


def holders(space: Dibs, found: Overlap, paths: list[str]) -> dict[str, list[Blocker]]:
    """Who holds each path, in whatever worktree, each of them once."""
    from dibs.arguments import CLAIM_LIMIT

    top, here = space.scope.place.top, f"file:{os.uname().nodename}:"
    asked = [
        (path, text)
        for path in paths
        # A file that is held elsewhere already has a name for its own worktree, too.
        for text in (f"path:{top}/{path}", f"{here}{found.one.path}/{path}",
                     f"{here}{found.other.path}/{path}")
    ]  # fmt: skip
    sessions: dict[str, dict[int, Blocker]] = {path: {} for path in paths}
    for start in range(0, len(asked), CLAIM_LIMIT):
        some = asked[start : start + CLAIM_LIMIT]
        states = space.leases.status(*(text for _, text in some))
        for (path, _), state in zip(some, states, strict=True):
            for one in state.blockers:
                if not one.waiting:
                    sessions[path].setdefault(one.session, one)
    return {path: list(those.values()) for path, those in sessions.items()}


def draw(pair: Pair) -> None:
    one, other = pair.worktrees
    say(paint("bold", f"{one.name} and {other.name}") + f"  ({one.path}, {other.path})")
    width = max(map(len, pair.files))
    for path, merge in pair.files.items():
        held = ", ".join(holder(blocker) for blocker in pair.holders[path])
        state = paint(COLOURS[merge], merge.ljust(len(CONFLICT)))
        say(f"  {path.ljust(width)}  {state}  {held}".rstrip())
    if UNKNOWN in pair.files.values():
        note("git 2.38 or newer is needed to say whether they would merge")


def holder(blocker: Blocker) -> str:
    where = (blocker.checkout or "").partition(":")[2]
    name = blocker.resource.removeprefix("file:").partition(":")[2] or blocker.resource
    return f"{blocker.agent} holds {name}" + (f" in {where}" if where else "")
