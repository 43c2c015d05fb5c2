"""The Inspector's command line finds nothing to say about `dibs mcp`, in any era."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.tools import package, run
from tests.surfaces.shell import DIBS, Answer, Shell

pytestmark = pytest.mark.conformance

INSPECTOR = "@modelcontextprotocol/inspector"
ERAS = ["modern", "legacy", "auto"]
ODD_SERVER = """
from dibs.mcp.server import Server
from dibs.surfaces.stdio import serve
from dibs.mcp.tool import READS, Tool
serve(Server(None, [Tool("odd", "odd", {"odd": SCHEMA}, READS, None)]))
"""

Inspect = Callable[..., Answer]


@pytest.fixture
def inspect(shell: Shell, record_property: Callable[[str, object], None]) -> Inspect:
    """Run the Inspector with these options on that server."""
    record_property("part", f"Inspector {package(INSPECTOR)['version']}")

    def inspect(era: str, *options: str, server: list[str]) -> Answer:
        place = ["--cwd", str(shell.folder), "--protocol-era", era]
        words = ["--cli", *place, *options, "--", *server]
        return run(INSPECTOR, "mcp-inspector", words, shell.environment)

    return inspect


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("choice", ["standard", "all"])
def test_strict_has_neither_errors_nor_warnings(inspect: Inspect, era: str, choice: str) -> None:
    server = [DIBS, "mcp", "--tools", choice]
    answer = inspect(era, "--method", "tools/list", "--strict", server=server)
    assert (answer.code, answer.err) == (0, ""), answer
    assert len(answer.json["tools"]) == 10 or choice == "all"


@pytest.mark.parametrize(
    ("schema", "finding", "code"),
    [
        ({"type": ["string", "null"]}, "1 warning", 0),
        ({"description": "anything"}, "1 warning", 0),
        (True, "1 error", 6),
    ],
)
def test_strict_would_find_something_if_there_was_something(
    inspect: Inspect, schema: Any, finding: str, code: int
) -> None:
    server = [sys.executable, "-c", ODD_SERVER.replace("SCHEMA", repr(schema))]
    answer = inspect("modern", "--method", "tools/list", "--strict", server=server)
    assert answer.code == code, answer
    assert finding in answer.err


@pytest.mark.parametrize("era", ERAS)
def test_the_server_introduces_itself(inspect: Inspect, era: str) -> None:
    said = inspect(era, "--method", "initialize", server=[DIBS, "mcp"]).json
    assert said["serverInfo"]["name"] == "dibs"
    assert said["protocolVersion"] == ("2025-11-25" if era == "legacy" else "2026-07-28")
    assert said["instructions"]


@pytest.mark.parametrize("era", ERAS)
def test_a_refusal_is_no_failure_of_the_tool(inspect: Inspect, era: str, shell: Shell) -> None:
    shell.as_("alice").ok("claim", "a.py")
    claim = ["--method", "tools/call", "--tool-name", "claim"]
    answer = inspect(era, *claim, "--tool-arg", "resource=a.py", server=[DIBS, "mcp"])
    assert (answer.code, answer.json["structuredContent"]["status"]) == (0, "busy"), answer
    assert inspect(era, *claim, server=[DIBS, "mcp"]).code == 5  # nothing was named: a mistake


@pytest.mark.parametrize("era", ERAS)
def test_pages_and_the_prompt_are_shown(inspect: Inspect, era: str, repository: Path) -> None:
    server = [DIBS, "mcp"]
    pages = inspect(era, "--method", "resources/list", server=server).json["resources"]
    assert len(pages) == 4
    page = inspect(era, "--method", "resources/read", "--uri", "dibs://board", server=server)
    assert json.loads(page.json["contents"][0]["text"])["status"] == "ok"
    (prompt,) = inspect(era, "--method", "prompts/list", server=server).json["prompts"]
    words = ["--method", "prompts/get", "--prompt-name", prompt["name"]]
    shown = inspect(era, *words, "--prompt-args", "task=t1", server=server)
    assert "t1" in shown.json["messages"][0]["content"]["text"]
