"""What the daemon relies on in uvicorn, and that no other uvicorn is installed with it.

uvicorn offers no way to bound the head of a request and the time it takes, to answer what is no
HTTP in our own words, or to end in peace. So `HttpConnection` and `DaemonServer` override methods
that it does not document, and any of its minor versions may change these without a word. Hence its
minor version is pinned. To move the pin, run this file and tests/surfaces/test_http_hostile.py.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import tomllib
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from dibs.surfaces.http.connection import HttpConnection, Whole
from dibs.surfaces.http.serve import DaemonServer

ROOT = Path(__file__).parent.parent.parent
OVERRIDDEN = [
    *((HttpConnection, HttpToolsProtocol, name) for name in (
        "connection_made",
        "connection_lost",
        "pause_writing",
        "resume_writing",
        "data_received",
        "on_message_begin",
        "on_headers_complete",
        "on_body",
        "on_message_complete",
        "send_400_response",
    )),
    *((DaemonServer, uvicorn.Server, name) for name in ("startup", "shutdown", "capture_signals")),
]  # fmt: skip


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def test_its_minor_version_is_pinned_to_the_one_that_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = (one for one in project["dependencies"] if one.startswith("uvicorn"))
    bounds = re.fullmatch(r"uvicorn>=0\.(\d+),<0\.(\d+)", wanted)
    assert bounds is not None, wanted
    low, high = map(int, bounds.groups())
    assert high == low + 1
    assert minor(uvicorn.__version__) == f"0.{low}"
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    (constraint,) = (line for line in constraints if line.startswith("uvicorn=="))
    assert minor(constraint.removeprefix("uvicorn==")) == f"0.{low}"


@pytest.mark.parametrize(("ours", "theirs", "name"), OVERRIDDEN)
def test_what_is_overridden_is_there_and_takes_the_same(
    ours: type, theirs: type, name: str
) -> None:
    assert name in vars(ours)
    assert name in vars(theirs)
    mine, original = (inspect.signature(getattr(cls, name)) for cls in (ours, theirs))
    assert list(mine.parameters) == list(original.parameters)


def test_nothing_else_of_it_is_overridden() -> None:
    """What a new uvicorn adds under a name of ours would be overridden by accident."""
    for ours, theirs in ((HttpConnection, HttpToolsProtocol), (DaemonServer, uvicorn.Server)):
        shared = {name for name in vars(ours) if hasattr(theirs, name)}
        shared = {name for name in shared if not name.startswith("__")}
        assert shared == {name for cls, _, name in OVERRIDDEN if cls is ours}


def test_a_connection_has_what_we_read_of_it() -> None:
    async def app(scope: object, receive: object, send: object) -> None: ...

    async def attributes() -> set[str]:
        config = uvicorn.Config(app, lifespan="off", log_config=None)
        config.load()
        connection = HttpToolsProtocol(config, ServerState(), {})
        connection.on_message_begin()
        return set(vars(connection))

    read = "loop transport cycle headers url scope client flow parser"
    assert set(read.split()) <= asyncio.run(attributes())
    for name in ("response_started", "response_complete", "disconnected", "scope"):
        assert f"self.{name} =" in inspect.getsource(RequestResponseCycle.__init__)
    for status in (400, 408, 431):
        assert STATUS_LINE[status].startswith(b"HTTP/1.1 %d " % status)


def test_what_stands_for_a_request_has_all_that_is_asked_of_it() -> None:
    """A request that is answered promptly is kept where uvicorn keeps its own."""
    source = inspect.getsource(HttpToolsProtocol) + inspect.getsource(HttpConnection)
    asked = set(re.findall(r"\bcycle\.([a-z_]+)", source))
    of_the_body = {"body", "more_body"}  # which has come when such a request begins
    started = {"run_asgi"}  # by the application
    assert asked - of_the_body - started <= {*dir(Whole), *vars(Whole(True))}


def test_a_server_has_what_we_use_of_it() -> None:
    server = uvicorn.Server(uvicorn.Config("none", log_config=None))
    assert server.started is False
    assert callable(server.handle_exit)
    assert "sockets" in inspect.signature(server.run).parameters
