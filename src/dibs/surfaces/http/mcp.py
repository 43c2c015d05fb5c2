"""`/mcp`: the tools of dibs over Streamable HTTP, for clients of both eras.

Every POST carries one message. A modern request has a connection of its own, which ends with
it; `initialize` begins a session, whose connection lasts until the client deletes it or is gone.
The first thing said about a request decides how it is answered: plainly if that is the answer,
as a stream of events if there is something to tell before, or if it takes long.

A client that hangs up has given up its call: nothing can bring it the answer later. So a claim
that waits is taken out of the queue, and one that was granted meanwhile is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dibs.mcp.connection import Connection, to_line
from dibs.mcp.protocol import (
    BATCHES,
    INVALID_REQUEST,
    ProtocolError,
    check_message,
    parse,
)
from dibs.mcp.server import Server
from dibs.mcp.standard import STANDARD
from dibs.surfaces.http.app import HEADERS, permit, read_body, respond, stopping
from dibs.surfaces.http.guard import GuardError
from dibs.surfaces.http.seats import BEAT_S, IDLE_S, Seat, label_of, owner
from dibs.surfaces.http.streamable import (
    EVENTS,
    JSON,
    SESSION,
    VERSION,
    as_event,
    check_headers,
    fold,
    is_modern,
    status_of,
    takes,
)

if TYPE_CHECKING:
    from starlette.types import Receive, Scope
    from starlette.types import Send as AsgiSend

    from dibs.mcp.connection import Send
    from dibs.surfaces.http.access import Access
    from dibs.surfaces.http.app import Daemon
    from dibs.surfaces.http.streamable import Headers

BREATH_S = 15.0
"""A comment so often shows both ends that the other is there."""
GONE_S = 10.0
"""A client whose stream has broken off has so long to come back, as after a cut of the line."""
LOOK_S = 0.05
SESSIONS_LIMIT = 10_000
NEWS_LIMIT = 100
"""So much is kept for a client that does not listen. All it says is: look again."""


class Told:
    """What threads say, for the event loop to pass on; None is the end."""

    def __init__(self, limit: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._limit = limit

    def put(self, message: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody is there
            self._loop.call_soon_threadsafe(self._add, message)

    def _add(self, message: Any) -> None:
        if not self._limit or self._queue.qsize() < self._limit:
            self._queue.put_nowait(message)

    async def next(self, gone: asyncio.Future[Any], seconds: float) -> Any:
        """What comes next; raises if the client has gone, or if nothing comes for so long."""
        if self._queue.empty():
            coming = asyncio.ensure_future(self._queue.get())
            await asyncio.wait([coming, gone], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                return coming.result()
            coming.cancel()
            if gone.done():
                raise ConnectionError
            raise TimeoutError
        return self._queue.get_nowait()


class HttpConnection(Connection):
    """A connection whose calls each have a way back of their own."""

    def unanswered(self, reply: Send) -> None:
        reply(None)


class Session:
    """What a client of a handshake era comes back to."""

    def __init__(self, server: Server, seat: Seat) -> None:
        self.seat = seat
        self.news = Told(NEWS_LIMIT)
        self.connection = HttpConnection(server, self.news.put)
        self.heard = time.monotonic()
        self.exchanges = self.streams = 0
        self.ending: asyncio.TimerHandle | None = None

    def hear(self) -> None:
        """The client is there."""
        self.heard = time.monotonic()
        if self.ending is not None:
            self.ending.cancel()
            self.ending = None


class Endpoint:
    """Everything under `/mcp`, as an ASGI application."""

    def __init__(self, kind: type[Server] = Server) -> None:
        """An endpoint whose answers come from a server of this kind."""
        self._kind = kind
        self._sessions: dict[str, Session] = {}
        self._seats: dict[tuple[str, ...], Seat] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        """The loop itself holds on to none of its tasks."""
        self.connections: set[Connection] = set()
        """Those with a call under way."""

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        daemon: Daemon = scope["app"].state.daemon
        headers = fold(scope["headers"])
        access = await daemon.admit(headers)
        permit("mcp", "agent", access)
        if self._keeping is None:
            daemon.at_hush.append(self.hush)
            self._keeping = asyncio.create_task(self._keep(daemon))
        visit = Visit(self, daemon, access, headers, receive, send)
        method = {"POST": visit.post, "GET": visit.get, "DELETE": visit.delete}.get(scope["method"])
        if method is None:
            raise GuardError(405, "method", "/mcp takes POST, GET and DELETE", "use POST")
        with contextlib.suppress(ConnectionError):
            await method()

    def hush(self) -> None:
        """Answer those who wait, since the daemon is stopping; their sessions go on."""
        if self._keeping is not None:
            self._keeping.cancel()
        for session in self._sessions.values():
            session.connection.close()
            session.news.put(None)
        for connection in list(self.connections):
            connection.close()

    async def _keep(self, daemon: Daemon) -> None:
        """Beat for those who are there, and forget those who are not."""
        while True:
            await asyncio.sleep(BEAT_S)
            for id, session in list(self._sessions.items()):
                if session.exchanges or session.streams:
                    session.heard = time.monotonic()
                if time.monotonic() - session.heard > IDLE_S:
                    await self.end(daemon, id)
                else:
                    await daemon.waits.do(partial(session.seat.keep, session.heard))
            for seat in list(self._seats.values()):
                await daemon.waits.do(seat.keep)

    def server(self, seat: Seat) -> Server:
        return self._kind(seat, list(STANDARD))

    def stateless(self, daemon: Daemon, access: Access) -> Seat:
        key = (access.name, access.scope, access.agent, access.session or "")
        if key not in self._seats:
            if len(self._seats) >= SESSIONS_LIMIT:
                self._seats.clear()  # who comes back finds the same sessions again
            self._seats[key] = Seat(daemon, access, None)
        return self._seats[key]

    def begin(self, daemon: Daemon, access: Access, id: str) -> Session:
        if len(self._sessions) >= SESSIONS_LIMIT:
            raise GuardError(429, "too_many", "too many MCP sessions are open", "end some of them")
        seat = Seat(daemon, access, id)
        session = self._sessions[id] = Session(self.server(seat), seat)
        return session

    async def find(self, daemon: Daemon, access: Access, headers: Headers) -> Session | None:
        """The session that a request goes on with, also one that another daemon began."""
        id = headers.get(SESSION, "")
        session = self._sessions.get(id)
        named = id.isascii() and id.isalnum() and len(id) <= 100
        look = partial(owner, daemon, label_of(id))
        if session is None and named and await daemon.reader.do(look) == access.agent:
            session = self._sessions.get(id) or self.begin(daemon, access, id)
            session.connection.peer.version = headers.get(VERSION, BATCHES)
        if session is None or session.seat.access.agent != access.agent:
            return None
        session.hear()
        return session

    async def end(self, daemon: Daemon, id: str) -> None:
        """End a session; what it holds is free."""
        session = self._sessions.pop(id, None)
        if session is not None:
            session.hear()
            session.connection.close()
            session.news.put(None)
            await daemon.waits.do(session.seat.close)

    def miss(self, daemon: Daemon, id: str, session: Session) -> None:
        """The stream of a client has broken off: end its session unless it comes back."""

        def end() -> None:
            session.ending = None
            if session.exchanges:
                self.miss(daemon, id, session)
            else:
                self._ending.add(task := asyncio.ensure_future(self.end(daemon, id)))
                task.add_done_callback(self._ending.discard)

        session.ending = asyncio.get_running_loop().call_later(GONE_S, end)


class Visit:
    """One HTTP request."""

    def __init__(
        self,
        endpoint: Endpoint,
        daemon: Daemon,
        access: Access,
        headers: Headers,
        receive: Receive,
        send: AsgiSend,
    ) -> None:
        self.endpoint = endpoint
        self.daemon = daemon
        self.access = access
        self.headers = headers
        self.receive = receive
        self.send = send

    async def post(self) -> None:
        body = await read_body(self.receive)
        if not (takes(self.headers, JSON) and takes(self.headers, EVENTS)):
            await self.refuse(406, f"accept must name {JSON} and {EVENTS}")
            return
        try:
            message = parse(body)
            for one in message if isinstance(message, list) else [message]:
                check_message(one)
        except ProtocolError as error:
            await self.refuse(400, error.message, error.code)
            return
        if isinstance(message, list):
            await self.post_several(message, body)
        elif is_modern(self.headers, message):
            await self.post_modern(message, body)
        elif asks(message) and message["method"] == "initialize":
            id = uuid4().hex
            session = self.endpoint.begin(self.daemon, self.access, id)
            await self.exchange(session.connection, [message], body, session, {SESSION: id})
            if session.connection.peer.version is None:  # the handshake was refused
                await self.endpoint.end(self.daemon, id)
        elif (found := await self.session()) is not None:
            await self.exchange(found.connection, [message], body, found)

    async def post_several(self, messages: list[Any], body: bytes) -> None:
        """What one old version allows, once a session has agreed on that version."""
        if not messages or SESSION not in self.headers:
            await self.refuse(400, "several messages at once are not served")
        elif (found := await self.session()) is not None:
            if found.connection.peer.version != BATCHES:
                await self.refuse(400, "several messages at once are not served")
            else:
                await self.exchange(found.connection, messages, body, found)

    async def post_modern(self, message: dict[str, Any], body: bytes) -> None:
        if not asks(message):
            await self.say(202)
            return
        try:
            check_headers(self.headers, message)
        except ProtocolError as error:
            answer = error.to_json(message["id"])
            await self.say(status_of(answer, modern=True), answer)
            return
        seat = self.endpoint.stateless(self.daemon, self.access)
        unasked = Told()  # in this era nothing goes there
        connection = HttpConnection(self.endpoint.server(seat), unasked.put)
        await self.exchange(connection, [message], body)

    async def session(self) -> Session | None:
        """The session a request belongs to; without one it is refused here."""
        found = await self.endpoint.find(self.daemon, self.access, self.headers)
        if found is None:
            named = SESSION in self.headers
            await self.refuse(
                404 if named else 400, "there is no such session" if named else "no session named"
            )
        return found

    async def get(self) -> None:
        """The stream of what nobody asked for, such as news of a page subscribed to."""
        if not takes(self.headers, EVENTS) or SESSION not in self.headers:
            await self.say(405, extra={"allow": "POST"})
        elif (session := await self.session()) is not None:
            await read_body(self.receive)
            gone = self.gone()
            session.streams += 1
            try:
                await self.start()
                await self.pass_on(session.news, gone)
            except ConnectionError:
                if session.streams == 1:
                    self.endpoint.miss(self.daemon, self.headers[SESSION], session)
            finally:
                gone.cancel()
                session.streams -= 1

    async def delete(self) -> None:
        if SESSION not in self.headers:
            await self.say(405, extra={"allow": "POST"})
        elif await self.session() is not None:
            await self.endpoint.end(self.daemon, self.headers[SESSION])
            await self.say(204)

    async def exchange(
        self,
        connection: Connection,
        messages: list[dict[str, Any]],
        body: bytes,
        session: Session | None = None,
        extra: dict[str, str] | None = None,
    ) -> None:
        """Answer what one POST asks for, with all that is told about it before."""
        told, gone = Told(), self.gone()
        receive = partial(connection.receive, body, told.put, inline=True)
        running = asyncio.ensure_future(self.daemon.waits.do(receive))
        running.add_done_callback(lambda _: told.put(None))
        self.endpoint.connections.add(connection)
        if session is not None:
            session.exchanges += 1
        try:
            if any(asks(message) for message in messages):
                await self.answer(told, gone, running, session is None, extra)
            else:
                await self.say(202)
        except BaseException:
            while not running.done():  # it may not have begun yet
                for message in messages:
                    connection.cancel(message.get("id", ""))
                await asyncio.wait([running], timeout=LOOK_S)
            raise
        finally:
            await running
            gone.cancel()
            self.endpoint.connections.discard(connection)
            if session is not None:
                session.exchanges -= 1
                session.heard = time.monotonic()

    async def answer(
        self,
        told: Told,
        gone: asyncio.Future[Any],
        running: asyncio.Future[Any],
        modern: bool,
        extra: dict[str, str] | None,
    ) -> None:
        try:
            first = await told.next(gone, BREATH_S)
        except TimeoutError:
            await self.start(extra)
        else:
            if first is None and self.daemon.stopping:
                raise stopping()
            if first is None:
                await running  # raises what kept it from being answered
            if first is not None and is_answer(first):
                await self.say(status_of(first, modern), first, extra)
                return
            await self.start(extra)
            if first is not None:
                await self.tell(first)
            else:
                await self.finish()
                return
        await self.pass_on(told, gone)

    async def pass_on(self, told: Told, gone: asyncio.Future[Any]) -> None:
        """Tell everything up to an answer, or up to the end."""
        while True:
            try:
                part = await told.next(gone, BREATH_S)
            except TimeoutError:
                await self.send_part(b": still here\n\n")
                continue
            if part is not None:
                await self.tell(part)
            if part is None or is_answer(part):
                await self.finish()
                return

    def gone(self) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.receive())

    async def start(self, extra: dict[str, str] | None = None) -> None:
        """Begin a stream of events."""
        named = {"content-type": EVENTS, "x-accel-buffering": "no", **(extra or {})}
        await self.head(200, named)

    async def tell(self, message: Any) -> None:
        await self.send_part(as_event(to_line(message)))

    async def send_part(self, body: bytes) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def finish(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})

    async def head(self, status: int, named: dict[str, str]) -> None:
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        given = {name for name, _ in headers}
        headers += [pair for pair in HEADERS[1:] if pair[0] not in given]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def say(
        self, status: int, answer: Any = None, extra: dict[str, str] | None = None
    ) -> None:
        more = [(name.encode(), value.encode()) for name, value in (extra or {}).items()]
        if answer is not None:
            await respond(self.send, status, answer, more)
            return
        await self.head(status, {"content-length": "0", **(extra or {})} if status != 204 else {})
        await self.finish()

    async def refuse(self, status: int, reason: str, code: int = INVALID_REQUEST) -> None:
        """Turn a request away without having looked which one it is."""
        await self.say(status, {"jsonrpc": "2.0", "error": {"code": code, "message": reason}})


def asks(message: dict[str, Any]) -> bool:
    return "id" in message and "method" in message


def is_answer(part: Any) -> bool:
    """Whether this is what a request is done with: an answer, or the answers to several."""
    return isinstance(part, list) or "method" not in part
