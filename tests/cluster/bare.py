"""A client without dibs, which shows how long the cluster itself takes no writes.

Every moment it begins a new attempt, on a connection of its own, and does not wait for the ones
before: none of them has to find out that its server is gone.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import psycopg

EVERY_S = 0.25
MOST = 40


class Bare:
    def __init__(self, url: str) -> None:
        self._url = url + "&connect_timeout=2"
        self._over = threading.Event()
        self._running = threading.Semaphore(MOST)
        self.written: list[int] = []
        """When each write was acknowledged."""
        with psycopg.connect(url, autocommit=True) as server:
            server.execute("CREATE TABLE bare (at BIGINT)")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            if self._running.acquire(blocking=False):
                threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        with suppress(psycopg.Error), psycopg.connect(self._url, autocommit=True) as server:
            server.execute("INSERT INTO bare VALUES (1)")
            self.written.append(time.monotonic_ns())
        self._running.release()

    def stop(self) -> list[int]:
        self._over.set()
        self._thread.join()
        return sorted(self.written)
