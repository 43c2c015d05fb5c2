"""How tasks are added to the plan: their lanes, what they wait for, and cycles that are refused.

A lane holds the tasks of one kind and one set of tags, so that `next` finds the best one that
fits by looking at the head of each lane.
"""

from __future__ import annotations

from dibs.errors import ExistsError, InvalidError
from dibs.nouns.work.tasks import WORK, record_of, task_record
from dibs.records import called, to_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.records import Task
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Write

ATTEMPTS = 3
AT_ONCE = 1_000


class Adding:
    """Tasks that are added in one transaction, with everything needed from the store.

    The store is read once, for all of them; each task sees what earlier ones of the call added.
    """

    def __init__(self, tx: Write, scope: Scope, wanted: Sequence[Row]) -> None:
        """
        wanted: the arguments of `work.add` for each of the tasks
        """
        self._tx, self._scope = tx, scope
        self._states: dict[str, str] = {}
        self._lanes: dict[tuple[str, str], int] = {}
        self._needed: set[str] = set()
        """Tasks that others wait for; only these can close a cycle."""
        asked = questions(wanted)
        for (query, given), rows in zip(asked, tx.ask(asked), strict=True):
            for row in rows:
                if query is WORK.alone:
                    self._know_alone(given, row)
                elif query is WORK.states:
                    self._states[row["id"]] = row["state"]
                elif query is WORK.lane:
                    self._lanes[given["kind"], given["tags"]] = row["id"]
                else:
                    self._needed.add(row["needs"])
        self._needs: dict[str, Sequence[str]] = {}
        self._parents: dict[str, str | None] = {}

    def _know_alone(self, given: Row, row: Row) -> None:
        if row["state"] is not None:
            self._states[given["id"]] = row["state"]
        if row["lane"] is not None:
            self._lanes[given["kind"], given["tags"]] = row["lane"]

    def add(
        self,
        id: str,
        *,
        title: str = "",
        kind: str = "",
        priority: int = 0,
        tags: Sequence[str] = (),
        after: Sequence[str] = (),
        payload: str | None = None,
        max_attempts: int = ATTEMPTS,
        not_before: int | None = None,
        leases: Sequence[str] = (),
        labels: Sequence[str] = (),
        parent: str | None = None,
        found_in: str | None = None,
        with_children: bool = False,
    ) -> Task:
        """Add a task; it is blocked until what it needs is complete."""
        tx, declared = self._tx, declared_text(self._scope, leases)
        if id in self._states:
            there = record_of(tx, id)
            raise ExistsError(
                f"the task {called(id)} already exists ({there.state})",
                next="claim it, or choose another id; reopen it if it has ended",
                task=there,
            )
        if id in self._needed or id in after:
            for need in after:
                self.refuse_cycle(id, need)
        if parent is not None:
            self.refuse_own_part(id, parent)
        opened = not after or all(self._states.get(need) == "completed" for need in after)
        later = not_before is not None
        said = {"title": title, "kind": kind, "priority": priority}
        number = tx.event("task.added", id, said, grows=True)
        stored_tags = names_text(tags)
        row: Row = {
            "id": id,
            "state": "available" if opened and not later and not with_children else "blocked",
            "lane": self.lane(kind, stored_tags, number),
            "priority": priority,
            "number": number,
            "title": title,
            "kind": kind,
            "tags": stored_tags,
            "needs": to_text(list(after)) if after else "[]",
            "payload": payload,
            "result": None,
            "reason": "",
            "attempts": 0,
            "max_attempts": max_attempts,
            "author": self._scope.caller.agent,
            "added_at": tx.wall,
            "changed_at": tx.wall,
            "not_before": not_before,
            "due": not_before if opened and not with_children else None,
            "agent": None,
            "session": None,
            "epoch": None,
            "ttl_ms": None,
            "labels": names_text(labels) if labels else None,
            "declared": declared,
            "parent": parent,
            "found_in": found_in,
            "with_children": int(with_children),
            "landing": None,
            "asked": None,
            "acked": None,
        }
        tx.run(WORK.add, row)
        for need in after:
            tx.run(WORK.need, id=id, needs=need)
        self.know(id, row["state"], after or None)
        return task_record(row, tx.now)

    def know(self, id: str, state: str, after: Sequence[str] | None = None) -> None:
        """Note that a task has changed its state or its dependencies."""
        self._states[id] = state
        if after is not None:
            self._needs[id] = after
            self._needed.update(after)

    def lane(self, kind: str, tags: str, number: int) -> int:
        lane = self._lanes.get((kind, tags))
        if lane is None:
            lane = self._lanes[kind, tags] = number
            self._tx.run(WORK.add_lane, id=number, kind=kind, tags=tags)
        return lane

    def refuse_cycle(self, id: str, need: str) -> None:
        """Refuse a cycle: walk from what is needed along its own needs, where `id` must not be."""
        came_from = {need: id}
        front = [need]
        while front:
            here = front.pop()
            if here == id:
                cycle, step = [id], came_from[id]
                while step != id:
                    cycle.append(step)
                    step = came_from[step]
                cycle = [*cycle[:1], *reversed(cycle[1:]), id]
                raise InvalidError(
                    f"these tasks would wait for each other: {' after '.join(map(called, cycle))}",
                    next="remove one of these dependencies",
                    cycle=cycle,
                )
            for further in self._needs_of(here):
                if further not in came_from:
                    came_from[further] = here
                    front.append(further)

    def refuse_own_part(self, id: str, parent: str) -> None:
        """Refuse a cycle of parents: walk up from the parent, where `id` must not be."""
        self._parents[id] = parent
        chain = [id, parent]
        while chain[-1] != id:
            here = chain[-1]
            if here not in self._parents:
                row = self._tx.row(WORK.parent, id=here)
                self._parents[here] = None if row is None else row["parent"]
            above = self._parents[here]
            if above is None:
                return
            chain.append(above)
        raise InvalidError(
            f"these tasks would be part of each other: {' in '.join(map(called, chain))}",
            next="remove one of these parents",
            cycle=chain,
        )

    def _needs_of(self, id: str) -> Sequence[str]:
        if id not in self._needs:
            self._needs[id] = [row["needs"] for row in self._tx.rows(WORK.needs_of, id=id)]
        return self._needs[id]


def questions(wanted: Sequence[Row]) -> list[tuple[Query, Row]]:
    """The queries needed before these tasks are added."""
    ids = [one["id"] for one in wanted]
    needs = [need for one in wanted for need in one.get("after", ())]
    if len(ids) == 1 and not needs:  # the common case
        kind, tags = wanted[0].get("kind", ""), names_text(wanted[0].get("tags", ()))
        return [(WORK.alone, {"id": ids[0], "kind": kind, "tags": tags})]
    return [
        *((WORK.states, {"ids": some}) for some in parts([*ids, *needs])),
        *((WORK.lane, {"kind": kind, "tags": tags}) for kind, tags in lanes_of(wanted)),
        *((WORK.needed, {"ids": some}) for some in parts(ids) if needs),
    ]


def parts(ids: list[str]) -> list[list[str]]:
    """Ids in portions for one statement each: a thousand tasks may need a thousand each."""
    ids = list(dict.fromkeys(ids))
    return [ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE)]


def lanes_of(wanted: Sequence[Row]) -> list[tuple[str, str]]:
    """The lanes of these tasks, each with a kind and tags."""
    lanes = [(one.get("kind", ""), names_text(one.get("tags", ()))) for one in wanted]
    return list(dict.fromkeys(lanes))


def names_text(names: Sequence[str]) -> str:
    return to_text(sorted(names)) if names else "[]"


def declared_text(scope: Scope, leases: Sequence[str]) -> str | None:
    """The declared leases of a task as they are stored: name, kind and key of each.

    The inode is left out: when the task is claimed, it may belong to another file.
    """
    if not leases:
        return None
    found = {one.text: one for one in map(scope.place.resource, leases)}
    return to_text([[one.text, one.kind, one.base] for one in found.values()])
