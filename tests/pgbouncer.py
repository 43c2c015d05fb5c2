"""A real PgBouncer in transaction mode before the test's PostgreSQL.

It listens at a socket of its own, under the same name as the server's, so that an address differs
in its folder only. It has few connections to the server, fewer than the tests have: whoever relies
on having the same one twice is found out.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg

POOL = 4
PATIENCE_S = 20
PR_SET_PDEATHSIG = 1


def program() -> str:
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    assert found, "PgBouncer is missing: run tests/get_pgbouncer"
    return found


@contextmanager
def pgbouncer(url: str, mode: str = "transaction") -> Iterator[str]:
    """Give the address of that database by way of PgBouncer."""
    server = parse_qs(urlsplit(url).query)["host"][0]
    # It refuses to run as root. The server's own user can reach the server's socket.
    user = pwd.getpwuid(os.stat(server).st_uid).pw_name if os.geteuid() == 0 else None
    # Not in the test's own folder, because the name of a socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="dibs-bouncer-"))
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host={server} user=postgres\n"
        f"[pgbouncer]\nunix_socket_dir = {folder}\nlisten_port = 5432\nauth_type = any\n"
        f"pool_mode = {mode}\ndefault_pool_size = {POOL}\nmax_client_conn = 1000\n"
        f"logfile = {folder}/log\n"
    )
    if user is not None:
        for path in (folder, settings):
            shutil.chown(path, user)

    def die_with_us() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    process = subprocess.Popen(
        [program(), "-q", str(settings)], user=user, cwd="/",
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=die_with_us,  # noqa: PLW1509 - no threads yet
    )  # fmt: skip
    try:
        through = url.replace(server, str(folder))
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                psycopg.connect(through).close()
                break
            except psycopg.OperationalError:
                said = (folder / "log").read_text() if (folder / "log").exists() else ""
                assert process.poll() is None and time.monotonic() < end, said
                time.sleep(0.02)
        yield through
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        shutil.rmtree(folder, ignore_errors=True)
