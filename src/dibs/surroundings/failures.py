"""Failures of dibs in hooks, recorded where `dibs doctor` finds them.

A failure must not stop an agent unless its owner asked for that, and must not go unseen. If the
folder of the store cannot be trusted, failures are recorded in the user's data folder instead.
"""

from __future__ import annotations

import os

from dibs.errors import DibsError, UnfitError
from dibs.storage.folder import Own

FILE = "hooks/failures.log"
LIMIT = 64 << 10
"""When the file grows larger, only its newer half is kept."""


def record(store_dir: str, what: str) -> None:
    """Add a line. If that fails too, the line on standard error has to do."""
    from time import strftime

    line = f"{strftime('%Y-%m-%d %H:%M:%S')} {' '.join(what.split())[:500]}\n".encode()
    try:
        if user_dir() == os.devnull:
            return
        own, known = log(store_dir)
        if len(known) > LIMIT:
            lines = known.splitlines(keepends=True)
            own.write(FILE, b"".join(lines[len(lines) // 2 :]))
        own.append(FILE, line)
    except (OSError, UnfitError):
        return


def log(store_dir: str) -> tuple[Own, bytes]:
    """Where failures are recorded, and the recorded ones."""
    own = Own(store_dir)
    try:
        return own, own.read(FILE) or b""
    except UnfitError:
        own = Own(user_dir())
        return own, own.read(FILE) or b""


def failures(store_dir: str) -> list[str]:
    """Every recorded failure, the oldest first."""
    try:
        return log(store_dir)[1].decode("utf-8", "replace").splitlines()
    except (OSError, UnfitError):
        return []


def is_news(what: str) -> bool:
    """Whether this was not reported before; remembered in the user's data folder."""
    from dibs.digest import sha256

    word = int.from_bytes(sha256(what.encode("utf-8", "replace")).digest()[:8], "big")
    try:
        return Own(user_dir()).once(f"hooks/told-{word}", b"")
    except (OSError, UnfitError):
        return True


def hook_failed(hook: str, error: Exception, cwd: str = "") -> tuple[str, str]:
    """Record that a hook failed; return what happened, and the policy for failures.

    hook: the client and the hook, in words
    """
    what = error.message if isinstance(error, DibsError) else f"{type(error).__name__}: {error}"
    folder, policy = folder_and_policy(cwd)
    record(folder, f"hook {hook}: {what}")
    return what, policy


def folder_and_policy(cwd: str = "") -> tuple[str, str]:
    """Where failures are recorded, and the policy, as far as both can be found."""
    from dibs.names.paths import find_place
    from dibs.surroundings.settings import load

    try:
        place = find_place(cwd or None, user_dir())
    except DibsError:
        return user_dir(), "open"
    return place.store_dir, load(place).policy


def user_dir() -> str:
    from dibs.storage.user_dir import default_user_dir

    try:
        return os.path.realpath(default_user_dir())
    except UnfitError:
        return os.devnull  # root in the home of another user: nothing is created


def forget(store_dir: str) -> None:
    log(store_dir)[0].remove(FILE)
