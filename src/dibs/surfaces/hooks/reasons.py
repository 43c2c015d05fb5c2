"""What hooks have claimed for a session, and when the reason for that ends.

What an agent has claimed itself is its own to release. What a hook has claimed ends by itself:

    for a tool       a directory, a pattern, a file that everybody appends to: ends with the tool
    for a change     a file that a tool is going to change: short, and gone if the tool does not
                     run or changes nothing, since its user may be asked first, and may say no
    changed          a file that a tool of this session has changed: lasts, until git has every
                     change of it (at a commit, at the end of a turn), until it was not edited for
                     ten minutes and another waits for it, or until its time has passed

One note for each lease says which of these it is, beside the store; its time is that of the last
edit. The lease itself says who, until when and what for. The note counts only for the grant that
it was made for, and as long as nobody has said another purpose: then it was claimed by hand.
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
"""The notes on leases by which earlier releases knew what a hook had claimed."""
EDIT_S = 120
"""How long a file is leased for an edit: that takes no time once the client's user allows it."""
IDLE_S = 600
"""A file that was not edited for so long is not being worked on."""
NOTE_LIMIT = 120


class Claim:
    """One lease that a hook has claimed.

    how: which of the three it is
    idle_s: how long ago it was claimed, or the file was edited last
    """

    def __init__(self, how: str, idle_s: float) -> None:
        self.how = how
        self.idle_s = idle_s


class Claims:
    """What hooks have claimed for one session."""

    def __init__(self, store_dir: str, session: int) -> None:
        self._own = Own(store_dir)
        self._folder = f"hooks/claims/{session}"

    def note(self, lease: Lease, how: str) -> None:
        said = {"epoch": lease.epoch, "note": lease.note, "how": how}
        write(self._own, self._name(lease.resource), note_text(said))

    def of(self, lease: Lease) -> Claim | None:
        """What a hook has claimed this lease for; None if the agent has claimed it itself."""
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
            return None  # it has ended this moment, or is of another release

    def edited(self, lease: Lease) -> None:
        """A tool of the session has changed the file."""
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
            pass  # another hook of the session does the same, or notes something

    def _name(self, resource: str) -> str:
        return f"{self._folder}/{sha256(os.fsencode(resource)).hexdigest()[:40]}"


def purpose(case: Case) -> str:
    """What a tool is used for, for others to read: the agent's own words about its work.

    Its status, the task that it has claimed, or what it said of the tool. Never the prompt, which
    is between the agent and its user.
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
    """Claim for this session, and note what each is claimed for; by default for the tool."""
    texts, here = texts_of(resources), is_claimed_here(case)
    grant = case.agent.leases.claim(*texts, ttl_s=ttl_s, note=note, here=here, wait_s=wait_s)
    for lease in grant.leases:
        case.claims.note(lease, how.get(lease.resource, TOOL))


def texts_of(resources: list[Resource]) -> list[str]:
    """Resources by their place on disk: a name from the top may mean another worktree's file."""
    return [f"path:{one.file}" if one.file else one.text for one in resources]


def is_claimed_here(case: Case) -> bool:
    """Whether what is held in other worktrees, or on other machines, is not in the way."""
    place = case.place
    if case.config.worktrees == "block":
        return False
    if place.top != place.root or case.space.scope.beats:
        return True
    try:
        return bool(os.listdir(os.path.join(place.root, ".git", "worktrees")))
    except OSError:
        return False
