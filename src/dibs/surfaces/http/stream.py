"""The journal as server-sent events: every event once, in order, from wherever a reader left off.

The id of each is its seq, so a browser that reconnects says by itself (`Last-Event-ID`) where to
go on. A reader whose place was pruned is told so, and goes on from where the journal begins.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from dibs.errors import InvalidError, PrunedError, UnavailableError
from dibs.records import plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from dibs.surfaces.http.app import Daemon

BREATH_S = 15.0
"""A comment so often shows both ends that the other is there."""
RETRY_S = 0.5
PAGE = 500
FILTERS = ("kind", "agent", "subject")


async def events(request: Request) -> StreamingResponse:
    daemon: Daemon = request.app.state.daemon
    await daemon.admit(dict(request.headers))
    filters = {name: request.query_params.get(name) for name in FILTERS}
    place = request.headers.get("last-event-id") or request.query_params.get("since")
    if place is None:
        seq = await daemon.reader.do(daemon.space.events.last)
    elif place.isascii() and place.isdigit() and len(place) < 19:
        seq = int(place)
    else:
        raise InvalidError(f"{place!r} is not a place in the journal", next="give a seq")
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    return StreamingResponse(
        told(daemon, seq, filters), media_type="text/event-stream", headers=headers
    )


async def told(daemon: Daemon, seq: int, filters: dict[str, str | None]) -> AsyncIterator[str]:
    """The events after a seq, as lines, for as long as somebody reads."""
    journal = daemon.space.events
    yield ": dibs\n\n"
    while not daemon.stopping:
        try:
            # Unfiltered, so that the place moves on also where nothing is for this reader.
            found = await daemon.reader.do(partial(journal.since, seq, limit=PAGE))
        except PrunedError as error:
            seq = error.details["pruned_seq"]
            yield line(seq, "pruned", error.to_json())
            continue
        except UnavailableError:
            # A browser that is hung up on and then refused would never come back.
            yield ": the store does not answer\n\n"
            await asyncio.sleep(RETRY_S)
            continue
        for event in found:
            seq = event.seq
            if fits(event, filters):
                yield line(seq, event.kind, plain(event))
        if len(found) < PAGE and not await daemon.moved(seq, BREATH_S):
            yield ": still here\n\n"


def fits(event: Any, filters: dict[str, str | None]) -> bool:
    kind = filters["kind"]
    return (
        (kind is None or event.kind == kind or event.kind.startswith(f"{kind}."))
        and filters["agent"] in (None, event.agent)
        and filters["subject"] in (None, event.subject)
    )


def line(seq: int, kind: str, data: Any) -> str:
    return f"id: {seq}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
