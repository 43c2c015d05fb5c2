"""A proxy before a PostgreSQL server that swallows bytes, while every connection stays open.

It listens at a loopback port and passes on what it is given, until it is told to be silent, or
until it sees the bytes that it waits for. From then on it reads everything and passes on nothing:
to the kernel, the connection is in the best of health.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

CLIENT, SERVER = "client", "server"
COMMIT = b"COMMIT\0"
"""A client's wish to commit, whether it is prepared or not, and the server's answer to it."""


class SilentProxy:
    def __init__(self, server_url: str) -> None:
        self.server_url = server_url
        parts = urlsplit(server_url)
        self._server = os.path.join(parse_qs(parts.query)["host"][0], ".s.PGSQL.5432")
        self.database = parts.path.strip("/")
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.silent = False
        self._trigger: tuple[str, bytes] | None = None
        self._peers: dict[socket.socket, tuple[socket.socket, str]] = {}
        self.connections = 0
        self._read, self._write = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{self.database}"

    def silence_at(self, who: str, said: bytes) -> None:
        """Be silent from the moment that somebody says this, which is not passed on any more."""
        self._trigger = (who, said)

    def speak(self) -> None:
        """Pass on again what comes from now on; connections that missed something are cut."""
        self._trigger, self.silent = None, False
        os.write(self._write, b"cut")

    def _run(self) -> None:
        while True:
            watched: list[Any] = [self._listener, self._read, *self._peers]
            ready, _, _ = select.select(watched, [], [])
            for one in ready:
                if one is self._listener:
                    self._accept()
                elif one is self._read:
                    if os.read(self._read, 16) == b"end":
                        return
                    for other in list(self._peers):
                        self._drop(other)
                elif isinstance(one, socket.socket) and one in self._peers:
                    self._pass_on(one)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self.connections += 1
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        self._peers[client], self._peers[server] = (server, CLIENT), (client, SERVER)

    def _pass_on(self, source: socket.socket) -> None:
        target, who = self._peers[source]
        try:
            data = source.recv(65536)
        except ConnectionError:
            data = b""
        if self._trigger is not None and self._trigger[0] == who and self._trigger[1] in data:
            self.silent, self._trigger = True, None
        if self.silent and data:
            return
        if not data:
            self._drop(source)
            return
        try:
            target.sendall(data)
        except OSError:
            self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        other, _ = self._peers.pop(one, (one, ""))
        self._peers.pop(other, None)
        one.close()
        other.close()

    def close(self) -> None:
        os.write(self._write, b"end")
        self._thread.join()
        for one in list(self._peers):
            self._drop(one)
        self._listener.close()
        os.close(self._read)
        os.close(self._write)


@contextmanager
def silent_proxy(server_url: str) -> Iterator[SilentProxy]:
    proxy = SilentProxy(server_url)
    try:
        yield proxy
    finally:
        proxy.close()
