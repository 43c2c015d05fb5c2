"""Which task a worker is given: the best one whose declared leases are free for it now.

A lane is ordered, and its head is found by an index. A head that does not fit, because what it
declares overlaps with somebody else's lease, is *set aside* under the name of that lease, and so
are the tasks behind it that also overlap with that lease. As long as somebody else holds a lease
with that name, all of them are passed over in one step, however many they are. When nobody holds it
any more, their head is looked at again. A task is moved only when another lease turns out to
block it.

A task that needs much could be passed over again and again. Of all tasks that do not fit, the
first in order is counted each time a later one is handed out instead. After `SKIPS` times it has
its *turn*: it comes before all others, and nothing that overlaps with it is handed out before it
to anybody who could take it. Turns are kept in the order in which they came up.
"""

from __future__ import annotations

from itertools import takewhile

from dibs.names.paths import Resource, resources_overlap
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import Want
from dibs.nouns.work.tasks import WORK, row_of, slices
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.names.paths import Place
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Read, Write

SKIPS = 16
"""How often a task is passed over before it has its turn."""
TURNS = 8
"""How many tasks can have their turn at once: every `next` looks at each of them."""
LANES_AHEAD = 16
MOVES = 2_000
"""How many tasks one transaction sets aside before it lets other writers in."""
FIRST_PAGE, LAST_PAGE = 16, 1_000
"""How many tasks are searched, at first and at most, for those that one lease blocks."""


def declared(row: Row, place: Place) -> list[Want]:
    """What a task declares, as wants of its claimer; place: the claimer's"""
    here = place.here if row["declared"] else None
    return [
        Want(
            Resource(text, kind, base, checkout=None if kind == "name" else here),
            grants.EXCLUSIVE,
            None,
        )
        for text, kind, base in from_text(row["declared"]) or ()
    ]


def order(row: Row) -> tuple[int, int]:
    """The highest priority comes first, the oldest first among equals."""
    return -row["priority"], row["number"]


def heads_of(lanes: Sequence[int], limit: int) -> list[tuple[Query, Row]]:
    if limit == 1:
        return [(WORK.head, {"lane": lane}) for lane in lanes]
    return [(WORK.heads, {"lane": lane, "limit": limit}) for lane in lanes]


POSITION: list[tuple[Query, Row]] = [(WORK.turns, {}), (WORK.asides, {})]
"""Which tasks have their turn, which were set aside, and who holds what blocks them."""


def ahead(scope: Scope, limit: int) -> list[tuple[Query, Row]]:
    """The first queries, if the lanes that fit are the same as last time."""
    first = [(WORK.next_due, {}), (WORK.lanes, {}), *POSITION]
    return [*first, *heads_of(scope.store.hints, limit)]


class Search:
    """The tasks of the lanes that fit a worker, in one transaction."""

    def __init__(self, tx: Read, scope: Scope, kind: str | None, able: frozenset[str]) -> None:
        self.tx = tx
        self.session = scope.session
        self.lanes = {
            lane["id"]: lane
            for lane in tx.rows(WORK.lanes)
            if kind in (None, lane["kind"]) and able.issuperset(from_text(lane["tags"]))
        }
        tx.store.hints = tuple(self.lanes)[:LANES_AHEAD]
        self._heads: list[Row] | None = None
        self._met: set[int] = set()
        self._needed: dict[str, list[Resource]] = {}
        """What the tasks that have their turn declare."""
        self.look(*tx.ask(POSITION))

    def look(self, every: list[Row], asides: list[Row]) -> None:
        """Find out from the turns and the tasks set aside which are passed over, and why."""
        tx, waited = self.tx, set[int]()
        if asides and tx.queued:
            waited = {row["id"] for row in tx.rows(WORK.asides_waited, session=self.session)}
        kept = {row["aside"] for row in every}
        self.numbers = {(row["lane"], row["base"], row["resource"]): row["id"] for row in asides}
        """What was set aside, by lane and by the name of the lease that blocks it."""
        self.unused = {row["id"] for row in asides if row["head"] is None} - kept
        self.turns = [row for row in every if row["lane"] in self.lanes]
        reserved = {(one.base, one.text) for row in self.turns for one in self.needed(row)}
        self.asides: dict[int, Row] = {}
        self.shut: dict[int, Row] = {}
        """Those passed over: somebody else holds or waits for the lease, or a turn needs it."""
        held: set[int] = set()
        for row in asides:
            number, holder = row["id"], row["holder"]
            if row["lane"] not in self.lanes or number in self.shut:
                continue
            self.asides[number] = row
            lasts = holder not in (None, self.session) and row["deadline"] > tx.now
            queued = number in waited and holder != self.session
            if lasts or queued or number in self._met:
                held.add(number)
            if number in held or (row["base"], row["resource"]) in reserved:
                self.shut[number] = row
        self.open_turns = [row for row in self.turns if row["aside"] not in held]

    def needed(self, turn: Row) -> list[Resource]:
        """What a task that has its turn declares; that does not change."""
        id = turn["id"]
        if id not in self._needed:
            self._needed[id] = resources(turn)
        return self._needed[id]

    def lane_heads(self) -> list[Row]:
        """The first task of each lane that was not set aside."""
        if self._heads is None:
            asked = heads_of(tuple(self.lanes), 1)
            self._heads = [row for rows in self.tx.ask(asked) for row in rows]
        return self._heads

    def open_heads(self) -> list[Row]:
        """The first tasks of all groups that are not passed over."""
        return self.lane_heads() + [
            row
            for number, row in self.asides.items()
            if row["head"] is not None and number not in self.shut
        ]

    def passed(self) -> list[Row]:
        """The first tasks of each group that is passed over, with what blocks them."""
        return [row for row in self.shut.values() if row["head"] is not None]

    def is_promising(self) -> bool:
        """Whether there may be a task to claim."""
        return bool(self.open_turns or self.open_heads())

    def due_in_ms(self) -> int | None:
        """When the first of the leases that tasks wait for ends."""
        ends = [row["deadline"] for row in self.passed() if row["deadline"] is not None]
        return min(ends) - self.tx.now if ends else None


class Finding(Search):
    """A search that records what it learns about tasks that do not fit."""

    tx: Write

    def __init__(self, tx: Write, scope: Scope, kind: str | None, able: frozenset[str]) -> None:
        super().__init__(tx, scope, kind, able)
        self._keys = scope.keys
        self._in_the_way: list[Resource] = []
        """What was found out, and stays true until a task is handed out."""
        self._cleared = False
        """Whether an expired holder was removed, so that more may be free."""
        self._moved = 0
        self.unfinished = False
        """Whether there are more tasks to look at, in another transaction."""
        self.instead_of: str | None = None
        """The first of the tasks that did not fit, before the one that was found last."""
        self._place = scope.place
        for name, number in list(self.numbers.items()):
            if number in self.unused:
                tx.run(WORK.drop_aside, id=number)
                self.asides.pop(number, None)
                del self.numbers[name]

    def plain(self, limit: int) -> list[Row] | None:
        """The best tasks, if none of them declares anything or was set aside; else None."""
        tx = self.tx
        if self.turns or self.asides:
            return None
        heads = [row for rows in tx.ask(heads_of(tuple(self.lanes), limit)) for row in rows]
        heads = sorted(heads, key=order)[:limit]
        if any(row["declared"] for row in heads):
            self._heads = heads if limit == 1 else None
            return None
        if limit == 1:
            return heads
        found: dict[str, Row] = {}
        for ids in slices([row["id"] for row in heads]):
            found |= {row["id"]: row for row in tx.rows(WORK.several, ids=ids)}
            if len(tx.fitting(list(found.values()))) < len(found):
                break  # the answer is full
        return tx.fitting([found[row["id"]] for row in heads if row["id"] in found])

    def next(self) -> tuple[Row, list[Want], list[Row | None]] | None:
        """The best task that fits, what it declares, and which of that the caller holds."""
        self._in_the_way, self.instead_of = [], None
        for turn in self.open_turns:
            wants = declared(turn, self._place)
            owned = self._owned(wants, self.turns[: self.turns.index(turn)])
            if not isinstance(owned, Resource):
                return row_of(self.tx, turn["id"]), wants, owned
            self._set_aside(turn["lane"], owned, [turn["id"]])
        if self.open_turns:
            self.look_again()
        while heads := self.open_heads():
            if self._moved >= MOVES:
                self.unfinished = True
                return None
            first = min(heads, key=order)
            aside, id = (first["id"], first["head"]) if "head" in first else (0, first["id"])
            wants = declared(first, self._place)
            met = self._is_met(wants)
            if met is None:
                owned = self._owned(wants, self.turns)
                if not isinstance(owned, Resource):
                    self._count_skip(first)
                    return row_of(self.tx, id) if aside else first, wants, owned
                self._in_the_way.append(owned)
                self._set_aside(first["lane"], owned, [id])
                self._shut(first, id, owned)
            else:
                self._pass(first["lane"], aside, id, met)
                self._shut(first, id, met)
            self._step(first["lane"], aside)
        self.look_again()  # so that the refusal can say why there is none
        return None

    def _step(self, lane: int, aside: int) -> None:
        """Continue with the next task of the group from which one was set aside.

        Reading the whole group again after each task would cost as much as all the rest.
        """
        if self._cleared:
            self.look_again()
        elif aside:
            found = self.tx.row(WORK.aside_head, lane=lane, aside=aside)
            self.asides[aside] |= found or {"head": None}
        else:
            others = [row for row in self.lane_heads() if row["lane"] != lane]
            self._heads = others + self.tx.rows(WORK.head, lane=lane)

    def _shut(self, task: Row, id: str, resource: Resource) -> None:
        """Record that a task was set aside by what blocks all others in the group."""
        number = self.numbers[task["lane"], resource.base, resource.text]
        row = self.asides.get(number) or {"id": number, "lane": task["lane"], "head": None}
        if row["head"] is None or order(task) < order(row):
            row = (
                row | {name: task[name] for name in ("priority", "number", "skips")} | {"head": id}
            )
        self.asides[number] = self.shut[number] = row

    def look_again(self) -> None:
        """Read again what this search has changed, or what was handed out since."""
        self._cleared = False
        asked = [*POSITION, *heads_of(tuple(self.lanes), 1)]
        turns, asides, *heads = self.tx.ask(asked)
        self.look(turns, asides)
        self._heads = [row for rows in heads for row in rows]

    def _is_met(self, wants: list[Want]) -> Resource | None:
        """What blocks one of these, among what is known to block others."""
        for one in self._in_the_way:
            if any(resources_overlap(one, want.resource) for want in wants):
                return one
        return None

    def _owned(self, wants: list[Want], turns: list[Row]) -> list[Row | None] | Resource:
        """What the caller holds of it, if all the rest is free; else what blocks it first."""
        tx, owned = self.tx, []
        grants.ask_around(tx, wants)
        for want in wants:
            own, rows = grants.in_the_way_of(tx, want, self.session)
            while rows:
                from dibs.nouns.recovery import clear  # late: most meet nobody

                if not clear(tx, self._keys, rows):
                    return grants.resource_of(rows[0])
                self._cleared = True
                own, rows = grants.in_the_way_of(tx, want, self.session)
            owned.append(own)
        for turn in turns:
            for one in self.needed(turn):
                if any(resources_overlap(one, want.resource) for want in wants):
                    return one
        return owned

    def _pass(self, lane: int, aside: int, id: str, resource: Resource) -> None:
        """Set a task aside, with those behind it that overlap with the same resource."""
        limit, ids = FIRST_PAGE, [id]
        while ids:
            self._set_aside(lane, resource, ids)
            if self._moved >= MOVES:
                return
            page = self.tx.rows(WORK.page, lane=lane, aside=aside, limit=limit)
            # What is behind one that does not overlap need not be known yet.
            ids = [one["id"] for one in takewhile(lambda one: meets(one, resource), page)]
            limit = min(LAST_PAGE, limit * 4)

    def _set_aside(self, lane: int, resource: Resource, ids: list[str]) -> None:
        tx = self.tx
        self._moved += len(ids)
        name = lane, resource.base, resource.text
        if name not in self.numbers:
            number = self.numbers[name] = max(self.numbers.values(), default=0) + 1
            tx.run(WORK.add_aside, id=number, lane=lane, base=resource.base, resource=resource.text)
        tx.run(WORK.set_aside, aside=self.numbers[name], ids=ids)
        # The rest of this search does not look at it a second time.
        self._met.add(self.numbers[name])

    def _count_skip(self, given: Row) -> None:
        """Count that a task is handed out ahead of the first one that does not fit."""
        before = [row for row in self.passed() if order(row) < order(given)]
        if not before:
            return
        first = min(before, key=order)
        self.instead_of = first["head"]
        has_turn = first["skips"] + 1 >= SKIPS
        if has_turn and len(self.turns) >= TURNS:
            return  # it gets its turn as soon as one of the others has had its own
        self.tx.run(WORK.skip, id=first["head"], turn=self.tx.seq if has_turn else None)
        if has_turn:
            self.tx.event("task.turn", first["head"], {"skips": first["skips"] + 1})


def meets(row: Row, resource: Resource) -> bool:
    return any(resources_overlap(resource, one) for one in resources(row))


def resources(row: Row) -> list[Resource]:
    return [Resource(text, kind, base) for text, kind, base in from_text(row["declared"]) or ()]
