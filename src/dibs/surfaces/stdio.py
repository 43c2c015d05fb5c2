"""`dibs mcp`: the MCP server of one agent, over standard input and output, a message per line.

The end of the input, an interrupt and a request to terminate all mean that the client is done:
the session ends and what it held is free. A client that kills without asking leaves that to
the others, who see that this process is gone.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from _thread import allocate_lock

from dibs.arguments import Choice
from dibs.mcp.callers import Callers
from dibs.mcp.calls import McpConnection, to_line
from dibs.mcp.protocol import INVALID_REQUEST, ProtocolError
from dibs.mcp.server import Server
from dibs.mcp.standard import STANDARD
from dibs.operation import EVERYBODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.surroundings.commands import Globals

BY = EVERYBODY
KINDS = {"tools": Choice("standard", "all")}
LINE_LIMIT = 8 * 1024 * 1024
"""Well above the largest value the store takes, however it is escaped."""
CHUNK = 65_536
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(call: Globals, *, tools: str = "standard") -> int:
    """Serve the tools of dibs to one agent over standard input and output.

    A client starts it; what the agent holds is free when the client ends.

    tools: the ten every agent needs; or these, versioned state and every other operation
    example: --tools all
    """
    offered = list(STANDARD)
    if tools == "all":
        from dibs.mcp.more import more

        offered += more()
    environment = dict(os.environ)
    if call.agent is not None:
        environment["DIBS_AGENT"] = call.agent
    if call.session is None:
        environment.pop("DIBS_SESSION", None)
    serve(Server(Callers(call.open, environment), offered))
    return 0


def serve(server: Server) -> None:
    # The pipe to the client is for messages only: whatever else is printed goes to the log.
    output = os.dup(1)
    os.dup2(2, 1)
    lock = allocate_lock()
    # A handler that raises breaks whatever it interrupts, a lock's release included, and a signal
    # in the instant before a read wakes nobody. A byte in this pipe is there until it is seen.
    ending, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: None)

    def send(message: Any) -> None:
        line = memoryview(to_line(message))
        try:
            with lock:
                while line and not is_over(ending, output):
                    line = line[os.write(output, line[: select.PIPE_BUF]) :]
        except OSError:
            os.write(wake, b"!")  # nobody reads any more

    connection = McpConnection(server, send)
    try:
        read(connection, ending)
    finally:
        connection.closed = True
        server.callers.close()


def is_over(ending: int, output: int) -> bool:
    """Wait until the client takes more of the output; say if it wants this server to end."""
    ready = select.poll()
    ready.register(ending, select.POLLIN)
    ready.register(output, select.POLLOUT)
    return any(handle == ending for handle, _ in ready.poll())


def read(connection: McpConnection, ending: int) -> None:
    """Hand over every line of the input, until its end or until a byte comes through `ending`."""
    if os.isatty(0):
        print("dibs mcp: waiting for a client; Ctrl-D ends it", file=sys.stderr)
    ready = select.poll()
    for handle in (0, ending):
        ready.register(handle, select.POLLIN)
    line = bytearray()
    while all(handle != ending for handle, _ in ready.poll()):
        chunk = os.read(0, CHUNK)
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            line += piece
            take(connection, line)
            line.clear()
        line += rest
        if not chunk:
            take(connection, line)
            return
        if len(line) > LINE_LIMIT:
            del line[LINE_LIMIT + 1 :]  # what is over the limit is not kept


def take(connection: McpConnection, line: bytearray) -> None:
    if len(line) > LINE_LIMIT:
        error = ProtocolError(INVALID_REQUEST, f"a line has at most {LINE_LIMIT:,} bytes")
        connection.send(error.to_json(None))
    elif line and not line.isspace():
        connection.receive(bytes(line))
