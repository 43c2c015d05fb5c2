"""One connection to a PostgreSQL server, used by one transaction at a time.

Statements are held back until an answer is needed. An error is translated into what it means for
the caller, and for the other connections to the same server.
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
"""How long before its deadline a transaction stops waiting for its turn."""
ROWS = 20
"""How many rows one statement inserts, so that it is the same each time."""
IDLE_MS = 10_000


class PostgresConnection:
    seat: Seat | None = None
    crowd = False
    sets_up = False
    """Whether it is in a transaction that excludes every other set-up."""

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
        """The settings to send at the beginning of each transaction."""
        self._open = False
        """Whether a transaction has been begun."""
        self._heard = True
        """Whether any process listens, as far as the transaction knows."""
        self._pipeline = Pipeline(talk, driver.pooled)
        self._later: list[tuple[Query, dict[str, Any]]] = []
        self._ahead: dict[Bound, list[Row]] = {}
        """The answers to queries sent ahead; valid until anything else is asked, or the tables that
        they were read from are written."""
        self._unproven = False
        """Whether a write of the group was kept before its statements were answered."""
        self._lost: DibsError | None = None
        """Why such a write failed after it was kept."""

    @property
    def usable(self) -> bool:
        return self._pipeline.usable

    def begin(self, end: float) -> None:
        """Start to use it for a transaction that should have ended by then."""
        self._pipeline.end = end

    def begins(self) -> bool:
        """Whether a transaction can begin; if not, the connection is gone."""
        try:
            self._begin("BEGIN READ ONLY")
            self.rows(POSTGRES.has_migration, {})
        except DisconnectedError:
            self.close()
            return False
        self.rollback()
        return True

    def begin_write(self, space: int, session: int, ahead: Ahead = None) -> tuple[int, int, Row]:
        asked = self._bound(ahead)  # first: if this fails, nothing has been sent
        self.begin_group()
        return self._enter(space, session, asked)

    def begin_group(self) -> None:
        self._begin("BEGIN ISOLATION LEVEL READ COMMITTED")
        self._bound_turn()

    def _bound_turn(self) -> None:
        """Limit the wait for a turn, so that a kept turn is not taken for a silent server."""
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
            # Only one of a crowd at a time, across all machines, waits in the server's line. In a
            # packet of its own: together, the two could take longer than the server may be silent.
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
                f"{self._driver.address} was rolled back while it was open",
                next="join again, then reclaim what you still need",
            )
        row["seq"] += 1
        taken = named(POSTGRES.taken, clock)[0]
        self._heard = taken["heard"]
        if taken["replicated"] != self._driver.replicated:
            self._driver.behind = True  # the space must know how durable the server's writes are
        return *self._times(taken), row

    def take_turn(self, space: int) -> None:
        """Wait until nobody else writes, before anything else is asked."""
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
        """The queries sent ahead, each bound to the space."""
        if ahead is None:
            return []
        space = {"space": self._driver.space}
        return [(query, query.bind("postgres", given | space)) for query, given in ahead()]

    def _ask(self, ahead: list[tuple[Query, Bound]]) -> list[PGresult]:
        """Send everything and the queries ahead; return the answers that were wanted before."""
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
        self._say(
            "SET LOCAL synchronous_commit = on"
        )  # what it records about the server must be durable
        self._send(POSTGRES.set_up_alone, {"lock": SETUP_LOCK}, wanted=True)
        self._send(POSTGRES.create_schema, {})
        # Not in the same packet: statements are prepared only once the schema exists.
        (alone,) = self._exchange()
        pid = named(POSTGRES.set_up_alone, alone)[0]["pid"]
        # Creating an index on a large table may take long.
        self._pipeline.works = lambda: self._works(pid)
        self._send(POSTGRES.create_migration, {})
        self._exchange()

    def _works(self, pid: int) -> bool:
        """Whether the server still works on a statement of that connection."""
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

    def migrate(self, steps: list[tuple[int, str]]) -> None:
        for version, text in steps:
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
            # The savepoint that the server knows is that of the previous write, which was kept.
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
        # A bell with a number means a grant to that waiter: it is not delayed.
        at_once = heard and (self._driver.rings_elsewhere(rings) or bell.at_once())
        self._pipeline.warned = False
        (ended,) = self._exchange(ringing([notice(channel, rings)]) if at_once else None)
        self._over()
        if heard and not at_once:
            bell.later(channel, rings)
        if self._pipeline.warned:
            # Cancelled while it waited for a standby, a commit is a success to the server.
            raise disconnected("the commit did not reach a standby of the server", "unreplicated")
        # After an error that was caught, a commit undoes everything without an error.
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
                # It may fail, and then a rollback in the same packet would not run.
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
        """The dibs error for one of PostgreSQL's; some mean that the connection is unusable."""
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
        """Insert rows with few statements, in any order: no table refers to another."""
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
                self._driver.refuse_upgraded()  # a statement may fail because the schema is newer
            raise meant from error
        self._unproven = False
        return results
