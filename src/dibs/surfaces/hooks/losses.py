"""What was lost: contents that a command removed, or that somebody overwrote without the lease.

After a command, its hook notes what it removed (`look`). A loss is found in the snapshot from
before the command, or in the index of a file whose last content is not its holder's. What has been
committed since is not lost.
"""

from __future__ import annotations

import os
from time import time

from dibs.errors import DibsError, UnavailableError
from dibs.surfaces.hooks.contents import Contents, read_file
from dibs.surfaces.hooks.notes import append, read_note, write
from dibs.surfaces.hooks.snapshots import Snapshot, blob_id, flight_name, snapshots, taken_away
from dibs.surfaces.hooks.uncommitted import BUDGET_S, PATHS_LIMIT, where_commits_are
from dibs.surroundings import failures
from dibs.surroundings.git import elsewhere, git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.surfaces.hooks.case import Case
    from dibs.surfaces.hooks.notes import Flight

RECOVER = "recover"
"""The author of a content that `dibs recover` has replaced."""
TOOLS_LIMIT = 200


def look(case: Case, flight: Flight) -> None:
    """Note which of the contents that were kept before a command it removed."""
    contents, ending = case.kept, f"-{flight_name(flight)}"
    try:
        note_tool(contents, flight)
        contents.note_author(case.place.top, case.agent.name)
        for taken in snapshots(contents, ending):
            if taken.lost is None:
                settle(case, taken)
    except (DibsError, OSError, ValueError) as error:
        failures.record(case.store_dir, f"what a command destroyed was not noted: {error}")


def note_tool(contents: Contents, flight: Flight) -> None:
    name = f"{contents.place}/tools"
    append(contents.own, name, f"{flight.since} {time()} {flight.agent}\n")
    status = contents.own.status(name)
    if status is not None and status.st_size > 2 * TOOLS_LIMIT * 60:
        lines = (read_note(contents.own, name) or "").splitlines()[-TOOLS_LIMIT:]
        write(contents.own, name, "\n".join([*lines, ""]))


def settle(case: Case, taken: Snapshot) -> None:
    """Note in a snapshot what is gone since; remove the snapshot if nothing is gone."""
    found = taken_away(case.kept, taken)
    editing = {(one.agent, name) for one in case.flights.under_way() for name in one.edits if name}
    own = [file for file in found if found[file] and taken.files[file].agent == case.agent.name]
    worked_on = {*own} - {*came_from_git(taken, own)}
    for file in found:
        resource = case.resource(file)
        if resource and (taken.files[file].agent, resource.text) in editing and file not in own:
            worked_on.add(file)
    taken.lost = {file: there for file, there in found.items() if file not in worked_on}
    taken.left_out = {
        file: why for file, why in taken.left_out.items() if not is_older(file, taken.at)
    }
    if taken.refs is not None:
        refs, stashes = where_commits_are(case)
        taken.commits = {
            **{commit: ref for ref, commit in taken.refs.items() if refs.get(ref) != commit},
            **{commit: says for commit, says in taken.stashes.items() if commit not in stashes},
        }
    if taken.lost or taken.commits or taken.left_out:
        taken.write(case.kept)
    else:
        case.kept.own.remove(taken.name)


def is_older(file: str, at: int) -> bool:
    """Whether a file exists, and nobody has written to it since."""
    try:
        return os.lstat(file).st_mtime * 1000 < at
    except OSError:
        return False


def came_from_git(taken: Snapshot, files: list[str]) -> Iterable[str]:
    """The agent's own files that its command reset to an earlier committed content.

    In other cases the agent has gone on working on its files, and nothing is lost.
    """
    if not files:
        return ()
    there = {file: blob_id(read_file(file) or b"", taken.files[file].ids) for file in files}
    found = {file for file, name in there.items() if name in taken.files[file].ids}
    rest = [file for file in files if file not in found]
    if not rest or taken.refs is None:
        return found
    top = taken.top_of(rest[0])
    tips = {*taken.refs.values(), taken.tops.get(top, "")} - {"", "(initial)"}
    said = git("log", "--raw", "-z", "--no-abbrev", "--no-renames", "--format=", "-n", "500",
               "--stdin", "--", *rest[:PATHS_LIMIT], cwd=top,
               environment=elsewhere() | {"GIT_LITERAL_PATHSPECS": "1"},
               input="\n".join([*tips, ""]).encode(), timeout_s=BUDGET_S)  # fmt: skip
    older = {word for part in said.split(b"\0") for word in part.decode("ascii", "replace").split()}
    return found | {file for file in rest if there[file] in older}


class Loss:
    """A content that a command removed, or that somebody overwrote without the lease.

    by, doing: who did that, and with which command, as far as is known
    there: what has been in the file since, "" for nothing
    top: the checkout that it was in
    """

    mode = 0o100644
    top = ""

    def __init__(self, file: str, content_hash: str, agent: str, at: int) -> None:
        self.file = file
        self.content_hash = content_hash
        self.agent = agent
        self.at = at
        self.by = self.doing = self.there = ""

    def described(self) -> dict[str, str | int]:
        names = ("file", "agent", "at", "content_hash", "by", "doing")
        return {name: getattr(self, name) for name in names}

    @property
    def is_away(self) -> bool:
        """Whether the checkout that the file was in is gone."""
        return bool(self.top) and not os.path.lexists(f"{self.top}/.git")


def losses(contents: Contents, begin: int) -> list[Loss]:
    """What was lost since then, the latest first."""
    found = [
        lost
        for taken in snapshots(contents)
        if taken.at >= begin
        for lost in lost_in(contents, taken)
    ]
    for file in contents.files():
        versions = contents.versions(file)
        own = next((one for one in versions if not one.foreign), None)
        last = versions[0] if versions else None
        if own and last and last.foreign and last.at >= begin and last.agent != RECOVER:
            lost = Loss(file, own.content_hash, own.agent, last.at)
            lost.by, lost.there = last.agent, last.content_hash
            found.append(lost)
    return sorted(found, key=lambda one: -one.at)


def lost_in(contents: Contents, taken: Snapshot) -> list[Loss]:
    """What a command removed; if no hook has checked after it, what is gone now."""
    found = []
    gone = taken_away(contents, taken) if taken.lost is None else taken.lost
    for file, there in gone.items():
        one = taken.files.get(file)
        if one is not None and contents.has(one.content_hash):
            lost = Loss(file, one.content_hash, one.agent, taken.at)
            lost.by, lost.doing = taken.agent, taken.doing
            # Otherwise what is there now may be somebody's later work.
            lost.there = there if taken.lost is not None else ""
            lost.mode, lost.top = one.mode, taken.top_of(file)
            found.append(lost)
    return found


class Committed:
    """The contents of all commits that were made since a time."""

    def __init__(self, root: str, begin: int) -> None:
        try:
            said = git(
                "log", "--all", f"--since={begin // 1000 - 1}", "--raw", "-z", "--no-abbrev",
                "--no-renames", "-m", "--format=", cwd=root, environment=elsewhere(),
            )  # fmt: skip
        except UnavailableError:
            said = b""  # no repository, or an empty one
        self._ids = {word for part in said.split(b"\0") for word in part.decode().split()}

    def has(self, content: bytes) -> bool:
        return any(blob_id(content, ["0" * size]) in self._ids for size in (40, 64))


def unreachable(root: str, commits: Iterable[str]) -> set[str]:
    """The commits that are in git but not reachable from any branch, tag or stash."""
    wanted = {*commits}
    if not wanted:
        return set()
    try:
        said = git("rev-list", "--ignore-missing", "--stdin", "--not", "--all", cwd=root,
                   environment=elsewhere(), input="\n".join([*wanted, ""]).encode())  # fmt: skip
    except UnavailableError:
        return set()  # the repository is gone
    return wanted & {*said.decode().split()}
