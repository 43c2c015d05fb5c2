"""`dibs log`: the past, in order, with dates, notes, reasons and results.

It prints the last of the events that match. If events were cut off or pruned, it says so on
standard error, which keeps the data clean.
"""

from __future__ import annotations

import os
import select
import sys
from threading import Thread

from dibs.arguments import FILTER, Whole
from dibs.arguments import KINDS as BY_NAME
from dibs.errors import InvalidError, PrunedError
from dibs.nouns.events.kinds import EventKind
from dibs.operation import EVERYBODY
from dibs.records import iso
from dibs.surfaces.cli import show
from dibs.surroundings.wording import ago, note, print_json, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from dibs.dibs import Dibs
    from dibs.records import Event
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
KINDS = {
    "since": BY_NAME["since"],
    "until": BY_NAME["until"],
    "task": BY_NAME["task"],
    "path": BY_NAME["path"],
    "kind": EventKind(),
    "agent": FILTER,
    "subject": FILTER,
    "last": Whole(1),
}
WERE = {"limit": "last"}
PAGE = 1000


def main(
    call: Globals,
    *,
    since: str | None = None,
    until: str | None = None,
    agent: str | None = None,
    task: str | None = None,
    path: str | None = None,
    kind: str | None = None,
    subject: str | None = None,
    last: int | None = None,
    follow: bool = False,
) -> int:
    """Show the last events, in order: who did what, when, why, and with what result.

    A time is 90s, 5 min, 1h30m, 2d or 1w ago, today, yesterday, 2026-11-16, 14:00 or
    2026-11-16T14:00, in your time zone unless it ends in Z or +01:00. Digits alone are a seq.

    since: only those after this seq, or since a time; a day from its beginning
    until: only those up to this seq, or until a time; a day to its end
    agent: only what this agent did
    task: only those of this task and of what was held for it
    path: only those of leases that overlap with this path
    kind: only this kind, such as lease.claimed, or lease for all of its kinds
    subject: only what was done to this resource, task, entry or agent
    last: how many of the last events to show; by default 1000
    follow: keep running, and show new events; with --since and without --last, all since then
    example: --since yesterday --agent bob
    """
    if follow and until is not None:
        raise InvalidError("--follow has no end", next="leave out --follow or --until")
    asked = {"agent": agent, "task": task, "path": path, "kind": kind, "subject": subject}
    wanted = {name: value for name, value in asked.items() if value is not None}
    if follow:
        Thread(target=end_with_reader, daemon=True).start()
    with call.open() as space:
        end = space.events.last()
        if follow and since is not None and last is None:
            first = space.events.since(since, limit=1)
            end = since if isinstance(since, int) else first[0].seq - 1 if first else end
        else:
            Past(call, space, wanted, since, end if until is None else until, last or PAGE).tell()
        while follow:
            end = news(call, space, wanted, end)
    return 0


def end_with_reader() -> None:
    """End the process when its output has no reader left, even if there is nothing to print."""
    output = select.poll()
    output.register(1, 0)
    # Not if the system cannot poll what the output is, as macOS cannot poll /dev/null.
    if output.poll()[0][1] & (select.POLLERR | select.POLLHUP):
        os._exit(0)


def news(call: Globals, space: Dibs, wanted: dict[str, Any], seen: int) -> int:
    """Print what is added after a seq; return the seq to go on from."""
    end = space.events.last()
    try:
        found = space.events.watch(seen, wait_s=3600, **wanted)
    except PrunedError as error:
        return told_pruned(call, error)
    tell(call, found)
    # If nothing was found, the events so far need not be read again.
    return found[-1].seq if found else max(seen, end)


class Past:
    """The last matching events of a span."""

    def __init__(
        self,
        call: Globals,
        space: Dibs,
        wanted: dict[str, Any],
        since: Any,
        until: Any,
        number: int,
    ) -> None:
        self._call = call
        self._space = space
        self._wanted = wanted
        self._since = since
        self._until = until
        self._number = number

    def tell(self) -> None:
        """Print them. If there are too many to keep in memory, read them twice, page by page."""
        found, number, first = self._count()
        if number < self._number:
            self._say_what_is_gone()
            if not number:
                self._say_what_there_is()
        elif first is not None and self._before(first):
            note(
                f"the last {number:,}; there are more: --last {number * 10}, "
                f"or --until {first - 1} for those before"
            )
        if number <= PAGE:
            tell(self._call, found)
            return
        seen, left = (first or 1) - 1, number
        while left > 0:
            limit = min(PAGE, left)
            try:
                page = self._space.events.since(
                    seen, until=self._until, limit=limit, **self._wanted
                )
            except PrunedError as error:
                seen = told_pruned(self._call, error)
                continue
            tell(self._call, page)
            if len(page) < limit:
                return
            seen, left = page[-1].seq, left - len(page)

    def _page(self, until: Any, limit: int) -> tuple[Event, ...]:
        return self._space.events.latest(
            since=self._since, until=until, limit=limit, **self._wanted
        )

    def _count(self) -> tuple[tuple[Event, ...], int, int | None]:
        """The last page that was read, how many there are in all, and the first of them."""
        found: tuple[Event, ...] = ()
        number, first, until = 0, None, self._until
        while number < self._number:
            limit = min(PAGE, self._number - number)
            page = self._page(until, limit)
            number += len(page)
            if page:
                found, first = page, page[0].seq
                until = first - 1
            if len(page) < limit:
                break
        return found, number, first

    def _before(self, first: int) -> bool:
        """Whether there are more before these."""
        return bool(self._page(first - 1, 1))

    def _say_what_there_is(self) -> None:
        """Say that nothing was found, and where the journal ends."""
        last = self._space.events.latest(limit=1)
        if last:
            note(f"no event matches; the last of all is {last[0].seq}, {ago(last[0].at)}")
        else:
            note("nothing has happened yet")

    def _say_what_is_gone(self) -> None:
        """Say what was pruned, if it could have matched."""
        try:
            self._space.events.since(0, limit=1)
        except PrunedError as error:
            kept = self._space.events.since(error.details["pruned_seq"], limit=1)
            since = self._since
            if isinstance(since, int) and since < error.details["pruned_seq"]:
                told_pruned(self._call, error)
            elif since is None or (isinstance(since, str) and kept and since < iso(kept[0].at)):
                note(f"{what_was_pruned(error)}; these are all that are left")


def tell(call: Globals, events: Iterable[Event]) -> None:
    for event in events:
        # One line each, also as JSON, so that a program can follow.
        print_json(row(call.format, event)) if call.json else say(show.event_line(event))
    sys.stdout.flush()


def row(format: str, event: Event) -> dict[str, Any]:
    """An event as data; in formats with columns, also with those that people look for."""
    whole: dict[str, Any] = event.to_json()
    data = whole["data"] if isinstance(whole["data"], dict) else {}
    if format == "markdown":
        told = {name: whole[name] for name in ("agent", "kind", "subject")}
        when = {"seq": event.seq, "time": show.moment(event.at)}
        return {**when, **told, "told": "  ".join(show.told(data))}
    if format == "csv":
        more = {name: data.get(name) for name in ("task", "note", "reason", "result", "waited_ms")}
        rest = whole.pop("data")
        return {**whole, **more, "data": rest}
    return whole


def told_pruned(call: Globals, error: PrunedError) -> int:
    """Say that the reader has missed events; return the seq to go on from."""
    if call.format == "json":
        print_json(error.to_json())
        sys.stdout.flush()
    else:
        note(f"{what_was_pruned(error)}; continuing from there")
    seq: int = error.details["pruned_seq"]
    return seq


def what_was_pruned(error: PrunedError) -> str:
    at = error.details.get("pruned_at")
    when = f" ({ago(at)})" if at else ""
    return f"the events up to {error.details['pruned_seq']} have been pruned{when}"
