"""The client of the official SDK uses the daemon, the same in each of its modes."""

# The SDK is not there when types are checked.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager as Connected

import anyio
import pytest

from dibs.mcp.standard import STANDARD
from tests.conformance.sdk import MODES, PATIENCE_S, Peer, connected_to
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import Shell

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed"),
]

Connect = Callable[[str], Connected[Peer]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def daemon(shell: Shell) -> Iterator[Daemon]:
    with serving(shell) as daemon:
        yield daemon
        ended = daemon.stop()
        assert (ended.code, ended.err) == (0, ""), ended


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> str:
    record_property("part", "SDK client of the daemon, over HTTP")
    return str(request.param)


@pytest.fixture
def connect(daemon: Daemon, mode: str) -> Connect:
    """Connect one more client to the daemon, with a token of that name."""
    return lambda name: connected_to(daemon, name, mode)


async def test_the_sdk_client_claims_over_http(connect: Connect, mode: str) -> None:
    async with connect("ann") as ann, connect("bob") as bob:
        assert ann.client.protocol_version == MODES[mode]
        assert len((await ann.client.list_tools()).tools) == len(STANDARD)
        assert (await ann.ask("claim", resource="a.py"))["status"] == "claimed"
        busy = await bob.ask("claim", resource="a.py")
        assert (busy["status"], busy["held_by"]) == ("busy", "ann")


async def test_the_sdk_client_is_told_of_changes_over_http(connect: Connect) -> None:
    async with connect("ann") as ann, connect("bob") as bob:
        await ann.ask("status")
        async with bob.following("dibs://leases") as next_news:
            await ann.ask("claim", resource="a.py")
            await next_news()
            await ann.ask("release", resource="a.py")
            await next_news()


async def test_the_sdk_client_hears_of_progress_over_http(connect: Connect) -> None:
    async with connect("ann") as ann, connect("bob") as bob:
        await ann.ask("claim", resource="a.py")

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            await ann.ask("release", resource="a.py")

        with anyio.fail_after(PATIENCE_S):
            result = await bob.client.call_tool(
                "wait", {"resource": "a.py", "timeout_s": PATIENCE_S}, progress_callback=tell
            )
    assert result.structured_content["status"] == "available"


async def test_the_sdk_client_cancels_over_http(connect: Connect, shell: Shell) -> None:
    async def queue(peer: Peer) -> None:
        await peer.ask("claim", resource="a.py", wait_s=PATIENCE_S)

    async with connect("ann") as ann, connect("bob") as bob:
        await ann.ask("claim", resource="a.py")
        async with anyio.create_task_group() as group:
            group.start_soon(queue, bob)
            await anyio.to_thread.run_sync(shell.waits, 1)
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(shell.waits, 0)
        await ann.ask("release", resource="a.py")
        assert (await ann.ask("status", resource="a.py"))["status"] == "available"
