"""How a person gets in with a browser: a code that works once, then a cookie.

`dibs open` has the owner's token. It asks for a code, and opens the page with it; the daemon takes
the code for a cookie, which no script can read and no other site can send. Both are random, known
to this process only, and over when it ends.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from os import urandom
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, RedirectResponse

from dibs.arguments import check_agent
from dibs.digest import sha256
from dibs.errors import InvalidError, NotYoursError
from dibs.surfaces.http.guard import GuardError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.surfaces.http.app import Daemon

CODE_S = 60.0
COOKIE_S = 12 * 3600.0
LIMIT = 1000
COOKIE = "dibs_session"


class Secrets:
    """Names behind random secrets, for a while. Only the digests of the secrets are kept."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._known: dict[str, tuple[float, str]] = {}

    def add(self, name: str) -> str:
        secret = urlsafe_b64encode(urandom(32)).rstrip(b"=").decode("ascii")
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
    from dibs.surfaces.http.app import read_body
    from dibs.surfaces.http.call import read_object

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
