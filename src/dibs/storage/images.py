"""What a write changes, as the journal keeps it: derived from the statements themselves.

Every statement that writes goes through here, so no caller has to remember the journal, and a new
query cannot be forgotten: one whose changes cannot be derived is refused when it is first run.

- If a statement has `RETURNING`, each returned row is a change. The key must be among the returned
  columns, and so must every column that is set to neither a parameter nor a literal.
- Otherwise its changes follow from its parameters, without asking the database: it inserts a
  row, or it names the primary key of the rows that it updates or deletes.

A change is a list. Its first element is the table, with a sign for everything but a whole row:

    ["lease", values…]                a row is there now, with these values
    ["agent?", values…]               the same, unless one with this key was there
    ["task=", key…, {columns}]        some columns of a row are different now
    ["task=", key…, {columns}, {if}]  the same, if other columns have these values
    ["lease-", key…]                  a row is gone
    ["ticket-", {columns}]            all rows with these values are gone

The values of a row are in the order of `TABLES`. Columns are only ever added at the end, so what an
older release wrote can still be read. A row of a *digested* table is its key and a digest: its
content is long, never changes, and is not needed to rebuild an earlier moment.

`Fold` applies changes one after the other; the result is what the tables hold.
"""

from __future__ import annotations

from _operator import itemgetter

from dibs.records import fields_of, to_long_text
from dibs.storage.queries import WRITING, picker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from dibs.storage.driver import Row
    from dibs.storage.queries import Query

    Change = list[Any]
    Key = tuple[Any, ...]
    Image = list[Any]
    Value = Callable[[Row, Any], Any]
    """The value of a column, from the parameters and from one row of a list of rows."""
    Teller = Callable[[Row, list[Row] | None], list[Change]]
    """The changes of a statement, from its parameters and the returned rows, if it has
    `RETURNING`."""

INLINE = 1_000
"""The maximum length of an entry's value that is kept in the journal itself."""
UNTOUCHED = object()


class Table:
    """How the rows of a table are written: the key first, then the other columns."""

    __slots__ = ("columns", "digested", "key", "name", "places", "volatile", "width")

    def __init__(
        self, name: str, key: str, others: str, *, volatile: str = "", digested: bool = False
    ) -> None:
        """
        volatile: columns that change without an event; their row has its own signature
        """
        self.name = name
        self.key = tuple(key.split())
        self.columns = (*self.key, *others.split())
        self.places = {column: place for place, column in enumerate(self.columns)}
        self.volatile = frozenset(volatile.split())
        self.digested = digested
        self.width = len(self.key)

    def row(self, image: Image) -> Row:
        """The row of an image; columns that are newer than the image are None."""
        return dict(zip(self.columns, [*image, *[None] * len(self.columns)], strict=False))

    def firm(self, image: Image) -> Image:
        """The part of an image that must be the same in the table."""
        if self.digested:
            return image
        volatile = self.volatile
        padded = [*image, *[None] * (len(self.columns) - len(image))]
        return [
            value
            for column, value in zip(self.columns, padded, strict=True)
            if column not in volatile
        ]


TABLES = {
    table.name: table
    for table in (
        Table(
            "lease",
            "base resource session",
            "kind mode inode agent epoch note task content_hash granted_at ttl_ms deadline "
            "checkout",
        ),
        Table(
            "ticket",
            "base resource number",
            "kind mode inode session agent note content_hash ttl_ms since_at deadline checkout "
            "here answer_key request",
            volatile="deadline",
        ),
        Table(
            "task",
            "id",
            "state lane priority number title kind tags needs payload result reason attempts "
            "max_attempts author added_at changed_at not_before due agent session epoch ttl_ms "
            "labels declared parent found_in with_children aside skips turn landing asked acked",
        ),
        Table("dependency", "task needs", ""),
        Table("lane", "id", "kind tags"),
        Table("aside", "id", "lane base resource"),
        Table(
            "session",
            "id",
            "agent label process_bound boot host pid status joined_at seen_at ttl_ms deadline "
            "ended_at ended_why process nonce tags",
            volatile="seen_at deadline",
        ),
        Table("agent", "name", "since_seq first_seen_at"),
        Table("entry", "namespace key", "version value author session set_at deadline"),
        Table(
            "entry_version",
            "namespace key version",
            "value author session set_at deadline",
            digested=True,
        ),
        Table(
            "message",
            "id",
            "kind sender session recipient channel thread reply_to body sent_at",
            digested=True,
        ),
        Table("cursor", "agent channel", "seq"),
        Table("acknowledgement", "message agent", "at"),
        Table("answer", "agent key", "operation request answer at", digested=True),
        Table(
            "outcome", "base resource", "kind outcome moved_to agent epoch seq released_at"
        ),
        Table(
            "token",
            "id",
            "name scope digest created_by created_at expires_at deadline revoked_at",
        ),
        Table(
            "space",
            "id",
            "name pruned_seq restored_seq boot time_namespace clock_offset key_check created_at "
            "history store_time wall_time repository",
            volatile="store_time wall_time",
        ),
    )
}  # fmt: skip
DERIVED = ("word", "event", "base")
"""The words follow from the messages. The journal and its base prove themselves."""
UNTOLD = frozenset(("signature", "base_seq", "base_sum", "head", "pending", "chain", "swept"))
"""Signatures follow from the rest of a row, and the columns of the chain are signed."""


class Statement:
    """A parsed statement that writes."""

    def __init__(self, query: Query, digest: Callable[[str, Image], str]) -> None:
        self.text = " ".join(query.text.split())
        self.verb, *words = self.text.split(" ", 3)
        self.table = TABLES[words[0 if self.verb == "UPDATE" else 1]]
        self.digest = digest
        body, _, returning = self.text.partition(" RETURNING ")
        self.returns = bool(returning)
        self.rest = body
        self.columns: dict[str, Value] = {}
        self.computed: set[str] = set()
        """The columns whose values only the database knows, unless it returns them."""
        self.given: dict[str, str] = {}
        """The parameter that a column must be equal to."""
        self.list: str | None = None
        """The parameter that has several keys or rows, if there is one."""

    def teller(self) -> Teller:
        told = {"INSERT": self._insert, "UPDATE": self._update, "DELETE": self._delete}
        return told[self.verb]()

    def refuse(self, why: str) -> TypeError:
        return TypeError(
            f"the changes of this statement cannot be derived, since {why}: {self.text}"
        )

    def _insert(self) -> Teller:
        table, digest = self.table, self.digest
        head, _, values = self.rest.partition(" VALUES ")
        if not values:
            raise self.refuse("its rows are not among its parameters")
        names = head[head.index("(") + 1 : -1].split(", ")
        end = closing(values)
        given = dict(zip(names, split(values[1:end], ", "), strict=True))
        conflict = values[end + 1 :]
        if "DO UPDATE" in conflict:
            set_again = {part.split(" = ")[0] for part in split(conflict.split(" SET ")[1], ", ")}
            if set(table.columns) - set(table.key) - set_again:
                raise self.refuse("a conflict leaves some columns as they were")
        name = f"{table.name}?" if "DO NOTHING" in conflict and not self.returns else table.name
        sources: list[str] = []
        constants: Row = {}  # under names that no parameter has
        for column in table.columns:
            text = given.get(column, "NULL")
            value = self._value(text)
            if value is None:
                raise self.refuse("a value is computed")
            if text[0] == ":":
                sources.append(text[1:])
            else:
                sources.append(f"{column} =")
                constants[sources[-1]] = (
                    value({}, None) if column in given else DEFAULTS.get(column)
                )
        pick = itemgetter(*sources)

        def tell(row: Row, back: list[Row] | None) -> list[Change]:
            if back is not None and not back:
                return []
            return [told(name, table, pick(constants | row if constants else row), digest)]

        return tell

    def _update(self) -> Teller:
        table, digest = self.table, self.digest
        head, _, where = self.rest.partition(" WHERE ")
        head, _, listed = head.partition(" FROM (VALUES :")
        if listed:
            self.list = listed.partition("...")[0]
        sets: dict[str, Value] = {}
        for part in split(head.partition(" SET ")[2], ", "):
            column, _, text = part.partition(" = ")
            if column in UNTOLD:
                continue
            value = self._value(text, column)
            if value is None:
                self.computed.add(column)
            else:
                sets[column] = value
        if sets.keys() | self.computed <= table.volatile:
            return lambda row, back: []  # a sign of life
        keys, guard = self._where(where)
        if self.returns:
            # The returned rows count, whatever the conditions were.
            sign = f"{table.name}="

            def told_back(row: Row, back: list[Row] | None) -> list[Change]:
                changes = []
                for one in back or ():
                    if table.digested:
                        changes.append(
                            told(table.name, table, [one[c] for c in table.columns], digest)
                        )
                        continue
                    patch = {column: value(row, None) for column, value in sets.items()}
                    patch |= {column: one[column] for column in self.computed}
                    patch = {c: value for c, value in patch.items() if value is not UNTOUCHED}
                    key = [one[c] if c in one else keys[c](row, None) for c in table.key]
                    changes.append([sign, *key, patch])
                return changes

            return told_back
        if table.digested or self.computed or keys.keys() != set(table.key):
            raise self.refuse("it does not name the rows, or computes a value")
        return self._patches(sets, keys, guard)

    def _patches(
        self, sets: dict[str, Value], keys: dict[str, Value], guard: dict[str, Value]
    ) -> Teller:
        table, name, many = self.table, f"{self.table.name}=", self.list

        def tell(row: Row, back: list[Row] | None) -> list[Change]:
            changes: list[Change] = []
            for one in row[many] if many is not None else (None,):
                patch = {column: value(row, one) for column, value in sets.items()}
                patch = {c: value for c, value in patch.items() if value is not UNTOUCHED}
                change = [name, *[keys[column](row, one) for column in table.key], patch]
                if guard:
                    change.append({column: value(row, one) for column, value in guard.items()})
                changes.append(change)
            return changes

        return tell

    def _delete(self) -> Teller:
        table, name = self.table, f"{self.table.name}-"
        _, _, where = self.rest.partition(" WHERE ")
        if self.returns:
            keys = self._where(where)[0]

            def told_back(row: Row, back: list[Row] | None) -> list[Change]:
                return [
                    [name, *[one[c] if c in one else keys[c](row, None) for c in table.key]]
                    for one in back or ()
                ]

            return told_back
        keys, others = self._where(where)
        if keys.keys() == set(table.key) and not others:
            many = self.list
            named = [self.given.get(column, "") for column in table.key]
            if many is None and all(named):
                pick = picker(named)
                return lambda row, _: [[name, *pick(row)]]

            def tell(row: Row, back: list[Row] | None) -> list[Change]:
                return [
                    [name, *[keys[column](row, one) for column in table.key]]
                    for one in (row[many] if many is not None else (None,))
                ]

            return tell
        if self.list is not None:
            raise self.refuse("it does not name the rows")
        alike = keys | others
        return lambda row, _: [
            [name, {column: value(row, None) for column, value in alike.items()}]
        ]

    def _where(self, text: str) -> tuple[dict[str, Value], dict[str, Value]]:
        """How the key is given, and the other conditions, as far as they can be derived."""
        keys: dict[str, Value] = {}
        guard: dict[str, Value] = {}
        untold = False
        for part in split(text, " AND "):
            column, _, given = part.partition(" = ")
            if column.startswith("COALESCE("):
                column = column[len("COALESCE(") :].partition(",")[0]
            value = self._value(given) if given else None
            if given.startswith(":"):
                self.given[column] = given[1:]
            name, _, listed = part.partition(" IN (:")
            if part.endswith(" IS NULL"):
                column, value = part.removesuffix(" IS NULL"), lambda row, one: None
            elif listed.endswith("...)"):
                column, self.list, value = name, listed[:-4], lambda row, one: one
            if (column, given) == ("space", ":space"):
                continue
            if " IS DISTINCT FROM :" in part:
                continue  # it only excludes rows that would not change
            if value is None or column not in self.table.places:
                untold = True
            elif column in self.table.key:
                keys[column] = value
            else:
                guard[column] = value
        if untold and not self.returns:
            raise self.refuse("its condition is more than equality")
        return keys, guard

    def _value(self, text: str, column: str = "") -> Value | None:
        """The value of an expression; None if only the database knows."""
        if text.startswith(":") and text[1:].replace("_", "").isalpha():
            name = text[1:]
            return lambda row, one: row[name]
        if text == "NULL":
            return lambda row, one: None
        if text.startswith("'") and text.endswith("'"):
            return lambda row, one: text[1:-1]
        if text.isdigit():
            return lambda row, one: int(text)
        if text.startswith("given.column"):
            place = int(text.removeprefix("given.column")) - 1
            return lambda row, one: one[place]
        if text.startswith("CAST(given.column"):
            return self._value(text[len("CAST(") :].partition(" ")[0])
        if text.startswith("COALESCE(") and text.endswith(f", {column})"):
            given = text[len("COALESCE(") : -len(f", {column})")]
            if given.startswith("CAST(:"):
                given = given[len("CAST(") :].partition(" ")[0]
            name = given[1:]
            return lambda row, one: UNTOUCHED if row[name] is None else row[name]
        return None


DEFAULTS = {"with_children": 0, "aside": 0, "skips": 0, "here": 0, "nonce": "", "history": ""}
"""The defaults other than NULL of columns that a statement does not name."""


ENTERED = ("session", "ticket")
"""The tables that every write reads when it begins (`space.enter_again`)."""


def teller(query: Query, digest: Callable[[str, Image], str]) -> tuple[Teller, bool, bool]:
    """The function that derives the changes of a query, and whether it needs the returned rows.

    Also whether the query changes a table that every write reads when it begins.
    """
    verb, *words = query.text.split(None, 3)
    if verb not in WRITING or words[0 if verb == "UPDATE" else 1] in DERIVED:
        return (lambda row, back: []), False, False
    statement = Statement(query, digest)
    return statement.teller(), statement.returns, statement.table.name in ENTERED


def told(name: str, table: Table, image: Image, digest: Callable[[str, Image], str]) -> Change:
    """A whole row."""
    if table.digested:
        return [name, *image[: table.width], digest(table.name, image)]
    if table.name == "entry":
        return shortened(name, image, digest)
    return [name, *image]


def shortened(name: str, image: Any, digest: Callable[[str, Image], str]) -> Change:
    """An entry; a long value is digested, since the entry's version has it."""
    value = image[3]
    if value is not None and len(value) > INLINE:
        image = [*image[:3], [digest("entry", [value])], *image[4:]]
    return [name, *image]


def image_of(table: Table, row: Row, digest: Callable[[str, Image], str]) -> Image:
    """What a row of the database must be, if its journal is right."""
    return told(table.name, table, [row[column] for column in table.columns], digest)[1:]


def is_firm(change: Change) -> bool:
    """Whether more than a sign of life was changed."""
    name = change[0]
    return name[-1] != "=" or not change[-1].keys() <= TABLES[name[:-1]].volatile


def inner(changes: list[Change]) -> str:
    """Changes as text, to be joined with others."""
    return to_json(changes)[1:-1]


def to_changes(now: int, before: str, changes: list[Change]) -> str:
    """What an event carries: the store time, what waited for it, and what its write changed."""
    if before:
        return f"[{','.join([part for part in (str(now), before, inner(changes)) if part])}]"
    return to_json([now, *changes])


def to_json(value: Any) -> str:
    """The same text as from `to_text`, by an encoder that is made once."""
    if not _WRITERS:
        try:
            from _json import encode_basestring, make_encoder
        except ImportError:  # another Python has none
            return to_long_text(value)
        _WRITERS.append(
            make_encoder(None, fields_of, encode_basestring, None, ":", ",", True, False, True)
        )
    return "".join(_WRITERS[0](value, 0))


_WRITERS: list[Any] = []


class Fold:
    """The rows that changes lead to."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Key, Image]] = {name: {} for name in TABLES}

    def apply(self, change: Change) -> None:
        name = change[0]
        table = TABLES.get(name)
        if table is not None:
            self.tables[name][tuple(change[1 : table.width + 1])] = change[1:]
            return
        sign, table = name[-1], TABLES[name[:-1]]
        rows, key = self.tables[table.name], tuple(change[1 : table.width + 1])
        if sign == "-":
            if isinstance(change[1], dict):
                for gone in self.alike(table, change[1]):
                    del rows[gone]
            else:
                rows.pop(key, None)
        elif sign == "?":
            rows.setdefault(key, change[1:])
        elif (image := rows.get(key)) is not None:
            patch, *guard = change[table.width + 1 :]
            old = table.row(image)
            if not guard or all(old[column] == value for column, value in guard[0].items()):
                new = old | patch
                rows[key] = [new[column] for column in table.columns]

    def alike(self, table: Table, values: Row) -> list[Key]:
        places = [(table.places[column], value) for column, value in values.items()]
        return [
            key
            for key, image in self.tables[table.name].items()
            if all(image[place] == value for place, value in places)
        ]

    def apply_all(self, changes: list[Any]) -> int:
        """Apply what an event carries; return the store time of its write."""
        now, *each = changes
        for change in each:
            self.apply(change)
        return int(now)


def touched(changes: list[Change]) -> Iterator[tuple[str, Key | None]]:
    """The table and key of each change; no key if all rows of the table are needed."""
    for change in changes:
        name = change[0].rstrip("?=-")
        if isinstance(change[1], dict):
            yield name, None
        else:
            yield name, tuple(change[1 : TABLES[name].width + 1])


def closing(text: str) -> int:
    """Where the bracket that the text begins with is closed."""
    depth = 0
    for place, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if not depth:
            return place
    raise ValueError(text)


def split(text: str, between: str) -> list[str]:
    """The parts of a list, split outside of brackets."""
    parts, depth = [""], 0
    for piece in text.split(between):
        parts[-1] += (between if depth else "") + piece
        depth = parts[-1].count("(") - parts[-1].count(")")
        if not depth:
            parts.append("")
    return [part for part in parts if part]
