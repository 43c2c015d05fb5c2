"""A client as a person uses it: in a terminal, where it stays when its turn has ended.

    with at_terminal("claude", repository, [edit("c.py", "c = 1\n"), say()], asks=True) as terminal:
        terminal.shows("Do you want to")
        terminal.types("\r")

Its permission prompts are its own, answered by keys. Nothing else of the user's settings differs
from what a user has who has run it before.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from tests.clients.client import PATIENCE_S, PROMPT, Running, launched
from tests.clients.script import Step

SEQUENCE = re.compile(
    r"\x1b(\[[0-9;?<>=]*[ -/]*[A-Za-z]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|.)"
)


class Terminal(Running):
    """What a person sees of a client, and what they type."""

    keyboard = -1

    @property
    def text(self) -> str:
        """All that was shown so far, without the blanks: a program may move instead of printing."""
        return "".join(SEQUENCE.sub(" ", self.output()).split())

    def shows(self, text: str, times: int = 1) -> None:
        """Wait until a text is shown, so many times."""
        end = time.monotonic() + PATIENCE_S
        while self.text.count("".join(text.split())) < times:
            assert time.monotonic() < end, self.story(
                f"does not show {text!r}: {self.text[-4000:]}"
            )
            time.sleep(0.05)

    def types(self, keys: str) -> None:
        os.write(self.keyboard, keys.encode())

    def presses(self, key: str, text: str, times: int = 1) -> None:
        """Press a key until it has shown this: what was shown may not listen yet."""
        end = time.monotonic() + PATIENCE_S
        while self.text.count("".join(text.split())) < times:
            assert time.monotonic() < end, self.story(f"does not show {text!r}")
            self.types(key)
            time.sleep(0.5)

    def hang_up(self) -> None:
        """The window is closed."""
        self._process.send_signal(signal.SIGHUP)

    def says(self, text: str) -> None:
        """The user says what to do next."""
        before = self.text.count("".join(text.split()))
        self.types(text)
        self.shows(text, before + 1)
        self.types("\r")


@contextmanager
def at_terminal(
    name: str,
    repository: Path,
    script: list[Step],
    *,
    asks: bool = False,
    variables: dict[str, str] | None = None,
) -> Iterator[Terminal]:
    """Start a client in a terminal; whatever still runs at the end of the block is killed.

    asks: whether it asks its user before it edits
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))

    def begin(command: list[str], output: Path, **how: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, **how)
        os.close(theirs)
        Thread(target=copy, args=(ours, output), daemon=True).start()
        return process

    with launched(
        Terminal, name, repository, script, begin,
        lambda account: [*(account.asking if asks else account.free), PROMPT], variables=variables,
    ) as terminal:  # fmt: skip
        terminal.keyboard = ours
        try:
            yield terminal
        finally:
            terminal.kill()
            os.close(ours)


def copy(terminal: int, output: Path) -> None:
    with output.open("wb", buffering=0) as file, suppress(OSError):
        while part := os.read(terminal, 65_536):
            file.write(part)
