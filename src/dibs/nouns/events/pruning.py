"""Pruning: how old records of a space are removed, a little at a time.

A slice is one short transaction, and other writers get the turn between two slices. It searches
for what has ended from where the last slice stopped, removes it, and says so in the journal itself
(`space.pruned`: up to which seq, how many events, why), so the journal is never cut silently, and
a pruning that stops half-way leaves a sound store. All processes of a space that prunes itself
share one search; one that a person asks for has its own.

What stays, however old: what is held, open or waited for, messages that somebody has not read, the
last version of each entry, and seq.

A space also prunes itself, by the clock that leases use and by its size (`tidy`): a daemon does so
on its own; otherwise every 256th write does one slice. Such a slice removes more than was written
since the last one; while a slow machine ends it before that, every 128th write does one. It removes
what is older than the settings allow for its kind (`storage.retention`). If the store is larger
than they allow, it continues with the oldest, but then it spares what a slow reader may still want:
the last minutes, the last 50,000 events, the last ten versions of each entry, and a day of the keys
that callers chose.

With an export, a slice writes what it removes to the export, and syncs it, before its commit.
"""

from __future__ import annotations

import time
from _thread import allocate_lock, get_ident

from dibs.errors import BusyError, DibsError
from dibs.logger import INFO, log
from dibs.nouns.recovery import end_dead_sessions
from dibs.records import Pruned, called
from dibs.space.scope import OWN_KEY
from dibs.storage.base import absorb
from dibs.storage.clock import SEQ_LIMIT
from dibs.storage.queries import Queries
from dibs.storage.retention import Export, Retention
from dibs.storage.store import TIDY_SHIFT, Store

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
"""How long a slice works while it has the turn, not counting its commit; and the maximum, if a
slow machine has removed too little by then."""
PAUSE_S = 0.015
"""Longer than the sleep of processes that poll for the turn of a SQLite file."""
STEP_S = 0.002
LEAST_EVENTS, LEAST_ROWS = 1_000, 5_000
"""The minimum number of events that a space that prunes itself removes in a slice, and of rows
it looks at."""
EVENTS_AT_ONCE, ROWS_AT_ONCE = 5_000, 500
LOOKED_AT = 20_000
"""How many events are looked at to find out which are too old."""
WINDOWS = 25
"""How many times more a person's pruning looks at, before it begins and after each pass."""
FLUSH = 50
TELL_S = 2.0
FILES = 200
SPARED_EVENTS, SPARED_VERSIONS = 50_000, 10
SPARED_MS, SPARED_KEYS_MS = 300_000, 86_400_000
CALLS_MS = 3_600_000
"""How long an answer is kept if the client made its key: no client repeats a call later."""
FULL = 0.9
"""The fraction of its size limit that a store that was too large is pruned to."""
LOG_BYTES, LOG_S = 32 << 20, 0.05
"""From this many bytes on, the log of a file is emptied, if that takes no longer. SQLite does so
by itself only when nobody reads, and with many processes somebody always does."""
REST_MS = 60_000
"""How long a process stops looking after it has found nothing to remove."""
SWEEP_MS = 600_000
"""How often a process looks for rows that have ended although no event is too old."""
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
"""What is searched, what is removed from it, and where each search begins."""
START = 0, STAGES[0][-1]
TABLES = {
    "messages": "message",
    "tasks": "task",
    "versions": "entry_version",
    "answers": "answer",
    "sessions": "session",
    "outcomes": "outcome",
}
"""The present position of each search."""
JOURNAL, TOKENS = "journal", "tokens"
_ALONE = allocate_lock()
_AT_IT: set[int] = set()
"""The threads that prune on a person's request."""


class Cut:
    """How much to remove.

    why: what the journal says about it: gc, age or size
    upto: the last event to remove
    before: by kind, the time before which rows must have ended to be removed
    keys, calls: the same for answers to keys that callers chose, and that clients made
    spared: how many versions of each entry stay, besides the last
    """

    def __init__(
        self, why: str, upto: int, before: dict[str, int], keys: int, calls: int, spared: int
    ) -> None:
        self.why = why
        self.upto = upto
        self.before = before
        self.values: Row = {
            "keys_before": keys,
            "calls_before": calls,
            "spared": spared,
            "own_low": OWN_KEY,
            "own_high": f"{OWN_KEY[:-1]};",
        }


class Pruning:
    """One pruning of a space: what it has removed, and where it continues."""

    def __init__(self, scope: Scope, caller: Caller | None, cut: Cut) -> None:
        self._scope = scope
        self._store = scope.store
        self._caller = caller
        self._cut = cut
        self._export: Export | None = None
        self._shares = caller is None
        """Whether it searches together with other processes (`_search_on`)."""
        self._sweep, self._stage, self._place = 0, *START
        self.behind = False
        """Whether the last slice ended before it had done the minimum."""
        self._left = 1
        """How many sweeps over all tables must end until it has looked at everything."""
        self.helped = False
        """Whether other processes have searched a part of that."""
        self._events_at_once = self._rows_at_once = FLUSH
        self._least = (FLUSH, FLUSH) if caller else (LEAST_EVENTS, LEAST_ROWS)
        self._whole = cut.upto == 0
        """Whether all events that should go are gone."""
        self._files: list[int] = []
        self.slices = 0
        self.took_s = 0.0
        """How long the last slice had the turn: others get twice that time before the next."""
        self.upto = 0
        self._head: str | None = None
        names = ("events", "messages", "tasks", "versions", "answers", "sessions", "outcomes")
        self.removed = dict.fromkeys(names, 0)

    @property
    def done(self) -> bool:
        return self._whole and self._left <= 0

    def goes_on(self, upto: int) -> bool:
        """Remove the events up to there as well; return whether there are any."""
        self._cut.upto, self._whole = upto, upto <= self.upto
        return not self._whole

    def cut_to(self, cut: Cut) -> None:
        """Remove that much from now on: more has become old since it began."""
        self._cut = cut
        self.goes_on(cut.upto)

    def step(self) -> None:
        """Remove some of what should go; a person's first slice is always made."""
        first = self.slices == 0 and self._caller is not None
        if self.slices == 0:
            with self._store.read() as tx:
                self._files = orphans(tx)
        if first or self._files or not self.done:
            self._slice(first)
        self.slices += 1

    def _slice(self, first: bool) -> None:
        before, whole = dict(self.removed), (self.upto, self._whole)
        place = (self._left, self._sweep, self._stage, self._place)
        export = self._store.keeps().export
        self._export = None if export is None else Export(export, self._store.name)
        try:
            self._remove(first, before)
        except BaseException:  # nothing was removed: the next slice continues from here
            self.removed = before
            self.upto, self._whole = whole
            self._left, self._sweep, self._stage, self._place = place
            raise

    def _remove(self, first: bool, before: dict[str, int]) -> None:
        self._head, self.behind = None, False
        with self._store.write(self._caller) as tx:
            begin = time.monotonic()
            self._ends = begin + MOST_S / 2  # or the events would leave no time for the rows
            if first:
                end_dead_sessions(tx, self._scope.keys, tx.rows(AGENTS.open))
                tx.run(EVENTS.prune_tokens, before=self._cut.before[TOKENS], now=tx.now)
            if self._files:
                remove_files(tx, self._files)
                self._files = []
            self._remove_events(tx, begin + SLICE_S / 2)
            self._ends = begin + MOST_S
            moved = self._remove_rows(tx, begin + SLICE_S)
            if self._left <= 0:
                self._remove_events(tx, begin + SLICE_S)
            gone = {name: self.removed[name] - number for name, number in before.items()}
            if moved and self._shares:
                tx.sweep_on([self._sweep, self._stage, *self._place.values()])
            if not first and not any(gone.values()):
                if not moved:
                    tx.discard()
                return
            said = {name: number for name, number in gone.items() if number}
            upto = self.upto or tx.rows(SPACE.position)[0]["pruned_seq"]
            tx.event(
                "space.pruned",
                self._store.name,
                {"upto": upto, "why": self._cut.why, "events": 0, **said, **self._cut_at()},
            )
            if self._export is not None:
                self._export.write()  # before it is removed: a failure here undoes that
        self.took_s = time.monotonic() - begin
        counted = ", ".join(f"{number} {name}" for name, number in said.items()) or "nothing"
        log("pruning", INFO, "pruned the space %s (%s): removed %s, up to seq %d",
            called(self._store.name), self._cut.why, counted, upto)  # fmt: skip

    def _cut_at(self) -> Row:
        """The hash of the last event that was cut off, so its seal can still be checked."""
        return {} if self._head is None else {"head": self._head}

    def _remove_events(self, tx: Write, end: float) -> None:
        """Remove the oldest events that should go, until the time is up."""
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
            if self._export is not None:
                self._export.add("event", tx.rows(EVENTS.whole, after=after, upto=self.upto))
            self._head = absorb(tx, self._store.ledger, after, self.upto) or self._head
            tx.run(EVENTS.prune_events, after=after, upto=self.upto)
            tx.rows(SPACE.position)  # sends the statements together with a query
            self._events_at_once = paced(self._events_at_once, now, EVENTS_AT_ONCE)
        if self.upto:
            tx.run(EVENTS.pruned, upto=self.upto)

    def _search_on(self, tx: Write) -> None:
        """Continue the search where the last slice of any process stopped.

        So no process searches again where another has just been, and the whole store is searched
        even if each process makes a single slice, as commands do.
        """
        here = [self._sweep, self._stage, *self._place.values()]
        sweep, self._stage, *place = tx.swept() or here
        self._place = dict(zip(STAGES[self._stage][-1], place, strict=True))
        if self.slices == 0:
            self._left = 1 if (self._stage, self._place) == START else 2
        elif [sweep, self._stage, *place] != here:
            self.helped = True
            self._left -= sweep != self._sweep  # others have ended it
        self._sweep = sweep

    def _remove_rows(self, tx: Write, end: float) -> bool:
        """Remove ended rows where the last slice stopped; return whether the search moved on."""
        if self._shares:
            self._search_on(tx)
        begun, seen, lanes = (self._stage, self._place), 0, set[int]()
        while self._left > 0 and self._goes_on(now := time.monotonic(), end, seen, self._least[1]):
            name, following, prune, start = STAGES[self._stage]
            rows = tx.rows(following, limit=self._rows_at_once, **self._place)
            if rows:
                last = {f"last_{column}": rows[-1][column] for column in start}
                before = self._cut.before[name]
                gone = tx.rows(prune, before=before, **self._cut.values, **self._place, **last)
                if self._export is not None:
                    self._export.add(TABLES[name], gone)
                self.removed[name] += len(gone)
                remove_with(tx, name, gone, lanes)
                seen += len(rows)
            if len(rows) == self._rows_at_once:
                self._place = {column: rows[-1][column] for column in start}
            else:
                self._stage = (self._stage + 1) % len(STAGES)
                self._place = STAGES[self._stage][-1]
                if self._stage == 0:
                    self._sweep, self._left = self._sweep + 1, self._left - 1
            self._rows_at_once = paced(self._rows_at_once, now, ROWS_AT_ONCE)
        for lane in lanes:
            tx.run(EVENTS.prune_lane, lane=lane)
        return (self._stage, self._place) != begun

    def _goes_on(self, now: float, end: float, number: int, least: int) -> bool:
        """Whether a slice continues with something that has time until then."""
        # A few always go, so that a small pruning is one write even on a slow machine.
        if number < FLUSH or now < end or (number < least and now < self._ends):
            return True
        self.behind = self.behind or number < least
        return False


def paced(number: int, began: float, most: int) -> int:
    """How many to take at once, given how long that many took."""
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
    keep_ms: int | None,
    seconds: float | None = None,
    tell: Callable[[Pruning], None] | None = None,
) -> Pruned:
    """Remove what has ended and is older than that, or than the settings say.

    seconds: the maximum time
    tell: called now and then with the progress
    """
    begin = told_at = time.monotonic()
    store = scope.store
    with store.read() as tx:
        wall = tx.wall
    retention = store.keeps() if keep_ms is None else Retention(keep_ms / 1000)
    ages = {kind: retention.before(kind, wall) for kind in (*TABLES, JOURNAL, TOKENS)}
    before = ages[JOURNAL]
    upto = last_over(store, before, wall, WINDOWS)
    answers = ages["answers"]
    pruning = Pruning(scope, scope.caller, Cut("gc", upto, ages, answers, answers, 0))
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
    """What two successive prunings removed together."""
    last, numbers = more.to_json(), first.to_json()
    sums = {name: last[name] + numbers[name] for name in last if name not in ("pruned_seq", "done")}
    return Pruned(**last | sums)


def last_over(store: Store, before: int, now: int, windows: int = 1) -> int:
    """The last event that is older than a time, as are all before it; 0 if none is.

    windows: how many portions of the oldest events to look at
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
    """Remove a little of what is too old, or too much; return whether there may be more.

    The caller has already done its write, and must not fail because of this.
    """
    store = scope.store
    if get_ident() in _AT_IT or not _ALONE.acquire(blocking=False):
        return False  # this write is part of a pruning, or another thread is pruning
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
        store.tidy_shift = TIDY_SHIFT - pruning.behind
        store.not_pruned = ""
        if not pruning.done:
            return True
        store.pruning = None
        if pruning.helped or any(pruning.removed.values()):
            return True
        store.rests_until = store.clock.now() + REST_MS
        return False
    except DibsError as error:
        # Busy, full or gone: callers that need the store are told; the next one tries again.
        store.not_pruned = error.message
        log("pruning", INFO, "could not prune the space %s: %s", called(store.name), error.code)
        return False
    finally:
        _ALONE.release()


def keep_log_short(store: Store) -> None:
    if store.driver.log_bytes() > LOG_BYTES:
        try:
            store.driver.shorten_log(LOG_S)
        except BusyError:
            return  # a reader takes longer; the next call tries again


def due(store: Store) -> Cut | None:
    """What should be removed now; None if nothing."""
    retention, driver = store.keeps(), store.driver
    if store.clock.now() < store.rests_until:
        return None
    with store.read() as tx:
        # By both clocks: one that was set forward must not remove the journal.
        now, wall = min(tx.now, tx.wall), tx.wall
        oldest = tx.row(EVENTS.oldest)
        used = tx.rows(driver.used)[0]["used"]
        full = used > retention.size
        floor = tx.row(EVENTS.from_end, number=SPARED_EVENTS) if full else None
    ages = {kind: retention.before(kind, now) for kind in (*TABLES, JOURNAL, TOKENS)}
    why, keys, calls, most = "age", ages["answers"], now - CALLS_MS, SEQ_LIMIT
    if full and oldest is not None:
        share = 1 - FULL * retention.size / used
        began = min(oldest["at"], now)
        sized = min(now - SPARED_MS, began + round((now - began) * share))
        if sized > ages[JOURNAL]:
            ages = {kind: max(before, sized) for kind, before in ages.items()}
            why = "size"
            keys = max(keys, min(sized, now - SPARED_KEYS_MS))
            calls = max(calls, sized)
            most = 0 if floor is None else floor["seq"]
    before, upto = ages[JOURNAL], 0
    if oldest is not None and not before <= oldest["at"] <= wall:
        upto = min(last_over(store, before, wall), most)
    if not upto and why == "age" and now - store.swept_rows_at < SWEEP_MS:
        return None
    store.swept_rows_at = now
    return Cut(why, upto, ages, keys, calls, SPARED_VERSIONS)


def orphans(tx: Read) -> list[int]:
    """Some of the numbers that have a liveness file but no row."""
    liveness = tx.store.liveness
    if liveness is None:
        return []
    known = {row["id"] for row in tx.rows(AGENTS.open)}
    known |= {row["number"] for row in tx.rows(EVENTS.waiting)}
    return [number for number in liveness.numbers() if number not in known][:FILES]


def remove_files(tx: Write, numbers: list[int]) -> None:
    """Remove those of the liveness files that nobody holds and that have no row.

    A liveness file is made and locked within a write: while this write has the turn, no process
    is between the two.
    """
    liveness, still = tx.store.liveness, set(orphans(tx))
    for number in still & set(numbers):
        if liveness is not None and not liveness.alive(number):
            liveness.forget(number)
