"""PostgreSQL's bell is rung for those who listen, and for nobody else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from dibs.storage.postgres_pipeline import EAR_LOCK
from dibs.storage.postgres_transaction import CROWD_LOCK, TURN_LOCK
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
