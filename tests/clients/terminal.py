"""Claude Code as a person uses it: in a terminal, where it asks before it edits.

    with at_terminal(repository, [edit("c.py", "c = 1\n"), say()]) as terminal:
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
import struct
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.client import BINARIES, PATIENCE_S, end_all, surroundings
from tests.clients.repository import write
from tests.clients.script import Step
from tests.clients.scripted_model import ScriptedModel, Transcript

SEQUENCE = re.compile(
    rb"\x1b(\[[0-9;?<>=]*[ -/]*[A-Za-z]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|.)"
)


class Terminal:
    """What a person sees of a program, and what they type."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self._seen = b""
        self._far, self.near = pty.openpty()
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._seen += os.read(self._far, 65536)
            except OSError:
                return  # the program is gone

    @property
    def text(self) -> str:
        """All that was shown so far, without the blanks: a program may move instead of printing."""
        return "".join(SEQUENCE.sub(b" ", self._seen).decode("utf-8", "replace").split())

    def shows(self, text: str, times: int = 1) -> None:
        end = time.monotonic() + PATIENCE_S
        while self.text.count("".join(text.split())) < times:
            said = f"{text!r} is not shown\n{self.transcript}\n{self.text[-4000:]}"
            assert time.monotonic() < end, said
            time.sleep(0.05)

    def types(self, keys: str) -> None:
        os.write(self._far, keys.encode())

    def close(self) -> None:
        os.close(self._far)


@contextmanager
def at_terminal(
    repository: Path, script: list[Step], prompt: str = "Follow the script."
) -> Iterator[Terminal]:
    """Start Claude Code in a terminal; whatever still runs at the end of the block is killed."""
    binary = BINARIES / "claude"
    assert binary.exists(), "claude is not installed: run tests/clients/install"
    with (
        tempfile.TemporaryDirectory(prefix="dibs-client-", ignore_cleanup_errors=True) as folder,
        ScriptedModel(script, repository) as model,
    ):
        scratch = Path(folder).resolve()
        home = scratch / "home"
        trusted = {"hasTrustDialogAccepted": True, "enabledMcpjsonServers": ["dibs"]}
        account = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": ["scripted"], "rejected": []},
            "projects": {str(repository): trusted},
        }
        write(home / ".claude.json", account)
        environment = surroundings(home, repository) | {
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        terminal = Terminal(model.transcript)
        process = subprocess.Popen(
            [str(binary), "--permission-mode", "default", prompt],
            cwd=repository, env=environment, start_new_session=True,
            stdin=terminal.near, stdout=terminal.near, stderr=terminal.near,
        )  # fmt: skip
        os.close(terminal.near)
        try:
            yield terminal
        finally:
            process.kill()
            process.wait()
            end_all(scratch)
            terminal.close()
