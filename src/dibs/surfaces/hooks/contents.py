"""Contents of leased files, kept by their hash, so that what was overwritten comes back.

The hooks keep what a file holds before each edit and after it. A content is one file named by
its SHA-256, written once; an index beside it says which names had it, when, and whose it was.
Both are bounded: the contents that were not used for longest go first. `dibs recover` reads here.

They are of this machine, like the files themselves, and lie beside its store.

Hashes of large files are noted too, so that no hook reads all of them again and again.
"""

from __future__ import annotations

import os
from stat import S_ISREG
from time import time

from dibs.digest import sha256
from dibs.names.checkouts import content_hash
from dibs.surfaces.hooks.notes import stamp, write

FILE_LIMIT = 4 << 20
TOTAL_LIMIT = 256 << 20
NAMES_LIMIT = 100
"""How many contents of one file the index remembers."""
LARGE = 1 << 20
SETTLED_S = 2
"""A file that was written to this recently may change again without looking different."""


class Version:
    """One content of a file: when it was seen, and by whom it was made."""

    __slots__ = ("agent", "at", "content_hash", "foreign")

    def __init__(self, at: int, content_hash: str, agent: str, foreign: bool) -> None:
        self.at = at
        self.content_hash = content_hash
        self.agent = agent
        self.foreign = foreign
        """Whether somebody made it who did not hold the file."""


class Contents:
    def __init__(self, store_dir: str) -> None:
        self._folder = os.path.join(store_dir, "kept")

    def keep(self, file: str, agent: str = "", foreign: bool = False) -> str | None:
        """Keep the content of a file; its hash, or None if there is no file that fits.

        agent: who has made it, or holds it with that content; nobody if it was only read
        """
        content = read_file(file)
        if content is None:
            return None
        name: str = sha256(content).hexdigest()
        if not self._touch(name):
            write(self._path(name), content)
            if name[0] == "0":  # once in sixteen, so that no call pays much
                self.prune()
        if agent:
            self._index(file, name, agent, foreign)
        return name

    def has(self, content_hash: str) -> bool:
        return os.path.exists(self._path(content_hash))

    def content(self, content_hash: str) -> bytes | None:
        try:
            with open(self._path(content_hash), "rb") as source:
                return source.read()
        except OSError:
            return None

    def versions(self, file: str) -> list[Version]:
        """What a file has held, the latest first, as far as it is still kept."""
        try:
            with open(self._names(file), encoding="utf-8") as source:
                lines = source.read().splitlines()
        except OSError:
            return []
        found = []
        for line in reversed(lines[1:]):
            at, content_hash, how, agent = line.split(" ", 3)
            if self.has(content_hash):
                found.append(Version(int(at), content_hash, agent, how == "foreign"))
        return found

    def prune(self) -> None:
        """Remove the contents that were not used for longest, until the rest is small enough."""
        found = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    status = os.stat(path)
                except FileNotFoundError:
                    continue  # somebody else removes, too
                found.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= TOTAL_LIMIT:
                break
            total -= size
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass

    def _path(self, content_hash: str) -> str:
        return os.path.join(self._folder, content_hash[:2], content_hash)

    def _names(self, file: str) -> str:
        return os.path.join(self._folder, "names", sha256(os.fsencode(file)).hexdigest()[:40])

    def _touch(self, content_hash: str) -> bool:
        try:
            os.utime(self._path(content_hash))
        except FileNotFoundError:
            return False
        return True

    def _index(self, file: str, content_hash: str, agent: str, foreign: bool) -> None:
        """Add a line to what is known of a file, unless the last one says so already."""
        path = self._names(file)
        try:
            with open(path, encoding="utf-8") as source:
                lines = source.read().splitlines()
        except FileNotFoundError:
            lines = [file]
        how = "foreign" if foreign else "own"
        if lines[1:] and lines[-1].split(" ", 1)[1] == f"{content_hash} {how} {agent}":
            return
        lines.append(f"{round(time() * 1000)} {content_hash} {how} {agent}")
        text = "\n".join([lines[0], *lines[1:][-NAMES_LIMIT:]]) + "\n"
        write(path, text)


def read_file(file: str) -> bytes | None:
    """What is in a file; None if there is none, if it is no regular file, or too large."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as source:
            if not S_ISREG(os.fstat(handle).st_mode):
                return None  # to read a fifo would take from it
            content = source.read(FILE_LIMIT + 1)
    except OSError:
        return None
    return content if len(content) <= FILE_LIMIT else None


def quick_hash(store_dir: str, file: str) -> str | None:
    """The SHA-256 of a file, read anew only if it is small or looks different."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    if status.st_size < LARGE:
        return content_hash(file)
    path = os.path.join(store_dir, "hooks", "hashes", sha256(os.fsencode(file)).hexdigest()[:40])
    seen = stamp(file)
    try:
        with open(path, encoding="ascii") as source:
            known, _, found = source.read().partition(" ")
        if known == seen:
            return found or None
    except FileNotFoundError:
        pass  # nobody has asked before
    now = content_hash(file)
    if time() - status.st_mtime > SETTLED_S:
        write(path, f"{seen} {now or ''}")
    return now
