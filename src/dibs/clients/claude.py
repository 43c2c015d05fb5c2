"""Claude Code. Devin and VS Code run the hooks of its settings too, and say so by their payload."""

from __future__ import annotations

from dibs.clients import hook_events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dibs.clients.occasion import Answer, Occasion

DENIES_BY_EXIT = False
CHANGES = "Edit|Write|MultiEdit|NotebookEdit|Bash"
EVENTS = {
    "SessionStart": "",
    "UserPromptSubmit": "",
    "PreToolUse": CHANGES,
    "PostToolUse": f"{CHANGES}|PowerShell|Read",
    "PostToolUseFailure": f"{CHANGES}|PowerShell",
    "Stop": "",
    "SubagentStop": "",
    "SessionEnd": "",
}
TOOLS = hook_events.Tools(
    edits=("Edit", "Write", "MultiEdit", "NotebookEdit"), shells=("Bash",), reads=("Read",)
)


def read(payload: dict[str, Any], environ: Mapping[str, str]) -> Occasion:
    if "hookEventName" in payload:
        from dibs.clients import copilot

        return copilot.read(payload, environ)
    if "DEVIN_PROJECT_DIR" in environ and "cwd" not in payload:
        from dibs.clients import devin

        return devin.read(payload, environ)
    return hook_events.read("claude", payload, TOOLS)


def write(occasion: Occasion, answer: Answer) -> str:
    if occasion.client == "copilot":
        from dibs.clients import copilot

        return copilot.write(occasion, answer)
    if occasion.client == "devin":
        from dibs.clients import devin

        return devin.write(occasion, answer)
    return hook_events.write(occasion, answer)
