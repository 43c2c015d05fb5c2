"""HTTP/1.1 as far as a client of the daemon needs it: a POST with JSON, and its answer.

The client of the standard library would take longer to import than a command takes to run, and
could not give up an answer that it waits for.

Whoever answers may be anybody. So a request has one deadline, however slowly something comes, an
answer has a limit, and no redirection is followed: a token goes to the address it was given for.
"""

from __future__ import annotations

import _socket
import select
from time import monotonic

from dibs.arguments import shown
from dibs.errors import InvalidError, UnfitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.storage.waiting import Cancel

    GivingUp = tuple[Cancel, Callable[[], None]]
    """How a wait in another thread is ended: when, and what then to do until an answer comes."""

CONNECT_S = 5.0
CHUNK = 1 << 16
AGAIN_S = 0.05
HEAD_LIMIT = 1 << 16
ANSWER_LIMIT = 64 * 1024 * 1024
"""More than any answer of a daemon has."""
SCHEMES = {"http": 80, "https": 443, "http+unix": 0}
ADVICE = "write http://host:port, or unix:/path/to/the/socket"


class BrokenError(Exception):
    """What came is not the whole of an answer."""


class Address:
    """An address: how to get there, and what to call it."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if url.startswith("unix:/"):
            url = f"http+unix://{url[5:].replace('%', '%25').replace('/', '%2F')}"
        scheme, _, rest = url.rstrip("/").partition("://")
        place, slash, path = rest.partition("/")
        if scheme not in SCHEMES or not place or not url.isascii() or not url.isprintable():
            raise InvalidError(f"{url!r} is not the address of a daemon", next=ADVICE)
        if "@" in place or "?" in rest or "#" in rest or " " in rest:
            raise InvalidError(
                "the address of a daemon is a host and a port, nothing else",
                next="give the token by itself: DIBS_TOKEN, or token=",
            )
        self.tls = scheme == "https"
        self.socket = ""
        self.prefix = slash + path
        self.header = place
        if scheme == "http+unix":
            from urllib.parse import unquote

            self.socket, self.header = unquote(place), "localhost"
        host, colon, number = place.rpartition(":")
        if not colon or place.endswith("]") or self.socket:
            host, number = place, str(SCHEMES[scheme])
        if not number.isdigit() or int(number) > 65_535 or not host:
            raise InvalidError(f"{url!r} has no port of a daemon", next=ADVICE)
        self.host, self.port = host.strip("[]"), int(number)

    @property
    def identity(self) -> tuple[object, ...]:
        """The same for the same place, however it is spelled."""
        host = self.host.lower()
        host = "127.0.0.1" if host == "localhost" else host
        return (self.tls, host, self.port, self.socket, self.prefix)

    def connect(self, cert: str | None, by: float) -> Any:
        """A connected socket; over TLS, also to one that has this very certificate."""
        if self.socket:
            found: list[tuple[int, Any]] = [(_socket.AF_UNIX, self.socket)]
        else:
            # By that name a daemon is known that listens at 127.0.0.1; at ::1 may be somebody else.
            host = "127.0.0.1" if self.host.lower() == "localhost" else self.host
            answers = _socket.getaddrinfo(host, self.port, 0, _socket.SOCK_STREAM)
            found = [(family, address) for family, _, _, _, address in answers]
        error: OSError | None = None
        for family, address in found:
            end = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
            try:
                end.settimeout(max(0.01, min(CONNECT_S, by - monotonic())))
                end.connect(address)
                if not self.socket:
                    end.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
                    # So that a machine that is gone is noticed, however long the wait.
                    end.setsockopt(_socket.SOL_SOCKET, _socket.SO_KEEPALIVE, 1)
                return self._encrypted(end, cert) if self.tls else end
            except OSError as failure:
                end.close()
                error = failure
        raise error or OSError(f"{self.host} has no address")

    def _encrypted(self, end: _socket.socket, cert: str | None) -> Any:
        import socket
        import ssl

        plain = socket.socket(fileno=end.detach())
        plain.settimeout(CONNECT_S)
        try:
            context = ssl.create_default_context()
            if cert is not None:
                context.load_verify_locations(cert)
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            return context.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


class ClientConnection:
    """One connection, for one request after the other."""

    def __init__(self, address: Address, token: str, by: float, cert: str | None = None) -> None:
        """A connection that is there by a time of this process's clock."""
        self._address = address
        self._token = token
        self._socket = address.connect(cert, by)
        self.open = True

    def fresh(self) -> bool:
        """Whether nothing has come since the last answer: not its end, and nothing unasked."""
        return not look(self._socket.fileno(), 0)

    def close(self) -> None:
        self.open = False
        self._socket.close()

    def post(
        self, path: str, headers: dict[str, str], body: bytes, end: float, give_up: GivingUp | None
    ) -> tuple[int, bytes]:
        """Send a request, and give the status and the body of its answer.

        end: when it must have come
        """
        head = [
            f"POST {self._address.prefix}{path} HTTP/1.1",
            f"Host: {self._address.header}",
            "User-Agent: dibs",
            f"Authorization: Bearer {self._token}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        reader = Reader(self._socket, end, give_up)
        reader.send("\r\n".join([*head, "", ""]).encode("utf-8") + body)
        status = 100
        while 100 <= status < 200:
            status, answered = reader.head()
        if answered.get("transfer-encoding", "").lower() == "chunked":
            data = reader.chunks()
        elif "content-length" in answered:
            data = reader.body(number(answered["content-length"], 10))
        else:
            raise BrokenError("the answer has no length")
        if answered.get("connection", "").lower() == "close" or reader.left:
            self.open = False
        return status, data


class Reader:
    """Reads one answer from a socket, unless it takes too long."""

    def __init__(self, socket: Any, end: float, give_up: GivingUp | None) -> None:
        self._socket = socket
        self._give_up = give_up
        self._end = end
        self.left = bytearray()

    def _seconds(self) -> float:
        """How much time there is."""
        left = self._end - monotonic()
        if left <= 0:
            raise BrokenError("no whole answer came in time")
        return left

    def send(self, data: bytes) -> None:
        sent, view = 0, memoryview(data)
        while sent < len(data):
            self._socket.settimeout(self._seconds())
            sent += self._socket.send(view[sent : sent + CHUNK])
        if self._give_up is not None:
            self._socket.settimeout(0)

    def _more(self) -> None:
        while True:
            if self._give_up is not None:
                self._ready(*self._give_up)
            else:
                self._socket.settimeout(self._seconds())
            try:
                data: bytes = self._socket.recv(CHUNK)
            except OSError as error:
                # Over TLS something may come that is not for us yet.
                if type(error).__name__ in ("BlockingIOError", "SSLWantReadError"):
                    continue
                raise
            if not data:
                raise BrokenError("the connection was closed")
            self.left += data
            return

    def _ready(self, cancel: Cancel, give_up: Callable[[], None]) -> None:
        handle, cancelled = self._socket.fileno(), cancel.fileno()
        if getattr(self._socket, "pending", int)():
            return
        ready = look(handle, self._seconds(), cancelled)
        while cancelled in ready and handle not in ready:
            # It may be too early, and nobody there have heard of the wait yet.
            give_up()
            self._seconds()
            ready = look(handle, AGAIN_S) or [cancelled]
        self._seconds()

    def _until(self, mark: bytes) -> bytes:
        while mark not in self.left:
            if len(self.left) > HEAD_LIMIT:
                raise BrokenError("the answer has too long a head")
            self._more()
        found, _, self.left = self.left.partition(mark)
        return bytes(found)

    def head(self) -> tuple[int, dict[str, str]]:
        self._seconds()
        first, *lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise BrokenError("what answers there does not speak HTTP")
        headers = [line.partition(":") for line in lines]
        return int(rest[:3]), {name.strip().lower(): value.strip() for name, _, value in headers}

    def body(self, length: int) -> bytes:
        while len(self.left) < length:
            self._more()
        found = bytes(self.left[:length])
        del self.left[:length]
        return found

    def chunks(self) -> bytes:
        data = bytearray()
        while length := number(self._until(b"\r\n").decode("latin-1").partition(";")[0], 16):
            number(str(len(data) + length), 10)
            data += self.body(length)
            self._until(b"\r\n")
        while self._until(b"\r\n"):
            self._seconds()  # what comes after the last chunk tells us nothing
        return bytes(data)


def number(text: str, base: int) -> int:
    try:
        found = int(text.strip(), base)
    except ValueError:
        found = -1
    if not 0 <= found <= ANSWER_LIMIT:
        raise UnfitError(
            f"the answer has a length of {shown(text)}; the limit is {ANSWER_LIMIT:,} bytes",
            next="ask for fewer, with limit, or look at the address",
        )
    return found


def look(handle: int, seconds: float, other: int | None = None) -> list[int]:
    """Wait until one of these can be read, and say which."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if other is not None:
        poll.register(other, select.POLLIN)
    return [ready for ready, _ in poll.poll(seconds * 1000)]
