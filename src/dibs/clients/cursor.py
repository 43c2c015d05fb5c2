"""Cursor. It does not show the model what a hook says at a prompt."""

from __future__ import annotations

import json

from dibs.clients import Client
from dibs.surroundings.occasion import AFTER, MEANINGS, PROMPT, START, STOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.setup.targets import Target
    from dibs.surroundings.occasion import Answer, Environment, Occasion, Payload


class Cursor(Client):
    title = "Cursor"
    order = 5
    shell_marks = ("CURSOR_AGENT",)
    commands = ("cursor", "cursor-agent")
    home = (".cursor",)
    traces = (".cursor", ".cursorrules")
    after = "Cursor asks once whether to use the dibs server: say yes, in its MCP settings."

    events = "sessionStart preToolUse postToolUse postToolUseFailure stop sessionEnd".split()
    # As in Claude Code, except for the first letter.
    meanings = {name: MEANINGS[name[0].upper() + name[1:]] for name in events}
    meanings["beforeSubmitPrompt"] = PROMPT
    edit_tools = ("Write", "StrReplace", "Edit", "MultiEdit", "EditNotebook")
    remove_tools = ("Delete",)
    shell_tools = ("Shell",)
    read_tools = ("Read",)

    processes = ("cursor",)

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import TIMEOUT_S, JsonFile, JsonMember, flat, line, server

        handler = {"command": line(self), "timeout": TIMEOUT_S}
        version = JsonMember(("version",), 1, serves="hooks")
        return [
            JsonFile(f"{top}/.cursor/mcp.json", [server("mcpServers", type="stdio")]),
            JsonFile(f"{top}/.cursor/hooks.json", [version, *flat(self, handler, "hooks")]),
        ]

    def read(self, payload: Payload, environment: Environment) -> Occasion:
        occasion = super().read(payload, environment)
        occasion.session = payload.text("conversation_id") or occasion.session
        roots = payload.get("workspace_roots")
        if not occasion.cwd and isinstance(roots, list) and roots and isinstance(roots[0], str):
            occasion.cwd = roots[0]
        loops = payload.get("loop_count")
        occasion.again = isinstance(loops, int) and loops > 0
        occasion.deaf = occasion.name in ("beforeSubmitPrompt", "postToolUseFailure")
        if occasion.command:
            folder = payload.record("tool_input").text("working_directory")
            occasion.cwd = folder or occasion.cwd
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
