"""Gemini CLI. It gives tool calls no name, and drops what a hook says after a failed tool.

`stop_hook_active` stays false, so a stop never tells that it comes again. For the commands that
it runs it sets `core.hooksPath` to nothing, so git runs no hooks there.
"""

from __future__ import annotations

import json
import os.path

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
    name_of_call,
    record,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dibs.setup.parts import Part
    from dibs.setup.targets import Target

CHANGES = "write_file|replace|run_shell_command"
MEANINGS = {
    "SessionStart": START,
    "BeforeAgent": PROMPT,
    "BeforeTool": BEFORE,
    "AfterTool": AFTER,
    "AfterAgent": STOP,
    "SessionEnd": END,
}


class Gemini(Client):
    title = "Gemini CLI"
    order = 3
    commands = ("gemini",)
    home = (".gemini",)
    traces = (".gemini", "GEMINI.md")
    after = "Gemini CLI reads these settings only in a folder that you trust: say yes when it asks."

    events = {
        "SessionStart": "",
        "BeforeAgent": "",
        "BeforeTool": CHANGES,
        "AfterTool": f"{CHANGES}|read_file",
        "AfterAgent": "",
        "SessionEnd": "",
    }
    runs_git_hooks = False

    shell_variable = "GEMINI_CLI"
    processes = ("gemini",)

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import SERVER, TIMEOUT_S, Name, Pair, groups, shell
        from dibs.setup.targets import JsonFile

        handler = {"name": "dibs"} | shell(self, TIMEOUT_S * 1000)  # it counts milliseconds
        # Where dibs is not installed it would block every prompt; exit code 1 is only a warning.
        # It ends what hangs, but waits for the children of that: hence no shell around dibs.
        handler["command"] = f"command -v dibs >/dev/null || exit 1; exec {handler['command']}"
        parts: list[Part] = [
            Pair(("mcpServers", "dibs"), SERVER),
            Name(("context", "fileName"), "AGENTS.md", ["AGENTS.md", "GEMINI.md"]),
            *groups(self, handler, "hooks"),
        ]
        return [JsonFile(f"{top}/.gemini/settings.json", parts)]

    def read(self, payload: dict[str, Any], environment: Mapping[str, str]) -> Occasion:
        name = event_name(payload, "hook_event_name")
        occasion = Occasion(
            self.name,
            MEANINGS.get(name, OTHER),
            name=name,
            session=text(payload, "session_id"),
            cwd=text(payload, "cwd"),
            tool=text(payload, "tool_name"),
            again=payload.get("stop_hook_active") is True,
            afresh=name == "SessionStart" and payload.get("source") == "clear",
        )
        if occasion.event in (BEFORE, AFTER):
            read_tool(occasion, record(payload, "tool_input"))
            response = record(payload, "tool_response")
            if response.get("error"):
                occasion.deaf, occasion.reads = True, ()
            said = text(response, "llmContent")
            if occasion.reads and "truncated" not in said[:300]:
                occasion.shown = said
                asked = record(payload, "tool_input").keys()
                whole = asked.isdisjoint(("offset", "limit", "start_line", "end_line"))
                occasion.lines = said.count("\n") + 1 if whole else 0
        return occasion

    def write(self, occasion: Occasion, answer: Answer) -> str:
        if answer.deny:
            return json.dumps({"decision": "deny", "reason": answer.deny})
        if not answer.context or occasion.deaf or occasion.event in (BEFORE, END):
            return ""
        if occasion.event == STOP:
            return json.dumps({"decision": "block", "reason": answer.context})
        said = {"hookEventName": occasion.name, "additionalContext": answer.context}
        return json.dumps({"hookSpecificOutput": said})


def read_tool(occasion: Occasion, tool_input: dict[str, Any]) -> None:
    tool = occasion.tool
    occasion.call = name_of_call(tool, tool_input)
    if tool in ("write_file", "replace"):
        occasion.edits = edited(tool, tool_input)
    elif tool == "run_shell_command":
        occasion.command = text(tool_input, "command")
        occasion.cwd = os.path.join(occasion.cwd, text(tool_input, "dir_path", "directory"))
    elif tool == "read_file" and occasion.event == AFTER:
        occasion.reads = files(tool_input)


CLIENT = Gemini()
