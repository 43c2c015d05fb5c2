"""OpenCode. Its hooks are JavaScript inside it: `opencode.js` calls dibs, in a form of our own.

A subagent is a session below another one; the plugin says which, also to the commands that run.
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
    SUBAGENT_END,
    Answer,
    Occasion,
    edited,
    event_name,
    files,
    patched,
    record,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dibs.setup.parts import Part
    from dibs.setup.targets import Target

KNOWN = {START, PROMPT, BEFORE, AFTER, STOP, END, SUBAGENT_END}
SETTINGS = "opencode.json opencode.jsonc .opencode/opencode.json .opencode/opencode.jsonc".split()


class OpenCode(Client):
    title = "OpenCode"
    order = 4
    commands = ("opencode",)
    home = (".config/opencode", ".opencode")
    traces = ("opencode.json", "opencode.jsonc", ".opencode")

    events: Mapping[str, str] = {}  # the plugin is asked by OpenCode, and asks dibs

    shell_variable = "OPENCODE"
    pid_variable = "OPENCODE_PID"
    processes = ("opencode",)

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import Name, Pair
        from dibs.setup.targets import JsonFile, Whole

        there = [name for name in SETTINGS if os.path.lexists(f"{top}/{name}")]
        server = {"type": "local", "command": ["dibs", "mcp"], "enabled": True}
        parts: list[Part] = [Pair(("mcp", "dibs"), server)]
        if os.path.isfile(f"{top}/CLAUDE.md") and only_ours(f"{top}/AGENTS.md"):
            # It reads CLAUDE.md only where there is no AGENTS.md, and there is one now.
            parts.append(Name(("instructions",), "CLAUDE.md", ["CLAUDE.md"]))
        return [
            JsonFile(f"{top}/{(there or SETTINGS)[0]}", parts),
            Whole(f"{top}/.opencode/plugin/dibs.js", plugin(), "// dibs"),
        ]

    def read(self, payload: dict[str, Any], environment: Mapping[str, str]) -> Occasion:
        event = event_name(payload, "event")
        occasion = Occasion(
            self.name,
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

    def write(self, occasion: Occasion, answer: Answer) -> str:
        if answer.deny:
            return json.dumps({"deny": answer.deny})
        return json.dumps({"context": answer.context}) if answer.context else ""

    def subagent(self, session: str, environment: Mapping[str, str]) -> str:
        return environment.get("DIBS_SUBAGENT", "")


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


def only_ours(path: str) -> bool:
    """Whether a text for agents is not there, or says nothing but our block."""
    from dibs.setup.files import Refusal, read
    from dibs.setup.targets import Block

    block = Block(path)
    try:
        text = read(path)
        return text is None or block.void(block.strip(text, None))
    except Refusal:
        return False


def plugin() -> str:
    """What is to be run inside OpenCode; it lies beside this file."""
    with open(f"{__file__.removesuffix('.py')}.js", encoding="utf-8") as source:
        return source.read()


CLIENT = OpenCode()
