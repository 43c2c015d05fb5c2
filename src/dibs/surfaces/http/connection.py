"""One connection to the daemon: which requests it accepts, and how long it waits.

uvicorn reads heads of any size for any time, and keeps unread answers for any time. Here a head has
a limit, a request must arrive within a time, and what cannot be parsed is refused in the shape of
all refusals. A client that does not read its answer is disconnected. If too much is unread in
total, the client that has not read for longest is disconnected.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from dibs.surfaces.http.access import GuardError
from dibs.surfaces.http.api import to_body
from dibs.surfaces.http.exchange import CONNECTION, HEADERS, plain_head, promptly

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.surfaces.http.app import Daemon

LOOPBACK = ("127.", "::1", "::ffff:127.")
HEAD_LIMIT = 32 * 1024
REQUEST_S = 15.0
"""How long a client may take to send one whole request."""
SLOW_S, SLOW_BYTES = 10.0, 64 * 1024
"""A client that reads less than this in this time, while more is waiting, is disconnected."""
UNREAD_LIMIT = 64 * 1024 * 1024
"""How many bytes may be unread by all clients together."""
SPARE = 256
"""How many descriptors are reserved for the daemon itself: databases, log, waiting calls."""
PEER_LIMIT = 1_000
"""How many connections another machine may have, unless it is a proxy for many clients."""


USUAL = b"".join(b"%b: %b\r\n" % header for header in HEADERS)


class Gathering:
    """A transport that sends everything written in one turn of the loop at once.

    uvicorn writes the head and the body of an answer one after the other, and each would be a
    packet of its own.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []
        self._lost = False
        self.kept = 0
        """How much memory unread answers use: an answer is kept until all of it is read."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._lost:
            return
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def send(self, data: bytes) -> None:
        """Write a complete answer."""
        if not self._lost:
            self._written.append(data)
            self._send()

    def _send(self) -> None:
        written, self._written = self._written, []
        if written:
            data = b"".join(written)
            self.kept = len(data) + (self.kept if self.unread else 0)
            self._transport.write(data)

    def close(self) -> None:
        self._send()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._loop.call_later(SLOW_S, self._transport.abort)

    @property
    def unread(self) -> int:
        size: int = self._transport.get_write_buffer_size()
        return size

    def lose(self) -> None:
        """The client is gone: uvloop raises on a write to a closed transport."""
        self._lost = True
        self._written = []


class Whole:
    """A request that is answered promptly, in the place where uvicorn keeps its current one."""

    message_event = asyncio.Event()
    """uvicorn uses this to report a disconnect; nobody listens here."""
    response_started = response_complete = disconnected = False
    scope = None

    def __init__(self, keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.gone: Callable[[], None] | None = None
        """Called if the client disconnects while the call waits."""


class HttpConnection(HttpToolsProtocol):
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _came = 0
    _in_head = False
    _whole = True
    _peer = ""
    _slow: asyncio.TimerHandle | None = None
    _unread = 0

    behind_proxy = False
    room = 100_000
    """How many connections there may be at once."""
    unread_by: ClassVar[dict[HttpConnection, None]] = {}
    """Connections with unread answers, in the order in which they stopped reading."""
    peers: ClassVar[dict[str, int]] = {}
    """How many connections each other machine has."""
    daemon: ClassVar[Daemon]
    paths: ClassVar[dict[bytes, str]] = {}
    """The calls that may be answered promptly."""
    _data = b""
    """The bytes being read now, if a request begins with them."""
    _kept_back: bytes | None = None
    """The part of such a call's body that has arrived, until it is complete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._gathering = Gathering(transport, self.loop)
        super().connection_made(self._gathering)  # type: ignore[arg-type]
        self._arm()
        if len(self.connections) > self.room:
            self._make_room()
        if self.client and not self.client[0].startswith(LOOPBACK) and not self.behind_proxy:
            self._peer = self.client[0]
            self.peers[self._peer] = self.peers.get(self._peer, 0) + 1
            if self.peers[self._peer] > PEER_LIMIT:
                self.drop()

    def _make_room(self) -> None:
        """Disconnect the client that has been idle for longest, perhaps this one."""
        waiting = [
            one for one in self.connections if isinstance(one, HttpConnection) and one._timer
        ]
        min(waiting, key=lambda one: one._timer.when() if one._timer else 0.0).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._caught_up()
        self._gathering.lose()
        if self._peer:
            self.peers[self._peer] -= 1
            if not self.peers[self._peer]:
                del self.peers[self._peer]
        if isinstance(self.cycle, Whole) and self.cycle.gone is not None:
            self.cycle.gone()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Called when unread answers pile up because the client does not read."""
        super().pause_writing()
        self.unread_by[self] = None
        self._unread = self._gathering.unread
        if self._slow is None:
            self._slow = self.loop.call_later(SLOW_S, self._is_slow)
        if sum(one._gathering.kept for one in self.unread_by) > UNREAD_LIMIT:
            next(iter(self.unread_by)).drop()

    def resume_writing(self) -> None:
        self._caught_up()
        super().resume_writing()

    def _caught_up(self) -> None:
        self.unread_by.pop(self, None)
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _is_slow(self) -> None:
        before, self._unread = self._unread, self._gathering.unread
        self._slow = self.loop.call_later(SLOW_S, self._is_slow)
        if before - self._unread < SLOW_BYTES:
            self.drop()

    def data_received(self, data: bytes) -> None:
        if self._whole and self._is_free() and self._is_known(data):
            return
        self._came, self._data = len(data), data if self._whole else b""
        super().data_received(data)
        self._data = b""
        if self._kept_back is not None and not self.transport.is_closing():
            self._leave()
        if self._in_head:
            # A parser keeps an endless head in memory.
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT:
                self.send_400_response("the head is too large")
                return
        # A line break between two requests is not a request: its time goes on.
        if self._whole and self.cycle is not None and not self.cycle.response_complete:
            self._disarm()
        elif self._timer is None:
            self._arm()

    def on_message_begin(self) -> None:
        self._whole, self._in_head, self._head_bytes = False, True, 0
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def is_unanswered(self, scope: object) -> bool:
        """Whether nothing of the answer to a request was sent yet."""
        cycle = self.cycle
        return cycle is not None and cycle.scope is scope and not cycle.response_started

    def drop(self) -> None:
        """Disconnect at once, even if something was still to be sent."""
        self._caught_up()
        self._gathering.lose()
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.abort()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head_bytes + self._came > HEAD_LIMIT:  # it may include a part of the body
            size = sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url)
            if size > HEAD_LIMIT:
                self._head_bytes = size
                raise ValueError("the head is too large")
        parser, version = self.parser, self.parser.get_http_version()
        is_call = self.url in self.paths and parser.get_method() == b"POST" and version == "1.1"
        if is_call and self._is_free() and not parser.should_upgrade():
            self._kept_back = b""
        else:
            super().on_headers_complete()

    def _is_free(self) -> bool:
        """Whether no request is in progress, and the client reads its answers."""
        cycle = self.cycle
        return (cycle is None or cycle.response_complete) and not self.flow.write_paused

    def _is_known(self, data: bytes) -> bool:
        """Begin a call whose head was accepted before; return whether these bytes are one."""
        end = data.find(b"\r\n\r\n") + 4
        head = self.daemon.guard.known.get(data[:end]) if self.paths else None
        if head is None or len(data) != end + head.length or self.transport.is_closing():
            return False
        if not promptly(self.daemon, self, head, data[end:]):
            return False
        self._unset_keepalive_if_required()
        self._disarm()
        return True

    def _is_plain(self, body: bytes) -> bool:
        """Begin an ordinary request; return whether it is one."""
        path, parser = self.paths[self.url], self.parser
        keep_alive = parser.should_keep_alive()
        head = plain_head(self.daemon, path, self.headers, len(body), keep_alive)
        if head is None or not promptly(self.daemon, self, head, body):
            return False
        text = self._data[: len(self._data) - len(body)]
        if text.startswith(b"POST ") and text.find(b"\r\n\r\n") == len(text) - 4:
            self.daemon.guard.know(text, head)
        return True

    def _leave(self) -> None:
        """Leave a request to the application, with the part of its body that has arrived."""
        body, self._kept_back = self._kept_back, None
        super().on_headers_complete()
        if body:
            super().on_body(body)

    def on_body(self, body: bytes) -> None:
        if self._kept_back is None:
            super().on_body(body)
        else:
            self._kept_back += body

    def on_message_complete(self) -> None:
        self._whole = True
        if self._kept_back is not None:
            if self._is_plain(self._kept_back):
                self._kept_back = None
                return
            self._leave()
        super().on_message_complete()

    def begin(self, keep_alive: bool) -> Whole:
        """Have a request answered by `answer`."""
        whole = Whole(keep_alive)
        self.cycle = whole  # type: ignore[assignment]
        return whole

    def answer(
        self, request: Whole, status: int, more: list[tuple[bytes, bytes]], body: bytes
    ) -> None:
        """Answer a request.

        more: additional lines for its head
        """
        request.response_started = request.response_complete = True
        if self._gathering.is_closing():
            return
        said = [STATUS_LINE[status], USUAL, *(b"%b: %b\r\n" % header for header in more)]
        if not request.keep_alive:
            said.append(b"connection: close\r\n")
        said += [b"content-length: %d\r\n\r\n" % len(body), body]
        self._gathering.send(b"".join(said))
        if not request.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > HEAD_LIMIT:
            self.refuse(431, "head_too_large", f"a head may have at most {HEAD_LIMIT:,} bytes")
        else:
            self.refuse(400, "bad_request", "this is not a valid HTTP request")

    def _arm(self) -> None:
        self._timer = self.loop.call_later(REQUEST_S, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.cycle is not None and self.cycle.response_started:
            self.transport.close()
        else:
            self.refuse(408, "too_slow", f"a request must arrive within {REQUEST_S:.0f} s")

    def refuse(self, status: int, code: str, message: str) -> None:
        """Refuse what never became a request, and disconnect."""
        if self.transport.is_closing():
            return
        refusal = GuardError(status, code, message, "send a smaller, simpler request")
        body = to_body(refusal.to_json())
        self.transport.write(
            STATUS_LINE[status] + b"content-type: application/json\r\ncontent-length: "
            b"%d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()
