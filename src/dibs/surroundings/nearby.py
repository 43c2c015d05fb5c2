"""A daemon beside the hooks of a store on PostgreSQL.

Loading the driver and connecting takes a hook longer than everything else it does. So hooks use a
daemon of the same user for the same space, which is already connected: one that this user runs
(`dibs serve`), or one that a hook has started in the background. That one listens on 127.0.0.1, and
ends when nobody has called it for a while. The hook that starts it does not wait for it.

The right daemon is found by what it says about itself (`link.living`): a digest of the address of
the store, of the settings that the environment adds, and of the space, keyed with the key of the
space, which only its users have. So nobody learns the password from it, and a daemon that was
started with another password, for another space or by another user is not used.

The daemon is optional. If anything is wrong with it, the hook connects to the server itself: if the
daemon is frozen, after a short silence, and the next hooks do not try it for a while.
`DIBS_DAEMON=off` turns all this off.
"""

from __future__ import annotations

import os
import sys
from time import time

from dibs import __version__
from dibs.arguments import check_name
from dibs.dibs import Dibs, default_space, key_name
from dibs.digest import sha256
from dibs.errors import DibsError
from dibs.link import DAEMONS, Link, living
from dibs.names.paths import find_place
from dibs.remote import RemoteScope
from dibs.storage.clock import SILENCE
from dibs.storage.folder import Own
from dibs.storage.user_dir import default_user_dir, machine_name
from dibs.wire import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.surroundings.commands import Globals

SWITCH = "DIBS_DAEMON"
IDLE_S = 900
"""How long a daemon that a hook has started waits for a call before it ends."""
AGAIN_S = 60
"""How long to wait after a failure or a start before the next try."""
PROBE_S = 0.3
"""How long it may be silent: the rest of a hook's time is for the server itself."""
LOCAL = ("http://127.0.0.1:", "unix:/")


def is_on() -> bool:
    return os.environ.get(SWITCH) != "off"


def with_daemon(call: Globals, do: Callable[[], int]) -> int:
    """Do something through a daemon if there is one; otherwise start one for the next time.

    If the daemon fails, do it again without.
    """
    if not is_on():
        return do()
    near = call.nearby = Nearby(call)
    try:
        code = do()
    except DibsError:
        if not near.give_up():
            raise
        code = do()
    near.start()
    return code


def mark(url: str, space: str, key: bytes) -> str:
    """What identifies a daemon of this store and space; only users of the space can compute it.

    It includes the name of the machine: a home directory may be shared, but 127.0.0.1 is not.
    """
    settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name[:2] == "PG")
    said = "\0".join((machine_name(), url, space, *settings)).encode("utf-8", "surrogateescape")
    return str(sha256(b"dibs nearby\n" + key + said).hexdigest())


class Nearby:
    """The connection of one hook to a daemon for its store."""

    def __init__(self, call: Globals) -> None:
        self._call = call
        self._own = Own(os.path.realpath(default_user_dir()))
        self._silence = SILENCE.get()
        self._mark = self._root = self._space = ""
        self._used = self._missing = False

    def open(self, start: str | None) -> Dibs | None:
        """The space behind the daemon; None if there is no daemon to try."""
        try:
            return self._open(start)
        except (DibsError, OSError):
            return None  # the server itself reports the problem, or does not have it

    def _open(self, start: str | None) -> Dibs | None:
        url, place = self._call.store or "", find_place(start, default_user_dir())
        space = self._call.space
        self._space = check_name("space", default_space(url, place) if space is None else space)
        key = self._own.read(key_name(self._space))
        if not key:
            return None  # this user has never been in that space
        self._mark, self._root = mark(url, self._space, key), place.root
        if self._is_recent("failed"):
            return None
        for word in living(self._own.base).values():
            is_ours = word.get("store") == self._mark and word.get("version") == __version__
            if is_ours and word["url"].startswith(LOCAL):
                self._used = True
                SILENCE.set(PROBE_S)
                scope = RemoteScope(
                    Link(Address(word["url"]), None, self._own.base), place, None, ""
                )
                scope.key = key
                return Dibs(scope)
        self._missing = True
        return None

    def give_up(self) -> bool:
        """Note that the daemon failed; whether there was one, so that the server is left to try."""
        if not self._used:
            return False
        self._used, self._call.nearby = False, None
        SILENCE.set(self._silence)
        self._note("failed")
        return True

    def start(self) -> None:
        """Start one for the next hooks, if there is none and none was just started."""
        if not self._missing or self._is_recent("started") or not self._note("started"):
            return
        from subprocess import DEVNULL, Popen

        known = {"DIBS_URL": self._call.store or "", "DIBS_SPACE": self._space}
        drop = ("DIBS_AGENT", "DIBS_SESSION", "DIBS_TOKEN")
        rest = {name: value for name, value in os.environ.items() if name not in drop}
        words = ["serve", "--port", "0", "--detach", "--idle", str(IDLE_S)]
        try:
            # Without our pipes: a client waits until all processes have closed them.
            Popen(
                [sys.executable, "-P", "-m", "dibs", *words],
                stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, cwd=self._root, env=rest | known,
                start_new_session=True,
            )  # fmt: skip
        except OSError:
            return  # the hook has already answered

    def _name(self, what: str) -> str:
        return f"{DAEMONS}/{self._mark[:24]}.{what}"

    def _is_recent(self, what: str) -> bool:
        status = self._own.status(self._name(what))
        return status is not None and 0 <= time() - status.st_mtime < AGAIN_S

    def _note(self, what: str) -> bool:
        """Remember it for the next hooks; whether that was possible."""
        try:
            self._own.write(self._name(what), b"")
        except (OSError, DibsError):
            return False
        return True


def found(url: str, space: str, key: bytes) -> str:
    """The address of the daemon that hooks of this store use; "" if there is none."""
    return next((word["url"] for word in serving(default_user_dir(), mark(url, space, key))), "")


def serving(user_dir: str, store: str) -> list[dict[str, Any]]:
    """The descriptions of this user's daemons on this machine that serve a store."""
    return [
        word
        for word in living(user_dir).values()
        if word.get("store") == store
        and word.get("version") == __version__
        and word["url"].startswith(LOCAL)
    ]
