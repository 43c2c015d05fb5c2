"""A small terminal: a program's bytes go in, and what a person would see comes out.

It knows what full-screen programs of ours use: moving home and to a place, clearing, the second
screen, the cursor; colours are taken and forgotten. Anything else is an error, so that nothing
is overlooked.
"""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import Any

SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Screen:
    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.second = False
        self.cursor = True
        self.whole = True
        """Whether the last picture is complete; it ends with clearing what is below it."""
        self.clear()

    def clear(self) -> None:
        self.cells = [[" "] * self.columns for _ in range(self.lines)]
        self.row = self.column = 0

    @property
    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.cells)

    def feed(self, text: str) -> None:
        place = 0
        while place < len(text):
            if text[place] == "\x1b":
                found = SEQUENCE.match(text, place)
                assert found, f"unknown sequence {text[place : place + 12]!r}"
                self.obey(*found.groups())
                place = found.end()
                continue
            self.put(text[place])
            place += 1

    def put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            if self.row == self.lines - 1:
                self.cells = [*self.cells[1:], [" "] * self.columns]
            else:
                self.row += 1
        else:
            assert self.column < self.columns, f"too wide at {character!r}:\n{self.text}"
            self.cells[self.row][self.column] = character
            self.column += 1

    def obey(self, private: str, numbers: str, verb: str) -> None:
        if private and numbers == "1049":
            self.second = verb == "h"
            self.clear()
        elif private and numbers == "25":
            self.cursor = verb == "h"
        elif verb == "H" and not numbers:
            self.row = self.column = 0
            self.whole = False
        elif verb == "K" and not numbers:
            self.cells[self.row][self.column :] = [" "] * (self.columns - self.column)
        elif verb == "J" and not numbers:
            self.cells[self.row][self.column :] = [" "] * (self.columns - self.column)
            for row in range(self.row + 1, self.lines):
                self.cells[row] = [" "] * self.columns
            self.whole = True
        else:
            assert verb == "m", f"unknown sequence {private}{numbers}{verb}"


class Terminal:
    """A program in a terminal of its own."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: dict[str, str],
        columns: int = 80,
        lines: int = 24,
    ) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self._theirs)
        self._left = b""
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment | {"TERM": "xterm"},
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
        )

    def resize(self, columns: int, lines: int) -> None:
        ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen = Screen(columns, lines)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def read(self, seconds: float) -> None:
        """Draw what has come, waiting so long at most for something to come."""
        if select.select([self._ours], [], [], seconds)[0]:
            whole, cut, rest = self._left + os.read(self._ours, 65536), b"", b""
            # A frame may be cut in the middle of a character or of a sequence.
            if (place := whole.rfind(b"\x1b")) >= 0:
                whole, cut = whole[:place], whole[place:]
                if SEQUENCE.match(cut.decode("utf-8", "ignore")):
                    whole, cut = whole + cut, b""
            if not cut:
                whole, rest = split_utf8(whole)
            self._left = cut or rest
            self.screen.feed(whole.decode())

    def until(self, seen: Callable[[str], Any], seconds: float = 20) -> str:
        """Read until a whole picture is as wanted."""
        end = time.monotonic() + seconds
        while not (self.screen.whole and seen(self.screen.text)):
            assert time.monotonic() < end, f"never seen; the screen is\n{self.screen.text}"
            self.read(0.1)
        return self.screen.text

    def finish(self, seconds: float = 10) -> int:
        """Wait until the program has ended, and draw all that it wrote."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, "it does not end"
            self.read(0.05)
        while select.select([self._ours], [], [], 0)[0]:
            self.read(0)
        return self.process.returncode

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


def split_utf8(data: bytes) -> tuple[bytes, bytes]:
    """The whole characters, and the beginning of one that is still to come."""
    for size in range(min(3, len(data)), 0, -1):
        last = data[-size]
        if last >= 0xC0 and (2 if last < 0xE0 else 3 if last < 0xF0 else 4) > size:
            return data[:-size], data[-size:]
    return data, b""
