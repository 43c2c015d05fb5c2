"""Copilot in VS Code: hooks as in Claude Code, with other tools, and a stop of its own form.

It calls a hook for every tool, whatever the matcher says, and shows nothing of what a hook says
at a prompt.
"""

from __future__ import annotations

import json

from dibs.clients import Client
from dibs.surroundings.occasion import PROMPT, STOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.setup.targets import Target
    from dibs.surroundings.occasion import Answer, Environment, Occasion, Payload


class Copilot(Client):
    title = "VS Code Copilot"
    order = 6
    commands = ("code", "code-insiders", "copilot")
    home = (".copilot", ".vscode", ".vscode-server", ".config/Code")
    traces = (".github/copilot-instructions.md", ".github/hooks", ".vscode/mcp.json")
    after = "VS Code asks once whether to trust the server dibs: say yes."

    events = "SessionStart PreToolUse PostToolUse Stop SubagentStop".split()
    matches_tools = False
    edit_tools = (
        "create_file",
        "editFiles",
        "edit_notebook_file",
        "insert_edit_into_file",
        "multi_replace_string_in_file",
        "replace_string_in_file",
    )
    patch_tools = {"apply_patch": "input"}
    shell_tools = ("run_in_terminal",)
    read_tools = ("read_file",)

    processes = ("copilot",)

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import STDIO, JsonFile, JsonMember, flat, shell

        # Also where Claude Code is set up: VS Code reads that file too, but runs a command
        # without its arguments.
        return [
            JsonFile(f"{top}/.vscode/mcp.json", [JsonMember(("servers", "dibs"), STDIO)]),
            JsonFile(f"{top}/.github/hooks/dibs.json", flat(self, shell(self), "hooks")),
        ]

    def read(self, payload: Payload, environment: Environment) -> Occasion:
        occasion = super().read(payload, environment)
        occasion.deaf = occasion.event == PROMPT
        return occasion

    def write(self, occasion: Occasion, answer: Answer) -> str:
        if occasion.event == STOP and answer.context:
            said = {"hookEventName": "Stop", "decision": "block", "reason": answer.context}
            return json.dumps({"hookSpecificOutput": said})
        return super().write(occasion, answer)


CLIENT = Copilot()
