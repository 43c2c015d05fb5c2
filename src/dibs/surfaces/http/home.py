"""Where daemons leave word of themselves, for the commands of the same user.

A folder of the user's own holds one file for each daemon that runs, and the owner's token for
each space that was ever served. Only that user can read it. A daemon holds a lock on its file
for as long as it lives, so a file that nobody holds is left over from one that was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

from dibs.dibs import Dibs
from dibs.digest import sha256
from dibs.errors import ExistsError
from dibs.link import DAEMONS, living
from dibs.nouns.agents import operations as agents
from dibs.storage.folder import Own, open_own
from dibs.storage.user_dir import default_user_dir
from dibs.wire import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


OWNER = "dibs"
ENDING_S = 1.5
"""How long a daemon may take to notice that its store is gone, and to give its place away."""


class Home:
    def __init__(self, user_dir: str | None = None) -> None:
        self._user_dir = os.path.realpath(user_dir or default_user_dir())
        self._own = Own(self._user_dir)
        self.folder = self._own.folder(DAEMONS, make=True)
        self._kept: list[int] = []

    def file(self, name: str, ending: str) -> str:
        return os.path.join(self.folder, f"{sha256(name.encode()).hexdigest()[:24]}.{ending}")

    def token(self, space: Dibs) -> str:
        """The token of this space's owner, made at the first start."""
        file = self.file(name_of(space), "token")
        found = self._own.read(f"{DAEMONS}/{os.path.basename(file)}")
        secret = (found or b"").decode("utf-8", "replace")
        # It may have been revoked, or be that of a store that was deleted since.
        if not secret or agents.who(space.scope, secret) is None:
            owner = space.join(OWNER, shell=True)
            secret = owner.agents.add_token(OWNER, scope="admin").secret
            os.close(replace(file, secret))
        return secret

    def reserve(self, space: Dibs, name: str) -> None:
        """Be the only daemon of this user that has a name, for as long as we live."""
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
                f"{space.space} is served already{at}", next="dibs open shows it, dibs stop ends it"
            )
        self._kept.append(handle)

    def announce(self, word: dict[str, Any]) -> None:
        """Say where a daemon is found, and that it lives."""
        self._kept.append(replace(self.file(word["url"], "json"), json.dumps(word)))

    def forget(self, url: str) -> bool:
        """The end: nobody looks for this daemon any more. False if that was so before.

        Then another one may have its place, and what is there is the other's.
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
        """What the daemons that live say of themselves."""
        return list(living(self._user_dir).values())

    def serving(self, space: Dibs) -> list[dict[str, Any]]:
        """Those of them that serve this space."""
        return [word for word in self.running() if word["serves"] == name_of(space)]

    def at(self, url: str) -> dict[str, Any] | None:
        """The one that is reached at this address."""
        return living(self._user_dir).get(Address(url).identity)


def name_of(space: Dibs) -> str:
    """A space of a store, by a name that no other has."""
    return f"{space.scope.store.driver.address} {space.space}"


def locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def replace(file: str, text: str) -> int:
    """Write a private file in one step; the handle that is returned keeps it locked."""
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
