"""Where daemons announce themselves to the commands of the same user.

A folder of the user contains one file for each running daemon, and the owner's token for each space
that was ever served. Only that user can read it. A daemon keeps its file locked while it runs, so a
file without a lock is left over from a daemon that was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

from dibs.dibs import Agent, Dibs
from dibs.digest import sha256
from dibs.errors import ExistsError
from dibs.link import DAEMONS, living, served_name
from dibs.nouns.agents import operations as agents
from dibs.space.scope import mint
from dibs.storage.folder import Own, open_own
from dibs.storage.user_dir import default_user_dir
from dibs.wire import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


OWNER = "dibs"
ENDING_S = 1.5
"""How long a daemon may take to notice that its store is gone, and to stop."""


class Home:
    def __init__(self, user_dir: str | None = None) -> None:
        self._user_dir = os.path.realpath(user_dir or default_user_dir())
        self._own = Own(self._user_dir)
        self.folder = self._own.folder(DAEMONS, make=True)
        self._kept: list[int] = []

    def file(self, name: str, ending: str) -> str:
        return os.path.join(self.folder, f"{sha256(name.encode()).hexdigest()[:24]}.{ending}")

    def token(self, space: Dibs) -> str:
        """The token of this space's owner, created at the first start."""
        secret = self.noted(name_of(space), "token")
        # It may have been revoked, or belong to a store that has been deleted.
        if not secret or agents.who(space.scope, secret) is None:
            # Not by `join`: where the daemon is says nothing about whose paths these are.
            owner = Agent(space.scope.of(mint(space.scope, OWNER, shell=True)))
            secret = owner.agents.add_token(OWNER, scope="admin").secret
            owner.agents.leave()  # a daemon is no agent
            self.note(name_of(space), "token", secret)
        return secret

    def note(self, name: str, ending: str, text: str) -> None:
        """Remember something for the next daemon of this name."""
        os.close(replace(self.file(name, ending), text))

    def noted(self, name: str, ending: str) -> str:
        """What was last remembered; "" if nothing was."""
        file = os.path.basename(self.file(name, ending))
        return (self._own.read(f"{DAEMONS}/{file}") or b"").decode("utf-8", "replace")

    def reserve(self, space: Dibs, name: str) -> None:
        """Reserve a name among this user's daemons, for as long as this one runs."""
        handle = open_own(self.file(name, "lock"), os.O_RDWR | os.O_CREAT)
        end = time.monotonic() + ENDING_S
        while not locked(handle):
            if time.monotonic() < end:
                time.sleep(0.02)
                continue
            os.close(handle)
            found = self.serving(space)
            at = f" at {found[0]['url']}" if found else ""
            raise ExistsError(
                f"a daemon already serves {space.space}{at}",
                next="open it: dibs open; stop it: dibs stop",
            )
        self._kept.append(handle)

    def announce(self, word: dict[str, Any]) -> None:
        """Announce the address of a running daemon."""
        self._kept.append(replace(self.file(word["url"], "json"), json.dumps(word)))

    def forget(self, url: str) -> bool:
        """Withdraw the announcement of this daemon; return False if that was done before.

        In that case another daemon may have its place, and the file is that daemon's.
        """
        if not self._kept:
            return False
        try:
            os.unlink(self.file(url, "json"))
        except FileNotFoundError:
            pass
        for handle in self._kept:
            os.close(handle)
        self._kept.clear()
        return True

    def running(self) -> list[dict[str, Any]]:
        """The announcements of the running daemons."""
        return list(living(self._user_dir).values())

    def serving(self, space: Dibs) -> list[dict[str, Any]]:
        """The running daemons that serve this space."""
        return [word for word in self.running() if word["serves"] == name_of(space)]

    def at(self, url: str) -> dict[str, Any] | None:
        """The daemon at this address."""
        return living(self._user_dir).get(Address(url).identity)


def name_of(space: Dibs) -> str:
    """The name of a space that a daemon serves."""
    return served_name(space.scope)


def locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def replace(file: str, text: str) -> int:
    """Write a private file in one step; the returned handle keeps it locked."""
    draft = f"{file}.{os.getpid()}"
    handle = open_own(draft, os.O_WRONLY | os.O_CREAT)
    try:
        os.ftruncate(handle, 0)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, text.encode())
        os.replace(draft, file)
    except BaseException:
        os.close(handle)
        raise
    return handle
