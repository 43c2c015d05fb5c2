"""How programs watch a space: the journal as server-sent events, and figures for Prometheus.

The stream gives every event once, in order, from wherever a reader left off. The id of each is
its seq, so a browser that reconnects says by itself (`Last-Event-ID`) where to go on. A reader
whose place was pruned is told so, and goes on from where the journal begins.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import PlainTextResponse, StreamingResponse

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
STATES = ("available", "blocked", "claimed", "failed", "dead")
COUNT_LIMIT = 1000


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


async def metrics(request: Request) -> PlainTextResponse:
    daemon: Daemon = request.app.state.daemon
    await daemon.admit(dict(request.headers))
    standing = await daemon.reader.do(lambda: stands(daemon))
    return PlainTextResponse(
        "".join([*done(daemon), *standing]), media_type="text/plain; version=0.0.4"
    )


def done(daemon: Daemon) -> list[str]:
    """What this process has done since its start."""
    calls = [
        figure(
            "dibs_calls_total",
            number,
            operation=path.removeprefix("/v1/").replace("/", ".") or "other",
            status=str(status),
        )
        for (path, status), number in sorted(daemon.calls.items())
    ]
    shared = "transactions that these writes shared"
    return [
        *measured("dibs_calls_total", "counter", "calls by operation and status", *calls),
        *measure("dibs_writes_total", "counter", "writes", daemon.writes),
        *measure("dibs_commits_total", "counter", shared, daemon.commits),
        *measure("dibs_waiting", "gauge", "calls that wait", daemon.waiting),
    ]


def stands(daemon: Daemon) -> list[str]:
    """How the space stands now; lists are counted up to a thousand."""
    space = daemon.space
    tasks = [
        figure("dibs_tasks", len(space.work.list(state=state, limit=COUNT_LIMIT)), state=state)
        for state in STATES
    ]
    leases = len(space.leases.list(limit=COUNT_LIMIT))
    queued = len(space.leases.waiting(limit=COUNT_LIMIT))
    return [
        *measured("dibs_tasks", "gauge", "tasks by state", *tasks),
        *measure("dibs_agents", "gauge", "agents here", len(space.agents.list())),
        *measure("dibs_leases", "gauge", "leases in force", leases),
        *measure("dibs_queued", "gauge", "waiting for a lease", queued),
        *measure("dibs_seq", "gauge", "where the journal is", space.events.last()),
    ]


def measure(name: str, kind: str, says: str, value: float) -> list[str]:
    return measured(name, kind, says, figure(name, value))


def measured(name: str, kind: str, says: str, *lines: str) -> list[str]:
    return [f"# HELP {name} {says}\n", f"# TYPE {name} {kind}\n", *lines]


def figure(name: str, value: float, **labels: str) -> str:
    inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value}\n" if labels else f"{name} {value}\n"
