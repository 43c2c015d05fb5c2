"""What `dibs recover` lists: kept contents by file, agent and time, and how they were lost."""

from __future__ import annotations

from time import time

from dibs.names.checkouts import content_hash
from dibs.records import called, quoted
from dibs.surfaces.hooks.contents import Contents
from dibs.surfaces.hooks.losses import Loss, losses, unreachable
from dibs.surfaces.hooks.snapshots import snapshots
from dibs.surroundings.wording import ago, note, print_json, say, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.names.paths import Place
    from dibs.surroundings.commands import Globals

ROWS = 60


class Listing:
    def __init__(self, call: Globals, place: Place, contents: Contents) -> None:
        self.call = call
        self.place = place
        self.contents = contents

    def file(self, file: str) -> int:
        """List what is kept of one file, the latest first."""
        versions, now = self.contents.versions(file), content_hash(file)
        if self.call.json:
            print_json([vars(one) for one in versions])
            return 0
        for one in versions:
            here = "  (in the file now)" if one.content_hash == now else ""
            how = "  (written without the lease)" if one.foreign else ""
            say(f"{one.content_hash[:12]}  {ago(one.at):<12}  {called(one.agent)}{how}{here}")
        if not versions:
            note("nothing is kept of this file")
        return 0

    def everything(self, agent: str, since_s: float) -> int:
        """List what is kept of all files, of one agent, or since some time."""
        begin = round((time() - since_s) * 1000) if since_s else 0
        lost = {(one.file, one.content_hash): one for one in losses(self.contents, begin)[::-1]}
        found = []
        for file in self.contents.files():
            for one in self.contents.versions(file):
                entry = Loss(file, one.content_hash, one.agent, one.at)
                entry = lost.pop((file, one.content_hash), entry)
                if entry.at >= begin and (not agent or entry.agent == agent):
                    found.append(entry)
        found.sort(key=lambda one: -one.at)
        taken = [one for one in snapshots(self.contents) if one.at >= begin]
        gone = unreachable(self.place.root, (commit for one in taken for commit in one.commits))
        commits = [
            {"commit": commit, "was": was, "at": one.at, "by": one.agent, "doing": one.doing}
            for one in taken
            for commit, was in one.commits.items()
            if commit in gone
        ]
        missing = {file: why for one in taken for file, why in one.left_out.items()}
        if self.call.json:
            print_json({
                "contents": [one.described() for one in found],
                "commits": commits,
                "not_kept": missing,
            })  # fmt: skip
        else:
            self._draw(found, commits, missing)
        return 0

    def _draw(
        self, found: list[Loss], commits: list[dict[str, Any]], missing: dict[str, str]
    ) -> None:
        rows = [
            [
                shown(self.place, one.file), called(one.agent), ago(one.at),
                one.content_hash[:12], lost_by(one) or state_now(one),
            ]
            for one in found[:ROWS]
        ]  # fmt: skip
        table(rows, ["file", "agent", "when", "content", ""])
        for one in commits:
            how = f"{quoted(one['was'])} {ago(one['at'])}, before {quoted(one['doing'])}"
            say(f"commit {one['commit']}  {how}  (git branch NAME {one['commit'][:12]})")
        for file, why in missing.items():
            note(f"not kept: {shown(self.place, file)}: {why}")
        if len(found) > ROWS:
            note(f"and {len(found) - ROWS} more; all of them: dibs recover --json")
        if not rows and not commits:
            note("nothing is kept yet; the hooks that dibs init installs keep what agents write")
        else:
            note("next: dibs recover PATH [--to CONTENT], or dibs recover --agent NAME --since 10m")


def shown(place: Place, file: str) -> str:
    """A file's name relative to the top of this checkout, if the file is in it."""
    inside = file.startswith(f"{place.top}/")
    return called(file[len(place.top) + 1 :] if inside else file, limit=200)


def lost_by(one: Loss) -> str:
    if not one.by:
        return ""
    how = f": {quoted(one.doing)}" if one.doing else " without the lease"
    return f"lost by {called(one.by)}{how}"


def state_now(one: Loss) -> str:
    return "(in the file now)" if content_hash(one.file) == one.content_hash else ""
