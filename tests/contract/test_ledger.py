"""The ledger: whatever is done to the rows without dibs is found, named, and nothing else is.

The tamper matrix is made from the schema: a table or a column that somebody adds is in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.nouns.agents.operations import who
from dibs.records import to_text
from dibs.storage.base import LEDGER, based, image_in
from dibs.storage.images import DERIVED, TABLES, UNTOLD, Fold, teller
from dibs.storage.queries import Queries
from dibs.storage.store import from_text
from tests.contract.waiting import PATIENCE_S, Background, FrozenClock
from tests.contract.world import LONG_S, Opener, direct
from tests.old_schemas import ask

if TYPE_CHECKING:
    from dibs.storage.clock import Sleeper

FILES = ("agents", "events", "leases", "messages", "space", "state", "work")
OUTSIDE = {"space.create"}
"""Made by the set-up, which begins the chain with what is there then."""
KEYS = {
    "base": ("noun", "key"),
    "event": ("seq",),
    "word": ("word", "message"),
    **{name: table.key for name, table in TABLES.items()},
}


def test_what_a_statement_changes_can_be_told_of_every_statement():
    for file in FILES:
        for name, query in Queries(file).load().items():
            if f"{file}.{name}" not in OUTSIDE:
                teller(query, lambda table, values: "")


class Asleep(FrozenClock):
    """Its waiter does not look again before the test has ended, however long that takes."""

    def sleep(self, listener: Sleeper, seconds: float) -> None:
        self.frozen.set()
        self.thawed.wait()


class Raw:
    """The tables of one space, without dibs."""

    def __init__(self, opener: Opener) -> None:
        self.store = opener.store
        opener.proves = False
        self._columns: dict[str, list[str]] = {}
        [[self.space]] = self.ask(f"SELECT id FROM space WHERE name = {quote(opener.name)}")

    def ask(self, text: str) -> list[Any]:
        return ask(self.store, text)

    def columns(self) -> dict[str, list[str]]:
        self._columns = self._columns or self._read_columns()
        return self._columns

    def _read_columns(self) -> dict[str, list[str]]:
        if self.store.startswith("postgresql"):
            rows = self.ask(
                "SELECT table_name, column_name FROM information_schema.columns "
                "WHERE table_schema = 'dibs' ORDER BY table_name, ordinal_position"
            )
        else:
            rows = self.ask(
                "SELECT m.name, p.name FROM sqlite_schema m JOIN pragma_table_info(m.name) p "
                "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%'"
            )
        found: dict[str, list[str]] = {}
        for table, column in rows:
            found.setdefault(table, []).append(column)
        found.pop("migration", None)
        return found

    def rows(self, table: str) -> list[dict[str, Any]]:
        columns = self.columns()[table]
        own = "id" if table == "space" else "space"
        order = ", ".join(self.key(table))  # PostgreSQL has an order of its own after each change
        texts = self.ask(
            f"SELECT {', '.join(columns)} FROM {table} WHERE {own} = {self.space} ORDER BY {order}"
        )
        return [dict(zip(columns, row, strict=True)) for row in texts]

    def remove(self, table: str, row: dict[str, Any]) -> None:
        named = " AND ".join(f"{c} = {quote(row[c])}" for c in self.key(table))
        self.ask(f"DELETE FROM {table} WHERE {named}")

    def insert(self, table: str, row: dict[str, Any]) -> None:
        values = ", ".join(map(quote, row.values()))
        self.ask(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})")

    def key(self, table: str) -> tuple[str, ...]:
        return ("id",) if table == "space" else ("space", *KEYS[table])

    def replace(self, table: str, row: dict[str, Any], other: dict[str, Any]) -> None:
        self.remove(table, row)
        self.insert(table, other)


def quote(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def other(column: str, value: Any, numbers: bool) -> Any:
    """Another value for a column."""
    if column in ("base_sum", "tag", "hash", "head") and value:
        return ("0" if value[0] != "0" else "1") + value[1:]
    if isinstance(value, int) or (value is None and numbers):
        return (value or 0) + 1000
    return f"{value or ''}x"


@pytest.fixture
def raw(opener: Opener, alice, bob, carol, clock, background: Background) -> Iterator[Raw]:
    """A row in every table: some of them are in the base, most are in the journal."""
    alice.leases.claim("old", note="in the base")
    carol.messages.send("an old message of words", to="alice")
    clock.advance(1)
    alice.events.prune(keep_s=0.5)
    alice.leases.claim("a", note="to be changed", ttl_s=10_000)
    alice.leases.claim("b")
    alice.leases.release("b", outcome="deleted")
    alice.leases.claim("c", idempotency_key="mine")
    alice.leases.renew("a", ttl_s=20_000)
    alice.work.add("t0", leases=["a"], priority=9)
    with pytest.raises(dibs.EmptyError):
        bob.work.next()  # t0 is set aside, without an event
    alice.work.add("t1", payload={"x": 1}, kind="test", tags=["fast"])
    alice.work.add("t2", after=["t1"])
    bob.work.claim("t1", ttl_s=10_000)
    sent = alice.messages.send("Hello there, how are you?", to="bob")
    bob.messages.inbox()
    bob.messages.ack(sent.id)
    alice.state.set("ns", "short", {"a": 1})
    alice.state.set("ns", "long", "x" * 5000)
    alice.state.set("ns", "short", {"a": 2}, expected_version=1)
    alice.agents.add_token("ci", scope="read")
    bob.agents.beat(status="busy")
    frozen = Asleep(clock)
    dave = opener.join(opener.open(frozen), "dave")
    background(dave.leases.claim, "a", ttl_s=10_000, wait_s=60)
    assert frozen.frozen.wait(PATIENCE_S), "nobody waits"
    found = Raw(opener)
    assert alice.agents.verify() == ()
    assert all(found.rows(table) for table in found.columns()), "a table has no row"
    yield found
    frozen.thawed.set()


@direct("changes rows by hand")
def test_every_table_and_column_is_covered(raw: Raw):
    known = {name: {*table.columns, "space"} - UNTOLD for name, table in TABLES.items()}
    known["space"].discard("space")
    found = {name: set(columns) - UNTOLD for name, columns in raw.columns().items()}
    assert {name: columns for name, columns in found.items() if name not in DERIVED} == known


@direct("changes rows by hand")
def test_a_changed_column_is_found_in_every_table(raw: Raw, alice):
    missed = []
    for table, columns in raw.columns().items():
        for column in columns:
            if (table, column) == ("space", "id"):
                continue  # then it is another space
            rows = raw.rows(table)
            row = next((row for row in rows if row[column] is not None), rows[0])
            if table == "event":
                row = rows[len(rows) // 2]  # `data` of one that has some
                row = next((one for one in rows[2:-2] if one[column] is not None), row)
            numbers = column.endswith(("_at", "_ms", "deadline", "due", "turn", "epoch"))
            numbers |= column in ("session", "not_before", "landing_seq", "reply_to")
            # No other test has a space of that number.
            far = column == "space" or (table, column) == ("event", "seq")
            value = 10**9 if far else None
            changed = row | {column: value or other(column, row[column], numbers)}
            raw.replace(table, row, changed)
            found = alice.agents.verify()
            if {one.noun for one in found} != {table} or len(found) > 2:
                missed.append((table, column, row[column], changed[column], found))
            raw.replace(table, changed, row)
    assert not missed
    assert alice.agents.verify() == ()


@direct("changes rows by hand")
@pytest.mark.parametrize("column", ["seq", "changes", "hash"])
def test_a_changed_event_is_found_whichever_it_is_and_its_rows_are_not_blamed(
    raw: Raw, alice, column: str
):
    """Moved to the end, with the changes of another event, or with another hash."""
    missed = []
    rows = [row for row in raw.rows("event") if row["hash"]]
    carried = [row for row in rows if row["changes"] is not None]
    for row in rows:
        before = [one for one in carried if one["seq"] < row["seq"]] or carried[-1:]
        others = {"seq": 10**9, "changes": before[-1]["changes"], "hash": "0" * 32}
        changed = row | {column: others[column]}
        raw.replace("event", row, changed)
        found = alice.agents.verify()
        if {one.noun for one in found} != {"event"} or len(found) > 2:
            missed.append((row["seq"], row["kind"], found))
        raw.replace("event", changed, row)
    assert not missed
    assert alice.agents.verify() == ()


@direct("changes rows by hand")
def test_a_value_of_another_type_is_found_in_every_column(raw: Raw, opener, alice):
    """SQLite takes any value in any column; dibs has to name the row, not to stumble over it."""
    if opener.on_postgres:
        return
    missed = []
    for table, columns in raw.columns().items():
        row = raw.rows(table)[-1]
        named = " AND ".join(f"{c} = {quote(row[c])}" for c in raw.key(table))
        for column in columns:
            for value in ("x'00ff'", "'a text'") if column not in raw.key(table) else ("x'00ff'",):
                if (table, column) == ("space", "id"):
                    continue
                raw.ask(f"UPDATE {table} SET {column} = {value} WHERE {named}")
                found = alice.agents.verify()
                if {one.noun for one in found} != {table} or len(found) > 2:
                    missed.append((table, column, value, found))
                raw.ask(f"DELETE FROM {table} WHERE {column} = {value}")
                raw.remove(table, row)
                raw.insert(table, row)
    assert not missed
    assert alice.agents.verify() == ()


DEEP = "[" * 100_000
"""JSON that no parser follows to its end."""
FOREIGN = {
    "blob": "x'00'",
    "text": "'a text'",
    "infinity": "9e999",
    "large": str(2**63 - 1),
    "infinite store time": "'[1e999]'",
    "object": "'{}'",
    "deep": f"'{DEEP}'",
}


def readers(agent: dibs.Agent, seal: str, seq: int) -> list[Callable[[], Any]]:
    events = agent.events
    return [
        lambda: events.since(0),
        lambda: events.latest(path="a", task="t1"),
        lambda: events.latest(since="1h"),
        lambda: events.latest(until="1h"),
        events.seal,
        lambda: events.check_seal(seal),
        lambda: events.replay(at=seq - 1),
        lambda: events.diff(seq - 5, "now"),
        lambda: events.report(by="task", since="1d"),
        events.contention,
        agent.agents.overview,
        agent.leases.status,
        agent.work.list,
        agent.messages.history,
        lambda: agent.state.history("ns", "short"),
    ]


@direct("changes rows by hand")
@pytest.mark.parametrize("value", FOREIGN.values(), ids=FOREIGN)
def test_a_value_that_dibs_never_writes_leaves_every_reader_an_answer(
    raw: Raw, opener, alice, value: str
):
    """An answer or a refusal that names the row: neither an error of Python nor a hang."""
    if opener.on_postgres:
        return  # its columns have types
    seal, seq = alice.events.seal().text, alice.events.last()
    refused = 0
    for table in ("event", "lease", "ticket", "task", "session", "space"):
        row = next((one for one in raw.rows(table) if one.get("kind") == "lease.queued"), None)
        row = row or raw.rows(table)[-1]
        key = {column: row[column] for column in raw.key(table)}
        for column in raw.columns()[table]:
            if column in ("id", "space"):
                continue
            others = {name: one for name, one in key.items() if name != column}
            named = " AND ".join(f"{name} = {quote(one)}" for name, one in others.items())
            kept = "" if column in key else f" AND {column} IS {quote(row[column])}"
            at = f"{column} = {quote(row[column])}" if column in key else "1 = 1"
            raw.ask(f"UPDATE {table} SET {column} = {value} WHERE {named} AND {at}{kept}")
            for read in readers(alice, seal, seq):
                try:
                    read()
                except dibs.CorruptError as error:
                    refused += 1
                    assert "something other than dibs has changed" in error.message
                except dibs.DibsError:
                    pass
            raw.ask(f"DELETE FROM {table} WHERE {named} AND ({at} OR {column} = {value})")
            raw.insert(table, row)
    assert refused
    assert alice.agents.verify() == ()


@direct("changes rows by hand")
@pytest.mark.parametrize(
    "changes", [DEEP, "[1e999]", '[0,["lease-",{"no":1}]]'], ids=["deep", "infinite", "no column"]
)
def test_an_event_that_cannot_be_read_does_not_stop_the_search_for_an_older_row(
    raw: Raw, alice, changes: str
):
    [event] = [row for row in raw.rows("event") if row["kind"] == "lease.queued"]
    raw.replace("event", event, event | {"changes": changes})
    raw.ask(f"UPDATE task SET title = 'x' WHERE id = 't2' AND space = {raw.space}")
    raw.ask(f"UPDATE space SET pending = {quote(changes)} WHERE id = {raw.space}")
    assert ("event", str(event["seq"])) in {
        (one.noun, one.subject) for one in alice.agents.verify()
    }


@direct("changes rows by hand")
def test_text_that_is_not_utf8_is_refused_with_the_name_of_its_table(raw: Raw, opener, alice):
    if opener.on_postgres:
        return
    raw.ask("UPDATE lease SET note = CAST(x'ff' AS TEXT) WHERE resource = 'a'")
    with pytest.raises(dibs.CorruptError, match="table lease is not UTF-8"):
        alice.agents.verify()
    raw.ask("UPDATE lease SET note = '' WHERE resource = 'a'")


@direct("changes rows by hand")
def test_a_text_that_reads_like_null_is_found(raw: Raw, alice):
    """`None` in the place of nothing, and nothing in the place of an agent's name."""
    none = [row for row in raw.rows("event") if row["data"] is None]
    assert none, "every event has data"
    for row in none:
        raw.replace("event", row, row | {"data": "None"})
        assert [(one.noun, one.subject) for one in alice.agents.verify()] == [
            ("event", str(row["seq"]))
        ]
        with pytest.raises(dibs.CorruptError, match="something other than dibs"):
            alice.events.latest()
        raw.replace("event", row | {"data": "None"}, row)
    assert alice.agents.verify() == ()


@direct("changes rows by hand")
def test_an_agent_called_none_is_not_nobody(opener: Opener, space):
    none = opener.join(space, "None")
    none.leases.claim("a")
    assert none.agents.verify() == ()
    opener.tamper(
        "UPDATE event SET agent = NULL WHERE space = %(space)s AND kind = 'lease.claimed'"
    )
    assert [one.noun for one in none.agents.verify()] == ["event"]


@direct("changes rows by hand")
def test_an_event_before_all_others_is_found(raw: Raw, alice):
    lowest = -(2**63)
    raw.insert("event", raw.rows("event")[-1] | {"seq": lowest})
    assert [(one.subject, one.what) for one in alice.agents.verify()] == [(str(lowest), "inserted")]


@direct("changes rows by hand")
def test_a_completed_task_of_a_later_epoch_does_not_mean_that_events_are_missing(raw: Raw, bob):
    bob.work.complete("t1")
    raw.ask(f"UPDATE task SET epoch = epoch + 1000 WHERE id = 't1' AND space = {raw.space}")
    assert [(one.noun, one.subject) for one in bob.agents.verify()] == [("task", "t1")]


@direct("changes rows by hand")
def test_a_journal_that_ends_inside_a_write_lacks_an_event(opener: Opener, alice, bob):
    """PostgreSQL does not say where it ended, but the last event of a write has its changes."""
    bob.leases.claim("a", "b", "c")
    raw = Raw(opener)
    last = raw.rows("event")[-1]
    raw.remove("event", last)
    assert [(one.noun, one.subject, one.what) for one in alice.agents.verify()] == [
        ("event", str(last["seq"]), "removed")
    ]


@direct("changes rows by hand")
def test_rows_whose_events_were_cut_off_are_not_blamed_once_the_store_was_opened_again(
    opener: Opener, alice
):
    """Opening it notices that the journal went back, and continues far above."""
    if opener.on_postgres:
        return  # only the server's history says that it went back
    alice.leases.claim("a")
    seq = alice.events.last()
    alice.leases.claim("b")
    alice.state.set("ns", "k", 1)
    raw = Raw(opener)
    raw.ask(f"DELETE FROM event WHERE space = {raw.space} AND seq > {seq}")
    again = opener.open()
    assert again.events.latest()[-1].kind == "space.restored"
    found = again.agents.verify()
    assert [(one.noun, one.subject, one.what) for one in found] == [
        ("event", str(seq + 1), "removed")
    ]


@direct("changes rows by hand")
def test_an_event_after_one_that_was_replaced_is_not_called_changed(raw: Raw, alice):
    """Its predecessor's hash is lost, so nothing can be said about it."""
    rows = [row for row in raw.rows("event") if row["hash"]]
    one, other = rows[3], rows[-4]
    raw.replace("event", one, other | {"seq": one["seq"]})
    found = {(mismatch.subject, mismatch.what) for mismatch in alice.agents.verify()}
    assert found == {(str(one["seq"]), "changed"), (str(one["seq"] + 1), "unproven")}
    raw.replace("event", other | {"seq": one["seq"]}, one)
    assert alice.agents.verify() == ()


def test_a_task_may_have_any_name(alice):
    """A table is read in pages, from the lowest key on."""
    for id in ("#12", "!", "(a)", "*", "+", ",", "$HOME", "-1", "'"):
        alice.work.add(id)
    assert alice.agents.verify() == ()


@direct("changes rows by hand")
def test_a_removed_row_is_found_in_every_table(raw: Raw, opener, alice):
    missed = []
    for table in raw.columns():
        for row in raw.rows(table):
            raw.remove(table, row)
            found = alice.agents.verify()
            last = table == "event" and row["seq"] > max(one["seq"] for one in raw.rows(table))
            if last and opener.on_postgres and len(found) == 1:
                pass  # nobody else knows of it: the row that it changed is named instead
            elif [(one.noun, one.what) for one in found] != [(table, "removed")]:
                missed.append((table, row, found))
            raw.insert(table, row)
    assert not missed
    assert alice.agents.verify() == ()


@direct("changes rows by hand")
def test_a_row_is_found_beside_one_of_the_base_that_can_be_told(raw: Raw, alice):
    """Whatever the base lacks is still in the tables, if nobody has written it since."""
    [row] = [row for row in raw.rows("base") if row["noun"] == "lease"]
    agent = next(row for row in raw.rows("agent") if row["name"] == "alice")
    raw.replace("agent", agent, agent | {"since_seq": 1000})
    for changed in (None, row | {"image": "[]"}, row | {"key": '["","other",1]'}):
        raw.remove("base", row)
        if changed is not None:
            raw.insert("base", changed)
        found = {(one.noun, one.subject, one.what) for one in alice.agents.verify()}
        assert ("agent", "alice", "changed") in found, changed
        assert {noun for noun, _, _ in found} == {"base", "agent"}, found
        if changed is not None:
            raw.remove("base", changed)
        raw.insert("base", row)
    raw.replace("agent", agent | {"since_seq": 1000}, agent)
    assert alice.agents.verify() == ()


@direct("changes rows by hand")
def test_an_inserted_row_is_found_in_every_table(raw: Raw, opener, alice):
    missed = []
    for table in raw.columns():
        if table == "space":
            continue  # it would be another space
        row = raw.rows(table)[-1]
        column = raw.key(table)[-1]
        added = row | {column: row[column] + 1000 if isinstance(row[column], int) else "new"}
        if table == "base":
            added["key"] = '["new"]'
        if table in ("token", "lane"):
            added |= {"digest": "new"} if table == "token" else {"kind": "new"}
        if table == "aside":
            added["resource"] = "new"
        raw.insert(table, added)
        found = alice.agents.verify()
        if table == "event" and opener.on_postgres:
            assert [one.noun for one in found] == ["event"]  # it may be the one before that is gone
        elif [(one.noun, one.what) for one in found] != [(table, "inserted")]:
            missed.append((table, added, found))
        raw.remove(table, added)
    assert not missed
    assert alice.agents.verify() == ()


@direct("changes rows by hand")
def test_a_replayed_row_is_found_in_every_table(raw: Raw, alice, bob, carol, clock):
    """Rows that dibs has changed or removed since are put back as they were."""
    before = {table: raw.rows(table) for table in raw.columns()}
    alice.leases.renew("a", ttl_s=30_000)
    alice.leases.release("c")
    alice.leases.release("a")  # dave is served
    alice.work.edit("t2", title="another")
    alice.work.edit("t2", after=["t0"])
    bob.work.complete("t1")
    alice.messages.send("more", to="bob")
    bob.messages.inbox()
    alice.state.set("ns", "short", {"a": 3}, expected_version=2)
    [token] = alice.agents.tokens()
    alice.agents.revoke_token(token.id)
    bob.agents.beat(status="idle")
    carol.leases.claim("b")
    carol.leases.release("b", outcome="deleted")
    clock.advance(1)
    alice.events.prune(keep_s=0.5)
    assert alice.agents.verify() == ()
    missed, seen = [], set()
    for table, rows in before.items():
        for row in rows:
            key = raw.key(table)
            now = [one for one in raw.rows(table) if all(one[c] == row[c] for c in key)]
            volatile = TABLES[table].volatile | UNTOLD if table in TABLES else frozenset()
            told = {column for column in row if column not in volatile}
            if now and all(now[0][column] == row[column] for column in told):
                continue
            seen.add(table)
            if now:
                raw.remove(table, now[0])
            raw.insert(table, row)
            found = alice.agents.verify()
            if [one.noun for one in found] != [table]:
                missed.append((table, row, found))
            raw.remove(table, row)
            if now:
                raw.insert(table, now[0])
    assert not missed
    assert alice.agents.verify() == ()
    assert seen >= {"lease", "ticket", "task", "session", "entry", "token", "cursor", "event"}


@direct("changes rows by hand")
def test_a_token_that_was_revoked_cannot_be_used_again(opener: Opener, alice):
    token = alice.agents.add_token("ci")
    alice.agents.revoke_token(token.id)
    assert alice.agents.verify() == ()
    opener.tamper("UPDATE token SET revoked_at = NULL WHERE space = %(space)s")
    assert who(alice.scope, token.secret) is None
    assert [(one.noun, one.what) for one in alice.agents.verify()] == [("token", "replayed")]


def test_a_seal_holds_as_long_as_the_journal_is_the_same(alice, bob):
    alice.leases.claim("a")
    seal = bob.events.seal()
    assert seal.seq == bob.events.last()
    assert str(seal.seq) in seal.text and seal.hash in seal.text
    alice.leases.release("a")
    assert bob.events.check_seal(seal.text) == dibs.Sealed(
        seq=seal.seq, what="whole", holds=True, hash=seal.hash
    )
    for wrong in ("", "nonsense", seal.text[:40], seal.text.replace("dibs-seal", "seal")):
        with pytest.raises(dibs.InvalidError):
            bob.events.check_seal(wrong)
    with pytest.raises(dibs.NotFoundError):
        bob.events.check_seal(f"{seal.text}-elsewhere")


@direct("moves the clock")
def test_a_seal_of_where_the_journal_was_cut_still_holds(alice, clock):
    alice.leases.claim("a")
    seal = alice.events.seal()
    clock.advance(1)
    alice.leases.claim("b")
    between = alice.events.seal()
    clock.advance(1)
    alice.events.prune(keep_s=1.5)
    assert alice.events.check_seal(seal.text).holds
    assert alice.events.check_seal(between.text).holds
    alice.events.prune(keep_s=0)
    assert alice.events.check_seal(between.text).holds
    assert alice.events.check_seal(seal.text).holds, "the event that says it was cut is kept"
    clock.advance(1)
    alice.events.prune(keep_s=0)
    with pytest.raises(dibs.PrunedError):
        alice.events.check_seal(seal.text)


@direct("changes the store by itself")
def test_a_chain_without_its_head_is_not_begun_again(opener: Opener, alice):
    alice.leases.claim("a")
    opener.tamper("UPDATE space SET head = '' WHERE id = %(space)s")
    assert opener.open().agents.verify() != ()


@direct("has the key")
def test_a_seal_finds_a_chain_that_was_made_again_with_the_key(opener: Opener, alice):
    alice.leases.claim("a")
    alice.leases.release("a")
    seal = alice.events.seal()
    raw, ledger = Raw(opener), alice.scope.store.ledger
    last = ""
    for row in raw.rows("event"):
        changed = row | {"agent": "mallory"} if row["kind"] == "lease.claimed" else row
        changed = changed | {"hash": ledger.hash(last or raw.rows("space")[0]["head"], changed)}
        last = changed["hash"]
        raw.replace("event", row, changed)
    assert alice.agents.verify() == (), "whoever has the key makes a chain that is right"
    checked = alice.events.check_seal(seal.text)
    assert (checked.holds, checked.what) == (False, "changed")


@direct("changes rows by hand")
def test_a_seal_finds_a_journal_that_was_cut_short(opener: Opener, alice):
    alice.leases.claim("a")
    seal = alice.events.seal()
    raw = Raw(opener)
    last = raw.rows("event")[-1]
    raw.remove("event", last)
    assert alice.events.check_seal(seal.text).what == "removed"
    raw.insert("event", last)
    assert alice.events.check_seal(seal.text).holds


@direct("changes rows by hand")
def test_a_journal_that_was_cut_without_the_key_matches_no_seal(opener: Opener, alice, clock):
    """Whoever has read a seal can write its hash where pruning writes that of a cut."""
    alice.leases.claim("a")
    seal = alice.events.seal()
    clock.advance(1)
    alice.leases.claim("b")
    raw = Raw(opener)
    [row], events = raw.rows("space"), raw.rows("event")
    cut = row | {"base_seq": seal.seq, "pruned_seq": seal.seq, "head": seal.hash}
    raw.ask(f"DELETE FROM event WHERE space = {raw.space} AND seq <= {seal.seq}")
    raw.replace("space", row, cut)
    with pytest.raises(dibs.CorruptError, match="the space's row"):
        alice.events.check_seal(seal.text)
    raw.replace("space", cut, row)
    for event in events[: -len(raw.rows("event"))]:
        raw.insert("event", event)
    assert alice.agents.verify() == ()


@direct("changes rows by hand")
def test_a_seal_does_not_believe_a_cut_that_was_forged(opener: Opener, alice, clock):
    alice.leases.claim("a")
    seal = alice.events.seal()
    alice.leases.claim("b")
    clock.advance(1)
    alice.events.prune(keep_s=0.5)
    with pytest.raises(dibs.PrunedError):
        alice.events.check_seal(seal.text)
    raw = Raw(opener)
    [event] = [row for row in raw.rows("event") if row["kind"] == "space.pruned"]
    said = to_text(from_text(event["data"]) | {"upto": seal.seq, "head": seal.hash})
    raw.replace("event", event, event | {"data": said})
    with pytest.raises(dibs.PrunedError):
        alice.events.check_seal(seal.text)
    raw.replace("event", event | {"data": said}, event)
    assert alice.agents.verify() == ()


def play(agents: list[dibs.Agent], random: Random, number: int) -> None:
    """One random call; a refusal is as good as any other answer."""
    agent, name = random.choice(agents), random.choice("abcd")
    task = f"t{random.randrange(6)}"
    calls: list[Callable[[], Any]] = [
        lambda: agent.leases.claim(name, mode=random.choice(["shared", "exclusive"])),
        lambda: agent.leases.claim(name, f"{name}{name}", idempotency_key=f"k{number % 7}"),
        lambda: agent.leases.release(name, outcome=random.choice([None, "deleted"])),
        lambda: agent.leases.renew(name, ttl_s=random.randrange(10, 1000)),
        lambda: agent.leases.release(everything=True),
        lambda: agent.work.add(task, after=random.sample(["t0", "t1"], random.randrange(3))),
        lambda: agent.work.add(f"s{number}", leases=[name], priority=random.randrange(3)),
        lambda: agent.work.add_many([{"id": f"m{number}-{one}"} for one in range(3)]),
        lambda: agent.work.next(tags=random.sample(["x", "y"], random.randrange(3)), ttl_s=50),
        lambda: agent.work.next_many(limit=3),
        lambda: agent.work.claim(task, ttl_s=50),
        lambda: agent.work.complete(task, result={"number": number}),
        lambda: agent.work.fail(task, reason="no luck"),
        lambda: agent.work.abandon(task),
        lambda: agent.work.reopen(task),
        lambda: agent.work.cancel(task),
        lambda: agent.work.edit(task, title=str(number), after=random.sample(["t2", "t3"], 1)),
        lambda: agent.work.remove(task),
        lambda: agent.messages.send(f"word{number % 5} again", to=random.choice(["bob", "eve"])),
        lambda: agent.messages.announce("to all of you"),
        agent.messages.inbox,
        lambda: agent.state.set("ns", name, number, force=True),
        lambda: agent.state.set("ns", name, "x" * 2_000, force=True, ttl_s=20),
        lambda: agent.state.delete("ns", name),
        lambda: agent.agents.beat(status=random.choice([None, "busy", "idle"])),
    ]
    with contextlib.suppress(dibs.DibsError):
        random.choice(calls)()


@direct("moves the clock")
@pytest.mark.parametrize("seed", range(4))
def test_the_journal_leads_to_what_the_tables_hold(opener, space, alice, bob, clock, seed):
    random = Random(seed)
    agents = [alice, bob, opener.join(space, "carol", ttl_s=LONG_S)]
    moments: list[tuple[int, dict[str, list[str]]]] = []
    for number in range(150):
        play(agents, random, number)
        if random.random() < 0.1:
            clock.advance(random.randrange(1, 60))
        if random.random() < 0.03:
            alice.events.prune(keep_s=random.choice([1, 100]))
            moments.clear()
        if random.random() < 0.1:
            moments.append((alice.events.last(), tables(opener)))
        if number % 30 == 0:
            assert alice.agents.verify() == ()
    assert alice.agents.verify() == ()
    for seq, rows in moments:
        with space.scope.store.read() as tx:
            assert shown(rows_at(tx, seq)) == rows


def rows_at(tx: Any, seq: int) -> dict[str, list[dict[str, Any]]]:
    """All rows as they were after the write that a seq belongs to, folded from base and journal."""
    head, fold = tx.rows(LEDGER.head)[0], Fold()
    for row in based(tx):
        key, image = image_in(row)
        fold.tables[row["noun"]][key] = image
    for row in tx.rows(LEDGER.chain, after=head["base_seq"], limit=10_000):
        if row["changes"] is not None:
            fold.apply_all(from_text(row["changes"]))
            if row["seq"] >= seq:
                break
    else:
        for change in from_text(f"[{head['pending']}]"):
            fold.apply(change)
    return {
        name: [
            ({} if name == "space" else {"space": head["id"]}) | TABLES[name].row(image)
            for image in images.values()
        ]
        for name, images in fold.tables.items()
        if not TABLES[name].digested
    }


def tables(opener: Opener) -> dict[str, list[str]]:
    """What the tables hold, but for what an event need not say."""
    raw = Raw(opener)
    opener.proves = True
    with_rows = {name: raw.rows(name) for name, table in TABLES.items() if not table.digested}
    return shown(with_rows)


def shown(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    found = {}
    for name, several in rows.items():
        left_out = TABLES[name].volatile | UNTOLD | {"space"}
        left_out |= {"value"} if name == "entry" else set()
        # What waits for its event is in the tables already.
        left_out |= {"aside", "skips", "turn", "tags"} if name in ("task", "session") else set()
        texts = [
            str(sorted((c, v) for c, v in row.items() if c not in left_out)) for row in several
        ]
        if name not in ("aside", "space"):
            found[name] = sorted(texts)
    return found
