"""Access to a forge's API: requests have a deadline, answers a size limit, and rates are respected.

The server is not trusted. No address in an answer is followed, neither a redirect nor the link to a
next page, so the token goes only to the address that the user named. If the server fails, requests
that are safe to repeat are repeated. A POST is not, so it is left to the next run, which first
checks whether it was done.
"""

from __future__ import annotations

import json
import threading
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPSConnection
from urllib.parse import urlencode, urlsplit

from dibs.errors import DibsError, InvalidError, NotFoundError, NotYoursError, UnavailableError
from dibs.records import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

REQUEST_S = 30.0
ANSWER_LIMIT = 32 * 1024 * 1024
PAUSES_S = (0.5, 2.0)
"""How long to wait before a failed request is repeated."""
PAGE, PAGES = 100, 2_000
LIMIT_S = 60.0
"""How long to wait after a rate limit if the server does not say."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
CALLED = "dibs"


class Forge:
    """One server.

    patience_s: how long to wait in total if the server limits the rate
    """

    def __init__(self, base: str, headers: dict[str, str], patience_s: float) -> None:
        address = urlsplit(base)
        host = address.hostname or ""
        if address.scheme != "https" and not (address.scheme == "http" and host in LOOPBACK):
            raise InvalidError(
                f"{quoted(base)} is not the address of an API",
                next="write https://…; http:// is only for this machine",
            )
        if "@" in address.netloc or address.query or address.fragment:
            raise InvalidError(
                "the address of an API has only a host and a path", next="give the token separately"
            )
        self._host, self._port = host, address.port
        self._tls = address.scheme == "https"
        self._path = address.path.rstrip("/")
        self._headers = {"User-Agent": CALLED, "Accept": "application/json", **headers}
        self._patience_s = patience_s
        self.date = 0.0
        """The server's time at its first answer, in seconds; 0 if it did not say."""

    def get(self, path: str, **query: Any) -> Any:
        return self._ask("GET", path, query, None)[0]

    def send(self, method: str, path: str, body: Any) -> Any:
        return self._ask(method, path, {}, body)[0]

    def pages(self, path: str, size: int = PAGE, **query: Any) -> Iterator[Any]:
        """Everything in a paged list; it ends when a page has nothing new."""
        seen: set[str] = set()
        for page in range(1, PAGES + 1):
            found, headers = self._ask("GET", path, {**query, "page": page}, None)
            if not isinstance(found, list):
                raise UnavailableError("the server answered something that is not a list")
            fresh = [one for one in found if (mark := mark_of(one)) and mark not in seen]
            seen.update(map(mark_of, fresh))
            yield from fresh
            if not fresh or (len(found) < size and 'rel="next"' not in headers.get("Link", "")):
                return

    def _ask(
        self, method: str, path: str, query: dict[str, Any], body: Any
    ) -> tuple[Any, HTTPMessage]:
        tries = list(PAUSES_S) if method != "POST" else []
        while True:
            try:
                status, headers, data = self._exchange(method, path, query, body)
            except (OSError, HTTPException) as error:
                says = f"{self._host} did not answer: {type(error).__name__}"
                failed = UnavailableError(says, next="try again later; what was done is kept")
                if not tries:
                    raise failed from None
                time.sleep(tries.pop(0))
                continue
            if not self.date:
                self.date = date_of(headers)
            pause = asked_to_wait(status, headers)
            if pause is not None:
                self._rest(pause)
            elif status >= 500 and tries:
                time.sleep(tries.pop(0))
            elif 200 <= status < 300:
                return decoded(data), headers
            else:
                raise refusal(status, self._host, path, data)

    def _rest(self, pause: float) -> None:
        """Wait as long as the server says, if that is not too long."""
        if pause > self._patience_s:
            error = UnavailableError(
                f"{self._host} accepts no more requests for {pause:.0f} s",
                next="try again then, or give a longer --patience; what was done is kept",
            )
            error.retry_after_ms = int(pause * 1000)
            raise error
        self._patience_s -= pause
        time.sleep(pause)

    def _exchange(
        self, method: str, path: str, query: dict[str, Any], body: Any
    ) -> tuple[int, HTTPMessage, bytes]:
        kind = HTTPSConnection if self._tls else HTTPConnection
        connection = kind(self._host, self._port, timeout=REQUEST_S)
        # A socket timeout starts again with each byte that arrives.
        end = threading.Timer(REQUEST_S, lambda: hang_up(connection))
        end.daemon = True
        end.start()
        try:
            url = f"{self._path}{path}" + (f"?{urlencode(query)}" if query else "")
            headers = dict(self._headers)
            if body is not None:
                headers["Content-Type"] = "application/json"
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, url, data, headers)
            answer = connection.getresponse()
            read = answer.read(ANSWER_LIMIT + 1)
            if len(read) > ANSWER_LIMIT:
                raise UnavailableError(f"{self._host} answered more than {ANSWER_LIMIT:,} bytes")
            return answer.status, answer.headers, read
        finally:
            end.cancel()
            connection.close()


def hang_up(connection: HTTPConnection) -> None:
    import socket

    if connection.sock is not None:
        try:
            connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has already ended


def mark_of(one: Any) -> str:
    """What distinguishes the items of a list."""
    return str(one.get("id") or one.get("number") or "") if isinstance(one, dict) else ""


def decoded(data: bytes) -> Any:
    if not data:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise UnavailableError("the server answered something that is not JSON") from None


def asked_to_wait(status: int, headers: HTTPMessage) -> float | None:
    """How many seconds to wait before repeating a request; None if the rate is not the problem."""
    after = headers.get("Retry-After", "")
    spent = "0" in (headers.get("X-RateLimit-Remaining"), headers.get("RateLimit-Remaining"))
    if status != 429 and not (status == 403 and (after or spent)):
        return None
    if after.isdecimal():
        return float(after[:9])
    reset = headers.get("X-RateLimit-Reset") or headers.get("RateLimit-Reset") or ""
    if spent and reset.isdecimal():
        # According to the server's clock: ours may be wrong.
        return max(1.0, float(reset[:12]) - (date_of(headers) or time.time()) + 1)
    return LIMIT_S


def date_of(headers: HTTPMessage) -> float:
    try:
        return parsedate_to_datetime(headers.get("Date", "")).timestamp()
    except (ValueError, TypeError):
        return 0.0


def refusal(status: int, host: str, path: str, data: bytes) -> DibsError:
    """The error for a failed request."""
    try:
        said = json.loads(data).get("message", "")
    except (ValueError, RecursionError, AttributeError):
        said = ""
    about = f" and says {quoted(said)}" if isinstance(said, str) and said else ""
    says = f"{host} answered {status} to {quoted(path)}{about}"
    if status in (401, 403):
        return NotYoursError(says, next="check the token and what it may do")
    if status in (404, 410):
        return NotFoundError(says, next="check the name, and whether the token may see it")
    if 300 <= status < 400:
        return NotFoundError(says, next="it has moved: use its new name")
    if status >= 500:
        return UnavailableError(says, next="try again later; what was done is kept")
    return InvalidError(says, next="fix it there or here")
