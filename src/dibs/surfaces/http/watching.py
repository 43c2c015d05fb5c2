"""How a space is watched: by people on the dashboard, by programs as events and metrics.

The dashboard is a page of plain files that calls operations like any other client. The files
contain nothing secret, so everybody may load them; the contents of the space are behind `/v1`, for
people who are signed in. The page can load nothing from elsewhere and run only its own scripts, so
whatever an agent writes is only text on it.

The journal is served as server-sent events: every event once, in order, from where a reader left
off. The id of each event is its seq, so a browser that reconnects says by itself (`Last-Event-ID`)
where to continue. A reader whose place was pruned is told, and continues where the journal begins.
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
from dibs.arguments import KINDS, check_agent
from dibs.digest import sha256
from dibs.errors import InvalidError, NotFoundError, PrunedError, UnavailableError
from dibs.nouns.events.operations import EVENT
from dibs.records import plain
from dibs.surfaces.http.access import CODE_S, COOKIE_S, GuardError, Signed, permit
from dibs.surfaces.http.api import document, page_of, read_object
from dibs.surfaces.http.app import Daemon
from dibs.surfaces.http.exchange import enter, read_body
from dibs.surfaces.http.home import OWNER
from dibs.surroundings.wording import project
from dibs.swarm import limits
from dibs.swarm.logs import end_of
from dibs.telemetry.figures import Figure, Labels, one, prometheus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

    from dibs.dibs import Dibs

BREATH_S = 15.0
"""How often a comment is sent, so that both sides see that the other is there."""
RETRY_S = 0.5
PAGE = 500
FILTERS = ("kind", "agent", "subject")
STATES = ("available", "blocked", "claimed", "failed", "dead")
COUNT_LIMIT = 1000
LOGS, LOG_BYTES = 20, 16_384
"""How many logs of a task are shown, and how much of the end of each."""
FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "dashboard")
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGES = ("/agent", "/task", "/path")
POLICY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Checked at each visit, and answered with 304 while unchanged.
    "cache-control": "no-cache",
}


def load(name: str) -> tuple[bytes, dict[str, str]]:
    """A file of the page, and its headers."""
    with open(os.path.join(FOLDER, name), "rb") as source:
        body = source.read()
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    return body, {**POLICY, "content-type": TYPES[name.rpartition(".")[2]], "etag": etag}


ASSETS = {
    name: load(name) for name in sorted(os.listdir(FOLDER)) if name.rpartition(".")[2] in TYPES
}
"""All files to serve: anything else has no address."""

# A browser finds a script only through the one that imports it; told about all at once, it loads
# them in parallel.
ASSETS["index.html"][1]["link"] = ", ".join(
    f"</assets/{name}>; rel=modulepreload" for name in ASSETS if name.endswith(".js")
)


async def asset(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    if name not in ASSETS:
        raise NotFoundError(f"there is no {request.url.path}", next="open /")
    body, headers = ASSETS[name]
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers)


async def viewer(request: Request) -> Response:
    """Who looks at what: the name under which this page acts, and the server's time."""
    daemon, access = await enter(request.scope)
    return JSONResponse(
        {
            "name": access.agent,
            "scope": access.scope,
            "daemon": OWNER,
            "space": daemon.space.space,
            "repository": project(daemon.space),
            "version": __version__,
            "now": int(time.time() * 1000),
        },
        headers=POLICY | {"cache-control": "no-store"},
    )


async def attempt_logs(request: Request) -> Response:
    """The end of the log of each attempt that ran on this machine, by the attempt's epoch.

    A log may show anything that a command printed, so it is for people only.
    """
    daemon, access = await enter(request.scope)
    permit("to read logs", "admin", access)
    task = request.query_params.get("task", "")
    found = await daemon.reader.do(partial(log_ends, daemon.space, task))
    return JSONResponse(found, headers=POLICY | {"cache-control": "no-store"})


def log_ends(space: Dibs, task: str) -> dict[int, str]:
    said = [entry.value for entry in space.state.history(limits.TASKS, task)]
    paths = {one["epoch"]: one["log"] for one in said if is_pointer(one)}
    newest = sorted(paths, reverse=True)[:LOGS]
    store_dir = space.scope.place.store_dir
    ends = {epoch: end_of(store_dir, paths[epoch], LOG_BYTES) for epoch in newest}
    return {epoch: end for epoch, end in ends.items() if end is not None}


def is_pointer(said: Any) -> bool:
    """Whether an entry says where the log of an attempt is, as the swarm does."""
    return (
        isinstance(said, dict)
        and isinstance(said.get("epoch"), int)
        and isinstance(said.get("log"), str)
    )


async def offer(request: Request) -> Response:
    """Give an admin a code for signing in."""
    daemon, access = await enter(request.scope)
    permit("to sign in", "admin", access)
    given = read_object(await read_body(request.receive, daemon.present, access))
    if given.keys() - {"name"}:
        raise InvalidError("sign-in takes only the argument name")
    name = check_agent("name", given.get("name", access.agent))
    code = daemon.sign_ins.codes.add(Signed(name, access.token))
    return JSONResponse(
        {"path": f"/sign-in?code={code}", "name": name, "expires_in_s": CODE_S},
        headers={"cache-control": "no-store"},
    )


async def take(request: Request) -> Response:
    """Exchange a code for a cookie, and go to the dashboard."""
    daemon: Daemon = request.app.daemon
    sign_ins = daemon.sign_ins
    if request.method != "GET":  # HEAD, which would use the code up
        raise GuardError(405, "method", "a link is opened with GET", "use GET")
    person = sign_ins.codes.take(request.query_params.get("code", ""))
    if person is None:
        if "text/html" in request.headers.get("accept", ""):
            body, headers = ASSETS["used.html"]
            return Response(body, 403, headers=headers | {"cache-control": "no-store"})
        raise GuardError(
            403,
            "bad_code",
            "this link has expired or was already used",
            "run dibs open for a new one",
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
        if filters["kind"] is not None:
            EVENT.check("kind", filters["kind"])
        place = asked.headers.get("last-event-id") or asked.query_params.get("since")
        since = None if place is None else KINDS["since"].check("since", place)
        seq = (
            since
            if isinstance(since, int)
            else await daemon.reader.do(partial(place_of, daemon.space, since))
        )
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        lines = told(daemon, seq, filters)
        stream = StreamingResponse(lines, media_type="text/event-stream", headers=headers)
        with daemon.present.lasting(access):
            await stream(scope, receive, send)


def place_of(space: Dibs, since: str | None) -> int:
    """The seq after which the events since a time begin; without a time, only new events."""
    if since is not None and (first := space.events.since(since, limit=1)):
        return first[0].seq - 1
    return space.events.last()


async def told(daemon: Daemon, seq: int, filters: dict[str, str | None]) -> AsyncIterator[str]:
    """The events after a seq, as lines, while the client reads."""
    journal = daemon.space.events
    yield ": dibs\n\n"
    while not daemon.stopping:
        try:
            # Unfiltered, so that the place moves on even if nothing is for this reader.
            found = await daemon.reader.do(partial(journal.since, seq, limit=PAGE))
        except PrunedError as error:
            seq = error.details["pruned_seq"]
            yield line(seq, "pruned", error.to_json())
            continue
        except UnavailableError:
            # A browser that is disconnected and then refused would never come back.
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


async def figures(daemon: Daemon) -> list[Figure]:
    """All metrics."""
    now: list[Figure] = await daemon.reader.do(partial(stands, daemon.space))
    return done(daemon) + now


async def metrics(request: Request) -> PlainTextResponse:
    daemon, _ = await enter(request.scope)
    text = prometheus(await figures(daemon))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def done(daemon: Daemon) -> list[Figure]:
    """What this process has done since its start."""
    calls: dict[Labels, int] = {
        (
            ("operation", path.removeprefix("/v1/").replace("/", ".") or "other"),
            ("status", str(status)),
        ): number
        for (path, status), number in sorted(daemon.calls.items())
    }
    shared = "transactions that contained these writes"
    sent = daemon.exporter
    return [
        Figure("dibs_calls_total", "counter", "calls by operation and status", calls),
        one("dibs_writes_total", "counter", "writes", daemon.writer.writes),
        one("dibs_commits_total", "counter", shared, daemon.writer.groups),
        one("dibs_waiting", "gauge", "calls that wait", daemon.waits.number),
        *([] if sent is None else sent.figures()),
    ]


def stands(space: Dibs) -> list[Figure]:
    """The current state of the space; lists are counted up to a thousand."""
    tasks: dict[Labels, int] = {
        (("state", state),): len(space.work.list(state=state, limit=COUNT_LIMIT))
        for state in STATES
    }
    leases = len(space.leases.list(limit=COUNT_LIMIT))
    queued = len(space.leases.waiting(limit=COUNT_LIMIT))
    return [
        Figure("dibs_tasks", "gauge", "tasks by state", tasks),
        one("dibs_agents", "gauge", "agents here", len(space.agents.list())),
        one("dibs_leases", "gauge", "leases in force", leases),
        one("dibs_queued", "gauge", "waiting for a lease", queued),
        one("dibs_seq", "gauge", "where the journal is", space.events.last()),
    ]


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
    """Ready: the store can be written. The caller is unknown, so no address is revealed."""
    daemon: Daemon = request.app.daemon
    error = await daemon.readiness.cause()
    if error is None:
        return JSONResponse({"status": "ok"})
    cause = error.details.get("cause", error.code)
    why = {"error": error.code, "cause": cause, "message": type(error).__doc__}
    return JSONResponse({"status": "not ready", **why}, status_code=503)


ROUTES = [
    Route("/", asset),
    # The page itself reads from its address what to show.
    *(Route(path, asset) for path in PAGES),
    Route("/assets/{name}", asset),
    Route("/viewer", viewer),
    Route("/attempt-logs", attempt_logs),
    Route("/sign-in", take),
    Route("/sign-in", offer, methods=["POST"]),
    Route("/healthz", healthz),
    Route("/readyz", readyz),
    Route("/v1/events", EventStream(), methods=["GET"]),
    Route("/openapi.json", openapi),
    Route("/docs", docs),
    Route("/metrics", metrics),
]
