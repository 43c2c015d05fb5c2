"""Claude Code at a prompt, as a person has it: in a terminal, and idle when its turn is over."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread

from tests.clients.accounts import ACCOUNTS
from tests.clients.client import BINARIES, Running, end_all, surroundings
from tests.clients.repository import write
from tests.clients.script import Step
from tests.clients.scripted_model import ScriptedModel
from tests.surfaces.shell import until

PROMPT = "Follow the script."


@contextmanager
def at_prompt(repository: Path, script: list[Step]) -> Iterator[Running]:
    """Start Claude Code in a terminal, and type a prompt."""
    with (
        tempfile.TemporaryDirectory(prefix="dibs-client-", ignore_cleanup_errors=True) as folder,
        ScriptedModel(script, repository) as model,
    ):
        scratch = Path(folder).resolve()
        home, output = scratch / "home", scratch / "output"
        _, environment = ACCOUNTS["claude"](home, repository, model.url)
        write(home / ".claude.json", answered(repository))
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        process = subprocess.Popen(
            [str(BINARIES / "claude"), "--permission-mode", "acceptEdits"],
            cwd=repository,
            env=surroundings(home, repository) | environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        Thread(target=copy, args=(ours, output), daemon=True).start()
        running = Running("claude", process, model, scratch, output)
        try:
            for typed, seen in (("", "acceptedits"), (PROMPT, "thescript."), ("\r", "")):
                os.write(ours, typed.encode())
                until(partial(shows, running, seen), seen)
            yield running
        finally:
            running.kill()
            end_all(scratch)
            running.output()
            os.close(ours)


def shows(running: Running, seen: str) -> bool:
    return seen in letters(running.output())


def letters(output: str) -> str:
    """What is on the screen, without where it stands: a terminal moves over blanks."""
    return "".join(re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", output).split())


def answered(repository: Path) -> dict[str, object]:
    """What the user has said to the questions that are asked at the first start."""
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    return {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": ["scripted"], "rejected": []},
        "projects": {str(repository): trusted | {"enabledMcpjsonServers": ["dibs"]}},
    }


def copy(terminal: int, output: Path) -> None:
    with output.open("wb", buffering=0) as file, suppress(OSError):
        while part := os.read(terminal, 65_536):
            file.write(part)
