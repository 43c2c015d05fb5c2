"""A client that asks its user first, and a person who commits what it has done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.script import edit, say
from tests.clients.terminal import Terminal, at_terminal
from tests.surfaces.repository import Worker
from tests.surfaces.shell import Shell, until

pytestmark = pytest.mark.clients

ASKS = "Do you want to"
NO, YES = "\x1b", "\r"


@pytest.fixture
def person(repository: Path, shell: Shell) -> Worker:
    """Somebody in a repository where `dibs init` was run, after a first commit."""
    worker = Worker.of(shell)
    worker.ok("init", "--client", "claude")
    worker.did("add", ".")
    worker.did("commit", "-q", "-m", "first")
    return worker


def prompts(terminal: Terminal, text: str) -> None:
    """The user says what to do next."""
    terminal.types(text)
    terminal.shows(text)
    terminal.types("\r")


def test_a_permission_that_its_user_refuses_holds_nothing(person: Worker) -> None:
    script = [edit("c.py", "c = 1\n"), say("I see."), say()]
    with at_terminal(person.folder, script) as terminal:
        terminal.shows(ASKS)
        [lease] = person.json("leases")
        assert lease["resource"] == "c.py"
        assert lease["expires_in_ms"] <= 120_000
        terminal.types(NO)
        terminal.shows("User rejected write to c.py")
        prompts(terminal, "Something else, then.")
        terminal.shows("I see.")
        until(lambda: not person.json("leases"), "the end of the lease")
    assert not (person.folder / "c.py").exists()


def test_a_person_commits_after_the_turn_of_their_agent(person: Worker) -> None:
    script = [edit("c.py", "c = 1\n"), say("Done with c.")]
    with at_terminal(person.folder, script) as terminal:
        terminal.shows(ASKS)
        terminal.types(YES)
        terminal.shows("Done with c.")
        until(lambda: any((person.folder / ".dibs/hooks/resting").glob("*")), "the end of the turn")
        [lease] = person.json("leases")
        assert lease["expires_in_ms"] > 1_700_000
        person.did("add", "c.py")
        answer = person.git("commit", "-q", "-m", "reviewed")
        assert (answer.code, answer.out, answer.err) == (0, "", "")
        assert person.json("leases") == []
