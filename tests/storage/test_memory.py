"""The tables of an earlier moment in memory: they have all that the journal tells, in its order."""

from __future__ import annotations

import pytest

from dibs.storage.images import TABLES
from dibs.storage.sqlite_memory import FILLED, MEMORY, Memory


@pytest.mark.parametrize("name", FILLED)
def test_a_table_takes_the_columns_of_the_journal_in_their_order(name):
    columns = ("space", *TABLES[name].columns)
    numbers = dict(zip(columns, range(len(columns)), strict=True))
    text, values = getattr(MEMORY, name).bind("sqlite", numbers)
    assert list(values) == list(range(len(columns)))
    named = text[text.index("(") + 1 : text.index(")")].replace("\n", " ").split(",")
    told = [column.strip() for column in named]
    assert told[: len(columns)] == list(columns)
    there = {row[1] for row in Memory(0, 0).db.execute(f"PRAGMA table_info({name})")}
    assert there - {"signature"} == set(told) - {"signature"}
