"""The user's data folder, and this machine's name, which is kept there.

A machine keeps the name that it had when its user first used dibs on it. Laptops change their names
with the network; spaces, checkouts and files are named after the machine, and must not change with
it. The name is stored under the machine's own id, so that two machines that share a home directory
keep one each. If the system has no such id, its present name is used.
"""

from __future__ import annotations

import os
import sys

from dibs.digest import sha256
from dibs.errors import DibsError, UnfitError
from dibs.records import folder
from dibs.storage.folder import Own, user
from dibs.system import machine_id

_NAMES: dict[str, str] = {}
"""By folder: a daemon needs it for every call."""


def machine_name() -> str:
    """This machine's name, which stays the same after it is renamed."""
    now = os.uname().nodename
    try:
        home = home_user_dir()
        if home in _NAMES:
            return _NAMES[home]
        own = Own(home)
        file = f"machines/{sha256(machine_id().encode()).hexdigest()[:24]}"
        if (known := own.read(file)) is None:
            own.once(file, now.encode("utf-8", "replace"))
            known = own.read(file)
        _NAMES[home] = (known or b"").decode("utf-8", "replace") or now
        return _NAMES[home]
    except (DibsError, OSError):
        return now  # nothing can be stored here, such as in a sandbox


def default_user_dir() -> str:
    home = home_user_dir()
    chosen = os.environ.get("XDG_DATA_HOME", "")
    return os.path.join(chosen, "dibs") if chosen.startswith("/") else home


def home_user_dir() -> str:
    """The user's data folder, determined by the home directory alone.

    It records which stores are whose. MCP clients pass little more of the environment than HOME
    to their servers, which must find the same notes as the commands.
    """
    home = os.path.expanduser("~")
    if os.geteuid() == 0:
        home = home_of_root(home)
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Application Support", "dibs")
    return os.path.join(home, ".local", "share", "dibs")


def home_of_root(home: str) -> str:
    """The home to use as root: never another user's, who would be locked out of it.

    `sudo dibs` is refused there, since it was meant for that user; in a container whose root has
    such a HOME, there is no other user.
    """
    try:
        owner = os.stat(home).st_uid
    except OSError:
        return home  # there is no such user, and what dibs makes is root's
    if owner == 0:
        return home
    if os.environ.get("SUDO_UID", "").isdigit():
        raise UnfitError(
            f"you are root, and your home {folder(home)} belongs to {user(owner)}, who could not "
            "use what dibs would make",
            next=f"run dibs as {user(owner)}, without sudo; or set HOME to the home of root",
            untrusted=home,
        )
    return os.path.expanduser("~root")
