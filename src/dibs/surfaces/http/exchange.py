"""One request and its answer: how a body is read, and the shape of all answers."""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dibs.errors import DibsError, TooLargeError, UnavailableError
from dibs.nouns.leases.queue import Queued
from dibs.surfaces.http.access import GuardError, no_good, too_large
from dibs.surfaces.http.api import to_body
from dibs.surfaces.http.waits import LoopSleeper
from dibs.surfaces.http.worker import Pending
from dibs.wire import ANSWER_LIMIT, BODY_LIMIT

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from dibs.surfaces.http.access import Access
    from dibs.surfaces.http.app import Daemon
    from dibs.surfaces.http.connection import HttpConnection
    from dibs.surfaces.http.present import Present

CONNECTION = "dibs.connection"
"""The key of a request's connection."""
UNUSUAL = frozenset({"cookie", "expect", "transfer-encoding", "upgrade"})
"""Headers that our clients never send with a call."""
BY_NAME = "dibs.headers"
"""The key of a request's headers by name, for pages that are not operations."""
HEADERS = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


class Bug(DibsError):
    """Something that should not have happened."""

    code = "bug"


def confess(error: Exception) -> Bug:
    """Report a bug: details go to the log, and only there."""
    traceback.print_exception(error, file=sys.stderr)
    return Bug(f"this is a bug in dibs: {type(error).__name__}", next="see the daemon's log")


def stopping() -> UnavailableError:
    error = UnavailableError("the daemon is stopping", next="try again in a moment")
    error.retry_after_ms = 1_000
    return error


async def enter(scope: Scope) -> tuple[Daemon, Access]:
    """The daemon that serves a page, and the caller."""
    daemon: Daemon = scope["app"].daemon
    return daemon, await daemon.admit(scope[BY_NAME])


async def read_body(receive: Receive, present: Present, access: Access) -> bytes:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        return bytes(message.get("body", b""))  # it has arrived completely, as nearly all do
    body = b""
    with present.reading(access) as count:
        while message["type"] != "http.disconnect":
            body += bytes(message.get("body", b""))
            if len(body) > BODY_LIMIT:
                raise too_large()
            if not message.get("more_body"):
                return body
            count(len(body))
            message = await receive()
        raise ConnectionError


async def unless_gone(call: Any, receive: Receive) -> Any:
    """Await a call that waits; give it up if the client disconnects."""
    task = asyncio.ensure_future(call)
    gone = asyncio.ensure_future(receive())
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
    finally:  # we may be cancelled ourselves
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    try:
        return task.result()
    except asyncio.CancelledError:
        raise ConnectionError from None


def answer(status: int, value: Any) -> tuple[int, bytes]:
    """The status and the body of an answer; a refusal if the answer is too large."""
    body = to_body(value)
    if len(body) > ANSWER_LIMIT:
        error = TooLargeError(
            f"the answer has {len(body):,} bytes; the limit is {ANSWER_LIMIT:,}",
            next="ask for less, with limit",
        )
        return error.http_status, to_body(error.to_json())
    return status, body


async def respond(send: Send, status: int, value: Any, headers: Any = ()) -> None:
    status, body = answer(status, value)
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [*HEADERS, length, *headers]}
    )
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, error: DibsError) -> None:
    """The one shape of all refusals."""
    await respond(send, error.http_status, error.to_json(), headers_of(error))


def headers_of(error: DibsError) -> list[tuple[bytes, bytes]]:
    """The headers of a refusal."""
    headers = []
    if error.http_status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.http_status == 405:
        headers.append((b"allow", b"POST"))
    retry = getattr(error, "retry_after_ms", None)
    if retry is not None or error.http_status == 429:
        headers.append((b"retry-after", str(max(1, (retry or 0) // 1000)).encode()))
    return headers


class Head(NamedTuple):
    """What the head of an accepted call says."""

    path: str
    headers: dict[str, str]
    length: int
    keep_alive: bool


class Prompt(Pending):
    """A complete call whose caller is known, and that needs no waiting thread.

    Nearly all calls are like this, so they are answered without a task and without the overhead of
    ASGI. Anything unusual is left to the application.
    """

    __slots__ = ("_access", "_call", "_connection", "_daemon", "_path", "_request", "_waiting")
    unanswered: ClassVar[set[Prompt]] = set()

    def __init__(
        self,
        job: Any,
        weight: int,
        crowd: str,
        daemon: Daemon,
        access: Access,
        connection: HttpConnection,
        head: Head,
    ) -> None:
        super().__init__(job, weight, crowd)
        self._daemon, self._access, self._path = daemon, access, head.path
        self._call = head.headers.get("dibs-call")
        self._connection, self._request = connection, connection.begin(head.keep_alive)
        self.unanswered.add(self)

    @classmethod
    def give_up(cls) -> None:
        """Answer everything that a stopping daemon no longer waits for."""
        for one in list(cls.unanswered):
            one.error = stopping()
            one.settle()

    def settle(self) -> None:
        if self.error is None and isinstance(self.result, Queued):
            self._waiting = asyncio.ensure_future(self._stand(self.result))
            return
        if self not in self.unanswered:
            return  # it was given up
        self.unanswered.discard(self)
        daemon, error = self._daemon, self.error
        if error is not None:
            daemon.heed(self._access, error)
        if self._access.token not in daemon.tokens.seen:
            error = no_good()  # it has been revoked, or has expired
        more: list[tuple[bytes, bytes]] = []
        try:
            status, body = answer(200, self.result) if error is None else (0, b"")
        except Exception as unwritable:
            error = unwritable
        if error is not None:
            refusal = error if isinstance(error, DibsError) else confess(error)
            status, body = answer(refusal.http_status, refusal.to_json())
            more = headers_of(refusal)
        daemon.count(self._path, status)
        self._connection.answer(self._request, status, more, body)

    async def _stand(self, queued: Queued) -> None:
        """Answer once the claim is granted, unless the client disconnects first."""
        daemon, access = self._daemon, self._access
        claim, sleeper = asyncio.get_running_loop().create_future(), LoopSleeper()
        claim.set_result(queued)
        self._request.gone = sleeper
        daemon.present.enter(access.token)
        try:
            if self._connection.transport.is_closing() or access.token not in daemon.tokens.seen:
                sleeper()
            self.result = await daemon.stand(claim, access, sleeper, self._call)
        except asyncio.CancelledError:
            self.error = stopping()
        except Exception as error:
            self.error = error
        finally:
            daemon.present.leave()
        self.settle()


def promptly(daemon: Daemon, connection: HttpConnection, head: Head, body: bytes) -> bool:
    """Begin a call that can be answered promptly; otherwise do nothing."""
    try:
        access = None if daemon.stopping else daemon.tokens.known(head.headers)
        if access is None:
            return False
        route = daemon.operations[head.path]
        given = route.read(body)
        worker, job = daemon.begin(route, access, given, head.headers.get("traceparent", ""))
        if worker is None:
            return False
        daemon.rate.take(access.name)
    except Exception:
        return False  # the application finds the same error, and reports it
    crowd = route.crowd(given)
    worker.put(Prompt(job, route.weight(given), crowd, daemon, access, connection, head))
    return True


def plain_head(
    daemon: Daemon, path: str, pairs: list[tuple[bytes, bytes]], length: int, keep_alive: bool
) -> Head | None:
    """The head of a call with a body of that length, if nothing in it is unusual."""
    headers = {k.decode("latin-1"): v.decode("latin-1").strip(" \t") for k, v in pairs}
    if len(headers) < len(pairs) or headers.get("content-length") != str(length):
        return None
    if not headers.keys().isdisjoint(UNUSUAL):
        return None
    try:
        daemon.guard.check("POST", headers)
    except GuardError:
        return None
    return Head(path, headers, length, keep_alive)
