"""One connection to the daemon: what it takes for a request, and for how long it waits.

uvicorn reads heads of any size for any time, and keeps for any time what nobody reads. Here a head
has a limit, a request must have come within a time, and what cannot be understood is refused in the
shape that all refusals have. Whoever does not read its answer is hung up on, and so is the one who
has not read for longest when too much is unread altogether.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from dibs.surfaces.http.access import GuardError
from dibs.surfaces.http.api import to_body
from dibs.surfaces.http.exchange import CONNECTION

if TYPE_CHECKING:
    import asyncio

LOOPBACK = ("127.", "::1", "::ffff:127.")
HEAD_LIMIT = 32 * 1024
REQUEST_S = 15.0
"""How long a client may take to send one whole request."""
SLOW_S, SLOW_BYTES = 10.0, 64 * 1024
"""Whoever reads less than this in this time, while more is there for it, is hung up on."""
UNREAD_LIMIT = 64 * 1024 * 1024
"""So many bytes may be unread by all clients together."""
SPARE = 256
"""How many descriptors are kept for the daemon itself: its databases, its log, and who waits."""
PEER_LIMIT = 1_000
"""How many connections another machine may have, unless it is a proxy that speaks for many."""


class Gathering:
    """A transport that sends all that is written in one turn of the loop at once.

    uvicorn writes the head and the body of an answer one after the other, and each would be a
    packet of its own.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []
        self._lost = False
        self.kept = 0
        """How much memory is kept for what is unread: an answer is kept until all of it is read."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._lost:
            return
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

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
        """Nobody is there any more: uvloop raises if a transport that has ended is written to."""
        self._lost = True
        self._written = []


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
    """Those who have not read what is there for them, the first to stop first."""
    peers: ClassVar[dict[str, int]] = {}
    """How many connections each other machine has."""

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
        """Hang up on whoever has asked for nothing for longest, perhaps on this one."""
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
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Called when the client has not read for so long that what is unread piles up."""
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
        self._came = len(data)
        super().data_received(data)
        if self._in_head:
            # What a parser keeps of a head that has no end, it keeps in memory.
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT:
                self.send_400_response("the head is too large")
                return
        # A line break between two requests is no request: who sends one is still waited for.
        if self._whole and self.cycle is not None and not self.cycle.response_complete:
            self._disarm()
        elif self._timer is None:
            self._arm()

    def on_message_begin(self) -> None:
        self._whole, self._in_head, self._head_bytes = False, True, 0
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def is_unanswered(self, scope: object) -> bool:
        """Whether a request can still be answered with something else."""
        cycle = self.cycle
        return cycle is not None and cycle.scope is scope and not cycle.response_started

    def drop(self) -> None:
        """Hang up at once, whatever was still to be sent."""
        self._caught_up()
        self._gathering.lose()
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.abort()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head_bytes + self._came > HEAD_LIMIT:  # there may be a body in that as well
            size = sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url)
            if size > HEAD_LIMIT:
                self._head_bytes = size
                raise ValueError("the head is too large")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > HEAD_LIMIT:
            self.refuse(431, "head_too_large", f"a head has at most {HEAD_LIMIT:,} bytes")
        else:
            self.refuse(400, "bad_request", "this is not a request of HTTP/1.1")

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
            self.refuse(408, "too_slow", f"a request must have come within {REQUEST_S:.0f} s")

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer what never became a request, and hang up."""
        if self.transport.is_closing():
            return
        refusal = GuardError(status, code, message, "send a smaller, plainer one")
        body = to_body(refusal.to_json())
        self.transport.write(
            STATUS_LINE[status] + b"content-type: application/json\r\ncontent-length: "
            b"%d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()
