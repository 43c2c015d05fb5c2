"""Named queries, read from the `.sql` files beside this module.

One text serves both databases. `:name` marks a parameter and `:names...` a list of them.
Where the databases differ by necessity, a second version of a query follows the common
one under the same name and the database's word: `-- name: now [postgres]`.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HERE = os.path.join(os.path.dirname(__file__), "sql")
_HEAD = re.compile(r"^-- name: (\w+)(?: \[(\w+)\])?$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)(\.\.\.)?")


class Query:
    """One statement: its text by database, and the names of the columns it answers with."""

    __slots__ = ("_compiled", "_lists", "_texts", "columns", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.columns: tuple[str, ...] | None = None
        self._texts: dict[str, str] = {}
        self._lists: tuple[str, ...] = ()
        self._compiled: dict[object, str] = {}

    def add(self, text: str, database: str) -> None:
        self._texts[database] = text
        self._lists = tuple(name for name, many in _PARAMETER.findall(text) if many)

    def compiled(self, database: str, parameters: dict[str, Any]) -> str:
        """The text as that database's driver takes it, made once per length of its lists.

        Each element of a list parameter is given a name of its own.
        """
        shape: object = database
        if self._lists:
            shape = (database, *[self._spread(name, parameters) for name in self._lists])
        return self._compiled.get(shape) or self._compile(database, shape, parameters)

    def _spread(self, name: str, parameters: dict[str, Any]) -> int:
        values = parameters[name]
        for position, value in enumerate(values):
            parameters[f"{name}_{position}"] = value
        return len(values)

    def _compile(self, database: str, shape: object, parameters: dict[str, Any]) -> str:
        def parameter(match: re.Match[str]) -> str:
            name, many = match.groups()
            mark = "%({})s" if database == "postgres" else ":{}"
            if not many:
                return mark.format(name)
            # An empty list matches nothing, on both databases.
            names = [mark.format(f"{name}_{place}") for place in range(len(parameters[name]))]
            return ", ".join(names) or "NULL"

        source = self._texts.get(database) or self._texts[""]
        text = self._compiled[shape] = _PARAMETER.sub(parameter, source)
        return text


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
            for name, database, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
                lines = [line for line in body.splitlines() if not line.startswith("--")]
                text = "\n".join(lines).strip().removesuffix(";")
                queries.setdefault(name, Query(name)).add(text, database or "")
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
