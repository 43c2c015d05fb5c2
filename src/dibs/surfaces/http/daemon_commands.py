"""`dibs serve`, `dibs open` and `dibs stop`: start a daemon, open its dashboard, stop it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from dibs.arguments import Whole
from dibs.dibs import DAEMON, POSTGRES, Dibs
from dibs.errors import InvalidError, NotFoundError, NotYoursError, UnavailableError
from dibs.operation import EVERYBODY, PEOPLE
from dibs.storage.folder import open_own
from dibs.surfaces.http.access import CALLS_PER_S
from dibs.surfaces.http.home import Home, name_of
from dibs.surroundings.who import person
from dibs.surroundings.wording import print_json, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    import http.client
    from collections.abc import Sequence
    from typing import Any

    from dibs.surfaces.http.serve import Listening
    from dibs.surroundings.commands import Globals
    from dibs.telemetry.sending import Settings

# Opening the dashboard signs in as an admin.
BY = {"serve": EVERYBODY, "open": PEOPLE, "stop": EVERYBODY}
DESTRUCTIVE = ("stop",)
KINDS = {"port": Whole(0, 65_535), "rate": Whole(1, 1_000_000)}
READY = b"!"
OPEN_S, STOP_S = 10.0, 15.0
"""How long to wait for a daemon to answer, and to stop."""


def serve(
    call: Globals,
    *,
    host: str | None = None,
    port: int | None = None,
    unix: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    behind_proxy: bool = False,
    public_host: Sequence[str] = (),
    rate: int = CALLS_PER_S,
    idle_s: float = 0,
    otlp: str = "",
    detach: bool = False,
    print_unit: bool = False,
) -> int:
    """Serve this space over HTTP, with a live dashboard, to other machines and to people.

    host: the address to listen on; by default 127.0.0.1
    port: the port; by default 4242, or a free one if that is taken; 0 takes any free one
    unix: listen on a Unix socket at this path instead, for this user only
    tls_cert: the certificate to serve with, as a PEM file
    tls_key: the file with its key
    behind_proxy: a proxy in front does TLS; needed for other machines without a certificate
    public_host: another name under which clients reach it
    rate: how many calls a second one token may make
    idle_s: stop after this long without a call; by default never
    otlp: send spans and metrics to this address instead of OTEL_EXPORTER_OTLP_ENDPOINT
    detach: return when it is ready, and leave it running
    print_unit: print a unit for systemd --user instead of starting
    example: --detach
    """
    if call.store and call.store.startswith(DAEMON):
        raise InvalidError(
            "a daemon serves a store, not another daemon", next="unset DIBS_URL, or give --store"
        )
    if unix is not None and (host is not None or port is not None):
        raise InvalidError("a Unix socket has no host and no port", next="leave them out")
    from dibs.surfaces.http.serve import Listening

    where: dict[str, Any] = {"host": host, "port": port}
    listening = Listening(
        **{name: value for name, value in where.items() if value is not None},
        any_port=port is None,
        unix=unix,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        public_hosts=tuple(public_host),
        calls_per_s=rate,
        idle_s=idle_s,
        telemetry=wanted(otlp),
    )
    if print_unit:
        say(unit(call, listening, otlp), end="")
    elif detach:
        return leave_running(call, listening)
    else:
        run(call, listening, -1)
    return 0


def wanted(otlp: str) -> Settings | None:
    """The settings for OpenTelemetry; None if it was not requested."""
    if not otlp and not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return None
    from dibs.telemetry.sending import settings

    return settings(os.environ, otlp)


def run(call: Globals, listening: Listening, parent: int) -> None:
    """Serve until stopped; parent: the pipe on which a parent waits for readiness, or -1."""
    from dibs.surfaces.http.serve import serve

    space = call.open()

    def ready(word: dict[str, Any]) -> None:
        if call.json:
            print_json({name: word[name] for name in ("url", "space", "pid")})
        else:
            say(f"dibs serves {word['space']} at {word['url']}")
        sys.stdout.flush()
        if parent >= 0:
            to_log(log_file(space))
            os.write(parent, READY)
            os.close(parent)

    store = call.store or ""
    if store.startswith(POSTGRES):
        from dibs.surroundings.nearby import mark

        store = mark(store, space.space, space.scope.store.driver.key())
    serve(space, listening, ready, store=store)


def leave_running(call: Globals, listening: Listening) -> int:
    """Leave a daemon running once it answers; report here why it does not."""
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setsid()
        run(call, listening, write)
        return 0
    os.close(write)
    if os.read(read, 1) == READY:
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def log_file(space: Dibs) -> str:
    """Beside the store if that is a file, otherwise in the folder of the user's daemons."""
    store = space.scope.store
    if store.liveness is not None:
        return os.path.join(f"{store.driver.address}.d", "daemon.log")
    return Home().file(name_of(space), "log")


def to_log(path: str) -> None:
    """Detach from the terminal: from now on, output goes to a file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(nothing)
    os.close(log)


def unit(call: Globals, listening: Listening, otlp: str = "") -> str:
    """A unit that starts this daemon with the user's session."""
    from dibs.surfaces.http.serve import GRACE_S

    store = call.store or ""
    if "@" in store and ":" in store.rpartition("@")[0].partition("://")[2]:
        raise InvalidError(
            "a unit must not contain a password",
            next="put it into ~/.pgpass, and leave it out here",
        )
    where: dict[str, Any] = {"host": listening.host, "port": listening.port}
    options: dict[str, Any] = {
        **(where if listening.unix is None else {"unix": listening.unix}),
        "tls-cert": listening.tls_cert and os.path.abspath(listening.tls_cert),
        "tls-key": listening.tls_key and os.path.abspath(listening.tls_key),
        "rate": listening.calls_per_s if listening.calls_per_s != CALLS_PER_S else None,
        "idle": listening.idle_s or None,
        "otlp": otlp or None,
    }
    command = [sys.executable, "-P", "-m", "dibs", "serve"]
    for name, value in options.items():
        command += [] if value is None else [f"--{name}", str(value)]
    for public in listening.public_hosts:
        command += ["--public-host", public]
    command += ["--behind-proxy"] if listening.behind_proxy else []
    known = {"DIBS_URL": store, "DIBS_SPACE": call.space or ""}
    known["XDG_DATA_HOME"] = os.environ.get("XDG_DATA_HOME", "")
    environment = "".join(
        f"Environment={quoted(f'{name}={value}')}\n" for name, value in known.items() if value
    )
    here = os.getcwd().replace("%", "%%")
    return (
        "# Save it as ~/.config/systemd/user/dibs.service, then:\n"
        "#   systemctl --user daemon-reload && systemctl --user enable --now dibs\n"
        "[Unit]\n"
        f"Description=dibs for {here}\n"
        "After=network.target\n\n"
        "[Service]\n"
        f"WorkingDirectory={here}\n"
        f"{environment}"
        f"ExecStart={' '.join(quoted(word).replace('$', '$$') for word in command)}\n"
        "Restart=on-failure\n"
        "RestartSec=1\n"
        f"TimeoutStopSec={GRACE_S + 5}\n"
        "UMask=0077\n"
        "NoNewPrivileges=true\n\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def quoted(word: str) -> str:
    """A word as systemd reads it back."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return text if text and not set(text) & set(" \t\"';#") else f'"{text}"'


def open(call: Globals, *, print: bool = False) -> int:
    """Open the dashboard of this space's daemon in the browser, signed in as you.

    Your name is that of --as NAME or DIBS_AGENT, or your login name. The link works once, within a
    minute.

    print: print the link instead
    """
    import webbrowser

    url, token, cert = daemon(call)
    if url.startswith("unix:"):
        raise InvalidError(
            "a browser cannot open a Unix socket", next="start another: dibs serve --port 0"
        )
    link = url + ask(url, token, cert, call.agent or person())
    if call.json:
        print_json({"url": link})
    elif print or not webbrowser.open(link):
        say(link)
    return 0


def daemon(call: Globals) -> tuple[str, str, str | None]:
    """Address, token and certificate of the daemon to open."""
    found = daemons(call)
    word = found[0] if found else {}
    there = call.store if call.store and call.store.startswith(DAEMON) else None
    url = there or word.get("url")
    if url is None:
        raise NotFoundError("no daemon of yours serves this space", next="dibs serve --detach")
    token = os.environ.get("DIBS_TOKEN") or word.get("token")
    if token is None:
        raise NotYoursError(f"there is no token for {url} here", next="set DIBS_TOKEN")
    return url.rstrip("/"), token, word.get("cert")


def ask(url: str, token: str, cert: str | None, name: str) -> str:
    """The path of a sign-in link, which only the owner gets."""
    body = json.dumps({"name": name})
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection = connect(url, cert)
    try:
        connection.request("POST", "/sign-in", body, headers)
        reply = connection.getresponse()
        answer: dict[str, Any] = json.loads(reply.read())
    except (OSError, ValueError) as error:
        raise UnavailableError(f"{url} does not answer: {error}", next="dibs serve") from error
    finally:
        connection.close()
    if reply.status != 200:
        raise NotYoursError(
            f"{url} refuses: {answer.get('message')}", next=answer.get("next") or "ask its owner"
        )
    return str(answer["path"])


def connect(url: str, cert: str | None) -> http.client.HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme == "http":
        return HTTPConnection(parts.hostname or "", parts.port, timeout=OPEN_S)
    import ssl

    context = ssl.create_default_context(cafile=cert)
    # It is our own daemon, known by its own certificate, whatever the name in it.
    context.check_hostname = cert is None
    return HTTPSConnection(parts.hostname or "", parts.port, timeout=OPEN_S, context=context)


def stop(call: Globals) -> int:
    """End the daemon that serves this space on this machine.

    Waiting calls are answered, and everything that was acknowledged is stored.
    """
    found = daemons(call)
    if not found:
        raise NotFoundError("no daemon of yours serves this space", next="dibs serve starts one")
    for word in found:
        end(call, word)
    if call.json:
        print_json([{name: word[name] for name in ("url", "space", "pid")} for word in found])
    else:
        for word in found:
            say(f"stopped the daemon of {word['space']} at {word['url']}")
    return 0


def daemons(call: Globals) -> list[dict[str, Any]]:
    """The announcements of this space's daemons, or of the one at the given address."""
    home = Home()
    if call.store and call.store.startswith(DAEMON):
        word = home.at(call.store)
        return [] if word is None else [word]
    with call.open() as space:
        return home.serving(space)


def end(call: Globals, word: dict[str, Any]) -> None:
    """Ask a daemon to stop, and wait until it has."""
    # It holds a lock on its announcement, so the process id is still its own.
    os.kill(word["pid"], signal.SIGTERM)
    home, limit = Home(), time.monotonic() + STOP_S
    while any(other["pid"] == word["pid"] for other in home.running()):
        if time.monotonic() > limit:
            raise UnavailableError(
                f"the daemon at {word['url']} does not stop", next=f"kill -9 {word['pid']}"
            )
        time.sleep(0.02)
