"""Cursor. It shows the model nothing of what a hook says at a prompt."""

from __future__ import annotations

import json

from dibs.clients.fields import edited, files, record, text
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
EDITS = ("Write", "StrReplace", "Edit", "MultiEdit", "EditNotebook")
CHANGES = "|".join((*EDITS, "Delete", "Shell"))
EVENTS = {
    "sessionStart": "",
    "preToolUse": CHANGES,
    "postToolUse": f"{CHANGES}|Read",
    "postToolUseFailure": CHANGES,
    "stop": "",
    "sessionEnd": "",
}
NAMES = {
    "sessionStart": START,
    "beforeSubmitPrompt": PROMPT,
    "preToolUse": BEFORE,
    "postToolUse": AFTER,
    "postToolUseFailure": AFTER,
    "stop": STOP,
    "sessionEnd": END,
}


def read(payload: dict[str, Any], environ: Mapping[str, str]) -> Occasion:
    name = text(payload, "hook_event_name")
    if not name:
        raise ValueError("the payload names no event")
    roots = payload.get("workspace_roots")
    root = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""
    loops = payload.get("loop_count")
    occasion = Occasion(
        "cursor",
        NAMES.get(name, OTHER),
        session=text(payload, "conversation_id", "session_id"),
        cwd=text(payload, "cwd") or root,
        tool=text(payload, "tool_name"),
        call=text(payload, "tool_use_id"),
        again=isinstance(loops, int) and loops > 0,
        deaf=name in ("beforeSubmitPrompt", "postToolUseFailure"),
    )
    if occasion.event in (BEFORE, AFTER):
        read_tool(occasion, record(payload, "tool_input"), name)
    return occasion


def read_tool(occasion: Occasion, tool_input: dict[str, Any], name: str) -> None:
    tool = occasion.tool
    if tool in EDITS:
        occasion.edits = edited(tool, tool_input)
    elif tool == "Delete":
        occasion.edits = edited(tool, tool_input, "remove")
    elif tool == "Shell":
        occasion.command = text(tool_input, "command")
        occasion.cwd = text(tool_input, "working_directory") or occasion.cwd
    elif tool == "Read" and name == "postToolUse":
        occasion.reads = files(tool_input)


def write(occasion: Occasion, answer: Answer) -> str:
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
