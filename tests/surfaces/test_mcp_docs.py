"""What the pages say about the MCP server is what the source says now."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from dibs.mcp.server import INSTRUCTIONS
from dibs.mcp.standard import STANDARD
from dibs.mcp.tool import HINTS
from tools.mcp_tools import PAGE, render

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```(json|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_of_tools_is_what_the_source_says_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run make docs"


def test_every_entry_for_a_client_can_be_pasted() -> None:
    found = FENCE.findall((ROOT / "docs/agents.md").read_text(encoding="utf-8"))
    entries = [tomllib.loads(text) if kind == "toml" else json.loads(text) for kind, text in found]
    named = [entry for entry in entries if {"mcpServers", "mcp_servers", "mcp"} & entry.keys()]
    servers = [server for entry in named for (server,) in [next(iter(entry.values())).values()]]
    local = [server for server in servers if "command" in server]
    assert len(local) == 4
    for server in local:
        words = [server["command"], *server.get("args", [])]
        assert (words[0] if isinstance(words[0], list) else words) == ["dibs", "mcp"]
    remote = [server for server in servers if "command" not in server]
    assert len(remote) == 4
    for server in remote:
        assert server.get("url", server.get("httpUrl")) == "http://127.0.0.1:4242/mcp"
        assert "DIBS_TOKEN" in json.dumps(server)


def test_the_page_names_the_ten_tools_and_their_size() -> None:
    page = (ROOT / "docs/agents.md").read_text(encoding="utf-8")
    definitions = json.dumps({"tools": [t.definition for t in STANDARD]}, separators=(",", ":"))
    size = len(definitions) + len(INSTRUCTIONS)
    assert f"{size:,} characters" in page
    for tool in STANDARD:
        assert f"`{tool.name}`" in page


def test_the_hints_that_the_page_shows_are_real() -> None:
    page = (ROOT / "docs/agents.md").read_text(encoding="utf-8")
    shown = re.findall(r'"hint": "([^"]+)"', page)
    assert shown
    assert set(shown) <= set(HINTS.values())
