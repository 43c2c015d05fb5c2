"""PostgreSQL's bell is rung for those who listen, and for nobody else."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from dibs.storage.postgres_bell import REST_MOST_S, Bell
from dibs.storage.postgres_pipeline import EAR_LOCK
from dibs.storage.postgres_transaction import CROWD_LOCK, TURN_LOCK
from dibs.storage.waiting import PATIENCE_S
from tests.contract.waiting import eventually


@pytest.fixture
def where(tmp_path: Path, space_name: str) -> dict[str, Any]:
    return {"space": space_name, "user_dir": str(tmp_path / "user")}


def heard(listener: psycopg.Connection[Any], seconds: float = 0.3) -> list[str]:
    return [notice.channel for notice in listener.notifies(timeout=seconds)]


def test_the_bell_is_rung_where_somebody_listens(
    postgres_url: str, where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.storage.waiting.IDLE_S", 0.1)
    with (
        dibs.open(postgres_url, **where) as space,
        dibs.open(postgres_url, **where) as other,
        dibs.open(postgres_url, **where | {"space": where["space"] + "-2"}) as elsewhere,
        space.join("alice") as alice,
        elsewhere.join("carol") as carol,
        psycopg.connect(postgres_url, autocommit=True) as stranger,
    ):
        last = space.events.last()
        for one in (alice, carol):
            stranger.execute(f"LISTEN dibs_{one.scope.store.space}".encode())
        alice.state.set("n", "k", 1)
        assert heard(stranger) == [], "nobody of dibs listens"

        found: list[Any] = []
        wait = threading.Thread(
            target=lambda: found.extend(other.events.watch(last + 1, wait_s=20))
        )
        wait.start()
        asked = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"
        while not stranger.execute(asked).fetchall():
            pass
        carol.state.set("n", "k", 1)
        alice.state.set("n", "k", 2, force=True)
        wait.join(20)
        assert found
        assert set(heard(stranger)) == {f"dibs_{alice.scope.store.space}"}

        # For a moment the ear is kept for the next who waits.
        eventually(lambda: not stranger.execute(asked).fetchall())
        alice.state.set("n", "k", 3, force=True)
        assert heard(stranger) == [], "nobody listens any more"


def test_no_lock_has_two_meanings() -> None:
    assert len({TURN_LOCK, EAR_LOCK, CROWD_LOCK}) == 3


def test_who_begins_to_listen_while_a_commit_hangs_is_heard_of_later(
    postgres_url: str, where: dict[str, Any]
) -> None:
    with (
        dibs.open(postgres_url, **where) as space,
        dibs.open(postgres_url, **where) as other,
        space.join("alice") as alice,
        psycopg.connect(postgres_url, autocommit=True) as hangs,
    ):
        number = alice.scope.store.space
        hangs.execute("SELECT pg_advisory_lock(%s, %s)", (EAR_LOCK, number))
        ear = other.scope.store.driver.listen(("entry",), None)
        hangs.execute("SELECT pg_advisory_unlock(%s, %s)", (EAR_LOCK, number))
        asked = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"
        eventually(lambda: hangs.execute(asked).fetchall())
        ear.wait(0)
        alice.state.set("n", "k", 1)
        eventually(lambda: ear.wait(5))
        ear.close()


@contextmanager
def listening(postgres_url: str, space: int) -> Iterator[psycopg.Connection[Any]]:
    """Somebody who listens to a space, as dibs does."""
    with psycopg.connect(postgres_url, autocommit=True) as ear:
        ear.execute(f"LISTEN dibs_{space}".encode())
        ear.execute("SELECT pg_advisory_lock_shared(%s, %s::int)", [EAR_LOCK, space])
        yield ear


def test_many_bells_are_rung_together_and_none_is_left_out(
    postgres_url: str, where: dict[str, Any]
) -> None:
    with (
        dibs.open(postgres_url, **where) as space,
        dibs.open(postgres_url, **where | {"space": where["space"] + "-2"}) as elsewhere,
        space.join("alice") as alice,
        elsewhere.join("carol") as carol,
        listening(postgres_url, carol.scope.store.space) as other,
        listening(postgres_url, alice.scope.store.space) as ear,
    ):
        for number in range(300):
            alice.state.set("n", "k", number, force=True)
        carol.messages.send("the last", to="bob")
        alice.messages.send("the last", to="bob")
        said = [notice.payload for notice in ear.notifies(timeout=PATIENCE_S - 0.1)]
        assert len(said) < 280
        assert said[0] == "entry"
        assert any("message" in payload.split() for payload in said)
        assert [notice.payload for notice in other.notifies(timeout=0.1)] == ["message"]

        time.sleep(REST_MOST_S)
        began = time.monotonic()
        alice.state.set("n", "k", "now and then", force=True)
        assert [notice.payload for notice in ear.notifies(timeout=5, stop_after=1)] == ["entry"]
        assert time.monotonic() - began < PATIENCE_S


def test_what_is_still_to_be_rung_is_rung_at_the_close(
    postgres_url: str, where: dict[str, Any]
) -> None:
    with (
        dibs.open(postgres_url, **where) as space,
        space.join("alice") as alice,
        listening(postgres_url, alice.scope.store.space) as ear,
    ):
        bell: Bell = alice.scope.store.driver.bell  # type: ignore[attr-defined]
        with bell._rings:  # the thread that rings has no time now
            bell._next = time.monotonic() + 60
            alice.messages.send("the last", to="bob")
            space.close()
        said = [notice.payload for notice in ear.notifies(timeout=PATIENCE_S - 0.1)]
        assert "message" in said[-1].split()


WRITER = """
import os, sys
import dibs
space = dibs.open(sys.argv[1], space=sys.argv[2], user_dir=sys.argv[3])
alice = space.join("alice")
bell = alice.scope.store.driver.bell
bell._rings.acquire()  # the thread that rings never has time
bell._next = float("inf")
print(alice.scope.store.space, flush=True)
sys.stdin.readline()
alice.messages.send("the last", to="bob")
assert not bell._gathered.empty()
os.kill(os.getpid(), 9)
"""


def test_a_bell_that_was_never_rung_costs_the_waiter_half_a_second(
    postgres_url: str, where: dict[str, Any]
) -> None:
    command = [sys.executable, "-c", WRITER, postgres_url, where["space"], where["user_dir"]]
    with (
        dibs.open(postgres_url, **where) as space,
        space.join("bob") as bob,
        subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as writer,
    ):
        assert writer.stdout and writer.stdin
        with listening(postgres_url, int(writer.stdout.readline())):
            heard: list[float] = []

            def wait() -> None:
                assert bob.messages.inbox(wait_s=30)
                heard.append(time.monotonic())

            waiting = threading.Thread(target=wait)
            waiting.start()
            writer.stdin.write("go\n")
            writer.stdin.close()
            assert writer.wait() == -9
            ended = time.monotonic()
            waiting.join()
        assert heard[0] - ended < PATIENCE_S + 1
