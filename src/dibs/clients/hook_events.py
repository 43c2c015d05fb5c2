"""The form of hooks that began with Claude Code and that others took over, each with changes."""

from __future__ import annotations

import json

from dibs.clients.fields import edited, files, patched, record, text
from dibs.clients.occasion import (
    AFTER,
    BEFORE,
    END,
    OTHER,
    PROMPT,
    START,
    STOP,
    SUBAGENT_END,
    Answer,
    Occasion,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES = {
    "SessionStart": START,
    "SubagentStart": START,
    "UserPromptSubmit": PROMPT,
    "PreToolUse": BEFORE,
    "PostToolUse": AFTER,
    "PostToolUseFailure": AFTER,
    "Stop": STOP,
    "SubagentStop": SUBAGENT_END,
    "SessionEnd": END,
}


class Event(Occasion):
    """An occasion that knows its client's own name for the event, which the answer must repeat."""

    __slots__ = ("name",)
    name: str


class Tools:
    """What the tools of a client do, by their names.

    edits: change the files that they name
    patches: the field that holds a patch
    shells: run a command
    reads: show the model a file
    """

    __slots__ = ("edits", "patches", "reads", "shells")

    def __init__(
        self,
        *,
        edits: tuple[str, ...] = (),
        patches: dict[str, str] | None = None,
        shells: tuple[str, ...] = (),
        reads: tuple[str, ...] = (),
    ) -> None:
        self.edits = edits
        self.patches = patches or {}
        self.shells = shells
        self.reads = reads


def read(client: str, payload: dict[str, Any], tools: Tools, cwd: str = "") -> Event:
    name = text(payload, "hook_event_name", "hookEventName")
    if not name:
        raise ValueError("the payload names no event")
    event = Event(
        client,
        NAMES.get(name, OTHER),
        session=text(payload, "session_id", "sessionId"),
        subagent=text(payload, "agent_id"),
        subagent_kind=text(payload, "agent_type"),
        cwd=text(payload, "cwd") or cwd,
        tool=text(payload, "tool_name"),
        call=text(payload, "tool_use_id"),
        again=payload.get("stop_hook_active") is True,
        afresh=name == "SessionStart" and payload.get("source") == "clear",
    )
    event.name = name
    if event.event in (BEFORE, AFTER):
        read_tool(event, record(payload, "tool_input"), tools)
        if event.reads:
            file = record(record(payload, "tool_response"), "file")
            event.shown = text(file, "content")
            event.lines = file["totalLines"] if isinstance(file.get("totalLines"), int) else 0
    return event


def read_tool(event: Event, tool_input: dict[str, Any], tools: Tools) -> None:
    """What the tool does to files, as far as its input tells."""
    if event.tool in tools.edits:
        event.edits = edited(event.tool, tool_input)
    elif event.tool in tools.patches:
        patch = text(tool_input, tools.patches[event.tool])
        event.edits = patched(event.tool, patch, event.cwd)
    elif event.tool in tools.shells:
        event.command = text(tool_input, "command")
    elif event.tool in tools.reads and event.name == "PostToolUse":
        event.reads = files(tool_input)


def write(occasion: Occasion, answer: Answer) -> str:
    name = occasion.name if isinstance(occasion, Event) else ""
    if answer.deny:
        decision = {"permissionDecision": "deny", "permissionDecisionReason": answer.deny}
        return json.dumps({"hookSpecificOutput": {"hookEventName": name, **decision}})
    if not answer.context or occasion.deaf or occasion.event == END:
        return ""
    if occasion.event in (STOP, SUBAGENT_END):
        return json.dumps({"decision": "block", "reason": answer.context})
    said = {"hookEventName": name, "additionalContext": answer.context}
    return json.dumps({"hookSpecificOutput": said})
