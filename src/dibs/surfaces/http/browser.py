"""What a person's browser gets: the dashboard, and the way in.

The dashboard is a page of plain files, which asks for what it shows like any other client. The
files hold nothing that is secret, so they are given to everybody; what is in the space is behind
`/v1`, for those who are signed in. The page may load nothing from elsewhere and run no script but
its own, so whatever an agent writes can be nothing but text on it.

The way in is a code that works once, then a cookie. `dibs open` has the owner's token. It asks
for a code, and opens the page with it; the daemon takes the code for a cookie, which no script can
read and no other site can send. Both are random, known to this process only, and over when it
ends.
"""

from __future__ import annotations

import os
import time
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from dibs import __version__
from dibs.arguments import check_agent
from dibs.digest import sha256
from dibs.errors import InvalidError, NotFoundError, NotYoursError
from dibs.surfaces.http.access import GuardError
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
CODE_S = 60.0
COOKIE_S = 12 * 3600.0
LIMIT = 1000
COOKIE = "dibs_session"


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


class Secrets:
    """Names behind random secrets, for a while. Only the digests of the secrets are kept."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._known: dict[str, tuple[float, str]] = {}

    def add(self, name: str) -> str:
        secret = urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode("ascii")
        now = time.monotonic()
        fresh = {key: known for key, known in self._known.items() if known[0] > now}
        # The oldest make room, so that nobody can fill the memory.
        self._known = dict(list(fresh.items())[-LIMIT + 1 :])
        self._known[digest(secret)] = (now + self._seconds, name)
        return secret

    def name(self, secret: str) -> str | None:
        end, name = self._known.get(digest(secret), (0.0, ""))
        return name if end > time.monotonic() else None

    def take(self, secret: str) -> str | None:
        """The name behind a secret, which is worth nothing from now on."""
        name = self.name(secret)
        self._known.pop(digest(secret), None)
        return name


def digest(secret: str) -> str:
    text: str = sha256(secret.encode("utf-8", "replace")).hexdigest()
    return text


class SignIns:
    """Who is signed in."""

    def __init__(self, cookie: str = COOKIE, secure: bool = False) -> None:
        """secure: browsers reach us by TLS only."""
        self.cookie = cookie
        self.secure = secure
        self.codes = Secrets(CODE_S)
        self.people = Secrets(COOKIE_S)

    def person(self, headers: dict[str, str]) -> str | None:
        """The person whose browser sent these headers from our own page."""
        secrets = [
            value.strip()
            for part in headers.get("cookie", "").split(";")
            for name, _, value in [part.partition("=")]
            if name.strip() == self.cookie
        ]
        person = self.people.name(secrets[0]) if len(secrets) == 1 else None
        if person is None:
            return None
        # Any other origin has been refused before this; here it must be known to be ours.
        if "origin" not in headers and "sec-fetch-site" not in headers:
            raise GuardError(
                403, "origin", "a cookie counts only for our own page", "use a token instead"
            )
        if headers.get("dibs-agent", person) != person:
            raise NotYoursError(f"you are signed in as {person}", next="leave Dibs-Agent out")
        return person


async def offer(request: Request) -> Response:
    """Give somebody who may do everything a code to sign in with."""
    from dibs.surfaces.http.api import read_object
    from dibs.surfaces.http.app import read_body

    daemon: Daemon = request.app.state.daemon
    access = await daemon.admit(dict(request.headers))
    if access.scope != "admin":
        raise NotYoursError(
            f"a token of scope {access.scope} does not allow to sign in", next="use another token"
        )
    given = read_object(await read_body(request.receive))
    if given.keys() - {"name"}:
        raise InvalidError("sign-in has no argument but name")
    name = check_agent("name", given.get("name", access.agent))
    code = daemon.sign_ins.codes.add(name)
    return JSONResponse(
        {"path": f"/sign-in?code={code}", "name": name, "expires_in_s": CODE_S},
        headers={"cache-control": "no-store"},
    )


async def take(request: Request) -> Response:
    """Take a code for a cookie, and go to the dashboard."""
    daemon: Daemon = request.app.state.daemon
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


def routes() -> list[Route]:
    return [
        Route("/", page),
        Route("/assets/{name}", asset),
        Route("/viewer", viewer),
        Route("/sign-in", take),
        Route("/sign-in", offer, methods=["POST"]),
    ]
