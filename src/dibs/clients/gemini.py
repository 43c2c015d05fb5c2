"""Gemini CLI. It gives tool calls no name, and drops what a hook says after a failed tool.

`stop_hook_active` stays false, so a stop never tells that it comes again.
"""

from __future__ import annotations

import json
import os.path

from dibs.clients.fields import edited, files, name_of_call, record, text
from dibs.clients.occasion import (
    AFTER,
    BEFORE,
    END,
    OTHER,
    PROMPT,
    START,
    STOP,
    Answer,
    Occasion,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DENIES_BY_EXIT = False
CHANGES = "write_file|replace|run_shell_command"
EVENTS = {
    "SessionStart": "",
    "BeforeAgent": "",
    "BeforeTool": CHANGES,
    "AfterTool": f"{CHANGES}|read_file",
    "AfterAgent": "",
    "SessionEnd": "",
}
NAMES = {
    "SessionStart": START,
    "BeforeAgent": PROMPT,
    "BeforeTool": BEFORE,
    "AfterTool": AFTER,
    "AfterAgent": STOP,
    "SessionEnd": END,
}
ANSWERED = {event: name for name, event in NAMES.items()}


def read(payload: dict[str, Any], environ: Mapping[str, str]) -> Occasion:
    name = text(payload, "hook_event_name")
    if not name:
        raise ValueError("the payload names no event")
    occasion = Occasion(
        "gemini",
        NAMES.get(name, OTHER),
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


def write(occasion: Occasion, answer: Answer) -> str:
    if answer.deny:
        return json.dumps({"decision": "deny", "reason": answer.deny})
    if not answer.context or occasion.deaf or occasion.event in (BEFORE, END):
        return ""
    if occasion.event == STOP:
        return json.dumps({"decision": "block", "reason": answer.context})
    said = {
        "hookEventName": ANSWERED.get(occasion.event, ""),
        "additionalContext": answer.context,
    }
    return json.dumps({"hookSpecificOutput": said})
