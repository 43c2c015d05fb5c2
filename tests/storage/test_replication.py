"""A PostgreSQL server with a standby: what waits for it, and what becomes of sessions after it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from dibs.errors import DisconnectedError, NotYoursError, StoreGoneError, UnavailableError
from tests.hostile.standby import Failover, failover

WAITS = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def servers(postgres_server: str) -> Iterator[Failover]:
    """After another server has run, so that its programs may be started."""
    with failover() as found:
        yield found


@pytest.fixture
def where(tmp_path: Path) -> dict[str, Any]:
    return {"space": "s", "user_dir": str(tmp_path / "user")}


def wait_for_standbys(servers: Failover) -> None:
    servers.follow()
    servers.set("synchronous_standby_names", "*")


def until_answered(call: Any) -> Any:
    for _ in range(20):
        try:
            return call()
        except DisconnectedError:
            time.sleep(0.05)
    raise AssertionError("the server never came back")


def test_a_standby_that_was_waited_for_takes_over_and_sessions_go_on(
    servers: Failover, where: dict[str, Any]
) -> None:
    dibs.open(servers.url, **where).close()
    wait_for_standbys(servers)
    with (
        dibs.open(servers.url, **where) as space,
        dibs.open(servers.url, **where) as other,
        space.join("alice", ttl_s=300) as alice,
        other.join("bob", ttl_s=300) as bob,
    ):
        held = alice.leases.claim("lock:a")
        version = bob.state.set("n", "k", 1).version
        servers.promote()
        with dibs.open(servers.url, **where) as third, third.join("carol") as carol:
            with pytest.raises(dibs.HeldError):
                carol.leases.claim("lock:a")
            newer = carol.leases.claim("lock:b").epoch
        assert newer > held.epoch + 1000, "above all that may have been granted"
        until_answered(lambda: alice.leases.renew("lock:a", epoch=held.epoch))
        until_answered(lambda: bob.state.set("n", "k", 2, expected_version=version))
        (event,) = space.events.since(0, kind="space.restored")
        assert event.data["kept"] is True
        # From now on nobody is waited for: the next one to take over may lack something.
        servers.copy()
        servers.promote()
        with pytest.raises((NotYoursError, StoreGoneError)):
            until_answered(lambda: alice.leases.renew("lock:a"))


def test_who_misses_a_commit_is_refused_although_standbys_were_waited_for(
    servers: Failover, where: dict[str, Any]
) -> None:
    """The wrong standby was promoted, and somebody who has missed nothing comes first."""
    dibs.open(servers.url, **where).close()
    wait_for_standbys(servers)
    with dibs.open(servers.url, **where) as space, space.join("alice", ttl_s=300) as alice:
        servers.copy()  # which hears of nothing that follows
        lost = alice.leases.claim("lock:a").epoch
        servers.promote()
        servers.set("synchronous_standby_names", "")
        with dibs.open(servers.url, **where) as other, other.join("bob", ttl_s=300) as bob:
            assert bob.leases.claim("lock:a").epoch > lost
            with pytest.raises((NotYoursError, StoreGoneError)):
                until_answered(lambda: alice.leases.claim("lock:b"))
            with pytest.raises((NotYoursError, StoreGoneError)):
                until_answered(alice.leases.list)
            assert space.join("alice").leases.claim("lock:b").epoch > lost


def test_a_commit_that_no_standby_has_is_not_acknowledged(
    servers: Failover, where: dict[str, Any]
) -> None:
    """Somebody at the server cancels a commit that waits; the server then says that it is done."""
    with dibs.open(servers.url, **where) as space, space.join("alice", ttl_s=300) as alice:
        heard: list[object] = []

        def write() -> None:
            try:
                heard.append(alice.state.set("n", "k", 1, expected_version=0))
            except UnavailableError as error:
                heard.append(error)

        servers.set("synchronous_standby_names", "nobody")
        writing = threading.Thread(target=write)
        writing.start()
        with psycopg.connect(servers.url, autocommit=True) as server:
            while not (found := server.execute(WAITS).fetchall()):
                time.sleep(0.01)
            server.execute("SELECT pg_cancel_backend(%s)", found[0])
        writing.join(30)
        (answer,) = heard
        assert isinstance(answer, DisconnectedError), answer
        assert "standby" in answer.message
        servers.set("synchronous_standby_names", "")


def test_looking_at_the_server_beside_writers_ends_nothing(
    postgres_url: str, where: dict[str, Any], space_name: str
) -> None:
    """Whoever looks again at the space's row must not take a write of the same moment for lost."""
    failures: list[BaseException] = []
    with (
        dibs.open(postgres_url, **where | {"space": space_name}) as space,
        space.join("alice", ttl_s=300) as alice,
    ):
        driver: Any = space.scope.store.driver
        end = time.monotonic() + 3

        def write(number: int) -> None:
            try:
                while time.monotonic() < end:
                    alice.state.set("n", f"{number}", 1, force=True)
                    driver.behind = driver.behind or number == 0
            except BaseException as error:
                failures.append(error)

        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert not failures
        assert space.events.since(0, kind="space.restored") == ()


def test_what_the_settings_of_the_server_put_at_risk_is_told(
    servers: Failover, where: dict[str, Any]
) -> None:
    with dibs.open(servers.url, **where) as space:
        driver = space.scope.store.driver
        assert [says.split()[0] for says, _ in driver.at_risk()] == ["fsync"]
        servers.follow()
        with psycopg.connect(servers.url, autocommit=True) as server:
            while not server.execute("SELECT 1 FROM pg_stat_replication").fetchall():
                time.sleep(0.05)
        (_, (says, advice)) = driver.at_risk()
        assert "do not wait for the server's standbys (1)" in says
        assert "synchronous_standby_names" in advice
        servers.set("synchronous_standby_names", "*")
        while len(driver.at_risk()) > 1:
            time.sleep(0.05)
