"""Tools that are under way now: who may be writing at this moment.

Before a tool that may write, its hook leaves a small file here, and after it takes that away.
So whoever finds a leased file changed knows whom to ask. A hint, never a lease: the file of a
client that died is passed over.
"""

from __future__ import annotations

import json
import os
from time import time

from dibs.digest import sha256
from dibs.storage.clock import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.clients.occasion import Occasion
    from dibs.surroundings.who import Who

LONGEST_S = 7200
"""No tool runs for longer; what is older was left behind."""
EDIT_S = 30
"""No edit takes longer, once it is allowed: older ones wait for a person, or were not allowed."""
SHOWN = 60
WORDS = 6
BY = ".by-"
PART = ".part-"


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
        self.client: str | None = said["client"]
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
    def __init__(self, store_dir: str) -> None:
        self._folder = os.path.join(store_dir, "hooks", "flights")

    def begin(
        self,
        occasion: Occasion,
        session: int,
        agent: str,
        who: Who,
        edits: dict[str, list[str]],
        brief: list[str],
        stale: list[str],
    ) -> None:
        said = {
            "session": session,
            "agent": agent,
            "edits": edits,
            "command": occasion.command[:4000],
            "brief": brief,
            "stale": stale,
            "since": time(),
            "host": os.uname().nodename,
            "client": who.client,
            "process": who.process,
        }
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        write(self._path(occasion, session), json.dumps(said))

    def of(self, occasion: Occasion, session: int) -> Flight | None:
        """What this tool said before it began."""
        return read(self._path(occasion, session))

    def end(self, occasion: Occasion, session: int) -> None:
        """Take the mark of this tool away."""
        name = os.path.basename(self._path(occasion, session))
        for other in self._names():
            if other.startswith(name):
                remove(os.path.join(self._folder, other))

    def suspect(self, flight: Flight, by: Flight, content_hash: str | None) -> None:
        """Note on an edit that is under way that another tool ran, and what was there then."""
        write(f"{flight.path}{BY}{by.session}", f"{by.agent}\n{content_hash}\n{by.doing}")

    def suspects(self, occasion: Occasion, session: int) -> list[tuple[str, str, str]]:
        """Who has run meanwhile and is done: the agent, what it was doing, what it saw then."""
        found = []
        name = os.path.basename(self._path(occasion, session)) + BY
        for other in self._names():
            if other.startswith(name) and PART not in other:
                try:
                    with open(os.path.join(self._folder, other), encoding="utf-8") as source:
                        agent, content_hash, doing = source.read().split("\n", 2)
                except FileNotFoundError:
                    continue  # the same call in another hook of this session is done with it
                found.append((agent, doing, content_hash))
        return found

    def end_all(self, session: int) -> None:
        for name in self._names():
            if name.startswith(f"{session}-"):
                remove(os.path.join(self._folder, name))

    def under_way(self, mine: int) -> list[Flight]:
        """All who may be writing now; `mine` is the session that asks."""
        found = []
        for name in self._names():
            if "." in name:
                continue  # not a whole one yet, or a note on another
            path = os.path.join(self._folder, name)
            flight = read(path)
            if flight is None:
                continue
            over = flight.process is not None and not runs(flight.host, flight.process)
            age_s = time() - flight.since
            if over or age_s > LONGEST_S:
                remove(path)
            elif flight.command or age_s < EDIT_S or flight.session == mine:
                found.append(flight)
        return found

    def _path(self, occasion: Occasion, session: int) -> str:
        # Where a client does not name its calls, the call itself has to do.
        call = occasion.call or "\0".join(
            [occasion.tool, occasion.command, *(edit.path for edit in occasion.edits)]
        )
        word = sha256(call.encode("utf-8", "surrogateescape")).hexdigest()[:20]
        return os.path.join(self._folder, f"{session}-{word}")

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []


def mentions(command: str, name: str) -> bool:
    """Whether a name stands in a command by itself, not as a part of another."""
    start = command.find(name)
    while start >= 0:
        before, rest = command[:start][-1:], command[start + len(name) :][:2]
        joined = (
            rest[:1].isalnum() or rest[:1] in ("_", "-") or (rest[:1] == "." and rest[1:].isalnum())
        )
        if not (before.isalnum() or before in ("_", "-", ".")) and not joined:
            return True
        start = command.find(name, start + 1)
    return False


def write(path: str, text: str) -> None:
    """Put a mark there as a whole: others read them all the time."""
    part = f"{path}{PART}{os.getpid()}"
    with open(part, "w", encoding="utf-8", errors="surrogateescape") as target:
        target.write(text)
    os.replace(part, path)


def read(path: str) -> Flight | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as source:
            return Flight(path, json.load(source))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it has ended this moment, or is of another release


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # another hook of the same tool was faster
