"""Snapshots of what was uncommitted before a command, and what has been lost since.

`uncommitted` takes a snapshot before a command that could destroy something. `losses` notes
afterwards what the command removed, and deletes the snapshot if nothing was lost. A hook that is
killed in between leaves a snapshot without that note; then the files themselves show what is gone.
"""

from __future__ import annotations

import json
import os
from stat import S_ISLNK, S_ISREG

from dibs.digest import sha256
from dibs.surfaces.hooks.contents import Contents, read_file
from dibs.surfaces.hooks.notes import read_note, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.surfaces.hooks.notes import Flight

SETTLED_MS = 2_000
"""A file that was written to this recently may change again without looking different."""
LINK = 0o120000


class Kept:
    """A file as a snapshot found it.

    content_hash: what was in it
    agent: whose it was, as far as is known
    mode, stamp: what the disk said about it
    ids: git's ids of the file's contents in HEAD and in the index
    """

    def __init__(self, said: list[Any]) -> None:
        self.content_hash: str = said[0]
        self.agent: str = said[1]
        self.mode: int = said[2]
        self.stamp: str = said[3]
        self.ids: list[str] = said[4]


class Snapshot:
    """
    at: when it was taken, in ms
    agent, doing: whose command followed, and which
    tops: the checkouts that were checked, each with its HEAD
    refs: where the branches were; None if the command could not move them
    stashes: the stash entries, each with its message
    left_out: the files that were not kept, each with the reason
    lost: what the command removed, each with what has been there since, "" for nothing; None while
    it runs, and if no hook has checked after it
    commits: the branches and stashes that it moved or removed
    """

    def __init__(self, name: str, said: dict[str, Any]) -> None:
        self.name = name
        self.at: int = said["at"]
        self.agent: str = said["agent"]
        self.doing: str = said["doing"]
        self.tops: dict[str, str] = said["tops"]
        self.refs: dict[str, str] | None = said["refs"]
        self.stashes: dict[str, str] = said["stashes"]
        self.left_out: dict[str, str] = said["left_out"]
        self.lost: dict[str, str] | None = said["lost"]
        self.commits: dict[str, str] = said["commits"]
        self.files = {path: Kept(one) for path, one in said["files"].items()}

    def write(self, contents: Contents) -> None:
        files = {path: [*vars(one).values()] for path, one in self.files.items()}
        write(contents.own, self.name, json.dumps(vars(self) | {"files": files}))

    def top_of(self, file: str) -> str:
        """The checkout that a file of the snapshot belongs to."""
        return max((one for one in self.tops if file.startswith(f"{one}/")), key=len, default="")


def snapshots(contents: Contents, ending: str = "") -> list[Snapshot]:
    """The snapshots there are, the latest first.

    ending: how their names end
    """
    folder, found = f"{contents.place}/snapshots", []
    for last in contents.own.names(folder):
        if not last.endswith(ending):
            continue
        try:
            said = json.loads(read_note(contents.own, f"{folder}/{last}") or "")
            found.append(Snapshot(f"{folder}/{last}", said))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            continue  # it was just removed, or another release wrote it
    return sorted(found, key=lambda one: -one.at)


def flight_name(flight: Flight | None) -> str:
    return flight.name.rpartition("/")[2] if flight else f"0-{os.urandom(10).hex()}"


def taken_away(contents: Contents, taken: Snapshot) -> dict[str, str]:
    """The files that differ from a snapshot, except those that their owner changed."""
    return {
        file: there
        for file, there in changed(taken).items()
        if not any(
            one.content_hash == there and one.agent == taken.files[file].agent
            and one.at >= taken.at and not one.foreign and one.agent != taken.agent
            for one in contents.versions(file)
        )
    }  # fmt: skip


def changed(taken: Snapshot) -> dict[str, str]:
    """The files that differ from a snapshot, each with what is there now, "" for nothing."""
    found = {}
    for file, one in taken.files.items():
        try:
            status = os.lstat(file)
        except OSError:
            found[file] = ""
            continue
        mark = f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}"
        if mark == one.stamp and taken.at - status.st_mtime * 1000 > SETTLED_MS:
            continue
        content = content_of(file, status)
        there = "-" if content is None else sha256(content).hexdigest()
        if there != one.content_hash:
            found[file] = there
    return found


def content_of(file: str, status: os.stat_result) -> bytes | None:
    """What to keep of a file; for a link, its target."""
    if S_ISLNK(status.st_mode):
        return os.fsencode(os.readlink(file))
    return read_file(file) if S_ISREG(status.st_mode) else None


def blob_id(content: bytes, like: list[str]) -> str:
    """Git's id of a content, with the digest that its repository uses."""
    import hashlib

    digest = hashlib.sha256 if like and len(like[0]) == 64 else hashlib.sha1
    return digest(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
