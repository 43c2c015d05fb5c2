"""Codex. It edits by patches, reads through its shell, and says nothing after a patch that fails.

An answer with a field that it does not know counts as none.
"""

from __future__ import annotations

from dibs.clients import hook_events
from dibs.clients.hook_events import write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dibs.clients.occasion import Occasion

__all__ = ["DENIES_BY_EXIT", "EVENTS", "read", "write"]

DENIES_BY_EXIT = False
EVENTS = {
    "SessionStart": "",
    "UserPromptSubmit": "",
    "PreToolUse": "apply_patch|Bash",
    "PostToolUse": "apply_patch|Bash",
    "Stop": "",
    "SubagentStop": "",
    "SessionEnd": "",
}
TOOLS = hook_events.Tools(patches={"apply_patch": "command"}, shells=("Bash",))


def read(payload: dict[str, Any], environ: Mapping[str, str]) -> Occasion:
    return hook_events.read("codex", payload, TOOLS)
