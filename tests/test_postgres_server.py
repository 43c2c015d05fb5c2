"""The fixtures' own promises: two real databases, and no process left behind."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from tests.postgres_server import start_keeper


def test_the_postgres_url_reaches_a_real_server(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        assert connection.info.server_version >= 160000
        assert connection.info.dbname.startswith("test_")


def test_an_empty_database_is_not_the_shared_one(
    postgres_url: str, empty_postgres_url: str
) -> None:
    with psycopg.connect(empty_postgres_url) as connection:
        assert connection.info.dbname != psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
        assert not connection.execute(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()


def test_each_url_names_its_database(url: str, space_name: str) -> None:
    assert space_name
    if url.startswith("postgresql://"):
        return
    folder = Path(url).parent
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert not list(folder.iterdir())


def test_the_server_goes_when_its_starter_dies() -> None:
    with start_keeper(fsync=False) as keeper:
        assert keeper.stdin and keeper.stdout
        server_url = keeper.stdout.readline().strip()
        with psycopg.connect(server_url):
            pass
        keeper.stdin.close()  # all that is left of a killed starter
        assert keeper.wait(30) == 0
    (socket_folder,) = parse_qs(urlsplit(server_url).query)["host"]
    assert not Path(socket_folder).exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server_url)
