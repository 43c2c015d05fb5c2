"""A space as it was at one moment, in the memory of this process, to be read like a store.

It has the tables of every store, filled with the rows of that moment, and a clock that stands still
there: the queries that list leases, tasks, entries and agents return what they returned then.
Nothing can be written to it.

Only the journal says who was alive: a session counts as alive until the journal says that it ended.
A process that had died unnoticed is still there; so is one that had stopped beating, since beats
leave no trace in the journal.
"""

from __future__ import annotations

import apsw

from dibs.storage.images import TABLES
from dibs.storage.queries import Queries, migrations
from dibs.storage.sqlite_file import as_sqlite
from dibs.storage.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from dibs.storage.driver import Ahead, Row
    from dibs.storage.images import Image
    from dibs.storage.queries import Query

MEMORY = Queries("memory")
FILLED = {
    "agent": MEMORY.agent,
    "session": MEMORY.session,
    "lease": MEMORY.lease,
    "ticket": MEMORY.ticket,
    "task": MEMORY.task,
    "entry": MEMORY.entry,
}
"""The tables that are filled: those that the lists of a moment are read from."""
SPACE = 1
_EMPTY: list[bytes] = []
"""A database with all tables, kept after its first use: the migrations take long."""


class Past(Store):
    """One moment of a space.

    It has what a read needs of a store; there is nothing to write to, to wait for or to close
    except its memory.
    """

    def __init__(
        self,
        tables: Mapping[str, Iterable[Image]],
        now: int,
        wall: int,
        page_bytes: int | None = None,
    ) -> None:
        """
        tables: the rows of each table, from the journal
        now, wall: the store time and the wall clock of the moment
        page_bytes: how many bytes a list may have
        """
        self.space = SPACE
        self.page_bytes = page_bytes
        self.driver: Any = Memory(now, wall)
        self.driver.fill(tables)

    def alive(self, session: Row, now: int, known_to_run: bool = False) -> bool:
        return session["ended_at"] is None

    def lock_held(self, number: int) -> bool:
        return True

    def close(self) -> None:
        self.driver.db.close()


class Memory:
    """A database in memory, and the one connection that every read uses."""

    def __init__(self, now: int, wall: int) -> None:
        self._time = now, wall
        self.db = apsw.Connection(":memory:")
        if not _EMPTY:
            for _, _, text in migrations():
                self.db.execute(as_sqlite(text))
            _EMPTY.append(self.db.serialize("main"))
        self.db.deserialize("main", _EMPTY[0])

    def fill(self, tables: Mapping[str, Iterable[Image]]) -> None:
        with self.db:
            for name, query in FILLED.items():
                columns = TABLES[name].columns
                text, _ = query.bind("sqlite", dict.fromkeys(("space", *columns)))
                # A row written by an older release has fewer columns.
                missing = [None] * len(columns)
                self.db.executemany(
                    text,
                    ((SPACE, *image, *missing[len(image) :]) for image in tables.get(name, ())),
                )

    def take(self, *_: object) -> Memory:
        return self

    def give_back(self, connection: Memory) -> None:
        """Does nothing: there is nobody to keep it for."""

    def begin_read(self, ahead: Ahead) -> tuple[int, int]:
        return self._time

    def ahead(self, ahead: Ahead) -> None:
        """Does nothing: there are no round trips."""

    def rows(self, query: Query, parameters: dict[str, Any]) -> list[Row]:
        cursor = self.db.execute(*query.bind("sqlite", parameters))
        return [dict(zip(query.columns or query.named(cursor), row, strict=True)) for row in cursor]

    def rollback(self) -> None:
        """Does nothing: what is in memory does not change."""
