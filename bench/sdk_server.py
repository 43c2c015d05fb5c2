"""An MCP server made with the official SDK, with one tool that does nothing."""

from mcp.server import MCPServer

server = MCPServer("empty")


@server.tool()
def nothing() -> dict[str, str]:
    """Do nothing."""
    return {"status": "ok"}


server.run()
