"""What one call of a hook works with: who acts, where, with which settings, and what is known."""

from __future__ import annotations

import os
from time import time

from dibs.dibs import Agent, Dibs
from dibs.digest import sha256
from dibs.errors import InvalidError, NotFoundError, StaleError
from dibs.names.checkouts import content_hash
from dibs.names.paths import Resource, is_glob
from dibs.operation import HOOK
from dibs.records import Lease
from dibs.storage.folder import Own
from dibs.surfaces.hooks.contents import Contents, read_file
from dibs.surfaces.hooks.notes import Flights, Reads, mark_of, read_note, stamp, write
from dibs.surfaces.hooks.reasons import Claims
from dibs.surroundings.occasion import Occasion
from dibs.surroundings.settings import load
from dibs.surroundings.who import Who

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.hooks.swept import Swept

LAYOUT = b" \t\r\n\f\v'\",;()\\"
"""What formatters add, remove and replace."""
IMPORTS = (b"import ", b"from ", b"use ", b"using ", b"#include", b"require")
FORMATTER_S = 30
"""How soon after an edit a formatter has finished."""
LARGE = 1 << 20
SETTLED_S = 2
"""A file that was written to this recently may change again without looking different."""
ONCE, KNOWN = "once", "known"
"""How certain it is that a session has a formatter."""
NOT_KEPT = "?"
"""Instead of a hash: an older content that was not kept."""


class Case:
    has_hooks = True
    """Whether a client's hook acts, which sees every tool of the session."""

    def __init__(self, space: Dibs, who: Who, occasion: Occasion) -> None:
        space.scope.door = space.scope.door.to(HOOK)
        self.space = space
        self.who = who
        self.occasion = occasion
        self.place = space.scope.place
        # Names are shown relative to the top, and must mean the same when they are passed back.
        self.place.start = self.place.top
        self.config = load(self.place)
        self.agent: Agent = who.join(space)
        self.session = self.agent.session
        self.store_dir = self.place.store_dir
        self.own = Own(self.store_dir)
        self.mark = mark_of(space)
        self.cwd = occasion.cwd or os.getcwd()
        self.flights = Flights(self.store_dir, self.session)
        self.claims = Claims(self.store_dir, self.session)
        self.kept = Contents(self.store_dir)
        self.reads = Reads(self.store_dir, self.session)
        self.intruded: set[str] = set()
        """Files that somebody else was seen to change."""
        self.checkout = f"{self.place.machine}:{self.place.top}"
        self.is_first = self.has_hooks and not self.is_hooked(self.session)
        if self.is_first:
            write(self.own, hooked(self.session), who.client or "")

    def is_hooked(self, session: int) -> bool:
        """Whether a session has hooks that use this store."""
        return self.own.status(hooked(session)) is not None

    def is_resting(self, session: int) -> bool:
        """Whether the turn of a session with hooks has ended, as far as its client has said."""
        return self.own.status(resting(session)) is not None

    def rests(self) -> None:
        """Note that the turn of this session has ended."""
        write(self.own, resting(self.session), "")

    def works(self) -> None:
        """Note that another turn of this session has begun."""
        self.own.remove(resting(self.session))

    def resource(self, path: str, pattern: bool = False) -> Resource | None:
        """What a client's path means here; None if it is outside the space.

        pattern: whether it may be a shell pattern
        """
        path = os.path.join(self.cwd, path)
        pattern = pattern and is_glob(path) and not os.path.lexists(path)
        try:
            return self.place.resource(path if pattern else f"path:{path}")
        except InvalidError:
            return None

    def is_unnamed(self, path: str) -> bool:
        """Whether a path is in this space and has a name that cannot be claimed."""
        return not path.isprintable() and self._is_below(self.place.top, path)

    def is_own(self, path: str) -> bool:
        """Whether a path leads into dibs' own folder."""
        return self._is_below(self.store_dir, path)

    def _is_below(self, folder: str, path: str) -> bool:
        return f"{os.path.realpath(os.path.join(self.cwd, path))}/".startswith(f"{folder}/")

    def leased_files(
        self, own: bool = False, swept: Swept | None = None
    ) -> list[tuple[Lease, str]]:
        """Every file here with an exclusive lease, and where it is on disk.

        own: only those that this session may change
        swept: leaves out others' files that have not changed since they were checked
        """
        found = []
        session = self.session if own else None
        for lease in self.agent.leases.list(session=session):
            if lease.kind not in ("file", "dir") or lease.mode != "exclusive":
                continue
            mine, here = lease.session == self.session, lease.checkout == self.checkout
            if swept and here and not mine and swept.is_as_before(lease):
                continue
            if here or mine:
                file = self._file(lease)
                if file and not os.path.isdir(file):
                    found.append((lease, file))
        return found

    def _file(self, lease: Lease) -> str:
        """Where the file of a lease is on this disk; "" if it is no longer here."""
        machine, _, top = (lease.checkout or "").partition(":")
        if machine != self.place.machine:
            return ""
        try:
            found = self.place.resource(f"path:{top}/{self.place.inside(lease.resource) or ''}")
        except InvalidError:
            return ""  # by now a link that leads out of the space, or a repository of its own
        return found.file or "" if found.text == lease.resource else ""

    def is_alone(self) -> bool:
        """Whether no other agent is here now, except its own subagents or its parent."""
        root = self.who.root
        return all(
            session.id == self.session
            or session.agent.startswith(f"{root}/")
            or (session.agent == root != self.agent.name)
            for presence in self.agent.agents.list()
            for session in presence.sessions
        )

    def content_hash(self, file: str) -> str | None:
        """The SHA-256 of a file; for a large file that has not changed, the hash found before."""
        try:
            status = os.stat(file)
        except OSError:
            return None
        if status.st_size < LARGE:
            return content_hash(file)
        name = sha256(os.fsencode(file)).hexdigest()[:40]
        noted = f"hooks/hashes/{name}"
        seen = stamp(file)
        known, _, found = (read_note(self.own, noted) or "").partition(" ")
        if known == seen:
            return found or None
        now = content_hash(file)
        if time() - status.st_mtime > SETTLED_S:
            write(self.own, noted, f"{seen} {now or ''}")
        return now

    def is_formatted(self, file: str, session: int) -> bool:
        """Whether a file contains what a session has just written, apart from its formatting.

        A formatter that the user has attached to the client's edits runs right after an edit. It
        changes what no program depends on, and perhaps the order of imports. While others have
        tools running, the change may be theirs: always if lines changed places, otherwise unless
        the session is known to have a formatter.
        """
        reads = Reads(self.store_dir, session)
        known = reads.known(file)
        if known is None or not known.made or abs(reads.age_s(file)) > FORMATTER_S:
            return False
        others = [one for one in self.flights.under_way() if one.session != session]
        resource = self.resource(file)
        if resource is None or any(one.names(resource.text) for one in others):
            return False
        then, now = self.kept.content(known.content_hash), read_file(file)
        if then is None or now is None:
            return False
        if laid_out(then) == laid_out(now):
            return self._has_formatter(session, bool(others))
        return not others and without_imports(then) == without_imports(now)

    def _has_formatter(self, session: int, others: bool) -> bool:
        """Whether a session has a formatter of its own, now that one of its files was reformatted.

        That is known if nobody else can have done it, or if it has happened before.
        """
        note = formatting(session)
        seen = read_note(self.own, note)
        if seen != KNOWN:
            write(self.own, note, KNOWN if seen or not others else ONCE)
        return not others or seen == KNOWN

    def see(self, lease: Lease) -> None:
        """Record that the holder wrote what is in the file of a lease now."""
        try:
            self.agent.leases.see(lease.resource)
        except (NotFoundError, StaleError):
            pass  # the lease has just expired

    def made(self, file: str) -> str | None:
        """Record that this session wrote what is in the file now; return its hash."""
        found = self.kept.keep(file, self.agent.name) or self.content_hash(file)
        self.reads.note(file, found, made=True)
        self.kept.note_author(self.place.top, self.agent.name)
        return found

    def read(self, file: str, shown: str = "", lines: int = 0) -> None:
        """Record that this session has read what is in the file now.

        shown, lines: what it was shown of the file, and how many lines the file had; if the file
            no longer matches, somebody changed it before this hook ran
        """
        content = self.kept.keep(file)
        if shown and content:
            now = self.kept.content(content) or b""
            if not is_in(shown, now) or (lines and now.count(b"\n") + 1 != lines):
                content = NOT_KEPT
        self.reads.note(file, content or self.content_hash(file))


def hooked(session: int) -> str:
    """The note that says that a session has hooks."""
    return f"hooks/sessions/{session}"


def resting(session: int) -> str:
    """The note that says that the turn of a session has ended."""
    return f"hooks/resting/{session}"


def formatting(session: int) -> str:
    """The note that says that a formatter seems to follow the edits of a session."""
    return f"hooks/formatting/{session}"


def laid_out(content: bytes) -> bytes:
    """A text without its formatting."""
    return content.translate(None, LAYOUT)


def without_imports(content: bytes) -> tuple[bytes, list[bytes]]:
    """The same, with the imports apart, in any order."""
    lines = content.splitlines()
    imports = [line for line in lines if line.lstrip().startswith(IMPORTS)]
    rest = [line for line in lines if not line.lstrip().startswith(IMPORTS)]
    return laid_out(b"".join(rest)), sorted(map(laid_out, imports))


def is_in(text: str, content: bytes) -> bool:
    """Whether a file contains a text, whatever its line ends and encoding."""
    return text.replace("\r\n", "\n") in content.decode("utf-8", "replace").replace("\r\n", "\n")
