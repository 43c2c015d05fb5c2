"""HTTP/1.1 as far as a client of the daemon needs it: a POST with JSON, and its answer.

The client of the standard library would take longer to import than a command takes to run, and
could not stop waiting for an answer.

Anybody may answer. So a request has one deadline, however slowly data comes, an answer has a
limit, and no redirect is followed: a token goes only to the address it was given for.
"""

from __future__ import annotations

import _socket
import select
from _thread import allocate_lock, start_new_thread
from time import monotonic

from dibs.arguments import refuse_depth, shown
from dibs.errors import InvalidError, UnfitError
from dibs.records import plain, to_ascii
from dibs.storage.clock import bearable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.storage.waiting import Cancel

CALL_S = 10.0
"""How long a call may take, not counting the time it was asked to wait."""
HUSH_S = 5.0
"""How long a wait stays silent before we ask whether the daemon is still there, and how long that
may take."""
CONNECT_S = 5.0
CHUNK = 1 << 16
AGAIN_S = 0.05
BODY_LIMIT = 4 * 1024 * 1024
"""The largest request that a daemon accepts, more than the largest escaped value of a store.

It hangs up on a larger one before all of it has come."""
HEAD_LIMIT = 1 << 16
ANSWER_LIMIT = 64 * 1024 * 1024
"""Larger than any answer of a daemon."""
SCHEMES = {"http": 80, "https": 443, "http+unix": 0}
ADVICE = "write http://host:port, or unix:/path/to/the/socket"


class BrokenError(Exception):
    """What came is not a complete answer."""


class SilentError(BrokenError):
    """Nothing at all came for as long as the caller tolerates."""


class Watch:
    """What looks after a call that waits.

    cancel: through which another thread ends the wait
    give_up: tells the daemon so, by a time; its answer then says how the wait ended
    ask: asks the daemon whether it is there, by a time; raises if not
    """

    def __init__(
        self, cancel: Cancel | None, give_up: Callable[[float], None], ask: Callable[[float], None]
    ) -> None:
        self.cancel = cancel
        self.give_up = give_up
        self.ask = ask


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
                next="give the token separately: DIBS_TOKEN, or token=",
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
            raise InvalidError(f"{url!r} has no port", next=ADVICE)
        self.host, self.port = host.strip("[]"), int(number)

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for equal addresses, however they are spelled."""
        host = self.host.lower()
        host = "127.0.0.1" if host == "localhost" else host
        return (self.tls, host, self.port, self.socket, self.prefix)

    def connect(self, cert: str | None, by: float) -> Any:
        """A connected socket; over TLS, a server with exactly this certificate is accepted too."""
        if self.socket:
            found: list[tuple[int, Any]] = [(_socket.AF_UNIX, self.socket)]
        else:
            # The daemon known by that name listens at 127.0.0.1; ::1 may be another program.
            host = "127.0.0.1" if self.host.lower() == "localhost" else self.host
            found = resolved(host, self.port, by)
        error: OSError | None = None
        for family, address in found:
            end = _socket.socket(family, _socket.SOCK_STREAM)
            try:
                end.settimeout(max(0.01, bearable(min(CONNECT_S, by - monotonic()))))
                end.connect(address)
                if not self.socket:
                    end.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
                    # So that a machine that is gone is noticed even during a long wait.
                    end.setsockopt(_socket.SOL_SOCKET, _socket.SO_KEEPALIVE, 1)
                return self._encrypted(end, cert, by) if self.tls else end
            except OSError as failure:
                end.close()
                error = failure
        raise error or OSError(f"{self.host} has no address")

    def _encrypted(self, end: _socket.socket, cert: str | None, by: float) -> Any:
        import socket
        import ssl

        plain = socket.socket(fileno=end.detach())
        plain.settimeout(max(0.01, bearable(min(CONNECT_S, by - monotonic()))))
        try:
            context = ssl.create_default_context()
            if cert is not None:
                context.load_verify_locations(cert)
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            return context.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def resolved(host: str, port: int, by: float) -> list[tuple[int, Any]]:
    """The addresses of a host, found by a deadline: the resolver may be silent too."""
    found: list[Any] = []
    done = allocate_lock()
    done.acquire()

    def ask() -> None:
        try:
            # As bytes: for text, Python would load its tables for international names.
            found.append(_socket.getaddrinfo(host.encode(), port, 0, _socket.SOCK_STREAM))
        except OSError as error:
            found.append(error)
        finally:
            done.release()

    if ":" in host or host.replace(".", "").isdigit():
        ask()
    else:
        start_new_thread(ask, ())
    if not done.acquire(timeout=max(0.01, bearable(by - monotonic()))):
        raise TimeoutError(f"the name {host} could not be resolved in time")
    if isinstance(found[0], OSError):
        raise found[0]
    return [(family, address) for family, _, _, _, address in found[0]]


class ClientConnection:
    """One connection, for one request after the other."""

    def __init__(self, address: Address, token: str, by: float, cert: str | None = None) -> None:
        """A connection made by a deadline on this process's clock."""
        self._address = address
        self._token = token
        self._socket = address.connect(cert, by)
        self.open = True

    def fresh(self) -> bool:
        """Whether nothing has come since the last answer: no end and no unexpected data."""
        return not look(self._socket.fileno(), 0)

    def close(self) -> None:
        self.open = False
        self._socket.close()

    def post(
        self, path: str, headers: dict[str, str], body: bytes, end: float, watch: Watch | None
    ) -> tuple[int, bytes]:
        """Send a request, and return the status and the body of its answer.

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
        reader = Reader(self._socket, end, watch)
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

    def __init__(self, socket: Any, end: float, watch: Watch | None) -> None:
        self._socket = socket
        self._watch = watch
        self._end = end
        self.left = bytearray()

    def _seconds(self) -> float:
        """How much time is left."""
        left = self._end - monotonic()
        if left <= 0:
            raise BrokenError("no complete answer came in time")
        return left

    def send(self, data: bytes) -> None:
        sent, view = 0, memoryview(data)
        while sent < len(data):
            self._socket.settimeout(bearable(self._seconds()))
            try:
                sent += self._socket.send(view[sent : sent + CHUNK])
            except TimeoutError:
                raise SilentError("it accepts no data") from None
        if self._watch is not None:
            self._socket.settimeout(0)

    def _more(self) -> None:
        while True:
            if self._watch is not None:
                self._ready(self._watch)
            else:
                self._socket.settimeout(bearable(self._seconds()))
            try:
                data: bytes = self._socket.recv(CHUNK)
            except TimeoutError:
                raise SilentError("no answer came") from None
            except OSError as error:
                # Over TLS, data may come that is not yet readable.
                if type(error).__name__ in ("BlockingIOError", "SSLWantReadError"):
                    continue
                raise
            if not data:
                raise BrokenError("the connection was closed")
            self.left += data
            return

    def _ready(self, watch: Watch) -> None:
        """Wait until something comes, and check that something still can."""
        handle = self._socket.fileno()
        cancelled = None if watch.cancel is None else watch.cancel.fileno()
        if getattr(self._socket, "pending", int)():
            return
        while handle not in (
            ready := look(handle, bearable(min(self._seconds(), HUSH_S)), cancelled)
        ):
            if not ready:
                self._seconds()
                watch.ask(self._end)
                continue
            # It may be too early: the daemon may not know of the wait yet.
            self._end = min(self._end, monotonic() + CALL_S)
            watch.give_up(self._end)
            if look(handle, min(AGAIN_S, self._seconds())):
                break
        self._seconds()

    def _until(self, mark: bytes) -> bytes:
        while mark not in self.left:
            if len(self.left) > HEAD_LIMIT:
                raise BrokenError("the header of the answer is too long")
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
            self._seconds()  # what follows the last chunk is not needed
        return bytes(data)


def number(text: str, base: int) -> int:
    try:
        found = int(text.strip(), base)
    except ValueError:
        found = -1
    if not 0 <= found <= ANSWER_LIMIT:
        raise UnfitError(
            f"the answer has a length of {shown(text)}; the limit is {ANSWER_LIMIT:,} bytes",
            next="ask for fewer with limit, or check the address",
        )
    return found


def look(handle: int, seconds: float, other: int | None = None) -> list[int]:
    """Wait until one of these can be read, and return which."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if other is not None:
        poll.register(other, select.POLLIN)
    return [ready for ready, _ in poll.poll(seconds * 1000)]


def check_token(token: str) -> None:
    """Refuse what cannot be put in a header."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidError(
            "this is not a token", next="give the secret that dibs token add printed"
        )


def to_body(given: dict[str, Any]) -> bytes:
    for name, value in given.items():
        refuse_depth(name, value)
    try:
        # Sorted as in the store, so that keys that cannot be sorted are refused here too.
        text = to_ascii(plain(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidError(f"an argument cannot be written as JSON: {error}") from None
    if len(text) > BODY_LIMIT:
        raise InvalidError(
            f"the arguments have {len(text):,} bytes as JSON; a daemon accepts {BODY_LIMIT:,}",
            next="store the large part in a file and put its path here",
            limit=BODY_LIMIT,
        )
    return text.encode("ascii")
