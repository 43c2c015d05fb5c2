"""A daemon on a store, with the store opened beside it, as the user's own commands open it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dibs
from tests.daemons import Daemons, end
from tests.surfaces.daemon import Client
from tests.surfaces.shell import PATIENCE_S

Json = dict[str, Any]


class Target:
    def __init__(self, word: Json, space: dibs.Dibs) -> None:
        self.word = word
        self.space = space
        """Another process on the store, as far as the daemon can tell."""
        self.person = space.join("person", shell=True)
        address = urlsplit(word["url"])
        self.address = (str(address.hostname), int(address.port or 0))
        self._opened: list[Any] = []

    def client(self, token: str, agent: str | None = None, session: str = "") -> Client:
        self._opened.append(made := Client(self.address, token, agent, session))
        return made

    def lasting(self, method: str, path: str, body: Any = None, **headers: str) -> Pending:
        """A request that is not waited for."""
        self._opened.append(made := Pending(self, method, path, body, **headers))
        return made

    def keep(self, line: socket.socket) -> None:
        """Leave a connection open until the end."""
        self._opened.append(line)

    def kept(self) -> list[Any]:
        return self._opened

    def close(self) -> None:
        for one in self._opened:
            one.close()
        self.space.close()

    @property
    def owner(self) -> Client:
        """Whoever has the token that the daemon has left for its user."""
        return self.client(self.word["token"])

    def token(self, name: str, scope: str = "agent", **how: Any) -> tuple[str, int]:
        """A new token and its number."""
        made = self.person.agents.add_token(name, scope=scope, **how)
        assert made.secret is not None
        return made.secret, made.id

    def kinds(self) -> list[str]:
        return [event.kind for event in self.space.events.since(0, limit=1000)]


@contextmanager
def target(new_daemon: Daemons, url: str, space_name: str, tmp_path: Path) -> Iterator[Target]:
    user_dir = str(tmp_path / "user")
    word = new_daemon(url, space_name, user_dir)
    space = dibs.open(url, space=space_name, user_dir=user_dir, start=str(tmp_path))
    found = Target(word, space)
    try:
        yield found
    finally:
        found.close()
        end(word)


class Pending:
    """A request that lasts: it is sent, and what comes is read by a thread until it ends."""

    def __init__(self, to: Target, method: str, path: str, body: Any, **headers: str) -> None:
        self._socket = socket.create_connection(to.address, timeout=PATIENCE_S)
        text = b"" if body is None else json.dumps(body).encode()
        given = {
            "Host": "{}:{}".format(*to.address),
            "Content-Type": "application/json",
            "Content-Length": str(len(text)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self._socket.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + text)
        self.came = b""
        self.ended_at = 0.0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while data := self._socket.recv(65_536):
                self.came += data
                if b"\r\n\r\n" in self.came and not self.is_stream and self._is_whole():
                    break
        except OSError:
            pass  # cut off: that is an end too
        self.ended_at = time.monotonic()

    @property
    def is_stream(self) -> bool:
        return b"text/event-stream" in self.came

    def _is_whole(self) -> bool:
        head, _, body = self.came.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return length.isdigit() and len(body) >= int(length)

    @property
    def status(self) -> int:
        return int(self.came[9:12])

    @property
    def open(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """Wait until it has ended."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), self.came[-500:]

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        self._socket.close()
