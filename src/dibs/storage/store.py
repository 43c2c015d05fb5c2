"""One space in one database: transactions, the turn, the journal, and waiting.

Every write is one short transaction. It begins by taking the space's next *seq* and ends with at
least one event of that seq in the journal, which carries what the write changed. Seq is handed out
under the write lock, so it is in commit order: a reader that has seen seq 40 will never meet a new
39. That one number serves as fencing epoch, as cursor and as audit order.

All waiting is one mechanism: something changed, look again. Bells are hints that make the next
look come soon; a slow regular look makes a lost hint harmless.
"""

from __future__ import annotations

from _contextvars import ContextVar

from dibs.errors import UNREADABLE, CancelledError, CorruptError, NotYoursError, SpaceFullError
from dibs.records import TRACED
from dibs.storage.clock import COPY, SILENCE, bearable, stranger
from dibs.storage.images import inner, is_firm, to_changes, to_json
from dibs.storage.queries import Queries, Query, newest_migration
from dibs.storage.retention import Retention
from dibs.system import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self, TypeVar

    from dibs.storage.driver import Ahead, Connection, Driver, Listener, Rings, Row
    from dibs.storage.images import Change
    from dibs.storage.ledger import Ledger
    from dibs.storage.turns import Leaves

    T = TypeVar("T")

SPACE = Queries("space")
CHANGED = "something other than dibs has changed what is stored here"
NOW_MS = 1
"""Something due this soon is left to the process that noticed it."""
PENDING = 16_384
"""How many characters of changes may wait for an event; more get their own (`space.noted`)."""
TRACE: ContextVar[str] = ContextVar("trace", default="")
"""The trace that a call belongs to, if its caller says so. The events that begin something keep
it, so that a span made from them can be linked to the caller's own."""
TIDY_SHIFT = 8
"""A store is maintained at every 256th write."""


class Caller:
    """Who makes a write: an agent's session, and whether this process keeps it alive."""

    __slots__ = ("agent", "nonce", "owned", "session")

    def __init__(self, agent: str, session: int, owned: bool, nonce: str = "") -> None:
        self.agent = agent
        self.session = session
        self.owned = owned
        self.nonce = nonce
        """Random, since in a store that was rolled back another session may get the same number."""


class Store:
    def __init__(
        self,
        driver: Driver,
        name: str,
        key_check: str,
        sign: Callable[[str, Row], str],
        ledger: Ledger,
    ) -> None:
        """
        sign: signs an access token in the space with that name, for older stores
        ledger: what the journal is hashed with
        """
        self.driver = driver
        self.ledger = driver.ledger = ledger
        self.clock = driver.clock
        self.liveness = driver.liveness
        self.swept_at = 0
        """The store time at which this process last looked for dead sessions."""
        self.numbers: set[int] = set()
        """The numbers under which this process has waiters."""
        self.kept_at = 0
        """The store time at which this process last reported its waiters as alive."""
        self.hints: tuple[int, ...] = ()
        """Numbers that the last caller found worth asking for ahead."""
        self.name = name
        driver.version = newest_migration()
        self.at_close: list[Callable[[], None]] = []
        self.page_bytes: int | None = None
        """How many bytes a list may have in a daemon."""
        self.tidy: Callable[[], object] | None = None
        """Called after every 256th write to prune the store; None where there is no time for it."""
        self.tidy_shift = TIDY_SHIFT
        """One less, so after every 128th write, while pruning falls behind on a slow machine."""
        self.keeps: Callable[[], Retention] = Retention
        """How long records are kept."""
        self.pruning: Any = None
        """What `tidy` continues with."""
        self.not_pruned = ""
        """Why the last attempt at that failed, if it did."""
        self.swept_rows_at = self.rests_until = 0
        self.folding: Any = None
        """Earlier moments, once one was requested."""

        def set_up(connection: Connection) -> None:
            from dibs.storage.prepare import prepare  # late, since it is rarely needed

            self._enter(prepare(driver, connection, name, key_check, sign, ledger))

        driver.renew = set_up
        connection = driver.take()
        try:
            row = self._current(connection)
            if row is None:
                set_up(connection)
            else:
                self._enter(row)
        except UNREADABLE as error:
            raise CorruptError(CHANGED, next="restore a backup") from error
        finally:
            driver.give_back(connection)

    def _enter(self, row: Row) -> None:
        self.space: int = row["id"]
        self.key_check: str = row["key_check"]
        self.restored_seq: int = row["restored_seq"]
        self.home: str = row["repository"]

    def _current(self, connection: Connection) -> Row | None:
        """The row of the space, unless something has to be set up first."""
        if connection.version() != self.driver.version:
            return None
        found = connection.rows(SPACE.find, {"name": self.name})
        if not found or not found[0]["head"] or self.driver.enter(found[0], connection):
            return None
        return found[0]

    def write(self, caller: Caller | None, ahead: Ahead = None, wait_s: float = 0) -> Write:
        """A write; its first queries may be given, and are sent with its beginning.

        wait_s: how long it has, if a crowd may be writing the same
        """
        write = Write(self, ahead, caller)
        write.wait_s = wait_s
        return write

    def read(self, ahead: Ahead = None, caller: Caller | None = None) -> Read:
        """A read, likewise."""
        return Read(self, ahead, caller)

    def belong(self, repository: str) -> str:
        """The home of this space, which is this repository if it has none yet."""
        if not self.home:
            with self.write(None) as tx:
                self.home = (tx.row(SPACE.home) or {})["repository"]
                if not self.home:
                    tx.run(SPACE.belong, repository=repository)
                    self.home = repository
        return self.home

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
        """Whether the process behind a session still runs, as far as is known."""
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
        """Call `look` until it finds something or the time is up.

        It returns what it found, and in how many milliseconds something is due to change by
        itself, if it knows.

        topics: whose bells to listen to: a noun, a noun and a subject (`noun:subject`), or the
            number of a waiter and its line (`number:line`)
        driver: where to listen, if not at the usual place
        listener: one that already listens, from before there was anything to find
        """
        from dibs.storage.waiting import CANCEL  # late, since most commands never wait

        cancel = CANCEL.get()
        # The first in a line also looks for the others.
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
        """Start to listen before waiting; None if that would take long."""
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
    """When it began to wait for the turn, if it had to."""
    patience_s: float = 0
    """How much longer than usual it may take."""
    queued = True
    """Whether anybody may be waiting in a queue; a write knows, a read looks."""

    def __init__(self, store: Store, ahead: Ahead, caller: Caller | None = None) -> None:
        self.store = store
        self.space = store.space
        self.caller = caller
        self._ahead = ahead

    def __enter__(self) -> Self:
        self.connection = self.store.driver.take(self._since, self.patience_s)
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
        """Announce the next queries, so that they can be sent together."""
        self.connection.ahead(ahead)

    def ask(self, questions: list[tuple[Query, Row]]) -> list[list[Row]]:
        """The rows of several queries, which are sent together unless announced before."""
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

        keep: a function that says whether a row is wanted; by default all are
        """
        if self.store.page_bytes is None and keep is None:
            return self.rows(query, **parameters)
        from dibs.storage.paging import pages  # late: only daemons and searches need it

        return pages(self, self.store.page_bytes, query, cursor, field, keep, parameters)

    def fitting(self, rows: list[Row]) -> list[Row]:
        """As many of these rows as fit in one answer; the rest is for the next call."""
        if self.store.page_bytes is None:
            return rows
        from dibs.storage.paging import fitting  # late: only a daemon needs it

        return fitting(self.store.page_bytes, rows)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        # No `finally`: a connection whose rollback was interrupted must not be used again.
        self.connection.rollback()
        self._give_back()

    def _give_back(self) -> None:
        # A remaining reference to this transaction must not keep the next one's connection.
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
    """How long it waits while nobody passes the turn on, if shorter than usual."""
    _discarded = False
    _held: tuple[int, ...] = ()
    _places: list[Leaves] = []

    def __enter__(self) -> Self:
        if self.stall_s is None:
            return self._take_turn()
        before = SILENCE.get()
        SILENCE.set(bearable(self.stall_s))
        try:
            return self._take_turn()
        finally:
            SILENCE.set(before)

    def _take_turn(self) -> Self:
        try:
            turns = self.store.driver.turns
            if turns is not None:
                self._places, self._since = turns.take(self.wait_s)
            return super().__enter__()
        except BaseException:
            self._leave_line()
            raise

    def _begin(self) -> None:
        caller = self.caller
        self._rings: Rings = {}
        session = caller.session if caller else 0
        connection = self.connection
        if self.wait_s:
            connection.crowd = True
        self.now, self.wall, entered = connection.begin_write(self.space, session, self._ahead)
        self.seq, self.queued = entered["seq"], bool(entered["queued"])
        self._entered = entered
        """Kept up to date, since the next write may begin with it. Its `id` is that of the session
        until this write changes a session or a place in a queue."""
        self._journal: list[Row] = []
        """The events of this write, stored at its end with everything it changed."""
        self._changes: list[Change] = []
        if caller is not None:
            self._check(caller, entered)

    def _check(self, caller: Caller, row: Row) -> None:
        if row["nonce"] != caller.nonce:
            raise stranger(caller)
        # Another process or thread of the session may have renamed it.
        caller.agent = row["agent"]
        if self.store.alive(row, self.now, known_to_run=caller.owned):
            return
        raise NotYoursError(
            f"session {caller.session} of {caller.agent} has ended; what it held was freed",
            next="join again, then reclaim what you still need",
            session=caller.session,
        )

    def run(self, query: Query, row: Row | None = None, /, **parameters: Any) -> None:
        """Run a statement with named values, or with the values of a row."""
        values = parameters if row is None else row
        values["space"] = self.space
        tell, returns, enters = self.store.ledger.tellers[query]
        if enters:
            self._entered["id"] = None
        if returns:
            self._changes += tell(values, self.connection.rows(query, values))
            return
        self._changes += tell(values, None)
        self.connection.run(query, values)

    def rows(self, query: Query, **parameters: Any) -> list[Row]:
        parameters["space"] = self.space
        found = self.connection.rows(query, parameters)
        if query.writes:
            self._tell(query, parameters, found)
        return found

    def row(self, query: Query, **parameters: Any) -> Row | None:
        parameters["space"] = self.space
        found = self.connection.rows(query, parameters)
        if query.writes:
            self._tell(query, parameters, found)
        return found[0] if found else None

    def _tell(self, query: Query, parameters: Row, found: list[Row]) -> None:
        tell, _, enters = self.store.ledger.tellers[query]
        if enters:
            self._entered["id"] = None
        self._changes += tell(parameters, found)

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
        """Add what this write did to the journal, and return the seq of that event.

        By default the caller did it; an event about another session names that one.
        grows: it only adds to the store, and is refused in one that has reached its limit
        """
        seq = self.next_seq
        mine = self.caller.session if self.caller is not None else None
        if agent is None and self.caller is not None:
            agent, session = self.caller.agent, mine
        # A hand-over to another session is part of a release.
        if grows and self.store.driver.over and session == mine:
            self._refuse_if_full()
        if kind in TRACED and session == mine and (trace := TRACE.get()):
            data = {**(data or {}), "trace": trace}
        row = {
            "space": self.space,
            "seq": seq,
            "kind": kind,
            "agent": agent,
            "session": session,
            "subject": subject,
            "data": None if data is None else to_json(data),
            "at": self.wall,
            "changes": None,
        }
        self._journal.append(row)
        self._rings[kind.partition(".")[0]] = None
        return seq

    @property
    def next_seq(self) -> int:
        """The seq that the next event of this write will have."""
        return self.seq + len(self._journal)

    def _conclude(self) -> None:
        """Store the events of this write, the last of them with everything that changed."""
        hash, run, journal = self.store.ledger.hash, self.connection.run, self._journal
        before = self._pending() if self._entered["pending"] else ""
        journal[-1]["changes"] = to_changes(self.now, before, self._changes)
        entered = self._entered
        last = entered["hash"]
        for row in journal:
            last = row["hash"] = hash(last, row)
            run(SPACE.journal, row)
        entered["seq"], entered["hash"] = self.next_seq, last
        if before:
            self._put_off("")

    def _conclude_without(self) -> None:
        """Let the changes of a write without an event wait for the next event."""
        if not any(map(is_firm, self._changes)):
            return  # a sign of life
        there, mine = self._entered["pending"], inner(self._changes)
        before = self._pending()
        if before == there and len(before) + len(mine) < PENDING:
            self._put_off(f"{before},{mine}" if before else mine)
        else:
            self.event("space.noted", self.store.name)

    def _pending(self) -> str:
        """The changes that wait for an event; forged ones stay where they are, to be detected."""
        pending: str = self._entered["pending"]
        return pending if pending and self.store.ledger.fits("space", self._chain()) else ""

    def _chain(self) -> Row:
        """The part of the chain in the space's row."""
        return self.connection.rows(SPACE.signed, {"space": self.space})[0]

    def based(self, **chain: Any) -> None:
        """Record up to where the base goes now."""
        self.connection.run(SPACE.based, self._signed(**chain))

    def swept(self) -> Any:
        """Where the last slice of pruning stopped; None if there was none, or it is forged."""
        row = self._chain()
        return from_text(row["swept"] or None) if self.store.ledger.fits("space", row) else None

    def sweep_on(self, place: Any) -> None:
        """Let the next slice of pruning, by whatever process, continue there."""
        self.connection.run(SPACE.sweep_on, self._signed(swept=to_json(place)))

    def _put_off(self, pending: str) -> None:
        """Let changes wait for the next event; none once an event has them."""
        self.connection.run(SPACE.put_off, self._signed(pending=pending))
        self._entered["pending"] = pending

    def _signed(self, **columns: Any) -> Row:
        """The space's row with other values; a forged row is not signed again."""
        return self.store.ledger.signed_space(self._chain(), columns) | {"space": self.space}

    def _refuse_if_full(self) -> None:
        """Refuse if the file is over the limit; pages that pruning freed do not count."""
        driver = self.store.driver
        used = self.connection.rows(driver.used, {})[0]["used"]
        if used > driver.size_limit:
            raise SpaceFullError(
                f"{driver.address} holds {used >> 20} MiB, more than its limit of "
                f"{driver.size_limit >> 20} MiB",
                next="have a person remove old records (dibs gc --keep 7d), or raise "
                "DIBS_SIZE_LIMIT",
                limit=driver.size_limit,
            )

    def ring(self, number: int, given: object = None) -> None:
        """Wake the waiter with this number, once the write is done.

        given: what it was granted; a waiter in this process then need not look
        """
        self._rings[str(number)] = given

    def hold(self, number: int) -> None:
        """Prove that this process is behind a number that this write assigns.

        If the write is undone, the number will be assigned again, perhaps to another process.
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
        if self._places:
            self._leave_line()

    def _leave_line(self) -> None:
        if self._places:
            try:
                self._places.pop().leave()
            finally:
                self._leave_line()  # otherwise the next would wait as long as this is remembered

    def discard(self) -> None:
        """End the write without a trace, since nothing had to be changed."""
        self._discarded = True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or self._discarded:
            self._leave()
            return
        try:
            if self._changes and not self._journal:
                self._conclude_without()
            if self._journal:
                self._conclude()
            # A write without an event, such as a beat, uses no seq: the journal has no gap.
            last = self.next_seq - 1
            self.connection.commit(self._rings, last)
        except BaseException:
            self._leave()
            raise
        self._give_back()
        store = self.store
        shift = store.tidy_shift
        if last >> shift != (self.seq - 1) >> shift and store.tidy:
            store.tidy()


def from_text(text: str | None) -> Any:
    """Read what `to_text` wrote; None stays None."""
    if text is None:
        return None
    if text == "[]":
        return []  # most lists are empty and need no `json`
    if not _READERS:
        from json import JSONDecoder  # late, since most commands do not need it

        _READERS.append(JSONDecoder().raw_decode)
    try:
        return _READERS[0](text)[0]
    except UNREADABLE as error:
        raise CorruptError(CHANGED, next="dibs verify names the rows") from error


_READERS: list[Callable[[str], tuple[Any, int]]] = []
"""The JSON decoder, once it was needed; stored text has no white space to skip."""
