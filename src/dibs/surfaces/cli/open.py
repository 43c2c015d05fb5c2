"""`dibs open`: the dashboard in a browser, already signed in."""

from __future__ import annotations

import json
import os

from dibs.dibs import DAEMON
from dibs.errors import InvalidError, NotFoundError, NotYoursError, UnavailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import http.client
    from typing import Any

    from dibs.surroundings.commands import Globals

HELP = """usage: dibs open [--print]

Open the dashboard of this space's daemon in the browser, signed in as you: --as NAME, or your
name on this machine. The link works once, within a minute.

  --print                  print the link instead

example: dibs open"""

PATIENCE_S = 10.0


def main(globals_: Globals, words: list[str]) -> int:
    if words not in ([], ["--print"]):
        raise InvalidError(f"dibs open does not understand {words[0]}", next="dibs open --help")
    url, token, cert = daemon(globals_)
    if url.startswith("unix:"):
        raise InvalidError(
            "a browser does not open a Unix socket", next="dibs serve --port 0 beside it"
        )
    link = url + ask(url, token, cert, person(globals_))
    if globals_.json:
        from dibs.surroundings.wording import print_json

        print_json({"url": link})
    elif words or not browse(link):
        print(link)
    return 0


def daemon(globals_: Globals) -> tuple[str, str, str | None]:
    """Address, token and certificate of the daemon to look at."""
    from dibs.surfaces.cli.stop import daemons

    found = daemons(globals_)
    word = found[0] if found else {}
    there = globals_.store if globals_.store and globals_.store.startswith(DAEMON) else None
    url = there or word.get("url")
    if url is None:
        raise NotFoundError("no daemon of yours serves this space", next="dibs serve --detach")
    token = os.environ.get("DIBS_TOKEN") or word.get("token")
    if token is None:
        raise NotYoursError(f"there is no token for {url} here", next="set DIBS_TOKEN")
    return url.rstrip("/"), token, word.get("cert")


def person(globals_: Globals) -> str:
    import getpass

    try:
        return globals_.agent or getpass.getuser()
    except (OSError, KeyError):
        raise InvalidError("who are you?", next="give --as NAME") from None


def ask(url: str, token: str, cert: str | None, name: str) -> str:
    """The path of a link that signs in, which only the owner gets."""
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
        return HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    import ssl

    context = ssl.create_default_context(cafile=cert)
    # It is our own daemon, by its own certificate, whatever name that bears.
    context.check_hostname = cert is None
    return HTTPSConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S, context=context)


def browse(link: str) -> bool:
    import webbrowser

    return webbrowser.open(link)
