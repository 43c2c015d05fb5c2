"""`work.plan`: how much of the open work can be done in parallel, and what prevents more.

Everything is read in one transaction and computed afterwards. A task is assumed to take as long
as recent tasks of its kind, as far as the journal remembers; otherwise every task takes one step.
"""

from __future__ import annotations

from statistics import median_low

from dibs.names.paths import Resource
from dibs.nouns.leases import grants
from dibs.nouns.work.crossing import Crossing
from dibs.nouns.work.landings import LANDING, is_parked
from dibs.nouns.work.simulation import Node, Simulation
from dibs.nouns.work.tasks import WORK, as_of
from dibs.records import Bundle, Load, PlannedTask, Stuck, WorkPlan
from dibs.storage.queries import Queries
from dibs.storage.store import Read, from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.storage.driver import Row

EVENTS = Queries("events")
MOST = 20_000
"""How many tasks are looked at; if there are more, the plan covers the oldest."""
LOOKED_BACK = 2_000
"""How many events to search for how long tasks have taken."""
ENOUGH = 3
"""How many recent tasks of a kind say how long it takes."""
NAMED = 20
"""How many examples of each finding are named."""
MOMENTS = 60


class Facts:
    """What is read for a plan, at one moment."""

    def __init__(self, tx: Read) -> None:
        self.now = tx.now
        self.counts = {row["state"]: row["number"] for row in tx.rows(WORK.counts)}
        rows = tx.rows(WORK.open, limit=MOST + 1)
        self.cut = len(rows) > MOST
        now = [as_of(row, tx.now) for row in rows[:MOST]]
        self.rows = [row for row in now if row["state"] != "dead"]
        self.ended = {row["needs"]: row["state"] for row in tx.rows(WORK.not_open)}
        self.leases = tx.rows(grants.LEASES.all, now=tx.now, agent=None, session=None, limit=MOST)
        self.able = [
            frozenset[str](from_text(row["tags"]))
            for row in tx.rows(WORK.abilities)
            if tx.store.alive(row, tx.now)
        ]
        given = {"after": 0, "upto": grants.LAST, "kind": "task", "agent": None, "subject": None}
        low_high = {"kind_low": "task.", "kind_high": "task/"}
        self.events = tx.rows(EVENTS.latest, limit=LOOKED_BACK, **given, **low_high)

    def can(self, tags: tuple[str, ...]) -> bool:
        """Whether somebody present can do all of this."""
        return any(able.issuperset(tags) for able in self.able)


def plan(facts: Facts, agents: int | None, limit: int) -> WorkPlan:
    """Make the plan.

    agents: how many agents the plan is for; None for as many as find work
    limit: the maximum number of tasks in it
    """
    known = durations(facts)
    nodes = nodes_of(facts, known)
    held = [grants.resource_of(row) for row in facts.leases if row["task"] not in nodes]
    met: dict[tuple[str, str], bool] = {}
    stuck = stuck_of(nodes, facts)
    free = Simulation(nodes, held, known=met, never=stuck)
    real = free if agents is None else Simulation(nodes, held, agents, met, stuck)
    path = critical(nodes, free.starts)
    busy_now = free.busy[0][1] if free.busy else 0
    shares = Sharing(nodes, met)
    groups = shares.groups()
    listed = sorted(nodes.values(), key=lambda one: listing_order(one, stuck, free.starts))
    return WorkPlan(
        counts=facts.counts,
        agents=agents,
        busy_now=busy_now,
        busy_most=max((number for _, number in free.busy), default=0),
        busy=moments(real.busy),
        length=real.length,
        unit="ms" if known else "step",
        critical=tuple(node.id for node in path),
        critical_length=sum(node.lasts for node in path),
        groups=tuple(groups[:NAMED]),
        group_count=len(groups),
        exclusions=tuple(shares.exclusions()),
        waiting_now=waiting(free),
        openers=openers(nodes, stuck),
        stuck=tuple(stuck.values())[:limit],
        stuck_count=len(stuck),
        tasks=tuple(planned(node, stuck, free) for node in listed[:limit]),
        open_count=len(nodes),
        cut=facts.cut or free.cut or real.cut or shares.cut,
    )


def durations(facts: Facts) -> dict[str, int]:
    """How many milliseconds tasks of each kind have taken lately; "*" for all of them."""
    began: dict[tuple[str, int], int] = {}
    took: dict[str, list[int]] = {}
    kinds = {row["id"]: row["kind"] for row in facts.rows}
    for event in reversed(facts.events):
        data = from_text(event["data"]) or {}
        key = event["subject"], data.get("epoch", 0)
        if event["kind"] == "task.claimed":
            began[key] = event["at"]
        elif event["kind"] == "task.added":
            kinds[event["subject"]] = data.get("kind", "")
        elif event["kind"] in ("task.completed", "task.handed_in") and key in began:
            lasted = max(1, event["at"] - began.pop(key))
            for kind in {"*", kinds.get(event["subject"], "*")}:
                took.setdefault(kind, []).append(lasted)
    return {kind: median_low(some) for kind, some in took.items() if len(some) >= ENOUGH}


def nodes_of(facts: Facts, known: dict[str, int]) -> dict[str, Node]:
    usual = known.get("*", 1)
    parts: dict[str, list[str]] = {}
    leases: dict[str, list[Resource]] = {}
    for row in facts.rows:
        if row["parent"] is not None:
            parts.setdefault(row["parent"], []).append(row["id"])
    for row in facts.leases:
        if row["task"] is not None:
            leases.setdefault(row["task"], []).append(grants.resource_of(row))
    return {row["id"]: node_of(row, facts, parts, leases, known, usual) for row in facts.rows}


def node_of(
    row: Row,
    facts: Facts,
    parts: dict[str, list[str]],
    leases: dict[str, list[Resource]],
    known: dict[str, int],
    usual: int,
) -> Node:
    id, group = row["id"], bool(row["with_children"])
    state, due = row["state"], row["due"]
    needs: list[str] = from_text(row["needs"]) if state == "blocked" else []
    handed_in = state == "blocked" and row["landing"] is not None
    if is_parked(row):
        needs = [row["landing"]] if handed_in else []
    told: list[list[str]] = from_text(row["declared"]) or []
    declared = {text: Resource(text, kind, base) for text, kind, base in told}
    left = 0
    if state == "claimed":
        declared |= {one.text: one for one in leases.get(id, ())}
    elif due is not None:
        left = max(0, due - facts.now)
    return Node(
        id,
        state,
        title=row["title"],
        kind=row["kind"],
        priority=row["priority"],
        number=row["number"],
        agent=row["agent"],
        tags=tuple(from_text(row["tags"])),
        # A completed task blocks nobody; one that is missing, or will not complete, does.
        needs=[
            *(need for need in needs if facts.ended.get(need, "") != "completed"),
            *(parts.get(id, ()) if group else ()),
        ],
        resources=declared.values(),
        later=(left if known else 1) if left else 0,
        lasts=0 if group or handed_in else known.get(row["kind"], usual),
    )


def stuck_of(nodes: dict[str, Node], facts: Facts) -> dict[str, Stuck]:
    """The tasks that will not start by themselves, and why, by id."""
    found: dict[str, Stuck] = {}
    asking = {row["id"] for row in facts.rows if is_parked(row) and row["landing"] is None}
    for node in nodes.values():
        missing = [need for need in node.needs if facts.ended.get(need, "") is None]
        ended = [need for need in node.needs if facts.ended.get(need) in ("dead", "cancelled")]
        if node.id in asking:
            found[node.id] = Stuck(task=node.id, why="person", by=())
        elif missing or ended:
            why, by = ("missing", missing) if missing else ("ended", ended)
            found[node.id] = Stuck(task=node.id, why=why, by=tuple(by))
        elif node.tags and waits_for_somebody(node) and not facts.can(node.tags):
            here = frozenset[str]().union(*facts.able)
            lacks = [tag for tag in node.tags if tag not in here] or node.tags
            found[node.id] = Stuck(task=node.id, why="tags", by=tuple(lacks))
    for cycle in cycles(nodes):
        for id in cycle:
            found[id] = Stuck(task=id, why="cycle", by=tuple(cycle))
    return found


def waits_for_somebody(node: Node) -> bool:
    """Whether somebody present must take it; a conductor for a landing may still come."""
    return node.state != "claimed" and node.kind != LANDING


def cycles(nodes: dict[str, Node]) -> list[list[str]]:
    """Tasks that wait for each other, each cycle once."""
    left = {id: sum(need in nodes for need in node.needs) for id, node in nodes.items()}
    after: dict[str, list[str]] = {}
    for id, node in nodes.items():
        for need in node.needs:
            after.setdefault(need, []).append(id)
    front = [id for id, number in left.items() if not number]
    while front:
        for id in after.get(front.pop(), ()):
            left[id] -= 1
            if not left[id]:
                front.append(id)
    # Each remaining task waits for another one of them, so following that leads round a cycle.
    rest = {id for id, number in left.items() if number}
    found: list[list[str]] = []
    seen: set[str] = set()
    for first in nodes:
        way: dict[str, int] = {}
        here = first if first in rest else ""
        while here and here not in seen:
            seen.add(here)
            way[here] = len(way)
            here = next(need for need in nodes[here].needs if need in rest)
        if here in way:
            found.append(list(way)[way[here] :])
    return found


def critical(nodes: dict[str, Node], starts: dict[str, int]) -> list[Node]:
    """The longest chain of tasks that wait for each other, of those that can be done."""
    longest: dict[str, int] = {}
    before: dict[str, str | None] = {}
    # What another waits for starts earlier, or at the same time if it takes no time.
    for id in starts:
        needs = [need for need in nodes[id].needs if need in longest]
        last = max(needs, key=lambda need: longest[need], default=None)
        before[id] = last
        longest[id] = nodes[id].lasts + (longest[last] if last else 0)
    here = max(longest, key=lambda id: longest[id], default=None)
    path: list[Node] = []
    while here is not None:
        path.append(nodes[here])
        here = before[here]
    return path[::-1]


class Sharing:
    """Which tasks exclude each other, and which are independent."""

    def __init__(self, nodes: dict[str, Node], known: dict[tuple[str, str], bool]) -> None:
        self._users: dict[Resource, list[str]] = {}
        self._above = {id: id for id in nodes}
        for node in nodes.values():
            for need in node.needs:
                if need in nodes:
                    self._join(node.id, need)
            for resource in node.resources:
                self._users.setdefault(resource, []).append(node.id)
        self._crossing = Crossing(known)
        self._met: dict[Resource, list[Resource]] = {one: [] for one in self._users}
        for resource, ids in self._users.items():
            for id in ids[1:]:
                self._join(ids[0], id)
            for other in self._crossing.meeting(resource):
                self._join(ids[0], self._users[other][0])
                self._met[resource].append(other)
                self._met[other].append(resource)
            self._crossing.add(resource)

    @property
    def cut(self) -> bool:
        return self._crossing.cut

    def exclusions(self) -> list[Bundle]:
        """What several tasks will change, those with the most tasks first."""
        number = {
            one: len(ids) + sum(len(self._users[other]) for other in self._met[one])
            for one, ids in self._users.items()
        }
        seen: set[frozenset[str]] = set()
        found = []
        for resource in sorted(number, key=lambda one: -number[one])[: NAMED * 10]:
            several = (resource, *self._met[resource])
            ids = list(dict.fromkeys(id for one in several for id in self._users[one]))
            if len(ids) > 1 and (same := frozenset(ids)) not in seen:
                seen.add(same)
                found.append(bundle(resource.text, ids))
        return found[:NAMED]

    def groups(self) -> list[Bundle]:
        """The tasks that depend on or exclude each other, the largest group first."""
        found: dict[str, list[str]] = {}
        for id in self._above:
            found.setdefault(self._top(id), []).append(id)
        return [bundle(ids[0], ids) for ids in sorted(found.values(), key=len, reverse=True)]

    def _top(self, id: str) -> str:
        above = self._above
        while above[id] != id:
            above[id] = above[above[id]]
            id = above[id]
        return id

    def _join(self, one: str, other: str) -> None:
        self._above[self._top(one)] = self._top(other)


def waiting(free: Simulation) -> tuple[Bundle, ...]:
    """What keeps ready tasks from starting now, what blocks the most first."""
    by: dict[str, list[str]] = {}
    for id, text in free.beside.items():
        by.setdefault(text, []).append(id)
    return most(by)


def openers(nodes: dict[str, Node], stuck: dict[str, Stuck]) -> tuple[Bundle, ...]:
    """The tasks that can be worked on now and that most others wait for, with these others."""
    by: dict[str, list[str]] = {}
    for node in nodes.values():
        for need in node.needs:
            if need in nodes and nodes[need].state != "blocked" and need not in stuck:
                by.setdefault(need, []).append(node.id)
    return most(by)


def most(by: dict[str, list[str]]) -> tuple[Bundle, ...]:
    found = sorted(by.items(), key=lambda item: -len(item[1]))[:NAMED]
    return tuple(bundle(what, ids) for what, ids in found)


def bundle(what: str, ids: list[str]) -> Bundle:
    return Bundle(what=what, tasks=tuple(ids[:NAMED]), number=len(ids))


def moments(busy: Sequence[tuple[int, int]]) -> tuple[Load, ...]:
    """How many are busy over time; with too many changes, the maximum of each interval."""
    if len(busy) <= MOMENTS:
        return tuple(Load(at=at, busy=number) for at, number in busy)
    step = -(-(busy[-1][0] + 1) // MOMENTS)
    most: dict[int, int] = {}
    for at, number in busy:
        most[at // step] = max(most.get(at // step, 0), number)
    return tuple(Load(at=place * step, busy=number) for place, number in most.items())


def listing_order(
    node: Node, stuck: dict[str, Stuck], starts: dict[str, int]
) -> tuple[int, int, tuple[int, int]]:
    """Stuck tasks come first, then the others by their start."""
    return (node.id not in stuck, starts.get(node.id, 1 << 62), node.rank)


def planned(node: Node, stuck: dict[str, Stuck], free: Simulation) -> PlannedTask:
    return PlannedTask(
        id=node.id,
        state=node.state,
        title=node.title,
        priority=node.priority,
        agent=node.agent if node.state == "claimed" else None,
        after=tuple(node.needs),
        declared=tuple(resource.text for resource in node.resources),
        starts_at=free.starts.get(node.id),
        lasts=node.lasts,
        stuck=stuck[node.id].why if node.id in stuck else None,
    )
