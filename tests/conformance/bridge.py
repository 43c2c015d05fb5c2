"""The daemon, for tools that can send no token: `python -m tests.conformance.bridge`.

It prints its address and serves until the end of its input. With the word `fixtures` its MCP
server also has what the conformance suite asks for by name. Whoever comes is let in as the
agent `suite`; all else is the application that `dibs serve` runs.
"""

from __future__ import annotations

import sys
from threading import Thread
from typing import TYPE_CHECKING

import uvicorn

from dibs.surfaces.http import mcp_endpoint, mcp_sessions
from dibs.surfaces.http.app import App, Daemon
from dibs.surfaces.http.serve import DaemonServer, Listening, routes
from dibs.surroundings.commands import Globals
from tests.conformance.fixtures import MISSING_CAPABILITY, FixtureServer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class LetIn:
    """An application whose every request gets a token on its way."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._header = (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


def main(words: list[str]) -> None:
    space = Globals().open()
    token = space.join("dibs", shell=True).agents.add_token("suite").secret
    assert token is not None
    listening = Listening(port=0)
    bound = listening.bind()
    daemon = Daemon(space, listening.hosts())
    if words == ["fixtures"]:
        vars(mcp_sessions).update(Server=FixtureServer)
        mcp_endpoint.STATUS[MISSING_CAPABILITY] = 400
    config = uvicorn.Config(
        LetIn(App(daemon, routes()), token), lifespan="on", log_level="error", access_log=False
    )
    server = DaemonServer(
        config, daemon, lambda: print(f"{listening.url}/mcp", flush=True), lambda: None
    )

    def end() -> None:
        sys.stdin.read()
        server.should_exit = True

    Thread(target=end, daemon=True).start()
    server.run(sockets=[bound])


if __name__ == "__main__":
    main(sys.argv[1:])
