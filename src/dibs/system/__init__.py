"""What dibs needs from the operating system where systems differ.

Linux answers through `/proc`, inotify and prctl. Elsewhere, and on a Linux without `/proc`,
`portable` uses `ps` and the C library. Both modules offer the same names, and nothing else in dibs
makes such a call. `pytest --portable` hides them all from dibs, so Linux can test both.
"""

from __future__ import annotations

import os
import sys

if sys.platform == "linux" and os.access("/proc/self/stat", os.R_OK):
    from dibs.system.linux import (
        Tether,
        ancestors,
        boot_id,
        file_system,
        inotify,
        machine_id,
        next_signal,
        pid_namespace,
        started,
        started_with,
        time_namespace,
        words,
    )
else:
    from dibs.system.portable import (  # type: ignore[assignment]
        Tether,
        ancestors,
        boot_id,
        file_system,
        inotify,
        machine_id,
        next_signal,
        pid_namespace,
        started,
        started_with,
        time_namespace,
        words,
    )

__all__ = [
    "Tether",
    "ancestors",
    "boot_id",
    "file_system",
    "inotify",
    "is_process_name",
    "machine_id",
    "next_signal",
    "process_name",
    "runs",
    "started_with",
    "time_namespace",
    "words",
]


def process_name(pid: int) -> str:
    """A name for a process that is unique across machines, containers and time."""
    return f"{_numbering()}:{pid}:{started(pid) or ''}"


def is_process_name(text: str) -> bool:
    """Whether this can be such a name; one from outside can be any text."""
    parts = text.split(":")
    pid = parts[len(parts) // 2]
    shaped = len(parts) in (1, 3) and all(parts[:2]) and not text.strip("0123456789:")
    return shaped and len(pid) < 10  # the system accepts no larger number


def runs(process: str) -> bool:
    """Whether a process still runs, by its name; true if that is not visible from here."""
    numbering, _, rest = process.partition(":")
    pid, _, then = rest.partition(":")
    if not pid or numbering != _numbering():
        return True
    now = started(int(pid))
    # If its start time is unknown, its number must be enough.
    return now is not None and (now == then or not now or not then)


def _numbering() -> str:
    """The scope of process numbers here: the machine and the container, as one number."""
    from dibs.digest import sha256

    return str(int(sha256(f"{machine_id()} {pid_namespace()}".encode()).hexdigest()[:12], 16))
