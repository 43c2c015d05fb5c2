"""The threads of one process in line for the turn to write, first come, first served.

The database's own turn is had by whoever tries in the right moment, and every try costs a
connection. So a process sends one thread at a time. Hundreds that are about to wait for something
are a *crowd*: of those only the first stands in the line, so that a write of anybody else has one
of them before it, and not all. Among processes the same holds, by a *gate* of the store's.

Whose turn it is, the database decides: a place here is only the right to ask for it. Nobody keeps
one alive but the thread that has it: if an interrupt keeps it from leaving, the next in line finds
the place empty.
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
"""How soon the next in line notices that the first is gone without a word."""


class Line:
    def __init__(self) -> None:
        self.places: list[ref[Place]] = []
        """The first of them has the turn."""
        self.outage: tuple[float, DibsError] | None = None
        """Why nobody could be served, and when that was found out."""

    def enter(self, seconds: float) -> Place:
        """Wait for the turn; refused if it has not come by then.

        Whoever cannot bear to wait so long is refused once the line stands still for as long.
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
        """Come to the end of the line, and wait until this is the first."""
        line, me = self._line, self._me
        line.append(me)  # each step on the list is one of the interpreter's
        if line[0] is me:
            return
        began = moved = monotonic()
        end, pause_s, seen = began + seconds, bearable(seconds), line[0]
        while True:
            if me not in line:  # a signal handler that wrote meanwhile has taken it out
                line.append(me)
            # Also for the first: who was before it may be gone because of that.
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
                    f"{len(line) - 1} other threads of this process write, or wait to",
                    next="try again",
                )
            del there
            self._gate.acquire(timeout=min(left, LOOK_S) if line[:2][-1] is me else left)

    def leave(self) -> None:
        remove(self._line, self._me)


def remove(line: list[ref[Place]], place: ref[Place]) -> None:
    """Take a place out of the line, and tell who comes next."""
    try:
        line.remove(place)
    except ValueError:
        return  # it was out already
    for other in line[:2]:  # the second looks after the first
        wake(other)


def wake(place: ref[Place]) -> None:
    there = place()
    if there is not None:
        try:
            there._gate.release()
        except RuntimeError:
            return  # it is awake, or about to be; another may have woken it in this moment


class Gate:
    """The right of a process to let one of a crowd write.

    Processes that are not part of one get their turn in the gap that is left behind it. Nobody
    depends on it: who has waited long enough for a frozen process goes through.
    """

    GAP_S = 0.001
    WAIT_S = 0.5

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1
        self._closed = False

    def enter(self) -> Gate:
        import fcntl  # few claims are one of a crowd

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
                break  # the store is being closed, and says so itself
        return self

    def leave(self) -> None:
        import fcntl

        try:
            sleep(self.GAP_S)
        finally:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_UN)
            except (OSError, ValueError):
                if not self._closed:  # with that it is open to others
                    raise

    def close(self) -> None:
        self._closed = True
        handle, self._handle = self._handle, -1
        if handle >= 0:
            close(handle)


class Crowds:
    """Those of a process who are about to wait: of many who want the same, one writes at a time."""

    def __init__(self) -> None:
        self.crowd = Line()
        self._asking: dict[str, list[str]] = {}

    def ask(self, what: str) -> bool:
        """Whether others of this process ask for the same now, and may have to wait for it."""
        asking = self._asking.setdefault(what, [])
        asking.append(what)
        return len(asking) > 1

    def asked(self, what: str) -> None:
        """Somebody who asked has been answered."""
        asking = self._asking.get(what)
        if asking:
            asking.pop()
        if not asking:
            self._asking.pop(what, None)

    def take(self, wait_s: float) -> tuple[list[Leaves], float]:
        """The right of one of a crowd to write; see `Turns`, which has more lines than this."""
        return ([self.crowd.enter(wait_s)] if wait_s else []), 0

    def fail(self, error: DibsError) -> None:
        """Nobody can be served: all who stand in line need not find that out for themselves."""
        tell(self.crowd, error)


def tell(line: Line, error: DibsError) -> None:
    line.outage = monotonic(), error
    for place in list(line.places):
        wake(place)


class Turns(Crowds):
    """The lines of a process that writes to one store."""

    def __init__(self, gate: Gate | None = None, line_s: float = BUSY_S) -> None:
        """Lines of those who write to one store.

        gate: waits until no crowd of another process writes, for a while
        line_s: how long one stands in the line, if not in that of a crowd
        """
        super().__init__()
        self.line = Line()
        self._gate = gate
        self._line_s = line_s

    def take(self, wait_s: float) -> tuple[list[Leaves], float]:
        """The right to ask the database for a turn; it is left from the last to the first.

        Also since when it was waited for, on the monotonic clock, beyond what was given. The caller
        resets `SILENCE`, which may be shorter from here on.
        wait_s: given by one of a crowd: how long it has time
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
                # Who has stood long behind others has less time for a turn that nobody passes on.
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
