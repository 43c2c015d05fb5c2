"""Named queries, read from the `.sql` files beside this module.

One text serves both databases. `:name` marks a parameter, and `:names...` a list of parameters; a
query has at most one list. If the elements of a list are tuples, they are the rows of a `VALUES`,
whose columns both databases call column1, column2 and so on.
"""

from __future__ import annotations

import os
from _operator import itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HERE = os.path.join(os.path.dirname(__file__), "sql")
MIGRATIONS = os.path.join(HERE, "migrations")
_HEAD = "\n-- name: "
VALUES = "VALUES "
WRITING = ("INSERT", "UPDATE", "DELETE")
_LETTERS = "abcdefghijklmnopqrstuvwxyz_"
_LOADED: dict[str, dict[str, Query]] = {}
"""The queries of each file that has been read."""


class Query:
    """One statement: its text, and the names of its result columns."""

    __slots__ = ("_compiled", "_inserts", "_list", "_names", "_pieces", "_text", "_values",
                 "columns", "name", "writes")  # fmt: skip

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.columns: tuple[str, ...] | None = None
        self._text = text
        self.writes = False
        """Whether it changes rows; known once it has been bound."""
        self._pieces: list[str] = []
        self._names: list[str] = []
        self._list: str | None = None
        self._inserts = False
        # Parsed at the first use: a command uses few of the queries it loads.
        self._values: Callable[[dict[str, Any]], tuple[Any, ...]] = self._parse
        self._compiled: dict[object, str] = {}

    @property
    def text(self) -> str:
        """The statement without its comments."""
        lines = [line.strip() for line in self._text.split("\n") if not line.startswith("--")]
        # Short, since apsw hashes the whole text each time the statement is run.
        return " ".join(lines).strip().removesuffix(";")

    def named(self, cursor: Any) -> tuple[str, ...]:
        """The names of the columns, from a SQLite cursor at the first row."""
        self.columns = tuple([column[0] for column in cursor.get_description()])
        return self.columns

    def bind(self, database: str, parameters: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        """The text for that database, and the values in the order of its parameters.

        It is made once per length of its list, whose elements are numbered separately.
        """
        text = self._compiled.get(database)
        values = self._values(parameters)
        if text is not None:
            return text, values
        shape: object = database
        if self._list is not None:
            items = parameters[self._list]
            number, width = len(items), 0
            if items and isinstance(items[0], tuple):
                width = len(items[0])
                items = [value for row in items for value in row]
            shape = (database, number, width)
            values = (*values, *items)
            return self._compiled.get(shape) or self._compile(
                database, shape, len(values), width
            ), values
        return self._compile(database, shape, len(values)), values

    @property
    def inserts(self) -> bool:
        """Whether it only inserts a row."""
        if not self._pieces:
            self._take_apart()
        return self._inserts

    @property
    def table(self) -> str:
        """The table that it writes to."""
        if not self._pieces:
            self._take_apart()
        verb, *words = self._pieces[0].split(maxsplit=3)
        return words[0 if verb == "UPDATE" else 1]

    def bind_rows(self, database: str, rows: list[dict[str, Any]]) -> tuple[str, tuple[Any, ...]]:
        """The same for several rows of a query that `inserts`, in one statement."""
        values = tuple([value for row in rows for value in self._values(row)])
        shape = (database, len(rows))
        text = self._compiled.get(shape)
        if text is None:
            mark, step = marks_of(database), len(self._names)
            places = {name: place for place, name in enumerate(self._names, 1)}
            head, _, first = self._pieces[0].partition(VALUES)
            written = []
            for row in range(len(rows)):
                pieces = [first, *self._pieces[1:]]
                pieces[1::2] = [f"{mark}{places[name] + row * step}" for name in pieces[1::2]]
                written.append("".join(pieces))
            text = self._compiled[shape] = f"{head}{VALUES}{', '.join(written)}"
        return text, values

    def _parse(self, parameters: dict[str, Any]) -> tuple[Any, ...]:
        self._take_apart()
        return self._values(parameters)

    def _take_apart(self) -> None:
        text = self.text
        self._pieces = pieces(text)
        self.writes = text.startswith(WRITING)
        found = dict.fromkeys(self._pieces[1::2])
        self._names = [name for name in found if not name.endswith("...")]
        self._list = next((name[:-3] for name in found if name.endswith("...")), None)
        self._values = picker(self._names)
        first, last = self._pieces[0], self._pieces[-1]
        self._inserts = first.startswith("INSERT") and VALUES in first and last == ")"

    def _compile(self, database: str, shape: object, values: int, width: int = 0) -> str:
        mark = marks_of(database)
        numbers = [f"{mark}{number}" for number in range(1, values + 1)]
        marks = dict(zip(self._names, numbers, strict=False))
        listed = numbers[len(self._names) :]
        if width:
            rows = [listed[start : start + width] for start in range(0, len(listed), width)]
            listed = [f"({', '.join(row)})" for row in rows]
        # An empty list matches nothing, on both databases.
        marks[f"{self._list}..."] = ", ".join(listed) or "NULL"
        written = self._pieces.copy()
        written[1::2] = [marks[name] for name in written[1::2]]
        text = self._compiled[shape] = "".join(written)
        return text


def marks_of(database: str) -> str:
    """The sign before the number of a parameter."""
    return "$" if database == "postgres" else "?"


def pieces(text: str) -> list[str]:
    """A statement split at its parameters: text, parameter, text, parameter, …, text.

    A colon begins a parameter if letters follow it, and no letter, digit or other colon comes
    before it. By hand, since importing `re` takes longer.
    """
    first, *rest = text.split(":")
    found = [first]
    before = first[-1:]
    for part in rest:
        after = part.lstrip(_LETTERS)
        name = part[: len(part) - len(after)]
        if name and before not in (":", "_") and not before.isalnum():
            if after.startswith("..."):
                name, after = f"{name}...", after[3:]
            found += [name, after]
        else:
            found[-1] += f":{part}"
        before = part[-1:] or ":"
    return found


def picker(names: list[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """A function that picks the values of these names, in order."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda parameters: tuple([parameters[name] for name in names])


class Queries:
    """The queries of one `.sql` file, as attributes."""

    def __init__(self, file: str) -> None:
        self._file = file

    def load(self) -> dict[str, Query]:
        queries = _LOADED.get(self._file)
        if queries is None:
            queries = {}
            with open(os.path.join(HERE, self._file + ".sql"), encoding="utf-8") as source:
                _, *parts = source.read().split(_HEAD)
            for part in parts:
                name, _, text = part.partition("\n")
                queries[name] = Query(name, text)
            # If another thread has read it meanwhile, everybody uses that copy.
            queries = _LOADED.setdefault(self._file, queries)
        return queries

    def __getattr__(self, name: str) -> Query:
        try:
            query = self.load()[name]
        except KeyError:
            raise AttributeError(f"{self._file}.sql has no query named {name}") from None
        setattr(self, name, query)
        return query


def migrations() -> list[tuple[int, str, str]]:
    """All migrations in order: number, name, text."""
    found = []
    for file in sorted(os.listdir(MIGRATIONS)):
        number, _, name = file.removesuffix(".sql").partition("_")
        with open(os.path.join(MIGRATIONS, file), encoding="utf-8") as source:
            found.append((int(number), name, source.read()))
    return found


def newest_migration() -> int:
    """The number of the last one, without reading them all."""
    return int(max(os.listdir(MIGRATIONS)).partition("_")[0])
