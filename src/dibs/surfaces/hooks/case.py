"""What one call of a hook works with: who acts, where, by which settings, and what is known."""

from __future__ import annotations

import os

from dibs.errors import InvalidError
from dibs.nouns.globs import is_glob
from dibs.nouns.paths import content_hash
from dibs.surfaces.config import load
from dibs.surfaces.hooks.flights import Flights
from dibs.surfaces.hooks.kept import Kept
from dibs.surfaces.hooks.reads import Reads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Agent, Dibs
    from dibs.nouns.paths import Resource
    from dibs.records import Lease
    from dibs.surfaces.hooks.occasion import Occasion
    from dibs.surfaces.hooks.who import Who

NOT_KEPT = "?"
"""Instead of a hash: an older content that nobody has kept."""


class Case:
    def __init__(self, space: Dibs, who: Who, occasion: Occasion) -> None:
        self.space = space
        self.who = who
        self.occasion = occasion
        self.place = space.scope.place
        # Names are shown from the top, and must mean the same when given back.
        self.place.start = self.place.top
        self.config = load(self.place)
        self.agent: Agent = who.join(space)
        self.session = self.agent.session
        self.store_dir = self.place.store_dir
        self.flights = Flights(self.store_dir)
        self.kept = Kept(self.store_dir)
        self.reads = Reads(self.store_dir, self.session)
        self.intruded: set[str] = set()
        """Files of which was seen that somebody else has changed them."""
        self._mark()
        self.checkout = f"{os.uname().nodename}:{self.place.top}"

    def _mark(self) -> None:
        """Note that this session has hooks, which see what it does to its files."""
        file = hooked(self.store_dir, self.session)
        if not os.path.exists(file):
            os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
            os.close(os.open(file, os.O_CREAT | os.O_CLOEXEC, 0o600))

    def resource(self, path: str) -> Resource | None:
        """What a path of the client's means here; None for what lies outside the space."""
        path = os.path.join(self.cwd, path)
        # A file may bear a name that reads as a pattern.
        text = f"path:{path}" if os.path.lexists(path) or not is_glob(path) else path
        try:
            return self.place.resource(text)
        except InvalidError:
            return None

    def is_own(self, path: str) -> bool:
        """Whether a path leads into the folder of dibs itself."""
        real = os.path.realpath(os.path.join(self.cwd, path))
        return f"{real}/".startswith(f"{self.store_dir}/")

    @property
    def cwd(self) -> str:
        return self.occasion.cwd or os.getcwd()

    def leased_files(self) -> list[tuple[Lease, str]]:
        """Every file that somebody alone may change, and where it is: in this checkout, and own."""
        found = []
        for lease in self.agent.leases.list():
            if lease.kind not in ("file", "dir") or lease.mode != "exclusive":
                continue
            if lease.session == self.session or lease.checkout == self.checkout:
                file = self._file(lease)
                if file and not os.path.isdir(file):
                    found.append((lease, file))
        return found

    def _file(self, lease: Lease) -> str:
        """Where the file of a lease is on this disk, "" if it is not here any more."""
        machine, _, top = (lease.checkout or "").partition(":")
        if machine != os.uname().nodename:
            return ""
        try:
            found = self.place.resource(f"path:{top}/{lease.resource.removeprefix('path:')}")
        except InvalidError:
            return ""  # a link that leads out of the space, or a repository of its own by now
        return found.file or "" if found.text == lease.resource else ""

    def is_alone(self) -> bool:
        """Whether no other agent is here now."""
        family = {self.agent.name, self.agent.name.partition("/")[0]}
        return all(
            presence.agent in family or presence.agent.partition("/")[0] in family
            for presence in self.agent.agents.list()
        )

    def made(self, file: str) -> None:
        """This session has made what is in the file now."""
        self.reads.note(file, self.kept.keep(file, self.agent.name) or content_hash(file))

    def read(self, file: str, shown: str = "") -> None:
        """This session has read what is in the file now.

        shown: what it was shown; if that is not in the file, somebody was faster than this hook
        """
        content = self.kept.keep(file)
        if shown and content and not is_in(shown, self.kept.content(content) or b""):
            content = NOT_KEPT
        self.reads.note(file, content or content_hash(file))


def hooked(store_dir: str, session: int) -> str:
    """The file that says that a session has hooks."""
    return os.path.join(store_dir, "hooks", "sessions", str(session))


def is_in(text: str, content: bytes) -> bool:
    """Whether a file holds a text, however its lines end."""
    return text.replace("\r\n", "\n").encode("utf-8", "replace") in content.replace(b"\r\n", b"\n")
