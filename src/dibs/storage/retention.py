"""How long a store keeps records, by kind, and where they are exported before they are removed.

The journal has one age: it is a chain, from which only the oldest part can be removed.

An *export* is a folder with a file for each day (UTC) of removed rows, one JSON object per line:
`{"row": {…}, "space": "…", "table": "event"}`. It is written and synced before the commit that
removes the rows, so everything removed is in it. If that commit then fails, or its process is
killed, the rows stay, and are exported again when they are removed: a row may be exported twice,
never lost. A line that was cut off by a kill is not valid JSON; its row follows again. Files are
only appended to. If they cannot be written, nothing is removed.
"""

from __future__ import annotations

import errno
import os
import time

from dibs.errors import DiskFullError, ReadOnlyError
from dibs.records import folder, to_text
from dibs.storage.folder import Own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dibs.storage.driver import Row

SETTINGS = "config.toml"
"""The settings file of a repository, next to its store."""
KEEP_S, KEEP_BYTES = 30 * 86_400.0, 256 << 20
KINDS = ("journal", "messages", "tasks", "versions", "answers", "sessions")
"""The kinds with their own age; everything else has the common one."""
DATED = {
    "event": "at",
    "message": "sent_at",
    "task": "changed_at",
    "entry_version": "set_at",
    "answer": "at",
    "session": "ended_at",
    "outcome": "released_at",
}
"""The column that decides which day a row belongs to."""


class Retention:
    """
    keep_s: for how many seconds records are kept
    size: the number of bytes from which on fewer are kept
    ages: the same as `keep_s`, for the kinds with their own age
    export: the folder of the export; None for no export
    """

    def __init__(
        self,
        keep_s: float = KEEP_S,
        size: int = KEEP_BYTES,
        ages: Mapping[str, float] | None = None,
        export: str | None = None,
    ) -> None:
        self.keep_s = keep_s
        self.size = size
        self.export = export
        self._ages = ages or {}

    def before(self, kind: str, now: int) -> int:
        """The time before which something of a kind must have ended to be removed."""
        return now - round(self._ages.get(kind, self.keep_s) * 1000)


class Export:
    """What one transaction removes, until it is on the disk."""

    def __init__(self, path: str, space: str) -> None:
        self._path = path
        self._own = Own(path)
        self._space = space
        self._days: dict[str, list[str]] = {}

    def add(self, table: str, rows: Sequence[Row]) -> None:
        for row in rows:
            seconds = max(0, row[DATED[table]]) // 1000
            try:
                day = time.strftime("%Y-%m-%d", time.gmtime(seconds))
            except (OverflowError, OSError, ValueError):
                day = "undated"  # a wrong clock gave a time outside the calendar
            line = to_text({"row": row, "space": self._space, "table": table})
            self._days.setdefault(day, []).append(line)

    def write(self) -> None:
        """Write it to the disk, or refuse."""
        try:
            for day, lines in self._days.items():
                content = "".join(f"{line}\n" for line in lines)
                self._own.append_lines(f"{day}.jsonl", content.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise failed(self._path, error) from error
        self._days.clear()


def failed(path: str, error: OSError) -> DiskFullError | ReadOnlyError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    why = error.strerror or type(error).__name__
    return (DiskFullError if full else ReadOnlyError)(
        f"old records cannot be exported to {folder(path)}: {why}; they stay in the store",
        next="free some space there, or check the folder's owner and permissions",
    )


def check_export(path: str) -> None:
    """Refuse an export that could not be written now."""
    try:
        there = Own(path).folder() if os.path.lexists(path) else os.path.dirname(path)
        if not os.access(there, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not os.statvfs(there).f_bavail:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise failed(path, error) from error
