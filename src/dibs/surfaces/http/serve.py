"""The process of the daemon: where it listens, what it takes for a request, and its end.

uvicorn reads heads of any size for any time. Here a head has a limit, a request must have come
within a time, and what cannot be understood is refused in the shape that all refusals have.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import resource
import signal
import socket
import ssl
import stat
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from dibs.digest import sha256
from dibs.errors import InvalidError
from dibs.surfaces.http import a2a, mcp_endpoint, watching
from dibs.surfaces.http.access import CALLS_PER_S, GuardError, Rate
from dibs.surfaces.http.api import to_body
from dibs.surfaces.http.app import App, Daemon
from dibs.surfaces.http.home import Home, name_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from starlette.routing import BaseRoute

    from dibs.dibs import Dibs

GRACE_S = 5
"""From the signal to the end of the process, whatever clients do meanwhile."""
IDLE_S = 75
"""How long a connection may stay open without a request."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
HEAD_LIMIT = 32 * 1024
REQUEST_S = 15.0
"""How long a client may take to send one whole request."""
WILDCARDS = ("0.0.0.0", "::", "")


def routes() -> list[BaseRoute]:
    """Everything that is not an operation."""
    return [
        *watching.ROUTES,
        Route("/mcp", mcp_endpoint.McpEndpoint()),
        Route("/.well-known/agent-card.json", a2a.card),
        Route("/a2a", a2a.A2aEndpoint()),
    ]


@dataclass
class Listening:
    """Where a daemon listens, and under which names it is reached."""

    host: str = "127.0.0.1"
    port: int = 4242
    unix: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    behind_proxy: bool = False
    public_hosts: tuple[str, ...] = ()
    calls_per_s: int = CALLS_PER_S

    def __post_init__(self) -> None:
        if self.unix is not None:
            self.unix = os.path.abspath(self.unix)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidError("a certificate and its key go together", next="give both")
        if self.tls_cert is not None and self.tls_key is not None:
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.tls_cert, self.tls_key, password="")
            except OSError as error:
                raise InvalidError(
                    f"{self.tls_cert} and {self.tls_key} are not a certificate and its key "
                    f"without a passphrase: {error}"
                ) from error
        elif self.unix is None and not self.behind_proxy and not is_loopback(self.host):
            raise InvalidError(
                f"{self.host or 'every address'} can be reached from other machines, "
                "which would see all tokens",
                next="give --tls-cert and --tls-key, or --behind-proxy if a proxy has them",
            )
        if self.unix is None and self.host in WILDCARDS and not self.public_hosts:
            raise InvalidError(
                "under which names will it be reached there?", next="give --public-host NAME"
            )

    @property
    def secure(self) -> bool:
        """Whether browsers reach it by TLS only."""
        return self.tls_cert is not None or (self.behind_proxy and bool(self.public_hosts))

    @property
    def url(self) -> str:
        """The address to open, once it is bound."""
        if self.unix is not None:
            return f"unix:{self.unix}"
        host = self.host if self.host not in WILDCARDS else self.public_hosts[0]
        host = f"[{host}]" if ":" in host else host
        return f"{'http' if self.tls_cert is None else 'https'}://{host}:{self.port}"

    def hosts(self) -> list[str]:
        """What may stand in the Host of a request."""
        if self.unix is not None:
            return ["localhost", *self.public_hosts]
        names = [*self.public_hosts]
        if self.host not in WILDCARDS:
            names.append(f"[{self.host}]" if ":" in self.host else self.host)
        if is_loopback(self.host):
            names += ["localhost", "127.0.0.1", "[::1]"]
        with_port = [f"{name}:{self.port}" for name in names]
        # The port of the scheme is left out; and a proxy is reached at a port of its own.
        usual = self.port == (80 if self.tls_cert is None else 443)
        return [*with_port, *(names if usual else self.public_hosts)]

    def bind(self) -> socket.socket:
        if self.unix is not None:
            return bind_unix(self.unix)
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            bound = socket.create_server((self.host, self.port), family=family, backlog=4096)
        except OSError as error:
            why = f"cannot listen at {self.host}, port {self.port}: {error.strerror or error}"
            if error.errno == errno.EADDRINUSE:
                why = f"port {self.port} is taken"
            hint = "give another with --port, or --port 0 for any that is free"
            raise InvalidError(why, next=hint) from error
        self.port = bound.getsockname()[1]
        return bound


def is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def bind_unix(path: str) -> socket.socket:
    """A socket at a path, for this user only; one that nobody listens at is cleared away."""
    bound = socket.socket(socket.AF_UNIX)
    try:
        if os.path.exists(path):
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise InvalidError(f"{path} is there and is no socket", next="give another path")
            with socket.socket(socket.AF_UNIX) as other, contextlib.suppress(ConnectionError):
                other.connect(path)
                raise InvalidError(f"somebody listens at {path}", next="give another path")
            os.unlink(path)
        before = os.umask(0o177)
        try:
            bound.bind(path)
        finally:
            os.umask(before)
        bound.listen(4096)
    except BaseException as error:
        bound.close()
        if isinstance(error, OSError):
            raise InvalidError(f"cannot listen at {path}: {error.strerror or error}") from error
        raise
    return bound


class Gathering:
    """A transport that sends all that is written in one turn of the loop at once.

    uvicorn writes the head and the body of an answer one after the other, and each would be a
    packet of its own.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []
        self._lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._lost:
            return
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def _send(self) -> None:
        written, self._written = self._written, []
        if written:
            self._transport.write(b"".join(written))

    def close(self) -> None:
        self._send()
        self._transport.close()

    def lose(self) -> None:
        """Nobody is there any more: uvloop raises if a transport that has ended is written to."""
        self._lost = True
        self._written = []


class HttpConnection(HttpToolsProtocol):
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _came = 0
    _in_head = False
    _whole = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._gathering = Gathering(transport, self.loop)
        super().connection_made(self._gathering)  # type: ignore[arg-type]
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._gathering.lose()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._came = len(data)
        super().data_received(data)
        if self._in_head:
            # What a parser keeps of a head that has no end, it keeps in memory.
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT:
                self.send_400_response("the head is too large")
                return
        if self._whole:
            self._disarm()
        elif self._timer is None:
            self._arm()

    def on_message_begin(self) -> None:
        self._whole, self._in_head, self._head_bytes = False, True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head_bytes + self._came > HEAD_LIMIT:  # there may be a body in that as well
            size = sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url)
            if size > HEAD_LIMIT:
                self._head_bytes = size
                raise ValueError("the head is too large")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > HEAD_LIMIT:
            self.refuse(431, "head_too_large", f"a head has at most {HEAD_LIMIT:,} bytes")
        else:
            self.refuse(400, "bad_request", "this is not a request of HTTP/1.1")

    def _arm(self) -> None:
        self._timer = self.loop.call_later(REQUEST_S, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.cycle is not None and self.cycle.response_started:
            self.transport.close()
        else:
            self.refuse(408, "too_slow", f"a request must have come within {REQUEST_S:.0f} s")

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer what never became a request, and hang up."""
        if self.transport.is_closing():
            return
        refusal = GuardError(status, code, message, "send a smaller, plainer one")
        body = to_body(refusal.to_json())
        self.transport.write(
            STATUS_LINE[status] + b"content-type: application/json\r\ncontent-length: "
            b"%d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()


class DaemonServer(uvicorn.Server):
    """uvicorn, told when to say that it is ready, and to end in peace."""

    def __init__(
        self,
        config: uvicorn.Config,
        daemon: Daemon,
        ready: Callable[[], None],
        over: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._daemon = daemon
        self._ready = ready
        self._over = over

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # First, or those who wait would be waited for.
        last = threading.Timer(GRACE_S, self._end)
        last.daemon = True
        last.start()
        self._daemon.hush()
        await super().shutdown(sockets)

    def _end(self) -> None:
        """End at once: what is acknowledged is stored, and what still runs is not."""
        self._over()
        os._exit(0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn raises the signal again at the end; to be asked to end is no failure.
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    space: Dibs, listening: Listening, user_dir: str | None, ready: Callable[[dict[str, Any]], None]
) -> None:
    """Serve a space until the process is asked to end; call `ready` once it answers."""
    os.umask(0o077)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    store, place = space.scope.store, space.scope.place
    # Callers are elsewhere, so their paths are read from the top, not from where we were started.
    place.start = place.top
    home = Home(user_dir)
    if store.liveness is not None:
        home.reserve(space)
    bound = listening.bind()
    word = {
        "url": listening.url,
        "token": home.token(space),
        "pid": os.getpid(),
        "space": space.space,
        "serves": name_of(space),
        "cert": listening.tls_cert and os.path.abspath(listening.tls_cert),
    }
    daemon = Daemon(space, listening.hosts())
    daemon.rate = Rate(listening.calls_per_s)
    # A browser sends the cookies of one host to all its ports, so daemons must not share a name.
    daemon.sign_ins.cookie += f"_{sha256(name_of(space).encode()).hexdigest()[:8]}"
    daemon.sign_ins.secure = listening.secure

    def say_so() -> None:
        home.announce(word)
        ready(word)

    def over() -> None:
        home.forget(listening.url)
        if listening.unix is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(listening.unix)

    config = uvicorn.Config(
        App(daemon, routes()),
        http=HttpConnection,
        ws="none",
        lifespan="on",
        proxy_headers=False,
        access_log=False,
        # Whoever sends rubbish could fill the disk with our complaints about it.
        log_level="error",
        server_header=False,
        date_header=False,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=GRACE_S - 2,
        ssl_certfile=listening.tls_cert,
        ssl_keyfile=listening.tls_key,
    )
    try:
        DaemonServer(config, daemon, say_so, over).run(sockets=[bound])
    finally:
        over()
