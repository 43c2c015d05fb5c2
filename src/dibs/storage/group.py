"""Group commit: many writes in one transaction, each in a savepoint of its own.

A process that serves many callers would otherwise pay for one sync per write. Within a *group*,
every write of its thread joins one transaction: it takes its own seq, and is undone alone if it is
refused or fails. None of them may be acknowledged before the group has ended: that is the common
commit, and if it fails, all of them have failed. Reads see only what is committed, as always.

The threads of waiters are not in a group. There may be a thousand of them, so only a few at a time
use the database, and they line up for their turn to write.

They sleep in a *hub*. It follows the journal, and wakes the waiters whose topic an event concerns;
the maker of the hub defines which these are. The hub is told directly about this process's writes.
"""

from __future__ import annotations

import select
import threading
import time
from _thread import get_ident
from collections import deque
from queue import SimpleQueue

from dibs.errors import (
    BusyError,
    CancelledError,
    ClosedError,
    DibsError,
    StorageError,
    UnavailableError,
)
from dibs.storage.store import SPACE
from dibs.storage.turns import Crowds
from dibs.storage.waiting import CANCEL, PATIENCE_S, STOP_S, Cancel, HubListener, Room, line_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Self

    from dibs.storage.driver import Ahead, Connection, Driver, Rings, Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Store


PAGE = 1000
WAIT_S = 3600.0
RETRY_S = 0.5
PACE_S = 0.005
"""How long to pause between two looks at the journal."""
SEATS = 8
"""How many threads of the crowd may use the database at a time."""
SEAT_S = 30.0


class GroupingDriver:
    """A driver whose writes join the group of their thread, if there is one."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.boot = driver.boot
        self.listen, self.listen_soon = driver.listen, driver.listen_soon
        self.groups: dict[int, Group] = {}
        self.crowd: set[int] = set()
        """The threads of waiters, perhaps a thousand: they line up, others do not."""
        self.seats = threading.Semaphore(SEATS)
        self.turns = Crowds()
        """Groups that want the same thing; only the first of each group is in the line."""
        self.turn = Turn()
        self.room = Room()
        """Where waiters sleep that need no bell, since they are told."""
        self.told: Callable[[list[Row], Rings], None] = lambda events, rings: None
        """Called with the events of each commit, and with what it brings to which waiter."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)

    @property
    def grouped(self) -> bool:
        return get_ident() in self.groups

    def elsewhere(self, rings: Rings) -> Rings:
        """Without the waiters of this process."""
        return {topic: given for topic, given in rings.items() if not self.room.has(topic)}

    def take(self, since: float = 0, more_s: float = 0) -> Any:
        group = self.groups.get(get_ident())
        if group is not None:
            return Member(group)
        return Guest(self) if get_ident() in self.crowd else self.driver.take(0, more_s)

    def give_back(self, connection: Any) -> None:
        if isinstance(connection, Guest):
            connection.go()
        elif not isinstance(connection, Member):
            self.driver.give_back(connection)


class Turn:
    """A lock that is granted in the order of asking, except that the group precedes the crowd.

    One group follows another only if nobody else asks, so both make progress: a group, one of the
    crowd, a group. In a single line, a write would wait for all two hundred that are about to wait.

    The database's own lock goes to whoever tries at the right moment: a thread that writes
    without a pause would starve the others.

    A holder that finds the database's own lock kept by another process says so, and all in the
    line fail with it. If each tried by itself, the last would find out only after minutes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._line: deque[SimpleQueue[BusyError | None]] = deque()
        """Each waiter is told when it is its turn, or why it never will be."""

    def acquire(self, first: bool = False) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine: SimpleQueue[BusyError | None] = SimpleQueue()
            if first:
                self._line.appendleft(mine)
            else:
                self._line.append(mine)
        kept = mine.get()  # until the one before lets go
        if kept is not None:
            raise BusyError(str(kept), next=kept.next) from kept

    def release(self, kept: BusyError | None = None) -> None:
        """Let the next one in; or refuse all in the line, if another process keeps the turn."""
        with self._lock:
            while kept is not None and self._line:
                self._line.popleft().put(kept)
            if self._line:
                self._line.popleft().put(None)
            else:
                self._taken = False


class Noting:
    """A transaction that records which events it adds to the journal."""

    crowd = False
    _connection: Connection | None = None

    def _use(self, connection: Connection) -> None:
        self.events: list[Row] = []
        self._connection = connection
        self._run = connection.run
        self.rows, self.ahead = connection.rows, connection.ahead

    def run(self, query: Query, parameters: Row) -> None:
        if query is SPACE.journal:
            self.events.append(parameters)
        self._run(query, parameters)


class Guest(Noting):
    """One transaction of a thread of the crowd, as the store sees it.

    If a thousand woke up at once, each would open a connection of its own, and would poll for its
    turn to write like another process. So they line up here.
    """

    def __init__(self, grouping: GroupingDriver) -> None:
        self._grouping = grouping
        self._writes = False
        self._kept: BusyError | None = None

    def begin_write(self, space: int, session: int, ahead: Ahead) -> tuple[int, int, Row]:
        try:
            self._grouping.turn.acquire()
        except BusyError as error:
            self._grouping.turns.fail(error)
            raise
        self._writes = True
        connection = self._sit()
        try:
            return connection.begin_write(space, session, ahead)
        except BusyError as error:
            self._kept = error
            self._grouping.turns.fail(error)
            raise

    def begin_read(self, ahead: Ahead) -> tuple[int, int]:
        return self._sit().begin_read(ahead)

    def _sit(self) -> Connection:
        if not self._grouping.seats.acquire(timeout=SEAT_S):
            raise BusyError("too many threads use the store at once", next="try again")
        try:
            connection: Connection = self._grouping.driver.take()
        except BaseException:
            self._grouping.seats.release()
            raise
        self._use(connection)
        return connection

    def commit(self, rings: Rings, seq: int) -> None:
        if self._connection is not None:
            self._connection.commit(self._grouping.elsewhere(rings), seq)
            if self.events:
                self._grouping.told(self.events, rings)

    def rollback(self) -> None:
        if self._connection is not None:
            self._connection.rollback()

    def go(self) -> None:
        """Let in the next one in line."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._grouping.driver.give_back(connection)
            self._grouping.seats.release()
        if self._writes:
            self._writes = False
            self._grouping.turn.release(self._kept)


class Group:
    """The writes that this thread makes within a `with` block."""

    def __init__(self, grouping: GroupingDriver) -> None:
        self._grouping = grouping
        self.driver = grouping.driver
        self.connection: Connection | None = None
        self.rings: Rings = {}
        self.seq = 0
        self.events: list[Row] = []
        self.broken: BaseException | None = None
        self.kept: BusyError | None = None
        """Set if another process keeps the turn: the first has waited for all of them."""

    def __enter__(self) -> Self:
        self._grouping.groups[get_ident()] = self
        return self

    def begin(self) -> Connection:
        """The connection of the group, which takes the turn with its first write."""
        if self.broken is not None:
            raise StorageError("another write in the same group broke the transaction") from (
                self.broken
            )
        if self.kept is not None:
            raise self.kept
        if self.connection is None:
            self._grouping.turn.acquire(first=True)
            try:
                connection = self.driver.take()
                try:
                    connection.begin_group()
                except BaseException:
                    connection.rollback()
                    self.driver.give_back(connection)
                    raise
            except BaseException as error:
                self._grouping.turn.release(error if isinstance(error, BusyError) else None)
                raise
            self.connection = connection
        return self.connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        del self._grouping.groups[get_ident()]
        connection, self.connection = self.connection, None
        if connection is None:
            return
        try:
            if kind is None and self.broken is None:
                connection.commit(self._grouping.elsewhere(self.rings), self.seq)
            else:
                connection.rollback()
        except BaseException:
            connection.rollback()
            raise
        finally:
            self.driver.give_back(connection)
            self._grouping.turn.release(self.kept)
        if kind is None and self.broken is not None:
            raise self.broken
        if kind is None and self.events:
            self._grouping.told(self.events, self.rings)


class Member(Noting):
    """One transaction of the group's thread, as the store sees it."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._reads = False

    def begin_write(self, space: int, session: int, ahead: Ahead) -> tuple[int, int, Row]:
        try:
            connection = self._group.begin()
            connection.save()
            self._use(connection)
            return connection.enter(space, session, ahead)
        except BusyError as error:
            self._group.kept = error
            raise

    def begin_read(self, ahead: Ahead) -> tuple[int, int]:
        connection: Connection = self._group.driver.take()
        self._reads = True
        self._use(connection)
        return connection.begin_read(ahead)

    def commit(self, rings: Rings, seq: int) -> None:
        if self._connection is not None:
            self._connection.keep()
            self._group.seq = seq
            self._connection = None
            self._group.rings |= rings
            self._group.events += self.events

    def rollback(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return  # it has not begun, or has already ended
        if self._reads:
            connection.rollback()
            self._group.driver.give_back(connection)
            return
        try:
            connection.undo()
        except DibsError as error:
            self._group.broken = error


class Hub(Room):
    """Who waits for what, and the thread that wakes them."""

    def __init__(
        self,
        nouns: tuple[str, ...],
        keys: Callable[[str], Iterable[str]],
        touched: Callable[[str, str, str], Iterable[str]],
        moved: Callable[[int], None],
    ) -> None:
        """A hub for these topics.

        nouns: whose bells ring for everything that the journal may hold
        keys: the keys that wake a topic
        touched: from kind, subject and data of an event, the keys of the waiters it may concern
        moved: called with each seq that the journal has reached
        """
        super().__init__()
        self._nouns = nouns
        self._keys = keys
        self._touched = touched
        self._moved = moved
        self._seq = 0
        """The seq up to which everybody has been woken."""
        self._nudged = 0.0
        self._cancel = Cancel()

    def start(self, store: Store, driver: Driver) -> None:
        """Follow the journal of a store, with an ear of its own to that driver's bells."""
        with store.read() as tx:
            self._seq = tx.rows(SPACE.position)[0]["seq"]
        self._thread = threading.Thread(target=self._follow, args=(store, driver), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop following; after this the store may be closed."""
        self._cancel()
        self._thread.join(STOP_S)

    def listen(self, topics: tuple[str, ...], cancel: Cancel | None) -> HubListener:
        # Each once: two resources have the same ones above them.
        wanted = list(dict.fromkeys(key for topic in topics for key in self._keys(topic)))
        listener = HubListener(self, wanted, line_of(topics), cancel)
        with self._lock:
            self._enter(listener)
        return listener

    def told(self, events: list[Row], rings: Rings) -> None:
        """Wake the waiters of these events, which this process has just committed."""
        self._wake(events, events[0]["seq"] - 1, rings)

    def _wake(self, events: list[Row], after: int, rings: Rings, gap: bool = False) -> None:
        """Wake the waiters of these events, which are the next ones after a seq.

        rings: what some waiters are brought
        gap: some events before them were pruned, so it is unknown which waiters they concerned
        """
        last, woken = events[-1]["seq"], set[HubListener]()
        with self._lock:
            # A later waiter has not looked yet, and will.
            for event in events if self._waiters else ():
                concerned = self._touched(event["kind"], event["subject"], event["data"] or "")
                woken.update(*(self._waiters.get(key, ()) for key in concerned))
            for listener in woken.union(*self._waiters.values()) if gap else woken:
                listener.ring(rings.get(listener.keys[0]))
            if after <= self._seq < last:
                self._seq = last
        self._moved(last)

    def _follow(self, store: Store, driver: Driver) -> None:
        CANCEL.set(self._cancel)
        rested = 0.0

        def look() -> tuple[tuple[int, list[Row]] | None, None]:
            # Our own writes ring too; a look after each of them would leave time for nothing else.
            nonlocal rested
            select.select([self._cancel], [], [], max(0.0, rested - time.monotonic()))
            rested = (now := time.monotonic()) + PACE_S
            if now - self._nudged > PATIENCE_S:
                self._nudged = now
                self.nudge(alone=False)
            after = self._seq
            with store.read() as tx:
                events = tx.rows(SPACE.moved, after=after, limit=PAGE)
            return ((after, events) if events else None), None

        while True:
            try:
                found = store.wait(look, self._nouns, WAIT_S, driver)
            except (CancelledError, ClosedError):
                self._cancel.close()
                return
            except (UnavailableError, OSError):  # for example, no file descriptor is left
                if select.select([self._cancel], [], [], RETRY_S)[0]:
                    self._cancel.close()
                    return
                continue
            if found is not None:
                after, events = found
                self._wake(events, after, {}, gap=events[0]["seq"] != after + 1)
