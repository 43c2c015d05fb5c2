"""Any earlier moment of a space, and what changed between two.

The journal holds the rows that each write changed, so the tables of a moment can be rebuilt. They
are loaded into memory and read with the same queries as the store itself, so a moment shows what
`agents list`, `leases list`, `work list` and `state list` showed then.

A seq in the middle of a write means the state after that write. A time means the state after the
last write up to then, as seen at that time: a lease that had expired is not there.
"""

from __future__ import annotations

from dibs.errors import NotFoundError
from dibs.nouns.agents.overview import MESSAGES, OPEN, presences
from dibs.nouns.events.folding import Folding, unknown
from dibs.nouns.events.places import milliseconds, upto
from dibs.nouns.leases import grants
from dibs.nouns.leases.looking import waiters
from dibs.nouns.state.operations import STATE, entry_record
from dibs.nouns.work.expecting import matching
from dibs.nouns.work.tasks import ANY as ANY_TASK
from dibs.nouns.work.tasks import WORK, counts_of, progress_of, task_record
from dibs.records import Change, Difference, Moment, Presence, to_text
from dibs.space.scope import AGENTS, SPACE
from dibs.storage.images import TABLES
from dibs.storage.queries import Queries
from dibs.storage.sqlite_memory import FILLED, Past
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from dibs.nouns.events.folding import Folded
    from dibs.records import Record
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.images import Image, Key
    from dibs.storage.store import Read

    At = int | str | datetime
    Fits = Callable[[Row], bool]
    Images = dict[str, dict[Key, Image]]
    Known = dict[tuple[str, str, int], Row]
    """By noun, name and the number that distinguishes it from others with that name."""

EVENTS = Queries("events")
ENDS = {"lease": "deadline", "entry": "deadline", "task": "due"}
"""The column that says when something changes by itself."""
STATES = (*OPEN, "completed", "cancelled")
ALL = 1 << 30
PAGE = 1_000
ANY: Row = dict.fromkeys(("kind", "kind_low", "kind_high", "agent", "subject", "leases", "task"))
LEFT_OUT = frozenset(
    "changed_at children children_done due_in_ms expires_in_ms leases seq set_at".split()
)
"""What differs between any two moments, or follows from something that does."""
TOPICS = {"agent": "session", "lease": "lease", "wait": "lease", "task": "task", "entry": "entry"}
"""What the kinds of events about them begin with."""


def replay(scope: Scope, at: At, text: str | None, limit: int) -> Moment:
    """A space as it was at a moment; of its tasks, those with a text."""
    folded = folded_at(scope, at)
    past = past_of(scope, folded, folded.fold.tables)
    try:
        with past.read() as tx, scope.store.read() as present:
            return moment(tx, folded, present, matching(text=text), limit)
    finally:
        past.close()


def diff(scope: Scope, a: At, b: At, limit: int) -> Difference:
    """What changed between two moments, in either order."""
    first, last = sorted((folded_at(scope, one) for one in (a, b)), key=lambda one: one.seq)
    some = changed(first, last)
    before, after = (past_of(scope, one, two) for one, two in zip((first, last), some, strict=True))
    try:
        with before.read() as old, after.read() as new:
            found = difference(old, new, between(scope, first.seq, last.seq), limit)
    finally:
        before.close()
        after.close()
    return Difference(a=first.seq, a_at=first.wall, b=last.seq, b_at=last.wall, **found)


def changed(first: Folded, last: Folded) -> tuple[Images, Images]:
    """The rows that may differ between two moments: most do not."""
    found: tuple[Images, Images] = {}, {}
    for name in FILLED:
        old, new = first.fold.tables[name], last.fold.tables[name]
        ends = TABLES[name].places.get(ENDS.get(name, ""))
        keys: Iterable[Key] = old.keys() | new.keys()
        if name not in ("agent", "session"):
            keys = [
                key
                for key in keys
                if (image := old.get(key)) != new.get(key)
                or (
                    ends is not None
                    and image is not None
                    and image[ends] is not None
                    and first.now < image[ends] <= last.now
                )
            ]
        for one, rows in zip(found, (old, new), strict=True):
            one[name] = {key: rows[key] for key in keys if key in rows}
    return found


def folded_at(scope: Scope, at: At) -> Folded:
    """The rows of a moment, and what the clocks said then."""
    store = scope.store
    with scope.read() as tx:
        position, now, wall = tx.rows(SPACE.position)[0], tx.now, tx.wall
        seq = upto(tx, at)
        if seq > position["seq"]:
            raise NotFoundError(
                f"the journal ends at {position['seq']:,}; there is no event {seq:,} yet",
                next="ask for an earlier moment",
            )
        if seq == position["pruned_seq"] and seq and not isinstance(at, int):
            raise unknown(seq, seq)
    if store.folding is None:
        store.folding = Folding(store)
    folded: Folded = store.folding.at(seq)
    if not isinstance(at, int):
        # What had expired by then is gone. The clock may have been set, so not beyond the next
        # write.
        with store.read() as tx:
            following = tx.row(EVENTS.changed, after=folded.seq, limit=1)
        until = now if following is None else int(from_text(following["changes"])[0])
        moment = min(milliseconds(at), wall)
        folded.now = max(folded.now, min(until, folded.now + moment - folded.wall))
        folded.wall = moment
    return folded


def past_of(scope: Scope, folded: Folded, images: Images) -> Past:
    """The tables of a moment, to be read like a store."""
    tables: dict[str, Iterable[Image]] = {name: images[name].values() for name in FILLED}
    # Beats and signs of waiters are not in the journal; see `Past`.
    for name in ("session", "ticket"):
        place = TABLES[name].places["deadline"]
        tables[name] = [[*row[:place], None, *row[place + 1 :]] for row in tables[name]]
    with scope.store.read() as tx:
        tables["entry"] = [with_value(tx, row) for row in tables["entry"]]
    return Past(tables, folded.now, folded.wall, scope.store.page_bytes)


def with_value(tx: Read, image: Image) -> Image:
    """An entry with its value: for a long one the journal has a digest, the version the rest."""
    namespace, key, version, value, *rest = image
    if not isinstance(value, list):
        return image
    found = tx.row(STATE.value, namespace=namespace, key=key, version=version)
    return [namespace, key, version, "null" if found is None else found["value"], *rest]


def between(scope: Scope, after: int, upto: int) -> Iterator[Row]:
    """The events after a seq and up to another, in pages."""
    while after < upto:
        with scope.store.read() as tx:
            rows = tx.rows(EVENTS.since, after=after, upto=upto, limit=PAGE, **ANY)
        yield from rows
        after = rows[-1]["seq"] if rows else upto


def moment(tx: Read, folded: Folded, present: Read, fits: Fits | None, limit: int) -> Moment:
    """Everything at the moment that a read sees.

    present: a read of the store, for the messages that were unread then
    fits: whether a task is wanted; by default all are
    """
    here = presences(tx, tx.rows(AGENTS.open))
    leases, waiting = grants.in_force(tx, None, None, limit + 1), waiters(tx, limit + 1)
    tasks, entries = task_rows(tx, limit + 1, fits), entry_rows(tx, limit + 1)
    some, kept = tx.fitting(tasks[:limit]), tx.fitting(entries[:limit])
    some.sort(key=lambda row: int(row["number"]))
    progress = progress_of(tx, [row["id"] for row in some])
    more = {
        "agents": len(here) > limit,
        "leases": len(leases) > limit,
        "waiting": len(waiting) > limit,
        "tasks": len(tasks) > len(some),
        "entries": len(entries) > len(kept),
    }
    cursors = {row["agent"]: row["seq"] for row in folded.rows("cursor") if not row["channel"]}
    since = {row["name"]: row["since_seq"] for row in folded.rows("agent")}
    agents = [
        Presence.of(
            who.__dict__,
            unread=present.rows(
                MESSAGES.count_unread_then,
                agent=who.agent,
                read=cursors.get(who.agent, 0),
                since=since[who.agent],
                until=folded.seq,
            )[0]["number"],
        )
        for who in here[:limit]
    ]
    return Moment(
        seq=folded.seq,
        at=tx.wall,
        agents=tuple(agents),
        leases=leases[:limit],
        waiting=waiting[:limit],
        tasks=tuple(task_record(row, tx.now, progress=progress.get(row["id"])) for row in some),
        counts=counts_of(tx),
        entries=tuple(entry_record(row, tx.now) for row in kept),
        cut=tuple(name for name, is_cut in more.items() if is_cut),
    )


def task_rows(tx: Read, limit: int, fits: Fits | None = None) -> list[Row]:
    """Tasks: the first ones of each state, then more, those that had not ended first."""
    first: list[Row] = []
    more: list[Row] = []
    for state in STATES:
        asked = ANY_TASK | {"state": state, "after": 0, "now": tx.now}
        rows = tx.rows(WORK.list, limit=ALL if fits else limit, **asked)
        rows = [row for row in rows if fits(row)] if fits else rows
        share = limit // len(STATES)
        first += rows[:share]
        more += rows[share:]
    return (first + more)[:limit]


def entry_rows(tx: Read, limit: int) -> list[Row]:
    """The entries of all namespaces."""
    rows: list[Row] = []
    for group in tx.rows(STATE.namespaces, now=tx.now):
        if len(rows) < limit:
            asked = {"namespace": group["namespace"], "after": "", "now": tx.now}
            rows += tx.rows(STATE.list, limit=limit - len(rows), **asked)
    return rows


def difference(before: Read, after: Read, events: Iterable[Row], limit: int) -> Row:
    """What changed between the moments that two reads see.

    events: those in between, in order
    """
    was, now = known(before), known(after)
    found = [one for key in sorted({*was, *now}) for one in compared(key, was, now)]
    about = latest(events, found)
    shown: list[Change] = []
    room = after.store.page_bytes
    for one in found[:limit]:
        if room is not None:
            room -= len(to_text([one["before"], one["after"]]))
            if room < 0 and shown:
                break
        noun, subject, session = TOPICS[one["noun"]], one["subject"], one.pop("session")
        said = about.get((noun, subject, session)) or about.get((noun, subject, None)) or {}
        shown.append(Change(**one, **said))
    counts = dict.fromkeys(("added", "removed", "changed"), 0)
    for one in found:
        counts[one["what"]] += 1
    return {"counts": counts, "changes": tuple(shown), "cut": len(found) > len(shown)}


def known(tx: Read) -> Known:
    """Everything at a moment: noun, name and number, with its fields."""
    found: Known = {}
    for who in presences(tx, tx.rows(AGENTS.open)):
        status = [session.status for session in who.sessions if session.status]
        sessions = [session.id for session in who.sessions]
        found["agent", who.agent, 0] = {"sessions": sessions, "status": status}
    for lease in grants.in_force(tx, None, None, ALL):
        found["lease", lease.resource, lease.session] = facts(lease)
    for ticket in waiters(tx, ALL):
        found["wait", ticket.resource, ticket.epoch] = facts(ticket)
    for row in task_rows(tx, ALL):
        found["task", row["id"], 0] = facts(task_record(row, tx.now))
    for row in entry_rows(tx, ALL):
        entry = entry_record(row, tx.now)
        found["entry", f"{entry.namespace}/{entry.key}", 0] = facts(entry)
    return found


def facts(record: Record) -> Row:
    return {name: value for name, value in record.to_json().items() if name not in LEFT_OUT}


def compared(key: tuple[str, str, int], was: Known, now: Known) -> Iterator[Row]:
    """How one of them changed; None if it did not."""
    old, new = was.get(key), now.get(key)
    if old == new:
        return
    noun, subject, number = key
    what = "added" if old is None else "removed" if new is None else "changed"
    session = number if noun == "lease" else None
    if old is not None and new is not None:
        names = [name for name in new if old[name] != new[name]]
        old, new = ({name: one[name] for name in names} for one in (old, new))
    yield {"noun": noun, "subject": subject, "what": what, "before": old, "after": new,
           "session": session}  # fmt: skip


def latest(events: Iterable[Row], found: list[Row]) -> dict[tuple[str, str, int | None], Row]:
    """The last event about each of these, and about each lease of a session."""
    wanted = {(TOPICS[one["noun"]], one["subject"]) for one in found}
    about: dict[tuple[str, str, int | None], Row] = {}
    for event in events:
        topic, subject = event["kind"].partition(".")[0], event["subject"]
        if (topic, subject) in wanted:
            said = {name: event[name] for name in ("kind", "agent", "seq", "at")}
            about[topic, subject, None] = about[topic, subject, event["session"]] = said
    return about
