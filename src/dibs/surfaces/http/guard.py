"""Who is let in, and with what: checked before anything of a request is read.

A server on the loopback is reached by every web page that a browser of this machine shows. So the
host must be one of ours, another origin is refused, a body must be declared as JSON, and a token
is always needed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dibs.errors import DibsError

if TYPE_CHECKING:
    from collections.abc import Iterable

BODY_LIMIT = 4 * 1024 * 1024
"""Above the largest value the store takes, however it is escaped."""
ONCE = {
    "authorization",
    "content-length",
    "content-type",
    "cookie",
    "dibs-agent",
    "dibs-call",
    "dibs-session",
    "host",
    "last-event-id",
    "origin",
    "sec-fetch-site",
    "transfer-encoding",
}
CALLS_PER_S = 10_000
BURST_S = 2


class GuardError(DibsError):
    """A request that is turned away at the door."""

    exit_code = 2

    def __init__(self, status: int, code: str, message: str, next: str) -> None:
        super().__init__(message, next=next)
        self.code = code
        self.http_status = status


class Guard:
    def __init__(self, hosts: Iterable[str]) -> None:
        """A guard for a server that is reached under these hosts, each with its port."""
        self.hosts = {host.lower() for host in hosts}

    def check(self, method: str, headers: dict[str, str]) -> None:
        host = headers.get("host", "").lower()
        if host not in self.hosts:
            raise GuardError(
                403, "host", "this server does not go by that name", "use the address it printed"
            )
        origin = headers.get("origin")
        if origin is not None and not self.is_own(origin):
            raise GuardError(403, "origin", "pages of other origins are refused", "call from there")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise GuardError(403, "origin", "pages of other sites are refused", "call from there")
        if method == "POST":
            kind = headers.get("content-type", "").lower().replace(" ", "")
            if kind not in ("application/json", "application/json;charset=utf-8"):
                raise GuardError(
                    415,
                    "content_type",
                    "only application/json is read here",
                    "set Content-Type: application/json",
                )
            length = headers.get("content-length", "0")
            if not length.isdigit() or int(length) > BODY_LIMIT:
                raise too_large()

    def is_own(self, origin: str) -> bool:
        scheme, _, host = origin.lower().partition("://")
        return scheme in ("http", "https") and host in self.hosts


def refuse_doubles(names: Iterable[str]) -> None:
    """Refuse a request that says twice what it may say once: others might believe the other."""
    seen = set()
    for name in names:
        if name in seen and name in ONCE:
            raise GuardError(400, "doubled", f"{name} is there twice", "send it once")
        seen.add(name)


def too_large() -> GuardError:
    return GuardError(
        413, "too_large", f"a body has at most {BODY_LIMIT:,} bytes", "send less at once"
    )


class Rate:
    """How often one caller may call: so many at once, and then so many a second."""

    def __init__(self, calls_per_s: int = CALLS_PER_S) -> None:
        self._calls_per_s = calls_per_s
        self._burst = float(calls_per_s * BURST_S)
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> None:
        now = time.monotonic()
        left, then = self._left.get(caller, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._calls_per_s)
        if left < 1:
            raise GuardError(
                429, "too_often", f"more than {self._calls_per_s:,} calls a second", "slow down"
            )
        self._left[caller] = (left - 1, now)
