"""What the swarms of a space may do, what they have spent, and whether they are to end.

All of it is in entries of the namespace `swarm`, so it holds for every supervisor of the space:

    limits   agents (at once), cost_usd (in all, or none), timed (whether there is a time limit)
    time     is there as long as that time has not passed: the entry's own time to live
    spent    cost_usd, as the agents have said it
    ending   how: drain (take no more tasks) or stop (end what runs); by, and why
    run      what a person need not say again to resume: the preset, the target

How many work at once is decided by leases, `swarm:slot:N`: who holds none starts no agent. What an
agent costs is known when it says so, at its end as a rule; so those that run when the limit is
reached may exceed it, and none is started after that.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dibs.errors import ConflictError, NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.dibs import Dibs

NAMESPACE = "swarm"
TASKS = "swarm.tasks"
"""Where each task has its log and what else is known of its attempts."""
MOST_AGENTS = 100
MOST_USD = 1e9


class Now(NamedTuple):
    """The limits, and how far they are used up.

    seconds: how much time is left, None for no limit
    ending: how the swarm is to end, "" if it is not
    """

    agents: int
    cost_usd: float | None
    spent_usd: float
    seconds: float | None
    ending: str
    why: str
    run: dict[str, Any]

    @property
    def exhausted(self) -> str:
        """Why no other agent may be started, "" if one may."""
        if self.ending:
            return self.why or f"it was told to {self.ending}"
        if self.cost_usd is not None and self.spent_usd >= self.cost_usd:
            return f"${self.spent_usd:.2f} of ${self.cost_usd:.2f} are spent"
        if self.seconds is not None and self.seconds <= 0:
            return "its time has passed"
        return ""


def now(space: Dibs) -> Now:
    """The limits as they are."""
    entries = {entry.key: entry for entry in space.state.list(NAMESPACE)}
    said = {
        key: entry.value if isinstance(entry.value, dict) else {} for key, entry in entries.items()
    }
    limits, ending = said.get("limits", {}), said.get("ending", {})
    seconds = None
    if limits.get("timed"):
        left = entries["time"].expires_in_ms if "time" in entries else 0
        seconds = (left or 0) / 1000
    agents = limits.get("agents")
    how = ending.get("how")
    return Now(
        agents=min(max(agents, 0), MOST_AGENTS) if isinstance(agents, int) else 1,
        cost_usd=dollars(limits.get("cost_usd")),
        spent_usd=dollars(said.get("spent", {}).get("cost_usd")) or 0.0,
        seconds=seconds,
        ending=how if how in ("drain", "stop") else "",
        why=str(ending.get("why", "")),
        run=said.get("run", {}),
    )


def dollars(value: object) -> float | None:
    """An amount that somebody has said, if it is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value <= MOST_USD else None


def declare(
    space: Dibs, agents: int | None, cost_usd: float | None, time_s: float, fresh: bool
) -> None:
    """Say what may be done from now on; what is not said stays as it is.

    fresh: no swarm runs, so that time and cost begin again
    """

    def said(was: dict[str, Any]) -> dict[str, Any]:
        value = {"agents": 1, "cost_usd": None, "timed": False} | ({} if fresh else was)
        value |= {"agents": agents} if agents is not None else {}
        value |= {"cost_usd": cost_usd} if cost_usd is not None else {}
        return value | ({"timed": True} if time_s else {})

    change(space, "limits", said)
    if fresh:
        space.state.set(NAMESPACE, "spent", {"cost_usd": 0.0}, force=True)
        forget(space, "time")
    if time_s:
        space.state.set(NAMESPACE, "time", {}, force=True, ttl_s=time_s)


def spend(space: Dibs, cost_usd: float) -> None:
    """Add what an agent has cost."""

    def more(was: dict[str, Any]) -> dict[str, Any]:
        return {"cost_usd": round((dollars(was.get("cost_usd")) or 0.0) + cost_usd, 6)}

    if cost_usd:
        change(space, "spent", more)


def change(space: Dibs, key: str, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Replace an entry by what becomes of it, whoever else does so at the same time."""
    while True:
        entry = space.state.get(NAMESPACE, key)
        was = entry.value if entry is not None and isinstance(entry.value, dict) else {}
        version = 0 if entry is None else entry.version
        try:
            space.state.set(NAMESPACE, key, changed(was), expected_version=version)
            return
        except ConflictError:
            continue  # another was faster; its change counts too


def end(space: Dibs, how: str, by: str, why: str = "") -> None:
    """Ask all supervisors to end."""
    value = {"how": how, "by": by, "why": why}
    space.state.set(NAMESPACE, "ending", value, force=True)


def forget(space: Dibs, key: str) -> None:
    try:
        space.state.delete(NAMESPACE, key)
    except NotFoundError:
        pass  # nobody had said anything
