"""Real daemons, each a process of its own, started in a few milliseconds.

One process per worker imports what a daemon needs and forks one whenever a test asks for it, so
that a test has its own daemon on its own store and need not wait for Python to start.

    with daemons() as start:
        url = start(store, space, user_dir)
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import warm

if TYPE_CHECKING:
    from dibs import Dibs
    from dibs.surfaces.http.home import Home

ROOT = Path(__file__).parent.parent


class Daemons:
    """The process that forks daemons, and those it has forked."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.daemons"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def __call__(self, store: str, space: str, user_dir: str, clock: str = "") -> dict[str, Any]:
        """Start one, and give what it says of itself: its address, token and process.

        clock: the file of a clock that it shares with the test
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([store, space, user_dir, clock]) + "\n")
        self._process.stdin.flush()
        word: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "url" in word, word
        return word

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@contextmanager
def daemons() -> Iterator[Daemons]:
    found = Daemons()
    try:
        yield found
    finally:
        found.close()


def end(word: dict[str, Any]) -> None:
    """SIGKILL; whoever forked it takes it away."""
    os.kill(word["pid"], signal.SIGKILL)


def main() -> None:
    importlib.import_module("tests.contract.waiting")
    warm.load("large")  # once for all of them

    running: set[int] = set()

    def reap(*_: object) -> None:
        while running and (ended := os.waitpid(-1, os.WNOHANG)[0]):
            running.discard(ended)

    # Taken away as they end, and forgotten: by the end of a suite their numbers are others'.
    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            become(*json.loads(line))
        running.add(child)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for child in running:
        os.kill(child, signal.SIGKILL)


def become(store: str, space: str, user_dir: str, clock: str) -> None:
    """Be a daemon, as `dibs serve` would."""
    import dibs
    from dibs.surfaces.http.home import Home
    from dibs.surfaces.http.serve import Listening, serve
    from tests.contract.waiting import SharedClock

    def say(word: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(word) + "\n")
        sys.stdout.flush()

    os.close(0)
    os.open(os.devnull, os.O_RDONLY)
    os.chdir("/")  # a daemon is somewhere else than those who call it
    try:
        told = SharedClock(clock) if clock else None
        opened = dibs.open(store, space=space, user_dir=user_dir, clock=told)
        leave_token(opened, Home(user_dir))
        serve(opened, Listening(port=0), say, user_dir)
        os._exit(0)
    except BaseException as error:
        say({"error": repr(error)})
        os._exit(1)


def leave_token(space: Dibs, home: Home) -> None:
    """A token for the test, without a trace in the journal or among the agents."""
    from dibs.nouns.agents import operations as agents
    from dibs.space.scope import AGENTS
    from dibs.surfaces.http.home import OWNER, name_of, replace

    secret = agents.new_secret()
    with space.scope.store.write(None) as tx:
        row = {
            "id": -1,
            "name": OWNER,
            "scope": "admin",
            "digest": agents.digest_of(secret),
            "created_by": OWNER,
            "created_at": tx.wall,
            "deadline": None,
            "expires_at": None,
            "revoked_at": None,
        }
        tx.run(AGENTS.add_token, row | {"signature": space.scope.keys.token(row)})
    os.close(replace(home.file(name_of(space), "token"), secret))


if __name__ == "__main__":
    main()
