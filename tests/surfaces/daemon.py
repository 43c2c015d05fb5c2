"""A real `dibs serve` on a free port, and a plain client of it.

    with serving(shell) as daemon:
        alice = daemon.client("alice")
        alice("leases.claim", resources=["src/a.py"])

The client knows HTTP and JSON and nothing of dibs, so nothing is fixed on the way.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tests.surfaces.shell import PATIENCE_S, Answer, Shell, finish

SHAPE = {"error", "message", "next", "details"}
ANNOUNCED = re.compile(r"^dibs serves .* at (\S+)$")


class Reply:
    """What came back for one request."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def __repr__(self) -> str:
        return f"{self.status} {self.headers} {self.body[:500]!r}"

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The code of a refusal, which must have the one shape of all of them."""
        assert self.status >= 400, self
        assert self.headers["content-type"] == "application/json", self
        refusal = self.json
        assert refusal.keys() == SHAPE, self
        assert refusal["message"].strip() and isinstance(refusal["details"], dict), self
        return str(refusal["error"])


class Refusal(Exception):
    """An answer other than 200."""

    def __init__(self, reply: Reply) -> None:
        self.code = reply.error
        self.status = reply.status
        self.json = reply.json
        super().__init__(f"{reply.status} {reply.json}")


class Client:
    """Somebody with a token: one connection, kept open, opened again when it has gone."""

    def __init__(
        self,
        address: tuple[str, int],
        token: str | None,
        agent: str | None = None,
        session: str = "",
    ) -> None:
        self.address = address
        self.headers = {"Content-Type": "application/json"}
        if token is not None:
            self.headers["Authorization"] = f"Bearer {token}"
        if agent is not None:
            self.headers["Dibs-Agent"] = agent
        if session:
            self.headers["Dibs-Session"] = session
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: dict[str, str | None] | None = None,
    ) -> Reply:
        """Send one request; a header that is None is left out."""
        given = {**self.headers, **(headers or {})}
        sent = {name: value for name, value in given.items() if value is not None}
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE_S * 2)
        try:
            self._connection.request(method, path, body, sent)
            answer = self._connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            reply = Reply(answer.status, found, answer.read())
        except BaseException:
            self.close()
            raise
        if answer.will_close:
            self.close()
        return reply

    def ask(self, operation: str, arguments: Any = None, **headers: str | None) -> Reply:
        """Call an operation; headers by name, with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        path = f"/v1/{operation.replace('.', '/')}"
        return self.request("POST", path, json.dumps(arguments or {}), named)

    def __call__(self, operation: str, **arguments: Any) -> Any:
        """What an operation answers; raises what it refuses."""
        reply = self.ask(operation, arguments)
        if reply.status != 200:
            raise Refusal(reply)
        return reply.json

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Daemon:
    """A running `dibs serve`."""

    def __init__(self, shell: Shell, *options: str) -> None:
        self.shell = shell
        self._options = options
        self._clients: list[Client] = []
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it, at the port that it had before, and wait until it is ready."""
        words = ["serve", "--port", str(self.port), *self._options]
        self.process: subprocess.Popen[str] = self.shell.start(*words)
        self.await_ready()

    def await_ready(self) -> None:
        assert self.process.stdout is not None
        # It says where it is when it is ready, and not before.
        line = self.process.stdout.readline().rstrip("\n")
        found = ANNOUNCED.match(line)
        if found is None:
            answer = finish(self.process)
            raise AssertionError(f"the daemon did not start: {line}\n{answer}")
        self.url = found[1]
        host, _, port = self.url.partition("://")[2].rpartition(":")
        self.host, self.port = str(host), int(port)

    @property
    def address(self) -> tuple[str, int]:
        return self.host.strip("[]"), self.port

    @property
    def home(self) -> Path:
        """Where it leaves word of itself."""
        return Path(self.shell.environment["XDG_DATA_HOME"]) / "dibs" / "daemons"

    @property
    def word(self) -> dict[str, Any]:
        """What it says there about itself."""
        (found,) = [
            word
            for file in self.home.glob("*.json")
            if (word := json.loads(file.read_text()))["url"] == self.url
        ]
        return dict(found)

    @property
    def token(self) -> str:
        """The owner's."""
        return str(self.word["token"])

    def client(
        self, agent: str | None = None, *, token: str | None = None, session: str = ""
    ) -> Client:
        """A client that acts as an agent, by the owner's token if it has no other."""
        self._clients.append(Client(self.address, token or self.token, agent, session))
        return self._clients[-1]

    def stranger(self, **headers: str) -> Client:
        """A client without any token."""
        self._clients.append(Client(self.address, None))
        self._clients[-1].headers |= headers
        return self._clients[-1]

    def token_of(self, name: str, scope: str = "agent", **options: Any) -> str:
        """A new token for somebody."""
        made = self.client()("agents.add_token", name=name, scope=scope, **options)
        return str(made["secret"])

    def connect(self) -> socket.socket:
        """A bare connection, for what no client would send."""
        return socket.create_connection(self.address, timeout=PATIENCE_S)

    def stop(self, number: int = signal.SIGTERM) -> Answer:
        """Ask it to end, and wait until it has."""
        os.kill(self.process.pid, number)
        return finish(self.process)

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has taken it away."""
        self.process.kill()
        finish(self.process)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        if self.process.poll() is None:
            self.kill()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class Stream:
    """A reader of `/v1/events`, of the lines as they come."""

    def __init__(self, daemon: Daemon, query: str = "", **headers: str) -> None:
        self._connection = http.client.HTTPConnection(*daemon.address, timeout=PATIENCE_S)
        given = {"Authorization": f"Bearer {daemon.token}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", f"/v1/events{query}", None, given)
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.kind = self._answer.headers["content-type"]
        if self.status == 200:
            assert self._answer.readline() == b": dibs\n" and self._answer.readline() == b"\n"

    def next(self) -> tuple[int, str, Any]:
        """The next event: its id, its name, and what it says."""
        fields: dict[str, str] = {}
        while (line := self._answer.readline()) != b"\n" or not fields:
            if not line:
                raise ConnectionError("the stream has ended")
            name, _, text = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = text
        return int(fields["id"]), fields["event"], json.loads(fields["data"])

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


@contextmanager
def serving(shell: Shell, *options: str) -> Iterator[Daemon]:
    """A daemon for as long as the block lasts."""
    daemon = Daemon(shell, *options)
    try:
        yield daemon
    finally:
        daemon.close()


@contextmanager
def turn_kept(daemon: Daemon) -> Iterator[None]:
    """Another process keeps the turn to write, as one that is frozen does."""
    other = apsw.Connection(str(daemon.shell.folder / ".dibs/dibs.db"))
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()
