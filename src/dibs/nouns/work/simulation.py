"""Who would be busy when, if every agent took the next task as soon as one fits.

The tasks are taken in the order of `next`: the highest priority first, the oldest first among
equals; a task that does not fit beside those that run is passed over. The simulation ignores that
a task which was passed over often gets its turn: that moves work, but hardly changes its amount.

A task that does not fit is put beside the resource that blocks it, and looked at again when that
is free; so a thousand tasks for one file cost no more than a thousand for a thousand files.
"""

from __future__ import annotations

from heapq import heappop, heappush

from dibs.nouns.work.crossing import Crossing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from dibs.names.paths import Resource

    Candidate = tuple[tuple[int, int], str, Resource | None]
    """Its rank, its id, and the resource that it was put beside."""


class Node:
    """A task that has not ended, as far as the plan needs it.

    needs: what it waits for; some of these may have ended
    later: how long until it may start, or until the pause after a failure ends
    lasts: how long it takes; 0 for a group, which is done when its last part is
    """

    __slots__ = ("agent", "id", "kind", "lasts", "later", "needs", "number", "priority",
                 "resources", "state", "tags", "title")  # fmt: skip

    def __init__(
        self,
        id: str,
        state: str = "available",
        *,
        title: str = "",
        kind: str = "",
        priority: int = 0,
        number: int = 0,
        agent: str | None = None,
        tags: tuple[str, ...] = (),
        needs: Iterable[str] = (),
        resources: Iterable[Resource] = (),
        later: int = 0,
        lasts: int = 1,
    ) -> None:
        self.id = id
        self.state = state
        self.title = title
        self.kind = kind
        self.priority = priority
        self.number = number
        self.agent = agent
        self.tags = tags
        self.needs = list(dict.fromkeys(needs))
        self.resources = list(resources)
        self.later = later
        self.lasts = lasts

    @property
    def rank(self) -> tuple[int, int]:
        return -self.priority, self.number


class Simulation:
    """What would happen from now on.

    starts: when each task would start; tasks that never can are left out
    busy: how many work, from which time on
    beside: for tasks that are ready now and do not fit, the resource that blocks them
    """

    def __init__(
        self,
        nodes: dict[str, Node],
        held: Iterable[Resource] = (),
        agents: int | None = None,
        known: dict[tuple[str, str], bool] | None = None,
        never: Container[str] = (),
    ) -> None:
        """
        held: what is held now, except for tasks
        agents: how many there are; None for as many as find work
        known: see `Crossing`
        never: tasks that nobody takes
        """
        self._nodes = nodes
        self._agents = agents
        self._never = never
        self._left = {id: len(node.needs) for id, node in nodes.items()}
        self._after: dict[str, list[str]] = {}
        for id, node in nodes.items():
            for need in node.needs:
                self._after.setdefault(need, []).append(id)
        self._crossing = Crossing(known)
        self._candidates: list[Candidate] = []
        self._parked: dict[str, list[Candidate]] = {}
        self._ends: list[tuple[int, int, str]] = []
        """What ends when: a task, its pause, or (None) what others hold."""
        self._working = 0
        self.now = 0
        self.starts: dict[str, int] = {}
        self.busy: list[tuple[int, int]] = []
        self.beside: dict[str, str] = {}
        self._held = list(held)
        self._run()

    @property
    def cut(self) -> bool:
        return self._crossing.cut

    @property
    def length(self) -> int:
        """How long until everything that can be done is done."""
        return self.busy[-1][0] if self.busy else 0

    def _run(self) -> None:
        shortest = min((node.lasts for node in self._nodes.values() if node.lasts), default=1)
        for resource in self._held:
            self._crossing.add(resource)
        if self._held:
            heappush(self._ends, (shortest, 0, ""))
        for node in self._nodes.values():
            if node.state == "claimed":
                self._start(node)
            elif not self._left[node.id]:
                self._open(node)
        while True:
            self._fill()
            if not self.busy or self.busy[-1][1] != self._working:
                self.busy.append((self.now, self._working))
            if not self._ends or self.cut:
                return
            self.now = self._ends[0][0]
            while self._ends and self._ends[0][0] == self.now:
                self._end(heappop(self._ends)[2])

    def _open(self, node: Node) -> None:
        """Everything that it waits for is done."""
        if node.id in self._never:
            return
        if node.later > self.now:
            heappush(self._ends, (node.later, node.number, node.id))
        else:
            heappush(self._candidates, (node.rank, node.id, None))

    def _fill(self) -> None:
        """Start what fits, in order."""
        while self._candidates and (self._agents is None or self._working < self._agents):
            _, id, beside = heappop(self._candidates)
            node = self._nodes[id]
            if not node.lasts:
                self.starts[id] = self.now
                self._done(id)
            elif found := self._in_the_way(node):
                heappush(self._parked.setdefault(found.text, []), (node.rank, id, found))
                if not self.now:
                    self.beside[id] = found.text
            else:
                self._start(node)
            # One after the other, until the resource is taken again.
            if beside is not None:
                self._look_beside(beside)

    def _in_the_way(self, node: Node) -> Resource | None:
        for resource in node.resources:
            if resource in self._crossing:
                return resource
            for other in self._crossing.meeting(resource):
                return other
        return None

    def _look_beside(self, resource: Resource) -> None:
        """Look at the first task put beside a resource, unless the resource is taken."""
        if resource not in self._crossing and self._parked.get(resource.text):
            heappush(self._candidates, heappop(self._parked[resource.text]))

    def _start(self, node: Node) -> None:
        self.starts[node.id] = self.now
        self._working += 1
        for resource in node.resources:
            self._crossing.add(resource)
        heappush(self._ends, (self.now + max(1, node.lasts), node.number, node.id))

    def _end(self, id: str) -> None:
        node = self._nodes.get(id)
        if node is not None and id not in self.starts:
            heappush(self._candidates, (node.rank, id, None))  # its pause has ended
            return
        resources = self._held if node is None else node.resources
        for resource in resources:
            self._crossing.remove(resource)
        for resource in resources:
            self._look_beside(resource)
        if node is not None:
            self._working -= 1
            self._done(id)

    def _done(self, id: str) -> None:
        for after in self._after.get(id, ()):
            self._left[after] -= 1
            if not self._left[after]:
                self._open(self._nodes[after])
