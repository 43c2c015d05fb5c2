"""The plugin and server.json say what the source says."""

from __future__ import annotations

import json

import pytest

from dibs import __version__
from tools.plugin import MCP_NAME, ROOT, written


@pytest.mark.parametrize("name", written())
def test_a_file_is_what_would_be_written(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == written()[name], "python -m tools.plugin"


def test_the_registry_finds_the_same_name_and_version_everywhere() -> None:
    server = json.loads((ROOT / "server.json").read_text())
    (package,) = server["packages"]
    assert (server["version"], package["version"]) == (__version__, __version__)
    assert f"<!-- mcp-name: {server['name']} -->" in (ROOT / "README.md").read_text()
    assert server["name"] == MCP_NAME
    assert len(server["description"]) <= 100
