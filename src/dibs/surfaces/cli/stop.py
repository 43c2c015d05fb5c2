"""`dibs stop`: end the daemon of this space."""

from __future__ import annotations

import os
import signal
import time

from dibs.dibs import DAEMON
from dibs.errors import InvalidError, NotFoundError, UnavailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.surroundings.commands import Globals

HELP = """usage: dibs stop

End the daemon that serves this space on this machine: whoever waits is answered, and everything
it has acknowledged is stored.

example: dibs stop"""

PATIENCE_S = 15.0


def main(globals_: Globals, words: list[str]) -> int:
    if words:
        raise InvalidError(f"dibs stop does not understand {words[0]}", next="dibs stop --help")
    found = daemons(globals_)
    if not found:
        raise NotFoundError("no daemon of yours serves this space", next="dibs serve starts one")
    for word in found:
        end(globals_, word)
    if globals_.json:
        from dibs.surroundings.wording import print_json

        print_json([{name: word[name] for name in ("url", "space", "pid")} for word in found])
        return 0
    for word in found:
        print(f"stopped the daemon of {word['space']} at {word['url']}")
    return 0


def daemons(globals_: Globals) -> list[dict[str, Any]]:
    """What the daemons of this space say of themselves, or the one at the address given."""
    from dibs.surfaces.http.home import Home

    home = Home(globals_.user_dir)
    if globals_.store and globals_.store.startswith(DAEMON):
        word = home.at(globals_.store)
        return [] if word is None else [word]
    with globals_.open() as space:
        return home.serving(space)


def end(globals_: Globals, word: dict[str, Any]) -> None:
    """Ask a daemon to end, and wait until it has."""
    from dibs.surfaces.http.home import Home

    # It holds a lock on its word of itself, so the number is still its own.
    os.kill(word["pid"], signal.SIGTERM)
    home, limit = Home(globals_.user_dir), time.monotonic() + PATIENCE_S
    while any(other["pid"] == word["pid"] for other in home.running()):
        if time.monotonic() > limit:
            raise UnavailableError(
                f"the daemon at {word['url']} does not end", next=f"kill -9 {word['pid']}"
            )
        time.sleep(0.02)
