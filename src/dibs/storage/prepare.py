"""Setting up: the schema of this release, the space, and what a rolled-back space needs."""

from __future__ import annotations

import sys

from dibs.errors import UnfitError, UpgradedError
from dibs.storage.clock import COPY
from dibs.storage.images import inner, to_changes
from dibs.storage.queries import Queries, migrations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.storage.driver import Connection, Driver, Rings, Row
    from dibs.storage.images import Change
    from dibs.storage.ledger import Ledger
    from dibs.storage.queries import Query

SPACE = Queries("space")


def prepare(
    driver: Driver,
    connection: Connection,
    name: str,
    key_check: str,
    sign: Callable[[str, Row], str],
    ledger: Ledger,
) -> Row:
    """Bring the database to the schema of this release, and find or create the space in it.

    Everything happens under the driver's set-up lock in one transaction, so any number of
    processes may open a fresh or an old database at the same moment.
    """
    steps = migrations()
    newest = steps[-1][0]
    version = connection.version()
    if version > newest:
        raise UnfitError(
            f"a newer dibs made this store (schema {version}; this one knows up to {newest})",
            next="upgrade agent-dibs",
            schema=version,
            known=newest,
        )
    connection.begin_setup()
    try:
        before = connection.version()
        migrate(driver, connection, steps)
        found = connection.rows(SPACE.find, {"name": name})
        if not found:
            wall = driver.clock.wall()
            connection.run(SPACE.create, {"name": name, "wall": wall, "key_check": key_check})
            found = connection.rows(SPACE.find, {"name": name})
        space = found[0]
        if space["key_check"] != key_check:
            connection.rollback()  # the owner of its key continues with it
            return space
        if driver.trusts_tokens(space, before):
            every = {"space": space["id"], "every": int(driver.one_key)}
            for row in connection.rows(SPACE.unsigned_tokens, every):
                row["signature"] = sign(row["space_name"], row)
                connection.run(SPACE.sign_token, row)
        changes = driver.enter(space, connection, before == 0)
        rings: Rings = {}
        begun = None
        # Before anything else is changed: the chain begins with what was there.
        if not space["head"]:
            from dibs.storage.base import LEDGER, begin  # late, since it is done once

            # A space with a base also had a head: somebody removed it, and `verify` reports it.
            if not connection.rows(LEDGER.begun, {"space": space["id"]}):
                sign_revoked(connection, space, sign)
                begun = begin(connection, ledger, space["id"])
        if changes:
            book = Book(connection, ledger, space["id"], driver.clock.now())
            book.run(SPACE.reboot, changes | {"space": space["id"]})
            moved = changes["seq"] != space["seq"]
            ends = changes.get("ends", changes["seq"] if moved else 0)
            if ends:
                ended = {"space": space["id"], "copy": COPY, "before": ends}
                book.run(SPACE.outlive, ended)
                sign_revoked(connection, space, sign, book)
            if moved:
                rings = {"space": None}
                event = {
                    "space": space["id"],
                    "seq": changes["seq"],
                    "kind": "space.restored",
                    "agent": None,
                    "session": None,
                    "subject": space["name"],
                    "data": f'{{"from": {space["seq"]}, "kept": {"false" if ends else "true"}}}',
                    "at": driver.clock.wall(),
                }
                book.end(event)
            else:
                book.put_off()
            space |= changes
        connection.commit(rings, space["seq"])
    except BaseException:
        connection.rollback()
        raise
    if begun is not None:
        from dibs.storage.mark import Mark

        # Notes it, unless there was another before.
        Mark(driver.own, ledger, driver.database).differs(begun)
    return space


class Book:
    """Records what setting up changes for the journal, like a write, but without a store."""

    def __init__(self, connection: Connection, ledger: Ledger, space: int, now: int) -> None:
        self._connection = connection
        self._ledger = ledger
        self._space = space
        self._now = now
        self._changes: list[Change] = []

    def run(self, query: Query, parameters: Row) -> None:
        tell, returns, _ = self._ledger.tellers[query]
        back = None
        if returns:
            back = self._connection.rows(query, parameters)
        else:
            self._connection.run(query, parameters)
        self.note(tell(parameters, back))

    def note(self, changes: list[Change]) -> None:
        self._changes += changes

    def end(self, event: Row) -> None:
        """Add the event to the journal, with everything that was changed."""
        entered, pending = self._entered()
        event["changes"] = to_changes(self._now, pending, self._changes)
        event["hash"] = self._ledger.hash(entered["hash"], event)
        self._connection.run(SPACE.journal, event)
        if pending:
            self._store(entered, "")

    def put_off(self) -> None:
        """Let it wait for the next event."""
        entered, pending = self._entered()
        if pending or not entered["pending"]:
            parts = [part for part in (pending, inner(self._changes)) if part]
            self._store(entered, ",".join(parts))

    def _entered(self) -> tuple[Row, str]:
        """Where the chain ends, and what waits for its next event, if dibs wrote it."""
        values = {"space": self._space, "session": 0}
        entered = self._connection.rows(SPACE.enter, values)[0]
        entered |= self._connection.rows(SPACE.signed, values)[0]
        return entered, entered["pending"] if self._ledger.fits("space", entered) else ""

    def _store(self, entered: Row, pending: str) -> None:
        row = self._ledger.signed_space(entered, {"pending": pending})
        self._connection.run(SPACE.put_off, row | {"space": self._space})


def sign_revoked(
    connection: Connection, space: Row, sign: Callable[[str, Row], str], book: Book | None = None
) -> None:
    """Sign that tokens are revoked, if they were valid, or were revoked without a signature.

    Earlier releases did not sign it, and adopting a store revokes all tokens in the file.
    """
    for row in connection.rows(SPACE.revoked_tokens, {"space": space["id"]}):
        if row["signature"] == sign(space["name"], row | {"revoked_at": None}):
            row |= {"space": space["id"], "signature": sign(space["name"], row)}
            connection.run(SPACE.sign_token, row)
            if book is not None:
                book.note([["token=", row["id"], {"revoked_at": row["revoked_at"]}]])


def upgraded(version: int, known: int) -> UpgradedError:
    """Why a process whose store was upgraded while open must stop."""
    release = sys.modules["dibs"].__version__  # this layer may not import it
    return UpgradedError(
        f"a newer dibs upgraded this store to schema {version}; this process is dibs {release} "
        f"and knows schema {known}",
        next="restart this process with the newer dibs (a daemon: dibs serve; an MCP server: "
        "reconnect the client)",
        schema=version,
        known=known,
    )


def migrate(driver: Driver, connection: Connection, steps: list[tuple[int, str, str]]) -> None:
    """Apply the migrations that the database has not seen yet."""
    version = connection.version()
    new = [(number, driver.schema(text)) for number, _, text in steps if number > version]
    if new:
        connection.migrate(new)
