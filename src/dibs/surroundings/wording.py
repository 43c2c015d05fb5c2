"""How things read: durations, refusals, tables that fit the terminal, colour on terminals only."""

from __future__ import annotations

import os
import sys
import time

from dibs.records import Blocker, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

    from dibs.errors import DibsError

NARROW = 8
CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "dim": 2, "bold": 1}


def complaint(error: DibsError) -> None:
    """A refusal: what, why, who is in the way, and what to do next."""
    note(f"{paint('red', 'dibs:', sys.stderr)} {error.message}")
    for blocker in error.details.get("blockers") or ():
        note(f"  {blocker_line(blocker)}")
    if error.next:
        note(f"{paint('dim', 'next:', sys.stderr)} {error.next}")


def blocker_line(blocker: Blocker) -> str:
    doing = f" “{blocker.note}”" if blocker.note else ""
    if blocker.waiting:
        return f"{blocker.agent} waits for {blocker.resource}{doing} since {ago(blocker.since_at)}"
    return (
        f"{blocker.agent} holds {blocker.resource}{doing} since {ago(blocker.since_at)}, "
        f"{span(blocker.expires_in_ms or 0)} left"
    )


def where_held(blocker: Blocker) -> str:
    """The folder of the worktree that somebody holds a file in."""
    return (blocker.checkout or "").partition(":")[2] or "another worktree"


def table(rows: list[list[str]], head: list[str] | None = None) -> None:
    """Columns as wide as they need to be; where that is too wide, the widest are cut."""
    shown = [head, *rows] if head else rows
    if not shown:
        return
    widths = [max(len(row[place]) for row in shown) for place in range(len(shown[0]))]
    room = width() or sys.maxsize
    while sum(widths) + 2 * len(widths) - 2 > room and max(widths) > NARROW:
        widths[widths.index(max(widths))] -= 1
    for number, row in enumerate(shown):
        line = "  ".join(map(cell, row, widths)).rstrip()
        say(paint("dim", line) if head and number == 0 else line)


def cell(text: str, size: int) -> str:
    text = text.replace("\n", " ")
    return text.ljust(size) if len(text) <= size else text[: size - 1] + "…"


def width() -> int | None:
    """The terminal's width; None where nobody looks, so that nothing is cut off."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return None


def ago(wall_ms: int) -> str:
    return f"{span(max(0, int(time.time() * 1000) - wall_ms))} ago"


def dump(value: Any) -> str:
    import json

    return value if isinstance(value, str) else "" if value is None else json.dumps(
        value, ensure_ascii=False
    )  # fmt: skip


def say(text: str) -> None:
    """Data, for whoever reads our output."""
    print(text)


def note(text: str) -> None:
    """Words, for people; after the data they belong to, also where both go into one file."""
    sys.stdout.flush()
    print(text, file=sys.stderr)


def paint(colour: str, text: str, stream: TextIO | None = None) -> str:
    """Colour, on a terminal whose owner has not said NO_COLOR."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or not (stream or sys.stdout).isatty():
        return text
    return f"\x1b[{CODES[colour]}m{text}\x1b[0m"


def print_json(value: Any) -> None:
    import json

    # Backslash escapes keep the line readable for programs under any locale.
    print(json.dumps(value, ensure_ascii=sys.stdout.encoding.lower() != "utf-8"))


def quote(name: str) -> str:
    """A name as a shell takes it."""
    if all(sign.isalnum() or sign in "_-./:@%+," for sign in name):
        return name
    import shlex  # hardly ever needed

    return shlex.quote(name)


def printable(text: str, instead: str = "?") -> str:
    """What a file or a command is called must not reach a terminal as it is."""
    return "".join(sign if sign.isprintable() else instead for sign in text)
