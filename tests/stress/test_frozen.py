"""R13, without a daemon: one frozen process inside a write. The others are told, in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import dibs
from tests.stress.clockwork import Child, children, database
from tests.stress.crew import keep_the_turn

SERVER_CUTS_OFF_S = 10


class Jam:
    """A process that is frozen in the middle of a write, and us, who want to write too."""

    def __init__(self, child: Child, agent: dibs.Agent) -> None:
        self.child, self.agent = child, agent

    def claim(self) -> tuple[dibs.DibsError | None, float]:
        """Try to claim; return what was refused, and after how many seconds."""
        began = time.monotonic()
        try:
            self.agent.leases.claim("port:1")
        except dibs.DibsError as error:
            return error, time.monotonic() - began
        return None, time.monotonic() - began


@pytest.fixture
def jam(url: str, space_name: str, tmp_path: Path) -> Iterator[Jam]:
    user = str(tmp_path / "user")
    with dibs.open(url, space=space_name, user_dir=user) as store, children() as crew:
        agent = store.join("alice", ttl_s=3600)
        child = crew.start(keep_the_turn, url, space_name, user)
        assert child.hear() == "here"
        assert child.hear() == "inside"
        child.freeze()
        yield Jam(child, agent)


def test_a_frozen_writer_makes_others_busy_within_five_seconds_and_no_longer_than_it_is_frozen(
    url: str, space_name: str, tmp_path: Path, jam: Jam
):
    seq = jam.agent.events.last()  # reading goes on
    error, after_s = jam.claim()
    assert isinstance(error, dibs.BusyError)
    assert error.retry_after_ms is not None
    assert after_s < 5, after_s
    assert jam.agent.events.last() == seq, "a refusal changes nothing"
    jam.child.go_on()
    jam.child.tell("finish")
    assert jam.child.hear() == "committed"
    error, after_s = jam.claim()
    assert error is None and after_s < 1


def test_when_a_frozen_writer_is_killed_its_turn_passes_on_at_once(jam: Jam):
    seq = jam.agent.events.last()
    killing = threading.Timer(0.3, jam.child.kill)
    killing.start()
    error, after_s = jam.claim()
    killing.join()
    assert error is None and 0.2 < after_s < 2, (error, after_s)
    (event,) = jam.agent.events.since(seq)
    assert event.subject == "port:1", "nothing is left of the half write"


def test_a_frozen_writer_does_not_stop_another_space_of_the_same_server(
    postgres_url: str, space_name: str, tmp_path: Path
):
    user = str(tmp_path / "user")
    with children() as crew:
        child = crew.start(keep_the_turn, postgres_url, space_name, user)
        assert [child.hear(), child.hear()] == ["here", "inside"]
        child.freeze()
        other = f"{space_name}-other"
        with dibs.open(postgres_url, space=other, user_dir=user) as store, store.join("bob") as bob:
            began = time.monotonic()
            bob.leases.claim("port:1")
            assert time.monotonic() - began < 1


def test_a_client_inside_a_write_counts_as_idle_for_the_server(
    postgres_url: str, space_name: str, tmp_path: Path
):
    # Only the idle are cut off. A server that waits for the rest of a pipeline is not idle.
    with children() as crew, psycopg.connect(postgres_url, autocommit=True) as db:
        child = crew.start(keep_the_turn, postgres_url, space_name, str(tmp_path / "user"))
        assert [child.hear(), child.hear()] == ["here", "inside"]
        states = db.execute(
            "SELECT state FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
        assert [state for (state,) in states if state != "idle"] == ["idle in transaction"]
        child.tell("finish")
        assert child.hear() == "committed"


@pytest.mark.stress
def test_a_frozen_client_is_cut_off_by_the_server(
    postgres_url: str, space_name: str, tmp_path: Path
):
    user = str(tmp_path / "user")
    with dibs.open(postgres_url, space=space_name, user_dir=user) as store, children() as crew:
        agent = store.join("alice", ttl_s=3600)
        child = crew.start(keep_the_turn, postgres_url, space_name, user)
        assert [child.hear(), child.hear()] == ["here", "inside"]
        child.freeze()
        jam, frozen, busy = Jam(child, agent), time.monotonic(), 0
        while True:
            error, after_s = jam.claim()
            if error is None:
                break
            assert isinstance(error, dibs.BusyError) and after_s < 5
            busy += 1
        stopped_s = time.monotonic() - frozen
        child.go_on()
        child.tell("finish")
        assert child.hear() == "disconnected", "the cut-off client must not believe it wrote"
    print(
        f"\nR13 {database(postgres_url)}: a client frozen in a write stopped its space for "
        f"{stopped_s:.1f} s; {busy} calls were told busy, each within 5 s"
    )
    assert busy >= 2 and stopped_s < SERVER_CUTS_OFF_S + 2
