"""Waiting until tasks are in a state, including tasks that nobody has added yet."""

from __future__ import annotations

from dibs.errors import TimeoutError
from dibs.nouns.work.tasks import ANY, WORK, as_of, task_record
from dibs.records import called

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dibs.records import Task
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Read

ENDED = ("completed", "cancelled", "dead")
SHOWN = 3


def wait(
    scope: Scope,
    ids: Sequence[str],
    any: bool,
    state: str | None,
    kind: str | None,
    title_has: str | None,
    wait_s: float,
) -> tuple[Task, ...]:
    """The tasks that were waited for, once they are in that state or have ended."""
    states = ENDED if state is None else (state,)

    def look() -> tuple[tuple[Task, ...] | None, int | None]:
        with scope.read() as tx:
            if ids:
                rows = [as_of(row, tx.now) for row in tx.rows(WORK.several, ids=list(ids))]
                there = [row for row in rows if row["state"] in states]
                enough = bool(there) if any else len(there) == len(ids)
            else:
                rows = there = found_by(tx, kind, title_has, states if state else None)
                enough = bool(there)
            dues = [row["due"] - tx.now for row in rows if row["due"] is not None]
            places = {id: place for place, id in enumerate(ids)}
            there.sort(key=lambda row: places.get(row["id"], 0))
            answer = tuple(task_record(row, tx.now) for row in there) if enough else None
            return answer, min(dues, default=None)

    found = scope.store.wait(look, ("task",), wait_s)
    if found is None:
        what = ", ".join(map(called, ids[:SHOWN])) or "such a task"
        more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
        raise TimeoutError(
            f"{what}{more} did not become {' or '.join(states)} in time",
            next="wait again, or check it with work show",
        )
    return found


def found_by(
    tx: Read, kind: str | None, title_has: str | None, states: Sequence[str] | None
) -> list[Row]:
    """The first task of that kind with that text in its title."""
    fits = matching(text=title_has, titles=True)
    asked = ANY | {"state": states[0] if states else None, "kind": kind}
    return tx.pages(WORK.list, "after", "number", keep=fits, after=0, limit=1, now=tx.now, **asked)


def matching(
    *,
    tags: Sequence[str] = (),
    labels: Sequence[str] = (),
    text: str | None = None,
    titles: bool = False,
) -> Callable[[Row], bool] | None:
    """Whether a task has all these tags and labels, and a text in its title or id."""
    if not tags and not labels and text is None:
        return None
    from dibs.storage.store import from_text

    wanted = (text or "").casefold()

    def fits(row: Row) -> bool:
        said = row["title"] if titles else f"{row['id']}\n{row['title']}"
        return (
            wanted in said.casefold()
            and set(tags) <= set(from_text(row["tags"]))
            and set(labels) <= set(from_text(row["labels"]) or ())
        )

    return fits
