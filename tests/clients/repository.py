"""What a user writes into a repository, so that a client finds `dibs` there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

COMMAND = ("dibs", "mcp")


def write(path: Path, content: str | dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))


def add_server(client: str, repository: Path, command: tuple[str, ...] = COMMAND) -> None:
    """Name the MCP server in the client's own file of the repository."""
    first, *rest = command
    server = {"mcpServers": {"dibs": {"command": first, "args": rest}}}
    match client:
        case "claude" | "copilot":
            write(repository / ".mcp.json", server)
        case "codex":
            lines = [f"command = {json.dumps(first)}", f"args = {json.dumps(rest)}"]
            write(repository / ".codex/config.toml", "\n".join(["[mcp_servers.dibs]", *lines, ""]))
        case "gemini":
            write(repository / ".gemini/settings.json", server)
        case "opencode":
            local = {"type": "local", "command": list(command)}
            write(repository / "opencode.json", {"mcp": {"dibs": local}})
        case _:
            raise LookupError(f"no client is called {client}")


def add_daemon(client: str, repository: Path, url: str) -> None:
    """Name the MCP server of a daemon there; the token is in the environment, as DIBS_TOKEN."""
    headers = {"Authorization": "Bearer ${DIBS_TOKEN}"}
    match client:
        case "claude":
            server = {"type": "http", "url": url, "headers": headers}
            write(repository / ".mcp.json", {"mcpServers": {"dibs": server}})
        case "codex":
            lines = [f"url = {json.dumps(url)}", 'bearer_token_env_var = "DIBS_TOKEN"']
            write(repository / ".codex/config.toml", "\n".join(["[mcp_servers.dibs]", *lines, ""]))
        case "gemini":
            server = {"httpUrl": url, "headers": headers}
            write(repository / ".gemini/settings.json", {"mcpServers": {"dibs": server}})
        case "opencode":
            headers = {"Authorization": "Bearer {env:DIBS_TOKEN}"}
            server = {"type": "remote", "url": url, "headers": headers}
            write(repository / "opencode.json", {"mcp": {"dibs": server}})
        case _:
            raise LookupError(f"no client is called {client}")
