"""`dibs report` and `dibs contention`: what was done in a period, and who waited for whom.

Both build a sheet (see `surroundings.sheets`), which is printed, or written as Markdown for a pull
request, or as one HTML file.
"""

from __future__ import annotations

import time

from dibs.arguments import LIST_LIMIT, Choice, When, Whole
from dibs.operation import EVERYBODY
from dibs.records import Report, plain
from dibs.surroundings import sheets
from dibs.surroundings.sheets import Name, Sheet
from dibs.surroundings.wording import print_json, project, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dibs.records import Contention, Tally, Waiter, Waits
    from dibs.surroundings.commands import Globals
    from dibs.surroundings.sheets import Cell

BY = {"report": EVERYBODY, "contention": EVERYBODY}
KINDS = {
    "format": Choice("text", "markdown", "json", "html"),
    "by": Choice("agent", "task", "path", "day"),
    "limit": Whole(1, LIST_LIMIT),
    "since": When("since"),
    "until": When("until"),
}


def report(
    call: Globals,
    *,
    since: int | str | None = None,
    until: int | str | None = None,
    by: str = "agent",
    cost: bool = False,
    limit: int = 100,
    format: str = "text",
) -> int:
    """Report what was done, held, waited for and recovered in a period.

    since: a seq or a time, such as 1h, yesterday or 2026-11-16; by default everything that is kept
    until: a seq or a time; by default now
    by: add up for each agent, task, path or day
    cost: include the tokens that sessions used, and their cost
    limit: how many groups to show at most
    format: the format of the answer
    example: --since yesterday --by agent --format markdown
    """
    with call.open() as space:
        handle = call.look(space)
        found = handle.events.report(since=since, until=until, by=by, east_s=east_s(), limit=limit)
        name = project(handle)
    return answer(call, format, found, lambda: report_sheet(name, found, cost))


def contention(
    call: Globals,
    *,
    since: int | str | None = None,
    until: int | str | None = None,
    limit: int = 20,
    format: str = "text",
) -> int:
    """Show who waits for whom now, and what agents waited for in a period.

    since: a seq or a time, such as 1h, yesterday or 2026-11-16; by default everything that is kept
    until: a seq or a time; by default now
    limit: how many waiters, paths, pairs and savings to show at most
    format: the format of the answer
    example: --since 1d
    """
    with call.open() as space:
        handle = call.look(space)
        found = handle.events.contention(since=since, until=until, limit=limit)
        name = project(handle)
    return answer(call, format, found, lambda: contention_sheet(name, found))


def answer(
    call: Globals, format: str, found: Report | Contention, sheet: Callable[[], Sheet]
) -> int:
    format = call.format if format == "text" else format  # dibs --format FORMAT report
    if format == "csv" and isinstance(found, Report):
        for group in found.groups:  # a row each: the rest is no table
            print_json(plain(group))
    elif format in ("json", "yaml", "csv"):
        print_json(plain(found))
    elif format == "text":
        sheets.show(sheet())
    else:
        for line in (sheets.markdown if format == "markdown" else sheets.html)(sheet()):
            say(line)
    return 0


def east_s() -> int:
    """How far the clocks here are ahead of UTC now."""
    return time.localtime().tm_gmtoff


# What is said of any period


def begin(title: str, name: str, found: Report | Contention) -> Sheet:
    sheet = Sheet([title, Name(name)])
    events = several(found.events, "event")
    sheet.line(f"{moment(found.since_at)} to {moment(found.until_at)}, {events}")
    if found.known_at is not None:
        unknown = several(found.unknown, "lease, claim or wait", "leases, claims or waits")
        sheet.line(
            f"The journal begins at {moment(found.known_at)}; earlier events were pruned. What "
            f"began before counts from there ({unknown} of it ended in this period)."
        )
    if found.cut:
        sheet.line("There was too much to read, so this is only a part. Give a shorter period.")
    return sheet


def moment(at: int) -> str:
    """A time by the clocks here, with their zone."""
    return time.strftime("%Y-%m-%d %H:%M %z", time.localtime(at / 1000))


def lasting(milliseconds: int) -> str:
    """How long something took, in the two units that matter."""
    seconds, rest = divmod(milliseconds, 1000)
    if seconds < 10:
        return f"{milliseconds / 1000:.1f}s" if seconds else f"{rest}ms" if rest else "0"
    if rest >= 500:
        seconds += 1
    for size, unit, smaller, sub in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= size:
            more = seconds % size // smaller
            return f"{seconds // size}{unit} {more}{sub}" if more else f"{seconds // size}{unit}"
    return f"{seconds}s"


def several(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


# The report


def report_sheet(name: str, found: Report, cost: bool) -> Sheet:
    sheet = begin("Report of ", name, found)
    sheet.line(f"{'. '.join(summary(found.total))}.")
    if found.groups:
        columns = [one for one in COLUMNS if one[0] in ALWAYS or one[2](found.total)]
        columns += COST if cost else []
        head = [found.by, *(title for title, _, _ in columns)]
        rows: list[list[Cell]] = [
            [title_of(one, found.by), *(write(one) for _, write, _ in columns)]
            for one in found.groups
        ]
        total = [("all", found.total)]
        if found.rest is not None:
            more = found.group_count - len(found.groups)
            total.insert(0, (f"{more:,} more", found.rest))
        rows += [[text, *(write(one) for _, write, _ in columns)] for text, one in total]
        sheet.table(head, rows, range(1, len(head)))
    return sheet


def title_of(one: Tally, by: str) -> Cell:
    if one.key is None:
        return f"no {by}"
    return one.key if by == "day" else Name(one.key)


def summary(total: Tally) -> list[str]:
    """What a reader wants to know first, in sentences."""
    done = [several(total.done, "task") + " done"]
    for number, text in (
        (total.failed, several(total.failed, "attempt") + " failed"),
        (total.dead, f"{total.dead:,} dead"),
        (total.returned, f"{total.returned:,} came back from landing"),
        (total.reopened, f"{total.reopened:,} reopened"),
    ):
        done += [text] if number else []
    waits = several(total.waits, "wait")
    other = several(total.passed, "other task") + " taken"
    said = [
        ", ".join(done),
        f"Worked {lasting(total.worked_ms)}, held leases for {lasting(total.held_ms)}, "
        f"waited {lasting(total.waited_ms)}",
        f"{several(total.avoided, 'conflict')} avoided ({waits}, {other})",
    ]
    if total.intrusions:
        said.append(several(total.intrusions, "intrusion"))
    if total.died or total.lapsed or total.taken_over:
        freed = f"{several(total.freed_leases, 'lease')} and {several(total.freed_tasks, 'task')}"
        said.append(
            f"{several(total.died, 'session')} died and freed {freed}, "
            f"{several(total.lapsed, 'claim')} lapsed, "
            f"{several(total.taken_over, 'task')} taken over"
        )
    if total.landed or total.not_landed:
        said.append(
            f"{several(total.landed, 'branch', 'branches')} landed, {total.not_landed:,} not"
        )
    return said


def number(name: str) -> tuple[Callable[[Tally], str], Callable[[Tally], int]]:
    return lambda one: f"{getattr(one, name):,}", lambda one: int(getattr(one, name))


def length(name: str) -> tuple[Callable[[Tally], str], Callable[[Tally], int]]:
    return lambda one: lasting(getattr(one, name)), lambda one: int(getattr(one, name))


def dollars(amount: float) -> str:
    """An amount of money, with as many places as a small one needs."""
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"


ALWAYS = ("done", "failed", "held", "waited", "avoided")
"""The columns that are always shown; others are shown if they have something in them."""
COLUMNS: list[tuple[str, Callable[[Tally], str], Callable[[Tally], float]]] = [
    ("done", *number("done")),
    ("failed", *number("failed")),
    ("dead", *number("dead")),
    ("abandoned", *number("abandoned")),
    ("returned", *number("returned")),
    ("worked", *length("worked_ms")),
    ("held", *length("held_ms")),
    ("waited", *length("waited_ms")),
    ("gave up", *number("gave_up")),
    ("avoided", *number("avoided")),
    ("intrusions", *number("intrusions")),
    ("revoked", *number("revoked")),
    ("died", *number("died")),
    ("lapsed", *number("lapsed")),
    ("expired", *number("expired")),
    ("taken over", *number("taken_over")),
    ("landed", *number("landed")),
    ("not landed", *number("not_landed")),
]
COST: list[tuple[str, Callable[[Tally], str], Callable[[Tally], float]]] = [
    ("input", *number("input_tokens")),
    ("output", *number("output_tokens")),
    ("cache", *number("cache_tokens")),
    ("cost", lambda one: dollars(one.cost_usd), lambda one: one.cost_usd),
]


# Contention


def contention_sheet(name: str, found: Contention) -> Sheet:
    sheet = begin("Contention in ", name, found)
    sheet.heading("Now")
    if found.now:
        sheet.tree(waiting_tree(found.now))
        if found.waiting_count > len(found.now):
            sheet.line(f"The first {len(found.now):,} of {found.waiting_count:,} who wait.")
    else:
        sheet.line("Nobody waits.")
    sheet.heading("Waits")
    if not found.total.waits:
        sheet.line("Nobody waited in this period.")
        return sheet
    sheet.line(
        f"{several(found.total.waits, 'wait')}, {lasting(found.total.waited_ms)} in all: "
        f"{found.served:,} served, {found.gave_up:,} given up."
    )
    head = ["path", "waits", "waited", "p50", "p90", "p99", "max"]
    rows: list[list[Cell]] = [waits_row(Name(one.what or ""), one) for one in found.paths]
    sheet.table(head, [*rows, waits_row("all", found.total)], range(1, 7))
    if found.pairs:
        sheet.heading("Agents that met most")
        met: list[list[Cell]] = [
            [Name(one.agents[0]), Name(one.agents[1]), f"{one.meets:,}", lasting(one.waited_ms)]
            for one in found.pairs
        ]
        sheet.table(["agent", "agent", "meets", "waited"], met, (2, 3))
    if found.splits or found.orders:
        sheet.heading("What would have saved waiting")
        saved: list[list[Cell]] = [
            [
                ["split ", Name(one.path)] if one.how == "split" else order(one.tasks, one.path),
                f"{one.waits:,}",
                lasting(one.saved_ms),
            ]
            for one in sorted((*found.splits, *found.orders), key=lambda one: -one.saved_ms)
        ]
        sheet.table(["change", "waits", "saved"], saved, (1, 2))
        sheet.line("Each by itself: two changes can save the same wait.")
    return sheet


def order(tasks: Sequence[str], path: str) -> list[str]:
    return [Name(tasks[1]), " after ", Name(tasks[0]), " (", Name(path), ")"]


def waits_row(title: str, one: Waits) -> list[Cell]:
    times = (one.waited_ms, one.p50_ms, one.p90_ms, one.p99_ms, one.max_ms)
    return [title, f"{one.waits:,}", *map(lasting, times)]


def waiting_tree(waiters: Sequence[Waiter]) -> list[tuple[int, Cell]]:
    """Who waits for whom: each holder, and below it its waiters in the order of the queue.

    A waiter of several holders is listed below each, but its own waiters are listed only once.
    """
    below: dict[int, list[Waiter]] = {}
    names: dict[int, str] = {}
    for waiter in waiters:
        for blocker in waiter.blockers:
            names.setdefault(blocker.session, blocker.agent)
            if waiter not in below.setdefault(blocker.session, []):
                below[blocker.session].append(waiter)
    waiting = {waiter.session for waiter in waiters}
    lines: list[tuple[int, Cell]] = []
    told: set[int] = set()
    for session in [one for one in names if one not in waiting] or list(names)[:1]:
        held = sorted(
            {b.resource for w in below[session] for b in w.blockers if b.session == session}
        )
        lines.append((0, [Name(names[session]), " holds ", *listed(held)]))
        front = [(1, waiter, session) for waiter in reversed(below[session])]
        while front:
            depth, waiter, behind = front.pop()
            since = lasting(max(0, int(time.time() * 1000) - waiter.since_at))
            more = below.get(waiter.session, []) if waiter.ticket not in told else []
            others = len({blocker.session for blocker in waiter.blockers} - {behind})
            also = f", also for {several(others, 'other')}" if others else ""
            wants = listed(waiter.resources)
            lines.append((depth, [Name(waiter.agent), f" has waited {since} for ", *wants, also]))
            told.add(waiter.ticket)
            front += [(depth + 1, one, waiter.session) for one in reversed(more)]
    lost = [waiter for waiter in waiters if waiter.ticket not in told]
    lines += [(0, [Name(one.agent), " waits for ", *listed(one.resources)]) for one in lost]
    return lines


def listed(names: Sequence[str]) -> list[str]:
    """Some names, and how many more there are."""
    shown: list[str] = []
    for name in names[:3]:
        shown += [Name(name), ", "]
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return [*shown[:-1], more]
