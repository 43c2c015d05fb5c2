"""Say who is in the way of a command that waits, so that it does not look stuck."""

from __future__ import annotations

import signal
import sys
import threading

from dibs.errors import DibsError
from dibs.surroundings.wording import blocker_line, note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.dibs import Dibs

SOON_S = 1.0
LATER_S = 10.0
"""After how long it is said: on a terminal, and elsewhere, as in the log of a CI job."""
STOP_S = 1.0
MANY = 3


class Waiting:
    """A block that may wait for leases. If it takes long, one line for each blocker is printed."""

    def __init__(self, space: Dibs, resources: Sequence[str]) -> None:
        self._space = space
        self._resources = resources
        self._timer = threading.Timer(SOON_S if sys.stderr.isatty() else LATER_S, self._tell)
        self._timer.daemon = True

    def __enter__(self) -> None:
        # The thread inherits the mask: signals are for the thread that waits.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._timer.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join(STOP_S)

    def _tell(self) -> None:
        try:
            states = self._space.leases.status(*self._resources)
        except DibsError:
            return  # the call that waits says what is wrong
        blockers = dict.fromkeys(blocker_line(one) for state in states for one in state.blockers)
        for line in list(blockers)[:MANY]:
            note(f"waiting: {line}")
        if len(blockers) > MANY:
            note(f"and {len(blockers) - MANY} more in the way: dibs status PATH shows them")
