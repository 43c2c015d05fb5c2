"""Stores as earlier releases left them: some of the migrations, and a space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apsw
import psycopg

from dibs.storage.prepare import migrate
from dibs.storage.queries import Query, migrations
from dibs.storage.store import SPACE

if TYPE_CHECKING:
    from dibs.storage.driver import Driver

WITHOUT_COUNTER = 9
"""The migration that took the counter out of the space's row."""


def make_old(driver: Driver, space: str, key_check: str, schema: int) -> None:
    """Make the database as a release with that many migrations would have."""
    create = SPACE.create
    if schema < WITHOUT_COUNTER:
        create = Query(
            "create_with_counter",
            "INSERT INTO space (id, name, seq, pruned_seq, restored_seq, boot, time_namespace,"
            " clock_offset, store_time, wall_time, key_check, created_at)"
            " VALUES (1, :name, 0, 0, 0, '', '', 0, :wall, :wall, :key_check, :wall)",
        )
    connection = driver.take()
    try:
        connection.begin_setup()
        migrate(driver, connection, migrations()[:schema])
        row = {"name": space, "key_check": key_check, "wall": driver.clock.wall()}
        connection.run(create, row)
        connection.commit(set(), 0)
    finally:
        driver.give_back(connection)


def ask(url: str, text: str) -> list[tuple[Any, ...]]:
    """Look into a database, or change it, without dibs."""
    if url.startswith("postgresql://"):
        with psycopg.connect(url, options="-c search_path=dibs") as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []
    database = apsw.Connection(url)
    try:
        return database.execute(text).fetchall()
    finally:
        database.close()
