"""The agent clients that `dibs init` knows: how to tell that one is used, and what it is given.

Every client starts `dibs mcp` for its tools. Those that have hooks run `dibs hook CLIENT` at the
events that its dialect names. The command is always just `dibs`, found on the PATH: these files
are shared by git, and a path of one machine would be wrong on every other.
"""

from __future__ import annotations

import os

from dibs import clients as dialects
from dibs.surfaces.init import files
from dibs.surfaces.init.draft import Refusal
from dibs.surfaces.init.parts import Entry, Hook, Name, NoOthers
from dibs.surfaces.init.targets import Block, Instead, JsonFile, TomlFile, Whole, YamlLine
from dibs.surfaces.init.words import AGENTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from dibs.surfaces.init.parts import Part
    from dibs.surfaces.init.targets import Target

SERVER = {"command": "dibs", "args": ["mcp"]}
STDIO = {"type": "stdio", **SERVER}
TIMEOUT_S = 10


class Client:
    """One agent client.

    commands: programs that show that it is installed
    home: files in the user's home that show that it is used
    traces: files in a repository that show that it is used there
    targets: what it is given, from the top of a checkout
    after: what the user has to do once, in words
    """

    def __init__(
        self,
        title: str,
        targets: Callable[[str], list[Target]],
        *,
        commands: str = "",
        home: str = "",
        traces: str = "",
        after: str = "",
    ) -> None:
        self.title = title
        self.targets = targets
        self.commands = commands.split()
        self.home = home.split()
        self.traces = traces.split()
        self.after = after

    def used(self, top: str, home: str) -> bool:
        from shutil import which

        return (
            any(which(command) for command in self.commands)
            or any(os.path.exists(os.path.join(home, name)) for name in self.home)
            or any(os.path.exists(os.path.join(top, name)) for name in self.traces)
        )


def events(client: str) -> Mapping[str, str]:
    """The events that a client's hook is run at, with the matcher of each, "" for none."""
    return dialects.of(client).EVENTS


def groups(
    client: str, handler: dict[str, Any], *above: str, **special: dict[str, Any]
) -> list[Part]:
    """Hooks in the shape of Claude Code: for each event a list of matchers with commands.

    special: what is different in the handler of an event
    """
    hooks = [
        Hook(
            (*above, event),
            ({"matcher": matcher} if matcher else {})
            | {"hooks": [handler | special.get(event, {})]},
        )
        for event, matcher in events(client).items()
    ]
    return [*hooks, NoOthers(above, set(events(client)))]


def flat(client: str, handler: dict[str, Any], *above: str) -> list[Part]:
    """Hooks where an event has a list of commands, each with its own matcher."""
    hooks = [
        Hook((*above, event), handler | ({"matcher": matcher} if matcher else {}))
        for event, matcher in events(client).items()
    ]
    return [*hooks, NoOthers(above, set(events(client)))]


def shell(client: str, timeout: int = TIMEOUT_S) -> dict[str, Any]:
    return {"type": "command", "command": f"dibs hook {client}", "timeout": timeout}


def claude_hooks() -> list[Part]:
    # The program with its arguments, so that no shell has to be started for it.
    handler = {"type": "command", "command": "dibs", "args": ["hook", "claude"]}
    return groups("claude", handler | {"timeout": TIMEOUT_S}, "hooks")


def claude(top: str) -> list[Target]:
    memory = claude_memory(top)
    return [
        JsonFile(f"{top}/.mcp.json", [Entry(("mcpServers", "dibs"), STDIO)]),
        JsonFile(f"{top}/.claude/settings.json", claude_hooks()),
        *([Instead(memory, AGENTS)] if memory else []),
    ]


def claude_memory(top: str) -> str | None:
    """The file that Claude Code reads instead of AGENTS.md, where there is one."""
    for name in ("CLAUDE.md", ".claude/CLAUDE.md"):
        path = f"{top}/{name}"
        if os.path.isfile(path):
            same = os.path.realpath(path) == os.path.realpath(f"{top}/AGENTS.md")
            return None if same else path
    return None


def codex(top: str) -> list[Target]:
    table = {"command": '"dibs"', "args": '["mcp"]'}
    # It gives a hook at the end no more than three seconds, and warns of more at every start.
    hooks = groups("codex", shell("codex"), "hooks", SessionEnd={"timeout": 3})
    return [
        TomlFile(f"{top}/.codex/config.toml", ("mcp_servers", "dibs"), table),
        JsonFile(f"{top}/.codex/hooks.json", hooks),
    ]


def gemini(top: str) -> list[Target]:
    handler = {"name": "dibs"} | shell("gemini", TIMEOUT_S * 1000)  # it counts milliseconds
    # Where dibs is not installed it would block every prompt; exit code 1 is only a warning. It
    # ends what hangs, but waits for the children of that: hence no shell around dibs.
    handler["command"] = f"command -v dibs >/dev/null || exit 1; exec {handler['command']}"
    parts: list[Part] = [
        Entry(("mcpServers", "dibs"), SERVER),
        Name(("context", "fileName"), "AGENTS.md", ["AGENTS.md", "GEMINI.md"]),
        *groups("gemini", handler, "hooks"),
    ]
    return [JsonFile(f"{top}/.gemini/settings.json", parts)]


def opencode(top: str) -> list[Target]:
    names = "opencode.json opencode.jsonc .opencode/opencode.json .opencode/opencode.jsonc".split()
    there = [name for name in names if os.path.lexists(f"{top}/{name}")]
    server = {"type": "local", "command": ["dibs", "mcp"], "enabled": True}
    parts: list[Part] = [Entry(("mcp", "dibs"), server)]
    if os.path.isfile(f"{top}/CLAUDE.md") and only_ours(f"{top}/AGENTS.md"):
        # It reads CLAUDE.md only where there is no AGENTS.md, and there is one now.
        parts.append(Name(("instructions",), "CLAUDE.md", ["CLAUDE.md"]))
    return [
        JsonFile(f"{top}/{(there or names)[0]}", parts),
        Whole(f"{top}/.opencode/plugin/dibs.js", opencode_plugin(), "// dibs"),
    ]


def only_ours(path: str) -> bool:
    """Whether a text for agents is not there, or says nothing but our block."""
    block = Block(path, AGENTS)
    try:
        text = files.read(path)
        return text is None or block.void(block.strip(text, None))
    except Refusal:
        return False


def opencode_plugin() -> str:
    folder = os.path.dirname(dialects.__file__)
    with open(os.path.join(folder, "opencode.js"), encoding="utf-8") as source:
        return source.read()


def cursor(top: str) -> list[Target]:
    handler = {"command": "dibs hook cursor", "timeout": TIMEOUT_S}
    version = Entry(("version",), 1, serves="hooks")
    return [
        JsonFile(f"{top}/.cursor/mcp.json", [Entry(("mcpServers", "dibs"), STDIO)]),
        JsonFile(f"{top}/.cursor/hooks.json", [version, *flat("cursor", handler, "hooks")]),
    ]


def copilot(top: str) -> list[Target]:
    # Also where Claude Code is set up: VS Code reads that file too, but runs a command without
    # its arguments.
    return [
        JsonFile(f"{top}/.vscode/mcp.json", [Entry(("servers", "dibs"), STDIO)]),
        JsonFile(f"{top}/.github/hooks/dibs.json", flat("copilot", shell("copilot"), "hooks")),
    ]


def devin(top: str) -> list[Target]:
    return [
        JsonFile(f"{top}/.devin/config.json", [Entry(("mcpServers", "dibs"), SERVER)]),
        JsonFile(f"{top}/.devin/hooks.v1.json", groups("devin", shell("devin"))),
    ]


def windsurf(top: str) -> list[Target]:
    handler = {"command": "dibs hook windsurf", "show_output": True}
    return [JsonFile(f"{top}/.windsurf/hooks.json", flat("windsurf", handler, "hooks"))]


def zed(top: str) -> list[Target]:
    server = {"source": "custom", **SERVER, "env": {}}
    return [JsonFile(f"{top}/.zed/settings.json", [Entry(("context_servers", "dibs"), server)])]


def aider(top: str) -> list[Target]:
    return [YamlLine(f"{top}/.aider.conf.yml", "git-commit-verify", "true")]


CLIENTS = {
    "claude": Client(
        "Claude Code",
        claude,
        commands="claude",
        home=".claude .claude.json",
        traces=".claude .mcp.json CLAUDE.md",
        after="Claude Code asks once whether to use the server dibs of this repository: say yes.",
    ),
    "codex": Client(
        "Codex",
        codex,
        commands="codex",
        home=".codex",
        traces=".codex",
        after="Codex runs hooks only after you have trusted them: start codex here, trust the "
        "folder, and approve the hooks when it asks, or with /hooks.",
    ),
    "gemini": Client(
        "Gemini CLI",
        gemini,
        commands="gemini",
        home=".gemini",
        traces=".gemini GEMINI.md",
        after="Gemini CLI reads these settings only in a folder that you trust: say yes when it "
        "asks.",
    ),
    "opencode": Client(
        "OpenCode",
        opencode,
        commands="opencode",
        home=".config/opencode .opencode",
        traces="opencode.json opencode.jsonc .opencode",
    ),
    "cursor": Client(
        "Cursor",
        cursor,
        commands="cursor cursor-agent",
        home=".cursor",
        traces=".cursor .cursorrules",
        after="Cursor asks once whether to use the server dibs: say yes, in its MCP settings.",
    ),
    "copilot": Client(
        "VS Code Copilot",
        copilot,
        commands="code code-insiders copilot",
        home=".copilot .vscode .vscode-server .config/Code",
        traces=".github/copilot-instructions.md .github/hooks .vscode/mcp.json",
        after="VS Code asks once whether to trust the server dibs: say yes.",
    ),
    "devin": Client("Devin", devin, commands="devin", home=".config/devin", traces=".devin"),
    "windsurf": Client(
        "Windsurf",
        windsurf,
        commands="windsurf",
        home=".codeium/windsurf .windsurf",
        traces=".windsurf .windsurfrules",
        after="Windsurf keeps its servers in your home: add the command dibs with the argument "
        "mcp in its settings to give it the tools as well.",
    ),
    "zed": Client(
        "Zed",
        zed,
        commands="zed zeditor",
        home=".config/zed",
        traces=".zed",
        after="Zed has no hooks: its agent must claim files itself, and git checks its commits.",
    ),
    "aider": Client(
        "Aider",
        aider,
        commands="aider",
        home=".aider.conf.yml .aider",
        traces=".aider.conf.yml .aider.chat.history.md",
        after="Aider has no hooks: git checks its commits, and nothing checks its edits.",
    ),
}
