"""The threads of one process in line for the turn to write, first come, first served.

The database's own turn goes to the one that tries at the right moment, and every try costs a
connection. So a process lets one thread at a time try. Hundreds of threads that are about to wait
are a *crowd*: only the first of them is in the line, so another write has one of them ahead of it,
not all. A *gate* of the store does the same among processes.

The database decides whose turn it is: a place here is only the right to ask for it. Only the thread
that has a place keeps it: if an interrupt prevents it from leaving, the next one finds the place
empty.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident
from _weakref import ref
from os import O_CREAT, O_RDWR, close
from time import monotonic, sleep

from dibs.errors import BusyError
from dibs.storage.clock import BUSY_S, SILENCE, bearable
from dibs.storage.folder import open_own, store_gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from dibs.errors import DibsError

    class Leaves(Protocol):
        def leave(self) -> None: ...


LEAST_S = 0.5
LOOK_S = 0.05
"""How soon the next in line notices that the first has disappeared."""


class Line:
    def __init__(self) -> None:
        self.places: list[ref[Place]] = []
        """The first of them has the turn."""
        self.outage: tuple[float, DibsError] | None = None
        """Why nobody could be served, and when that was found out."""

    def enter(self, seconds: float) -> Place:
        """Wait for the turn; refused if it has not come by then.

        A caller that tolerates less is refused once the line has stood still for that long.
        """
        place = Place(self)
        try:
            place.stand(seconds)
        except BaseException:
            place.leave()
            raise
        return place


class Place:
    def __init__(self, line: Line) -> None:
        self._of = line
        self._line = line.places
        self._me = ref(self)
        self._thread = get_ident()
        self._gate = allocate_lock()
        self._gate.acquire()

    def stand(self, seconds: float) -> None:
        """Join the end of the line, and wait until this is the first."""
        line, me = self._line, self._me
        line.append(me)  # each operation on the list is atomic in the interpreter
        if line[0] is me:
            return
        began = moved = monotonic()
        end, pause_s, seen = began + seconds, bearable(seconds), line[0]
        while True:
            if me not in line:  # a signal handler that wrote meanwhile has taken it out
                line.append(me)
            # The first in the line checks too: the one ahead may have left because of the outage.
            now, outage = monotonic(), self._of.outage
            if outage is not None and outage[0] >= began:
                error = outage[1]
                raise type(error)(str(error), next=error.next, **error.details)
            if (first := line[0]) is me:
                return
            there = first()
            if there is None or there._thread == self._thread:
                # Lost to an interrupt, or below a signal handler: it would wait for itself.
                remove(line, first)
                continue
            if first is not seen:
                moved, seen = now, first
            left = min(end, moved + pause_s) - now
            if left <= 0:
                raise BusyError(
                    f"{len(line) - 1} other threads of this process write or wait to write",
                    next="try again",
                )
            del there
            self._gate.acquire(timeout=min(left, LOOK_S) if line[:2][-1] is me else left)

    def leave(self) -> None:
        remove(self._line, self._me)


def remove(line: list[ref[Place]], place: ref[Place]) -> None:
    """Remove a place from the line, and wake the next."""
    try:
        line.remove(place)
    except ValueError:
        return  # it was already removed
    for other in line[:2]:  # the second watches the first
        wake(other)


def wake(place: ref[Place]) -> None:
    there = place()
    if there is not None:
        try:
            there._gate.release()
        except RuntimeError:
            return  # it is awake, or another thread is just waking it


class Gate:
    """The right of a process to let one of a crowd write.

    Processes that are not part of a crowd get their turn in the gap that it leaves. Nobody depends
    on it: a process that has waited long enough for a frozen one goes through.
    """

    GAP_S = 0.001
    WAIT_S = 0.5

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1
        self._closed = False

    def enter(self) -> Gate:
        import fcntl  # late: few claims are part of a crowd

        if self._closed:
            return self
        try:
            if self._handle < 0:
                self._handle = open_own(self._path, O_RDWR | O_CREAT)
        except FileNotFoundError:
            raise store_gone(self._path) from None
        end = monotonic() + self.WAIT_S
        while monotonic() < end:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                sleep(self.GAP_S)
            except (OSError, ValueError):
                if not self._closed:
                    raise
                break  # the store is being closed, and says so
        return self

    def leave(self) -> None:
        import fcntl

        try:
            sleep(self.GAP_S)
        finally:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_UN)
            except (OSError, ValueError):
                if not self._closed:  # closing it opens the gate to others
                    raise

    def close(self) -> None:
        self._closed = True
        handle, self._handle = self._handle, -1
        if handle >= 0:
            close(handle)


class Crowds:
    """Threads about to wait: of many that want the same, one writes at a time."""

    def __init__(self) -> None:
        self.crowd = Line()
        self._asking: dict[str, list[str]] = {}

    def ask(self, what: str) -> bool:
        """Whether other threads of this process ask for the same now, and may have to wait."""
        asking = self._asking.setdefault(what, [])
        asking.append(what)
        return len(asking) > 1

    def asked(self, what: str) -> None:
        """Record that one of the questions has been answered."""
        asking = self._asking.get(what)
        if asking:
            asking.pop()
        if not asking:
            self._asking.pop(what, None)

    def take(self, wait_s: float) -> tuple[list[Leaves], float]:
        """The right of one thread of a crowd to write; see `Turns`, which has more lines."""
        return ([self.crowd.enter(wait_s)] if wait_s else []), 0

    def fail(self, error: DibsError) -> None:
        """Refuse all in the line at once: none of them can be served."""
        tell(self.crowd, error)


def tell(line: Line, error: DibsError) -> None:
    line.outage = monotonic(), error
    for place in list(line.places):
        wake(place)


class Turns(Crowds):
    """The lines of a process that writes to one store."""

    def __init__(self, gate: Gate | None = None, line_s: float = BUSY_S) -> None:
        """The lines of threads that write to one store.

        gate: waits until no crowd of another process writes, for a while
        line_s: how long a thread stands in the line, unless it is in a crowd's
        """
        super().__init__()
        self.line = Line()
        self._gate = gate
        self._line_s = line_s

    def take(self, wait_s: float) -> tuple[list[Leaves], float]:
        """The right to ask the database for a turn; it is left from the last to the first.

        Also since when it was waited for, on the monotonic clock, beyond what was given. The caller
        resets `SILENCE`, which may be shorter from here on.
        wait_s: how long a thread of a crowd has
        """
        places: list[Leaves] = []
        try:
            if wait_s:
                places.append(self.crowd.enter(wait_s))
            since = monotonic()
            if wait_s and self._gate is not None:
                places.append(self._gate.enter())
            places.append(self.line.enter(since + self._line_s - monotonic()))
            waited = monotonic() - since
            if waited > LOOK_S:
                # After a long wait behind others, less time is left for a turn that stands still.
                SILENCE.set(bearable(max(LEAST_S, BUSY_S - waited)))
            return places, since
        except BaseException:
            while places:
                places.pop().leave()
            raise

    def fail(self, error: DibsError) -> None:
        tell(self.line, error)
        super().fail(error)

    def close(self) -> None:
        if self._gate is not None:
            self._gate.close()
