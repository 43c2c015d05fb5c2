"""R12: many processes open a fresh or an old store at the same moment, and all succeed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from dibs.storage.queries import migrations
from tests.postgres_server import new_database
from tests.stress.clockwork import children
from tests.stress.crew import make_old, open_each

SPACE = "crowd"
OLD = [number for number, *_ in migrations()][:-1]
HEAD_START_NS = 3_000_000


def open_at_once(urls: Iterable[str], user: str, processes: int) -> tuple[int, list[str]]:
    """How many stores were opened, and what failed. In each store, one claim must win."""
    failures: list[str] = []
    stores = 0
    with children() as crew:
        some = [crew.start(open_each, SPACE, user, f"agent{n}") for n in range(processes)]
        for url in urls:
            start = time.monotonic_ns() + HEAD_START_NS
            for child in some:
                child.tell([url, start])
            answers = [child.hear() for child in some]
            for child in some:
                child.tell("close")
            failures += [text for word, text in answers if word == "failed"]
            if not failures:
                assert [word for word, _ in answers].count("won") == 1, "one winner per store"
            stores += 1
    return stores, failures


def fresh_files(folder: Path, number: int) -> Iterator[str]:
    for place in range(number):
        yield str(folder / f"fresh{place}" / "dibs.db")


def old_files(folder: Path, number: int) -> Iterator[str]:
    for place in range(number):
        url = str(folder / f"old{place}" / "dibs.db")
        make_old(url, SPACE, str(folder / "user"), OLD[place % len(OLD)])
        yield url


def fresh_databases(server: str, number: int) -> Iterator[str]:
    for _ in range(number):
        with new_database(server) as url:
            yield url


def old_databases(server: str, user: str, number: int) -> Iterator[str]:
    for place, url in enumerate(fresh_databases(server, number)):
        make_old(url, SPACE, user, OLD[place % len(OLD)])
        yield url


def check(urls: Iterable[str], user: str, processes: int, what: str) -> None:
    began = time.monotonic()
    stores, failures = open_at_once(urls, user, processes)
    print(
        f"\nR12 {what}: {processes} processes × {stores} stores opened at once, "
        f"{len(failures)} failures, {time.monotonic() - began:.0f} s"
    )
    assert not failures, failures[:5]


def test_a_fresh_file_can_be_opened_by_many_at_once(tmp_path: Path):
    check(fresh_files(tmp_path, 4), str(tmp_path / "user"), 6, "sqlite, fresh")


def test_an_old_file_can_be_opened_by_many_at_once(tmp_path: Path):
    check(old_files(tmp_path, 4), str(tmp_path / "user"), 6, "sqlite, old schema")


def test_a_fresh_or_old_server_database_can_be_opened_by_many_at_once(
    postgres_server: str, tmp_path: Path
):
    user = str(tmp_path / "user")
    check(fresh_databases(postgres_server, 1), user, 5, "postgres, fresh")
    check(old_databases(postgres_server, user, 1), user, 5, "postgres, old schema")


@pytest.mark.stress
def test_twelve_processes_open_a_hundred_fresh_files(tmp_path: Path):
    check(fresh_files(tmp_path, 100), str(tmp_path / "user"), 12, "sqlite, fresh")


@pytest.mark.stress
def test_twelve_processes_open_a_hundred_old_files(tmp_path: Path):
    check(old_files(tmp_path, 100), str(tmp_path / "user"), 12, "sqlite, old schema")


@pytest.mark.stress
def test_twelve_processes_open_fresh_and_old_server_databases(postgres_server: str, tmp_path: Path):
    user = str(tmp_path / "user")
    check(fresh_databases(postgres_server, 20), user, 12, "postgres, fresh")
    check(old_databases(postgres_server, user, 20), user, 12, "postgres, old schema")
