"""How a space is watched: by people on the dashboard, by programs as events and as figures.

The dashboard is a page of plain files, which asks for what it shows like any other client. The
files hold nothing that is secret, so they are given to everybody; what is in the space is behind
`/v1`, for those who are signed in. The page may load nothing from elsewhere and run no script but
its own, so whatever an agent writes can be nothing but text on it.

The journal is given as server-sent events: every event once, in order, from wherever a reader left
off. The id of each is its seq, so a browser that reconnects says by itself (`Last-Event-ID`) where
to go on. A reader whose place was pruned is told so, and goes on from where the journal begins.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from dibs import __version__
from dibs.arguments import check_agent
from dibs.digest import sha256
from dibs.errors import InvalidError, NotFoundError, PrunedError, UnavailableError
from dibs.records import plain
from dibs.surfaces.http.access import CODE_S, COOKIE_S, GuardError, Signed, permit
from dibs.surfaces.http.api import document, page_of, read_object
from dibs.surfaces.http.app import Daemon
from dibs.surfaces.http.exchange import enter, read_body
from dibs.surfaces.http.home import OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

    from dibs.dibs import Dibs

BREATH_S = 15.0
"""A comment so often shows both ends that the other is there."""
RETRY_S = 0.5
PAGE = 500
FILTERS = ("kind", "agent", "subject")
STATES = ("available", "blocked", "claimed", "failed", "dead")
COUNT_LIMIT = 1000
FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "dashboard")
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Asked for again at each visit, answered with 304 while it is the same.
    "cache-control": "no-cache",
}


def load(name: str) -> tuple[bytes, dict[str, str]]:
    """A file of the page, and the headers it is given with."""
    with open(os.path.join(FOLDER, name), "rb") as source:
        body = source.read()
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    return body, {**POLICY, "content-type": TYPES[name.rpartition(".")[2]], "etag": etag}


ASSETS = {
    name: load(name) for name in sorted(os.listdir(FOLDER)) if name.rpartition(".")[2] in TYPES
}
"""All there is to serve: what is not in here has no address."""


async def asset(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    if name not in ASSETS:
        raise NotFoundError(f"there is no {request.url.path}", next="open /")
    body, headers = ASSETS[name]
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers)


async def viewer(request: Request) -> Response:
    """Who looks, and at what: the name under which this page acts, and the server's time."""
    daemon, access = await enter(request.scope)
    return JSONResponse(
        {
            "name": access.agent,
            "scope": access.scope,
            "daemon": OWNER,
            "space": daemon.space.space,
            "version": __version__,
            "now": int(time.time() * 1000),
        },
        headers=POLICY | {"cache-control": "no-store"},
    )


async def offer(request: Request) -> Response:
    """Give somebody who may do everything a code to sign in with."""
    daemon, access = await enter(request.scope)
    permit("to sign in", "admin", access)
    given = read_object(await read_body(request.receive, daemon.present, access))
    if given.keys() - {"name"}:
        raise InvalidError("sign-in has no argument but name")
    name = check_agent("name", given.get("name", access.agent))
    code = daemon.sign_ins.codes.add(Signed(name, access.token))
    return JSONResponse(
        {"path": f"/sign-in?code={code}", "name": name, "expires_in_s": CODE_S},
        headers={"cache-control": "no-store"},
    )


async def take(request: Request) -> Response:
    """Take a code for a cookie, and go to the dashboard."""
    daemon: Daemon = request.app.daemon
    sign_ins = daemon.sign_ins
    if request.method != "GET":  # HEAD, which would use the code up
        raise GuardError(405, "method", "a link is opened with GET", "use GET")
    person = sign_ins.codes.take(request.query_params.get("code", ""))
    if person is None:
        raise GuardError(
            403, "bad_code", "this link is over, or was used", "run dibs open for another"
        )
    response = RedirectResponse(
        "/", 303, headers={"cache-control": "no-store", "referrer-policy": "no-referrer"}
    )
    response.set_cookie(
        sign_ins.cookie,
        sign_ins.people.add(person),
        max_age=int(COOKIE_S),
        httponly=True,
        samesite="strict",
        secure=sign_ins.secure,
    )
    return response


class EventStream:
    """`/v1/events`, as an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        daemon, access = await enter(scope)
        asked = Request(scope)
        filters = {name: asked.query_params.get(name) for name in FILTERS}
        place = asked.headers.get("last-event-id") or asked.query_params.get("since")
        if place is None:
            seq = await daemon.reader.do(daemon.space.events.last)
        elif place.isascii() and place.isdigit() and len(place) < 19:
            seq = int(place)
        else:
            raise InvalidError(f"{place!r} is not a place in the journal", next="give a seq")
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        lines = told(daemon, seq, filters)
        stream = StreamingResponse(lines, media_type="text/event-stream", headers=headers)
        with daemon.present.lasting(access):
            await stream(scope, receive, send)


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
    daemon, _ = await enter(request.scope)
    text = done(daemon) + await daemon.reader.do(partial(stands, daemon.space))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def done(daemon: Daemon) -> str:
    """What this process has done since its start."""
    calls = {
        f'{{operation="{path.removeprefix("/v1/").replace("/", ".") or "other"}",'
        f'status="{status}"}}': number
        for (path, status), number in sorted(daemon.calls.items())
    }
    shared = "transactions that these writes shared"
    return (
        measure("dibs_calls_total", "counter", "calls by operation and status", calls)
        + measure("dibs_writes_total", "counter", "writes", daemon.writer.writes)
        + measure("dibs_commits_total", "counter", shared, daemon.writer.groups)
        + measure("dibs_waiting", "gauge", "calls that wait", daemon.waits.number)
    )


def stands(space: Dibs) -> str:
    """How the space stands now; lists are counted up to a thousand."""
    tasks = {
        f'{{state="{state}"}}': len(space.work.list(state=state, limit=COUNT_LIMIT))
        for state in STATES
    }
    leases = len(space.leases.list(limit=COUNT_LIMIT))
    queued = len(space.leases.waiting(limit=COUNT_LIMIT))
    return (
        measure("dibs_tasks", "gauge", "tasks by state", tasks)
        + measure("dibs_agents", "gauge", "agents here", len(space.agents.list()))
        + measure("dibs_leases", "gauge", "leases in force", leases)
        + measure("dibs_queued", "gauge", "waiting for a lease", queued)
        + measure("dibs_seq", "gauge", "where the journal is", space.events.last())
    )


def measure(name: str, kind: str, says: str, numbers: int | dict[str, int]) -> str:
    """A measure as Prometheus reads it; numbers: one, or several by their labels."""
    several = numbers if isinstance(numbers, dict) else {"": numbers}
    lines = "".join(f"{name}{labels} {number}\n" for labels, number in several.items())
    return f"# HELP {name} {says}\n# TYPE {name} {kind}\n{lines}"


async def openapi(request: Request) -> JSONResponse:
    daemon, _ = await enter(request.scope)
    return JSONResponse(document(daemon.operations))


async def docs(request: Request) -> HTMLResponse:
    daemon, _ = await enter(request.scope)
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
    )
    text = page_of(document(daemon.operations))
    return HTMLResponse(text, headers={"content-security-policy": policy})


async def healthz(request: Request) -> JSONResponse:
    """Alive: the process answers."""
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> JSONResponse:
    """Ready: the store can be written. Whoever asks is nobody we know, so no address is told."""
    daemon: Daemon = request.app.daemon
    error = await daemon.readiness.cause()
    if error is None:
        return JSONResponse({"status": "ok"})
    cause = error.details.get("cause", error.code)
    why = {"error": error.code, "cause": cause, "message": type(error).__doc__}
    return JSONResponse({"status": "not ready", **why}, status_code=503)


ROUTES = [
    Route("/", asset),
    Route("/assets/{name}", asset),
    Route("/viewer", viewer),
    Route("/sign-in", take),
    Route("/sign-in", offer, methods=["POST"]),
    Route("/healthz", healthz),
    Route("/readyz", readyz),
    Route("/v1/events", EventStream(), methods=["GET"]),
    Route("/openapi.json", openapi),
    Route("/docs", docs),
    Route("/metrics", metrics),
]
