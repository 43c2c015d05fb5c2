"""One connection: requests come in, answers go out, and several calls run at once.

A call that may wait runs in a thread of its own, so it never delays another; all others are served
in order. A cancelled call is not answered: if it was decided before the cancellation, it counts;
otherwise what it was granted is released.
"""

from __future__ import annotations

import json
import time
from _thread import allocate_lock, start_new_thread
from errno import EMFILE, ENFILE

from dibs.errors import CancelledError
from dibs.mcp.protocol import (
    BATCHES,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ProtocolError,
    Request,
    check_message,
    is_id,
    notification,
    parse,
)
from dibs.storage.store import TRACE
from dibs.storage.waiting import CANCEL, Cancel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.dibs import Agent
    from dibs.mcp.callers import Holdings
    from dibs.mcp.server import Server

    Send = Callable[[Any], None]

PROGRESS_S = 2.0
"""How often a waiting call reports that it still waits."""
CALLS_LIMIT = 200


class Call:
    """One request in progress."""

    def __init__(
        self, request: Request, connection: McpConnection, send: Send, waits_s: float | None
    ) -> None:
        self.request = request
        self.connection = connection
        self.waits_s = waits_s
        self.callers = connection.server.callers
        self._send = send
        self.wake = None if waits_s is None else Cancel()
        self._lock = allocate_lock()
        self._cancelled = self._decided = False

    @property
    def agent(self) -> Agent:
        """The session that the call acts in."""
        return self.callers.agent(self.request)

    @property
    def holdings(self) -> Holdings:
        return self.callers.holdings(self.request)

    def decide(self, undo: Callable[[], object] | None = None) -> None:
        """Count the call as answered from now on: a cancellation comes too late.

        undo: releases what was granted, if the call was cancelled before
        """
        with self._lock:
            if not self._cancelled:
                self._decided = True
                return
        if undo is not None:
            undo()
        raise CancelledError("the client cancelled the call")

    def cancel(self) -> None:
        with self._lock:
            if self._decided:
                return
            self._cancelled = True
            if self.wake is not None:
                self.wake()

    def report(self, method: str, params: dict[str, Any]) -> bool:
        """Send something about this call, unless it has ended; return whether it goes on."""
        with self._lock:
            if self._decided or self._cancelled:
                return False
            self._send(notification(method, params))
            return True

    def close(self) -> None:
        with self._lock:
            self._decided = True
            if self.wake is not None:
                self.wake.close()
                self.wake = None


class McpConnection:
    def __init__(self, server: Server, send: Send) -> None:
        self.server = server
        self.send = send
        self.version: str | None = None
        """The version agreed in the handshake."""
        self.client = ""
        self.followed: set[str] = set()
        """The pages a client of a handshake era has subscribed to."""
        self.follower: Cancel | None = None
        self.closed = False
        """Set when the client is gone; waiting calls must stop using the store."""
        self.lock = allocate_lock()
        self._calls: dict[int | str, Call] = {}

    def receive(self, line: bytes, send: Send | None = None, inline: bool = False) -> None:
        """Handle one message, or in one old version several, and see that they are answered.

        send: where to send everything about these messages, if each has its own response
        inline: return only when they are answered, even those that wait
        """
        send = send or self.send
        try:
            message = parse(line)
            if not isinstance(message, list):
                self._take(message, send, send, inline)
            elif self.version != BATCHES or not message:
                raise ProtocolError(INVALID_REQUEST, "several messages at once are not supported")
            elif len(message) > CALLS_LIMIT:
                raise ProtocolError(INVALID_REQUEST, f"more than {CALLS_LIMIT} messages at once")
            elif inline:
                self._take_all(message, send)
            else:
                start_new_thread(self._take_all, (message, send))
        except ProtocolError as error:
            send(error.to_json(None))

    def _take_all(self, messages: list[Any], send: Send) -> None:
        answers: list[Any] = []
        for message in messages:
            self._take(message, send, answers.append, inline=True)
        if answers:
            send(answers)

    def _take(self, message: Any, send: Send, reply: Send, inline: bool = False) -> None:
        id = None
        try:
            check_message(message)
            if "method" not in message:
                return  # an answer, although the server never asks
            if "id" not in message:
                params = message.get("params")
                about: Any = params.get("requestId") if isinstance(params, dict) else None
                if message["method"] == "notifications/cancelled" and is_id(about):
                    self.cancel(about)
                return
            id = message["id"]
            request = Request(message, self.version, self.client)
            call = self._begin(request, send)
        except ProtocolError as error:
            reply(error.to_json(id))
            return
        if call.waits_s is None:
            self._serve(call, reply)
        elif inline:
            self._wait(call, reply)
        else:
            start_new_thread(self._wait, (call, reply))

    def _begin(self, request: Request, send: Send) -> Call:
        waits_s = self.server.waits_s(request)
        with self.lock:
            if self.closed:
                raise ProtocolError(INTERNAL_ERROR, "the connection is closed")
            if request.id in self._calls:
                raise ProtocolError(INVALID_REQUEST, f"the id {request.id!r} is in use")
            if waits_s is not None and len(self._calls) >= CALLS_LIMIT:
                raise ProtocolError(INTERNAL_ERROR, f"{CALLS_LIMIT} calls are already waiting")
            try:
                call = Call(request, self, send, waits_s)
            except OSError as error:
                # Each wait uses a few of this process's file descriptors.
                raise ProtocolError(INTERNAL_ERROR, "too many calls are waiting") from error
            self._calls[request.id] = call
        return call

    def _wait(self, call: Call, reply: Send) -> None:
        token = CANCEL.set(call.wake)
        over = allocate_lock()
        over.acquire()
        # A subscription has no progress to report.
        if call.request.token is not None and call.waits_s != float("inf"):
            start_new_thread(self._tell_progress, (call, over))
        try:
            self._serve(call, reply)
        finally:
            over.release()
            CANCEL.reset(token)

    def _tell_progress(self, call: Call, over: Any) -> None:
        began, total = time.monotonic(), call.waits_s
        while not over.acquire(timeout=PROGRESS_S):
            params = {
                "progressToken": call.request.token,
                "progress": round(time.monotonic() - began, 1),
                "total": total,
                "message": "still waiting",
            }
            if not call.report("notifications/progress", params):
                return

    def _serve(self, call: Call, reply: Send) -> None:
        request = call.request
        before = TRACE.set(call.callers.trace(request) if request.method == "tools/call" else "")
        try:
            try:
                answer = request.answer(self.server.serve(call))
            except ProtocolError as error:
                answer = error.to_json(request.id)
            except CancelledError:
                raise
            except Exception as error:
                if self.closed:
                    return
                answer = confess(error).to_json(request.id)
            call.decide()
            reply(answer)
        except CancelledError:
            pass  # a cancelled call is not answered
        finally:
            TRACE.reset(before)
            call.close()
            with self.lock:
                if self._calls.get(request.id) is call:
                    del self._calls[request.id]

    def cancel(self, id: int | str) -> None:
        """Give up a call, unless it is already decided."""
        with self.lock:
            call = self._calls.get(id)
        if call is not None:
            call.cancel()

    def close(self) -> None:
        """Give up the calls and subscriptions of a client that is gone."""
        self.closed = True
        with self.lock:
            calls = list(self._calls.values())
            follower, self.follower = self.follower, None
        for call in calls:
            call.cancel()
        if follower is not None:
            follower()


def confess(error: Exception) -> ProtocolError:
    """Report a bug in dibs: the traceback goes to the server's log."""
    if isinstance(error, OSError) and error.errno in (EMFILE, ENFILE):
        return ProtocolError(INTERNAL_ERROR, "too many calls are waiting: no file can be opened")
    import traceback

    traceback.print_exc()
    return ProtocolError(INTERNAL_ERROR, f"this is a bug in dibs: {type(error).__name__}")


def to_line(message: Any) -> bytes:
    """A message as one line. Escapes keep it valid whatever text is in it."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
