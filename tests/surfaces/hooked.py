"""A client whose tools run the real hooks: its process lives, and each event is a `dibs hook`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Self

from tests.surfaces.shell import Answer, Shell, finish


class Said:
    """What a hook answered to one event."""

    def __init__(self, answer: Answer) -> None:
        assert answer.code == 0, answer
        assert answer.err == "", answer
        said: dict[str, Any] = answer.json if answer.out else {}
        inside = said.get("hookSpecificOutput", {})
        self.quiet = not said
        self.denied: str = inside.get("permissionDecisionReason", "")
        self.context: str = inside.get("additionalContext", said.get("reason", ""))


class Client:
    """Claude Code as its hooks see it: a process, a session, and tools that are used in turn."""

    def __init__(self, shell: Shell, session: str) -> None:
        self.process = shell.spawn(["cat"], stdin=subprocess.PIPE)
        self.shell = shell.with_(
            CLAUDE_PID=str(self.process.pid), CLAUDE_CODE_SESSION_ID=session, CLAUDECODE="1"
        )
        self.session = session
        self.folder = shell.folder
        self.calls = 0

    def at(self, folder: Path) -> Self:
        """The same client in another directory."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__
        other.shell, other.folder = self.shell.at(folder), folder
        return other

    def event(self, name: str, **fields: Any) -> Said:
        return Said(self.raw(name, **fields))

    def raw(self, name: str, **fields: Any) -> Answer:
        process = self.shell.start("hook", "claude", stdin=subprocess.PIPE)
        return finish(process, given=json.dumps(self.payload(name, **fields)))

    def payload(self, name: str, **fields: Any) -> dict[str, Any]:
        """What the hook is given on its standard input."""
        return {
            "session_id": self.session,
            "cwd": str(self.folder),
            "hook_event_name": name,
            **fields,
        }

    def start(self) -> Said:
        return self.event("SessionStart", source="startup")

    def prompt(self) -> Said:
        return self.event("UserPromptSubmit", prompt="go on")

    def stop(self, again: bool = False) -> Said:
        return self.event("Stop", stop_hook_active=again)

    def end(self) -> Said:
        return self.event("SessionEnd", reason="exit")

    def before(self, tool: str, agent: str = "", **tool_input: Any) -> Said:
        self.calls += 1
        return self._tool("PreToolUse", tool, agent, tool_input)

    def after(self, tool: str, agent: str = "", **tool_input: Any) -> Said:
        return self._tool("PostToolUse", tool, agent, tool_input)

    def _tool(self, event: str, tool: str, agent: str, tool_input: dict[str, Any]) -> Said:
        fields: dict[str, Any] = {"agent_id": agent, "agent_type": "worker"} if agent else {}
        return self.event(
            event, tool_name=tool, tool_input=tool_input, tool_use_id=f"call-{self.calls}", **fields
        )

    def read(self, path: str) -> str:
        file = self.folder / path
        self.calls += 1
        text = file.read_text()
        lines = text.count("\n") + 1
        shown = {"type": "text", "file": {"content": text, "totalLines": lines}}
        self.event(
            "PostToolUse", tool_name="Read", tool_input={"file_path": str(file)},
            tool_use_id=f"call-{self.calls}", tool_response=shown,
        )  # fmt: skip
        return text

    def write(self, path: str, text: str, agent: str = "") -> Said:
        """Write a whole file if the hook lets it: what the hook said last."""
        file = self.folder / path
        said = self.before("Write", agent, file_path=str(file), content=text)
        if said.denied:
            return said
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        after = self.after("Write", agent, file_path=str(file), content=text)
        after.context = "\n".join(filter(None, (said.context, after.context)))
        return after

    def bash(self, command: str, agent: str = "") -> Said:
        """Run a command if the hook lets it: what the hook said last."""
        said = self.before("Bash", agent, command=command)
        if said.denied:
            return said
        self.shell.sh(command)
        return self.after("Bash", agent, command=command)

    def kill(self) -> None:
        """SIGKILL: no hook is told."""
        self.process.kill()
        self.process.communicate()
