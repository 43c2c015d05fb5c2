"""Windsurf. Its hooks can only refuse, by exit code 2; its model is shown nothing else of them."""

from __future__ import annotations

from dibs.clients import Client
from dibs.surroundings.occasion import (
    AFTER,
    BEFORE,
    OTHER,
    Answer,
    Occasion,
    edited,
    event_name,
    files,
    name_of_call,
    record,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dibs.setup.targets import Target


class Windsurf(Client):
    title = "Windsurf"
    order = 8
    commands = ("windsurf",)
    home = (".codeium/windsurf", ".windsurf")
    traces = (".windsurf", ".windsurfrules")
    after = (
        "Windsurf keeps its servers in your home: add the command dibs with the argument mcp in "
        "its settings to give it the tools as well."
    )

    events = {
        "pre_write_code": "",
        "post_write_code": "",
        "pre_run_command": "",
        "post_run_command": "",
        "post_read_code": "",
    }
    denies_by_exit = True

    processes = ("windsurf",)

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import flat
        from dibs.setup.targets import JsonFile

        handler = {"command": "dibs hook windsurf", "show_output": True}
        return [JsonFile(f"{top}/.windsurf/hooks.json", flat(self, handler, "hooks"))]

    def read(self, payload: dict[str, Any], environment: Mapping[str, str]) -> Occasion:
        name = event_name(payload, "agent_action_name")
        when, _, tool = name.partition("_")
        known = name in self.events
        about = record(payload, "tool_info")
        occasion = Occasion(
            self.name,
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

    def write(self, occasion: Occasion, answer: Answer) -> str:
        return answer.deny


CLIENT = Windsurf()
