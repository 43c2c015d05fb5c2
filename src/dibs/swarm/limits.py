"""What the swarms of a space may do, what they have spent, and whether they should end.

All of it is in entries of the namespace `swarm`, so it applies to every supervisor of the space:

    limits   agents (at once), cost_usd and tokens (in total, or none), task_cost_usd (for each
             task, or none), timed (whether there is a time limit)
    time     exists until that time has passed: the entry's own time to live
    spent    cost_usd and tokens, as reported by the agents
    ending   how: drain (take no more tasks) or stop (end what runs); by whom, and why
    run      what a person need not repeat to resume: the preset, the target

Leases, `swarm:slot:N`, decide how many work at once: a worker without one starts no agent. The cost
of an agent is known when the agent reports it: a few seconds later if its client tells a daemon,
otherwise at its end. So agents that run when the limit is reached may exceed it, but no more are
started. The limit of a task ends its attempt, and the task is not retried.
"""

from __future__ import annotations

from typing import NamedTuple

from dibs.errors import ConflictError, NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.dibs import Dibs

NAMESPACE = "swarm"
TASKS = "swarm.tasks"
"""The namespace with the log of each task and what else is known about its attempts."""
MOST_AGENTS = 100
MOST_USD = 1e9
MOST_TOKENS = 10**15


class Now(NamedTuple):
    """The limits, and how much of them is used.

    seconds: how much time is left, None for no limit
    ending: how the swarm should end, "" if it should not
    """

    agents: int
    cost_usd: float | None
    spent_usd: float
    tokens: int | None
    used_tokens: int
    task_cost_usd: float | None
    seconds: float | None
    ending: str
    why: str
    run: dict[str, Any]

    @property
    def exhausted(self) -> str:
        """Why no further agent may be started; "" if one may."""
        if self.ending:
            return self.why or f"it was told to {self.ending}"
        if self.cost_usd is not None and self.spent_usd >= self.cost_usd:
            return f"${self.spent_usd:.2f} of ${self.cost_usd:.2f} is spent"
        if self.tokens is not None and self.used_tokens >= self.tokens:
            return f"{self.used_tokens:,} of {self.tokens:,} tokens are used"
        if self.seconds is not None and self.seconds <= 0:
            return "its time has passed"
        return ""


def now(space: Dibs) -> Now:
    """The current limits."""
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
        tokens=count(limits.get("tokens")),
        used_tokens=count(said.get("spent", {}).get("tokens")) or 0,
        task_cost_usd=dollars(limits.get("task_cost_usd")),
        seconds=seconds,
        ending=how if how in ("drain", "stop") else "",
        why=str(ending.get("why", "")),
        run=said.get("run", {}),
    )


def dollars(value: object) -> float | None:
    """A reported amount, if it is valid."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MOST_USD else None


def count(value: object) -> int | None:
    """A reported number, if it is valid."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def declare(
    space: Dibs,
    agents: int | None,
    cost_usd: float | None,
    time_s: float,
    fresh: bool,
    tokens: int | None = None,
    task_cost_usd: float | None = None,
) -> None:
    """Set limits; all others stay as they are.

    fresh: no swarm runs, so time and cost start again
    """

    def said(was: dict[str, Any]) -> dict[str, Any]:
        value = {"agents": 1, "cost_usd": None, "timed": False} | ({} if fresh else was)
        given = {"agents": agents, "cost_usd": cost_usd, "tokens": tokens}
        given["task_cost_usd"] = task_cost_usd
        value |= {name: one for name, one in given.items() if one is not None}
        return value | ({"timed": True} if time_s else {})

    change(space, "limits", said)
    if fresh:
        space.state.set(NAMESPACE, "spent", {"cost_usd": 0.0, "tokens": 0}, force=True)
        forget(space, "time")
    if time_s:
        space.state.set(NAMESPACE, "time", {}, force=True, ttl_s=time_s)


def spend(space: Dibs, cost_usd: float, tokens: int = 0) -> None:
    """Add what an agent has used. A sum above the maximum would not be valid, and count as none."""

    def more(was: dict[str, Any]) -> dict[str, Any]:
        spent_usd = round((dollars(was.get("cost_usd")) or 0.0) + cost_usd, 6)
        used = (count(was.get("tokens")) or 0) + tokens
        return {"cost_usd": min(spent_usd, MOST_USD), "tokens": min(used, MOST_TOKENS)}

    if cost_usd or tokens:
        change(space, "spent", more)


def change(space: Dibs, key: str, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Update an entry, even if others update it at the same time."""
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
        pass  # there was no such entry
