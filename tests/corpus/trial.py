"""One command in a fresh repository, in which another agent holds something.

The hook is asked before the command runs, and then the command does run, whatever it said: what is
in the held files after that is the truth. If the hook let through what it should not, the trial
goes on as it would in a client, to see that the change is found and that nothing is lost.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.corpus import standins
from tests.corpus.cases import Case
from tests.corpus.project import IDENTITY, build, messy
from tests.corpus.renewal import Renewed
from tests.surfaces.hooked import Said
from tests.surfaces.shell import BIN, Answer, Shell, finish

LONGEST_S = 60
APPENDED = ("CHANGELOG.md",)
"""What is leased for one edit only."""


class Place:
    """A project, its copy in which the trials take place, and two clients at work there."""

    def __init__(self, folder: Path) -> None:
        self.template = folder / "template"
        self.tools = folder / "tools"
        self.used = folder / "used"
        self.repository = self.used / "repository"
        build(self.template)
        for name in ("home", "tmp"):
            (self.template / name).mkdir()
        self.renewed = Renewed(self.template, self.used)
        standins.install(self.tools, sys.executable)
        self.environment = {
            "PATH": f"{self.tools / 'bin'}:{BIN}:{os.environ['PATH']}",
            "HOME": str(self.used / "home"),
            "XDG_DATA_HOME": str(self.used / "home/.local/share"),
            "TMPDIR": str(self.used / "tmp"),
            # A file of its own: `git config --global` replaces the file that it is given, and where
            # that is /dev/null, root has none afterwards.
            "GIT_CONFIG_GLOBAL": str(self.used / "home/.gitconfig"),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "RUFF_NO_CACHE": "true",
            **IDENTITY,
        }
        self.alice, self.bob = Session(self, "alice"), Session(self, "bob")

    def renew(self) -> None:
        """Begin with a fresh copy."""
        self.renewed.renew()

    def filled(self, text: str) -> str:
        return text.replace("{repo}", str(self.repository)).replace("{tmp}", str(self.used / "tmp"))

    def run(self, command: str, folder: str = "", session: Session | None = None) -> int:
        """A command as a shell runs it, one of a client or a person's."""
        environment = session.environment if session else self.environment
        process = subprocess.Popen(
            ["bash", "-c", self.filled(command)],
            cwd=self.repository / folder,
            env=environment | {"PYTHONPATH": str(self.tools / "modules")},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        code = process.wait(LONGEST_S)
        try:
            os.killpg(process.pid, signal.SIGKILL)  # what it left in the background
        except ProcessLookupError:
            pass
        return code

    def content(self, path: str) -> bytes | None:
        try:
            return (self.repository / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def end(self) -> None:
        for session in (self.alice, self.bob):
            session.process.kill()
            session.process.communicate()


class Session:
    """A client's session: its process lives, and every event is a hook."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.name = name
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.environment = place.environment | {
            "CLAUDE_PID": str(self.process.pid),
            "CLAUDE_CODE_SESSION_ID": name,
            "CLAUDECODE": "1",
        }
        self.calls = 0

    def dibs(self, *words: str) -> Answer:
        return self._dibs(list(words), "")

    def event(self, name: str, folder: str = "", **fields: Any) -> Said:
        payload = self.payload(name, folder, **fields)
        return Said(self._dibs(["hook", "claude"], json.dumps(payload), folder))

    def payload(self, name: str, folder: str = "", **fields: Any) -> dict[str, Any]:
        """What the hook is given on its standard input."""
        cwd = str(self.place.repository / folder)
        return {"session_id": self.name, "cwd": cwd, "hook_event_name": name, **fields}

    def tool(self, event: str, name: str, folder: str = "", **given: Any) -> Said:
        self.calls += event == "PreToolUse"
        return self.event(
            event, folder, tool_name=name, tool_input=given, tool_use_id=f"call-{self.calls}"
        )

    def write(self, path: str, text: str) -> None:
        """Write a whole file, which nobody else holds."""
        file = self.place.repository / path
        said = self.tool("PreToolUse", "Write", file_path=str(file), content=text)
        assert not said.denied, said.denied
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self.tool("PostToolUse", "Write", file_path=str(file), content=text)

    def before(self, command: str, folder: str = "") -> Said:
        return self.tool("PreToolUse", "Bash", folder, command=self.place.filled(command))

    def after(self, command: str, folder: str = "") -> Said:
        return self.tool("PostToolUse", "Bash", folder, command=self.place.filled(command))

    def _dibs(self, words: list[str], given: str, folder: str = "") -> Answer:
        shell = Shell(self.place.repository / folder, self.environment)
        return finish(shell.start(*words, stdin=subprocess.PIPE), given=given)


@dataclass
class Outcome:
    """What the hook said of a command, and what the command did."""

    case: Case
    denied: str
    changed: list[str]
    untold: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def missed(self) -> bool:
        return bool(self.changed) and not self.denied

    @property
    def needless(self) -> bool:
        return bool(self.denied) and not self.changed

    @property
    def as_written(self) -> bool:
        """Whether the command does what the corpus says."""
        held = [held.path for held in self.case.held]
        return self.changed == (held if self.case.changes else [])


def prepare(place: Place, case: Case) -> None:
    """A fresh repository in which bob holds something."""
    place.renew()
    if case.setup:
        place.run(case.setup)
    for held in case.held:
        text = (place.content(held.path) or b"begun\n").decode()
        new = messy(held.path, text) if held.edited else text
        place.bob.write(held.path, new)
        if new == text or held.path in APPENDED:
            # Nobody holds such a file after an edit, unless they say that they do.
            assert not place.bob.dibs("claim", held.path).code
    place.run("git update-index -q --refresh")  # as any git status does


def attempt(place: Place, case: Case) -> Outcome:
    prepare(place, case)
    before = {held.path: place.content(held.path) for held in case.held}
    denied = place.alice.before(case.command, case.folder).denied
    place.run(case.command, case.folder, place.alice)
    changed = [path for path, content in before.items() if place.content(path) != content]
    outcome = Outcome(case, denied, changed)
    if outcome.missed:
        folder = case.folder if (place.repository / case.folder).is_dir() else ""
        place.alice.after(case.command, folder)
        told = place.bob.event("UserPromptSubmit", prompt="go on").context
        outcome.untold = [path for path in changed if path not in told]
        for path in changed:
            place.bob.dibs("recover", path)
            if place.content(path) != before[path]:
                outcome.lost.append(path)
    return outcome
