"""The notes that hooks leave for each other, each a small file beside the store.

Flights: the tools that are under way now, who may be writing at this moment. Before a tool that
may write, its hook leaves a note, and after it takes that away. So whoever finds a leased file
changed knows whom to ask. A hint, never a lease: the note of a client that died is passed over.

Reads: what a session has read of each file. An edit that rests on an older content is stale. One
note per session and file, with the hash of the content that the session knows. It is written
after each read and after each edit of its own, and looked at before an edit.

Visits: in which other repositories a client's session has edited.

Stagings: who staged what, for each checkout. Git does not say who put an entry into the index. The
hook of a client looks at the index before and after each shell tool: what is staged afterwards and
was not before was staged by that session, or by another whose tool ran at the same time; then both
are noted, and nobody is kept from committing it but a third. What was staged while no tool ran is
nobody's: a person did it. These notes may be lost at any time; then nothing is known, and nothing
is stopped by it. As long as the index stays the same file, to look costs one `stat`.
"""

from __future__ import annotations

import json
import os
import re
from time import time

from dibs.digest import sha256
from dibs.names.checkouts import git_directory
from dibs.storage.clock import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.names.paths import Place
    from dibs.surroundings.occasion import Occasion

LONGEST_S = 7200
"""No tool runs for longer; what is older was left behind."""
EDIT_S = 30
"""No edit takes longer, once it is allowed: older ones wait for a person, or were not allowed."""
SHOWN = 60
WORDS = 6
BY = ".by-"
PART = ".part-"
Staged = tuple[str, dict[int, str]]
"""What is staged for one path, and the sessions that may have done it, by id and name."""


class Flight:
    """
    edits: the names of the files that the tool says it changes, and what it puts into each
    command: the shell command, "" for an edit tool
    brief: resources that were claimed for this one tool, and end with it
    stale: files that its session has read and that had changed before the tool began
    """

    def __init__(self, path: str, said: dict[str, Any]) -> None:
        self.path = path
        self.session: int = said["session"]
        self.agent: str = said["agent"]
        self.edits: dict[str, list[str]] = said["edits"]
        self.command: str = said["command"]
        self.brief: list[str] = said["brief"]
        self.stale: list[str] = said["stale"]
        self.since: float = said["since"]
        self.host: str = said["host"]
        self.process: str | None = said["process"]

    def names(self, resource: str) -> bool:
        """Whether the tool said that it would change this, or its command mentions it."""
        return resource in self.edits or mentions(self.command, resource.rpartition("/")[2])

    @property
    def doing(self) -> str:
        """The command in short, for other agents: without what may be a secret."""
        words = [word for word in self.command.split() if "=" not in word and word.isprintable()]
        line = " ".join(words[:WORDS])
        return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


class Flights:
    def __init__(self, store_dir: str, session: int = 0) -> None:
        """
        session: the one that asks
        """
        self._folder = os.path.join(store_dir, "hooks", "flights")
        self._session = session

    def begin(self, occasion: Occasion, **said: Any) -> None:
        """Leave word of a tool; said: what its `Flight` has beyond who, when and where."""
        said |= {
            "session": self._session,
            "command": occasion.command[:4000],
            "since": time(),
            "host": os.uname().nodename,
        }
        write(self._path(occasion), json.dumps(said))

    def of(self, occasion: Occasion) -> Flight | None:
        """What this tool said before it began."""
        return read_flight(self._path(occasion))

    def end(self, occasion: Occasion | None = None) -> None:
        """Take the notes of this tool away, by default those of all tools of the session."""
        mine = self._path(occasion) if occasion else f"{self._folder}/{self._session}-"
        for path in notes_in(self._folder):
            if path.startswith(mine):
                remove(path)

    def suspect(self, flight: Flight, by: Flight, content_hash: str | None) -> None:
        """Note on an edit that is under way that another tool ran, and what was there then."""
        write(f"{flight.path}{BY}{by.session}", f"{by.agent}\n{content_hash}\n{by.doing}")

    def suspects(self, occasion: Occasion) -> list[tuple[str, str, str]]:
        """Who has run meanwhile and is done: the agent, what it was doing, what it saw then."""
        found = []
        mine = self._path(occasion) + BY
        for path in notes_in(self._folder):
            if path.startswith(mine) and PART not in path.removeprefix(mine):
                said = read_note(path)
                if said is None:
                    continue  # the same call in another hook of this session is done with it
                agent, content_hash, doing = said.split("\n", 2)
                found.append((agent, doing, content_hash))
        return found

    def under_way(self) -> list[Flight]:
        """All who may be writing now."""
        found = []
        for path in notes_in(self._folder, whole=True):
            flight = read_flight(path)
            if flight is None:
                continue
            over = flight.process is not None and not runs(flight.host, flight.process)
            age_s = time() - flight.since
            if over or age_s > LONGEST_S:
                remove(path)
            elif flight.command or age_s < EDIT_S or flight.session == self._session:
                found.append(flight)
        return found

    def _path(self, occasion: Occasion) -> str:
        # Where a client does not name its calls, the call itself has to do.
        call = occasion.call or "\0".join(
            [occasion.tool, occasion.command, *(edit.path for edit in occasion.edits)]
        )
        word = sha256(call.encode("utf-8", "surrogateescape")).hexdigest()[:20]
        return f"{self._folder}/{self._session}-{word}"


def mentions(command: str, name: str) -> bool:
    """Whether a name stands in a command by itself, not as a part of another."""
    alone = rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.[^\W_])"
    return re.search(alone, command) is not None


def read_flight(path: str) -> Flight | None:
    try:
        return Flight(path, json.loads(read_note(path) or ""))
    except (ValueError, KeyError, TypeError):
        return None  # it has ended this moment, or is of another release


class Known:
    """The content of a file as its reader knows it, and what the disk said then.

    made: whether the session has not only read it, but written it
    """

    def __init__(self, said: str) -> None:
        first, _, self.file = said.partition("\n")
        self.content_hash, self.stamp, how = first.split(" ")
        self.made = how == "made"


class Reads:
    def __init__(self, store_dir: str, session: int) -> None:
        self._folder = os.path.join(store_dir, "hooks", "reads", str(session))

    def note(self, file: str, content_hash: str | None, made: bool = False) -> None:
        path = self._path(file)
        if content_hash is None:
            remove(path)
            return
        how = "made" if made else "read"
        write(path, f"{content_hash} {stamp(file)} {how}\n{file}")

    def known(self, file: str) -> Known | None:
        return read_known(self._path(file))

    def changed(self) -> list[Known]:
        """The files that the disk says were written since they were read."""
        found = map(read_known, notes_in(self._folder, whole=True))
        return [known for known in found if known and known.stamp != stamp(known.file)]

    def forget(self) -> None:
        try:
            for path in notes_in(self._folder):
                os.unlink(path)
            os.rmdir(self._folder)
        except OSError:
            pass  # another hook of the session does the same, or notes something

    def _path(self, file: str) -> str:
        return os.path.join(self._folder, sha256(os.fsencode(file)).hexdigest()[:40])


def read_known(path: str) -> Known | None:
    said = read_note(path)
    return None if said is None else Known(said)


def stamp(file: str) -> str:
    try:
        status = os.stat(file)
    except OSError:
        return "gone"
    return f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}"


class Visits:
    """In which other repositories a client's session has edited."""

    def __init__(self, store_dir: str, occasion: Occasion) -> None:
        word = sha256(f"{occasion.client}:{occasion.session}".encode()).hexdigest()[:20]
        self._file = os.path.join(store_dir, "hooks", f"visited-{word}")

    def roots(self) -> list[str]:
        found = (read_note(self._file) or "").splitlines()
        remove(self._file)
        return [root for root in dict.fromkeys(found) if os.path.isdir(f"{root}/.dibs")]

    def add(self, root: str) -> None:
        append(self._file, f"{root}\n")


class Stagings:
    """Who staged what in the index of one checkout."""

    def __init__(self, place: Place) -> None:
        self._place = place
        name = sha256(os.fsencode(place.top)).hexdigest()[:16]
        self._folder = os.path.join(place.store_dir, "hooks", "staged", name)

    def look(self) -> None:
        """Look before a shell tool and after it, while the note that it is under way is there.

        A tool that has left no such note only reads, and has staged nothing.
        """
        if self._place.checkout.kind != "repository":
            return
        if read_note(f"{self._folder}/index") != self._stamp():
            self._renew()

    def refresh(self) -> None:
        """Forget what is no longer staged."""
        if os.path.isdir(self._folder):
            self._renew()

    def known(self) -> dict[str, Staged]:
        """What is noted for the checkout's own index, each entry by its path."""
        try:
            noted = json.loads(read_note(f"{self._folder}/staged") or "{}")
            return {
                path: (content, {int(session): agent for session, agent in by.items()})
                for path, (content, by) in noted.items()
            }
        except (ValueError, TypeError, AttributeError):
            return {}  # of another release

    def _stamp(self) -> str:
        return stamp(os.path.join(git_directory(self._place.top), "index"))

    def _renew(self) -> None:
        """Note what is staged now; what is new is by one of those whose tools run."""
        import fcntl

        from dibs.surroundings.git import elsewhere, staged_paths

        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        with open(f"{self._folder}/lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            index = self._stamp()  # first: what changes while git reads is looked at again
            earlier, found = self.known(), {}
            flying = [one for one in Flights(self._place.store_dir).under_way() if one.command]
            # A long run of tests beside a `git add` is no reason to doubt who did that.
            flying = [one for one in flying if "git" in one.command] or flying
            suspects = {flight.session: flight.agent for flight in flying}
            for path, content in staged_paths(self._place.top, elsewhere()).items():
                then, sessions = earlier.get(path, ("", suspects))
                found[path] = (content, sessions if then == content else suspects)
            write(f"{self._folder}/staged", json.dumps(found))
            write(f"{self._folder}/index", index)


def notes_in(folder: str, *, whole: bool = False) -> list[str]:
    """The paths of all notes in a folder, none if there is no folder.

    whole: leave out those that are still being written, and notes on others
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [f"{folder}/{name}" for name in names if not (whole and "." in name)]


def read_note(path: str) -> str | None:
    """What a note says; None if there is none, or it is another user's."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as source:
            return source.read()
    except OSError:
        return None


def append(path: str, text: str) -> None:
    """Add to a note at once: hooks of one session may run at the same time."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path, "a", encoding="utf-8", errors="surrogateescape") as target:
        target.write(text)


def write(path: str, content: str | bytes) -> None:
    """Put a file there as a whole, for this user alone: others read it all the time."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    part = f"{path}{PART}{os.getpid()}"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as target:
        target.write(content)
    os.replace(part, path)


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # another hook was faster, or there was none
