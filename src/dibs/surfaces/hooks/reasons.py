"""What hooks claimed for a session, and when these claims end.

What an agent claimed itself, it releases itself. What a hook claimed ends by itself:

    for a tool       a directory, a pattern, a file that everybody appends to: ends with the tool
    for a change     a file that a tool is going to change: short, and ends if the tool does not
                     run or changes nothing, since the user may be asked first and may say no
    changed          a file that a tool of this session has changed: lasts until the file has no
                     uncommitted changes (checked at a commit and at the end of a turn), until it
                     was not edited for ten minutes and another agent waits for it, or until the
                     lease expires

A note for each lease, kept beside the store, says which of these it is; the note's time is that of
the last edit. The lease itself says who, until when and what for. The note counts only for the
grant that it was made for, and only while the lease's own note is unchanged: otherwise somebody has
claimed it by hand.
"""

from __future__ import annotations

import os
from time import time

from dibs.digest import sha256
from dibs.errors import DibsError
from dibs.records import read_json
from dibs.storage.folder import Own
from dibs.surfaces.hooks.notes import note_text, notes_in, read_note, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from dibs.names.paths import Resource
    from dibs.records import Lease
    from dibs.surfaces.hooks.case import Case

TOOL, CHANGE, CHANGED = "tool", "change", "changed"
EARLIER = {"for one command": TOOL, "being edited": CHANGED}
"""The notes on leases by which earlier releases recognized a hook's claims."""
EDIT_S = 120
"""How long a file is leased for an edit, which is quick once the client's user allows it."""
IDLE_S = 600
"""A file that was not edited for this long is not being worked on."""
NOTE_LIMIT = 120


class Claim:
    """One lease that a hook claimed.

    how: which of the three it is
    idle_s: how long ago it was claimed, or the file was last edited
    """

    def __init__(self, how: str, idle_s: float) -> None:
        self.how = how
        self.idle_s = idle_s


class Claims:
    """What hooks claimed for one session."""

    def __init__(self, store_dir: str, session: int) -> None:
        self._own = Own(store_dir)
        self._folder = f"hooks/claims/{session}"

    def note(self, lease: Lease, how: str) -> None:
        said = {"epoch": lease.epoch, "note": lease.note, "how": how}
        write(self._own, self._name(lease.resource), note_text(said))

    def of(self, lease: Lease) -> Claim | None:
        """What a hook claimed this lease for; None if the agent claimed it itself."""
        if lease.note in EARLIER:
            return Claim(EARLIER[lease.note], time() - lease.granted_at / 1000)
        name = self._name(lease.resource)
        status = self._own.status(name)
        if status is None:
            return None
        try:
            said = read_json(read_note(self._own, name) or "")
            known = said["epoch"] == lease.epoch and said["note"] == lease.note
            return Claim(said["how"], time() - status.st_mtime) if known else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None  # it has just ended, or another release wrote it

    def edited(self, lease: Lease) -> None:
        """Note that a tool of the session has changed the file."""
        claim = self.of(lease)
        if claim is not None and claim.how != TOOL:
            self.note(lease, CHANGED)

    def forget(self, resource: str) -> None:
        self._own.remove(self._name(resource))

    def forget_all(self) -> None:
        try:
            for name in notes_in(self._own, self._folder):
                self._own.remove(name)
            os.rmdir(self._own.file(self._folder))
        except OSError:
            pass  # another hook of the session is doing the same, or adds a note

    def _name(self, resource: str) -> str:
        return f"{self._folder}/{sha256(os.fsencode(resource)).hexdigest()[:40]}"


def purpose(case: Case) -> str:
    """What a tool is used for, in the agent's own words, for others to read.

    This is its status, the task that it has claimed, or its description of the tool. Never the
    prompt, which is between the agent and its user.
    """
    try:
        said = case.agent.agents.doing()
    except DibsError:
        said = ""  # a daemon of an earlier release does not know
    said = " ".join((said or case.occasion.purpose).split())
    said = "".join(sign for sign in said if sign.isprintable())
    return said if len(said) <= NOTE_LIMIT else f"{said[: NOTE_LIMIT - 1]}…"


def claim(
    case: Case,
    resources: list[Resource],
    ttl_s: float,
    note: str,
    how: Mapping[str, str],
    wait_s: float = 0,
) -> None:
    """Claim for this session, and note what each resource is claimed for; by default the tool."""
    texts, here = texts_of(resources), is_claimed_here(case)
    grant = case.agent.leases.claim(*texts, ttl_s=ttl_s, note=note, here=here, wait_s=wait_s)
    for lease in grant.leases:
        case.claims.note(lease, how.get(lease.resource, TOOL))


def texts_of(resources: list[Resource]) -> list[str]:
    """Resources by their place on disk: a relative name may mean another worktree's file."""
    return [f"path:{one.file}" if one.file else one.text for one in resources]


def is_claimed_here(case: Case) -> bool:
    """Whether leases in other worktrees or on other machines do not block this claim."""
    place = case.place
    if case.config.worktrees == "block":
        return False
    if place.top != place.root or case.space.scope.beats:
        return True
    try:
        return bool(os.listdir(os.path.join(place.root, ".git", "worktrees")))
    except OSError:
        return False
