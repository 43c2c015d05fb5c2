"""A claim and its release, beside the one statement each needs on the bare database.

Both sides commit twice per pair, at the same durability. The bare side takes and drops one
row; dibs also finds overlapping names, checks the session, signs, writes the journal, hashes
the file and rings the bell.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import apsw

import dibs
from bench.measure import in_turns

TABLE = """CREATE TABLE {table} (
    space BIGINT NOT NULL, resource TEXT NOT NULL, session BIGINT NOT NULL, epoch BIGINT NOT NULL,
    deadline BIGINT NOT NULL, note TEXT NOT NULL, PRIMARY KEY (space, resource))"""
CLAIM = """INSERT INTO {table} VALUES (1, {resource}, 7, 1, {deadline}, 'bench')
    ON CONFLICT (space, resource) DO UPDATE SET session = excluded.session,
    epoch = {table}.epoch + 1, deadline = excluded.deadline WHERE {table}.deadline < {deadline}
    RETURNING epoch"""
RELEASE = """DELETE FROM {table} WHERE space = 1 AND resource = {resource} AND session = 7
    AND epoch = {epoch} RETURNING epoch"""


def bare_sqlite(folder: str, durability: str) -> Callable[[], None]:
    db = apsw.Connection(os.path.join(folder, f"bare-{durability}.db"))
    db.execute("PRAGMA journal_mode=WAL").fetchall()
    db.execute(f"PRAGMA synchronous={'FULL' if durability == 'full' else 'NORMAL'}")
    db.execute(TABLE.format(table="lease"))
    claim = CLAIM.format(table="lease", resource=":resource", deadline=":deadline")
    release = RELEASE.format(table="lease", resource=":resource", epoch=":epoch")

    def pair() -> None:
        parameters: dict[str, Any] = {"resource": "src/a.py", "deadline": 1}
        db.execute("BEGIN IMMEDIATE")
        parameters["epoch"] = db.execute(claim, parameters).fetchall()[0][0]
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        db.execute(release, parameters).fetchall()
        db.execute("COMMIT")

    return pair


def bare_postgres(url: str, durability: str, table: str = "lease") -> Callable[[], None]:
    import psycopg

    db = psycopg.connect(url, autocommit=True)
    db.execute(f"SET synchronous_commit = {'on' if durability == 'full' else 'off'}")
    db.execute(f"DROP TABLE IF EXISTS {table}".encode())
    db.execute(TABLE.format(table=table).encode())
    marks = {"resource": "%(resource)s", "deadline": "%(deadline)s", "epoch": "%(epoch)s"}
    claim = CLAIM.format(table=table, **marks).encode()
    release = RELEASE.format(table=table, **marks).encode()

    def pair() -> None:
        parameters: dict[str, Any] = {"resource": "src/a.py", "deadline": 1}
        db.execute("BEGIN")
        parameters["epoch"] = db.execute(claim, parameters).fetchall()[0][0]
        db.execute("COMMIT")
        db.execute("BEGIN")
        db.execute(release, parameters).fetchall()
        db.execute("COMMIT")

    return pair


def with_dibs(
    url: str, folder: str, durability: str, resource: str, space_name: str = "bench"
) -> Callable[[], None]:
    space = dibs.open(
        url, space=space_name, durability=durability, start=folder, user_dir=folder + "/user"
    )
    agent = space.join("bench")

    def pair() -> None:
        epoch = agent.leases.claim(resource, note="bench").epoch
        agent.leases.release(epoch=epoch)

    return pair


def pairs(
    folder: str, durability: str, postgres: str | None, rounds: int, calls: int
) -> dict[str, list[float]]:
    """Seconds for a claim and its release: bare, with dibs on a name, with dibs on a file."""
    file = os.path.join(folder, "src", "a.py")
    os.makedirs(os.path.dirname(file), exist_ok=True)
    os.makedirs(os.path.join(folder, ".git"), exist_ok=True)
    with open(file, "w") as target:
        target.write("print('hello')\n" * 40)
    url = postgres or os.path.join(folder, f"dibs-{durability}.db")
    bare = bare_postgres(postgres, durability) if postgres else bare_sqlite(folder, durability)
    sides: dict[str, Callable[[], object]] = {
        "bare": bare,
        "name": with_dibs(url, folder, durability, "port:3000"),
        "file": with_dibs(url, folder, durability, file),
    }
    for side in sides.values():
        for _ in range(300):  # until the write-ahead log no longer grows
            side()
    return in_turns(sides, rounds, calls)
