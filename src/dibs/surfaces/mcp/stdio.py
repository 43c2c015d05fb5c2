"""One client over standard input and output, one message per line.

The end of the input, an interrupt and a request to terminate all mean that the client is done:
the session ends and what it held is free. A client that kills without asking leaves that to
the others, who see that this process is gone.
"""

from __future__ import annotations

import os
import signal
import sys
from _thread import allocate_lock, interrupt_main

from dibs.surfaces.mcp.connection import Connection, to_line
from dibs.surfaces.mcp.protocol import INVALID_REQUEST, ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.surfaces.mcp.server import Server

LINE_LIMIT = 8 * 1024 * 1024
"""Well above the largest value the store takes, however it is escaped."""


class Ended(BaseException):
    """The client wants this server to end."""


def serve(server: Server) -> None:
    """Serve until the client is done."""
    # The pipe to the client is for messages only: whatever else is printed goes to the log.
    output = os.dup(1)
    os.dup2(2, 1)
    lock = allocate_lock()

    def send(message: Any) -> None:
        line = to_line(message)
        try:
            with lock:
                while line:
                    line = line[os.write(output, line) :]
        except OSError:
            interrupt_main(signal.SIGTERM)  # nobody reads any more

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    connection = Connection(server, send)
    try:
        read(connection)
    except Ended:
        pass
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        server.callers.close()


def end(number: int, frame: object) -> None:
    raise Ended


def read(connection: Connection) -> None:
    source = open(0, "rb", closefd=False)  # noqa: SIM115 - sys.stdin is None if it was closed
    if source.isatty():
        print("dibs mcp: waiting for a client; Ctrl-D ends it", file=sys.stderr)
    while line := source.readline(LINE_LIMIT):
        if len(line) == LINE_LIMIT and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = source.readline(LINE_LIMIT)
            error = ProtocolError(INVALID_REQUEST, f"a line has at most {LINE_LIMIT:,} bytes")
            connection.send(error.to_json(None))
        elif not line.isspace():
            connection.receive(line)
