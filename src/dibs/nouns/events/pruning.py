"""Pruning: how the past of a space is removed, a little at a time.

A slice is one short transaction, and between two slices others have the turn. It looks for what is
over from where the last one ended, removes it, and says so in the journal itself (`space.pruned`:
up to which seq, how many events, why), so the journal is never cut without a word, and a pruning
that ends half-way is sound.

What stays, whatever its age: what is held, open or waited for, messages that somebody has not read,
the last version of each entry, and seq.

A space also prunes itself, by the clock that leases use and by its size (`tidy`): a daemon does so
by itself, and otherwise whoever makes every 256th write, for one slice. Such a slice removes more
than was written since the last one, however slow the machine is. It removes what is older than
`keep_s`. If the store is larger than `keep_bytes`, it goes on with the oldest, but then it
spares what a slow reader may still want: the last minutes, the last 50,000 events, the last ten
versions of each entry, and a day of the keys that callers chose.
"""

from __future__ import annotations

import time
from _thread import allocate_lock, get_ident

from dibs.errors import BusyError, DibsError
from dibs.nouns.recovery import end_dead_sessions
from dibs.records import Pruned
from dibs.space.scope import OWN_KEY
from dibs.storage.clock import SEQ_LIMIT
from dibs.storage.queries import Queries
from dibs.storage.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Caller, Read, Write

    Stages = tuple[tuple[str, Query, Query, Row], ...]

EVENTS = Queries("events")
SPACE = Queries("space")
AGENTS = Queries("agents")
SLICE_S, MOST_S = 0.01, 0.05
"""How long a slice works while it has the turn, its commit comes on top; and at most, if a slow
machine has removed too little by then."""
PAUSE_S = 0.015
"""Longer than those sleep who try for the turn of a SQLite file again and again."""
STEP_S = 0.002
LEAST_EVENTS, LEAST_ROWS = 1_000, 5_000
"""How many events a space that prunes itself removes in a slice, and how many rows it looks at, at
least."""
EVENTS_AT_ONCE, ROWS_AT_ONCE = 5_000, 500
LOOKED_AT = 20_000
"""How many events are looked at to find out which are too old."""
WINDOWS = 25
"""How many times as many a person's pruning looks at, before it begins and whenever it is done."""
FLUSH = 50
TELL_S = 2.0
FILES = 200
SPARED_EVENTS, SPARED_VERSIONS = 50_000, 10
SPARED_MS, SPARED_KEYS_MS = 300_000, 86_400_000
CALLS_MS = 3_600_000
"""How long the answer to a call is kept whose key its client made: no call is repeated later."""
FULL = 0.9
"""How much of its size a store that was too large is pruned to."""
LOG_BYTES, LOG_S = 32 << 20, 0.05
"""From so many bytes on the log of a file is emptied, if that takes no longer. SQLite does so by
itself only when nobody reads, and where there are many processes somebody always does."""
REST_MS = 60_000
"""How long a process looks for nothing more after it has found nothing to remove."""
SWEEP_MS = 600_000
"""How often a process looks for rows that are over although no event is too old."""
STAGES: Stages = (
    ("messages", EVENTS.next_messages, EVENTS.prune_messages, {"id": 0}),
    ("tasks", EVENTS.next_tasks, EVENTS.prune_tasks, {"number": 0}),
    (
        "versions",
        EVENTS.next_versions,
        EVENTS.prune_versions,
        {"namespace": "", "key": "", "version": 0},
    ),
    ("answers", EVENTS.next_answers, EVENTS.prune_answers, {"agent": "", "key": ""}),
    ("sessions", EVENTS.next_sessions, EVENTS.prune_sessions, {"id": 0}),
    ("outcomes", EVENTS.next_outcomes, EVENTS.prune_outcomes, {"base": "", "resource": ""}),
)
"""What is gone through, what is removed of it, and where each begins."""
_ALONE = allocate_lock()
_AT_IT: set[int] = set()
"""The threads that prune because a person asked for it."""


class Cut:
    """How much of the past to remove.

    why: what the journal says about it: gc, age or size
    upto: the last event to remove
    before: rows that are over since then go
    keys_before, calls_before: answers to keys that callers chose, and that clients made
    spared: how many versions of each entry stay, beside the last
    """

    def __init__(
        self, why: str, upto: int, before: int, keys: int, calls: int, spared: int
    ) -> None:
        self.why = why
        self.upto = upto
        self.values: Row = {
            "before": before,
            "keys_before": keys,
            "calls_before": calls,
            "spared": spared,
            "own_low": OWN_KEY,
            "own_high": f"{OWN_KEY[:-1]};",
        }


class Pruning:
    """One pruning of a space: what it has removed, and where it goes on."""

    def __init__(self, scope: Scope, caller: Caller | None, cut: Cut) -> None:
        self._scope = scope
        self._store = scope.store
        self._caller = caller
        self._cut = cut
        self._stage, self._place = 0, STAGES[0][-1]
        self._events_at_once = self._rows_at_once = FLUSH
        self._least = (FLUSH, FLUSH) if caller else (LEAST_EVENTS, LEAST_ROWS)
        self._whole = cut.upto == 0
        """Whether all events are gone that are to go."""
        self._files: list[int] = []
        self.slices = 0
        self.took_s = 0.0
        """How long the last slice had the turn: others have it twice as long before the next."""
        self.upto = 0
        names = ("events", "messages", "tasks", "versions", "answers", "sessions", "outcomes")
        self.removed = dict.fromkeys(names, 0)

    @property
    def done(self) -> bool:
        return self._whole and self._stage == len(STAGES)

    def goes_on(self, upto: int) -> bool:
        """Remove the events up to there, too; say whether there are any."""
        self._cut.upto, self._whole = upto, upto <= self.upto
        return not self._whole

    def cut_to(self, cut: Cut) -> None:
        """Remove that much, from here on: more has become old since it began."""
        self._cut = cut
        self.goes_on(cut.upto)

    def step(self) -> None:
        """Remove some of what is to go; a person's first slice is always made."""
        first = self.slices == 0 and self._caller is not None
        if self.slices == 0:
            with self._store.read() as tx:
                self._files = orphans(tx)
        if first or self._files or not self.done:
            self._slice(first)
        self.slices += 1

    def _slice(self, first: bool) -> None:
        before = dict(self.removed)
        with self._store.write(self._caller) as tx:
            begin = time.monotonic()
            self._ends = begin + MOST_S
            if first:
                end_dead_sessions(tx, self._scope.keys, tx.rows(AGENTS.open))
                tx.run(EVENTS.prune_tokens, before=self._cut.values["before"], now=tx.now)
            if self._files:
                remove_files(tx, self._files)
                self._files = []
            self._remove_events(tx, begin + SLICE_S / 2)
            self._remove_rows(tx, begin + SLICE_S)
            if self._stage == len(STAGES):
                self._remove_events(tx, begin + SLICE_S)
            gone = {name: self.removed[name] - number for name, number in before.items()}
            if not first and not any(gone.values()):
                tx.discard()
                return
            said = {name: number for name, number in gone.items() if number}
            upto = self.upto or tx.rows(SPACE.position)[0]["pruned_seq"]
            tx.event(
                "space.pruned",
                self._store.name,
                {"upto": upto, "why": self._cut.why, "events": 0, **said},
            )
        self.took_s = time.monotonic() - begin

    def _remove_events(self, tx: Write, end: float) -> None:
        """The oldest events that are to go, until the time is over."""
        least, removed = self._least[0], 0
        while not self._whole and self._goes_on(now := time.monotonic(), end, removed, least):
            after = self.upto or tx.rows(SPACE.position)[0]["pruned_seq"]
            values = {"after": after, "upto": self._cut.upto, "limit": self._events_at_once}
            oldest = tx.rows(EVENTS.oldest_events, **values)[0]
            if oldest["number"] < self._events_at_once:
                self._whole = True
            if not oldest["number"]:
                return
            self.upto = oldest["seq"]
            self.removed["events"] += oldest["number"]
            removed += oldest["number"]
            tx.run(EVENTS.prune_events, after=after, upto=self.upto)
            tx.rows(SPACE.position)  # what is to be run travels with what is asked
            self._events_at_once = paced(self._events_at_once, now, EVENTS_AT_ONCE)
        if self.upto:
            tx.run(EVENTS.pruned, upto=self.upto)

    def _remove_rows(self, tx: Write, end: float) -> None:
        """What is over of the rows after those that the last slice looked at."""
        seen, lanes = 0, set[int]()
        while self._stage < len(STAGES) and self._goes_on(
            now := time.monotonic(), end, seen, self._least[1]
        ):
            name, following, prune, start = STAGES[self._stage]
            rows = tx.rows(following, limit=self._rows_at_once, **self._place)
            if rows:
                last = {f"last_{column}": rows[-1][column] for column in start}
                gone = tx.rows(prune, **self._cut.values, **self._place, **last)
                self.removed[name] += len(gone)
                remove_with(tx, name, gone, lanes)
                seen += len(rows)
            if len(rows) == self._rows_at_once:
                self._place = {column: rows[-1][column] for column in start}
            else:
                self._stage += 1
                self._place = STAGES[self._stage][-1] if self._stage < len(STAGES) else {}
            self._rows_at_once = paced(self._rows_at_once, now, ROWS_AT_ONCE)
        for lane in lanes:
            tx.run(EVENTS.prune_lane, lane=lane)

    def _goes_on(self, now: float, end: float, number: int, least: int) -> bool:
        """Whether a slice does more of something that has time until then."""
        # A few go in any case, so that a small pruning is one write on a slow machine, too.
        return number < FLUSH or now < end or (number < least and now < self._ends)


def paced(number: int, began: float, most: int) -> int:
    """How many to take at once, if that many have taken since then."""
    took_s = time.monotonic() - began
    factor = 2 if took_s < STEP_S else 0.5 if took_s > 2 * STEP_S else 1
    return int(min(most, max(FLUSH, number * factor)))


def remove_with(tx: Write, name: str, gone: list[Row], lanes: set[int]) -> None:
    """Remove what belongs to rows that were removed; lanes: those that may be empty now"""
    ids = [row["id"] for row in gone] if name in ("messages", "tasks") else []
    if not ids:
        return
    if name == "messages":
        tx.run(EVENTS.prune_words, ids=ids)
        tx.run(EVENTS.prune_acknowledgements, ids=ids)
    else:
        tx.run(EVENTS.prune_dependencies, ids=ids)
        done = [row["id"] for row in gone if row["state"] == "completed"]
        if done:
            tx.run(EVENTS.prune_needs, ids=done)
        lanes.update(row["lane"] for row in gone)


def prune(
    scope: Scope,
    keep_ms: int,
    seconds: float | None = None,
    tell: Callable[[Pruning], None] | None = None,
) -> Pruned:
    """Remove what is over and older than that.

    seconds: for how long at most
    tell: called now and then with how far it has come
    """
    begin = told_at = time.monotonic()
    store = scope.store
    with store.read() as tx:
        before, wall = tx.wall - keep_ms, tx.wall
    upto = last_over(store, before, wall, WINDOWS)
    pruning = Pruning(scope, scope.caller, Cut("gc", upto, before, before, before, 0))
    _AT_IT.add(get_ident())
    try:
        pruning.step()
        while not pruning.done or pruning.goes_on(last_over(store, before, wall, WINDOWS)):
            if seconds is not None and time.monotonic() > begin + seconds:
                break
            if tell is not None and time.monotonic() > told_at + TELL_S:
                tell(pruning)
                told_at = time.monotonic()
            time.sleep(max(PAUSE_S, 2 * pruning.took_s))
            pruning.step()
    finally:
        _AT_IT.discard(get_ident())
    removed = dict(pruning.removed)
    del removed["outcomes"]
    with store.read() as tx:
        pruned_seq = tx.rows(SPACE.position)[0]["pruned_seq"]
    return Pruned(**removed, pruned_seq=pruned_seq, done=pruning.done)


def together(first: Pruned, more: Pruned) -> Pruned:
    """What two prunings, one after the other, have removed."""
    last, numbers = more.to_json(), first.to_json()
    sums = {name: last[name] + numbers[name] for name in last if name not in ("pruned_seq", "done")}
    return Pruned(**last | sums)


def last_over(store: Store, before: int, now: int, windows: int = 1) -> int:
    """The last event that is older than a time, as are all before it; 0 if none is.

    windows: how many times to look at the next of the oldest
    """
    after, number = 0, 0
    while True:
        with store.read() as tx:
            after = after or tx.rows(SPACE.position)[0]["pruned_seq"]
            values = {"before": before, "now": now, "after": after, "limit": LOOKED_AT}
            seen = tx.rows(EVENTS.first_kept, **values)[0]
            number += 1
            if seen["kept"] is None and seen["last"] is not None and number < windows:
                after = seen["last"]
                continue
            end = seen["kept"] or (SEQ_LIMIT if seen["last"] is None else seen["last"] + 1)
            last = tx.row(EVENTS.last_before, seq=end, before=before)
            return 0 if last is None else int(last["seq"])


def tidy(scope: Scope) -> bool:
    """Remove a little of what is too old, or too much; say whether there may be more.

    Whoever calls has done its write already, and must not fail because of this.
    """
    store = scope.store
    if get_ident() in _AT_IT or not _ALONE.acquire(blocking=False):
        return False  # this is a write of a pruning, or another thread is at it
    try:
        keep_log_short(store)
        pruning, cut = store.pruning, due(store)
        if pruning is not None and cut is not None:
            pruning.cut_to(cut)
        elif pruning is None:
            if cut is None:
                return False
            pruning = store.pruning = Pruning(scope, None, cut)
        pruning.step()
        if not pruning.done:
            return True
        store.pruning = None
        if any(pruning.removed.values()):
            return True
        store.rests_until = store.clock.now() + REST_MS
        return False
    except DibsError:
        return False  # busy, full or gone: whoever needs the store is told, and the next tries
    finally:
        _ALONE.release()


def keep_log_short(store: Store) -> None:
    if store.driver.log_bytes() > LOG_BYTES:
        try:
            store.driver.shorten_log(LOG_S)
        except BusyError:
            return  # somebody reads for longer; the next tries again


def due(store: Store) -> Cut | None:
    """What is to be removed now; None if all is as it should be."""
    keep_s, keep_bytes = store.keeps()
    driver = store.driver
    if store.clock.now() < store.rests_until:
        return None
    with store.read() as tx:
        # By both clocks: one that was set forward must not take the journal with it.
        now, wall = min(tx.now, tx.wall), tx.wall
        oldest = tx.row(EVENTS.oldest)
        used = tx.rows(driver.used)[0]["used"]
        floor = tx.row(EVENTS.from_end, number=SPARED_EVENTS) if used > keep_bytes else None
    before, why = now - round(keep_s * 1000), "age"
    keys, calls, most = before, now - CALLS_MS, SEQ_LIMIT
    if used > keep_bytes and oldest is not None:
        share = 1 - FULL * keep_bytes / used
        began = min(oldest["at"], now)
        sized = min(now - SPARED_MS, began + round((now - began) * share))
        if sized > before:
            before, why = sized, "size"
            keys = max(keys, min(before, now - SPARED_KEYS_MS))
            calls = max(calls, before)
            most = 0 if floor is None else floor["seq"]
    upto = 0
    if oldest is not None and not before <= oldest["at"] <= wall:
        upto = min(last_over(store, before, wall), most)
    if not upto and why == "age" and now - store.swept_rows_at < SWEEP_MS:
        return None
    store.swept_rows_at = now
    return Cut(why, upto, before, keys, calls, SPARED_VERSIONS)


def orphans(tx: Read) -> list[int]:
    """Some of the numbers that have a liveness file, and of which no row speaks."""
    liveness = tx.store.liveness
    if liveness is None:
        return []
    known = {row["id"] for row in tx.rows(AGENTS.open)}
    known |= {row["number"] for row in tx.rows(EVENTS.waiting)}
    return [number for number in liveness.numbers() if number not in known][:FILES]


def remove_files(tx: Write, numbers: list[int]) -> None:
    """Remove those of the liveness files that nobody holds and no row speaks of.

    Whoever makes one does so within a write, and locks it there: while this write has the turn,
    nobody is between the two.
    """
    liveness, still = tx.store.liveness, set(orphans(tx))
    for number in still & set(numbers):
        if liveness is not None and not liveness.alive(number):
            liveness.forget(number)
