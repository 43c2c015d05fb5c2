"""What a database must offer to hold a dibs store.

A driver owns connections, the clock, liveness and wake-ups; it knows none of
the nouns. It turns the database's own errors into dibs errors, by code, in one place.

A *turn* is the space's write lock: `begin_write` takes it, and reads the end of the journal
and the clock *after* that, so that no decision is made with a time from before the wait.
"""

from __future__ import annotations

from dibs.errors import InvalidError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from dibs.storage.clock import Clock
    from dibs.storage.folder import FileLiveness, Own
    from dibs.storage.ledger import Ledger
    from dibs.storage.queries import Query
    from dibs.storage.turns import Crowds
    from dibs.storage.waiting import Cancel

    Row = dict[str, Any]
    Rings = dict[str, Any]
    """Topics whose bells are rung, each with what it brings to a waiter in this process."""
    Ahead = Callable[[], Sequence[tuple[Query, dict[str, Any]]]] | None
    """Says which queries of the space a transaction is about to make; only a remote server needs to
    know."""

    class Connection(Protocol):
        """One connection, used by one transaction at a time."""

        crowd: bool
        """Whether the write that begins next is one of many of its kind."""

        def begin_write(self, space: int, session: int, ahead: Ahead) -> tuple[int, int, Row]:
            """Take the space's turn: store time, wall time, and the row of `enter`.

            The row's seq is the one this write has taken. Queries given ahead may be sent with it.
            """

        def begin_group(self) -> None:
            """Begin a transaction that several writes share, each between `save` and `keep`."""

        def enter(self, space: int, session: int, ahead: Ahead) -> tuple[int, int, Row]:
            """What `begin_write` returns, for the next write of a group."""

        def save(self) -> None:
            """Mark where a write of the group begins."""

        def keep(self) -> None:
            """Make the write since the mark part of the group."""

        def undo(self) -> None:
            """Undo what was written since the mark, and nothing else."""

        def begin_read(self, ahead: Ahead) -> tuple[int, int]:
            """Begin a transaction that sees one state throughout: store time, wall time."""

        def begin_setup(self) -> None:
            """Begin a transaction that excludes every other set-up."""

        def version(self) -> int:
            """The number of the last migration applied, 0 for none."""

        def migrate(self, steps: list[tuple[int, str]]) -> None:
            """Apply migrations, each with its number, and note the numbers."""

        def ahead(self, ahead: Ahead) -> None:
            """Send the next queries now; does nothing where a query needs no round trip."""

        def rows(self, query: Query, parameters: dict[str, Any]) -> list[Row]:
            """Run a query and return its rows."""

        def run(self, query: Query, parameters: dict[str, Any]) -> None:
            """Run a statement whose rows are not needed; it may be sent with the next one."""

        def commit(self, rings: Rings, seq: int) -> None:
            """Make the writes durable, then ring these bells."""

        def rollback(self) -> None:
            """Undo everything; never raises, so that it cannot hide the first error."""

    class Listener(Protocol):
        """Waits for bells."""

        @property
        def patience_s(self) -> float:
            """The maximum time to sleep before a look without a bell."""

        @property
        def leads(self) -> bool:
            """Whether it looks for all waiters in its line, when something is due."""

        def wait(self, seconds: float) -> bool:
            """Sleep until a bell rings, the wait is cancelled, or the time is up."""

        @property
        def given(self) -> Any:
            """What the bell brought, if that was a moment ago."""

        def close(self) -> None: ...

    class Driver(Protocol):
        address: str
        """Where the store is, in a form that may be shown."""
        boot: str
        """The boot in which sessions live; empty where only heartbeats decide."""
        clock: Clock
        database: str
        """Which database of which server it is; empty if no other has the same key."""
        ledger: Ledger
        """The key of the space's journal."""
        own: Own
        """The user's data folder."""
        version: int
        """The schema that this process knows."""
        over: bool
        """Whether the database's file is larger than `size_limit`."""
        size_limit: int
        one_key: bool
        """Whether all spaces of the database have the same key."""
        used: Query
        """The query for the number of bytes in use."""
        renew: Callable[[Any], None]
        """Called with a connection to a server whose history the space does not know."""

        @property
        def liveness(self) -> FileLiveness | None:
            """None where processes cannot see each other, so only heartbeats decide."""

        @property
        def grouped(self) -> bool:
            """Whether this thread's writes join others, so that it must not sleep."""

        @property
        def turns(self) -> Crowds | None:
            """The line in which threads of this process wait to write, if there is one."""

        def key(self) -> bytes:
            """The space key, from where this driver keeps it outside the database."""

        def schema(self, text: str) -> str:
            """A migration in the form this database needs."""

        def enter(self, space: Row, connection: Any, fresh: bool = False) -> dict[str, Any]:
            """Set the clock by the space's row; return the columns that must change.

            If the space was rolled back, its seq is one of them, and all sessions end; `ends`, if
            given, says before which seq.
            fresh: the database had no tables yet
            """

        def trusts_tokens(self, space: Row, version: int) -> bool:
            """Whether tokens without a signature are from a release that did not sign them.

            Only once: otherwise somebody could insert a row later and have it signed.
            version: the schema that the database had
            """

        def settle(self, changed: bool = False) -> None:
            """Record that the store has been checked and set up."""

        def take(self, since: float = 0, more_s: float = 0) -> Any:
            """A `Connection` for one transaction.

            since: when the wait for its turn began, on the monotonic clock, if there was one
            more_s: how much longer than usual it may take
            """

        def last_seq(self) -> int:
            """Where the journal ended, as far as is known without the database."""

        def give_back(self, connection: Any) -> None: ...

        def listen(self, topics: tuple[str, ...], cancel: Cancel | None) -> Listener:
            """Listen to bells, and to a cancellation of the wait."""

        def listen_soon(self, topics: tuple[str, ...], cancel: Cancel | None) -> Listener | None:
            """The same, if nothing must be created for it first."""

        def integrity(self) -> list[str]:
            """What is wrong with the database's files, as far as this machine can tell."""

        def at_risk(self) -> list[tuple[str, str]]:
            """What the server's settings put at risk, and what to do about each."""

        def log_bytes(self) -> int:
            """The size of the write-ahead log, as far as this machine keeps one."""

        def shorten_log(self, patience_s: float = ...) -> None:
            """Empty the log; refused if readers have not finished after this time."""

        def private_files(self) -> list[str]:
            """The files of the store on this machine that only its user may read."""

        def backup(self, target: str) -> None:
            """Copy the store as of one moment, marked as a copy, with its key."""

        def replace(self, source: str | None) -> None:
            """Put a backup in the place of the whole store, or nothing, in one transaction."""

        def close(self) -> None: ...


class Kept:
    """What a server does by itself."""

    def backup(self, target: str) -> None:
        raise InvalidError(
            "dibs does not back up a store on PostgreSQL", next="use pg_dump, and copy the key file"
        )

    def replace(self, source: str | None) -> None:
        raise InvalidError(
            "a store on PostgreSQL is restored or emptied with the server",
            next="use pg_restore; to begin with an empty space, name a new one with --space",
        )

    def integrity(self) -> list[str]:
        """The server checks its own files."""
        return []

    def log_bytes(self) -> int:
        return 0

    def shorten_log(self, patience_s: float = 0) -> None:
        """The server empties its own log."""

    def private_files(self) -> list[str]:
        return []

    def settle(self, changed: bool = False) -> None:
        """Nothing to record: the key shows who owns the space."""
