"""One connection to a PostgreSQL server, used by one transaction at a time.

What it sends waits until an answer is needed; an error is told by what it means for the caller,
and for the other connections to the same server.
"""

from __future__ import annotations

import time

import psycopg

from dibs.errors import DibsError, DisconnectedError, StorageError, StoreGoneError
from dibs.storage.clock import SEQ_LIMIT, bearable, check_seq
from dibs.storage.postgres_bell import notice, ringing
from dibs.storage.postgres_connect import SOON_S, disconnected
from dibs.storage.postgres_pipeline import CHANNEL, EAR_LOCK, Pipeline, Seat, ask, named
from dibs.storage.queries import Queries, Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from psycopg.pq.abc import PGresult

    from dibs.storage.driver import Ahead, Rings, Row
    from dibs.storage.postgres import PostgresDriver

    Bound = tuple[str, tuple[Any, ...]]
    """A statement and its values."""

SPACE = Queries("space")
POSTGRES = Queries("postgres")
SETUP_LOCK = TURN_LOCK = EAR_LOCK - 1
CROWD_LOCK = EAR_LOCK + 1
LOCK_MS = 4_500
MARGIN_MS = 500
"""How long before its end a transaction gives up to wait for its turn."""
ROWS = 20
"""So many rows are inserted by one statement, which is then the same each time."""
IDLE_MS = 10_000


class PostgresConnection:
    seat: Seat | None = None
    crowd = False
    sets_up = False
    """Whether it is in a transaction that no other set-up can run beside."""

    def __init__(self, driver: PostgresDriver) -> None:
        self._driver = driver
        given: dict[str, Any] = {"synchronous": driver.synchronous, "lock_ms": str(LOCK_MS)}
        given |= {"idle_ms": str(IDLE_MS), "pid": 0}
        talk = driver.talk()
        try:
            own = given | {"pid": talk.backend_pid}
            settings = ask(talk, *POSTGRES.settings.bind("postgres", own))
        except psycopg.Error as error:
            talk.finish()
            raise driver.meaning(error)[0] from error
        if settings.get_value(0, 0) == b"t":
            driver.pooled = True
        self._settings = POSTGRES.settings.bind("postgres", given) if driver.pooled else None
        """What has to be said at the beginning of each transaction."""
        self._open = False
        """Whether a transaction has been begun."""
        self._heard = True
        """Whether somebody listens, as far as the transaction knows."""
        self._pipeline = Pipeline(talk, driver.pooled)
        self._later: list[tuple[Query, dict[str, Any]]] = []
        self._ahead: dict[Bound, list[Row]] = {}
        """The answers to what was asked ahead; good until anything else is asked, or written to
        what they were read from."""
        self._unproven = False
        """Whether a write of the group was kept whose statements have not been answered yet."""
        self._lost: DibsError | None = None
        """Why such a write failed after it was kept."""

    @property
    def usable(self) -> bool:
        return self._pipeline.usable

    def begin(self, end: float) -> None:
        """Be used for a transaction that should have ended by then."""
        self._pipeline.end = end

    def begins(self) -> bool:
        """Whether a transaction can be begun; if not, the connection is gone."""
        try:
            self._begin("BEGIN READ ONLY")
            self.rows(POSTGRES.has_migration, {})
        except DisconnectedError:
            self.close()
            return False
        self.rollback()
        return True

    def begin_write(self, space: int, session: int, ahead: Ahead = None) -> tuple[int, int, Row]:
        asked = self._bound(ahead)  # first: if it fails, nothing has been sent
        self.begin_group()
        return self._enter(space, session, asked)

    def begin_group(self) -> None:
        self._begin("BEGIN ISOLATION LEVEL READ COMMITTED")
        self._bound_turn()

    def _bound_turn(self) -> None:
        """A turn that somebody keeps must not be taken for a server that is silent."""
        left_ms = max(MARGIN_MS, (self._pipeline.end - time.monotonic()) * 1000 - MARGIN_MS)
        limit_ms = min(bearable(LOCK_MS / 1000) * 1000, left_ms)
        if limit_ms < LOCK_MS:
            self._say(f"SET LOCAL lock_timeout = {round(limit_ms)}")

    def _begin(self, text: str) -> None:
        self._open = self._heard = True
        self._say(text)
        if self._settings is not None:
            self._send_bound(self._settings, wanted=False)

    def enter(self, space: int, session: int, ahead: Ahead = None) -> tuple[int, int, Row]:
        return self._enter(space, session, self._bound(ahead))

    def _enter(
        self, space: int, session: int, asked: list[tuple[Query, Bound]]
    ) -> tuple[int, int, Row]:
        self._send_later()
        if self.crowd:
            # One of a crowd at a time stands in the server's line, of all machines. A packet of
            # its own: in one, the two could last longer than the server may be silent.
            self.crowd = False
            self._send(POSTGRES.turn, {"lock": CROWD_LOCK, "space": space})
            self._exchange()
            self._bound_turn()
        self.take_turn(space)
        self._send(POSTGRES.taken, {"ear": EAR_LOCK, "space": space}, wanted=True)
        self._send(SPACE.enter, {"space": space, "session": session}, wanted=True)
        seen = self._driver.seen
        clock, entered = self._ask(asked)
        row = named(SPACE.enter, entered)[0]
        if not seen <= row["seq"] < SEQ_LIMIT:
            check_seq(row["seq"])
            self._driver.behind = True
            raise StoreGoneError(
                f"{self._driver.address} went back in time while it was open",
                next="join again, then claim again what you still need",
            )
        row["seq"] += 1
        taken = named(POSTGRES.taken, clock)[0]
        self._heard = taken["heard"]
        if taken["replicated"] != self._driver.replicated:
            self._driver.behind = True  # the space has to know how the server keeps what it writes
        return *self._times(taken), row

    def take_turn(self, space: int) -> None:
        """Before anything else that is asked, wait until nobody else writes."""
        self._send(POSTGRES.turn, {"lock": TURN_LOCK, "space": space})

    def begin_read(self, ahead: Ahead = None) -> tuple[int, int]:
        asked = self._bound(ahead)
        self._begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._send(POSTGRES.now, {}, wanted=True)
        (clock,) = self._ask(asked)
        return self._times(named(POSTGRES.now, clock)[0])

    def ahead(self, ahead: Ahead) -> None:
        new = [one for one in self._bound(ahead) if one[1] not in self._ahead]
        if new:
            self._send_later()
            self._ask(new)

    def _bound(self, ahead: Ahead) -> list[tuple[Query, Bound]]:
        """What is asked ahead, each bound to the space."""
        if ahead is None:
            return []
        space = {"space": self._driver.space}
        return [(query, query.bind("postgres", given | space)) for query, given in ahead()]

    def _ask(self, ahead: list[tuple[Query, Bound]]) -> list[PGresult]:
        """Send all, and what is asked ahead; return the answers to what was wanted before."""
        for _, bound in ahead:
            self._send_bound(bound, wanted=True)
        results = self._exchange()
        for query, bound in reversed(ahead):
            self._ahead[bound] = named(query, results.pop())
        return results

    def _times(self, found: Row) -> tuple[int, int]:
        if found["version"] > self._driver.version:
            self._driver.refuse_upgraded()
        if self._driver.injected:
            return self._driver.clock.now(), self._driver.clock.wall()
        return found["now"], found["now"]

    def begin_setup(self) -> None:
        self.begin_group()
        self.sets_up = True
        self._say("SET LOCAL synchronous_commit = on")  # what it notes of the server must stay
        self._send(POSTGRES.set_up_alone, {"lock": SETUP_LOCK}, wanted=True)
        self._send(POSTGRES.create_schema, {})
        # Not in the same packet: a table is only prepared for once its schema is there.
        (alone,) = self._exchange()
        pid = named(POSTGRES.set_up_alone, alone)[0]["pid"]
        # An index of a large table takes its time.
        self._pipeline.works = lambda: self._works(pid)
        self._send(POSTGRES.create_migration, {})
        self._exchange()

    def _works(self, pid: int) -> bool:
        """Whether the server still works on what that connection was told."""
        try:
            talk = self._driver.talk()
            try:
                found = ask(talk, *POSTGRES.works.bind("postgres", {"pid": pid}), SOON_S)
            finally:
                talk.finish()
        except (psycopg.Error, DibsError):
            return False
        return found.ntuples == 1 and found.get_value(0, 0) == b"t"

    def version(self) -> int:
        if not self.rows(POSTGRES.has_migration, {})[0]["there"]:
            return 0
        return int(self.rows(POSTGRES.version, {})[0]["version"])

    def history(self) -> Row:
        return self.rows(POSTGRES.history, {})[0]

    def migrate(self, version: int, text: str) -> None:
        for statement in text.split(";\n"):
            self._say(statement)
            self._exchange()
        self._send(POSTGRES.note_version, {"version": version})

    def rows(self, query: Query, parameters: dict[str, Any]) -> list[Row]:
        if self._ahead:
            known = self._ahead.pop(query.bind("postgres", parameters), None)
            if known is not None:
                return known
            self._ahead.clear()  # this one may write as well
        if self._settings is not None and not self._open:
            self._send_bound(self._settings, wanted=False)
        self._send_later()
        self._send(query, parameters, wanted=True)
        (result,) = self._exchange()
        return named(query, result)

    def run(self, query: Query, parameters: dict[str, Any]) -> None:
        if self._ahead:
            table, known = query.table, self._ahead.items()
            self._ahead = {bound: rows for bound, rows in known if table not in bound[0]}
        self._later.append((query, parameters))

    def save(self) -> None:
        self._control("SAVEPOINT member")

    def keep(self) -> None:
        self._control("RELEASE member")
        self._unproven = True

    def undo(self) -> None:
        self._later.clear()
        self._ahead.clear()
        if self._lost is not None:
            # The mark that the server knows is that of the write before, which was kept.
            raise self._lost
        self._pipeline.unwant()
        self._control("ROLLBACK TO member")
        self._control("RELEASE member")

    def _control(self, text: str) -> None:
        self._send_later()
        self._say(text)

    def commit(self, rings: Rings, seq: int) -> None:
        self._ahead.clear()
        self._send_later()
        self._say("COMMIT", wanted=True)
        bell, heard = self._driver.bell, rings and self._heard
        channel = CHANNEL.format(self._driver.space)
        # Whoever is waited for by number has been granted something: that is not put off.
        at_once = heard and (self._driver.rings_elsewhere(rings) or bell.at_once())
        self._pipeline.warned = False
        (ended,) = self._exchange(ringing([notice(channel, rings)]) if at_once else None)
        self._over()
        if heard and not at_once:
            bell.later(channel, rings)
        if self._pipeline.warned:
            # Cancelled while it waited for a standby, a commit is a success to the server.
            raise disconnected("the commit has not reached a standby of the server", "unreplicated")
        # After an error that somebody has caught, a commit undoes everything and is no error.
        if ended.command_status != b"COMMIT":
            raise StorageError("a statement before the commit failed", next="report this")
        if rings:
            self._driver.seen = seq
            self._driver.ring_here(rings)

    def rollback(self) -> None:
        self._later.clear()
        self._ahead.clear()
        self._unproven, self._lost = False, None
        self._over()
        try:
            if self._pipeline.unsent:
                # It may fail, and then a rollback in the same packet is not run.
                self.close()
            elif self._pipeline.usable and not self._pipeline.idle:
                self._pipeline.send("ROLLBACK")
                self._pipeline.tell()
        except psycopg.Error:
            self.close()

    def _over(self) -> None:
        self._open = self.sets_up = False
        self._pipeline.works = None

    def close(self) -> None:
        self._pipeline.close()

    def _meaning(self, error: psycopg.Error) -> DibsError:
        """The dibs error for one of PostgreSQL's; some mean that the connection is no good."""
        meant, spoilt = self._driver.meaning(error)
        if spoilt:
            self.close()
        return meant

    def _send_later(self) -> None:
        later, self._later = self._later, []
        rows: dict[Query, list[dict[str, Any]]] = {}
        for query, parameters in later:
            if len(later) >= ROWS and query.inserts:
                rows.setdefault(query, []).append(parameters)
            else:
                self._send_rows(rows)
                self._send(query, parameters)
        self._send_rows(rows)

    def _send_rows(self, rows: dict[Query, list[dict[str, Any]]]) -> None:
        """Insert rows by few statements, which may trade places: no table refers to another."""
        for query, given in rows.items():
            whole = len(given) // ROWS * ROWS
            for start in range(0, whole, ROWS):
                bound = query.bind_rows("postgres", given[start : start + ROWS])
                self._send_bound(bound, wanted=False)
            for parameters in given[whole:]:
                self._send(query, parameters)
        rows.clear()

    def _say(self, text: str, *, wanted: bool = False) -> None:
        self._send_bound((text, ()), wanted=wanted)

    def _send(self, query: Query, parameters: dict[str, Any], *, wanted: bool = False) -> None:
        self._send_bound(query.bind("postgres", parameters), wanted=wanted)

    def _send_bound(self, bound: Bound, *, wanted: bool) -> None:
        try:
            self._pipeline.send(*bound, wanted=wanted)
        except psycopg.Error as error:
            raise self._meaning(error) from error

    def _exchange(self, after: Bound | None = None) -> list[PGresult]:
        try:
            results = self._pipeline.exchange(after)
        except psycopg.Error as error:
            meant = self._meaning(error)
            if self._unproven:
                self._lost = meant
            if (error.sqlstate or "").startswith(("42", "0A")):
                self._driver.refuse_upgraded()  # then the statement does not fit the schema
            raise meant from error
        self._unproven = False
        return results
