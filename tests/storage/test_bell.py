"""PostgreSQL's bell is rung for those who listen, and for nobody else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs


@pytest.fixture
def where(tmp_path: Path, space_name: str) -> dict[str, Any]:
    return {"space": space_name, "user_dir": str(tmp_path / "user")}


def heard(listener: psycopg.Connection[Any], seconds: float = 0.3) -> list[str]:
    return [notice.channel for notice in listener.notifies(timeout=seconds)]


def test_the_bell_is_rung_where_somebody_listens(postgres_url: str, where: dict[str, Any]) -> None:
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

        alice.state.set("n", "k", 3, force=True)
        assert heard(stranger) == [], "nobody listens any more"
