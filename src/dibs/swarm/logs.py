"""The log of an attempt: everything that its command prints, in a file below `.dibs/logs`.

The command writes to the file directly, so nothing is lost if a process dies, and no pipe fills up.
"""

from __future__ import annotations

import json
import os
import time

from dibs.arguments import TEXT_LIMIT
from dibs.errors import UnavailableError, UnfitError
from dibs.records import folder as shown
from dibs.storage.folder import Own, open_own
from dibs.surroundings.output import HEADING, readable
from dibs.swarm.limits import dollars

FOLDER = "logs"
END_BYTES = 4 << 20
"""How much of its end is read."""
LOG_LIMIT = 256 << 20
"""A command that prints more is ended."""
KEEP_S = 30 * 86_400
COSTS = ("total_cost_usd", "cost_usd")


class Log:
    """One log; only its attempt writes to it."""

    def __init__(self, store_dir: str, name: str) -> None:
        own = Own(store_dir)
        try:
            self.path = own.file(f"{FOLDER}/{name}.log", make=True)
            self.handle = open_own(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise UnavailableError(
                f"cannot write a log to {shown(f'{store_dir}/{FOLDER}')}: {error.strerror}",
                next="free some space or fix the permissions there, then dibs swarm resume",
            ) from error

    def close(self) -> None:
        os.close(self.handle)

    @property
    def too_long(self) -> bool:
        return os.fstat(self.handle).st_size > LOG_LIMIT

    def _end(self) -> bytes:
        size = os.fstat(self.handle).st_size
        return os.pread(self.handle, END_BYTES, max(0, size - END_BYTES))

    @property
    def tail(self) -> str:
        """Its end, short enough for the reason of a failure."""
        text = self._end()[-TEXT_LIMIT * 4 :].decode("utf-8", "replace")
        return readable(text)[-(TEXT_LIMIT - HEADING) :]

    @property
    def cost_usd(self) -> float:
        """The last cost that the command reported, on a line that is a JSON object."""
        for line in reversed(self._end().split(b"\n")):
            if b"cost_usd" not in line or line.strip()[:1] != b"{":
                continue
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                continue
            for name in COSTS:
                if (amount := dollars(said.get(name))) is not None:
                    return amount
        return 0.0


def end_of(store_dir: str, path: str, size: int) -> str | None:
    """The end of a log as plain text; None if the log is not on this machine.

    path: where an entry says that the log is. Any agent can write an entry, so only a file in the
        folder of logs is read.
    size: how many bytes to read at most
    """
    folder, _, name = path.rpartition("/")
    if folder != f"{store_dir}/{FOLDER}":
        return None
    try:
        handle = open_own(Own(store_dir).file(f"{FOLDER}/{name}"))
    except (OSError, UnfitError):
        return None
    try:
        content = os.pread(handle, size, max(0, os.fstat(handle).st_size - size))
    finally:
        os.close(handle)
    return readable(content.decode("utf-8", "replace"))


def remove_old(store_dir: str) -> None:
    """Remove old logs."""
    own = Own(store_dir)
    for name in own.names(FOLDER):
        status = own.status(f"{FOLDER}/{name}")
        if status is not None and time.time() - status.st_mtime > KEEP_S:
            own.remove(f"{FOLDER}/{name}")
