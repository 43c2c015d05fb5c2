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
    from dibs.storage.folder import FileLiveness
    from dibs.storage.queries import Query
    from dibs.storage.turns import Crowds
    from dibs.storage.waiting import Cancel

    Row = dict[str, Any]
    Rings = dict[str, Any]
    """Topics whose bells are rung, each with what it brings to who waits in this process."""
    Ahead = Callable[[], Sequence[tuple[Query, dict[str, Any]]]] | None
    """Says which queries of the space a transaction is about to make; only a server that is far
    away wants to know."""

    class Connection(Protocol):
        """One connection, used by one transaction at a time."""

        crowd: bool
        """Whether the write that begins next is one of many of its kind."""

        def begin_write(self, space: int, session: int, ahead: Ahead) -> tuple[int, int, Row]:
            """Take the space's turn: store time, wall time, and the row of `enter`.

            The row's seq is the one this write has taken. What is asked ahead may travel with it.
            """

        def begin_group(self) -> None:
            """Begin a transaction that several writes share, each between `save` and `keep`."""

        def enter(self, space: int, session: int, ahead: Ahead) -> tuple[int, int, Row]:
            """What `begin_write` returns, for the next write of a group."""

        def save(self) -> None:
            """Mark where a write of the group begins."""

        def keep(self) -> None:
            """The write since the mark becomes part of the group."""

        def undo(self) -> None:
            """Undo what was written since the mark, and nothing else."""

        def begin_read(self, ahead: Ahead) -> tuple[int, int]:
            """Begin a transaction that sees one state throughout: store time, wall time."""

        def begin_setup(self) -> None:
            """Begin a transaction that no other set-up can run beside."""

        def version(self) -> int:
            """The number of the last migration applied, 0 for none."""

        def migrate(self, version: int, text: str) -> None:
            """Apply one migration and note its number."""

        def ahead(self, ahead: Ahead) -> None:
            """Ask now what is going to be asked; where a question costs no trip, do nothing."""

        def rows(self, query: Query, parameters: dict[str, Any]) -> list[Row]:
            """Run a query and return its rows."""

        def run(self, query: Query, parameters: dict[str, Any]) -> None:
            """Run a statement whose rows nobody needs; it may travel with the next one."""

        def commit(self, rings: Rings, seq: int) -> None:
            """Make it durable, then ring those bells."""

        def rollback(self) -> None:
            """Undo everything; never raises, so that it cannot hide the first error."""

    class Listener(Protocol):
        """Somebody who waits for bells."""

        @property
        def patience_s(self) -> float:
            """How long to sleep at most before a look without a bell."""

        @property
        def leads(self) -> bool:
            """Whether it looks for all who stand in the same line, when something is due."""

        def wait(self, seconds: float) -> bool:
            """Sleep until a bell rings, the wait is cancelled, or the time is over."""

        @property
        def given(self) -> Any:
            """What it was brought with the bell, if that was a moment ago."""

        def close(self) -> None: ...

    class Driver(Protocol):
        address: str
        """Where the store is, as a person may be shown it."""
        boot: str
        """The boot in which sessions live; empty where heartbeats decide alone."""
        clock: Clock
        version: int
        """The schema that whoever has opened it knows."""
        over: bool
        """Whether the database's file is larger than `size_limit`."""
        size_limit: int
        one_key: bool
        """Whether all spaces of the database have the same key."""
        used: Query
        """Asks for the bytes that are in use."""
        renew: Callable[[Any], None]
        """Called with a connection to a server whose history is not the one the space knows."""

        @property
        def liveness(self) -> FileLiveness | None:
            """None where processes cannot see each other: heartbeats decide alone."""

        @property
        def grouped(self) -> bool:
            """Whether this thread's writes join others, so that it must not sleep."""

        @property
        def turns(self) -> Crowds | None:
            """Where the threads of this process line up to write, if they do."""

        def key(self) -> bytes:
            """The space key, from where this driver keeps it outside the database."""

        def schema(self, text: str) -> str:
            """A migration as this database takes it."""

        def enter(self, space: Row, connection: Any, fresh: bool = False) -> dict[str, Any]:
            """Set the clock by the space's row; return the columns that have to change.

            If the space has lost some of its past, its seq is one of them, and all sessions end;
            `ends`, where it is given, says before which seq.
            fresh: the database had no tables yet
            """

        def trusts_tokens(self, space: Row, version: int) -> bool:
            """Whether tokens without a signature are of a release before there were any.

            Only once: who could put a row there later would have it signed.
            version: the schema that the database had
            """

        def settle(self, changed: bool = False) -> None:
            """Note that the store has been looked at and set up."""

        def take(self, since: float = 0) -> Any:
            """A `Connection` for one transaction.

            since: when the wait for its turn began, on the monotonic clock, if there was one
            """

        def give_back(self, connection: Any) -> None: ...

        def listen(self, topics: tuple[str, ...], cancel: Cancel | None) -> Listener:
            """Listen to bells, and to whoever may cancel the wait."""

        def listen_soon(self, topics: tuple[str, ...], cancel: Cancel | None) -> Listener | None:
            """Likewise, if nothing has to be made for it first."""

        def integrity(self) -> list[str]:
            """What is wrong with the database's files, as far as this machine can tell."""

        def at_risk(self) -> list[tuple[str, str]]:
            """What the server's settings put at risk, and what to do about each."""

        def log_bytes(self) -> int:
            """The size of the write-ahead log, as far as this machine keeps one."""

        def shorten_log(self, patience_s: float = ...) -> None:
            """Empty the log; refused if others have not ended what they read after so long."""

        def private_files(self) -> list[str]:
            """The files of the store on this machine that nobody else may read."""

        def backup(self, target: str) -> None:
            """Copy the store as of one moment, marked as a copy, with its key."""

        def close(self) -> None: ...


class Kept:
    """What a server looks after by itself."""

    def backup(self, target: str) -> None:
        raise InvalidError(
            "a store on PostgreSQL is backed up with the server",
            next="use pg_dump, and copy the key",
        )

    def integrity(self) -> list[str]:
        """The server looks after its own files."""
        return []

    def log_bytes(self) -> int:
        return 0

    def shorten_log(self, patience_s: float = 0) -> None:
        """The server looks after its own log."""

    def private_files(self) -> list[str]:
        return []

    def settle(self, changed: bool = False) -> None:
        """Nothing is noted: whose space it is, its key tells."""
