"""`dibs top`: a live view of who is here, what is held, what is worked on and what is said.

What needs attention comes first: who waits for whom, what is about to lapse, what has failed
for good. `/` filters, `q` quits. Where there is no terminal, it prints one picture and ends.
"""

from __future__ import annotations

import os
import select
import sys

from dibs.operation import EVERYBODY
from dibs.surfaces.cli.show import state_of, urgent
from dibs.surroundings.wording import ago, paint, print_json, say, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.dibs import Dibs
    from dibs.records import Overview
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
REFRESH_S = 0.5
SHOWN = 20
ENTER_SCREEN = "\x1b[?1049h\x1b[?25l"
LEAVE_SCREEN = "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
ESCAPE, ENTER, BACKSPACE = "\x1b", ("\r", "\n"), ("\x7f", "\b")


def main(call: Globals) -> int:
    """Watch agents, leases, work and messages live.

    / filters, Esc clears the filter, q quits.
    """
    with call.open() as space:
        if call.json:
            from dibs.records import plain
            from dibs.surfaces.cli.status import as_json

            print_json(plain(as_json(space.agents.overview(limit=1000), named=False)))
        elif sys.stdin.isatty() and sys.stdout.isatty():
            watch(space)
        else:
            say("\n".join(picture(space, "")))
    return 0


def watch(space: Dibs) -> None:
    """Draw until q or Ctrl-C; the terminal is left as it was found."""
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
    body = [fit(line, size.columns) + CLEAR_LINE for line in lines]
    body += [CLEAR_LINE] * (size.lines - 1 - len(body))
    sys.stdout.write(HOME + "\n".join([*body, paint("dim", foot) + CLEAR_LINE]) + CLEAR_BELOW)
    sys.stdout.flush()


def fit(line: str, columns: int) -> str:
    """Cut to the width, not counting colours."""
    shown, kept, inside = 0, [], False
    for character in line:
        if character == ESCAPE:
            inside = True
        if not inside:
            shown += 1
            if shown > columns:
                break
        kept.append(character)
        if inside and character == "m":
            inside = False
    return "".join(kept) + ("\x1b[0m" if ESCAPE in line else "")


def picture(space: Dibs, pattern: str) -> Iterator[str]:
    """The whole view, line by line; a filter keeps the lines that have it."""
    found = space.agents.overview(limit=1000)
    sections = (
        ("needs attention", map(urgent, found.attention)),
        ("agents", agents(found)),
        ("leases", leases(found)),
        ("work", work(found)),
        ("messages", messages(space)),
    )
    yield paint("bold", f"dibs  {found.space}  seq {found.seq}")
    for title, lines in sections:
        shown = [line for line in lines if pattern.casefold() in line.casefold()]
        if shown:
            yield ""
            yield paint("bold", title)
            yield from (f"  {line}" for line in shown)


def agents(found: Overview) -> Iterator[str]:
    for who in found.agents:
        status = next((session.status for session in who.sessions if session.status), "")
        counts = f"{who.leases} leases  {who.tasks} tasks  {who.unread} unread"
        yield f"{who.agent:<20} {counts}  {status}"


def leases(found: Overview) -> Iterator[str]:
    size = max((len(lease.resource) for lease in found.leases), default=0)
    for lease in found.leases:
        left = span(lease.expires_in_ms)
        yield f"{lease.resource:<{size}}  {lease.agent:<12} {left:>4} left  {lease.note}"


def work(found: Overview) -> Iterator[str]:
    for state in ("claimed", "available", "blocked"):
        tasks = [task for task in found.tasks if task.state == state][:SHOWN]
        size = max((len(task.id) for task in tasks), default=0)
        for task in tasks:
            yield f"{task.id:<{size}}  {state_of(task)}  {task.title}"


def messages(space: Dibs) -> Iterator[str]:
    for message in space.messages.history(limit=8):
        to = message.to or (f"#{message.channel}" if message.channel else "everybody")
        body = message.body.splitlines()[0]
        yield f"{message.sender} → {to} {ago(message.sent_at)}: {body}"
