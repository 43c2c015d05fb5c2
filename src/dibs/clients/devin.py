"""Devin: hooks as in Claude Code, with other tools and another denial; it names no directory."""

from __future__ import annotations

import json

from dibs.clients import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.setup.targets import Target
    from dibs.surroundings.occasion import Answer, Environment, Occasion, Payload


class Devin(Client):
    title = "Devin"
    order = 7
    commands = ("devin",)
    home = (".config/devin",)
    traces = (".devin",)

    events = "SessionStart UserPromptSubmit PreToolUse PostToolUse Stop SessionEnd".split()
    edit_tools = ("edit", "write", "notebook_edit")
    shell_tools = ("exec",)
    read_tools = ("read",)

    processes = ("devin",)

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import JsonFile, groups, server, shell

        return [
            JsonFile(f"{top}/.devin/config.json", [server("mcpServers")]),
            JsonFile(f"{top}/.devin/hooks.v1.json", groups(self, shell(self))),
        ]

    def read(self, payload: Payload, environment: Environment) -> Occasion:
        occasion = super().read(payload, environment)
        occasion.cwd = occasion.cwd or environment.get("DEVIN_PROJECT_DIR", "")
        return occasion

    def write(self, occasion: Occasion, answer: Answer) -> str:
        if answer.deny:
            return json.dumps({"decision": "block", "reason": answer.deny})
        return super().write(occasion, answer)


CLIENT = Devin()
