"""OpenCode. Its hooks are JavaScript inside it: `opencode.js` calls dibs, in a form of our own.

A subagent is a session below another one; the plugin says which.
"""

from __future__ import annotations

import json
import os.path

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
    from collections.abc import Mapping
    from typing import Any

DENIES_BY_EXIT = False
EVENTS: dict[str, str] = {}  # the plugin is asked by OpenCode, and asks dibs
KNOWN = {START, PROMPT, BEFORE, AFTER, STOP, END, SUBAGENT_END}


def read(payload: dict[str, Any], environ: Mapping[str, str]) -> Occasion:
    event = text(payload, "event")
    if not event:
        raise ValueError("the payload names no event")
    occasion = Occasion(
        "opencode",
        event if event in KNOWN else OTHER,
        session=text(payload, "session"),
        subagent=text(payload, "subagent"),
        subagent_kind=text(payload, "kind"),
        cwd=text(payload, "cwd"),
        tool=text(payload, "tool"),
        call=text(payload, "call"),
        again=payload.get("again") is True,
    )
    if occasion.event in (BEFORE, AFTER):
        read_tool(occasion, record(payload, "args"))
    return occasion


def read_tool(occasion: Occasion, args: dict[str, Any]) -> None:
    tool = occasion.tool
    if tool in ("edit", "write", "multiedit"):
        occasion.edits = edited(tool, args)
    elif tool in ("apply_patch", "patch"):
        occasion.edits = patched(tool, text(args, "patchText"), occasion.cwd)
    elif tool == "bash":
        occasion.command = text(args, "command")
        occasion.cwd = os.path.join(occasion.cwd, text(args, "workdir"))
    elif tool == "read" and occasion.event == AFTER:
        occasion.reads = files(args)


def write(occasion: Occasion, answer: Answer) -> str:
    if answer.deny:
        return json.dumps({"deny": answer.deny})
    return json.dumps({"context": answer.context}) if answer.context else ""
