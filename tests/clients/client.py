"""A real agent CLI, running in a repository against a scripted model, without a network.

    with start("claude", repository, [claim("a.py"), say("done").when(gate.is_set)]) as running:
        assert running.answer(0)["status"] == "claimed"
        gate.set()
        running.finish()

The client gets a new HOME and an environment of its own. What the repository itself configures
applies as usual.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.clients.accounts import ACCOUNTS, Account
from tests.clients.repository import write
from tests.clients.script import Step
from tests.clients.scripted_model import ScriptedModel

ROOT = Path(__file__).resolve().parents[2]
BINARIES = ROOT / ".clients/bin"
CLIENTS = tuple(ACCOUNTS)
PATIENCE_S = 90.0
GRACE_S = 3.0
PROMPT = "Follow the script."


class Running:
    """A client at work, as the test sees it."""

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        model: ScriptedModel,
        scratch: Path,
        output: Path,
    ) -> None:
        self.name = name
        self.transcript = model.transcript
        self._model = model
        self._process = process
        self._scratch = scratch
        self._output = output
        self._kept = ""

    @property
    def ended(self) -> bool:
        """Whether the client is gone; what it has started may not be."""
        return self._process.poll() is not None

    @property
    def gone(self) -> bool:
        """Whether nothing is left of it: neither the client nor what it has started."""
        return self.ended and not self.children()

    def output(self) -> str:
        """What the client has printed, also after its folder is gone."""
        if self._output.exists():
            self._kept = self._output.read_text(errors="replace")
        return self._kept

    @property
    def turns(self) -> int:
        """How often the client has asked the model to go on."""
        return self._model.turns

    def result(self, step: int | str) -> str:
        """What came back from this step's tool call, as the model reads it; waits for it."""
        end = time.monotonic() + PATIENCE_S
        while True:
            last_look = self.ended
            if (text := self.transcript.result(step)) is not None:
                return text
            assert not last_look, self.story(f"ended without a result of step {step}")
            assert time.monotonic() < end, self.story(f"has no result of step {step}")
            self.transcript.wait(0.1)

    def answer(self, step: int) -> dict[str, Any]:
        """The JSON object in that result; clients put words of their own around it."""
        text = self.result(step)
        with suppress(ValueError):
            found, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
            if isinstance(found, dict):
                return found
        raise AssertionError(self.story(f"read no JSON in step {step}: {text}"))

    def tools(self) -> dict[str, str]:
        """The tools the model has been shown, with their descriptions."""
        return {entry["name"]: entry["description"] for entry in self.transcript.of("tool")}

    def shown(self, text: str) -> bool:
        """Whether the model has read this text: in a tool, in its context or in a result."""
        records = [*self.transcript.of("context"), *self.transcript.of("result")]
        read = [*self.tools().values(), *(entry["text"] for entry in records)]
        return any(text in part for part in read)

    def told(self) -> list[str]:
        """What the model was shown by dibs."""
        records = [*self.transcript.of("context"), *self.transcript.of("result")]
        return [entry["text"] for entry in records if "dibs:" in entry["text"]]

    def children(self) -> dict[int, str]:
        """The processes that the client has started and that live, with their commands."""
        living = living_in(self._scratch)
        return {pid: command for pid, command in living.items() if pid != self._process.pid}

    def finish(self) -> None:
        """Wait for a good end: the script played to its last step, and nothing left running."""
        try:
            code = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.story("did not end")) from None
        problems = self.transcript.of("problem")
        assert code == 0 and not problems, self.story(f"exit {code}, {problems}")
        last = len(self._model.script) - 1
        said = [entry["step"] for entry in self.transcript.of("say")]
        said = [step for step in said if isinstance(step, int)]  # and not in a subagent's part
        assert said[-1:] == [last], self.story("did not play the script to its end")
        end = time.monotonic() + GRACE_S
        while left := self.children():
            assert time.monotonic() < end, self.story(f"left running: {[*left.values()]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End the client without a word, and nothing else."""
        self._process.kill()
        self._process.wait()

    def story(self, headline: str) -> str:
        """For a failed test: what the model saw, what still runs, and what the client printed."""
        return (
            f"{self.name} {headline}\n{self.transcript}\n{self.children()}\n{self.output()[-8000:]}"
        )


Started = TypeVar("Started", bound=Running)
Begin = Callable[..., subprocess.Popen[bytes]]


@contextmanager
def launched(
    kind: type[Started],
    name: str,
    repository: Path,
    script: list[Step],
    begin: Begin,
    words: Callable[[Account], list[str]],
    *,
    variables: dict[str, str] | None = None,
    parts: dict[str, list[Step]] | None = None,
) -> Iterator[Started]:
    """Start a client; whatever still runs at the end of the block is killed.

    begin: starts the process, given its command and where its output goes
    words: what follows the name of its program
    variables: what a user has in the environment besides what the client itself needs
    parts: what subagents do that are told to play a part
    """
    binary = BINARIES / name
    assert binary.exists(), f"{name} is not installed: run tests/clients/install"
    with (
        tempfile.TemporaryDirectory(prefix="dibs-client-", ignore_cleanup_errors=True) as folder,
        ScriptedModel(script, repository, parts) as model,
    ):
        scratch = Path(folder).resolve()
        home, output = scratch / "home", scratch / "output"
        account = ACCOUNTS[name](home, repository, model.url)
        process = begin(
            [str(binary), *words(account)],
            output,
            cwd=repository,
            env=surroundings(home, repository) | account.environment | (variables or {}),
            start_new_session=True,
        )
        running = kind(name, process, model, scratch, output)
        try:
            yield running
        finally:
            running.kill()
            end_all(scratch)
            running.output()


def headless(command: list[str], output: Path, **how: Any) -> subprocess.Popen[bytes]:
    # A file, not a pipe: what the client leaves running cannot keep us waiting.
    with output.open("wb") as stream:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, **how
        )


@contextmanager
def start(
    name: str,
    repository: Path,
    script: list[Step],
    *,
    words: list[str] | None = None,
    variables: dict[str, str] | None = None,
    parts: dict[str, list[Step]] | None = None,
) -> Iterator[Running]:
    """Start a client that works without a word to anybody.

    words: what it is called with instead of a prompt
    variables: what a user has in the environment besides what the client itself needs
    parts: what subagents do that are told to play a part
    """
    with launched(
        Running, name, repository, script, headless,
        lambda account: words or [*account.headless, PROMPT], variables=variables, parts=parts,
    ) as running:  # fmt: skip
        yield running


def run(
    name: str, repository: Path, script: list[Step], variables: dict[str, str] | None = None
) -> Running:
    """Run a client to its good end."""
    with start(name, repository, script, variables=variables) as running:
        running.finish()
        return running


def surroundings(home: Path, repository: Path) -> dict[str, str]:
    """Nothing of the caller's but PATH, with the commands of this Python first."""
    # All clients, and the neighbour at a prompt, are of one user, whose stores dibs has noted.
    notes = repository.parent / "home/.local/share/dibs"
    notes.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / ".local/share").mkdir(parents=True, exist_ok=True)
    (home / ".local/share/dibs").symlink_to(notes)
    write(home / ".gitconfig", "[user]\n\tname = scripted\n\temail = scripted@example.invalid\n")
    (home / "tmp").mkdir()  # inside HOME: Codex distrusts a HOME that lies in TMPDIR
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "NO_COLOR": "1",
    }


# Clients give some of what they start sessions and groups of their own, so that neither parentage
# nor group finds all of it. The environment does, on Linux: HOME is inside the scratch folder.


def living_in(scratch: Path) -> dict[int, str]:
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is another user's, or it has just ended
            if os.fsencode(scratch) in (process / "environ").read_bytes():
                words = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                found[int(process.name)] = os.fsdecode(b" ".join(words))
    return found


def end_all(scratch: Path) -> None:
    while left := living_in(scratch):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
