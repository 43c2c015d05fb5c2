"""Which events a reader wants: by kind, agent, subject, task and path.

Columns are filtered by the database. How an event relates to a task or a path depends on the
event's data and on the rules of names, so that is decided here, on the rows from the database.
"""

from __future__ import annotations

from dibs.names.paths import ancestors, named, resources_overlap, split_base
from dibs.records import Event, iso, to_text
from dibs.storage.queries import Queries
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dibs.names.paths import Place, Resource
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Read

EVENTS = Queries("events")
BATCH = 10_000
"""How many events are read at once at most."""


class Filter:
    """The events that a reader wants.

    task: events about a task, or whose data name it, such as those of its leases
    path: events about leases that overlap with it
    """

    def __init__(
        self,
        place: Place,
        kind: str | None,
        agent: str | None,
        subject: str | None,
        task: str | None,
        path: str | None,
    ) -> None:
        self._asked: Row = {
            "kind": kind,
            "kind_low": f"{kind}.",
            "kind_high": f"{kind}/",
            "agent": agent,
            "subject": subject,
            "task": task,
            "said": task and f'"task":{to_text(task)}',
            **around(None),
        }
        about = task is not None or path is not None
        self._forward = EVENTS.since_about if about else EVENTS.since
        self._backward = EVENTS.latest_about if about else EVENTS.latest
        self._tests: list[Callable[[Row], bool]] = []
        if task is not None:
            self._task = task
            self._tests.append(self._is_for_task)
        if path is not None:
            self._path = place.resource(path)
            self._asked |= around(self._path)
            self._known: dict[tuple[str, str], bool] = {}
            self._tests.append(self._overlaps)

    def first(self, tx: Read, after: int, upto: int, limit: int) -> list[Event]:
        """The first of them after a seq, up to another, in order."""
        found: list[Event] = []
        for number in batches(limit):
            rows = self._rows(tx, self._forward, after, upto, number)
            found += self._wanted(rows)
            if len(rows) < number or len(found) >= limit:
                break
            after = rows[-1]["seq"]
        return found[:limit]

    def last(self, tx: Read, after: int, upto: int, limit: int) -> list[Event]:
        """The last of them, in order."""
        found: list[Event] = []
        for number in batches(limit):
            rows = self._rows(tx, self._backward, after, upto, number)
            found += self._wanted(rows)
            if len(rows) < number or len(found) >= limit:
                break
            upto = rows[-1]["seq"] - 1
        return found[:limit][::-1]

    def _rows(self, tx: Read, query: Query, after: int, upto: int, limit: int) -> list[Row]:
        return tx.rows(query, after=after, upto=upto, limit=limit, **self._asked)

    def _wanted(self, rows: list[Row]) -> list[Event]:
        return [
            Event.of(row, data=from_text(row["data"]), time=iso(row["at"]))
            for row in rows
            if all(test(row) for test in self._tests)
        ]

    def _is_for_task(self, row: Row) -> bool:
        if row["kind"].startswith("task."):
            return bool(row["subject"] == self._task)
        said = from_text(row["data"])
        return isinstance(said, dict) and said.get("task") == self._task

    def _overlaps(self, row: Row) -> bool:
        # Events say which names are directories; all others are files.
        kind = "dir" if '"kind":"dir"' in (row["data"] or "") else "file"
        key = row["subject"], kind
        if key not in self._known:
            self._known[key] = resources_overlap(self._path, named(*key))
        return self._known[key]


def batches(limit: int) -> Iterator[int]:
    """How many events to read at once: more and more, if hardly any match."""
    while True:
        yield limit
        limit = max(limit, min(limit * 4, BATCH))


def around(path: Resource | None) -> Row:
    """The names of leases that may overlap with a path, except patterns, as the queries need it.

    What a store calls `path:a*b` is a file with exactly that name.
    """
    if path is None:
        return dict.fromkeys(("low", "high", "forced_low", "forced_high")) | {"above": ("",)}
    if path.kind == "name":
        return dict.fromkeys(("low", "high", "forced_low", "forced_high"), path.text) | {
            "above": (path.text,)
        }
    label, key = split_base(path.base)
    front = f"{label}/" if label else ""
    above = [name[1:] or "." for name in ancestors(key)]
    top = key[1:]
    ends = (f"{top}/", f"{top}0") if top else ("", "\U0010ffff")
    return {
        "above": [f"{front}{forced}{name}" for forced in ("", "path:") for name in above],
        "low": f"{front}{ends[0]}",
        "high": f"{front}{ends[1]}",
        "forced_low": f"{front}path:{ends[0]}",
        "forced_high": f"{front}path:{ends[1]}",
    }
