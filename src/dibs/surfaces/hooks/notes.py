"""The notes that hooks leave for each other, each a small file beside the store.

Flights: the tools that are running now and may be writing. The hook leaves a note before a tool
that may write, and removes it afterwards. So a hook that finds a leased file changed knows who may
have done it. A flight is a hint, never a lease: the note of a client that died is ignored.

Reads: what a session has read of each file. An edit based on an older content is stale. There is
one note per session and file, with the hash of the content that the session knows. It is written
after each read and each edit of the session, and checked before an edit.

Visits: in which other repositories a client's session has edited files.

Stagings: who staged what, for each checkout. Git does not record who staged an entry. So a client's
hook reads the index before and after each shell tool: what was staged in between was staged by that
session, or by another one whose tool ran at the same time. In that case both are noted, and only a
third session is kept from committing it. What was staged while no tool ran belongs to nobody: a
person did it. These notes may be lost at any time; then nothing is known, and no commit is stopped.
As long as the index file is unchanged, a check costs one `stat`.
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
"""No tool runs for longer; an older note was left behind."""
EDIT_S = 30
"""No edit takes longer once it is allowed: an older one waits for a person or was denied."""
BATCH_S = 10
"""Tools that a model requests together begin within this time."""
COMMAND = 4000
"""How much of a command is noted."""
SHOWN = 60
WORDS = 6
NUMBER = 20
"""Longer than any process id."""
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
"""Every file and folder that hooks create; nothing else is ever pruned."""
Staged = tuple[str, dict[int, str]]
"""What is staged for one path, and the sessions that may have staged it, by id and name."""


class Flight:
    """
    edits: the files that the tool says it changes, and what it writes to each
    command: the shell command, "" for an edit tool
    brief: resources that were claimed for this one tool; they are released after it
    stale: files that its session has read and that had changed before the tool began
    asked: whether the client has asked its user to allow the tool
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
        """A short form of the command for other agents, without possible secrets."""
        words = [word for word in self.command.split() if "=" not in word and word.isprintable()]
        line = " ".join(words[:WORDS])
        return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


class Flights:
    def __init__(self, store_dir: str, session: int = 0) -> None:
        """
        session: the session that asks
        """
        self._own = Own(store_dir)
        self._session = session

    def begin(self, occasion: Occasion, **said: Any) -> None:
        """Note that a tool is running; said: what its `Flight` has besides who, when and where."""
        said |= {"session": self._session, "command": occasion.command[:COMMAND], "since": time()}
        write(self._own, self._name(occasion), note_text(said))

    def of(self, occasion: Occasion) -> Flight | None:
        """What this tool said before it began."""
        return read_flight(self._own, self._name(occasion))

    def own(self) -> list[Flight]:
        """The tools of this session that have begun and not reported their end."""
        return [one for one in self.under_way() if one.session == self._session]

    def never_run(self, occasion: Occasion) -> list[Flight]:
        """The tools of this session that began before this one, and will not run.

        Their user has said no, or nothing at all. A command may run beside others, unless the user
        was asked to allow it.
        """
        return [
            one
            for one in self.own()
            if (one.asked or not one.command)
            and one.age_s > BATCH_S
            and one.name != self._name(occasion)
        ]

    def ask(self, occasion: Occasion) -> list[Flight]:
        """Note that the user was asked to allow the tools that an occasion may mean."""
        found = [one for one in self.own() if one.command == occasion.command[:COMMAND]]
        for flight in found:
            write(self._own, flight.name, note_text(flight.said | {"asked": True}))
        return found

    def end(self, tool: Occasion | Flight | None = None) -> None:
        """Remove the notes of this tool, by default those of all tools of the session."""
        mine = f"{FLIGHTS}/{self._session}-"
        if tool is not None:
            mine = tool.name if isinstance(tool, Flight) else self._name(tool)
        for name in notes_in(self._own, FLIGHTS):
            if name.startswith(mine):
                self._own.remove(name)

    def suspect(self, flight: Flight, by: Flight, content_hash: str | None) -> None:
        """Note for a running edit that another tool ran, and what the file contained then."""
        said = f"{by.agent}\n{content_hash}\n{by.doing}"
        write(self._own, f"{flight.name}{BY}{by.session}", said)

    def suspects(self, occasion: Occasion) -> list[tuple[str, str, str]]:
        """Who ran meanwhile and has ended: the agent, what it was doing, what it saw then."""
        found = []
        mine = self._name(occasion) + BY
        for name in notes_in(self._own, FLIGHTS):
            if name.startswith(mine) and PART not in name.removeprefix(mine):
                said = read_note(self._own, name)
                if said is None:
                    continue  # another hook of this session has already handled the same call
                agent, content_hash, doing = said.split("\n", 2)
                found.append((agent, doing, content_hash))
        return found

    def under_way(self) -> list[Flight]:
        """All tools that may be writing now."""
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
        # If a client does not name its calls, use the call itself.
        call = occasion.call or "\0".join(
            [occasion.tool, occasion.command, *(edit.path for edit in occasion.edits)]
        )
        word = sha256(call.encode("utf-8", "surrogateescape")).hexdigest()[:20]
        return f"{FLIGHTS}/{self._session}-{word}"


def mentions(command: str, name: str) -> bool:
    """Whether a command contains a name by itself, not as a part of another."""
    import re

    alone = rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.[^\W_])"
    return re.search(alone, command) is not None


def read_flight(own: Own, name: str) -> Flight | None:
    said = read_note(own, name)
    try:
        return Flight(name, read_json(said)) if said else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # it has just ended, or another release wrote it


class Known:
    """The content of a file as its reader knows it, and what the disk said then.

    made: whether the session wrote it, not only read it
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
        """How long after the session's note the file was written again."""
        noted = self._own.status(self._name(file))
        try:
            return os.stat(file).st_mtime - noted.st_mtime if noted else LONGEST_S
        except OSError:
            return LONGEST_S

    def changed(self) -> list[Known]:
        """The files that were written since they were read, according to the disk."""
        names = notes_in(self._own, self._folder, whole=True)
        found = [read_known(self._own, name) for name in names]
        return [known for known in found if known and known.stamp != stamp(known.file)]

    def forget(self) -> None:
        try:
            for name in notes_in(self._own, self._folder):
                self._own.remove(name)
            os.rmdir(self._own.file(self._folder))
        except OSError:
            pass  # another hook of the session is doing the same, or adds a note

    def _name(self, file: str) -> str:
        return f"{self._folder}/{sha256(os.fsencode(file)).hexdigest()[:40]}"


def read_known(own: Own, name: str) -> Known | None:
    said = read_note(own, name)
    try:
        return None if said is None else Known(said)
    except ValueError:
        return None  # written by another release


def stamp(file: str) -> str:
    try:
        status = os.stat(file)
    except OSError:
        return "gone"
    return f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}"


class Visits:
    """The other repositories in which a client's session has edited files."""

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
        """Check before and after a shell tool, while the note that it is running exists.

        A tool without such a note only reads, and has staged nothing.
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
        """The notes about the checkout's own index, by path."""
        try:
            noted = read_json(read_note(self._own, f"{self._folder}/staged") or "{}")
            return {
                path: (content, {int(session): agent for session, agent in by.items()})
                for path, (content, by) in noted.items()
            }
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}  # written by another release

    def _stamp(self) -> str:
        return stamp(os.path.join(git_directory(self._place.top), "index"))

    def _renew(self) -> None:
        """Note what is staged now; a running tool has staged what is new."""
        import fcntl

        from dibs.surroundings.git import elsewhere, staged_paths

        path = self._own.file(f"{self._folder}/lock", make=True)
        with open(open_own(path, os.O_WRONLY | os.O_CREAT), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            index = self._stamp()  # first: a change while git reads is found next time
            earlier, found = self.known(), {}
            flying = [one for one in Flights(self._place.store_dir).under_way() if one.command]
            # Tests that run beside a `git add` are no reason to doubt who staged.
            flying = [one for one in flying if "git" in one.command] or flying
            suspects = {flight.session: flight.agent for flight in flying}
            for path, content in staged_paths(self._place.top, elsewhere()).items():
                then, sessions = earlier.get(path, ("", suspects))
                found[path] = (content, sessions if then == content else suspects)
            write(self._own, f"{self._folder}/staged", note_text(found))
            write(self._own, f"{self._folder}/index", index)


def notes_in(own: Own, folder: str, *, whole: bool = False) -> list[str]:
    """The names of all notes in a folder; none if the folder does not exist.

    whole: leave out notes that are still being written, and notes about other notes
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
    """Write a short note in place, so that processes that watch the file notice."""
    handle = open_own(own.file(name), os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(handle, text.ljust(NUMBER).encode(), 0)
    finally:
        os.close(handle)


def stir(own: Own, session: int) -> None:
    """Stop the process that waits beside this agent: the agent works again, or has ended."""
    if own.status(idle_note(session)) is not None:
        write_over(own, idle_note(session), "")


def note_text(value: Any) -> str:
    """JSON for a note; a lone surrogate, which a client may have sent, is escaped."""
    text = to_text(value)
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        import json

        return json.dumps(value)
    return text


def prune(store_dir: str, age_s: float) -> None:
    """Remove old notes that nobody has touched for this long.

    Only what hooks create, judged by its name: anything else belongs to somebody.
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
            continue  # the folder still has something recent


def mark_of(space: Dibs) -> str:
    """A mark that only those with the key of the store can know, wherever the store is.

    With a daemon, the key here may be of another store. If it is not known to be this user's, a
    secret in the user's data folder is used instead.
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
    """Forget notes that belong to an earlier store or came from git; return whether there were any.

    store: the mark of the store (`mark_of`)
    """
    if read_note(own, OF) == store:
        return False
    prune(own.base, -LONGEST_S)
    write(own, OF, store)
    return True
