"""Windsurf. Its hooks can only refuse, by exit code 2; its model is shown nothing else of them."""

from __future__ import annotations

from dibs.clients.fields import edited, files, name_of_call, record, text
from dibs.clients.occasion import AFTER, BEFORE, OTHER, Answer, Occasion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DENIES_BY_EXIT = True
EVENTS = {
    "pre_write_code": "",
    "post_write_code": "",
    "pre_run_command": "",
    "post_run_command": "",
    "post_read_code": "",
}


def read(payload: dict[str, Any], environ: Mapping[str, str]) -> Occasion:
    name = text(payload, "agent_action_name")
    if not name:
        raise ValueError("the payload names no event")
    when, _, tool = name.partition("_")
    known = name in EVENTS
    about = record(payload, "tool_info")
    occasion = Occasion(
        "windsurf",
        {"pre": BEFORE, "post": AFTER}.get(when, OTHER) if known else OTHER,
        session=text(payload, "trajectory_id"),
        cwd=text(about, "cwd"),
        tool=tool,
        deaf=True,
    )
    if known:
        occasion.call = name_of_call(tool, about)
    if known and tool == "write_code":
        occasion.edits = edited(tool, about)
    elif known and tool == "run_command":
        occasion.command = text(about, "command_line", "command")
    elif known and tool == "read_code":
        occasion.reads = files(about)
    return occasion


def write(occasion: Occasion, answer: Answer) -> str:
    return answer.deny
