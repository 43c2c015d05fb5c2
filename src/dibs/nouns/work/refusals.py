"""Why a worker gets no task: all is done, nothing fits it, or one may fit later.

Only tasks of the kind that the worker asked for count. It should not wait for a task that needs
more than it can do; if only such tasks are left, the answer names the tags, and which of them
nobody present has.
"""

from __future__ import annotations

from dibs.errors import AllDoneError, EmptyError, LaterError, NothingFitsError
from dibs.nouns.work.landings import is_parked
from dibs.nouns.work.tasks import WORK
from dibs.records import called, span
from dibs.storage.store import from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.nouns.work.fitting import Search
    from dibs.storage.driver import Row
    from dibs.storage.store import Read

ENDED = ("completed", "cancelled", "dead")
LISTED = 10
"""How many tasks are named."""
LANES = 100
"""How many lanes are searched for tasks to name."""


def nothing(tx: Read, search: Search, kind: str | None, able: frozenset[str]) -> EmptyError:
    lanes = {row["id"]: row for row in tx.rows(WORK.lanes) if kind in (None, row["kind"])}
    counts: dict[str, int] = {}
    fitting: dict[str, int] = {}
    unfit: set[int] = set()
    for row in tx.rows(WORK.lane_counts):
        state, number = row["state"], row["number"]
        if row["lane"] not in lanes:
            continue
        counts[state] = counts.get(state, 0) + number
        if state in ENDED:
            continue
        if row["lane"] in search.lanes:
            fitting[state] = fitting.get(state, 0) + number
        else:
            unfit.add(row["lane"])
    needed = sorted({tag for lane in unfit for tag in from_text(lanes[lane]["tags"])} - able)
    details: dict[str, Any] = {"counts": counts}
    if needed:
        here = present(tx)
        details |= {"tags": needed, "nobody_has": [tag for tag in needed if tag not in here]}
    if not fitting and not unfit:
        return all_done(counts, kind, details)
    if not fitting:
        return unable(details, sum(counts[state] for state in counts if state not in ENDED))
    waits = waiting(tx, search)
    details["waits"] = waits
    dues = [one["due_in_ms"] for one in waits if one["due_in_ms"] is not None]
    first = tx.row(WORK.next_due)
    if first is not None and first["due"] is not None:
        dues.append(max(0, first["due"] - tx.now))
    details["due_in_ms"] = min(dues, default=None)
    if (
        set(fitting) == {"blocked"}
        and not dues
        and not unfit
        and counts.keys() <= {*ENDED, *fitting}
        and not tx.rows(WORK.parked_in, lanes=list(search.lanes))
    ):
        return stuck(waits, fitting["blocked"], details)
    return later(waits, sum(fitting.values()), details)


def all_done(counts: dict[str, int], kind: str | None, details: dict[str, Any]) -> AllDoneError:
    of = f" of kind {called(kind)}" if kind is not None else ""
    if not counts:
        return AllDoneError(f"there are no tasks{of}", next="add one", **details)
    said = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    dead = counts.get("dead")
    return AllDoneError(
        f"all tasks{of} are done: {said}",
        next="reopen the dead ones if they must be done, or add more" if dead else "add more",
        **details,
    )


def unable(details: dict[str, Any], number: int) -> NothingFitsError:
    tags, nobody = details.get("tags", []), details.get("nobody_has", [])
    said = f"{number} {'task needs' if number == 1 else 'tasks need'} tags that you did not give"
    if tags:
        said += f" (tags: {', '.join(map(called, tags[:LISTED]))})"
    if nobody:
        said += f"; nobody present has {', '.join(map(called, nobody[:LISTED]))}"
    return NothingFitsError(
        said, next="give more tags if you can do more, or leave them to others", **details
    )


def stuck(waits: list[dict[str, Any]], number: int, details: dict[str, Any]) -> NothingFitsError:
    return NothingFitsError(
        f"{number} blocked {'task waits' if number == 1 else 'tasks wait'} for something that "
        f"nobody works on: {sentence(waits)}",
        next="add or reopen what they wait for, or cancel them",
        **details,
    )


def later(waits: list[dict[str, Any]], number: int, details: dict[str, Any]) -> LaterError:
    due = details["due_in_ms"]
    when = f"; the first is due in {span(due)}" if due is not None else ""
    skipped = details.get("tags")
    also = f"; others need {', '.join(map(called, skipped[:LISTED]))}" if skipped else ""
    return LaterError(
        f"no task fits now; {number} {'is' if number == 1 else 'are'} left: "
        f"{sentence(waits)}{when}{also}",
        next="wait for one (wait_s, --wait), or do something else",
        **details,
    )


def sentence(waits: list[dict[str, Any]]) -> str:
    """The first tasks that wait, and how many more were found."""
    said = []
    for one in waits[:3]:
        for_what = ", ".join(map(called, one["waits_for"][:3]))
        by = f" (held by {called(one['agent'])})" if one["agent"] and one["why"] == "lease" else ""
        said.append(
            {
                "claimed": f"{called(one['id'])} is claimed by {called(one['agent'] or '')}",
                "lease": f"{called(one['id'])} waits for {for_what}{by}",
                "after": f"{called(one['id'])} waits for {for_what or 'its parts'}",
                "pause": f"{called(one['id'])} pauses",
                "start": f"{called(one['id'])} starts later",
                "landing": f"{called(one['id'])} waits for its landing {for_what}",
                "person": f"{called(one['id'])} waits for a person",
            }[one["why"]]
        )
    more = len(waits) - len(said)
    return ", ".join(said) + (f", and {more} more" if more > 0 else "")


def waiting(tx: Read, search: Search) -> list[dict[str, Any]]:
    """The first tasks that wait, what they wait for, and when that is due."""
    found: list[dict[str, Any]] = []
    for row in search.passed()[:LISTED]:
        held = row["holder"] is not None
        due = row["deadline"] - tx.now if held else None
        found.append(said(row["head"], "lease", [row["resource"]], row["agent"], due))
    for turn in search.turns:
        by = search.asides.get(turn["aside"])
        found.append(said(turn["id"], "lease", [by["resource"]] if by else [], None, None))
    lanes = list(search.lanes)[:LANES]
    for state in ("claimed", "failed", "blocked"):
        left = LISTED - len(found)
        if left > 0:
            rows = tx.rows(WORK.open_in, state=state, lanes=lanes, limit=left)
            found += [of_row(tx, row) for row in rows]
    return found[:LISTED]


def of_row(tx: Read, row: Row) -> dict[str, Any]:
    due = None if row["due"] is None else max(0, row["due"] - tx.now)
    if row["state"] == "claimed":
        return said(row["id"], "claimed", [], row["agent"], due)
    if row["state"] == "failed":
        return said(row["id"], "pause", [], None, due)
    if due is not None:
        return said(row["id"], "start", [], None, due)
    if is_parked(row):
        landing = row["landing"]
        return said(row["id"], "landing" if landing else "person", [landing] if landing else [],
                    row["agent"], None)  # fmt: skip
    needs = [
        one["needs"] for one in tx.rows(WORK.needs_of, id=row["id"]) if one["state"] != "completed"
    ]
    return said(row["id"], "after", needs[:LISTED], None, None)


def said(
    id: str, why: str, waits_for: list[str], agent: str | None, due_in_ms: int | None
) -> dict[str, Any]:
    return {"id": id, "why": why, "waits_for": waits_for, "agent": agent, "due_in_ms": due_in_ms}


def present(tx: Read) -> set[str]:
    """What the agents present can do, as they said when they asked for tasks."""
    rows = [row for row in tx.rows(WORK.abilities) if tx.store.alive(row, tx.now)]
    return {tag for row in rows for tag in from_text(row["tags"]) or ()}
