"""Named queries, read from the `.sql` files beside this module.

One text serves both databases. `:name` marks a parameter, and `:names...` a list of
them, of which a query has at most one.
"""

from __future__ import annotations

import os
import re
from operator import itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HERE = os.path.join(os.path.dirname(__file__), "sql")
_HEAD = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)(\.\.\.)?")


class Query:
    """One statement: its text, and the names of the columns it answers with."""

    __slots__ = ("_compiled", "_list", "_names", "_text", "_values", "columns", "name")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.columns: tuple[str, ...] | None = None
        self._text = text
        self._names: list[str] = []
        self._list: str | None = None
        # The parameters are found at the first use: a command uses few of the queries it loads.
        self._values: Callable[[dict[str, Any]], tuple[Any, ...]] = self._parse
        self._compiled: dict[object, str] = {}

    def bind(self, database: str, parameters: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        """The text as that database takes it, and the values in the order of its numbers.

        It is made once per length of its list, whose elements have numbers of their own.
        """
        text = self._compiled.get(database)
        values = self._values(parameters)
        if text is not None:
            return text, values
        shape: object = database
        if self._list is not None:
            items = parameters[self._list]
            values = (*values, *items)
            shape = (database, len(items))
        return self._compiled.get(shape) or self._compile(database, shape, len(values)), values

    def _parse(self, parameters: dict[str, Any]) -> tuple[Any, ...]:
        found = dict.fromkeys(_PARAMETER.findall(self._text))
        self._names = [name for name, many in found if not many]
        self._list = next((name for name, many in found if many), None)
        self._values = picker(self._names)
        return self._values(parameters)

    def _compile(self, database: str, shape: object, values: int) -> str:
        mark = "$" if database == "postgres" else "?"
        numbers = [f"{mark}{number}" for number in range(1, values + 1)]
        marks = dict(zip(self._names, numbers, strict=False))
        # An empty list matches nothing, on both databases.
        marks[f"{self._list}..."] = ", ".join(numbers[len(self._names) :]) or "NULL"
        text = self._compiled[shape] = _PARAMETER.sub(lambda found: marks[found[0][1:]], self._text)
        return text


def picker(names: list[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """What picks the values of these names, in their order."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda parameters: tuple([parameters[name] for name in names])


class Queries:
    """The queries of one `.sql` file, as attributes."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._queries: dict[str, Query] | None = None

    def load(self) -> dict[str, Query]:
        if self._queries is None:
            with open(os.path.join(HERE, self._file + ".sql"), encoding="utf-8") as source:
                _, *parts = _HEAD.split(source.read())
            queries: dict[str, Query] = {}
            for name, body in zip(parts[::2], parts[1::2], strict=True):
                lines = [line for line in body.splitlines() if not line.startswith("--")]
                queries[name] = Query(name, "\n".join(lines).strip().removesuffix(";"))
            self._queries = queries
        return self._queries

    def __getattr__(self, name: str) -> Query:
        try:
            query = self.load()[name]
        except KeyError:
            raise AttributeError(f"{self._file}.sql has no query named {name}") from None
        setattr(self, name, query)
        return query


def migrations() -> list[tuple[int, str, str]]:
    """All migrations in order: number, name, text."""
    folder = os.path.join(HERE, "migrations")
    found = []
    for file in sorted(os.listdir(folder)):
        number, _, name = file.removesuffix(".sql").partition("_")
        with open(os.path.join(folder, file), encoding="utf-8") as source:
            found.append((int(number), name, source.read()))
    return found
