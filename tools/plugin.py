"""Write the Claude Code plugin and server.json from the source.

    python -m tools.plugin            write them
    python -m tools.plugin --check    fail if they are not what would be written

The plugin says what `dibs init --client claude` says, for those who install it from a marketplace
instead. A test does the same check, so neither can fall behind.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dibs import __version__
from dibs.clients.claude import CLIENT
from dibs.setup.parts import PLAIN, Hook
from dibs.setup.targets import AGENTS

ROOT = Path(__file__).parent.parent
OWNER = "agent-dibs"
MCP_NAME = f"io.github.{OWNER}/dibs"
HOME = f"https://github.com/{OWNER}/dibs"
SAYS = "Agents that share a repository claim what they edit, and exactly one wins."
KEYWORDS = ["agents", "coordination", "lease", "worktrees"]


def hooks() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in CLIENT.hooks():
        if isinstance(part, Hook):
            found[part.path[-1]] = [part.item]
    return found


def marketplace() -> dict[str, Any]:
    plugin = {"name": "dibs", "source": "./plugins/dibs", "description": SAYS}
    return {
        "name": "dibs",
        "owner": {"name": "dibs contributors"},
        "metadata": {"description": "Coordination for agents that share a codebase"},
        "plugins": [plugin],
    }


def plugin() -> dict[str, Any]:
    return {
        "name": "dibs",
        "version": __version__,
        "description": SAYS,
        "author": {"name": "dibs contributors"},
        "homepage": HOME,
        "repository": HOME,
        "license": "MIT",
        "keywords": KEYWORDS,
    }


def server() -> dict[str, Any]:
    package = {
        "registryType": "pypi",
        "identifier": "agent-dibs",
        "version": __version__,
        "runtimeHint": "uvx",
        "packageArguments": [{"type": "positional", "value": "mcp"}],
        "transport": {"type": "stdio"},
    }
    return {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": MCP_NAME,
        "title": "dibs",
        "description": SAYS,
        "repository": {"url": HOME, "source": "github"},
        "version": __version__,
        "packages": [package],
    }


README = f"""\
# dibs for Claude Code

{SAYS}

    /plugin install dibs --marketplace {OWNER}/dibs

The plugin runs `dibs`, which must be on the PATH ([install]({HOME}#install)). Its hooks claim
what an agent edits, refuse what another agent holds, and release everything at the end. Its server
provides the tools of dibs. A repository where `dibs init` was run does not need the plugin.
"""

SKILL = """\
---
name: dibs
description: Work beside other agents in one repository. Use it when an edit is refused because \
another agent holds the file, when files change under you, or to see who is here and hand out work.
---

# Working beside other agents

{agents}
The tools of the `dibs` server do the same as the commands: `status`, `claim`, `release`, `wait`,
`send`, `inbox`, and `work_next`, `work_claim`, `work_done`, `work_add` for shared tasks. Claim
anything that is not a file yourself, such as `port:3000` or `db:migrations`, and release it when
you are done.
"""


def written() -> dict[str, str]:
    """Every file, by its name from the top."""

    def dump(value: object) -> str:
        return json.dumps(value, indent=2) + "\n"

    says = "Claim what is edited, refuse what another agent holds, release at the end"
    return {
        ".claude-plugin/marketplace.json": dump(marketplace()),
        "plugins/dibs/.claude-plugin/plugin.json": dump(plugin()),
        "plugins/dibs/.mcp.json": dump({"mcpServers": {"dibs": {"type": "stdio", **PLAIN}}}),
        "plugins/dibs/hooks/hooks.json": dump({"description": says, "hooks": hooks()}),
        "plugins/dibs/skills/dibs/SKILL.md": SKILL.format(agents=skill_body()),
        "plugins/dibs/README.md": README,
        "server.json": dump(server()),
    }


def skill_body() -> str:
    """The words of AGENTS.md without their heading."""
    return AGENTS.partition("\n\n")[2]


def main() -> None:
    stale = [name for name, text in written().items() if text != read(name)]
    if sys.argv[1:] == ["--check"]:
        if stale:
            sys.exit(f"out of date: {', '.join(stale)}; run python -m tools.plugin")
        return
    for name in stale:
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(written()[name], encoding="utf-8")


def read(name: str) -> str | None:
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    main()
