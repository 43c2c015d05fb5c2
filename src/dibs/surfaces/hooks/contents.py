"""Contents of leased files, kept by their hash, so that what was overwritten comes back.

The hooks keep what a file holds before each edit and after it. A content is one file named by
its SHA-256, written once; an index beside it says which names had it, when, and whose it was.
Both are bounded: the contents that were not used for longest go first. `dibs recover PATH` brings
back what a file held before somebody overwrote it.

They are of this machine, like the files themselves, and lie beside its store. The name of an index
depends on the store's key, so that one that came with an archive is not found.
"""

from __future__ import annotations

import os
from stat import S_ISREG
from time import time

from dibs.dibs import Dibs
from dibs.digest import sha256
from dibs.errors import HeldError, InvalidError, NotFoundError
from dibs.names.checkouts import content_hash
from dibs.operation import EVERYBODY
from dibs.records import called, in_the_way
from dibs.storage.folder import Own
from dibs.surfaces.hooks.notes import mark_of, read_note, write
from dibs.surfaces.hooks.swept import forget
from dibs.surroundings.commands import Globals
from dibs.surroundings.wording import ago, argument, note, print_json, say

BY = EVERYBODY
FILE_LIMIT = 4 << 20
TOTAL_LIMIT = 256 << 20
NAMES = r"kept/(?:[0-9a-f]{2}/[0-9a-f]{64}|names/[0-9a-f]{40})(?:\.part-\d+)?"
NAMES_LIMIT = 100
"""How many contents of one file the index remembers."""


class Version:
    """One content of a file: when it was seen, and by whom it was made.

    foreign: whether somebody made it who did not hold the file
    """

    def __init__(self, line: str) -> None:
        at, self.content_hash, how, self.agent = line.split(" ", 3)
        self.at = int(at)
        if len(at) > 15 or len(self.content_hash) != 64 or not self.content_hash.isalnum():
            raise ValueError("not a line of an index")
        self.foreign = how == "foreign"


class Contents:
    def __init__(self, store_dir: str, mark: str) -> None:
        """
        mark: what nobody knows who might have put an index there (`mark_of`)
        """
        self._own = Own(store_dir)
        self._mark = mark

    def keep(self, file: str, agent: str = "", foreign: bool = False) -> str | None:
        """Keep the content of a file; its hash, or None if there is no file that fits.

        agent: who has made it, or holds it with that content; nobody if it was only read
        """
        content = read_file(file)
        if content is None:
            return None
        name: str = sha256(content).hexdigest()
        try:
            os.utime(self._own.file(kept(name)), follow_symlinks=False)
        except FileNotFoundError:
            self._own.write(kept(name), content)
            if name[0] == "0":  # once in sixteen, so that no call pays much
                self.prune()
        if agent:
            self._index(file, name, agent, foreign)
        return name

    def has(self, content_hash: str) -> bool:
        return self._own.status(kept(content_hash)) is not None

    def content(self, content_hash: str) -> bytes | None:
        return self._own.read(kept(content_hash))

    def versions(self, file: str) -> list[Version]:
        """What a file has held, the latest first, as far as it is still kept."""
        found = []
        for line in reversed(self._lines(file)[1:]):
            try:
                version = Version(line)
            except ValueError:
                continue  # damaged
            if self.has(version.content_hash):
                found.append(version)
        return found

    def prune(self) -> None:
        """Remove the contents that were not used for longest, until the rest is small enough."""
        import re

        found = []
        for folder in self._own.names("kept"):
            for last in self._own.names(f"kept/{folder}"):
                name = f"kept/{folder}/{last}"
                status = self._own.status(name)
                # Else somebody removes, too; and what dibs has not named is somebody's.
                if status is not None and re.fullmatch(NAMES, name):
                    found.append((status.st_mtime_ns, status.st_size, name))
        total = sum(size for _, size, _ in found)
        for _, size, name in sorted(found):
            if total <= TOTAL_LIMIT:
                break
            total -= size
            self._own.remove(name)
            forget(self._own)

    def _names(self, file: str) -> str:
        name = os.fsencode(f"{self._mark}\n{file}")
        return f"kept/names/{sha256(name).hexdigest()[:40]}"

    def _lines(self, file: str) -> list[str]:
        return (read_note(self._own, self._names(file)) or file).splitlines()

    def _index(self, file: str, content_hash: str, agent: str, foreign: bool) -> None:
        """Add a line to what is known of a file, unless the last one says so already."""
        lines = self._lines(file)
        how = "foreign" if foreign else "own"
        if lines[1:] and lines[-1].partition(" ")[2] == f"{content_hash} {how} {agent}":
            return
        lines.append(f"{round(time() * 1000)} {content_hash} {how} {agent}")
        write(self._own, self._names(file), "\n".join([lines[0], *lines[1:][-NAMES_LIMIT:], ""]))


def kept(content_hash: str) -> str:
    return f"kept/{content_hash[:2]}/{content_hash}"


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


def main(call: Globals, path: str, *, list: bool = False, show: bool = False, to: str = "") -> int:
    """Bring back what the last holder of a file had in it, after somebody else wrote to it.

    What is in the file now is kept too, so that this can be undone. Whoever has written to a file
    that another holds may undo just that; anything else is refused while another holds it.

    path: the file
    list: list the contents that are kept, the latest first
    show: print that content instead of writing it
    to: this content instead, by the first letters of its hash
    example: src/a.py
    """
    from dibs.setup.files import replace

    with call.open() as space:
        resource = space.scope.place.resource(f"path:{path}")
        file = resource.file or ""
        if os.path.isdir(file):
            raise InvalidError(f"{called(resource.text)} is a directory", next="name a file")
        contents = Contents(space.scope.place.store_dir, mark_of(space))
        versions = contents.versions(file)
        if list:
            listed(call, versions, content_hash(file))
            return 0
        chosen = choose(versions, to, content_hash(file), called(resource.text))
        content = contents.content(chosen.content_hash)
        if content is None or sha256(content).hexdigest() != chosen.content_hash:
            raise NotFoundError(
                f"the content {chosen.content_hash[:12]} is damaged or gone",
                next=f"choose another: dibs recover {path} --list",
            )
        if show:
            import sys

            sys.stdout.flush()
            if sys.stdout.isatty():
                say(content.decode("utf-8", "backslashreplace"), end="")
            else:
                sys.stdout.buffer.write(content)
            return 0
        last = versions[0]
        undoes = not to and last.foreign and last.content_hash == content_hash(file)
        permit(call, space, path, last.agent if undoes else "")
        contents.keep(file, "recover", foreign=True)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        replace(file, content, 0o666, os.stat(file) if os.path.exists(file) else None)
        if call.json:
            print_json(vars(chosen))
        else:
            note(f"{called(resource.text)} is as {called(chosen.agent)} left it {ago(chosen.at)}")
        return 0


def choose(versions: list[Version], to: str, now: str | None, name: str) -> Version:
    """The content that was asked for, or the latest that a holder had."""
    for version in versions:
        if version.content_hash.startswith(to) if to else not version.foreign:
            if version.content_hash == now:
                raise NotFoundError(
                    f"{name} is as {called(version.agent)} left it already",
                    next=f"choose an earlier one: dibs recover {name} --list",
                )
            return version
    raise NotFoundError(
        f"nothing {'of that hash ' if to else ''}is kept of {name}",
        next=f"look at what is: dibs recover {name} --list"
        if versions
        else "contents are kept by the hooks of dibs init, when an agent edits a file",
    )


def permit(call: Globals, space: Dibs, path: str, undone: str) -> None:
    """Refuse to write under the lease of another; whoever is told to recover may hold it.

    undone: whose work alone is undone, who did not hold the file; they may
    """
    who = call.who()
    agent = who.join(space) if who else None
    if agent is not None and agent.name == undone:
        return
    (state,) = (agent or space).leases.status(path)
    if state.free:
        return
    raise HeldError(
        in_the_way(state.blockers, round(time() * 1000)),
        next="ask them to recover it (dibs send TEXT --to "
        f"{argument(state.blockers[0].agent)}), or look: dibs recover {path} --show",
        blockers=state.blockers,
    )


def listed(call: Globals, versions: list[Version], now: str | None) -> None:
    if call.json:
        print_json([vars(one) for one in versions])
        return
    for one in versions:
        here = "  (in the file now)" if one.content_hash == now else ""
        how = "  (without the lease)" if one.foreign else ""
        say(f"{one.content_hash[:12]}  {ago(one.at):<12}  {called(one.agent)}{how}{here}")
    if not versions:
        note("nothing is kept of this file")
