"""One request and its answer: how a body is read, and in which shape everything is answered."""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import TYPE_CHECKING, Any

from dibs.errors import DibsError, TooLargeError
from dibs.surfaces.http.access import too_large
from dibs.surfaces.http.api import to_body
from dibs.wire import ANSWER_LIMIT, BODY_LIMIT

if TYPE_CHECKING:
    from starlette.types import Receive, Send

    from dibs.surfaces.http.access import Access
    from dibs.surfaces.http.present import Present

CONNECTION = "dibs.connection"
"""Where the connection of a request is found."""
HEADERS = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


class Bug(DibsError):
    """Something that should not have happened."""

    code = "bug"


def confess(error: Exception) -> Bug:
    """This should not have happened: where is in the log, and only there."""
    traceback.print_exception(error, file=sys.stderr)
    return Bug(f"this is a bug in dibs: {type(error).__name__}", next="look at the daemon's log")


async def read_body(receive: Receive, present: Present, access: Access) -> bytes:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        return bytes(message.get("body", b""))  # it has come as a whole, as nearly all do
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
    """Await a call that waits; give it up if the client hangs up."""
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


async def respond(send: Send, status: int, value: Any, headers: Any = ()) -> None:
    body = to_body(value)
    if len(body) > ANSWER_LIMIT:
        error = TooLargeError(
            f"the answer has {len(body):,} bytes; the limit is {ANSWER_LIMIT:,}",
            next="ask for fewer, with limit",
        )
        status, body = error.http_status, to_body(error.to_json())
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [*HEADERS, length, *headers]}
    )
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, error: DibsError) -> None:
    """The one shape in which everything is refused."""
    headers = []
    if error.http_status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.http_status == 405:
        headers.append((b"allow", b"POST"))
    retry = getattr(error, "retry_after_ms", None)
    if retry is not None or error.http_status == 429:
        headers.append((b"retry-after", str(max(1, (retry or 0) // 1000)).encode()))
    await respond(send, error.http_status, error.to_json(), headers)
