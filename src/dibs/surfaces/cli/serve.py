"""`dibs serve`: the daemon, in the foreground, detached, or as a unit of systemd."""

from __future__ import annotations

import os
import sys

from dibs.dibs import DAEMON
from dibs.errors import InvalidError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.dibs import Dibs
    from dibs.surfaces.http.serve import Listening
    from dibs.surroundings.commands import Globals

HELP = """usage: dibs serve [--host ADDRESS] [--port NUMBER | --unix PATH] [options]

Serve this space over HTTP, with a live dashboard, to agents elsewhere and to people.

  --host ADDRESS           where to listen (127.0.0.1)
  --port NUMBER            at which port (4242); 0 takes one that is free
  --unix PATH              listen at a Unix socket instead, for this user only
  --tls-cert FILE          the certificate to serve with, as PEM
  --tls-key FILE           and its key
  --behind-proxy           a proxy in front does TLS; needed for other machines without a
                           certificate
  --public-host NAME       another name it is reached under; may be given several times
  --rate NUMBER            how many calls a second one token may make (10000)
  --detach                 return when it is ready, and leave it running
  --print-unit             print a unit for systemd --user, and start nothing

example: dibs serve --detach"""

VALUES = ("--host", "--port", "--unix", "--tls-cert", "--tls-key", "--public-host", "--rate")
FLAGS = ("--behind-proxy", "--detach", "--print-unit")
READY = b"!"


class Options:
    """The words after `dibs serve`."""

    def __init__(self, words: list[str]) -> None:
        self.given: list[tuple[str, str]] = []
        self.flags: set[str] = set()
        words = list(words)
        while words:
            name, equals, value = words.pop(0).partition("=")
            if name in FLAGS and not equals:
                self.flags.add(name)
                continue
            if name not in VALUES:
                raise InvalidError(
                    f"dibs serve does not understand {name}", next="dibs serve --help"
                )
            if not equals:
                if not words:
                    raise InvalidError(f"{name} needs a value", next="dibs serve --help")
                value = words.pop(0)
            self.given.append((name, value))

    def one(self, name: str) -> str | None:
        return next((value for given, value in reversed(self.given) if given == name), None)

    def number(self, name: str, default: int, low: int, high: int) -> int:
        text = self.one(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
            raise InvalidError(f"{name} is {text!r}", next=f"give a number from {low} to {high}")
        return int(text)

    def listening(self) -> Listening:
        from dibs.surfaces.http.guard import CALLS_PER_S
        from dibs.surfaces.http.serve import Listening

        port = self.number("--port", 4242, 0, 65_535)
        if self.one("--unix") is not None and (self.one("--host") or self.one("--port")):
            raise InvalidError("a Unix socket has no host and no port", next="leave them out")
        host = self.one("--host")
        return Listening(
            "127.0.0.1" if host is None else host,
            port,
            unix=self.one("--unix"),
            tls_cert=self.one("--tls-cert"),
            tls_key=self.one("--tls-key"),
            behind_proxy="--behind-proxy" in self.flags,
            public_hosts=tuple(value for name, value in self.given if name == "--public-host"),
            calls_per_s=self.number("--rate", CALLS_PER_S, 1, 1_000_000),
        )


def main(globals_: Globals, words: list[str]) -> int:
    options = Options(words)
    if globals_.store and globals_.store.startswith(DAEMON):
        raise InvalidError(
            "a daemon serves a store, not another daemon", next="unset DIBS_URL, or give --store"
        )
    if "--print-unit" in options.flags:
        options.listening()
        print(unit(globals_, options), end="")
        return 0
    if "--detach" in options.flags:
        return detach(globals_, options)
    run(globals_, options, -1)
    return 0


def run(globals_: Globals, options: Options, parent: int) -> None:
    """Serve until the end; parent: where somebody waits to hear that it is ready, or -1."""
    from dibs.surfaces.http.serve import serve

    listening = options.listening()
    space = globals_.open()

    def ready(word: dict[str, Any]) -> None:
        if globals_.json:
            from dibs.surroundings.wording import print_json

            print_json({name: word[name] for name in ("url", "space", "pid")})
        else:
            print(f"dibs serves {word['space']} at {word['url']}")
        sys.stdout.flush()
        if parent >= 0:
            to_log(log_file(space, globals_.user_dir))
            os.write(parent, READY)
            os.close(parent)

    serve(space, listening, globals_.user_dir, ready)


def detach(globals_: Globals, options: Options) -> int:
    """Leave a daemon running, once it answers; what keeps it from that is said here."""
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setsid()
        run(globals_, options, write)
        return 0
    os.close(write)
    if os.read(read, 1) == READY:
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def log_file(space: Dibs, user_dir: str | None) -> str:
    """Beside the store where that is a file, else among what the user's daemons leave."""
    from dibs.surfaces.http.home import Home, name_of

    store = space.scope.store
    if store.liveness is not None:
        return os.path.join(f"{store.driver.address}.d", "daemon.log")
    return Home(user_dir).file(name_of(space), "log")


def to_log(path: str) -> None:
    """Let go of the terminal: from now on, what is said goes to a file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(nothing)
    os.close(log)


def unit(globals_: Globals, options: Options) -> str:
    """A unit that starts this daemon with the user's session."""
    from dibs.surfaces.http.serve import GRACE_S

    store = globals_.store or ""
    if "@" in store and ":" in store.rpartition("@")[0].partition("://")[2]:
        raise InvalidError(
            "a unit is no place for a password", next="put it into ~/.pgpass, and leave it out here"
        )
    command = [sys.executable, "-m", "dibs", "serve"]
    for name, value in options.given:
        path = name in ("--unix", "--tls-cert", "--tls-key")
        command += [name, os.path.abspath(value) if path else value]
    command += sorted(options.flags - {"--print-unit", "--detach"})
    known = {"DIBS_URL": store, "DIBS_SPACE": globals_.space or ""}
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
