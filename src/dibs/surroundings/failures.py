"""When dibs itself fails in a hook: written down where `dibs doctor` finds it.

A failure must not stop an agent whose owner did not ask for that, and must not go unseen.
"""

from __future__ import annotations

import os

from dibs.errors import DibsError

FILE = "failures.log"
LIMIT = 64 << 10
"""Once the file is larger, only its younger half is kept."""


def record(store_dir: str, what: str) -> None:
    """Add a line. If even that fails, the caller's line on standard error is all there is."""
    from time import strftime

    folder = os.path.join(store_dir, "hooks")
    file = os.path.join(folder, FILE)
    line = f"{strftime('%Y-%m-%d %H:%M:%S')} {' '.join(what.split())[:500]}\n".encode()
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(handle, "ab") as target:
            if os.fstat(handle).st_size > LIMIT:
                halve(file)
            target.write(line)
    except OSError:
        return


def halve(file: str) -> None:
    with open(file, "rb") as source:
        lines = source.read().splitlines(keepends=True)
    # In place: others have it open, too.
    with open(file, "r+b") as target:
        target.writelines(lines[len(lines) // 2 :])
        target.truncate()


def failures(store_dir: str) -> list[str]:
    """Every failure that was written down, the oldest first."""
    try:
        with open(os.path.join(store_dir, "hooks", FILE), encoding="utf-8") as source:
            return source.read().splitlines()
    except OSError:
        return []


def hook_failed(hook: str, error: Exception, cwd: str = "") -> tuple[str, str]:
    """Write down that a hook failed; what happened, and the policy that decides what follows.

    hook: whose and which, as people say it
    """
    what = error.message if isinstance(error, DibsError) else f"{type(error).__name__}: {error}"
    folder, policy = folder_and_policy(cwd)
    record(folder, f"hook {hook}: {what}")
    return what, policy


def folder_and_policy(cwd: str = "") -> tuple[str, str]:
    """Where failures are written down, and the policy, as far as that can still be found out."""
    from dibs.dibs import default_user_dir
    from dibs.names.paths import find_place
    from dibs.surroundings.settings import load

    try:
        place = find_place(cwd or None, default_user_dir())
    except DibsError:
        return default_user_dir(), "open"
    return place.store_dir, load(place).policy


def forget(store_dir: str) -> None:
    try:
        os.unlink(os.path.join(store_dir, "hooks", FILE))
    except FileNotFoundError:
        pass  # nothing has failed since
