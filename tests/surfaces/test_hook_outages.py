"""A store that does not answer keeps no agent and no commit waiting: soon the policy decides."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest

import dibs
from dibs.storage import clock
from dibs.storage.clock import SILENCE, Patience
from tests.daemons import Daemons, end
from tests.outages import frozen, kept_turn
from tests.surfaces.hooked import Client
from tests.surfaces.repository import hooked
from tests.surfaces.shell import Answer, Shell

Stop = Callable[[], AbstractContextManager[None]]
HOOK_S, COMMIT_S = 1.0, 3.0


@pytest.fixture(params=["sqlite", "postgres", "daemon"])
def stopped(
    request: pytest.FixtureRequest, shell: Shell, sqlite_url: str, space_name: str
) -> Iterator[tuple[Shell, Stop]]:
    """A shell, and what keeps its store from answering."""
    if request.param == "daemon":
        new_daemon: Daemons = request.getfixturevalue("new_daemon")
        word = new_daemon(sqlite_url, space_name, shell.user_dir)
        yield shell.with_(DIBS_URL=word["url"]), lambda: frozen(word["pid"])
        end(word)
        return
    url = str(shell.folder / ".dibs/dibs.db")
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        shell = shell.with_(DIBS_URL=url, DIBS_SPACE=space_name)
    shell.as_("somebody").ok("claim", "port:1")
    number = 1
    if request.param == "postgres":
        with dibs.open(url, space=space_name, user_dir=shell.user_dir) as space:
            number = space.scope.store.space
    yield shell, lambda: kept_turn(url, number)


def timed(call: Callable[[], Answer], within: AbstractContextManager[None]) -> tuple[Answer, float]:
    with within:
        began = time.monotonic()
        return call(), time.monotonic() - began


def config(shell: Shell, text: str) -> None:
    (shell.folder / ".dibs").mkdir(exist_ok=True)
    (shell.folder / ".dibs/config.toml").write_text(text)


@pytest.mark.parametrize("policy", ["open", "closed"])
def test_a_hook_answers_within_a_second(stopped: tuple[Shell, Stop], policy: str) -> None:
    shell, stop = stopped
    config(shell, f'policy = "{policy}"\n')
    client = Client(shell, "one")
    client.start()
    edit = {"tool_name": "Write", "tool_use_id": "1"}

    def hook(file: str) -> Answer:
        given = {"file_path": str(shell.folder / file), "content": "x"}
        return client.raw("PreToolUse", tool_input=given, **edit)

    # How long the process itself takes depends on the machine.
    _, usual_s = timed(lambda: hook("src/b.py"), nullcontext())
    answer, after_s = timed(lambda: hook("src/a.py"), stop())
    assert after_s < HOOK_S + 2 * usual_s, (after_s, usual_s)
    assert "the hook failed" in answer.err
    if policy == "open":
        assert (answer.code, answer.out) == (1, "")
    else:
        reason = answer.json["hookSpecificOutput"]["permissionDecisionReason"]
        assert answer.code == 0 and "policy is `closed`" in reason
    answer, _ = timed(lambda: hook("src/a.py"), nullcontext())
    assert (answer.code, answer.err) == (0, "")
    client.kill()


@pytest.mark.parametrize("policy", ["open", "closed"])
def test_a_commit_is_decided_within_three_seconds(stopped: tuple[Shell, Stop], policy: str) -> None:
    shell, stop = stopped
    bob = hooked(shell).as_("bob")
    config(shell, f'policy = "{policy}"\n')
    bob.stage("src/b.py", "b = 1\n")
    _, usual_s = timed(lambda: bob.git("commit", "-q", "-m", "first"), nullcontext())
    bob.stage("src/a.py", "a = 2\n")
    answer, after_s = timed(lambda: bob.git("commit", "-q", "-m", "second"), stop())
    assert after_s < COMMIT_S + 2 * usual_s, (after_s, usual_s)
    assert "the hook pre-commit failed" in answer.err
    assert answer.code == (0 if policy == "open" else 1)
    assert ("second" in bob.commits()) == (policy == "open")


def test_in_a_crowd_that_passes_the_turn_on_nobody_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "BUSY_S", 1.0)
    seq = 0

    def waited(writes: bool) -> float:
        nonlocal seq
        patience, attempts, began = Patience(lambda: seq), 0, time.monotonic()
        while patience(attempts):
            attempts += 1
            seq += writes
        return time.monotonic() - began

    assert waited(writes=False) >= 1.0, "a hook that may wait waits the whole time"
    before = SILENCE.set(0.2)
    try:
        assert 0.2 <= waited(writes=False) < 0.6
        assert waited(writes=True) >= 1.0
    finally:
        SILENCE.reset(before)


def test_a_hook_waits_its_turn_while_others_write(shell: Shell) -> None:
    """Each write of another process takes longer than half of what a hook may wait."""
    client = Client(shell, "one")
    client.start()
    writer = shell.spawn([sys.executable, "-c", SLOW_WRITER])
    assert writer.stdout is not None and writer.stdout.readline() == "writing\n"
    try:
        assert not client.write("src/a.py", "a = 2\n").denied
    finally:
        writer.kill()
        writer.communicate()
    client.kill()


SLOW_WRITER = """
import time, dibs
with dibs.open() as space:
    agent = space.join("writer")
    for number in range(100):
        with agent.scope.write() as tx:
            tx.event("session.status", "writer", {"status": str(number)})
            if number == 1:
                print("writing", flush=True)
            time.sleep(0.2)
        time.sleep(0.02)
"""
