"""The account that a report gives of a period: sums by agent, task, path or day.

Everything counts once in the total and once in its group; a wait for several paths counts for each
of them. Time goes to the days in which it passed, everything else to the day of its event. What
belongs to no agent, task or path is in the group None.
"""

from __future__ import annotations

from dibs.records import Tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.nouns.events.history import Open

GROUPS = 50_000
"""How many groups are kept apart; further ones are added to the rest."""
DAY_MS = 86_400_000
NAMES = Tally._fields[1:]
PLACES = {name: place for place, name in enumerate(NAMES)}
NOTHING: tuple[Any, ...] = tuple(getattr(Tally, name) for name in NAMES)
USED = (
    ("input_tokens", ("input_tokens",)),
    ("output_tokens", ("output_tokens",)),
    ("cache_tokens", ("cache_read_tokens", "cache_creation_tokens")),
    ("cost_usd", ("cost_usd",)),
)
"""What sessions use, with its name in `session.used`."""


class Sums:
    """The sums of a period."""

    def __init__(self, by: str, east_ms: int = 0) -> None:
        """
        by: agent, task, path or day
        east_ms: the time zone in which days are counted, in milliseconds ahead of UTC
        """
        self._by = by
        self._east_ms = east_ms
        self.total = [*NOTHING]
        self.groups: dict[str | int | None, list[Any]] = {}
        self.rest: list[Any] | None = None

    def _of(self, key: str | int | None) -> list[Any]:
        found = self.groups.get(key)
        if found is None:
            if len(self.groups) >= GROUPS:
                self.rest = self.rest or [*NOTHING]
                return self.rest
            found = self.groups[key] = [*NOTHING]
        return found

    def _day(self, at: int) -> int:
        return (at + self._east_ms) // DAY_MS

    def _keys(
        self, at: int, agent: str | None, task: str | None, paths: Sequence[str]
    ) -> Sequence[str | int | None]:
        if self._by == "agent":
            return (agent,)
        if self._by == "task":
            return (task,)
        if self._by == "path":
            return paths or (None,)
        return (self._day(at),)

    def _add(
        self,
        name: str,
        at: int,
        agent: str | None,
        task: str | None,
        paths: Sequence[str],
        number: Any = 1,
    ) -> None:
        place = PLACES[name]
        self.total[place] += number
        for key in self._keys(at, agent, task, paths):
            self._of(key)[place] += number

    def count(
        self, name: str, at: int, agent: str | None, task: str | None, paths: tuple[str, ...]
    ) -> None:
        self._add(name, at, agent, task, paths)
        if name == "passed":
            self._add("avoided", at, agent, task, paths)

    def spend(self, name: str, began: int, ended: int, what: Open) -> None:
        if self._by != "day":
            self._add(name, began, what.agent, what.task, what.paths, ended - began)
            return
        while began < ended:
            midnight = (self._day(began) + 1) * DAY_MS - self._east_ms
            until = min(ended, midnight)
            self._add(name, began, what.agent, what.task, what.paths, until - began)
            began = until

    def wait(self, began: int, ended: int, ticket: Open) -> None:
        self.spend("waited_ms", began, ended, ticket)
        if ticket.counts:
            for name in ("waits", "avoided"):
                self._add(name, began, ticket.agent, ticket.task, ticket.paths)

    def use(self, at: int, agent: str | None, task: str | None, said: dict[str, Any]) -> None:
        for name, parts in USED:
            number = sum(said.get(part) or 0 for part in parts)
            if number:
                self._add(name, at, agent, task, (), number)

    def tallies(self, limit: int) -> tuple[tuple[Tally, ...], Tally | None]:
        """The largest groups, days in their order; and the sum of all others."""
        groups = sorted(self.groups.items(), key=self._order)
        if self._by == "day" and limit < len(groups):
            groups = groups[len(groups) - limit :] + groups[: len(groups) - limit]
        rest = [self.rest] if self.rest is not None else []
        rest += [sums for _, sums in groups[limit:]]
        shown = tuple(tally(self._name(key), sums) for key, sums in groups[:limit])
        return shown, tally(None, [sum(some) for some in zip(*rest, strict=True)]) if rest else None

    def _order(self, group: tuple[str | int | None, list[Any]]) -> Any:
        key, sums = group
        if self._by == "day":
            return key
        times = sum(sums[PLACES[name]] for name in ("worked_ms", "held_ms", "waited_ms"))
        return key is None, -sums[PLACES["done"]], -times, str(key)

    def _name(self, key: str | int | None) -> str | None:
        return day_name(key) if isinstance(key, int) else key


def tally(key: str | None, sums: Sequence[Any]) -> Tally:
    found = dict(zip(NAMES, sums, strict=True))
    # Each amount has at most six decimal places, so a sum with six is exact.
    found["cost_usd"] = round(found["cost_usd"], 6)
    return Tally(key=key, **found)


def day_name(day: int) -> str:
    """The date of a day, counted from 1970-01-01."""
    from datetime import date, timedelta

    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()
