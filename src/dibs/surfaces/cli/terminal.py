"""A terminal in full-screen mode: single keys are read, and whole screens are drawn.

However it ends (a return, an exception, Ctrl-C or SIGTERM), the terminal is restored. Ctrl-Z
restores it until the program continues. Everything drawn passes through `shown`, so no text of
others can move the cursor.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import sys
import termios
import tty
import unicodedata

from dibs.surroundings.wording import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

ENTER_SCREEN = "\x1b[?1049h\x1b[?25l"
LEAVE_SCREEN = "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
KEY = re.compile(r"\x1b\[([0-9;]*)([A-Za-z~])|\x1bO([A-Za-z])|.", re.DOTALL)
BEGUN = re.compile(r"\x1b(\[[0-9;]*|O)?$")
"""An incomplete escape sequence, or the key Escape."""
NAMES = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}
NUMBERED = {"1": "home", "4": "end", "5": "page up", "6": "page down", "7": "home", "8": "end"}
PLAIN = {"\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace",
         "\x04": "end of input"}  # fmt: skip
LATE_S = 0.05
"""How long to wait for the rest of a sequence."""


class Terminal:
    """The terminal of the standard input and output."""

    def __init__(self) -> None:
        self._handle = sys.stdin.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._signals: dict[int, Any] = {}
        self._stopping = False

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._handle)
        for number, act in ((signal.SIGTERM, self._end), (signal.SIGTSTP, self._stop_soon)):
            self._signals[number] = signal.signal(number, act)
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        for number, before in self._signals.items():
            signal.signal(number, before)

    def _take(self) -> None:
        sys.stdout.write(ENTER_SCREEN)
        tty.setcbreak(self._handle)

    def _give_back(self) -> None:
        termios.tcsetattr(self._handle, termios.TCSADRAIN, self._before)
        sys.stdout.write(LEAVE_SCREEN)
        sys.stdout.flush()

    def _end(self, number: int, _: object) -> None:
        raise SystemExit(128 + number)

    def _stop_soon(self, *_: object) -> None:
        self._stopping = True  # not at once: a screen may be half drawn

    def _stop(self) -> None:
        """Restore the terminal until the program is continued."""
        self._stopping = False
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def keys(self, wait_s: float) -> list[str]:
        """Wait up to `wait_s` for a key; return the keys pressed, by name or as themselves."""
        text = ""
        while select.select([self._handle], [], [], LATE_S if text else wait_s)[0]:
            data = os.read(self._handle, 1024)
            if not data:
                return ["end of input"]  # the terminal is closed
            text += self._decoder.decode(data)
            if not BEGUN.search(text):
                break
        if self._stopping:
            self._stop()
        return [name for found in KEY.finditer(text) if (name := named(found))]

    def draw(self, lines: Sequence[str], foot: str) -> None:
        """Draw as many lines as fit from the top, and one at the bottom."""
        size = self.size()
        body = [fit(shown(line), size.columns) + CLEAR_LINE for line in lines[: size.lines - 1]]
        body += [CLEAR_LINE] * (size.lines - 1 - len(body))
        last = fit(shown(foot), size.columns)
        sys.stdout.write(HOME + "\n".join([*body, last + CLEAR_LINE]) + CLEAR_BELOW)
        sys.stdout.flush()

    def size(self) -> os.terminal_size:
        return os.get_terminal_size(self._handle)


def named(found: re.Match[str]) -> str:
    """The name of a key; empty if it has none."""
    numbers, last, other = found.groups()
    if last or other:
        return NUMBERED.get(numbers, "") if last == "~" else NAMES.get(last or other, "")
    key = found[0]
    return PLAIN.get(key, key if key.isprintable() else "")


def fit(line: str, columns: int) -> str:
    """Cut to the width, not counting colours."""
    kept, room = "", columns
    for part in re.findall(r"\x1b.*?m|.", line, re.DOTALL):
        room -= 0 if part[0] == "\x1b" else width(part)
        if room < 0:
            break
        kept += part
    return kept + ("\x1b[0m" if "\x1b" in line else "")


def wrapped(line: str, columns: int) -> list[str]:
    """The text in as many lines as it needs; a heading, which has a colour, stays one line."""
    text = shown(line)
    if "\x1b" in text:
        return [line]
    lines, room = [""], columns
    indent = " " * min(len(text) - len(text.lstrip()) + 2, columns // 2)
    for character in text:
        if width(character) > room:
            lines.append(indent)
            room = columns - len(indent)
        lines[-1] += character
        room -= width(character)
    return lines


def width(character: str) -> int:
    """How many columns a character takes."""
    if character.isascii():
        return 1
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
