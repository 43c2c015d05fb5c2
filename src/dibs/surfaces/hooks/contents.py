"""Contents of files, kept by their hash, so that what was overwritten or removed can come back.

Before and after each edit, the hooks keep what a file contains. Before a command that could destroy
uncommitted work, they keep that too (`uncommitted`). A content is one file named by its SHA-256,
written once. An index for each file says which contents it had, when, and whose they were.
`dibs recover` brings them back.

All of it is in the user's data folder, because `git clean -fdx` removes `.dibs`, and `rm -rf` a
whole checkout. Its size is bounded: the least recently used goes first.
"""

from __future__ import annotations

import os
from stat import S_ISREG
from time import time

from dibs.digest import sha256
from dibs.errors import UnfitError
from dibs.storage.folder import Own
from dibs.storage.user_dir import home_user_dir
from dibs.surfaces.hooks.notes import append, read_note, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_LIMIT = 4 << 20
TOTAL_LIMIT = 512 << 20
"""The limit for all repositories of the user together."""
NAMES = (
    r"kept/(?:contents/[0-9a-f]{2}/[0-9a-f]{64}"
    r"|[0-9a-f]{32}/(?:names/[0-9a-f]{40}|seen/[0-9a-f]{16}|authors/[0-9a-f]{16}|tools"
    r"|snapshots/\d+-\d+-[0-9a-f]{20}))"
    r"(?:\.part-[0-9a-f]+)?"
)
"""The names of kept files; nothing else is ever pruned."""
CUT = "kept/cut"
"""A file that is written when something is removed; its time says when that was."""
NAMES_LIMIT = 100
"""How many contents of one file the index remembers."""
UNKNOWN = "?"
"""Stands for the agent if it is not known who wrote a content."""


class Version:
    """One content of a file: when it was seen, and who wrote it.

    foreign: whether the writer did not hold the file
    """

    def __init__(self, line: str) -> None:
        at, self.content_hash, how, self.agent = line.split(" ", 3)
        self.at = int(at)
        if len(at) > 15 or len(self.content_hash) != 64 or not self.content_hash.isalnum():
            raise ValueError("not a line of an index")
        self.foreign = how == "foreign"


class Contents:
    def __init__(self, store_dir: str) -> None:
        self.own = Own(os.path.realpath(home_user_dir()))
        try:
            self.own.folder("kept", make=True)
        except (OSError, UnfitError):
            self.own = Own(store_dir)  # this process may not write to any home folder
        self.place = f"kept/{sha256(os.fsencode(store_dir)).hexdigest()[:32]}"
        """The folder of everything that belongs to this store, except the contents themselves."""

    def keep(self, file: str, agent: str = "", foreign: bool = False) -> str | None:
        """Keep the content of a file; return its hash, or None if there is no suitable file.

        agent: who wrote it, or holds the file with that content; empty if it was only read
        """
        content = read_file(file)
        if content is None:
            return None
        name = self.add(content)
        if agent:
            self._index(file, name, agent, foreign)
        return name

    def add(self, content: bytes) -> str:
        """Keep a content that belongs to no file yet; return its hash."""
        name: str = sha256(content).hexdigest()
        status = self.own.status(kept(name))
        # After a power cut, a file may exist but be empty.
        if status is not None and status.st_size == len(content):
            os.utime(self.own.file(kept(name)), follow_symlinks=False)
            return name
        self.own.write(kept(name), content)
        if name < "04":  # in one of 64 calls, so that calls stay cheap
            self.prune()
        return name

    def note(self, file: str, content_hash: str, maker: str = "", otherwise: str = UNKNOWN) -> str:
        """Note that a file was found with this content; return who wrote it, as far as known.

        maker: who wrote it, judging by the time of the write
        otherwise: what to return if nobody is known to have worked on the file
        """
        known = self._known(file)
        if known and known[0].content_hash == content_hash:
            return known[0].agent
        agent = maker or next((one.agent for one in known if not one.foreign), otherwise)
        self._index(file, content_hash, agent, foreign=False)
        return agent

    def authors(self, top: str) -> set[str]:
        """Who may have something uncommitted in a checkout."""
        return {*(read_note(self.own, self.of(top, "authors")) or "").split("\n")} - {""}

    def note_author(self, top: str, agent: str) -> None:
        if agent not in self.authors(top):
            append(self.own, self.of(top, "authors"), f"{agent}\n")

    def of(self, top: str, what: str) -> str:
        """The name of a note about one checkout."""
        return f"{self.place}/{what}/{sha256(os.fsencode(top)).hexdigest()[:16]}"

    def has(self, content_hash: str) -> bool:
        return self.own.status(kept(content_hash)) is not None

    def content(self, content_hash: str) -> bytes | None:
        return self.own.read(kept(content_hash))

    def versions(self, file: str) -> list[Version]:
        """What a file has contained, the latest first, as far as it is still kept."""
        return [one for one in self._known(file) if self.has(one.content_hash)]

    def files(self) -> Iterator[str]:
        """Every file that has kept contents."""
        folder = f"{self.place}/names"
        for last in self.own.names(folder):
            first = (read_note(self.own, f"{folder}/{last}") or "").partition("\n")[0]
            file = first.encode("ascii", "ignore").decode("unicode_escape", "replace")
            if self._names(file) == f"{folder}/{last}":
                yield file

    def prune(self) -> None:
        """Remove the least recently used, until the rest is small enough."""
        import re

        found = []
        for folder, _, names in os.walk(self.own.folder("kept")):
            below = folder[len(self.own.base) + 1 :]
            for last in names:
                if not re.fullmatch(NAMES, f"{below}/{last}"):
                    continue  # not a file of dibs: it belongs to somebody else
                try:
                    status = os.lstat(f"{folder}/{last}")
                except OSError:
                    continue  # another process is removing too
                found.append((status.st_mtime_ns, status.st_size, f"{below}/{last}"))
        total = sum(size for _, size, _ in found)
        if total > TOTAL_LIMIT:
            self.own.write(CUT, b"")
        for _, size, name in sorted(found):
            if total <= TOTAL_LIMIT:
                break
            total -= size
            self.own.remove(name)

    def cut_at(self) -> int:
        """When something was last removed to make room; 0 if nothing ever was."""
        status = self.own.status(CUT)
        return status.st_mtime_ns if status is not None else 0

    def _names(self, file: str) -> str:
        return f"{self.place}/names/{sha256(os.fsencode(file)).hexdigest()[:40]}"

    def _lines(self, file: str) -> list[str]:
        return (read_note(self.own, self._names(file)) or "").split("\n")[:-1]

    def _known(self, file: str) -> list[Version]:
        """What the index says of a file, the latest first."""
        found = []
        for line in reversed(self._lines(file)):
            try:
                found.append(Version(line))
            except ValueError:
                continue  # the name of the file, or damaged
        return found

    def _index(self, file: str, content_hash: str, agent: str, foreign: bool) -> None:
        """Add a line to the index of a file, unless the last line says the same."""
        lines = self._lines(file)
        how = "foreign" if foreign else "own"
        if lines[1:] and lines[-1].partition(" ")[2] == f"{content_hash} {how} {agent}":
            return
        line = f"{round(time() * 1000)} {content_hash} {how} {agent}\n"
        # A name may contain any character, including line ends.
        head = file.encode("unicode_escape").decode()
        if len(lines) > 2 * NAMES_LIMIT:
            recent = "\n".join(lines[-NAMES_LIMIT:])
            write(self.own, self._names(file), f"{head}\n{recent}\n{line}")
        else:  # appended, so that two writers at once lose nothing
            append(self.own, self._names(file), line if lines else f"{head}\n{line}")


def kept(content_hash: str) -> str:
    return f"kept/contents/{content_hash[:2]}/{content_hash}"


def read_file(file: str) -> bytes | None:
    """What is in a file; None if it is missing, not a regular file, or too large."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as source:
            if not S_ISREG(os.fstat(handle).st_mode):
                return None  # reading a fifo would consume its data
            content = source.read(FILE_LIMIT + 1)
    except OSError:
        return None
    return content if len(content) <= FILE_LIMIT else None
