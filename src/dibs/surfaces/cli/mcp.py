"""`dibs mcp`: the MCP server of one agent, on standard input and output."""

from __future__ import annotations

import os

from dibs.errors import InvalidError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Globals

HELP = """usage: dibs mcp [--tools standard|all]

Serve the tools of dibs to one agent over standard input and output. A client starts it; what
the agent holds is free when the client ends.

  --tools standard  the ten tools every agent needs (default)
  --tools all       these, versioned state and every other operation

example: dibs mcp --tools all"""


def main(globals_: Globals, words: list[str]) -> int:
    from dibs.mcp.callers import Callers
    from dibs.mcp.server import Server
    from dibs.mcp.standard import STANDARD
    from dibs.mcp.stdio import serve

    tools = list(STANDARD)
    if choice(words) == "all":
        from dibs.mcp.more import more

        tools += more()
    environment = dict(os.environ)
    if globals_.agent is not None:
        environment["DIBS_AGENT"] = globals_.agent
    if globals_.session is None:
        environment.pop("DIBS_SESSION", None)
    serve(Server(Callers(globals_.open, environment), tools))
    return 0


def choice(words: list[str]) -> str:
    """Which tools: the one option there is."""
    words = " ".join(words).replace("=", " ").split()
    if words in ([], ["--tools", "standard"], ["--tools", "all"]):
        return words[1] if words else "standard"
    raise InvalidError(f"dibs mcp does not understand {' '.join(words)}", next="dibs mcp --help")
