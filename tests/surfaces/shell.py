"""The installed `dibs`, driven as a user would: real processes, in an environment of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests import warm
from tests.not_linux import denied

DIBS = warm.DIBS
BIN = Path(DIBS).parent
PATIENCE_S = 30


class Answer:
    """How one command ended, and what it said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.err}"

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Somebody at a prompt: a directory, an environment, and perhaps a name."""

    def __init__(
        self, folder: Path, environment: dict[str, str], always: tuple[str, ...] = ()
    ) -> None:
        """always: the first words of every command"""
        self.folder = folder
        self.environment = environment
        self.always = always

    @property
    def user_dir(self) -> str:
        """Where this user's stores and keys are noted."""
        return f"{self.environment['XDG_DATA_HOME']}/dibs"

    @property
    def through_daemon(self) -> bool:
        return self.environment.get("DIBS_URL", "").startswith("http")

    def at(self, folder: Path) -> Shell:
        return Shell(folder, self.environment, self.always)

    def with_(self, **variables: str) -> Shell:
        return Shell(self.folder, self.environment | variables, self.always)

    def as_(self, agent: str) -> Shell:
        """An agent's shell."""
        return self.with_(DIBS_AGENT=agent)

    def person(self, name: str) -> Shell:
        """A person's shell, who may do what no agent may."""
        return Shell(self.folder, self.environment, ("--as", name))

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start `dibs`, and do not wait for it."""
        return warm.popen([DIBS, *self.always, *words], **self._settings(options))

    def script(self, text: str, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a script of Python."""
        return warm.popen([sys.executable, "-c", text, *words], **self._settings(options))

    def spawn(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start any program, from nothing."""
        return subprocess.Popen(command, **self._settings(options))

    def _settings(self, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "cwd": self.folder,
            "env": self.environment,
            "text": True,
            "encoding": "utf-8",
            "start_new_session": True,
            **options,
        }

    def __call__(self, *words: str, **options: Any) -> Answer:
        """Run `dibs` to its end."""
        return finish(self.start(*words, **options))

    def ok(self, *words: str) -> Answer:
        answer = self(*words)
        assert answer.code == 0, answer
        return answer

    def json(self, *words: str) -> Any:
        """What a command that succeeds says to a program."""
        return self.ok("--json", *words).json

    def sh(self, script: str) -> Answer:
        """A line as it is typed at a prompt."""
        return finish(self.spawn(["bash", "-c", script]))

    def waits(self, number: int = 1) -> None:
        """Until so many are in a queue."""
        until(lambda: len(self.json("leases", "waiting")) == number, f"{number} waiting")


def finish(
    process: subprocess.Popen[str], seconds: float = PATIENCE_S, given: str | None = None
) -> Answer:
    """Wait for the end of a process, which is given a text on its standard input."""
    try:
        out, err = process.communicate(given, timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # and whatever it has started
        out, err = process.communicate()
        raise AssertionError(f"{process.args!r} did not end:\n{out}\n{err}") from None
    return Answer(process.returncode, out, err)


def until(what: Callable[[], Any], name: str, seconds: float = PATIENCE_S) -> Any:
    """Look until there is something; the processes we look at have their own pace."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"never saw {name}"
        time.sleep(0.01)
    return found


def alive(pid: int) -> bool:
    """Whether a process still runs; one that nobody has waited for yet does not."""
    said = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return said.stdout.strip()[:1] not in ("", "Z")


def scrubbed(home: Path) -> dict[str, str]:
    """What a user's shell has, and nothing of ours."""
    return {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",  # nothing of ours is left in the source
        "GIT_CONFIG_GLOBAL": os.devnull,
        "DIBS_DAEMON": "off",  # no test leaves one running that it does not know of
        **denied(),
    }
