"""The process of the daemon: where it listens, and how it stops."""

from __future__ import annotations

import asyncio
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
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.routing import Route

from dibs import __version__
from dibs.digest import sha256
from dibs.errors import DibsError, InvalidError
from dibs.nouns.agents import operations as agents
from dibs.surfaces.http import a2a, mcp_endpoint, metering, watching
from dibs.surfaces.http.access import CALLS_PER_S, Rate
from dibs.surfaces.http.app import App, Daemon
from dibs.surfaces.http.connection import SPARE, HttpConnection
from dibs.surfaces.http.exchange import Prompt
from dibs.surfaces.http.home import Home, name_of
from dibs.surroundings.wording import complaint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.routing import BaseRoute

    from dibs.dibs import Dibs
    from dibs.telemetry.sending import Settings

GRACE_S = 5
"""The time from the signal to the end of the process, whatever clients do."""
ANSWERED_S = GRACE_S - 2
"""How soon after it clients with unfinished calls are told that the daemon is stopping."""
HANDSHAKE_S = 10.0
IDLE_S = 75
"""How long a connection may stay open without a request."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
WILDCARDS = ("0.0.0.0", "::", "")


def routes() -> list[BaseRoute]:
    """Everything that is not an operation."""
    return [
        *watching.ROUTES,
        Route("/v1/metrics", metering.Metering().answer, methods=["POST"]),
        Route("/mcp", mcp_endpoint.McpEndpoint()),
        Route("/.well-known/agent-card.json", a2a.card),
        Route("/a2a", a2a.A2aEndpoint()),
    ]


@dataclass
class Listening:
    """Where a daemon listens, and under which names clients reach it."""

    host: str = "127.0.0.1"
    port: int = 4242
    any_port: bool = False
    """Whether another port does as well, if that one is taken."""
    unix: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    behind_proxy: bool = False
    public_hosts: tuple[str, ...] = ()
    calls_per_s: int = CALLS_PER_S
    idle_s: float = 0
    telemetry: Settings | None = None

    def __post_init__(self) -> None:
        if self.unix is not None:
            self.unix = os.path.abspath(self.unix)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidError(
                "a certificate needs its key, and a key its certificate", next="give both"
            )
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
                "the name under which clients reach it is missing", next="give --public-host NAME"
            )

    @property
    def secure(self) -> bool:
        """Whether browsers reach it over TLS only."""
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
        """The allowed values of a request's Host header."""
        if self.unix is not None:
            return ["localhost", *self.public_hosts]
        names = [*self.public_hosts]
        if self.host not in WILDCARDS:
            names.append(f"[{self.host}]" if ":" in self.host else self.host)
        if is_loopback(self.host):
            names += ["localhost", "127.0.0.1", "[::1]"]
        with_port = [f"{name}:{self.port}" for name in names]
        # Browsers leave out the default port, and a proxy has a port of its own.
        usual = self.port == (80 if self.tls_cert is None else 443)
        return [*with_port, *(names if usual else self.public_hosts)]

    def bind(self) -> socket.socket:
        if self.unix is not None:
            return bind_unix(self.unix)
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            bound = socket.create_server((self.host, self.port), family=family, backlog=4096)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and self.any_port:
                self.port, self.any_port = 0, False
                return self.bind()
            why = f"cannot listen at {self.host}, port {self.port}: {error.strerror or error}"
            if error.errno == errno.EADDRINUSE:
                why = f"port {self.port} is taken"
            hint = "choose another with --port, or --port 0 for any free port"
            raise InvalidError(why, next=hint) from error
        self.port = bound.getsockname()[1]
        return bound


def is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def bind_unix(path: str) -> socket.socket:
    """A socket at a path, for this user only; an abandoned one is removed."""
    bound = socket.socket(socket.AF_UNIX)
    try:
        if os.path.exists(path):
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise InvalidError(f"{path} exists and is not a socket", next="give another path")
            with socket.socket(socket.AF_UNIX) as other, contextlib.suppress(ConnectionError):
                other.connect(path)
                raise InvalidError(f"another process listens at {path}", next="give another path")
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


class DaemonServer(uvicorn.Server):
    """uvicorn with a callback when it is ready, and a quiet end."""

    def __init__(
        self,
        config: uvicorn.Config,
        daemon: Daemon,
        ready: Callable[[], None],
        over: Callable[[], None],
        idle_s: float = 0,
    ) -> None:
        super().__init__(config)
        self._idle_s = idle_s
        self._daemon = daemon
        self._ready = ready
        self._over = over
        self.lost: DibsError | None = None
        """Why there is nothing left to serve."""
        daemon.lost = self._lose

    def _lose(self, error: DibsError) -> None:
        self.lost, self.should_exit = error, True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        if self.config.is_ssl:
            # uvicorn uses the loop's limit for a handshake, which is a minute.
            loop.create_server = partial(  # type: ignore[method-assign]
                loop.create_server, ssl_handshake_timeout=HANDSHAKE_S
            )
        await super().startup(sockets)
        if self.started:
            self._ready()
            if self._idle_s:
                self._idling = asyncio.create_task(self._end_when_idle())

    async def _end_when_idle(self) -> None:
        """Stop after the given time without calls or waits."""
        seen, since = -1, time.monotonic()
        while not self.should_exit:
            calls = sum(self._daemon.calls.values())
            if calls != seen or self._daemon.waits.number:
                seen, since = calls, time.monotonic()
            elif time.monotonic() - since >= self._idle_s:
                self.should_exit = True
            await asyncio.sleep(min(1.0, self._idle_s / 4))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # First, otherwise uvicorn would wait for waiting calls.
        last = threading.Timer(GRACE_S, self._end)
        last.daemon = True
        last.start()
        self._daemon.hush()
        asyncio.get_running_loop().call_later(ANSWERED_S, Prompt.give_up)
        if self.lost is not None:
            # Another daemon can start here before everybody has been answered.
            for server in self.servers:
                server.close()
            self._over()
        await super().shutdown(sockets)

    def _end(self) -> None:
        """Stop at once: what was acknowledged is stored, and what still runs is not."""
        self._over()
        if self.lost is not None:
            complaint(self.lost)
            os._exit(self.lost.exit_code)
        os._exit(0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn raises the signal again at the end, but a requested stop is no failure.
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    space: Dibs,
    listening: Listening,
    ready: Callable[[dict[str, Any]], None],
    user_dir: str | None = None,
    store: str = "",
) -> None:
    """Serve a space until the process is asked to end; call `ready` once it answers.

    store: the name under which commands look for a daemon of this store
    """
    os.umask(0o077)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    place = space.scope.place
    # Callers are elsewhere, so their paths are relative to the top, not to our directory.
    place.start = place.top
    home = Home(user_dir)
    if space.scope.store.liveness is not None:
        home.reserve(space, name_of(space))
    elif listening.idle_s:
        home.reserve(space, store)  # one daemon that starts and stops by itself is enough
    bound = listening.bind()
    secret = home.token(space)
    word = {
        "url": listening.url,
        "token": secret,
        "pid": os.getpid(),
        "space": space.space,
        "serves": name_of(space),
        "cert": listening.tls_cert and os.path.abspath(listening.tls_cert),
        "store": store,
        "version": __version__,
    }
    daemon = Daemon(space, listening.hosts())
    owner = agents.who(space.scope, secret)
    daemon.tokens.owner = None if owner is None else owner["id"]
    if listening.telemetry is not None:
        from dibs.surfaces.http.exporting import Exporter  # most daemons send none

        daemon.exporter = Exporter(daemon, listening.telemetry, home, watching.figures)
    daemon.rate = Rate(listening.calls_per_s)
    # A browser sends cookies to all ports of a host, so daemons need different cookie names.
    daemon.sign_ins.cookie += f"_{sha256(name_of(space).encode()).hexdigest()[:8]}"
    daemon.sign_ins.secure = listening.secure
    HttpConnection.behind_proxy = listening.behind_proxy
    HttpConnection.room = max(hard - SPARE, SPARE)
    HttpConnection.daemon = daemon
    HttpConnection.paths = {path.encode(): path for path in daemon.operations}

    def say_so() -> None:
        home.announce(word)
        ready(word)

    def over() -> None:
        if home.forget(listening.url) and listening.unix is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(listening.unix)

    config = uvicorn.Config(
        App(daemon, routes()),
        http=HttpConnection,
        ws="none",
        lifespan="on",
        proxy_headers=False,
        access_log=False,
        # Invalid requests could fill the disk with log lines.
        log_level="error",
        server_header=False,
        date_header=False,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=ANSWERED_S,
        ssl_certfile=listening.tls_cert,
        ssl_keyfile=listening.tls_key,
    )
    server = DaemonServer(config, daemon, say_so, over, listening.idle_s)
    try:
        server.run(sockets=[bound])
    finally:
        over()
    if server.lost is not None:
        raise server.lost
