"""The base of the chain: the rows as they were at `base_seq`.

What is cut off the journal is folded into it, so the rest of the journal still leads to the
present rows. The chain of a space also begins with it: with what was there before the chain.
"""

from __future__ import annotations

import os

from dibs.records import to_text
from dibs.storage.images import TABLES, Fold, image_of, touched
from dibs.storage.ledger import SUM
from dibs.storage.queries import Queries
from dibs.storage.store import SPACE, from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from dibs.storage.driver import Connection, Row
    from dibs.storage.images import Change, Image, Key, Table
    from dibs.storage.ledger import Ledger
    from dibs.storage.queries import Query
    from dibs.storage.store import Read, Write

    Ask = Callable[..., list[Row]]

LEDGER = Queries("ledger")
EVERY = {
    "lease": LEDGER.every_lease,
    "ticket": LEDGER.every_ticket,
    "task": LEDGER.every_task,
    "dependency": LEDGER.every_dependency,
    "lane": LEDGER.every_lane,
    "aside": LEDGER.every_aside,
    "session": LEDGER.every_session,
    "agent": LEDGER.every_agent,
    "entry": LEDGER.every_entry,
    "entry_version": LEDGER.every_entry_version,
    "message": LEDGER.every_message,
    "cursor": LEDGER.every_cursor,
    "acknowledgement": LEDGER.every_acknowledgement,
    "answer": LEDGER.every_answer,
    "outcome": LEDGER.every_outcome,
    "token": LEDGER.every_token,
}
"""The queries for the rows of each table, a page at a time."""
SIGN = {"session": LEDGER.sign_session, "ticket": LEDGER.sign_ticket}
PAGE = 500
LOWEST = -(2**63)
KEYS = 200
"""How many rows one statement reads or removes."""
NUMBERS = ("id", "number", "session", "version", "message")
"""The columns of keys that have numbers, except for the id of a task, which its author chose."""


def every(ask: Ask, table: Table) -> Iterator[Row]:
    """All rows of a table, in the order of its key, a page at a time."""
    query = EVERY[table.name]
    numbers = () if table.name == "task" else NUMBERS
    place: Row = {column: LOWEST if column in numbers else "" for column in table.key}
    begun = False
    while True:
        rows = ask(query, limit=PAGE, **place)
        following = {column: rows[-1][column] for column in table.key} if rows else {}
        for row in rows:
            if not begun or any(row[column] != place[column] for column in table.key):
                yield row
        if len(rows) < PAGE:
            return
        begun, place = True, following


def begin(connection: Connection, ledger: Ledger, space: int) -> str:
    """Begin the chain of a space with everything that is there; return the chain's name."""

    def ask(query: Query, **values: Any) -> list[Row]:
        return connection.rows(query, values | {"space": space})

    head = ask(LEDGER.head)[0]
    entered = ask(SPACE.enter, session=0)[0]
    total = add(connection.run, ledger, space, "space", TABLES["space"], head)
    for table in TABLES.values():
        for row in every(ask, table) if table.name != "space" else ():
            total += add(connection.run, ledger, space, table.name, table, row)
            if table.name in SIGN:
                row["signature"] = getattr(ledger, table.name)(row)
                connection.run(SIGN[table.name], row | {"space": space})
    head |= {"base_seq": entered["seq"], "base_sum": f"{total % SUM:064x}", "head": ledger.begin()}
    head["chain"] = os.urandom(8).hex()
    connection.run(SPACE.based, head | {"space": space, "signature": ledger.space(head)})
    return str(head["chain"])


def add(run: Any, ledger: Ledger, space: int, noun: str, table: Table, row: Row) -> int:
    image = image_of(table, row, ledger.digest)
    stored = base_row(ledger, noun, tuple(image[: table.width]), image)
    run(LEDGER.add_base, stored | {"space": space})
    return int(stored["tag"], 16)


def base_row(ledger: Ledger, noun: str, key: Key, image: Image) -> Row:
    texts = to_text(list(key)), to_text(image[len(key) :])
    return {"noun": noun, "key": texts[0], "image": texts[1], "tag": ledger.tag(noun, *texts)}


def absorb(tx: Write, ledger: Ledger, after: int, upto: int) -> str | None:
    """Fold the changes of the events up to one, which will be cut off, into the base.

    Returns the hash of the last of them, which the space's row stands for from now on; None if
    the base is already later than that.
    """
    head = tx.rows(LEDGER.head)[0]
    after = max(after, head["base_seq"])
    if upto <= after:
        return None
    changes: list[Change] = []
    for row in tx.rows(LEDGER.folded, after=after, upto=upto):
        changes += from_text(row["changes"])[1:]
    fold, before = Fold(), {}
    for noun, keys in wanted(changes).items():
        for row in stored(tx, noun, keys):
            key, image = image_in(row)
            before[noun, key] = row
            fold.tables[noun][key] = image
    for change in changes:
        fold.apply(change)
    total = int(head["base_sum"], 16)
    gone: dict[str, list[str]] = {}
    for (noun, key), row in before.items():
        now = fold.tables[noun].get(key)
        if now is not None and to_text(now[len(key) :]) == row["image"]:
            del fold.tables[noun][key]
            continue
        gone.setdefault(noun, []).append(row["key"])
        total -= int(row["tag"], 16)
    for noun, texts in gone.items():
        for start in range(0, len(texts), KEYS):
            tx.run(LEDGER.drop_base, noun=noun, keys=texts[start : start + KEYS])
    for noun, images in fold.tables.items():
        for key, image in images.items():
            row = base_row(ledger, noun, key, image)
            total += int(row["tag"], 16)
            tx.run(LEDGER.add_base, row)
    link = tx.row(LEDGER.link, seq=upto)
    cut: str = head["head"] if link is None else link["hash"]
    tx.based(base_seq=upto, base_sum=f"{total % SUM:064x}", head=cut)
    return cut


def wanted(changes: list[Change]) -> dict[str, set[Key] | None]:
    """Which rows these change, by table; None if all rows are needed."""
    found: dict[str, set[Key] | None] = {}
    for noun, key in touched(changes):
        keys = found.setdefault(noun, set())
        if key is None:
            found[noun] = None
        elif keys is not None:
            keys.add(key)
    return found


def stored(tx: Read, noun: str, keys: set[Key] | None) -> Iterator[Row]:
    """Rows of the base."""
    if keys is None:
        yield from tx.rows(LEDGER.based_of, noun=noun)
        return
    texts = [to_text(list(key)) for key in keys]
    for start in range(0, len(texts), KEYS):
        yield from tx.rows(LEDGER.some_based, noun=noun, keys=texts[start : start + KEYS])


def based(tx: Read) -> Iterator[Row]:
    """The rows of the base, as they are stored."""
    place: Row = {"noun": "", "key": ""}
    last: Row | None = None
    while True:
        rows = tx.rows(LEDGER.based, limit=PAGE, **place)
        yield from (row for row in rows if row != last)
        if len(rows) < PAGE:
            return
        last = rows[-1]
        place = {"noun": last["noun"], "key": last["key"]}


def image_in(row: Row) -> tuple[Key, Image]:
    """A row of the base as the key of a row, and the row."""
    key = from_text(row["key"])
    return tuple(key), [*key, *from_text(row["image"])]
