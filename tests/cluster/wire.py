"""Wires on loopback that can be cut, so that a node of a cluster is alone as in a partition.

Every connection from or to a node goes through here. While a node is cut off, its connections
stay open and carry nothing in either direction; a new one is accepted and never answered. When the
cut is healed, what was on its way arrives, as TCP would send it again: late writes included.

A connection belongs to the node it leads to, and to the one it comes from. Replication says in
its first packet which standby it is; the way to etcd is a wire of each node's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

PIECE = 1 << 16
GREETING = 3
"""How many pieces of a connection may say who it is: it begins by asking for encryption."""


class Wires:
    def __init__(self, nodes: list[str]) -> None:
        self._nodes = nodes
        self._loop = asyncio.new_event_loop()
        self._whole = {node: asyncio.Event() for node in nodes}
        for whole in self._whole.values():
            whole.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def lay(self, port: int, to: Callable[[], int], node: str) -> None:
        """Listen on a port, and carry what comes there to another that `to` names."""

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._carry(reader, writer, to(), node)

        async def listen() -> None:
            await asyncio.start_server(carry, "127.0.0.1", port)

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)

    def cut(self, node: str) -> None:
        self._loop.call_soon_threadsafe(self._whole[node].clear)

    def heal(self, node: str) -> None:
        self._loop.call_soon_threadsafe(self._whole[node].set)

    def close(self) -> None:
        async def end() -> None:
            ended = asyncio.all_tasks() - {asyncio.current_task()}
            for task in ended:
                task.cancel()
            await asyncio.gather(*ended, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, node: str
    ) -> None:
        through = {node}
        await self._whole[node].wait()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        ways = [
            asyncio.ensure_future(self._pump(reader, far_writer, through, greets=True)),
            asyncio.ensure_future(self._pump(far_reader, writer, through)),
        ]
        await asyncio.wait(ways)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        through: set[str],
        greets: bool = False,
    ) -> None:
        pieces = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE):
                pieces += 1
                if greets and pieces <= GREETING:
                    through.update(node for node in self._nodes if greeting(node) in data)
                await self._pass(through)
                writer.write(data)
                await writer.drain()
            await self._pass(through)
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()

    async def _pass(self, through: set[str]) -> None:
        """Wait until all nodes on the way are whole at once."""
        while not all(self._whole[node].is_set() for node in through):
            for node in list(through):
                await self._whole[node].wait()


def greeting(node: str) -> bytes:
    return b"application_name\0" + node.encode() + b"\0"
