"""What dibs asks of the operating system that not every system answers in the same way.

Linux answers from `/proc`, by inotify and by prctl. Elsewhere, and on a Linux that shows no
`/proc`, `portable` asks `ps` and the C library. Both modules offer the same names, and nothing else
in dibs makes such a call. `pytest --portable` denies them all to dibs, so that Linux runs both.
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
    """A process, told apart from those of other machines and containers, and from earlier ones."""
    return f"{_numbering()}:{pid}:{started(pid) or ''}"


def is_process_name(text: str) -> bool:
    """Whether this can be such a name; one that comes from elsewhere can be any text."""
    parts = text.split(":")
    pid = parts[len(parts) // 2]
    shaped = len(parts) in (1, 3) and all(parts[:2]) and not text.strip("0123456789:")
    return shaped and len(pid) < 10  # the system takes no larger number


def runs(process: str) -> bool:
    """Whether a process still runs, by its name; yes if that cannot be seen from here."""
    numbering, _, rest = process.partition(":")
    pid, _, then = rest.partition(":")
    if not pid or numbering != _numbering():
        return True
    now = started(int(pid))
    # Where it was not told when it began, its number has to do.
    return now is not None and (now == then or not now or not then)


def _numbering() -> str:
    """By what processes are numbered here: the machine and the container, as one number."""
    from dibs.digest import sha256

    return str(int(sha256(f"{machine_id()} {pid_namespace()}".encode()).hexdigest()[:12], 16))
