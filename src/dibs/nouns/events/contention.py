"""Who waited for whom in a period, and what would have avoided the waiting.

    path      what one agent waited for while another blocked it. The whole wait counts for each
              such path; if the journal does not say which paths were blocked (events of an older
              release), it counts for all paths of the wait.
    pair      a wait counts once for each agent that blocked it when it began.
    split     the waits that only this path blocked: if it had been split, so that nobody else
              wanted this part of it, they would not have happened.
    order     the waits that only one other task blocked: if the task that waited had been added
              with `after` that one, it would not have been started before.

Both savings assume that nothing else would have blocked meanwhile, that everybody would have held
their leases as long as they did, and, for an order, that the waiting agent had other work. They
overlap, and cannot be added up. Percentiles are by nearest rank, and exact.
"""

from __future__ import annotations

from array import array

from dibs.records import Pair, Saving, Waits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.nouns.events.history import Open

KEPT = 50_000
"""How many paths, pairs and orders are kept apart; later ones count only in the total."""


class Meetings:
    """All waits of a period."""

    def __init__(self) -> None:
        self.ended = {"served": 0, "gave_up": 0}
        self._all = array("q")
        self._paths: dict[str, array[int]] = {}
        self._pairs: dict[tuple[str, ...], list[int]] = {}
        self._splits: dict[str, list[int]] = {}
        self._orders: dict[tuple[str, str], list[int]] = {}
        self._met_on: dict[tuple[str, str], str] = {}
        """The first path that two tasks both wanted."""
        self.full = False
        """Whether there were too many paths, pairs or orders."""

    def count(
        self, name: str, at: int, agent: str | None, task: str | None, paths: tuple[str, ...]
    ) -> None:
        if name in self.ended:
            self.ended[name] += 1

    def spend(self, name: str, began: int, ended: int, what: Open) -> None:
        """Only waits are of interest."""

    def use(self, at: int, agent: str | None, task: str | None, said: dict[str, Any]) -> None:
        """Only waits are of interest."""

    def wait(self, began: int, ended: int, ticket: Open) -> None:
        took = ended - began
        self._all.append(took)
        blocked = tuple(ticket.behind) or ticket.paths
        for path in blocked:
            if path in self._paths or self._has_room(self._paths):
                self._paths.setdefault(path, array("q")).append(took)
        met = {one for some in ticket.behind.values() for one in some}
        for agent in {agent for agent, _ in met}:
            self._add(self._pairs, tuple(sorted((ticket.agent or "", agent))), took)
        if len(ticket.behind) == 1:
            self._add(self._splits, blocked[0], took)
        tasks = {task for _, task in met}
        first = next(iter(tasks)) if len(tasks) == 1 else None
        if first is not None and ticket.task not in (None, first):
            order = first, ticket.task or ""
            self._add(self._orders, order, took)
            if order in self._orders:
                self._met_on.setdefault(order, blocked[0])

    def _add(self, sums: dict[Any, list[int]], key: Any, took: int) -> None:
        if key in sums or self._has_room(sums):
            found = sums.setdefault(key, [0, 0])
            found[0] += 1
            found[1] += took

    def _has_room(self, kept: dict[Any, Any]) -> bool:
        if len(kept) < KEPT:
            return True
        self.full = True
        return False

    @property
    def total(self) -> Waits:
        return waits(None, self._all)

    @property
    def path_count(self) -> int:
        return len(self._paths)

    def paths(self, limit: int) -> tuple[Waits, ...]:
        found = sorted(self._paths.items(), key=lambda one: (-sum(one[1]), -len(one[1]), one[0]))
        return tuple(waits(path, took) for path, took in found[:limit])

    def pairs(self, limit: int) -> tuple[Pair, ...]:
        found = sorted(self._pairs.items(), key=lambda one: (-one[1][0], -one[1][1], one[0]))
        return tuple(
            Pair(agents=agents, meets=sums[0], waited_ms=sums[1]) for agents, sums in found[:limit]
        )

    def splits(self, limit: int) -> tuple[Saving, ...]:
        return tuple(saving("split", path, (), sums) for path, sums in most(self._splits, limit))

    def orders(self, limit: int) -> tuple[Saving, ...]:
        return tuple(
            saving("order", self._met_on[tasks], tasks, sums)
            for tasks, sums in most(self._orders, limit)
        )


def most(savings: dict[Any, list[int]], limit: int) -> list[tuple[Any, list[int]]]:
    """The arrangements that would have saved the most time, without those that save none."""
    some = [one for one in savings.items() if one[1][1]]
    return sorted(some, key=lambda one: (-one[1][1], -one[1][0], one[0]))[:limit]


def saving(how: str, path: str, tasks: tuple[str, ...], sums: list[int]) -> Saving:
    return Saving(how=how, path=path, tasks=tasks, waits=sums[0], saved_ms=sums[1])


def waits(what: str | None, took: array[int]) -> Waits:
    ordered = sorted(took)
    return Waits(
        what=what,
        waits=len(ordered),
        waited_ms=sum(ordered),
        p50_ms=percentile(ordered, 50),
        p90_ms=percentile(ordered, 90),
        p99_ms=percentile(ordered, 99),
        max_ms=ordered[-1] if ordered else 0,
    )


def percentile(ordered: list[int], percent: int) -> int:
    """The smallest value that this many percent of them do not exceed; 0 if there are none."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0
