"""Cursor. It shows the model nothing of what a hook says at a prompt."""

from __future__ import annotations

import json

from dibs.clients import Client
from dibs.surroundings.occasion import (
    AFTER,
    BEFORE,
    END,
    OTHER,
    PROMPT,
    START,
    STOP,
    Answer,
    Occasion,
    edited,
    event_name,
    files,
    record,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dibs.setup.targets import Target

EDITS = ("Write", "StrReplace", "Edit", "MultiEdit", "EditNotebook")
CHANGES = "|".join((*EDITS, "Delete", "Shell"))
MEANINGS = {
    "sessionStart": START,
    "beforeSubmitPrompt": PROMPT,
    "preToolUse": BEFORE,
    "postToolUse": AFTER,
    "postToolUseFailure": AFTER,
    "stop": STOP,
    "sessionEnd": END,
}


class Cursor(Client):
    title = "Cursor"
    order = 5
    commands = ("cursor", "cursor-agent")
    home = (".cursor",)
    traces = (".cursor", ".cursorrules")
    after = "Cursor asks once whether to use the server dibs: say yes, in its MCP settings."

    events = {
        "sessionStart": "",
        "preToolUse": CHANGES,
        "postToolUse": f"{CHANGES}|Read",
        "postToolUseFailure": CHANGES,
        "stop": "",
        "sessionEnd": "",
    }

    processes = ("cursor",)

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import STDIO, TIMEOUT_S, Pair, flat
        from dibs.setup.targets import JsonFile

        handler = {"command": "dibs hook cursor", "timeout": TIMEOUT_S}
        version = Pair(("version",), 1, serves="hooks")
        return [
            JsonFile(f"{top}/.cursor/mcp.json", [Pair(("mcpServers", "dibs"), STDIO)]),
            JsonFile(f"{top}/.cursor/hooks.json", [version, *flat(self, handler, "hooks")]),
        ]

    def read(self, payload: dict[str, Any], environment: Mapping[str, str]) -> Occasion:
        name = event_name(payload, "hook_event_name")
        roots = payload.get("workspace_roots")
        root = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""
        loops = payload.get("loop_count")
        occasion = Occasion(
            self.name,
            MEANINGS.get(name, OTHER),
            name=name,
            session=text(payload, "conversation_id", "session_id"),
            cwd=text(payload, "cwd") or root,
            tool=text(payload, "tool_name"),
            call=text(payload, "tool_use_id"),
            again=isinstance(loops, int) and loops > 0,
            deaf=name in ("beforeSubmitPrompt", "postToolUseFailure"),
        )
        if occasion.event in (BEFORE, AFTER):
            read_tool(occasion, record(payload, "tool_input"))
        return occasion

    def write(self, occasion: Occasion, answer: Answer) -> str:
        if answer.deny:
            denial = {"user_message": answer.deny, "agent_message": answer.deny}
            return json.dumps({"permission": "deny", **denial})
        if not answer.context or occasion.deaf:
            return ""
        if occasion.event == STOP:
            return json.dumps({"followup_message": answer.context})
        if occasion.event in (START, AFTER):
            return json.dumps({"additional_context": answer.context})
        return ""


def read_tool(occasion: Occasion, tool_input: dict[str, Any]) -> None:
    tool = occasion.tool
    if tool in EDITS:
        occasion.edits = edited(tool, tool_input)
    elif tool == "Delete":
        occasion.edits = edited(tool, tool_input, "remove")
    elif tool == "Shell":
        occasion.command = text(tool_input, "command")
        occasion.cwd = text(tool_input, "working_directory") or occasion.cwd
    elif tool == "Read" and occasion.name == "postToolUse":
        occasion.reads = files(tool_input)


CLIENT = Cursor()
