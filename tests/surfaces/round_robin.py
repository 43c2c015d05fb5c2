"""A small proxy before several daemons: each connection goes to the next of them that is there."""

from __future__ import annotations

import selectors
import socket
import threading
from itertools import count

from tests.surfaces.daemon import Daemon

PIECE = 1 << 16


class RoundRobin:
    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self.name = "{}:{}".format(*self.address)
        """What it is called in the Host of a request."""
        self.token = ""
        self._daemons: list[Daemon] = []
        self._next = count()
        self.served: dict[str, int] = {}
        """How many connections each daemon was given."""

    def put_before(self, *daemons: Daemon) -> None:
        self._daemons = list(daemons)
        self.token = daemons[0].token
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        far = self._reach()
        if far is None:
            near.close()
            return
        with near, far, selectors.DefaultSelector() as ready:
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in ready.select():
                    source, target = key.fileobj, key.data
                    assert isinstance(source, socket.socket)
                    try:
                        data = source.recv(PIECE)
                        target.sendall(data)
                    except OSError:
                        return
                    if not data:
                        return

    def _reach(self) -> socket.socket | None:
        first = next(self._next)
        for place in range(len(self._daemons)):
            daemon = self._daemons[(first + place) % len(self._daemons)]
            try:
                far = socket.create_connection(daemon.address)
            except OSError:
                continue
            self.served[daemon.url] = self.served.get(daemon.url, 0) + 1
            return far
        return None

    def close(self) -> None:
        self._listening.close()
