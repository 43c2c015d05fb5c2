"""A client that asks its user first, and a person who commits what it has done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.clients.script import edit, say
from tests.clients.terminal import Terminal, at_terminal
from tests.surfaces.repository import Worker
from tests.surfaces.shell import Shell, until

pytestmark = pytest.mark.clients

ASKS = {"claude": "Do you want to", "codex": "Would you like to make the following edits?"}
NO, YES = "\x1b", "\r"


@pytest.fixture
def person(repository: Path, shell: Shell) -> Worker:
    """Somebody in a repository where `dibs init` was run, after a first commit."""
    worker = Worker.of(shell)
    worker.ok("init", *(word for name in ASKS for word in ("--client", name)))
    worker.did("add", ".")
    worker.did("commit", "-q", "-m", "first")
    return worker


def test_a_permission_that_its_user_refuses_holds_nothing(person: Worker) -> None:
    script = [edit("c.py", "c = 1\n"), say("I see."), say()]
    with at_terminal("claude", person.folder, script, asks=True) as terminal:
        is_short(person, terminal)
        terminal.types(NO)
        terminal.shows("User rejected write to c.py")
        terminal.says("Something else, then.")
        terminal.shows("I see.")
        until(lambda: not person.json("leases"), "the end of the lease")
    assert not (person.folder / "c.py").exists()


def is_short(person: Worker, terminal: Terminal) -> None:
    """While the client asks its user, nobody else is kept waiting for long."""
    terminal.shows(ASKS[terminal.name])
    until(lambda: person.json("leases"), "the lease")
    [lease] = person.json("leases")
    assert lease["resource"] == "c.py"
    assert lease["expires_in_ms"] <= 120_000


def test_codex_says_at_once_that_its_user_refuses(person: Worker) -> None:
    script = [edit("c.py", "c = 1\n"), say("I see.")]
    with at_terminal("codex", person.folder, script, asks=True) as terminal:
        is_short(person, terminal)
        terminal.types(NO)
        until(lambda: not person.json("leases"), "the end of the lease")
    assert not (person.folder / "c.py").exists()


def test_codex_edits_what_its_user_allows(person: Worker) -> None:
    script = [edit("c.py", "c = 1\n"), say("I see.")]
    with at_terminal("codex", person.folder, script, asks=True) as terminal:
        is_short(person, terminal)
        terminal.types(YES)
        terminal.shows("I see.")
        [lease] = person.json("leases")
        assert lease["expires_in_ms"] > 1_700_000
    assert (person.folder / "c.py").read_text() == "c = 1\n"


def test_a_prompt_that_nobody_answers_keeps_no_file(person: Worker) -> None:
    person.write(".dibs/config.toml", 'ttl = "3s"\n')
    script = [edit("c.py", "c = 1\n"), say("I see."), say("Told.")]
    with at_terminal("claude", person.folder, script, asks=True) as terminal:
        terminal.shows(ASKS["claude"])
        bob = person.as_("bob")
        bob.ok("claim", "c.py", "--wait", "30s")
        # Its user comes back after all, and allows it: both are told, and nothing is lost.
        terminal.types(YES)
        terminal.shows("I see.")
        assert (person.folder / "c.py").read_text() == "c = 1\n"
        assert re.search("c.py.*bob", " ".join(terminal.told())), terminal.story("was not told")
        [said] = [one["body"] for one in bob.json("inbox")]
        assert "c.py" in said and "claude-" in said


def test_a_terminal_that_is_closed_at_a_prompt_keeps_no_file(person: Worker) -> None:
    with at_terminal("claude", person.folder, [edit("c.py", "c = 1\n")], asks=True) as terminal:
        is_short(person, terminal)
        terminal.hang_up()
        until(lambda: not person.json("leases"), "the end of the lease")


def test_a_person_commits_after_the_turn_of_their_agent(person: Worker) -> None:
    script = [edit("c.py", "c = 1\n"), say("Done with c.")]
    with at_terminal("claude", person.folder, script, asks=True) as terminal:
        terminal.shows(ASKS["claude"])
        terminal.types(YES)
        terminal.shows("Done with c.")
        until(lambda: any((person.folder / ".dibs/hooks/resting").glob("*")), "the end of the turn")
        [lease] = person.json("leases")
        assert lease["expires_in_ms"] > 1_700_000
        person.did("add", "c.py")
        answer = person.git("commit", "-q", "-m", "reviewed")
        assert (answer.code, answer.out, answer.err) == (0, "", "")
        assert person.json("leases") == []
