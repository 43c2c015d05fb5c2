"""Devin: hooks as in Claude Code, with other tools and another denial; it names no directory."""

from __future__ import annotations

import json

from dibs.clients import hook_events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dibs.clients.occasion import Answer, Occasion

DENIES_BY_EXIT = False
CHANGES = "edit|write|notebook_edit|exec"
EVENTS = {
    "SessionStart": "",
    "UserPromptSubmit": "",
    "PreToolUse": CHANGES,
    "PostToolUse": f"{CHANGES}|read",
    "Stop": "",
    "SessionEnd": "",
}
TOOLS = hook_events.Tools(
    edits=("edit", "write", "notebook_edit"), shells=("exec",), reads=("read",)
)


def read(payload: dict[str, Any], environ: Mapping[str, str]) -> Occasion:
    return hook_events.read("devin", payload, TOOLS, environ.get("DEVIN_PROJECT_DIR", ""))


def write(occasion: Occasion, answer: Answer) -> str:
    if answer.deny:
        return json.dumps({"decision": "block", "reason": answer.deny})
    return hook_events.write(occasion, answer)
