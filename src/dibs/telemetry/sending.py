"""Where OTLP is sent, and how: the standard `OTEL_*` variables, and one POST at a time.

A receiver may be slow, gone or broken. So a request has a deadline, however slowly its answer
comes, an answer has a limit, and no redirect is followed: the headers, which may carry a key, go
only to the address they are for.
"""

from __future__ import annotations

import gzip
import http.client
import socket
import ssl
from contextlib import closing, contextmanager, suppress
from threading import Timer
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from dibs import __version__
from dibs.errors import InvalidError
from dibs.records import visible
from dibs.telemetry.otlp import rejected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TRACES, METRICS = "traces", "metrics"
RETRYABLE = frozenset({408, 429, 502, 503, 504})
ANSWER_LIMIT = 1 << 16
AGENT = f"dibs/{__version__}"
PROTOCOL = "http/protobuf"


class Sent(NamedTuple):
    """The result of a request.

    again: None if it must not be sent again, else after how many seconds at the earliest
    rejected: how many items the receiver says it rejected
    why: what went wrong, "" if nothing did
    """

    again: float | None = None
    rejected: int = 0
    why: str = ""


class Target(NamedTuple):
    """Where a signal goes."""

    url: str
    headers: dict[str, str]
    timeout_s: float
    gzip: bool
    certificate: str

    def post(self, body: bytes) -> Sent:
        """Send a request, and return the result; this takes a while, and never raises."""
        try:
            status, headers, answer = self._exchange(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Sent(again=0.0, why=f"{type(error).__name__}: {error}"[:200])
        if 200 <= status < 300:
            try:
                return Sent(rejected=rejected(answer))
            except ValueError:
                return Sent()  # it was accepted, whatever the answer says
        if status not in RETRYABLE:
            return Sent(why=f"HTTP {status}")
        wait = headers.get("Retry-After", "")
        told = wait.isascii() and wait.isdigit()  # `²` is a digit, too
        return Sent(again=float(wait) if told else 0.0, why=f"HTTP {status}")

    def _exchange(self, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        headers = {"Content-Type": "application/x-protobuf", "User-Agent": AGENT, **self.headers}
        if self.gzip:
            body, headers["Content-Encoding"] = gzip.compress(body, 5), "gzip"
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection = http.client.HTTPConnection(host, parts.port)
        context: ssl.SSLContext | None = None
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.certificate or None)
            connection = http.client.HTTPSConnection(host, parts.port, context=context)
        end = socket.create_connection((host, connection.port), self.timeout_s)
        with closing(connection), hung_up_after(end, self.timeout_s):
            connection.sock = end
            if context is not None:
                connection.sock = context.wrap_socket(end, server_hostname=host)
            connection.request("POST", path or "/", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read(ANSWER_LIMIT)


@contextmanager
def hung_up_after(end: socket.socket, seconds: float) -> Iterator[None]:
    """A block in which a connection ends at a deadline; a timeout begins again with each byte."""
    late: list[float] = []

    def hang_up() -> None:
        late.append(seconds)
        with suppress(OSError):
            same.shutdown(socket.SHUT_RDWR)

    # Its own handle, because TLS takes over the other one.
    with end.dup() as same:
        timer = Timer(seconds, hang_up)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            if late:
                raise TimeoutError(f"no complete answer came within {seconds:g} s")


class Settings(NamedTuple):
    """What is sent where, and how often.

    traces, metrics: None for what is not sent
    words: whether notes and reasons are included
    """

    traces: Target | None
    metrics: Target | None
    resource: dict[str, str]
    delay_s: float
    interval_s: float
    batch: int
    words: bool


def settings(environment: Mapping[str, str], url: str = "") -> Settings | None:
    """What the environment says about sending; None if nothing is sent.

    url: where to send, whatever the environment says
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    said = Said(environment, url)
    traces, metrics = said.target(TRACES), said.target(METRICS)
    if traces is None and metrics is None:
        return None
    resource = {"service.name": "dibs", "service.version": __version__}
    resource |= pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    if name := environment.get("OTEL_SERVICE_NAME"):
        resource["service.name"] = name
    return Settings(
        traces,
        metrics,
        resource,
        delay_s=said.number("OTEL_BSP_SCHEDULE_DELAY", 5_000) / 1000,
        interval_s=said.number("OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1000,
        batch=said.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
        words=environment.get("DIBS_OTLP_WORDS", "").lower() in ("1", "true"),
    )


class Said:
    """The variables that say where a signal goes, each for all signals or for one."""

    def __init__(self, environment: Mapping[str, str], url: str) -> None:
        self._environment = environment
        self._url = url

    def of(self, signal: str, name: str) -> str:
        signals = self._environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}", "")
        return signals or self._environment.get(f"OTEL_EXPORTER_OTLP_{name}", "")

    def number(self, name: str, default: int) -> int:
        text = self._environment.get(name, "")
        if not text:
            return default
        if not text.isascii() or not text.isdecimal() or not 0 < int(text[:12]) <= 10**9:
            raise InvalidError(f"{name} must be a whole number above 0", next="correct or unset it")
        return int(text)

    def target(self, signal: str) -> Target | None:
        environment = self._environment
        if environment.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp") != "otlp":
            return None
        url = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "")
        base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
        if self._url or not (url or not base):
            url = f"{(self._url or base).rstrip('/')}/v1/{signal}"
        if not url:
            return None
        check_url(url)
        if self.of(signal, "PROTOCOL") not in ("", PROTOCOL):
            raise InvalidError(
                f"dibs can send OTLP only as {PROTOCOL}, not as {self.of(signal, 'PROTOCOL')}",
                next=f"set OTEL_EXPORTER_OTLP_PROTOCOL={PROTOCOL}, and use the HTTP port (4318)",
            )
        name = f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT"
        timeout = self.number(name, self.number("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000)) / 1000
        headers = pairs(self.of(signal, "HEADERS"))
        packed = self.of(signal, "COMPRESSION") == "gzip"
        return Target(url, headers, timeout, packed, self.of(signal, "CERTIFICATE"))


def check_url(url: str) -> None:
    """Refuse what is not the address of a receiver."""
    try:
        parts = urlsplit(url)
        host, port, path = parts.hostname, parts.port, parts.path + parts.query
    except ValueError:
        host = port = path = None
    known = host and parts.scheme in ("http", "https") and port != 0
    if "@" in url.partition("://")[2].partition("/")[0]:
        # Nothing would send it, and every message with the address would show it.
        raise InvalidError(
            "the address of an OTLP/HTTP receiver has no user or password",
            next="send them as a header, with OTEL_EXPORTER_OTLP_HEADERS",
        )
    if not known or not path or not path.isascii() or not path.isprintable() or " " in path:
        raise InvalidError(
            f"{visible(url)} is not the address of an OTLP/HTTP receiver",
            next="write http://host:4318",
        )


def pairs(text: str) -> dict[str, str]:
    """Parse `a=1,b=2` with percent-encoding, as in the variables."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip():
            name, value = unquote(name.strip()), unquote(value.strip())
            if not (name + value).isprintable():
                raise InvalidError("OTEL_* headers and attributes must be printable text")
            found[name] = value
    return found
