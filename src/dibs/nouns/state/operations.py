"""State: JSON values at `namespace/key`, each with a version.

Promised: a write that names the version it read succeeds only if nobody wrote in between.
Otherwise it is refused, and the refusal carries the current value, version, author and time.
Versions count every write of an entry, including deletions, and never restart: not after a
deletion, not after pruning. A plain `set` creates an entry but never overwrites one; to
overwrite, name the version you saw or use `force`.

An entry with a time to live disappears when that expires; its version is kept.
"""

from __future__ import annotations

from dibs.arguments import FLAG, JSON, NAME, NEWEST, NUMBER, TTL_MAX_S, Seconds, Text, milliseconds
from dibs.errors import ConflictError, InvalidError, NotFoundError, TooLargeError
from dibs.operation import EVERYBODY, operation, writes
from dibs.records import Entry, EntryExport, called
from dibs.space.scope import Noun, Scope
from dibs.storage.queries import Queries
from dibs.storage.store import Read, Write, from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.storage.driver import Row

STATE = Queries("state")
TTL = Seconds(0.001, TTL_MAX_S * 52)
"""How long an entry may live."""
ENTRY_FIELDS = {
    "namespace": NAME,
    "key": NAME,
    "value": JSON,
    "expected_version": NUMBER,
    "force": FLAG,
}
"""The fields of an entry that `work.complete` may write."""


class State(Noun):
    @operation(by=EVERYBODY, example="budget total")
    def get(self, namespace: str, key: str) -> Entry | None:
        """Get an entry, or nothing if there is none."""
        with self.scope.read() as tx:
            row = tx.row(STATE.get, namespace=namespace, key=key)
            return entry_record(row, tx.now) if row is not None and present(row, tx.now) else None

    @writes(
        ConflictError,
        by=EVERYBODY,
        events=("entry.set",),
        destructive=True,
        example="budget total 9000 --expected-version 3",
        kinds={"ttl_s": TTL},
    )
    def set(
        self,
        namespace: str,
        key: str,
        value: Any,
        *,
        expected_version: int | None = None,
        force: bool = False,
        ttl_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> Entry:
        """Set an entry: create it, replace the version you saw, or overwrite it.

        value: any JSON
        expected_version: the version you saw; 0 if the entry must not exist
        force: overwrite any version
        ttl_s: how long until the entry expires
        """
        return put(self.tx, self.scope, namespace, key, value, expected_version, force, ttl_s)

    @writes(
        ConflictError,
        NotFoundError,
        by=EVERYBODY,
        events=("entry.deleted",),
        destructive=True,
        example="budget total",
    )
    def delete(
        self,
        namespace: str,
        key: str,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Entry:
        """Delete an entry; its version keeps counting.

        expected_version: refuse unless it is at this version
        """
        tx = self.tx
        row = tx.row(STATE.get, namespace=namespace, key=key)
        if row is None or not present(row, tx.now):
            raise NotFoundError(
                f"there is no entry {called(f'{namespace}/{key}')}", next="list the namespace"
            )
        if expected_version not in (None, row["version"]):
            raise conflict(tx, namespace, key, row, expected_version)
        return write_version(tx, self.scope, namespace, key, row["version"] + 1, None, None)

    @writes(by=EVERYBODY, events=("entry.deleted",), destructive=True, example="budget")
    def clear(self, namespace: str, *, idempotency_key: str | None = None) -> int:
        """Delete all entries of a namespace, and return how many there were."""
        tx = self.tx
        rows = tx.rows(STATE.list, namespace=namespace, after="", now=tx.now, limit=NEWEST)
        for row in rows:
            version = row["version"] + 1
            write_version(tx, self.scope, namespace, row["key"], version, None, None)
        if not rows and idempotency_key is None:
            tx.discard()
        return len(rows)

    @operation(by=EVERYBODY, example="budget", kinds={"after": Text()})
    def list(self, namespace: str, *, after: str = "", limit: int = 1000) -> tuple[Entry, ...]:
        """List the entries of a namespace by key.

        after: only keys after this one
        """
        with self.scope.read() as tx:
            asked = {"namespace": namespace, "after": after, "now": tx.now, "limit": limit}
            rows = tx.pages(STATE.list, "after", "key", **asked)
            return tuple(entry_record(row, tx.now) for row in rows)

    @operation(by=EVERYBODY)
    def namespaces(self) -> dict[str, int]:
        """List the namespaces that have entries, and how many each has."""
        with self.scope.read() as tx:
            rows = tx.rows(STATE.namespaces, now=tx.now)
            return {row["namespace"]: row["number"] for row in rows}

    @operation(by=EVERYBODY, example="budget total")
    def history(
        self, namespace: str, key: str, *, before: int = NEWEST, limit: int = 100
    ) -> tuple[Entry, ...]:
        """Show the versions of an entry, including deletions, the newest first.

        before: only versions below this one
        """
        with self.scope.read() as tx:
            asked = {"namespace": namespace, "key": key, "before": before, "limit": limit}
            rows = tx.pages(STATE.history, "before", "version", **asked)
            return tuple(entry_record(row, tx.now) for row in rows)

    @operation(by=EVERYBODY, example="budget --json")
    def export(self, namespace: str) -> EntryExport:
        """Export a namespace: its entries by key, and the history of each, newest first."""
        with self.scope.read() as tx:
            room, size = tx.store.page_bytes, tx.rows(STATE.size, namespace=namespace)[0]["size"]
            if room is not None and size > room:
                raise TooLargeError(
                    f"{namespace} has {size:,} bytes with its history; an answer can hold {room:,}",
                    next="list the entries, or export on the machine that has the store",
                )
            entries = tx.rows(STATE.list, namespace=namespace, after="", now=tx.now, limit=NEWEST)
            history = tx.rows(STATE.whole_history, namespace=namespace)
            return EntryExport(
                namespace=namespace,
                entries=tuple(entry_record(row, tx.now) for row in entries),
                history=tuple(entry_record(row, tx.now) for row in history),
            )

    @operation(by=EVERYBODY, example="budget total --wait 60s")
    def watch(
        self, namespace: str, key: str, *, after_version: int | None = None, wait_s: float = 60
    ) -> Entry | None:
        """Wait until an entry changes; return its new value, or nothing if it did not change.

        after_version: wait for a version later than this; by default, later than the current one
        wait_s: the maximum time to wait
        """
        was_there = True

        def look() -> tuple[Entry | None, int | None]:
            nonlocal after_version, was_there
            with self.scope.read() as tx:
                row = tx.row(STATE.get, namespace=namespace, key=key)
                there = row is not None and present(row, tx.now)
                version = 0 if row is None else row["version"]
                if after_version is None:
                    after_version, was_there = version, there
                if row is None:
                    return None, None
                lapsed = was_there and not there and row["value"] is not None
                if version > after_version or (version == after_version and lapsed):
                    return entry_record(row, tx.now), None
                due = row["deadline"]
                return None, None if due is None or not there else due - tx.now

        if after_version is None:
            look()  # "current" means now, not when a connection to listen on was made
        return self.scope.store.wait(look, (f"entry:{namespace}/{key}",), wait_s)


def put(
    tx: Write,
    scope: Scope,
    namespace: str,
    key: str,
    value: str | None,
    expected_version: int | None,
    force: bool,
    ttl_s: float | None,
) -> Entry:
    """Write an entry in the caller's transaction, if the version allows it.

    value: the JSON as text
    """
    version = next_version(tx, namespace, key, expected_version, force)
    deadline = None if ttl_s is None else tx.now + milliseconds(ttl_s)
    return write_version(tx, scope, namespace, key, version, value or "null", deadline)


def next_version(
    tx: Read, namespace: str, key: str, expected_version: int | None, force: bool
) -> int:
    """The version that a write of an entry would have, if it is allowed."""
    if expected_version is not None and force:
        raise InvalidError("expected_version and force cannot be combined", next="drop one")
    row = tx.row(STATE.get, namespace=namespace, key=key)
    version = row["version"] if row is not None and present(row, tx.now) else 0
    if not force and version != (expected_version or 0):
        raise conflict(tx, namespace, key, row if version else None, expected_version)
    return 1 if row is None else row["version"] + 1


def write_version(
    tx: Write,
    scope: Scope,
    namespace: str,
    key: str,
    version: int,
    value: str | None,
    deadline: int | None,
) -> Entry:
    # A lost original may have used the next versions, even of keys that this copy never had.
    version = max(version, tx.store.restored_seq + 1)
    row: Row = {
        "namespace": namespace,
        "key": key,
        "version": version,
        "value": value,
        "author": scope.caller.agent,
        "session": scope.caller.session,
        "set_at": tx.wall,
        "deadline": deadline,
    }
    tx.run(STATE.put, row)
    tx.run(STATE.put_version, row)
    verb = "deleted" if value is None else "set"
    grows = value is not None
    tx.event(f"entry.{verb}", f"{namespace}/{key}", {"version": version}, grows=grows)
    return entry_record(row, tx.now)


def conflict(
    tx: Read, namespace: str, key: str, row: Row | None, expected: int | None
) -> ConflictError:
    current = None if row is None else entry_record(row, tx.now)
    name = called(f"{namespace}/{key}")
    if current is None:
        return ConflictError(
            f"{name} does not exist, but you expected version {expected}",
            next="read it again; to create it, expect version 0",
            current=None,
        )
    message = f"{name} is at version {current.version}, set by {called(current.author)}"
    if expected is not None:
        message += f", but you expected version {expected}"
    return ConflictError(
        message,
        next=f"read the current value, then set it with expected_version={current.version} "
        f"(--expected-version {current.version})",
        current=current,
    )


def put_fields(tx: Write, scope: Scope, entry: dict[str, Any]) -> Callable[[], Entry]:
    """A function that writes the entry described by these fields; a refusal if not allowed."""
    unknown = entry.keys() - ENTRY_FIELDS.keys()
    if unknown or not {"namespace", "key", "value"} <= entry.keys():
        raise InvalidError(
            "entry needs namespace, key and value",
            next="only expected_version and force may be added",
        )
    given = {name: kind.check(name, entry[name]) for name, kind in ENTRY_FIELDS.items()
             if entry.get(name) is not None}  # fmt: skip
    namespace, key, value = given["namespace"], given["key"], given.get("value") or "null"
    expected, force = given.get("expected_version"), given.get("force", False)
    version = next_version(tx, namespace, key, expected, force)
    return lambda: write_version(tx, scope, namespace, key, version, value, None)


def present(row: Row, now: int) -> bool:
    return row["value"] is not None and (row["deadline"] is None or row["deadline"] > now)


def entry_record(row: Row, now: int) -> Entry:
    return Entry.of(
        row,
        value=from_text(row["value"]),
        deleted=not present(row, now),
        expires_in_ms=None if row["deadline"] is None else max(0, row["deadline"] - now),
    )
