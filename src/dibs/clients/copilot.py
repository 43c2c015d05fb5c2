"""Copilot, on the command line and in VS Code: hooks as in Claude Code, with other tools.

Both read `.github/hooks`, and so does the agent that GitHub runs. They call a hook for every tool,
and do not show the model what a hook says at a prompt. The two read different fields of an answer,
so the text is in both.

The command line names its tools as Claude Code does, gives a subagent a session of its own that
names its parent, and refuses a tool if the hook fails in any way.
"""

from __future__ import annotations

import json

from dibs.clients import Client
from dibs.surroundings.occasion import OTHER, PROMPT, STOP, Payload, name_of_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.setup.targets import Target
    from dibs.surroundings.occasion import Answer, Environment, Occasion


class Copilot(Client):
    title = "Copilot"
    order = 6
    commands = ("copilot", "code", "code-insiders")
    home = (".copilot", ".vscode", ".vscode-server", ".config/Code")
    traces = (".github/copilot-instructions.md", ".github/hooks", ".vscode/mcp.json")
    after = (
        "Copilot reads these files only in a folder that you trust, and VS Code asks once whether "
        "to trust the dibs server: say yes."
    )

    events = (
        "SessionStart PreToolUse PostToolUse PostToolUseFailure Stop SubagentStop SessionEnd"
    ).split()
    matches_tools = False
    fails_closed = True
    edit_tools = (
        "Edit",
        "Write",
        "create_file",
        "editFiles",
        "edit_notebook_file",
        "insert_edit_into_file",
        "multi_replace_string_in_file",
        "replace_string_in_file",
    )
    patch_tools = {"apply_patch": "input"}
    shell_tools = ("Bash", "run_in_terminal")
    tells_subagents = True
    read_tools = ("Read", "read_file")

    session_variable = server_variable = "COPILOT_AGENT_SESSION_ID"
    shell_marks = ("COPILOT_CLI",)
    processes = ("copilot",)
    # Also for the shell of a subagent, whose session no hook is told about.
    clear_renames = True

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import JsonFile, JsonMember, flat, server, shell

        version = JsonMember(("version",), 1, serves="hooks")
        hooks = [version, *flat(self, shell(self), "hooks")]
        return [
            JsonFile(f"{top}/.mcp.json", [server("mcpServers", type="stdio")]),
            JsonFile(f"{top}/.vscode/mcp.json", [server("servers", type="stdio")]),
            JsonFile(f"{top}/.github/hooks/dibs.json", hooks),
        ]

    def read(self, payload: Payload, environment: Environment) -> Occasion:
        patch = payload.get("tool_input")
        if isinstance(patch, str):
            payload = Payload(payload, tool_name="apply_patch", tool_input={"input": patch})
        occasion = super().read(payload, environment)
        if occasion.subagent:
            occasion.session = payload.text("parent_agent_id") or occasion.session
            if occasion.event == STOP:
                occasion.event = OTHER  # its end follows at once, and it does not continue
        if occasion.tool and not occasion.call:
            occasion.call = name_of_call(occasion.tool, payload.record("tool_input"))
        occasion.deaf = occasion.event == PROMPT
        return occasion

    def write(self, occasion: Occasion, answer: Answer) -> str:
        said = super().write(occasion, answer)
        if answer.deny or not said:
            return said
        if occasion.event == STOP:
            stop = {"decision": "block", "reason": answer.context}
            return json.dumps({**stop, "hookSpecificOutput": {"hookEventName": "Stop", **stop}})
        return json.dumps({"additionalContext": answer.context, **json.loads(said)})


CLIENT = Copilot()
