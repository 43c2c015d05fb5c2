"""OpenCode. Its hooks are JavaScript inside it: `opencode.js` calls dibs, in our own format.

A subagent is a session below another one; the plugin says which, also in the environment of
commands.
"""

from __future__ import annotations

import json
import os.path

from dibs.clients import Client, Unattended
from dibs.surroundings.occasion import AFTER, BEFORE, EVENTS, OTHER, Occasion, read_tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.setup.targets import Target
    from dibs.surroundings.occasion import Answer, Environment, Payload

SETTINGS = "opencode.json opencode.jsonc .opencode/opencode.json .opencode/opencode.jsonc".split()


class OpenCode(Client):
    title = "OpenCode"
    order = 4
    commands = ("opencode",)
    home = (".config/opencode", ".opencode")
    traces = ("opencode.json", "opencode.jsonc", ".opencode")

    events = ()  # OpenCode calls the plugin, and the plugin calls dibs
    edit_tools = ("edit", "write", "multiedit")
    patch_tools = {"apply_patch": "patchText", "patch": "patchText"}
    shell_tools = ("bash",)
    read_tools = ("read",)

    shell_variable = "OPENCODE"
    pid_variable = "OPENCODE_PID"
    processes = ("opencode",)

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import JsonFile, JsonMember, ListedName, Part, tools_line
        from dibs.setup.targets import OwnFile

        there = [name for name in SETTINGS if os.path.lexists(f"{top}/{name}")]
        former = {"type": "local", "command": ["dibs", "mcp"], "enabled": True}
        server = former | {"command": ["sh", "-c", tools_line()]}
        # It adds the schema to a file without one, which git then shows as changed.
        schema = JsonMember(("$schema",), "https://opencode.ai/config.json", serves="mcp")
        parts: list[Part] = [schema, JsonMember(("mcp", "dibs"), server, former=former)]
        if os.path.isfile(f"{top}/CLAUDE.md") and only_ours(f"{top}/AGENTS.md"):
            # It reads CLAUDE.md only if there is no AGENTS.md, and now there is one.
            parts.append(ListedName(("instructions",), "CLAUDE.md", ["CLAUDE.md"]))
        return [
            JsonFile(f"{top}/{(there or SETTINGS)[0]}", parts),
            OwnFile(f"{top}/.opencode/plugin/dibs.js", plugin(), "// dibs"),
        ]

    def example(self, event: str, session: str, cwd: str, file: str) -> dict[str, object]:
        said = {"tool": "write", "call": session, "args": {"filePath": file}}
        return {"event": event, "session": session, "cwd": cwd, **said}

    def read(self, payload: Payload, environment: Environment) -> Occasion:
        event = payload.event("event")
        occasion = Occasion(self.name, event if event in EVENTS else OTHER)
        occasion.session = payload.text("session")
        occasion.subagent = payload.text("subagent")
        occasion.subagent_kind = payload.text("kind")
        occasion.cwd = payload.text("cwd")
        occasion.tool = payload.text("tool")
        occasion.call = payload.text("call")
        occasion.again = payload.get("again") is True
        if occasion.event in (BEFORE, AFTER):
            args = payload.record("args")
            read_tool(self, occasion, args)
            if occasion.command:
                occasion.cwd = os.path.join(occasion.cwd, args.text("workdir"))
        return occasion

    def write(self, occasion: Occasion, answer: Answer) -> str:
        if answer.deny:
            return json.dumps({"deny": answer.deny})
        return json.dumps({"context": answer.context}) if answer.context else ""

    def can_wake(self, environment: Environment) -> bool:
        return True  # the plugin does it

    def subagent(self, session: str, environment: Environment) -> str:
        return environment.get("DIBS_SUBAGENT", "")

    def unattended(self, shell: bool) -> Unattended:
        words = ["opencode", "run", "--format", "json", "--"]
        allowed = "allow" if shell else "deny"
        rights = {
            "edit": "allow",
            "bash": allowed,
            "webfetch": "deny",
            "external_directory": "deny",
        }
        told = {"OPENCODE_PERMISSION": json.dumps(rights)}
        if shell:
            return Unattended(
                words, "it edits files, and runs any command with your rights", **told
            )
        return Unattended(words, "it edits files below its folder; its shell is refused", **told)


def only_ours(path: str) -> bool:
    """Whether a file for agents is missing, or contains only our block."""
    from dibs.setup.files import Refusal, read
    from dibs.setup.targets import Block

    block = Block(path)
    try:
        text = read(path)
        return text is None or block.void(block.strip(text, None))
    except Refusal:
        return False


def plugin() -> str:
    """The code that runs inside OpenCode; it is beside this file."""
    with open(f"{__file__.removesuffix('.py')}.js", encoding="utf-8") as source:
        return source.read()


CLIENT = OpenCode()
