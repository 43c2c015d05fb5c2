"""The official Python SDK's client at the other end of the real `dibs mcp`."""

# The SDK is not there when types are checked.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.surfaces.daemon import Daemon
from tests.surfaces.shell import DIBS, Shell

MODERN, LEGACY = "2026-07-28", "2025-11-25"
MODES = {"auto": MODERN, "legacy": LEGACY, MODERN: MODERN}
"""How the client finds a version, and the one that it then speaks with us."""
PATIENCE_S = 30


Message = dict[str, Any]

# A shell that says which process it is and then becomes the server.
NUMBERED = ["-c", 'echo $$ >"$0"; exec "$@"']


class Peer:
    """A client, what it has heard, and the process of its server."""

    def __init__(self, client: Client, heard: list[Message], number: Path | None = None) -> None:
        self.client = client
        self.heard = heard
        self._number = number

    @property
    def modern(self) -> bool:
        return self.client.protocol_version == MODERN

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the server, as a busy machine might, and let it go on afterwards."""
        assert self._number is not None, "the server has no process of its own"
        pid = int(self._number.read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    async def ask(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """What a tool answers. The client itself holds it against the tool's schema."""
        with anyio.fail_after(PATIENCE_S):
            result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result
        (content,) = result.content
        assert json.loads(content.text) == result.structured_content
        return result.structured_content

    async def introduction(self) -> tuple[Any, Any, str | None]:
        """Who the server says it is, what it can do, and what it tells the model."""
        client = self.client
        if client.server_info is None:  # a client that fixes the version does not ask
            said = await client.session.send_discover(MODERN)
            client.session.adopt(types.DiscoverResult.model_validate(said))
        return client.server_info, client.server_capabilities, client.instructions

    @asynccontextmanager
    async def following(self, uri: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Follow a page, in the way of the era; gives a function that waits for the next news."""
        if self.modern:
            async with self.client.listen(resource_subscriptions=[uri]) as news:
                assert news.honored.resource_subscriptions == [uri]

                async def next_news() -> None:
                    with anyio.fail_after(PATIENCE_S):
                        assert (await anext(news)).uri == uri

                yield next_news
        else:
            await self.client.subscribe_resource(uri)
            yield self._pushed(uri)
            await self.client.unsubscribe_resource(uri)

    def _pushed(self, uri: str) -> Callable[[], Awaitable[None]]:
        read = len(self.heard)

        async def next_news() -> None:
            nonlocal read
            with anyio.fail_after(PATIENCE_S):
                while True:
                    while read == len(self.heard):
                        await anyio.sleep(0.01)
                    read += 1
                    news = self.heard[read - 1]
                    if news.get("method") == "notifications/resources/updated":
                        assert news["params"] == {"uri": uri}
                        return

        return next_news


@asynccontextmanager
async def connected(shell: Shell, mode: str, *options: str) -> AsyncIterator[Peer]:
    """A client of `dibs mcp`, started in the shell's folder and environment."""
    number = Path(shell.environment["HOME"]) / uuid4().hex
    log = number.with_suffix(".log")
    server = StdioServerParameters(
        command="sh",
        args=[*NUMBERED, str(number), DIBS, "mcp", *options],
        env=shell.environment,
        cwd=shell.folder,
    )
    heard: list[Message] = []
    with log.open("w") as errors:
        transport = overheard(stdio_client(server, errors), heard)
        async with Client(transport, mode=mode, cache=None) as client:
            yield Peer(client, heard, number)
    assert log.read_text() == "", "the server complains"


@asynccontextmanager
async def connected_to(daemon: Daemon, name: str, mode: str) -> AsyncIterator[Peer]:
    """A client of a daemon, with a token of that name."""
    token = await anyio.to_thread.run_sync(daemon.token_of, name)
    heard: list[Message] = []
    async with create_mcp_http_client({"Authorization": f"Bearer {token}"}) as http:
        transport = streamable_http_client(f"{daemon.url}/mcp", http_client=http)
        async with Client(overheard(transport, heard), mode=mode, cache=None) as client:
            yield Peer(client, heard)


@asynccontextmanager
async def overheard(transport: Any, heard: list[Message]) -> AsyncIterator[tuple[Any, Any]]:
    """The client's own transport; every message of the server is noted on its way."""
    async with transport as (read, write), anyio.create_task_group() as group:
        forward, forwarded = anyio.create_memory_object_stream[Any](0)

        async def pass_on() -> None:
            async with forward:
                async for message in read:
                    assert not isinstance(message, Exception), message
                    heard.append(message.message.model_dump(by_alias=True, exclude_unset=True))
                    try:
                        await forward.send(message)
                    except anyio.BrokenResourceError:
                        return  # the client has closed; what still comes is for nobody

        group.start_soon(pass_on)
        yield forwarded, write
        group.cancel_scope.cancel()
