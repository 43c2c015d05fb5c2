"""Outages: what answers is frozen, the way to it swallows all, or somebody keeps the turn."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from dibs.arguments import (
    SEAL,
    Argument,
    Choice,
    Fields,
    Flag,
    Hex,
    Json,
    ResourceName,
    SealLine,
    Seconds,
    When,
    Whole,
)
from dibs.dibs import operations
from dibs.operation import Items, Operation

if TYPE_CHECKING:
    from dibs import Dibs

KEEP_THE_TURN = """
import sys, time
url, space, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
if url.startswith("postgresql://"):
    import psycopg
    db = psycopg.connect(url)
    db.execute("SELECT pg_advisory_xact_lock(%s, %s)", (0x64696273, space))
else:
    import apsw
    db = apsw.Connection(url)
    db.set_busy_timeout(10_000)
    db.execute("BEGIN IMMEDIATE")
print("kept", flush=True)
time.sleep(seconds)
"""


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A process stands still while the block runs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def kept_turn(url: str, space: int = 1, seconds: float = 30) -> Iterator[None]:
    """Another process has taken the turn to write, and sleeps."""
    words = [sys.executable, "-c", KEEP_THE_TURN, url, str(space), str(seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "kept\n"
        try:
            yield
        finally:
            process.kill()


class Proxy:
    """A way to a daemon, which swallows everything when it is told to; connections stay open."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._names = [f"Host: {one.removeprefix('http://')}\r".encode() for one in (self.url, url)]
        self.swallows = False
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return  # the test is over
            self._open += [near, far]
            threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        try:
            while True:
                for one in select.select([near, far], [], [])[0]:
                    if not (data := one.recv(65_536)):
                        near.close()
                        far.close()
                        return
                    if self.swallows:
                        continue
                    if one is near:  # a daemon answers only to its own name
                        data = data.replace(self._names[0], self._names[1])
                    (far if one is near else near).sendall(data)
        except (OSError, ValueError):
            return  # closed by the test

    def close(self) -> None:
        for one in self._open:
            one.close()


HERE = "HERE"
"""Stands for the name of the space."""


def value_for(argument: Argument) -> Any:
    """Something that an argument takes."""
    kind = argument.kind
    value: Any = "x"
    if isinstance(kind, ResourceName):
        value = "port:1"
    elif isinstance(kind, Seconds):
        value = max(kind.low, 1.0)
    elif isinstance(kind, Whole):
        value = max(kind.low, 1)
    elif isinstance(kind, Choice):
        value = kind.choices[0]
    elif isinstance(kind, Hex):
        value = "1" * kind.lengths[0]
    elif isinstance(kind, Flag):
        value = True
    elif isinstance(kind, When):
        value = 1
    elif isinstance(kind, SealLine):
        value = f"{SEAL} 1 {'0' * 32} 2026-11-16T12:00:00Z {HERE}"
    elif isinstance(kind, Items):
        needed = kind.operation.arguments().values()
        value = {one.name: value_for(one) for one in needed if one.required}
    elif isinstance(kind, (Fields, Json)):
        value = {}
    return [value] if argument.list else value


def given_to(operation: Operation, wait_s: float = 0.0) -> tuple[list[Any], dict[str, Any]]:
    """The least that an operation has to be given, and a wait if it can wait."""
    arguments = operation.arguments().values()
    placed = [value_for(one) for one in arguments if one.placed and (one.required or one.many)]
    named = {one.name: value_for(one) for one in arguments if one.required and not one.placed}
    if "wait_s" in operation.arguments():
        named["wait_s"] = wait_s
    return placed, named


def every_call(agent: Dibs, wait_s: float) -> dict[str, Callable[[], Any]]:
    """Every operation there is, ready to be called: a new one is among them by itself."""
    calls: dict[str, Callable[[], Any]] = {}
    for name, operation in operations().items():
        method = getattr(getattr(agent, operation.noun), operation.verb)
        placed, named = given_to(operation, wait_s)
        placed = [one.replace(HERE, agent.space) if isinstance(one, str) else one for one in placed]
        calls[name] = partial(method, *placed, **named)
    return calls
