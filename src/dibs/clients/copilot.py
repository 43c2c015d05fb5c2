"""Copilot in VS Code: hooks as in Claude Code, with other tools, and a stop of its own form.

It calls a hook for every tool, whatever the matcher says, and shows nothing of what a hook says
at a prompt.
"""

from __future__ import annotations

import json

from dibs.clients import hook_events
from dibs.clients.occasion import PROMPT, STOP, Answer, Occasion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DENIES_BY_EXIT = False
EVENTS = {
    "SessionStart": "",
    "PreToolUse": "",
    "PostToolUse": "",
    "Stop": "",
    "SubagentStop": "",
}
TOOLS = hook_events.Tools(
    edits=(
        "create_file",
        "editFiles",
        "edit_notebook_file",
        "insert_edit_into_file",
        "multi_replace_string_in_file",
        "replace_string_in_file",
    ),
    patches={"apply_patch": "input"},
    shells=("run_in_terminal",),
    reads=("read_file",),
)


def read(payload: dict[str, Any], environ: Mapping[str, str]) -> Occasion:
    occasion = hook_events.read("copilot", payload, TOOLS)
    occasion.deaf = occasion.event == PROMPT
    return occasion


def write(occasion: Occasion, answer: Answer) -> str:
    if occasion.event == STOP and answer.context:
        said = {"hookEventName": "Stop", "decision": "block", "reason": answer.context}
        return json.dumps({"hookSpecificOutput": said})
    return hook_events.write(occasion, answer)
