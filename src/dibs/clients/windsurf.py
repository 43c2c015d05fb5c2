"""Windsurf. Its hooks can only refuse, with exit code 2; its model sees nothing else of them."""

from __future__ import annotations

from dibs.clients import Client
from dibs.surroundings.occasion import AFTER, BEFORE, OTHER, Occasion, name_of_call, read_tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.setup.targets import Target
    from dibs.surroundings.occasion import Answer, Environment, Payload


class Windsurf(Client):
    title = "Windsurf"
    order = 8
    commands = ("windsurf",)
    home = (".codeium/windsurf", ".windsurf")
    traces = (".windsurf", ".windsurfrules")
    after = (
        "Windsurf keeps its servers in your home folder: to give it the tools too, add the command "
        "dibs with the argument mcp in its settings."
    )

    events = (
        "pre_write_code post_write_code pre_run_command post_run_command post_read_code".split()
    )
    edit_tools = ("write_code",)
    shell_tools = ("run_command",)
    read_tools = ("read_code",)
    denies_by_exit = True

    processes = ("windsurf",)

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import JsonFile, flat, line

        handler = {"command": line(self), "show_output": True}
        return [JsonFile(f"{top}/.windsurf/hooks.json", flat(self, handler, "hooks"))]

    def example(self, event: str, session: str, cwd: str, file: str) -> dict[str, object]:
        about = {"file_path": file, "command_line": "true", "cwd": cwd}
        return {"agent_action_name": event, "trajectory_id": session, "tool_info": about}

    def read(self, payload: Payload, environment: Environment) -> Occasion:
        name = payload.event("agent_action_name")
        when, _, tool = name.partition("_") if name in self.events else ("", "", "")
        about = payload.record("tool_info")
        occasion = Occasion(self.name, {"pre": BEFORE, "post": AFTER}.get(when, OTHER))
        occasion.session = payload.text("trajectory_id")
        occasion.cwd = about.text("cwd")
        occasion.tool = tool
        occasion.call = name_of_call(tool, about)
        occasion.deaf = True
        read_tool(self, occasion, about)
        return occasion

    def write(self, occasion: Occasion, answer: Answer) -> str:
        return answer.deny


CLIENT = Windsurf()
