"""`/mcp`: the tools of dibs over Streamable HTTP, for clients of both eras.

Every POST contains one message. A modern request has a connection of its own, which ends with it;
`initialize` begins a session, whose connection lasts until the client deletes it or is gone. If the
first thing to send is the answer, it is sent as plain JSON. If there is something to send before
the answer, or if the answer takes long, it is a stream of events.

A client that disconnects has given up its call: it cannot get the answer later. So a claim that
waits is removed from the queue, and one that has just been granted is released.
"""

from __future__ import annotations

import asyncio
import base64
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dibs.mcp.calls import McpConnection, to_line
from dibs.mcp.protocol import (
    BATCHES,
    HANDSHAKE,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    PREFIX,
    UNSUPPORTED_VERSION,
    ProtocolError,
    check_message,
    parse,
)
from dibs.surfaces.http.access import Access, GuardError, permit
from dibs.surfaces.http.exchange import BY_NAME, HEADERS, enter, read_body, respond, stopping
from dibs.surfaces.http.mcp_sessions import SESSION, SILENCE, VERSION, McpSession, McpSessions, Told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.types import Receive, Scope
    from starlette.types import Send as AsgiSend

    Headers = dict[str, str]
    Pairs = Sequence[tuple[bytes, bytes]]

BREATH_S = 15.0
"""How often a comment is sent, so that both sides see that the other is there."""
LOOK_S = 0.05
HEADER_MISMATCH = -32020

JSON, EVENT_STREAM = "application/json", "text/event-stream"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods whose requests repeat their subject in a header, and where the subject is."""
WRAPPED = ("=?base64?", "?=")
MISTAKES = (PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH, UNSUPPORTED_VERSION)
SUBSCRIBE = "resources/subscribe"
STATUS = dict.fromkeys(MISTAKES, 400) | {METHOD_NOT_FOUND: 404}


class TurnedAway(ProtocolError):
    """A request that is refused before its method is known."""

    def __init__(self, status: int, message: str, code: int = INVALID_REQUEST) -> None:
        super().__init__(code, message)
        self.status = status


class McpEndpoint:
    """Everything under `/mcp`, as an ASGI application."""

    _sessions: McpSessions | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        daemon, access = await enter(scope)
        permit("mcp", "agent", access)
        if self._sessions is None:
            self._sessions = McpSessions(daemon)
        visit = McpVisit(self._sessions, access, scope[BY_NAME], receive, send)
        method = {"POST": visit.post, "GET": visit.get, "DELETE": visit.delete}.get(scope["method"])
        if method is None:
            raise GuardError(405, "method", "/mcp takes POST, GET and DELETE", "use POST")
        try:
            if scope["method"] != "POST":
                await method()
                return
            with daemon.present.lasting(access):
                await method()
        except ConnectionError:
            return  # nobody is there to be answered
        except TurnedAway as error:
            refusal = {"code": error.code, "message": error.message}
            await visit.say(error.status, {"jsonrpc": "2.0", "error": refusal})


@dataclass
class McpVisit:
    """One HTTP request."""

    sessions: McpSessions
    access: Access
    headers: Headers
    receive: Receive
    send: AsgiSend

    async def post(self) -> None:
        body = await self.body()
        if not (takes(self.headers, JSON) and takes(self.headers, EVENT_STREAM)):
            raise TurnedAway(406, f"accept must name {JSON} and {EVENT_STREAM}")
        try:
            message = parse(body)
            for one in message if isinstance(message, list) else [message]:
                check_message(one)
        except ProtocolError as error:
            raise TurnedAway(400, error.message, error.code) from None
        if isinstance(message, list):
            await self.post_several(message, body)
        elif is_modern(self.headers, message):
            await self.post_modern(message, body)
        elif asks(message) and message["method"] == "initialize":
            id = uuid4().hex
            session = self.sessions.begin(self.access, id)
            await self.sessions.settle(session)
            named = [(SESSION.encode(), id.encode())]
            await self.exchange(session.connection, [message], body, session, named)
            if session.connection.version is None:  # the handshake was refused
                await self.sessions.end(id, asked=True)
        else:
            session = await self.session()
            await self.exchange(session.connection, [message], body, session)

    async def body(self) -> bytes:
        return await read_body(self.receive, self.sessions.daemon.present, self.access)

    async def post_several(self, messages: list[Any], body: bytes) -> None:
        """What only one old version allows, for sessions that use that version."""
        session = await self.session() if messages and SESSION in self.headers else None
        if session is None or session.connection.version != BATCHES:
            raise TurnedAway(400, "several messages at once are not supported")
        await self.exchange(session.connection, messages, body, session)

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
        unasked = Told()  # not used in this era
        connection = McpConnection(self.sessions.stateless(self.access), unasked.put)
        await self.exchange(connection, [message], body)

    async def session(self) -> McpSession:
        found = await self.sessions.find(self.access, self.headers)
        if found is None and SESSION in self.headers:
            raise TurnedAway(404, "there is no such session")
        if found is None:
            raise TurnedAway(400, "no session named")
        return found

    async def get(self) -> None:
        """The stream of unsolicited messages, such as updates of a subscribed page."""
        if not takes(self.headers, EVENT_STREAM) or SESSION not in self.headers:
            await self.say(405, extra=[(b"allow", b"POST")])
            return
        session = await self.session()
        await self.body()
        with self.sessions.daemon.present.lasting(self.access):
            await self.stream(session)

    async def stream(self, session: McpSession) -> None:
        gone = self.gone()
        session.streams += 1
        try:
            await self.start()
            async for part in parts(session.news, gone):
                await self.tell(part)
            await self.finish()
        except ConnectionError:
            if session.streams == 1:
                self.sessions.miss(self.headers[SESSION], session)
        finally:
            gone.cancel()
            session.streams -= 1

    async def delete(self) -> None:
        if SESSION not in self.headers:
            await self.say(405, extra=[(b"allow", b"POST")])
            return
        await self.session()
        await self.sessions.end(self.headers[SESSION], asked=True)
        await self.say(204)

    async def exchange(
        self,
        connection: McpConnection,
        messages: list[dict[str, Any]],
        body: bytes,
        session: McpSession | None = None,
        extra: Pairs = (),
    ) -> None:
        """Answer one POST, with everything that is sent before its answer."""
        if session is not None and any(one.get("method") == SUBSCRIBE for one in messages):
            self.sessions.check_follower(self.access, session)
        told, gone = Told(), self.gone()
        receive = partial(connection.receive, body, told.put, inline=True)
        running = asyncio.ensure_future(self.sessions.daemon.waits.do(receive))
        running.add_done_callback(lambda _: told.put(None))
        self.sessions.connections.add(connection)
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
            self.sessions.connections.discard(connection)
            if session is not None:
                session.exchanges -= 1
                session.heard = time.monotonic()

    async def answer(
        self,
        told: Told,
        gone: asyncio.Future[Any],
        running: asyncio.Future[Any],
        modern: bool,
        extra: Pairs,
    ) -> None:
        started = False
        async for part in parts(told, gone):
            if not started and is_answer(part):
                await self.say(status_of(part, modern), part, extra)
                return
            if not started:
                await self.start(extra)
                started = True
            await self.tell(part)
        if not started:
            if self.sessions.daemon.stopping:
                raise stopping()
            await running  # raises the reason why there is no answer
            await self.start(extra)
        await self.finish()

    def gone(self) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.receive())

    async def start(self, extra: Pairs = ()) -> None:
        """Begin a stream of events."""
        kind = (b"content-type", EVENT_STREAM.encode())
        await self.head(200, [kind, (b"x-accel-buffering", b"no"), *extra])

    async def tell(self, part: Any) -> None:
        body = b": still here\n\n"
        if part is not SILENCE:
            body = b"event: message\ndata: " + to_line(part) + b"\n"
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def finish(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})

    async def head(self, status: int, headers: Pairs) -> None:
        headers = [*headers, *HEADERS[1:]]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def say(self, status: int, answer: Any = None, extra: Pairs = ()) -> None:
        if answer is not None:
            await respond(self.send, status, answer, extra)
            return
        await self.head(status, extra if status == 204 else [(b"content-length", b"0"), *extra])
        await self.finish()


async def parts(told: Told, gone: asyncio.Future[Any]) -> AsyncIterator[Any]:
    """The messages to send, up to an answer or to the end."""
    while (part := await told.next(gone, BREATH_S)) is not None:
        yield part
        if is_answer(part):
            return


def asks(message: dict[str, Any]) -> bool:
    return "id" in message and "method" in message


def is_answer(part: Any) -> bool:
    """Whether this ends a request: an answer, or the answers to several."""
    return isinstance(part, list) or "method" not in part


def takes(headers: Headers, kind: str) -> bool:
    """Whether the client can read an answer of that kind."""
    accepted = {part.partition(";")[0].strip() for part in headers.get("accept", "").split(",")}
    return bool(accepted & {kind, kind.partition("/")[0] + "/*", "*/*"})


def is_modern(headers: Headers, message: Any) -> bool:
    """Whether a message is of the era without sessions, judged by its envelope or header."""
    version = headers.get(VERSION, HANDSHAKE[0])
    return PREFIX + "protocolVersion" in envelope(message) or version not in HANDSHAKE


def envelope(message: Any) -> dict[str, Any]:
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def check_headers(headers: Headers, message: dict[str, Any]) -> None:
    """Refuse a modern request whose headers do not repeat what its body says.

    Proxies route by the headers, but dibs acts by the body. An incomplete envelope is left to the
    code that reads it.
    """
    meta = envelope(message)
    if PREFIX + "protocolVersion" not in meta or PREFIX + "clientCapabilities" not in meta:
        return
    said: list[tuple[str, Any]] = [
        (VERSION, meta[PREFIX + "protocolVersion"]),
        ("mcp-method", message["method"]),
    ]
    if (field := NAMED.get(message["method"])) and isinstance(message["params"].get(field), str):
        said.append(("mcp-name", message["params"][field]))
    for name, value in said:
        if name not in headers:
            raise ProtocolError(HEADER_MISMATCH, f"Header mismatch: {name} is missing")
        given = unwrapped(headers[name]) if name == "mcp-name" else headers[name]
        if given != value:
            raise ProtocolError(
                HEADER_MISMATCH, f"Header mismatch: {name} is not what the body says"
            )


def unwrapped(value: str) -> str | None:
    """A header's value, decoded if it was encoded; None if the encoding is invalid."""
    before, after = WRAPPED
    if not (value.startswith(before) and value.endswith(after)):
        return value
    inner = value[len(before) : -len(after)]
    try:
        found = base64.b64decode(inner, validate=True)
        return found.decode("utf-8") if base64.b64encode(found).decode("ascii") == inner else None
    except ValueError:
        return None


def status_of(answer: Any, modern: bool) -> int:
    """The HTTP status of an answer. In the era with sessions, an error has the status 200."""
    return STATUS.get(answer["error"]["code"], 200) if modern and "error" in answer else 200
