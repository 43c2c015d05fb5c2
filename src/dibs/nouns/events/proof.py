"""The proof: is the chain intact, and are the rows those that it leads to?

It begins with the base, walks the events, and folds the changes they carry. Then each table must
hold exactly the resulting rows. What the journal does not record, such as signs of life, is signed
in its row.

A finding is one row: its table, what it is about, and what happened to it. Where the chain is
broken, the changes of the lost events are unknown. From there on, only rows that a later event has
written completely are compared, so the other rows are not reported for what is missing.
"""

from __future__ import annotations

import time

from dibs import errors
from dibs.errors import BusyError, CorruptError
from dibs.records import Mismatch, called, folder
from dibs.storage.base import LEDGER, LOWEST, base_row, based, every, image_in
from dibs.storage.images import TABLES, Fold, image_of, touched
from dibs.storage.ledger import SUM
from dibs.storage.mark import Mark
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.images import Image, Key, Table
    from dibs.storage.store import Read

    Where = tuple[str, Key]
    Tell = Callable[[str], None]

PAGE = 500
TELL_S = 2.0
PATIENCE_S = 3600.0
"""How long a proof may take: it reads everything in one transaction."""
UNREADABLE = (CorruptError, *errors.UNREADABLE)
"""The errors that reading changes not written by dibs can raise."""
BLAME_S = 6.0
"""How long a call that failed looks for somebody to blame."""
BORN = {"lease": "epoch", "ticket": "number", "task": "epoch", "session": "id", "message": "id",
        "token": "id"}  # fmt: skip
"""The column of a signed row that says which event created it."""
WRITTEN = frozenset((int, str, type(None)))
"""The types of the values that dibs writes; SQLite takes others in every column."""
NOT_COMPARED = (
    "the journal itself was changed: rows that were last written before that are not compared"
)
PAIRS = 10_000
"""How many pairs of a missing row and an extra row are compared."""


def verify(scope: Scope, tell: Tell | None = None) -> tuple[Mismatch, ...]:
    """Everything that was changed without dibs.

    tell: called now and then with the progress
    """
    # Read before the transaction begins: what was there already must still be there.
    last = scope.store.driver.last_seq()
    with scope.long_read(PATIENCE_S) as tx:
        return Proof(scope, tx, last, tell).findings()


def blame(scope: Scope, error: Exception) -> None:
    """Raise what to say if a call failed because something else changed the store."""
    end = time.monotonic() + BLAME_S

    def tell(_: str) -> None:
        if time.monotonic() > end:
            raise BusyError("the store is too large to be verified now")

    try:
        found = verify(scope, tell)
    except BusyError:
        return
    if found:
        one = found[0]
        raise CorruptError(
            "something other than dibs has changed this store: "
            f"{one.noun} {called(one.subject)} ({one.what})",
            next="dibs verify names the rows",
        ) from error


class Proof:
    def __init__(self, scope: Scope, tx: Read, last: int, tell: Tell | None) -> None:
        self._keys = scope.keys
        self._ledger = scope.store.ledger
        driver = scope.store.driver
        self._mark = Mark(driver.own, self._ledger, driver.database)
        self._tx = tx
        self._last = last
        self._counts = scope.store.liveness is not None
        """Whether it covers all processes: on one machine, each writes down its last seq."""
        self._tell = tell
        self._told_at = time.monotonic()
        self._found: dict[tuple[str, str], Mismatch] = {}
        self._fold = Fold()
        self._sure: set[Where] | None = None
        """Once the chain is broken: the rows written completely since. Before that: None."""
        self._missing = 0
        """The sum of the tags that are missing in the base, minus those that are extra."""
        self._tags: dict[Where, int] = {}
        self._cut = False
        """Whether the journal ends inside a write, since the last event of each has its changes."""
        self._lost: int | None = None
        """The last event that does not follow from the one before it."""
        self._ends: list[tuple[int, int]] = []
        """Where the journal ends or was continued after the store went back: the last event there,
        and the next one."""
        self._lacking: int | None = None
        """The first event that is missing at such a place, since dibs wrote rows after it."""
        self._differing: dict[Where, tuple[Image | None, Row | None]] = {}
        """What a row should be and what it is, for the rows that differ."""

    def findings(self) -> tuple[Mismatch, ...]:
        heads = self._tx.rows(LEDGER.head)
        if not heads:
            self._add("space", self._tx.store.name, "removed")
            return tuple(self._found.values())
        self._head = heads[0]
        self._pruned = whole(self._head["pruned_seq"])
        self._chain = self._head
        if not self._ledger.fits("space", self._head):
            self._add("space", self._head["name"], "changed")
            self._do_without()
        elif self._mark.differs(self._head["chain"]):
            self._add("chain", self._head["name"], "removed", None, self._head["base_seq"])
            if self._tell is not None:
                self._tell(
                    "this machine has seen another chain of this space; a person who knows why "
                    f"there is a new one removes {folder(self._mark.path)}"
                )
        elif self._is_behind():
            self._add("space", self._head["name"], "replayed", None, self._head["base_seq"])
            self._do_without()
        self._read_base()
        self._walk(self._events(), self._look_at)
        self._look_before()
        self._end()
        self._apply_pending()
        self._ends.append((self._seq, 2**63))
        for table in TABLES.values():
            self._compare(table)
        self._compare_words()
        if self._lacking is not None:
            self._add("event", str(self._lacking), "removed", None, self._lacking)
            self._differing.clear()
        if self._differing:
            self._name_differences()
        if self._sure is not None and self._tell is not None:
            self._tell(NOT_COMPARED)
        return tuple(self._found.values())

    def _is_behind(self) -> bool:
        """Whether the journal was cut later than the space's row says, so the row is an old one."""
        first = next((event for event in self._events() if event["hash"]), None)
        if first is None or first["seq"] <= self._head["base_seq"] + 1:
            return False
        return any(
            event["kind"] == "space.pruned" and cut_at(event) == first["seq"] - 1
            for event in self._events()
        )

    def _do_without(self) -> None:
        """Take the chain's beginning from the first event, as the space's row cannot say it."""
        first = next((event for event in self._events() if event["hash"]), None)
        begin = self._pruned if first is None else first["seq"] - 1
        self._chain = self._head | {"base_seq": begin, "head": "", "base_sum": ""}
        self._sure = set()

    def _add(
        self, noun: str, subject: str, what: str, row: Row | None = None, seq: int = 0
    ) -> None:
        row = row or {}
        agent = row.get("agent") or row.get("sender") or row.get("name") or row.get("author") or ""
        mismatch = Mismatch(
            noun=noun,
            subject=subject,
            agent=str(agent),
            session=whole(row.get("session") or (row.get("id") if noun == "session" else 0)),
            epoch=whole(row.get("epoch") or (row.get("id") if noun in ("message", "token") else 0)),
            what=what,
            seq=seq or None,
        )
        self._found.setdefault((noun, subject), mismatch)

    def _say(self, what: str) -> None:
        if self._tell is not None and time.monotonic() > self._told_at + TELL_S:
            self._told_at = time.monotonic()
            self._tell(what)

    def _read_base(self) -> None:
        total, bad = 0, []
        for row in based(self._tx):
            if not self._is_tagged(row):
                bad.append(row)
                continue
            noun, (key, image) = row["noun"], image_in(row)
            total += int(row["tag"], 16)
            self._tags[noun, key] = int(row["tag"], 16)
            self._fold.tables[noun][key] = image
            self._say(f"{len(self._tags)} rows of the base")
        try:
            self._missing = (int(self._chain["base_sum"], 16) - total) % SUM
        except ValueError:
            self._missing = 0  # the space's row no longer says it
        for row in bad:
            what = "changed" if self._missing else "inserted"
            self._add("base", f"{row['noun']} {row['key']}", what)
        if self._missing and not self._restore():
            self._sure = set()
            if not bad:
                self._add("base", "a row", "removed")

    def _restore(self) -> bool:
        """Find the one row that is missing or was replaced by an older one, if it is still so."""
        for table in TABLES.values():
            for row in [self._head] if table.name == "space" else every(self._tx.rows, table):
                if not is_written(row):
                    continue
                image = image_of(table, row, self._ledger.digest)
                key = tuple(image[: table.width])
                stored = base_row(self._ledger, table.name, key, image)
                tag, other = int(stored["tag"], 16), self._tags.get((table.name, key))
                if (tag - (other or 0)) % SUM == self._missing:
                    what = "removed" if other is None else "replayed"
                    self._add("base", f"{table.name} {stored['key']}", what)
                    self._fold.tables[table.name][key] = image
                    return True
        return False

    def _is_tagged(self, row: Row) -> bool:
        return bool(row["tag"] == self._ledger.tag(row["noun"], row["key"], row["image"]))

    def _events(self) -> Iterator[Row]:
        after = LOWEST  # no event has this seq, unless somebody else has written it
        for row in self._tx.rows(LEDGER.link, seq=after):
            self._add("event", str(after), "inserted", row, after)
        while rows := self._tx.rows(LEDGER.chain, after=after, limit=PAGE):
            for row in rows:
                if type(row["seq"]) is int:
                    yield row
                else:
                    self._add("event", str(row["seq"]), "inserted", row)
            after = rows[-1]["seq"]
            self._say(f"the events up to {after}")

    def _walk(self, events: Iterator[Row], look: Callable[[Row, Row | None], None]) -> None:
        """Look at each event together with the next one."""
        self._hash, self._seq = self._chain["head"], self._chain["base_seq"]
        current = next(events, None)
        while current is not None:
            following = next(events, None)
            look(current, following)
            current = following

    def _look_at(self, event: Row, following: Row | None) -> None:
        seq, number = event["seq"], str(event["seq"])
        if seq <= self._chain["base_seq"]:
            return  # from before there was a chain
        hash = self._ledger.hash(self._hash, event)
        proven = follows = hash == event["hash"] or not self._hash  # its predecessor is not known
        skipped = self._follows(self._hash, following)
        if not follows and seq == self._seq + 1:
            if skipped:
                self._add("event", number, "inserted", event, seq)
                return
            # The hash of its predecessor may be lost while its own is right.
            unproven = self._lost == self._seq and self._follows(event["hash"], following)
            self._add("event", number, "unproven" if unproven else "changed", event, seq)
            self._lost = seq
            if self._follows(hash, following):
                event, proven = event | {"hash": hash}, True  # only its hash was changed
        elif not follows or (seq != self._seq + 1 and event["kind"] != "space.restored"):
            if skipped or (self._counts and following is None and seq > self._last):
                self._add("event", number, "inserted", event, seq)
                return
            self._add("event", str(self._seq + 1), "removed", None, self._seq + 1)
            self._sure = set()
        elif seq != self._seq + 1:
            self._ends.append((self._seq, seq))
        self._hash, self._seq = event["hash"] or self._chain["head"], seq
        self._cut = proven and event["changes"] is None
        if proven:
            self._apply(event)
        else:
            self._sure = set()  # what it really changed is not known

    def _look_before(self) -> None:
        """Find events that were inserted where the chain did not begin yet."""
        # As the journal says it: the space's own row may be changed.
        for image in self._fold.tables["space"].values():
            self._pruned = whole(TABLES["space"].row(image)["pruned_seq"])
        for event in self._events():
            if event["seq"] > self._chain["base_seq"]:
                return
            if event["hash"] or event["seq"] <= self._pruned:
                self._add("event", str(event["seq"]), "inserted", event, event["seq"])

    def _follows(self, hash: str, following: Row | None) -> bool:
        """Whether the next event, if there is one, is right after an event with that hash."""
        return following is not None and self._ledger.hash(hash, following) == following["hash"]

    def _apply(self, event: Row) -> None:
        if event["changes"] is None:
            return
        try:
            changes = from_text(event["changes"])
            self._fold.apply_all(changes)
        except UNREADABLE:
            # Not written by dibs: the event was found already, by its hash.
            self._add("event", str(event["seq"]), "changed", event, event["seq"])
            return
        if self._sure is not None:
            for change, (noun, key) in zip(changes[1:], touched(changes[1:]), strict=True):
                if key is not None and not change[0].endswith(("=", "?")):
                    self._sure.add((noun, key))

    def _apply_pending(self) -> None:
        try:
            for change in from_text(f"[{self._head['pending']}]"):
                self._fold.apply(change)
        except UNREADABLE:
            self._sure = set()  # not written by dibs, as the row's signature shows

    def _end(self) -> None:
        """Whether the last events are there."""
        end = max(self._seq, self._pruned)
        if self._last > end or self._cut:
            self._add("event", str(end + 1), "removed", None, end + 1)
            self._sure = set()

    def _is_sure(self, where: Where) -> bool:
        return self._sure is None or where in self._sure

    def _compare(self, table: Table) -> None:
        images = self._fold.tables[table.name]
        left = set(images)
        rows = [self._head] if table.name == "space" else every(self._tx.rows, table)
        for number, row in enumerate(rows):
            key = tuple([row[column] for column in table.key])
            where = (table.name, key)
            left.discard(key)
            image = images.get(key)
            if not is_written(row):
                self._add(
                    table.name, subject(table, row), "inserted" if image is None else "changed", row
                )
                continue
            mine = image_of(table, row, self._ledger.digest)
            if (image is None or table.firm(image) != table.firm(mine)) and self._is_sure(where):
                self._differing[where] = (image, row)
                self._note_later(table, row)
            elif not self._signed(table, row):
                self._add(table.name, subject(table, row), "changed", row)
            self._say(f"{number} rows of {table.name}")
        for key in left:
            if self._is_sure((table.name, key)):
                self._differing[table.name, key] = (images[key], None)

    def _note_later(self, table: Table, row: Row) -> None:
        """Note where the journal ends too early, if dibs wrote a row after an end of it."""
        if table.name == "task" and row["session"] is None:
            return  # it has no signature
        born = whole(row.get(BORN.get(table.name, "")))
        lacking = [end + 1 for end, following in self._ends if end < born < following]
        if lacking and self._signed(table, row):
            self._lacking = min(lacking[0], self._lacking or lacking[0])

    def _signed(self, table: Table, row: Row) -> bool:
        """Whether a row's own signature is valid, if it has one."""
        name = table.name
        if name in ("session", "ticket"):
            return self._ledger.fits(name, row)
        if name == "task" and row["session"] is None:
            return row["signature"] is None
        return name not in ("lease", "task", "message", "token") or self._keys.fits(name, row)

    def _name_differences(self) -> None:
        """Say what happened to each row; an older row that was put back is called replayed."""
        self._pair()
        wanted = {
            where: TABLES[where[0]].firm(image_of(TABLES[where[0]], row, self._ledger.digest))
            for where, (_, row) in self._differing.items()
            if row is not None
        }
        older = self._older(wanted) if wanted else {}
        for (noun, key), (image, row) in self._differing.items():
            table = TABLES[noun]
            if row is None:
                digested = table.digested
                gone = (
                    dict(zip(table.key, key, strict=True)) if digested else table.row(image or [])
                )
                self._add(noun, subject(table, gone), "removed", gone)
            elif (noun, key) in older:
                self._add(noun, subject(table, row), "replayed", row, older[noun, key])
            else:
                self._add(
                    noun, subject(table, row), "inserted" if image is None else "changed", row
                )

    def _pair(self) -> None:
        """Pair rows whose key was changed: missing under one key, extra under the other."""
        gone = [where for where, (_, row) in self._differing.items() if row is None]
        more = [where for where, (image, _) in self._differing.items() if image is None]
        for where in more if len(gone) * len(more) <= PAIRS else ():
            table, row = TABLES[where[0]], self._differing[where][1]
            for one in gone:
                if row is None or one[0] != where[0] or one not in self._differing:
                    continue
                was = row | dict(zip(table.key, one[1], strict=True))
                image = self._differing[one][0] or []
                if table.firm(image_of(table, was, self._ledger.digest)) == table.firm(image):
                    self._add(table.name, subject(table, row), "changed", row)
                    del self._differing[where], self._differing[one]
                    break

    def _older(self, wanted: dict[Where, Image]) -> dict[Where, int]:
        """Which of these rows once had this content, and after which event."""
        fold, found = Fold(), {}
        for row in based(self._tx):
            if self._is_tagged(row):
                key, image = image_in(row)
                fold.tables[row["noun"]][key] = image

        def note(wheres: Any, seq: int) -> None:
            for noun, key in wheres:
                image = fold.tables[noun].get(key)
                if image is not None and TABLES[noun].firm(image) == wanted[noun, key]:
                    found[noun, key] = seq

        note(wanted, self._chain["base_seq"])
        for event in self._events():
            if event["changes"] is None or event["seq"] <= self._chain["base_seq"]:
                continue
            try:
                changes = from_text(event["changes"])
                fold.apply_all(changes)
            except UNREADABLE:
                continue  # found already
            note({where for where in touched(changes[1:]) if where in wanted}, event["seq"])
        return found

    def _compare_words(self) -> None:
        """Check the index of words, which follows from the text of messages."""
        from dibs.nouns.messages.operations import words

        messages, low = self._fold.tables["message"], LOWEST
        rows = (
            row
            for row in every(self._tx.rows, TABLES["message"])
            if is_written(row) and type(row["id"]) is int
        )
        while True:
            page = [row for _, row in zip(range(PAGE), rows, strict=False)]
            high = page[-1]["id"] if len(page) == PAGE else 2**63 - 1
            right = {(word, row["id"]) for row in page for word in words(row["body"])}
            there = {
                (str(row["word"]), row["message"])
                for row in self._tx.rows(LEDGER.every_word, low=low, high=high)
            }
            known = {row["id"] for row in page}
            for word, id in sorted(right ^ there):
                alone = id not in known and (id,) in messages  # only the message is missing
                if ("message", str(id)) in self._found or ("message", (id,)) in self._differing:
                    continue
                if not alone and self._sure is None and is_stable(word):
                    what = "removed" if (word, id) in right else "inserted"
                    self._add("word", f"{word} {id}", what)
            if high == 2**63 - 1:
                return
            low = high + 1


def whole(value: Any) -> int:
    """A number of a row; 0 if there is none, or something that dibs never writes there."""
    return value if type(value) is int else 0


def is_written(row: Row) -> bool:
    """Whether a row has only values of the types that dibs writes."""
    return set(map(type, row.values())) <= WRITTEN


def cut_at(event: Row) -> Any:
    """Up to which event the journal was cut, as the event that records the cut says."""
    try:
        return from_text(event["data"])["upto"]
    except UNREADABLE:
        return None


def subject(table: Table, row: Row) -> str:
    """What a row is about, as people call it."""
    if table.name in ("lease", "outcome"):
        return str(row["resource"])
    if table.name == "space":
        return str(row["name"])
    return "/".join(str(row[column]) for column in table.key if column != "base")


def is_stable(word: str) -> bool:
    """Whether every Python finds the same words: Unicode keeps adding letters."""
    from unicodedata import ucd_3_2_0

    return all(ucd_3_2_0.category(letter) != "Cn" for letter in word)
