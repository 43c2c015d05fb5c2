"""One space in one database: transactions, the turn, the journal, and waiting.

Every write is one short transaction that begins by taking the space's next *seq* and ends
with at least one event of that seq in the journal. Seq is handed out under the write lock,
so it is in commit order: a reader that has seen seq 40 will never be surprised by a 39. That one
number serves as fencing epoch, as cursor and as audit order.

All waiting is one mechanism: something changed, look again. Bells are hints that make the
next look come soon; the slow look beneath them makes a lost hint harmless.
"""

from __future__ import annotations

from dibs.errors import CancelledError, NotYoursError, SpaceFullError
from dibs.records import to_text
from dibs.storage.clock import COPY, SILENCE, bearable, stranger
from dibs.storage.queries import Queries, Query, newest_migration
from dibs.system import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self, TypeVar

    from dibs.storage.driver import Ahead, Connection, Driver, Listener, Rings, Row
    from dibs.storage.turns import Leaves

    T = TypeVar("T")

SPACE = Queries("space")
NOW_MS = 1
"""Due so soon that whoever said so looks again itself."""
KEEP_S, KEEP_BYTES = 30 * 86_400.0, 256 << 20
TIDY_SHIFT = 8
"""A store is looked after at every 256th write."""


class Caller:
    """Who makes a write: an agent's session, and whether this very process keeps it alive."""

    __slots__ = ("agent", "nonce", "owned", "session")

    def __init__(self, agent: str, session: int, owned: bool, nonce: str = "") -> None:
        self.agent = agent
        self.session = session
        self.owned = owned
        self.nonce = nonce
        """Random: in a store that went back in time, another session may get the same number."""


class Store:
    def __init__(
        self, driver: Driver, name: str, key_check: str, sign: Callable[[str, Row], str]
    ) -> None:
        """
        sign: the signature of an access token in the space of that name, for older stores
        """
        self.driver = driver
        self.clock = driver.clock
        self.liveness = driver.liveness
        self.swept_at = 0
        """The store time at which this process last looked for the dead."""
        self.numbers: set[int] = set()
        """Under which somebody waits in this process."""
        self.kept_at = 0
        """The store time at which it last said that they do."""
        self.hints: tuple[int, ...] = ()
        """Numbers that the last who asked found worth asking ahead."""
        self.name = name
        driver.version = newest_migration()
        self.at_close: list[Callable[[], None]] = []
        self.page_bytes: int | None = None
        """How many bytes a list may have, in a process that reads for others."""
        self.tidy: Callable[[], object] | None = None
        """Called after every 256th write, to prune the store; not where nobody has the time."""
        self.keeps: Callable[[], tuple[float, int]] = lambda: (KEEP_S, KEEP_BYTES)
        """How many seconds of the past are kept, and from how many bytes on less."""
        self.pruning: Any = None
        """What `tidy` goes on with."""
        self.swept_rows_at = self.rests_until = 0

        def set_up(connection: Connection) -> None:
            from dibs.storage.prepare import prepare  # late, since hardly anybody has to

            self._enter(prepare(driver, connection, name, key_check, sign))

        driver.renew = set_up
        connection = driver.take()
        try:
            row = self._current(connection)
            if row is None:
                set_up(connection)
            else:
                self._enter(row)
        finally:
            driver.give_back(connection)

    def _enter(self, row: Row) -> None:
        self.space: int = row["id"]
        self.key_check: str = row["key_check"]
        self.restored_seq: int = row["restored_seq"]

    def _current(self, connection: Connection) -> Row | None:
        """The row of the space, unless something has to be set up first."""
        if connection.version() != self.driver.version:
            return None
        found = connection.rows(SPACE.find, {"name": self.name})
        return found[0] if found and not self.driver.enter(found[0], connection) else None

    def write(self, caller: Caller | None, ahead: Ahead = None, wait_s: float = 0) -> Write:
        """A write; what it is going to ask first may be given, and travels with its beginning.

        wait_s: how long it has time, if there may be a crowd that writes the same
        """
        write = Write(self, ahead, caller)
        write.wait_s = wait_s
        return write

    def read(self, ahead: Ahead = None, caller: Caller | None = None) -> Read:
        """A read, likewise."""
        return Read(self, ahead, caller)

    def check(self) -> None:
        """Raise if a newer dibs has upgraded the store since it was opened."""
        connection = self.driver.take()
        try:
            version, known = connection.version(), self.driver.version
        finally:
            self.driver.give_back(connection)
        if version > known:
            from dibs.storage.prepare import upgraded

            raise upgraded(version, known)

    def alive(self, session: Row, now: int, known_to_run: bool = False) -> bool:
        """Whether the process behind a session still runs, as far as can be known."""
        deadline = session["deadline"]
        if session["ended_at"] is not None or (deadline is not None and deadline <= now):
            return False
        if session["boot"] != self.driver.boot:
            return False
        if known_to_run:
            return True
        if session["process_bound"] and self.lock_held(session["id"]):
            return True
        if session["process"] is not None:
            return runs(session["process"])
        return not session["process_bound"]

    def lock_held(self, number: int) -> bool:
        return self.liveness is None or self.liveness.alive(number)

    def wait(
        self,
        look: Callable[[], tuple[T | None, int | None]],
        topics: tuple[str, ...],
        seconds: float,
        driver: Driver | None = None,
        listener: Listener | None = None,
    ) -> T | None:
        """Call `look` until it finds something or the time is over.

        It returns what it found, and in how many milliseconds something is due to change
        by itself, if it knows.

        topics: whose bells to listen to: a noun, a noun and what it is about (`noun:subject`), or
            the number of somebody who waits and the line it stands in (`number:line`)
        driver: where to listen, if not where everybody does
        listener: one that listens already, from before there was anything to be found
        """
        from dibs.storage.waiting import CANCEL  # late, since most commands never wait

        cancel = CANCEL.get()
        # The first in a line looks for the others.
        missed = listener is None or listener.leads
        if listener is None:
            listener = (driver or self.driver).listen(topics, cancel)
        try:
            end = self.clock.now() + round(seconds * 1000)
            while True:
                found, due_in_ms = look() if missed else (None, None)
                missed = True
                if found is not None:
                    return found
                if cancel is not None and cancel.called:
                    raise CancelledError("the wait was cancelled")
                left = (end - self.clock.now()) / 1000
                if left <= 0:
                    return None
                if due_in_ms is not None and (due_in_ms <= NOW_MS or listener.leads):
                    left = min(left, max(due_in_ms, 1) / 1000)
                self.clock.sleep(listener, min(left, listener.patience_s))
        finally:
            listener.close()

    def listen_soon(self, topics: tuple[str, ...]) -> Listener | None:
        """Listen to bells before waiting for them; None if that would take long."""
        from dibs.storage.waiting import CANCEL

        return self.driver.listen_soon(topics, CANCEL.get())

    def close(self) -> None:
        for stop in self.at_close:
            stop()
        self.driver.close()


class Read:
    """A transaction that sees one state of the store throughout."""

    connection: Connection
    _since: float = 0
    """When it began to wait for its turn, if it had to."""
    queued = True
    """Whether anybody may be waiting in a queue; a write knows, a read looks."""

    def __init__(self, store: Store, ahead: Ahead, caller: Caller | None = None) -> None:
        self.store = store
        self.space = store.space
        self.caller = caller
        self._ahead = ahead

    def __enter__(self) -> Self:
        self.connection = self.store.driver.take(self._since)
        try:
            self._begin()
            return self
        except BaseException:
            self._leave()
            raise

    def _begin(self) -> None:
        caller, ahead = self.caller, self._ahead
        if caller is None:
            self.now, self.wall = self.connection.begin_read(ahead)
            return
        mine = (SPACE.caller, {"session": caller.session})
        self.now, self.wall = self.connection.begin_read(
            lambda: [mine, *(() if ahead is None else ahead())]
        )
        row = self.row(SPACE.caller, session=caller.session)
        if row is None or row["nonce"] != caller.nonce or row["boot"] == COPY:
            raise stranger(caller)

    def ahead(self, ahead: Ahead) -> None:
        """Say what will be asked next, so that it can travel together."""
        self.connection.ahead(ahead)

    def ask(self, questions: list[tuple[Query, Row]]) -> list[list[Row]]:
        """The rows of several queries, which travel together unless they were said ahead."""
        self.connection.ahead(lambda: questions)
        return [self.rows(query, **parameters) for query, parameters in questions]

    def rows(self, query: Query, **parameters: Any) -> list[Row]:
        parameters["space"] = self.space
        return self.connection.rows(query, parameters)

    def row(self, query: Query, **parameters: Any) -> Row | None:
        parameters["space"] = self.space
        found = self.connection.rows(query, parameters)
        return found[0] if found else None

    def pages(
        self, query: Query, cursor: str, field: str, keep: Any = None, **parameters: Any
    ) -> list[Row]:
        """The rows of a list, which begins after the row whose field is the cursor's value.

        keep: a function that says of a row whether it is meant; by default all are
        """
        if self.store.page_bytes is None and keep is None:
            return self.rows(query, **parameters)
        from dibs.storage.paging import pages  # only a daemon and who looks for something need it

        return pages(self, self.store.page_bytes, query, cursor, field, keep, parameters)

    def fitting(self, rows: list[Row]) -> list[Row]:
        """As many of these rows as one answer holds; the rest is for the next."""
        if self.store.page_bytes is None:
            return rows
        from dibs.storage.paging import fitting  # only a daemon needs it

        return fitting(self.store.page_bytes, rows)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        # No `finally`: a connection whose rollback was interrupted must not be used again.
        self.connection.rollback()
        self._give_back()

    def _give_back(self) -> None:
        # Whatever still refers to this transaction must not keep the next one's connection.
        connection = self.connection
        del self.connection
        self.store.driver.give_back(connection)


class Write(Read):
    """One turn: a short transaction with a seq of its own.

    Leaving it by an exception undoes everything, Ctrl-C included, so a refusal leaves no row.
    """

    seq: int
    wait_s: float = 0
    stall_s: float | None = None
    """How long it waits while nobody passes the turn on, if less than usual."""
    _events = 0
    _discarded = False
    _held: tuple[int, ...] = ()
    _places: list[Leaves] = []

    def __enter__(self) -> Self:
        before = SILENCE.get()
        if self.stall_s is not None:
            SILENCE.set(bearable(self.stall_s))
        try:
            turns = self.store.driver.turns
            if turns is not None:
                self._places, self._since = turns.take(self.wait_s)
            return super().__enter__()
        except BaseException:
            self._leave_line()
            raise
        finally:
            if SILENCE.get() is not before:
                SILENCE.set(before)

    def _begin(self) -> None:
        caller = self.caller
        self._rings: Rings = {}
        session = caller.session if caller else 0
        connection = self.connection
        if self.wait_s:
            connection.crowd = True
        self.now, self.wall, entered = connection.begin_write(self.space, session, self._ahead)
        self.seq, self.queued = entered["seq"], bool(entered["queued"])
        if caller is not None:
            self._check(caller, entered)

    def _check(self, caller: Caller, row: Row) -> None:
        if row["nonce"] != caller.nonce:
            raise stranger(caller)
        # Another process of the session, or another thread, may have given it another name.
        caller.agent = row["agent"]
        if self.store.alive(row, self.now, known_to_run=caller.owned):
            return
        raise NotYoursError(
            f"session {caller.session} of {caller.agent} has ended; "
            "what it held has been given back",
            next="join again, then claim again what you still need",
            session=caller.session,
        )

    def run(self, query: Query, row: Row | None = None, /, **parameters: Any) -> None:
        """Run a statement with named values, or with those of a row."""
        values = parameters if row is None else row
        values["space"] = self.space
        self.connection.run(query, values)

    def event(
        self,
        kind: str,
        subject: str,
        data: dict[str, Any] | None = None,
        *,
        agent: str | None = None,
        session: int | None = None,
        grows: bool = False,
    ) -> int:
        """Add to the journal what this write did, and return the seq of that line.

        By default the caller did it; an event about somebody else's session names that one.
        grows: it only adds to the store, and is refused in one that has reached its limit
        """
        seq = self.next_seq
        self._events += 1
        mine = self.caller.session if self.caller is not None else None
        if agent is None and self.caller is not None:
            agent, session = self.caller.agent, mine
        # What is handed over to somebody else is part of a release.
        if grows and self.store.driver.over and session == mine:
            self._refuse_if_full()
        row = {
            "space": self.space,
            "seq": seq,
            "kind": kind,
            "agent": agent,
            "session": session,
            "subject": subject,
            "data": None if data is None else to_text(data),
            "at": self.wall,
        }
        self.connection.run(SPACE.journal, row)
        self._rings[kind.partition(".")[0]] = None
        return seq

    @property
    def next_seq(self) -> int:
        """The seq that the next event of this write is going to have."""
        return self.seq + self._events

    def _refuse_if_full(self) -> None:
        """The file is over the limit; what pruning has freed in it counts as free."""
        driver = self.store.driver
        used = self.connection.rows(driver.used, {})[0]["used"]
        if used > driver.size_limit:
            raise SpaceFullError(
                f"{driver.address} holds {used >> 20} MiB, more than its limit of "
                f"{driver.size_limit >> 20} MiB",
                next="have a person remove what is old (dibs gc --keep 7d), or raise "
                "DIBS_SIZE_LIMIT",
                limit=driver.size_limit,
            )

    def ring(self, number: int, given: object = None) -> None:
        """Wake the one who waits under this number, once the write is done.

        given: what it was granted; if it waits in this process, it need not look
        """
        self._rings[str(number)] = given

    def hold(self, number: int) -> None:
        """Prove that this process lives behind a number that this write mints.

        If the write is undone, the number will be minted again, perhaps by another process.
        """
        if self.store.liveness is not None:
            self._held += (number,)
            self.store.liveness.hold(number)

    def _leave(self) -> None:
        for number in self._held:
            if self.store.liveness is not None:
                self.store.liveness.let_go(number)
        super()._leave()

    def _give_back(self) -> None:
        super()._give_back()
        self._leave_line()

    def _leave_line(self) -> None:
        if self._places:
            try:
                self._places.pop().leave()
            finally:
                self._leave_line()  # else the next would wait for as long as this is remembered

    def discard(self) -> None:
        """Nothing had to be changed: leave without a trace."""
        self._discarded = True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or self._discarded:
            self._leave()
            return
        try:
            # A write without an event, such as a beat, uses no seq: the journal has no gap.
            self.connection.commit(self._rings, self.seq + self._events - 1)
        except BaseException:
            self._leave()
            raise
        self._give_back()
        store = self.store
        if (self.seq + self._events - 1) >> TIDY_SHIFT != (
            self.seq - 1
        ) >> TIDY_SHIFT and store.tidy:
            store.tidy()


def from_text(text: str | None) -> Any:
    """What `to_text` wrote; nothing is nothing."""
    if text is None:
        return None
    if text == "[]":
        return []  # most lists are empty, and need no `json`
    if not _READERS:
        from json import JSONDecoder  # late, since most commands read none

        _READERS.append(JSONDecoder().raw_decode)
    return _READERS[0](text)[0]


_READERS: list[Callable[[str], tuple[Any, int]]] = []
"""What reads JSON, once it was needed; there are no blanks around it that would be skipped."""
