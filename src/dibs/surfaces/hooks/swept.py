"""Leased files that a sweep found to match their leases, so that the next one need not read them.

Each hook checks that every leased file of its checkout contains what its holder left there. If
there are many, it notes for each unchanged file what the disk said about it, and where the journal
ended. While the disk says the same and the journal has no new lease, only the files that this
session holds must be compared. The disk is asked when a file's status last changed, a time that no
program can set back.

These notes may be lost at any time; then everything is read again.
"""

from __future__ import annotations

import os
from time import time_ns

from dibs.digest import sha256
from dibs.errors import PrunedError
from dibs.records import read_json
from dibs.surfaces.hooks.notes import note_text, read_note, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Agent
    from dibs.records import Lease
    from dibs.storage.folder import Own

SETTLED_NS = 2_000_000_000
"""A file that has changed this recently may change again without looking different."""
FOLDER = "hooks/swept"
FEW = 20
"""This many files can be read as fast as a note is written."""
EVENTS = 200
"""How many events are read; if there are more, all leases are read instead."""
TELLING = {"lease.claimed", "lease.seen", "lease.intruded", "lease.transferred"}
"""The events after which a lease says something new about a file. An ended lease does not."""
Seen = tuple[int, int]
"""For an existing file: when its status last changed, and its inode number."""


class Swept:
    def __init__(self, own: Own, checkout: str, cut_at: int) -> None:
        """The notes about a checkout.

        cut_at: when kept contents were last removed, perhaps those of these files
        """
        self._own = own
        self._cut_at = cut_at
        self._name = f"{FOLDER}/{sha256(checkout.encode('utf-8', 'replace')).hexdigest()[:16]}"
        self._noted: dict[str, list[str | int | None]] = {}
        self._seq: int | None = None
        try:
            said = read_json(read_note(own, self._name) or "{}")
            if said["cut_at"] != cut_at:
                raise ValueError("some of what was kept is gone")
            self._noted = {name: [*of] for name, of in said["files"].items() if len(of) == 4}
            self._seq = said["seq"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # there is none, or it no longer applies
        self._found: dict[str, list[str | int | None]] = {}
        self._until: int | None = None
        self.is_complete = True
        """Whether every file of others matched its lease."""

    def stands(self, agent: Agent, session: int) -> bool:
        """Whether others' files still match their leases, according to the disk and the journal.

        If not, note the place in the journal from which on this can be said again.
        """
        if not self._noted:
            return False
        if self._seq is not None and all(self._is_same(noted) for noted in self._noted.values()):
            try:
                events = agent.events.since(self._seq, kind="lease", limit=EVENTS)
            except PrunedError:
                events = ()
            else:
                if len(events) < EVENTS and not any(
                    event.kind in TELLING
                    and (event.session != session or event.kind == "lease.transferred")
                    for event in events
                ):
                    return True
        self._until = agent.events.last()
        return False

    def is_as_before(self, lease: Lease) -> bool:
        """Whether the file of a lease is unchanged since it matched the lease."""
        noted = self._noted.get(lease.resource)
        if not noted or noted[0] != lease.content_hash or not self._is_same(noted):
            return False
        self._found[lease.resource] = noted
        return True

    def _is_same(self, noted: list[str | int | None]) -> bool:
        try:
            status = os.stat(str(noted[1]))
        except (OSError, ValueError):
            return noted[2] == 0
        return status.st_ctime_ns == noted[2] and status.st_ino == noted[3]

    def note(self, lease: Lease, file: str, seen: Seen | None) -> None:
        """Note that a file matches its lease; seen: what the disk said before it was read."""
        if seen is None:
            self.is_complete = False
        else:
            self._found[lease.resource] = [lease.content_hash, file, *seen]

    def keep(self) -> None:
        """Remember what was found now, and nothing else."""
        seq = self._until if self.is_complete else None
        if max(len(self._found), len(self._noted)) <= FEW:
            return
        if self._found != self._noted or seq != self._seq:
            found = {"seq": seq, "cut_at": self._cut_at, "files": self._found}
            write(self._own, self._name, note_text(found))


def seen(file: str) -> Seen | None:
    """What the disk says about a file; None if that might be the same after a change."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return 0, 0
    changed = status.st_ctime_ns
    return (changed, status.st_ino) if abs(time_ns() - changed) > SETTLED_NS else None
