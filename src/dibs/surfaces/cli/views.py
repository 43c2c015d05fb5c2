"""What one looks at: the present (`dibs status`), the past (`dibs log`), both live (`dibs top`).

`dibs gc` removes the past, step by step.

In `dibs top`, what needs attention comes first: who waits for whom, what is about to lapse, what
has failed for good. `/` filters, `q` quits. Where there is no terminal, it prints one picture and
ends.
"""

from __future__ import annotations

import os
import sys

from dibs.arguments import DELAY_MAX_S, Seconds, Whole, milliseconds
from dibs.errors import PrunedError
from dibs.nouns.work.landings import LANDING
from dibs.operation import EVERYBODY, PEOPLE
from dibs.records import Overview, called, plain, span
from dibs.surfaces.cli import show
from dibs.surroundings.wording import ago, note, paint, print_json, say, shown, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from dibs.dibs import Dibs
    from dibs.records import Event
    from dibs.surroundings.commands import Globals

BY = {"status": EVERYBODY, "log": EVERYBODY, "top": EVERYBODY, "gc": PEOPLE}
KINDS = {"limit": Whole(1), "keep_s": Seconds(0, 10 * DELAY_MAX_S)}
PAGE = 1000
REFRESH_S = 0.5
SHOWN = 20
ENTER_SCREEN = "\x1b[?1049h\x1b[?25l"
LEAVE_SCREEN = "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
ESCAPE, ENTER, BACKSPACE = "\x1b", ("\r", "\n"), ("\x7f", "\b")


def status(call: Globals, *resources: str) -> int:
    """Say who has these paths; without any, show everything that a turn needs.

    resources: what to look at
    example: src/a.py
    """
    with call.open() as space:
        handle = call.look(space)
        if resources:
            states = handle.leases.status(*resources)
        else:
            found = handle.agents.overview(agent=call.name(), limit=1000)
            board = as_json(found, named=call.name() is not None or bool(handle.scope.session))
    if call.json:
        print_json(plain(states if resources else board))
    elif resources:
        show.availabilities(states)
    else:
        draw_status(board)
    return 0


def as_json(found: Overview, named: bool) -> dict[str, Any]:
    """Who is here, what is held, what is worked on, and what waits to be read."""
    board: dict[str, Any] = {
        "space": found.space,
        "agents": found.agents,
        "leases": found.leases,
        "waiting": found.waiting,
        "tasks": [task for task in found.tasks if task.state == "claimed"],
        "available": found.counts.get("available", 0),
        "trains": found.trains,
        "asks": [one for one in found.attention if one.what in ("asks", "not_landed")],
    }
    return board | ({"unread": found.unread} if named else {})


def draw_status(board: dict[str, Any]) -> None:
    if not board["agents"] and not board["leases"]:
        note("nobody is here and nothing is held")
        note("next: dibs claim PATH --as NAME")
    for title, kind in (("agents", "Presence"), ("leases", "Lease"), ("tasks", "Task")):
        if board[title]:
            say(paint("bold", title))
            show.show_all(kind, board[title])
    if board["trains"]:
        say(paint("bold", "trains"))
        for line in show.train_lines(board["trains"]):
            say(line)
    for one in board["asks"]:
        say(show.urgent(one))
    for one in board["waiting"]:
        who, what = called(one.agent), called(one.resource)
        say(f"{who} waits for {what} since {ago(one.since_at)}")
    if number := board["available"]:
        say(f"{number} {'task is' if number == 1 else 'tasks are'} available: dibs work next")
    if number := board.get("unread"):
        say(f"{number} unread {'message' if number == 1 else 'messages'}: dibs inbox")


def log(
    call: Globals,
    *,
    since: int | None = None,
    kind: str | None = None,
    agent: str | None = None,
    subject: str | None = None,
    limit: int = PAGE,
    follow: bool = False,
) -> int:
    """Give the last events, in order, or those after a seq.

    since: the last one you have seen; by default the last ones are given
    kind: only this kind, such as lease.claimed, or lease for all of its kinds
    agent: only what this agent did
    subject: only what was done to this resource, task, entry or agent
    limit: at most so many
    follow: go on with what is added; after --since, without a limit
    example: --kind lease --agent bob
    """
    wanted = {"kind": kind, "agent": agent, "subject": subject}
    with call.open() as space:
        left: int | None = limit
        if since is None:
            since, left = last_ones(call, space, wanted, limit)
        if follow:
            left = None
        while left is None or left > 0:
            asked: dict[str, Any] = {**wanted, "limit": min(PAGE, left or PAGE)}
            try:
                if follow:
                    found = space.events.watch(since, wait_s=3600, **asked)
                else:
                    found = space.events.since(since, **asked)
            except PrunedError as error:
                since = told_pruned(call, error)
                continue
            print_events(call, found)
            since = found[-1].seq if found else since
            if left is not None:
                left = left - len(found) if len(found) == asked["limit"] else 0
    return 0


def last_ones(
    call: Globals, space: Dibs, wanted: dict[str, str | None], limit: int
) -> tuple[int, int]:
    """Print the last events; return after which seq to go on, and how many more to print."""
    end = space.events.last()
    before, number = end + 1, 0
    while number < limit:
        found = space.events.latest(before=before, limit=min(PAGE, limit - number), **wanted)
        number += len(found)
        before = found[0].seq if found else before
        if len(found) < PAGE:
            break
    if number < limit:  # all that is kept: say what is not
        try:
            space.events.since(0, limit=1)
        except PrunedError as error:
            note(f"{what_was_pruned(error)}; this is all that is kept")
    elif not call.json:
        note(f"the last {number:,}; for more: dibs log --limit {limit * 10}")
    if number > PAGE:
        return before - 1, number  # too many to keep: they are read again, a page at a time
    print_events(call, found)
    return end, 0


def print_events(call: Globals, events: Iterable[Event]) -> None:
    for event in events:
        # A line each, as JSON too, so that a program can follow.
        print_json(event.to_json()) if call.json else say(show.event_line(event))
    sys.stdout.flush()


def told_pruned(call: Globals, error: PrunedError) -> int:
    """Tell a reader that it has missed something, as JSON to a program; return where to go on."""
    if call.json:
        print_json(error.to_json())
        sys.stdout.flush()
    else:
        note(f"{what_was_pruned(error)}; going on from there")
    seq: int = error.details["pruned_seq"]
    return seq


def what_was_pruned(error: PrunedError) -> str:
    at = error.details.get("pruned_at")
    when = f" ({ago(at)})" if at else ""
    return f"the events up to {error.details['pruned_seq']} have been pruned{when}"


def gc(call: Globals, *, keep_s: float = 30 * 86_400) -> int:
    """Remove what is over and older than that; free what dead sessions hold.

    It goes on in short steps, between which others write. If you interrupt it, what is removed
    so far stays removed, and all else is as it was.

    keep_s: how much of the past to keep
    example: --keep 30d
    """
    from dibs.nouns.events.pruning import Pruning, prune
    from dibs.operation import OPERATIONS
    from dibs.surfaces.cli.main import acting, answer

    def tell(pruning: Pruning) -> None:
        note(f"{pruning.removed['events']:,} events removed so far, up to {pruning.upto}")

    with call.open() as space:
        __import__("dibs.nouns.events.operations")
        operation = OPERATIONS["events.prune"]
        handle = acting(call, operation, space)
        if handle.scope.daemon is None:
            found = prune(handle.scope, milliseconds(keep_s), tell=tell)
        else:
            found = handle.events.prune(keep_s=keep_s)
        answer(call, operation, found)
    return 0


def top(call: Globals) -> int:
    """Watch agents, leases, work and messages live.

    / filters, Esc clears the filter, q quits.
    """
    with call.open() as space:
        if call.json:
            print_json(plain(as_json(space.agents.overview(limit=1000), named=False)))
        elif sys.stdin.isatty() and sys.stdout.isatty():
            watch(space)
        else:
            say("\n".join(picture(space, "")))
    return 0


def watch(space: Dibs) -> None:
    """Draw until q or Ctrl-C; the terminal is left as it was found."""
    import select
    import termios
    import tty

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    pattern, typing = "", False
    sys.stdout.write(ENTER_SCREEN)
    try:
        tty.setcbreak(handle)
        while True:
            draw(space, pattern, typing)
            if not select.select([handle], [], [], REFRESH_S)[0]:
                continue
            for key in os.read(handle, 64).decode("utf-8", "ignore"):
                if typing and key not in ENTER and key != ESCAPE:
                    pattern = pattern[:-1] if key in BACKSPACE else pattern + key
                elif typing or key == ESCAPE:
                    pattern, typing = ("" if key == ESCAPE else pattern), False
                elif key == "/":
                    typing = True
                elif key in ("q", "Q", "\x04"):
                    return
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)
        sys.stdout.write(LEAVE_SCREEN)
        sys.stdout.flush()


def draw(space: Dibs, pattern: str, typing: bool) -> None:
    size = os.get_terminal_size()
    lines = list(picture(space, pattern))[: size.lines - 1]
    prompt = f"/{pattern}█" if typing else f"filter: {pattern}" if pattern else ""
    foot = f"{prompt}   / filter   q quit".strip()
    body = [fit(shown(line), size.columns) + CLEAR_LINE for line in lines]
    body += [CLEAR_LINE] * (size.lines - 1 - len(body))
    sys.stdout.write(
        HOME + "\n".join([*body, shown(paint("dim", foot)) + CLEAR_LINE]) + CLEAR_BELOW
    )
    sys.stdout.flush()


def fit(line: str, columns: int) -> str:
    """Cut to the width, not counting colours."""
    import re

    kept, room = "", columns
    for part in re.findall(r"\x1b.*?m|.", line, re.DOTALL):
        room -= part[0] != ESCAPE
        if room < 0:
            break
        kept += part
    return kept + ("\x1b[0m" if ESCAPE in line else "")


def picture(space: Dibs, pattern: str) -> Iterator[str]:
    """The whole view, line by line; a filter keeps the lines that have it."""
    found = space.agents.overview(limit=1000)
    size = max((len(called(lease.resource)) for lease in found.leases), default=0)
    sections = {
        "needs attention": map(show.urgent, found.attention),
        "agents": (
            f"{called(who.agent):<20} {who.leases} leases  {who.tasks} tasks  {who.unread} unread  "
            f"{show.status_of(who)}"
            for who in found.agents
        ),
        "workers": show.worker_lines(found),
        "trains": show.train_lines(found.trains),
        "leases": (
            f"{called(lease.resource):<{size}}  {called(lease.agent):<12} "
            f"{span(lease.expires_in_ms):>4} left  {words(lease.note)}"
            for lease in found.leases
        ),
        "work": work(found),
        "messages": (
            f"{called(one.sender)} → {show.receiver(one)} {ago(one.sent_at)}: "
            f"{words(one.body.splitlines()[0])}"
            for one in space.messages.history(limit=8)
        ),
    }
    yield paint("bold", f"dibs  {called(found.space)}  seq {found.seq}")
    for title, lines in sections.items():
        kept = [line for line in lines if pattern.casefold() in line.casefold()]
        if kept:
            yield ""
            yield paint("bold", title)
            yield from (f"  {line}" for line in kept)


def work(found: Overview) -> Iterator[str]:
    for state in ("claimed", "available", "blocked"):
        # What waits to be landed is in the trains.
        mine = [task for task in found.tasks if task.state == state and task.kind != LANDING]
        tasks = mine[:SHOWN]
        size = max((len(called(task.id)) for task in tasks), default=0)
        for task in tasks:
            yield f"{called(task.id):<{size}}  {show.state_of(task)}  {words(task.title)}"
