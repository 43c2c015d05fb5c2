"""Every earlier schema, migrated, is the fresh one, and keeps its rows."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.dibs import SIZE_LIMIT
from dibs.errors import DibsError, UnfitError
from dibs.storage.folder import Note, Own
from dibs.storage.postgres import PostgresDriver
from dibs.storage.queries import migrations
from dibs.storage.sqlite import SqliteDriver
from tests.old_schemas import ask, make_old

if TYPE_CHECKING:
    from dibs.storage.driver import Driver

NUMBERS = [number for number, _, _ in migrations()]
KEY = bytes(range(32))
DROPPED = ("seq",)
"""The columns of `space` that a later schema does without."""


@pytest.fixture(params=["sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest) -> str:
    """A database without any table, so that its first schema is ours to choose."""
    kind = "sqlite_url" if request.param == "sqlite" else "empty_postgres_url"
    url: str = request.getfixturevalue(kind)
    return url


def is_postgres(url: str) -> bool:
    return url.startswith("postgresql://")


def driver_of(url: str) -> Driver:
    if is_postgres(url):
        return PostgresDriver(url, "full", None, KEY, Own("not used: no chain begins"))
    return SqliteDriver(
        Note(os.path.join(os.path.dirname(url), "../user"), url), "full", None, SIZE_LIMIT
    )


def build(url: str, to: int) -> None:
    """Make the database as a release with that many migrations would have."""
    driver = driver_of(url)
    try:
        make_old(driver, "old", "check", to)
    finally:
        driver.close()


def schema(url: str) -> dict[str, Any]:
    """Everything that can differ between two schemas, in an order of its own."""
    if is_postgres(url):
        return {
            "columns": ask(
                url,
                "SELECT table_name, ordinal_position, column_name, data_type, is_nullable,"
                " column_default, collation_name FROM information_schema.columns"
                " WHERE table_schema = 'dibs' ORDER BY 1, 2",
            ),
            "indexes": ask(
                url,
                "SELECT tablename, indexname, indexdef FROM pg_indexes"
                " WHERE schemaname = 'dibs' ORDER BY 1, 2",
            ),
            "constraints": ask(
                url,
                "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)"
                " FROM pg_constraint WHERE connamespace = 'dibs'::regnamespace ORDER BY 1, 2",
            ),
            "version": ask(url, "SELECT MAX(version) FROM migration"),
        }
    return {
        "tables": ask(
            url, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
        ),
        "estimates": ask(url, "SELECT tbl, idx, stat FROM sqlite_stat1 ORDER BY tbl, idx"),
        "version": ask(url, "PRAGMA user_version"),
        "application": ask(url, "PRAGMA application_id"),
    }


def tables(url: str) -> dict[str, list[tuple[str, bool]]]:
    """The tables with their columns, and whether each holds text."""
    if is_postgres(url):
        rows = ask(
            url,
            "SELECT table_name, column_name, data_type = 'text' FROM information_schema.columns"
            " WHERE table_schema = 'dibs' AND table_name <> 'migration'"
            " ORDER BY table_name, ordinal_position",
        )
    else:
        rows = ask(
            url,
            "SELECT t.name, c.name, c.type = 'TEXT' FROM sqlite_schema t"
            " JOIN pragma_table_info(t.name) c"
            " WHERE t.type = 'table' AND t.name <> 'sqlite_stat1' ORDER BY t.name, c.cid",
        )
    found: dict[str, list[tuple[str, bool]]] = {}
    for table, column, is_text in rows:
        found.setdefault(table, []).append((column, bool(is_text)))
    return found


def fill(url: str) -> None:
    """Put a row with a value in every column into every table."""
    for table, columns in tables(url).items():
        names = ", ".join(name for name, _ in columns)
        values = ", ".join(f"'{name} é'" if text else "7" for name, text in columns)
        ask(url, f"INSERT INTO {table} ({names}) VALUES ({values})")


def contents(url: str, of: dict[str, list[tuple[str, bool]]]) -> dict[str, list[tuple[Any, ...]]]:
    return {
        table: ask(url, f"SELECT {', '.join(name for name, _ in columns)} FROM {table} ORDER BY 1")
        for table, columns in of.items()
    }


def open_space(url: str, name: str, tmp_path) -> dibs.Dibs:
    key = KEY if is_postgres(url) else None
    return dibs.open(url, space=name, user_dir=str(tmp_path / "user"), key=key)


@pytest.fixture
def fresh_schema(fresh, tmp_path, request):
    """The schema of a database that this release has made from nothing."""
    if is_postgres(fresh):
        from tests.postgres_server import new_database

        with new_database(request.getfixturevalue("postgres_server")) as other:
            open_space(other, "new", tmp_path).close()
            yield schema(other)
    else:
        other = str(tmp_path / "other.db")
        open_space(other, "new", tmp_path).close()
        yield schema(other)


def test_the_migrations_are_numbered_without_a_gap():
    assert list(range(1, len(NUMBERS) + 1)) == NUMBERS


@pytest.mark.parametrize("old", NUMBERS)
def test_an_old_schema_migrated_is_the_fresh_one(old, fresh, fresh_schema, tmp_path):
    build(fresh, old)
    assert (schema(fresh) == fresh_schema) == (old == NUMBERS[-1])
    open_space(fresh, "new", tmp_path).close()
    assert schema(fresh) == fresh_schema


@pytest.mark.parametrize("old", NUMBERS)
def test_the_rows_of_an_old_schema_survive(old, fresh, tmp_path):
    build(fresh, old)
    columns = tables(fresh)
    fill(fresh)
    columns["space"] = [column for column in columns["space"] if column[0] not in DROPPED]
    before = contents(fresh, columns)
    assert all(before.values())
    with open_space(fresh, "new", tmp_path) as space:
        assert space.join("alice").leases.claim("port:1").leases[0].agent == "alice"
        after = contents(fresh, columns)
    for table, rows in before.items():
        assert set(rows) <= set(after[table]), table


def test_opening_a_current_database_changes_nothing(fresh, tmp_path):
    open_space(fresh, "new", tmp_path).close()
    before = contents(fresh, tables(fresh))
    open_space(fresh, "new", tmp_path).close()
    assert contents(fresh, tables(fresh)) == before


def test_many_who_open_an_old_database_at_once_migrate_it_once(fresh, fresh_schema, tmp_path):
    build(fresh, 1)
    errors: list[DibsError] = []
    start = threading.Barrier(8)

    def enter() -> None:
        start.wait()
        try:
            open_space(fresh, "new", tmp_path).close()
        except DibsError as error:
            errors.append(error)

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert schema(fresh) == fresh_schema
    assert sorted(row[0] for row in ask(fresh, "SELECT name FROM space")) == ["new", "old"]


def test_a_migration_that_fails_leaves_the_old_schema(fresh, fresh_schema, tmp_path):
    """A table that is in the way stands for any failure in the middle."""
    build(fresh, 2)
    ask(fresh, "CREATE TABLE message (id BIGINT)")
    before = schema(fresh)
    with pytest.raises(DibsError):
        open_space(fresh, "new", tmp_path)
    assert schema(fresh) == before
    ask(fresh, "DROP TABLE message")
    open_space(fresh, "new", tmp_path).close()
    assert schema(fresh) == fresh_schema


def test_a_newer_schema_is_refused_and_left_alone(fresh, tmp_path):
    open_space(fresh, "new", tmp_path).close()
    newer = NUMBERS[-1] + 1
    if is_postgres(fresh):
        ask(fresh, f"INSERT INTO migration (version) VALUES ({newer})")
    else:
        ask(fresh, f"PRAGMA user_version={newer}")
    before = schema(fresh), contents(fresh, tables(fresh))
    with pytest.raises(UnfitError, match="newer dibs") as refused:
        open_space(fresh, "new", tmp_path)
    assert refused.value.details == {"schema": newer, "known": NUMBERS[-1]}
    assert refused.value.next == "upgrade agent-dibs"
    assert (schema(fresh), contents(fresh, tables(fresh))) == before
