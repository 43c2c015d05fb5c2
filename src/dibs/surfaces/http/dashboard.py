"""The dashboard: a page of plain files, which asks for what it shows like any other client.

The files hold nothing that is secret, so they are given to everybody; what is in the space is
behind `/v1`, for those who are signed in. The page may load nothing from elsewhere and run no
script but its own, so whatever an agent writes can be nothing but text on it.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dibs import __version__
from dibs.digest import sha256
from dibs.errors import NotFoundError
from dibs.surfaces.http.home import OWNER

if TYPE_CHECKING:
    from starlette.requests import Request

    from dibs.surfaces.http.app import Daemon

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


class Asset:
    """A file of the page, read once."""

    def __init__(self, name: str) -> None:
        with open(os.path.join(FOLDER, name), "rb") as source:
            self.body = source.read()
        self.headers = {
            **POLICY,
            "content-type": TYPES[name.rpartition(".")[2]],
            "etag": f'"{sha256(self.body).hexdigest()[:32]}"',
        }

    def response(self, request: Request) -> Response:
        if request.headers.get("if-none-match") == self.headers["etag"]:
            return Response(status_code=304, headers=self.headers)
        return Response(self.body, headers=self.headers)


ASSETS = {
    name: Asset(name) for name in sorted(os.listdir(FOLDER)) if name.rpartition(".")[2] in TYPES
}
"""All there is to serve: what is not in here has no address."""


async def page(request: Request) -> Response:
    return ASSETS["index.html"].response(request)


async def asset(request: Request) -> Response:
    found = ASSETS.get(request.path_params["name"])
    if found is None:
        raise NotFoundError(f"there is no {request.url.path}", next="open /")
    return found.response(request)


async def viewer(request: Request) -> Response:
    """Who looks, and at what: the name under which this page acts, and the server's time."""
    daemon: Daemon = request.app.state.daemon
    access = await daemon.admit(dict(request.headers))
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


def routes() -> list[Route]:
    return [
        Route("/", page),
        Route("/assets/{name}", asset),
        Route("/viewer", viewer),
    ]
