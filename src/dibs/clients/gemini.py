"""Gemini CLI. It gives tool calls no name, and ignores what a hook says after a failed tool.

`stop_hook_active` stays false, so a repeated stop cannot be recognised. For the commands that it
runs, it clears `core.hooksPath`, so git runs no hooks there.
"""

from __future__ import annotations

import json
import os.path

from dibs.clients import Client, Unattended
from dibs.surroundings.occasion import AFTER, BEFORE, END, PROMPT, START, STOP, name_of_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.setup.targets import Target
    from dibs.surroundings.occasion import Answer, Environment, Occasion, Payload


class Gemini(Client):
    title = "Gemini CLI"
    order = 3
    commands = ("gemini",)
    home = (".gemini",)
    traces = (".gemini", "GEMINI.md")
    after = "Gemini CLI reads these settings only in a folder that you trust: say yes when it asks."

    meanings = {
        "SessionStart": START,
        "BeforeAgent": PROMPT,
        "BeforeTool": BEFORE,
        "AfterTool": AFTER,
        "AfterAgent": STOP,
        "SessionEnd": END,
    }
    events = tuple(meanings)
    edit_tools = ("write_file", "replace")
    shell_tools = ("run_shell_command",)
    read_tools = ("read_file",)
    hook_shell = "bash"
    runs_git_hooks = False

    shell_variable = "GEMINI_CLI"
    processes = ("gemini",)

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import JsonFile, ListedName, groups, server, shell

        # It ends a process that hangs, but waits for its children: hence no shell around dibs.
        handler = {"name": "dibs"} | shell(self, per_second=1000)
        parts = [
            server("mcpServers", lists=True),
            ListedName(("context", "fileName"), "AGENTS.md", ["AGENTS.md", "GEMINI.md"]),
            *groups(self, handler, "hooks"),
        ]
        return [JsonFile(f"{top}/.gemini/settings.json", parts)]

    def read(self, payload: Payload, environment: Environment) -> Occasion:
        occasion = super().read(payload, environment)
        if occasion.event not in (BEFORE, AFTER):
            return occasion
        tool_input, response = payload.record("tool_input"), payload.record("tool_response")
        occasion.call = name_of_call(occasion.tool, tool_input)
        if occasion.command:
            folder = tool_input.text("dir_path", "directory")
            occasion.cwd = os.path.join(occasion.cwd, folder)
        if response.get("error"):
            occasion.deaf, occasion.reads = True, ()
        said = response.text("llmContent")
        if occasion.reads and "truncated" not in said[:300]:
            occasion.shown = said
            whole = tool_input.keys().isdisjoint(("offset", "limit", "start_line", "end_line"))
            occasion.lines = said.count("\n") + 1 if whole else 0
        return occasion

    def write(self, occasion: Occasion, answer: Answer) -> str:
        if answer.deny:
            return json.dumps({"decision": "deny", "reason": answer.deny})
        return "" if occasion.event == BEFORE else super().write(occasion, answer)

    def unattended(self, shell: bool) -> Unattended:
        mode = "yolo" if shell else "auto_edit"
        words = ["gemini", "--output-format", "stream-json", "--approval-mode", mode, "--prompt"]
        if shell:
            return Unattended(words, "it edits files, and runs any command with your rights")
        return Unattended(words, "it edits files below its folder; its shell is refused")


CLIENT = Gemini()
