"""Cursor. It shows the model nothing of what a hook says at a prompt."""

from __future__ import annotations

import json

from dibs.clients import Client
from dibs.surroundings.occasion import AFTER, BEFORE, END, PROMPT, START, STOP, edited, record, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dibs.setup.targets import Target
    from dibs.surroundings.occasion import Answer, Occasion

EDITS = ("Write", "StrReplace", "Edit", "MultiEdit", "EditNotebook")
CHANGES = "|".join((*EDITS, "Delete", "Shell"))


class Cursor(Client):
    title = "Cursor"
    order = 5
    shell_marks = ("CURSOR_AGENT",)
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
    meanings = {
        "sessionStart": START,
        "beforeSubmitPrompt": PROMPT,
        "preToolUse": BEFORE,
        "postToolUse": AFTER,
        "postToolUseFailure": AFTER,
        "stop": STOP,
        "sessionEnd": END,
    }
    edit_tools = EDITS
    shell_tools = ("Shell",)
    read_tools = ("Read",)

    processes = ("cursor",)

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import STDIO, TIMEOUT_S, JsonFile, JsonMember, flat

        handler = {"command": "dibs hook cursor", "timeout": TIMEOUT_S}
        version = JsonMember(("version",), 1, serves="hooks")
        return [
            JsonFile(f"{top}/.cursor/mcp.json", [JsonMember(("mcpServers", "dibs"), STDIO)]),
            JsonFile(f"{top}/.cursor/hooks.json", [version, *flat(self, handler, "hooks")]),
        ]

    def read(self, payload: dict[str, Any], environment: Mapping[str, str]) -> Occasion:
        occasion = super().read(payload, environment)
        occasion.session = text(payload, "conversation_id") or occasion.session
        roots = payload.get("workspace_roots")
        if not occasion.cwd and isinstance(roots, list) and roots and isinstance(roots[0], str):
            occasion.cwd = roots[0]
        loops = payload.get("loop_count")
        occasion.again = isinstance(loops, int) and loops > 0
        occasion.deaf = occasion.name in ("beforeSubmitPrompt", "postToolUseFailure")
        tool_input = record(payload, "tool_input")
        if occasion.event in (BEFORE, AFTER) and occasion.tool == "Delete":
            occasion.edits = edited("Delete", tool_input, "remove")
        if occasion.command:
            occasion.cwd = text(tool_input, "working_directory") or occasion.cwd
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


CLIENT = Cursor()
