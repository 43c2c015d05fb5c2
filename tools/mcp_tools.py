"""Write docs/tools.md from the source: every MCP tool with its arguments and answers.

    python -m tools.mcp_tools            write it
    python -m tools.mcp_tools --check    fail if it is not what would be written

A test does the same check, so the page cannot fall behind the code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dibs.dibs import operations
from dibs.mcp.more import STATE, more
from dibs.mcp.pages import listed
from dibs.mcp.server import INSTRUCTIONS, PROMPT
from dibs.mcp.standard import STANDARD
from dibs.mcp.tool import Tool
from dibs.operation import AGENT

PAGE = Path(__file__).parent.parent / "docs" / "tools.md"

HEAD = """\
# MCP tools

This page is made from the source by `make docs`; do not edit it. How to give the tools to an
agent, and how answers are worded, is in [agents.md](agents.md).
"""


def render() -> str:
    """The whole page."""
    return "\n".join(page()).rstrip() + "\n"


def page() -> Iterator[str]:
    yield HEAD
    definitions = [tool.definition for tool in STANDARD]
    size = len(json.dumps({"tools": definitions}, separators=(",", ":")))
    yield (
        f"The ten standard tools are {size:,} characters as the client gets them, the "
        f"instructions {len(INSTRUCTIONS):,}.\n"
    )
    yield "## Instructions\n"
    yield "Every client puts these before its model:\n"
    yield f"```text\n{INSTRUCTIONS}\n```\n"
    yield "## Standard\n"
    for tool in STANDARD:
        yield from describe(tool)
    yield "## Versioned state, with `--tools all`\n"
    for tool in STATE:
        yield from describe(tool)
    yield "## Every other operation, with `--tools all`\n"
    yield (
        'Named by noun and verb. The answer is `{"status": "ok", "result": …}` with the '
        "library's [record](reference.md#records), or a refusal.\n"
    )
    others = sorted(
        entry.name for entry in operations().values() if entry.by and AGENT not in entry.by
    )
    not_offered = ", ".join(f"`{name}`" for name in others)
    yield f"Not offered, because these are for people or for hooks: {not_offered}.\n"
    for tool in more()[len(STATE) :]:
        yield from describe(tool)
    yield "## Resources\n"
    for resource in listed():
        yield f"- `{resource['uri']}`: {resource['description']}"
    yield f"\n## Prompt\n\n`{PROMPT['name']}`: {PROMPT['description']}. Arguments: `task`.\n"


def describe(tool: Tool) -> Iterator[str]:
    yield f"### {tool.name}\n"
    yield f"{tool.definition['description']}\n"
    schema = tool.definition["inputSchema"]
    for name, kind in schema["properties"].items():
        needed = ", required" if name in schema.get("required", []) else ""
        says = f": {kind['description']}" if "description" in kind else ""
        yield f"- `{name}` ({spelled(kind)}{needed}){says}"
    if schema["properties"]:
        yield ""
    if tool.answers:
        yield f"`status` is one of {', '.join(f'`{word}`' for word in tool.answers)}.\n"


def spelled(kind: dict[str, Any]) -> str:
    if "enum" in kind:
        return " or ".join(f"`{choice}`" for choice in kind["enum"])
    if "anyOf" in kind:
        return "any JSON"
    if kind["type"] == "array":
        return f"list of {spelled(kind['items'])}"
    return str(kind["type"])


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != render():
            sys.exit("docs/tools.md is out of date: run make docs")
    else:
        PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
