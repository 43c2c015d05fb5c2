"""Our server behind HTTP, for tools that speak nothing else: `python -m tests.conformance.bridge`.

It prints its address and serves until the end of its input. With the word `fixtures` it also has
what the conformance suite asks for by name.

Every POST carries one message. A modern request has a connection of its own, which ends with
it; `initialize` begins a session, whose connection lasts until the client deletes it. The
first thing said about a request decides how it is answered: plainly if that is the answer, as
a stream of events if there is something to tell before.
"""

from __future__ import annotations

import json
import select
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any
from uuid import uuid4

from dibs.surfaces.cli.main import Globals
from dibs.surfaces.mcp.callers import Callers
from dibs.surfaces.mcp.connection import Connection, to_line
from dibs.surfaces.mcp.protocol import (
    INVALID_REQUEST,
    ProtocolError,
    check_message,
    notification,
    parse,
)
from dibs.surfaces.mcp.server import Server
from dibs.surfaces.mcp.standard import STANDARD
from tests.conformance.fixtures import FixtureServer
from tests.conformance.streamable import (
    EVENTS,
    JSON,
    SESSION,
    Headers,
    check_headers,
    fold,
    is_local,
    is_modern,
    status_of,
    takes,
)

LOOK_S = 0.1
"""How often we look whether a client that waits for us is still there."""


class Session:
    """What a client of a handshake era comes back to."""

    def __init__(self, server: Server) -> None:
        self.pushed: SimpleQueue[Any] = SimpleQueue()
        self.connection = Connection(server, self.pushed.put)

    def close(self) -> None:
        if self.connection.follower is not None:
            self.connection.follower()
            self.connection.follower = None


class Bridge(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, server: Server) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.served = server
        self.sessions: dict[str, Session] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients may leave when they like
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/mcp"


class Exchange(BaseHTTPRequestHandler):
    """One HTTP request after another from one client."""

    protocol_version = "HTTP/1.1"
    server: Bridge

    def log_message(self, *about: Any) -> None:
        pass

    def do_POST(self) -> None:
        headers = fold(self.headers.items())
        body = self.rfile.read(int(headers.get("content-length", 0)))
        if not is_local(headers):
            self.refuse(403, "this host or origin is not served")
        elif not (takes(headers, JSON) and takes(headers, EVENTS)):
            self.refuse(406, f"accept must name {JSON} and {EVENTS}")
        else:
            self.take(headers, body)

    def take(self, headers: Headers, body: bytes) -> None:
        try:
            message = parse(body)
            check_message(message)
        except ProtocolError as error:
            self.refuse(400, error.message, error.code)
            return
        asks = "id" in message and "method" in message
        if is_modern(headers, message):
            self.take_modern(headers, message, body) if asks else self.say(202)
        elif asks and message["method"] == "initialize":
            id, session = uuid4().hex, Session(self.server.served)
            self.server.sessions[id] = session
            self.exchange(session.connection, message, body, False, {SESSION: id})
        elif (found := self.session(headers)) is not None:
            if asks:
                self.exchange(found.connection, message, body, False)
            else:
                found.connection.receive(body)
                self.say(202)

    def take_modern(self, headers: Headers, message: dict[str, Any], body: bytes) -> None:
        try:
            check_headers(headers, message)
        except ProtocolError as error:
            answer = error.to_json(message["id"])
            self.say(status_of(answer, modern=True), answer)
            return
        unasked: SimpleQueue[Any] = SimpleQueue()  # in this era nothing goes there
        self.exchange(Connection(self.server.served, unasked.put), message, body, True)

    def session(self, headers: Headers) -> Session | None:
        """The session a request belongs to; without one it is refused here."""
        id = headers.get(SESSION)
        session = self.server.sessions.get(id) if id else None
        if session is None:
            self.refuse(
                404 if id else 400, "there is no such session" if id else "no session named"
            )
        return session

    def do_GET(self) -> None:
        """The stream of what nobody asked for, such as news of a page subscribed to."""
        headers = fold(self.headers.items())
        if not is_local(headers):
            self.refuse(403, "this host or origin is not served")
        elif not takes(headers, EVENTS) or SESSION not in headers:
            self.say(405)
        elif (session := self.session(headers)) is not None:
            self.begin_events()
            while (news := self.next(session.pushed)) is not None:
                self.event(news)

    def do_DELETE(self) -> None:
        headers = fold(self.headers.items())
        if not is_local(headers):
            self.refuse(403, "this host or origin is not served")
        elif SESSION not in headers:
            self.say(405)
        elif (session := self.session(headers)) is not None:
            del self.server.sessions[headers[SESSION]]
            session.close()
            self.say(204)

    def exchange(
        self,
        connection: Connection,
        message: dict[str, Any],
        body: bytes,
        modern: bool,
        extra: dict[str, str] | None = None,
    ) -> None:
        """Answer one request, with all that is told about it before."""
        told: SimpleQueue[Any] = SimpleQueue()
        connection.receive(body, told.put)
        first = self.next(told)
        if first is not None and "method" not in first:
            self.say(status_of(first, modern), first, extra)
            return
        if first is not None:
            self.begin_events(extra)
        part = first
        while part is not None:
            self.event(part)
            if "method" not in part:
                return
            part = self.next(told)
        # Nobody listens any more. In the modern era that is how a request is cancelled; before,
        # it meant nothing.
        if modern:
            cancelled = notification("notifications/cancelled", {"requestId": message["id"]})
            connection.receive(to_line(cancelled))

    def next(self, queue: SimpleQueue[Any]) -> Any:
        """What comes next; None if the client has gone."""
        while True:
            try:
                return queue.get(timeout=LOOK_S)
            except Empty:
                if self.gone():
                    return None

    def gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def begin_events(self, extra: dict[str, str] | None = None) -> None:
        self.close_connection = True  # the end of the connection is the end of the stream
        self.send_response(200)
        self.send_header("Content-Type", EVENTS)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Accel-Buffering", "no")
        self.send_header("Connection", "close")
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def event(self, message: Any) -> None:
        try:
            self.wfile.write(b"event: message\ndata: " + to_line(message) + b"\n")
            self.wfile.flush()
        except OSError:
            pass  # the next look sees that the client has gone

    def say(self, status: int, answer: Any = None, extra: dict[str, str] | None = None) -> None:
        body = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        if body:
            self.send_header("Content-Type", JSON)
        if status == 405:
            self.send_header("Allow", "POST")
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: int, reason: str, code: int = INVALID_REQUEST) -> None:
        """Turn a request away without having looked which one it is."""
        self.say(status, {"jsonrpc": "2.0", "error": {"code": code, "message": reason}})


def main(words: list[str]) -> None:
    kind = FixtureServer if words == ["fixtures"] else Server
    with Bridge(kind(Callers(Globals().open, {}), list(STANDARD))) as bridge:
        Thread(target=bridge.serve_forever, daemon=True).start()
        print(bridge.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
