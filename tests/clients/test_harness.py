"""That the clients really run here: what a script says happens to the files, and nothing hides."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.clients import scripted_model
from tests.clients.client import CLIENTS, run, start
from tests.clients.script import change, edit, read, say, shell

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("name", CLIENTS)
def test_a_script_changes_the_files_of_the_repository(name: str, repository: Path) -> None:
    script = [
        edit("new.py", "hello\n"),
        shell("cat new.py > copy.py"),
        read("new.py"),
        change("new.py", "hello", "goodbye"),
        say(),
    ]
    client = run(name, repository, script)
    assert (repository / "copy.py").read_text() == "hello\n", client.story("did not copy")
    assert (repository / "new.py").read_text() == "goodbye\n", client.story("did not change")
    assert "hello" in client.result(2)


def test_a_step_waits_for_its_condition(repository: Path) -> None:
    gate = threading.Event()
    with start("codex", repository, [shell("true"), say().when(gate.is_set)]) as client:
        client.result(0)
        assert not client.transcript.of("say")
        gate.set()
        client.finish()


def test_a_condition_that_never_comes_fails_the_test(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripted_model, "PATIENCE_S", 0.1)
    with (
        start("codex", repository, [say().when(threading.Event().is_set)]) as client,
        pytest.raises(AssertionError, match="waited 0 s for its condition"),
    ):
        client.finish()


def test_what_outlives_its_client_is_found_and_ended(repository: Path) -> None:
    script = [shell("setsid sleep 600 > /dev/null 2>&1 < /dev/null & echo $!"), say()]
    with (
        start("claude", repository, script) as client,
        pytest.raises(AssertionError, match=r"left running: .*sleep 600"),
    ):
        client.finish()
    assert client.gone


def test_a_client_that_stops_early_fails_the_test(repository: Path) -> None:
    with (
        start("codex", repository, [say(), shell("true"), say()]) as client,
        pytest.raises(AssertionError, match="did not play the script to its end"),
    ):
        client.finish()
