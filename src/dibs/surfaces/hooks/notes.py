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

import os
from stat import S_ISDIR
from time import time

from dibs.digest import sha256
from dibs.names.checkouts import git_directory
from dibs.records import read_json, to_text
from dibs.storage.folder import PART, Note, Own, open_own
from dibs.system import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.dibs import Dibs
    from dibs.names.paths import Place
    from dibs.surroundings.occasion import Occasion

LONGEST_S = 7200
"""No tool runs for longer; what is older was left behind."""
EDIT_S = 30
"""No edit takes longer, once it is allowed: older ones wait for a person, or were not allowed."""
BATCH_S = 10
"""Tools that a model asks for at the same time begin within this."""
COMMAND = 4000
"""So much is noted of a command."""
SHOWN = 60
WORDS = 6
NUMBER = 20
"""Longer than any number of a process."""
BY = ".by-"
FLIGHTS = "hooks/flights"
OF = "hooks/of"
NAMES = (
    r"hooks/(?:(?:(?:told|pending|wishes|idle)-\d+|woken-[0-9a-f]{20}|wanted-\d+-[0-9a-f]{20}"
    r"|visited-[0-9a-f]{20}|commits"
    r"|flights/\d+-[0-9a-f]{20}(?:\.by-\d+)?|(?:reads|claims)/\d+(?:/[0-9a-f]{40})?"
    r"|sessions/\d+|resting/\d+"
    r"|staged/[0-9a-f]{16}(?:/(?:index|staged|lock))?|hashes/[0-9a-f]{40}|clients/[\d-]+"
    r"|swept/[0-9a-f]{16})"
    r"(?:\.\d+|\.part-\d+)?)"
)
"""Every file and folder that hooks make and leave; nothing else is ever pruned."""
Staged = tuple[str, dict[int, str]]
"""What is staged for one path, and the sessions that may have done it, by id and name."""


class Flight:
    """
    edits: the names of the files that the tool says it changes, and what it puts into each
    command: the shell command, "" for an edit tool
    brief: resources that were claimed for this one tool, and end with it
    stale: files that its session has read and that had changed before the tool began
    asked: whether the client has asked its user whether the tool may run
    """

    def __init__(self, name: str, said: dict[str, Any]) -> None:
        self.name = name
        self.said = said
        self.session: int = said["session"]
        self.agent: str = said["agent"]
        self.edits: dict[str, list[str]] = said["edits"]
        self.command: str = said["command"]
        self.brief: list[str] = said["brief"]
        self.stale: list[str] = said["stale"]
        self.since: float = said["since"]
        self.process: str | None = said["process"]
        self.asked = said.get("asked") is True

    @property
    def age_s(self) -> float:
        return time() - self.since

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
        self._own = Own(store_dir)
        self._session = session

    def begin(self, occasion: Occasion, **said: Any) -> None:
        """Leave word of a tool; said: what its `Flight` has beyond who, when and where."""
        said |= {"session": self._session, "command": occasion.command[:COMMAND], "since": time()}
        write(self._own, self._name(occasion), note_text(said))

    def of(self, occasion: Occasion) -> Flight | None:
        """What this tool said before it began."""
        return read_flight(self._own, self._name(occasion))

    def own(self) -> list[Flight]:
        """The tools of this session that have begun, and have not said that they ended."""
        return [one for one in self.under_way() if one.session == self._session]

    def never_run(self, occasion: Occasion) -> list[Flight]:
        """The tools of this session that began before this one, and will not run any more.

        Their user has said no, or nothing at all. A command may run beside others, unless the user
        was asked for it.
        """
        return [
            one
            for one in self.own()
            if (one.asked or not one.command)
            and one.age_s > BATCH_S
            and one.name != self._name(occasion)
        ]

    def ask(self, occasion: Occasion) -> list[Flight]:
        """Note on the tools that an occasion may be about that the user is asked."""
        found = [one for one in self.own() if one.command == occasion.command[:COMMAND]]
        for flight in found:
            write(self._own, flight.name, note_text(flight.said | {"asked": True}))
        return found

    def end(self, tool: Occasion | Flight | None = None) -> None:
        """Take the notes of this tool away, by default those of all tools of the session."""
        mine = f"{FLIGHTS}/{self._session}-"
        if tool is not None:
            mine = tool.name if isinstance(tool, Flight) else self._name(tool)
        for name in notes_in(self._own, FLIGHTS):
            if name.startswith(mine):
                self._own.remove(name)

    def suspect(self, flight: Flight, by: Flight, content_hash: str | None) -> None:
        """Note on an edit that is under way that another tool ran, and what was there then."""
        said = f"{by.agent}\n{content_hash}\n{by.doing}"
        write(self._own, f"{flight.name}{BY}{by.session}", said)

    def suspects(self, occasion: Occasion) -> list[tuple[str, str, str]]:
        """Who has run meanwhile and is done: the agent, what it was doing, what it saw then."""
        found = []
        mine = self._name(occasion) + BY
        for name in notes_in(self._own, FLIGHTS):
            if name.startswith(mine) and PART not in name.removeprefix(mine):
                said = read_note(self._own, name)
                if said is None:
                    continue  # the same call in another hook of this session is done with it
                agent, content_hash, doing = said.split("\n", 2)
                found.append((agent, doing, content_hash))
        return found

    def under_way(self) -> list[Flight]:
        """All who may be writing now."""
        found = []
        for name in notes_in(self._own, FLIGHTS, whole=True):
            flight = read_flight(self._own, name)
            if flight is None:
                continue
            over = flight.process is not None and not runs(flight.process)
            if over or flight.age_s > LONGEST_S:
                self._own.remove(name)
            elif flight.command or flight.age_s < EDIT_S or flight.session == self._session:
                found.append(flight)
        return found

    def _name(self, occasion: Occasion) -> str:
        # Where a client does not name its calls, the call itself has to do.
        call = occasion.call or "\0".join(
            [occasion.tool, occasion.command, *(edit.path for edit in occasion.edits)]
        )
        word = sha256(call.encode("utf-8", "surrogateescape")).hexdigest()[:20]
        return f"{FLIGHTS}/{self._session}-{word}"


def mentions(command: str, name: str) -> bool:
    """Whether a name stands in a command by itself, not as a part of another."""
    import re

    alone = rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.[^\W_])"
    return re.search(alone, command) is not None


def read_flight(own: Own, name: str) -> Flight | None:
    said = read_note(own, name)
    try:
        return Flight(name, read_json(said)) if said else None
    except (ValueError, KeyError, TypeError, RecursionError):
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
        self._own = Own(store_dir)
        self._folder = f"hooks/reads/{session}"

    def note(self, file: str, content_hash: str | None, made: bool = False) -> None:
        name = self._name(file)
        if content_hash is None:
            self._own.remove(name)
            return
        how = "made" if made else "read"
        write(self._own, name, f"{content_hash} {stamp(file)} {how}\n{file}")

    def known(self, file: str) -> Known | None:
        return read_known(self._own, self._name(file))

    def age_s(self, file: str) -> float:
        """How long after it was noted what a session has made the file was written to again."""
        noted = self._own.status(self._name(file))
        try:
            return os.stat(file).st_mtime - noted.st_mtime if noted else LONGEST_S
        except OSError:
            return LONGEST_S

    def changed(self) -> list[Known]:
        """The files that the disk says were written since they were read."""
        names = notes_in(self._own, self._folder, whole=True)
        found = [read_known(self._own, name) for name in names]
        return [known for known in found if known and known.stamp != stamp(known.file)]

    def forget(self) -> None:
        try:
            for name in notes_in(self._own, self._folder):
                self._own.remove(name)
            os.rmdir(self._own.file(self._folder))
        except OSError:
            pass  # another hook of the session does the same, or notes something

    def _name(self, file: str) -> str:
        return f"{self._folder}/{sha256(os.fsencode(file)).hexdigest()[:40]}"


def read_known(own: Own, name: str) -> Known | None:
    said = read_note(own, name)
    try:
        return None if said is None else Known(said)
    except ValueError:
        return None  # of another release


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
        self._own = Own(store_dir)
        self._file = f"hooks/visited-{word}"

    def roots(self) -> list[str]:
        found = (read_note(self._own, self._file) or "").splitlines()
        self._own.remove(self._file)
        return [root for root in dict.fromkeys(found) if os.path.isdir(f"{root}/.dibs")]

    def add(self, root: str) -> None:
        append(self._own, self._file, f"{root}\n")


class Stagings:
    """Who staged what in the index of one checkout."""

    def __init__(self, place: Place) -> None:
        self._place = place
        name = sha256(os.fsencode(place.top)).hexdigest()[:16]
        self._own = Own(place.store_dir)
        self._folder = f"hooks/staged/{name}"

    def look(self) -> None:
        """Look before a shell tool and after it, while the note that it is under way is there.

        A tool that has left no such note only reads, and has staged nothing.
        """
        if self._place.checkout.kind != "repository":
            return
        if read_note(self._own, f"{self._folder}/index") != self._stamp():
            self._renew()

    def refresh(self) -> None:
        """Forget what is no longer staged."""
        if self._own.names(self._folder):
            self._renew()

    def known(self) -> dict[str, Staged]:
        """What is noted for the checkout's own index, each entry by its path."""
        try:
            noted = read_json(read_note(self._own, f"{self._folder}/staged") or "{}")
            return {
                path: (content, {int(session): agent for session, agent in by.items()})
                for path, (content, by) in noted.items()
            }
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}  # of another release

    def _stamp(self) -> str:
        return stamp(os.path.join(git_directory(self._place.top), "index"))

    def _renew(self) -> None:
        """Note what is staged now; what is new is by one of those whose tools run."""
        import fcntl

        from dibs.surroundings.git import elsewhere, staged_paths

        path = self._own.file(f"{self._folder}/lock", make=True)
        with open(open_own(path, os.O_WRONLY | os.O_CREAT), "ab") as lock:
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
            write(self._own, f"{self._folder}/staged", note_text(found))
            write(self._own, f"{self._folder}/index", index)


def notes_in(own: Own, folder: str, *, whole: bool = False) -> list[str]:
    """The names of all notes in a folder, none if there is no folder.

    whole: leave out those that are still being written, and notes on others
    """
    return [f"{folder}/{name}" for name in own.names(folder) if not (whole and "." in name)]


def read_note(own: Own, name: str) -> str | None:
    """What a note says; None if there is none."""
    content = own.read(name)
    return None if content is None else content.decode("utf-8", "surrogateescape")


def append(own: Own, name: str, text: str) -> None:
    own.append(name, text.encode("utf-8", "surrogateescape"))


def write(own: Own, name: str, text: str) -> None:
    own.write(name, text.encode("utf-8", "surrogateescape"))


def idle_note(session: int) -> str:
    """The note that says which process waits beside an idle agent."""
    return f"hooks/idle-{session}"


def write_over(own: Own, name: str, text: str) -> None:
    """Write a short note in place, so that who watches the file is told."""
    handle = open_own(own.file(name), os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(handle, text.ljust(NUMBER).encode(), 0)
    finally:
        os.close(handle)


def stir(own: Own, session: int) -> None:
    """Have nobody wait beside this agent any more: it works, or it has ended."""
    if own.status(idle_note(session)) is not None:
        write_over(own, idle_note(session), "")


def note_text(value: Any) -> str:
    """JSON for a note; half a character, which a client may have sent, is spelled out."""
    text = to_text(value)
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        import json

        return json.dumps(value)
    return text


def prune(store_dir: str, age_s: float) -> None:
    """Remove what those left who went without a word, and nobody has touched for so long.

    Only what hooks make, by its name: whatever else is there is somebody's.
    """
    _prune(Own(store_dir), "hooks", time() - age_s)


def _prune(own: Own, folder: str, before: float) -> None:
    import re

    for last in own.names(folder):
        name = f"{folder}/{last}"
        status = own.status(name)
        if status is None:
            continue  # another hook was faster
        is_folder = S_ISDIR(status.st_mode)
        if is_folder:
            _prune(own, name, before)
        if status.st_mtime >= before or not re.fullmatch(NAMES, name):
            continue
        try:
            os.rmdir(own.file(name)) if is_folder else own.remove(name)
        except OSError:
            continue  # something young is in the folder


def mark_of(space: Dibs) -> str:
    """What is known only to those who have the key of the store, wherever that is.

    Who reaches a store by a daemon may have another's key lying here: if it is not known to be
    this user's, a secret in the user's data folder has to do.
    """
    if not space.scope.daemon:
        key = space.scope.store.driver.key()
    else:
        from dibs.dibs import DATABASE, space_key
        from dibs.storage.user_dir import home_user_dir

        here, home = space.scope.place.store_dir, home_user_dir()
        if not (key := getattr(space.scope, "key", b"")):
            found = Note(home, f"{here}/{DATABASE}")
            key = (found.known and found.key) or space_key(home, f"notes {here}")[0]
    mark: str = sha256(b"dibs notes\n" + key).hexdigest()
    return mark


def begin_notes(own: Own, store: str) -> bool:
    """Forget notes that are not of this store, but of an earlier one, or put there by git.

    Whether that had to be done.

    store: what nobody can know who does not have the key of the store (`mark_of`)
    """
    if read_note(own, OF) == store:
        return False
    prune(own.base, -LONGEST_S)
    write(own, OF, store)
    return True
