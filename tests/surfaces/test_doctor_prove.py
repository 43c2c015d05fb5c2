"""`dibs doctor --prove`: the hooks of a repository's clients are run, and only those of dibs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dibs.clients import every_client
from tests.surfaces.shell import BIN, DIBS, Shell

HOOKED = [client.name for client in every_client() if client.events is not None]


@pytest.fixture
def here(shell: Shell, tmp_path: Path) -> Shell:
    """A shell that finds dibs, and nobody's agent clients."""
    tools = tmp_path / "tools"
    tools.mkdir()
    return shell.with_(HOME=str(tmp_path / "nobody"), PATH=f"{tools}:{BIN}:/usr/bin:/bin")


def prove(shell: Shell) -> tuple[int, dict[str, str]]:
    answer = shell("doctor", "--prove", "--json")
    return answer.code, {found["check"]: found["says"] for found in answer.json}


@pytest.mark.parametrize("name", HOOKED)
def test_the_hooks_that_init_wrote_are_seen(here: Shell, name: str) -> None:
    here.ok("init", "--client", name)
    code, said = prove(here)
    (title,) = [client.title for client in every_client() if client.name == name]
    # Slow is what a busy machine makes it.
    assert re.match(r"seen|too slow", said[title]), said
    assert code == int(said[title].startswith("too slow"))
    assert here.json("leases") == []
    assert not (here.folder / ".dibs-proof").exists()
    if name in ("claude", "codex", "copilot"):
        hooks = int(said[title].split(": ")[1].split()[0])
        (client,) = [one for one in every_client() if one.name == name]
        assert hooks > len(client.events or ()), "and those of a subagent"


def test_what_is_seen_is_told_apart_from_what_is_not(here: Shell, tmp_path: Path) -> None:
    here.ok("init", "--client", "codex")
    without = here.with_(PATH="/usr/bin:/bin")
    answer = without.spawn([DIBS, "doctor", "--prove", "--json"]).communicate()[0]
    (found,) = [one for one in json.loads(answer) if one["check"] == "Codex"]
    assert found["state"] == "fault" and "dibs is not on the PATH" in found["says"]
    slow = tmp_path / "tools/dibs"
    slow.write_text(f'#!/bin/sh\nsleep 1.2\nexec {DIBS} "$@"\n')
    slow.chmod(0o755)
    settings = here.folder / ".codex/hooks.json"
    code, said = prove(here)
    assert said["Codex"].startswith("too slow: ") and code == 1
    slow.unlink()
    settings.write_text("{}")
    code, said = prove(here)
    assert said["Codex"].startswith("not seen: no hook of dibs at ") and code == 1


def test_a_command_that_a_stranger_has_changed_is_never_run(here: Shell) -> None:
    here.ok("init", "--client", "claude")
    settings = here.folder / ".claude/settings.json"
    said = settings.read_text()
    settings.write_text(said.replace("command -v dibs", "touch stolen; command -v dibs"))
    assert settings.read_text() != said
    code, found = prove(here)
    assert "differs from what dibs init writes" in found["Claude Code"] and code == 1
    assert not (here.folder / "stolen").exists()


def test_a_client_that_is_used_and_not_set_up_is_named(here: Shell) -> None:
    (here.folder / ".cursor").mkdir()
    here.ok("init", "--client", "codex")
    code, said = prove(here)
    assert said["Cursor"].startswith("not set up: ") and code == 0


def test_it_says_if_there_are_no_hooks_to_prove(here: Shell) -> None:
    answer = here("doctor", "--prove")
    assert answer.code == 0 and answer.out == ""
    assert "no client with hooks is used here" in answer.err and "next: dibs init" in answer.err
    assert here("doctor", "--prove", "--json").json == []
