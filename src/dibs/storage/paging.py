"""How much of a list is read at once.

A caller of the library holds what it asks for in its own memory. A daemon holds what all of its
callers ask for, even what they never read, so its answers have a limit in bytes. A longer list is
refused, and the refusal says how many rows fit and where the rest begins; the library's client
continues by itself. Nothing is left out silently.
"""

from __future__ import annotations

from dibs.errors import TooLargeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Read

STEP = 16
"""How many rows are read at once: each may hold a megabyte."""
LONG_STEP = 500
"""The same where the caller's own memory is used."""


def weight(row: Row) -> int:
    """Roughly how many bytes a row has as JSON."""
    texts = [value for value in row.values() if type(value) is str]
    return sum(len(text) if text.isascii() else 6 * len(text) for text in texts)


def pages(
    tx: Read,
    room: int | None,
    query: Query,
    cursor: str,
    field: str,
    keep: Callable[[Row], bool] | None,
    parameters: dict[str, Any],
) -> list[Row]:
    """All rows of a list, unless they need more room.

    cursor: the parameter that says after which row to begin
    field: the column it is compared with
    keep: which of the rows are wanted
    """
    limit = parameters.pop("limit")
    found: list[Row] = []
    step = STEP if room is not None else LONG_STEP
    while len(found) < limit:
        asked = step if keep is not None else min(step, limit - len(found))
        rows = tx.rows(query, limit=asked, **parameters)
        for row in rows:
            if len(found) == limit:
                break
            parameters[cursor] = row[field]
            if keep is not None and not keep(row):
                continue
            room = None if room is None else room - weight(row)
            if room is not None and room < 0 and found:
                number, at = len(found), found[-1][field]
                # An error keeps its stack frames, and these would keep the rows.
                rows.clear()
                found.clear()
                del row
                raise too_large(number, cursor, at)
            found.append(row)
        if len(rows) < asked:
            break
    return found


def fitting(room: int, rows: list[Row]) -> list[Row]:
    """As many of the first rows as fit, but at least one."""
    for number, row in enumerate(rows):
        room -= weight(row)
        if room < 0 and number:
            return rows[:number]
    return rows


def too_large(number: int, cursor: str, at: object) -> TooLargeError:
    return TooLargeError(
        f"only the first {number:,} of these fit in one answer",
        next=f"ask with limit={number}, then continue with {cursor}={at}",
        limit=number,
        argument=cursor,
        at=at,
    )
