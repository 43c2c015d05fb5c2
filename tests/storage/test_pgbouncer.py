"""What only a pooler shows: nothing outlives a transaction, no answer reaches another client."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from tests.contract.waiting import eventually
from tests.pgbouncer import POOL, pgbouncer

SETTINGS = ("search_path", "lock_timeout", "idle_in_transaction_session_timeout")


def open_space(url: str, folder: Path, space: str) -> dibs.Dibs:
    return dibs.open(url, space=space, start=folder, user_dir=folder / "user")


def test_a_pooler_is_noticed(
    postgres_url: str, pgbouncer_url: str, tmp_path: Path, space_name: str
) -> None:
    for url, pooled in ((postgres_url, False), (pgbouncer_url, True)):
        with open_space(url, tmp_path, space_name) as space:
            driver = space.scope.store.driver
            assert vars(driver)["pooled"] is pooled


def test_nothing_is_left_for_the_next_client(
    pgbouncer_url: str, tmp_path: Path, space_name: str
) -> None:
    with open_space(pgbouncer_url, tmp_path, space_name) as space, space.join("alice") as alice:
        for number in range(20):
            alice.state.set("n", str(number), number)
            with pytest.raises(dibs.EmptyError):
                alice.work.next()
    found = set()
    clients = [psycopg.connect(pgbouncer_url) for _ in range(POOL)]
    for client in clients:  # each in a transaction of its own, so that all servers are seen
        found.add(tuple(value_of(client, name) for name in SETTINGS))
    for client in clients:
        client.close()
    assert found == {('"$user", public', "0", "0")}


def value_of(client: psycopg.Connection[tuple[str, ...]], name: str) -> str:
    row = client.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert row is not None
    return row[0]


def test_no_answer_reaches_another_client(
    pgbouncer_url: str, tmp_path: Path, space_name: str
) -> None:
    errors: list[object] = []
    stop = threading.Event()

    def stranger(number: int) -> None:
        with psycopg.connect(pgbouncer_url, autocommit=True, prepare_threshold=None) as db:
            while not stop.is_set():
                row = db.execute("SELECT %s::int AS mine", [number]).fetchone()
                if row != (number,):
                    errors.append(row)

    def agent(number: int) -> None:
        for round_ in range(5):
            # Opened again and again: who leaves must leave no answer behind.
            space = open_space(pgbouncer_url, tmp_path, space_name)
            with space, space.join(f"agent{number}") as mine:
                mine.messages.send(f"{number}/{round_}")
                with pytest.raises(dibs.NotFoundError):
                    mine.work.show("nothing")

    open_space(pgbouncer_url, tmp_path, space_name).close()
    strangers = [threading.Thread(target=stranger, args=(n,)) for n in range(3)]
    agents = [threading.Thread(target=agent, args=(n,)) for n in range(4)]
    for thread in strangers + agents:
        thread.start()
    for thread in agents:
        thread.join()
    stop.set()
    for thread in strangers:
        thread.join()
    assert errors == []
    with open_space(pgbouncer_url, tmp_path, space_name) as space:
        sent = sorted(message.body for message in space.messages.history())
    assert sent == sorted(f"{number}/{round_}" for number in range(4) for round_ in range(5))


def test_one_of_many_wins_and_the_next_is_served(
    pgbouncer_url: str, tmp_path: Path, space_name: str
) -> None:
    won: list[str] = []
    spaces = [open_space(pgbouncer_url, tmp_path, space_name) for _ in range(6)]
    agents = [space.join(f"agent{number}") for number, space in enumerate(spaces)]

    def claim(agent: dibs.Agent) -> None:
        grant = agent.leases.claim("port:1", wait_s=60)
        won.append(agent.name)
        assert [lease.agent for lease in agent.leases.list()] == [agent.name]
        agent.leases.release("port:1", epoch=grant.epoch)

    threads = [threading.Thread(target=claim, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == sorted(agent.name for agent in agents)
    for agent, space in zip(agents, spaces, strict=True):
        agent.close()
        space.close()


def test_one_looks_for_all_who_wait_in_a_process(
    pgbouncer_url: str, tmp_path: Path, space_name: str
) -> None:
    number = 12
    with (
        open_space(pgbouncer_url, tmp_path, space_name) as space,
        open_space(pgbouncer_url, tmp_path, space_name) as elsewhere,
    ):
        holder = elsewhere.join("holder")
        holder.leases.claim("port:1")
        agents = [space.join(f"agent{one}") for one in range(number)]
        won: list[str] = []

        def claim(agent: dibs.Agent) -> None:
            grant = agent.leases.claim("port:1", wait_s=60)
            won.append(agent.name)
            agent.leases.release("port:1", epoch=grant.epoch)

        threads = [threading.Thread(target=claim, args=(agent,)) for agent in agents]
        for thread in threads:
            thread.start()
        eventually(lambda: len(elsewhere.leases.waiting()) == number)
        store: Any = space.scope.store
        looks, read = list[float](), store.read

        def counted(*args: Any) -> Any:
            looks.append(time.monotonic())
            return read(*args)

        store.read = counted
        time.sleep(1.0)
        assert len(looks) <= 6, "the first of them, each half second"
        asked = [one.agent for one in elsewhere.leases.waiting()]
        holder.leases.release("port:1")
        for thread in threads:
            thread.join(30)
        assert won == asked
        for agent in [*agents, holder]:
            agent.close()


def test_a_pooler_that_gives_out_single_statements_is_refused(
    postgres_url: str, tmp_path: Path, space_name: str
) -> None:
    with pgbouncer(postgres_url, "statement") as by, pytest.raises(dibs.UnfitError) as refused:
        open_space(by, tmp_path, space_name)
    assert refused.value.details["cause"] == "pooler"
    assert "transaction" in f"{refused.value.next}"
