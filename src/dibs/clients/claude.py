"""Claude Code. Devin and Copilot also run the hooks of its settings, and identify themselves."""

from __future__ import annotations

import os

from dibs.clients import Client, Unattended, client_of
from dibs.surroundings.occasion import OTHER, Occasion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.setup.parts import Part
    from dibs.setup.targets import Target
    from dibs.surroundings.occasion import Answer, Environment, Payload


WAITS_S = 86_400
TOKENS_METRIC, COST_METRIC = "claude_code.token.usage", "claude_code.cost.usage"
"""The metrics in which it reports usage over OTLP; cost in dollars, tokens by `type`."""
TOKEN_TYPES = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cacheRead": "cache_read_tokens",
    "cacheCreation": "cache_creation_tokens",
}


class Claude(Client):
    title = "Claude Code"
    order = 1
    commands = ("claude",)
    home = (".claude", ".claude.json")
    traces = (".claude", ".mcp.json", "CLAUDE.md")
    after = "Claude Code asks once whether to use this repository's dibs server: say yes."

    events = (
        "SessionStart UserPromptSubmit PreToolUse PermissionRequest PermissionDenied PostToolUse"
        " PostToolUseFailure Stop StopFailure SubagentStart SubagentStop TaskCreated TaskCompleted"
        " SessionEnd"
    ).split()
    edit_tools = ("Edit", "Write", "MultiEdit", "NotebookEdit")
    shell_tools = ("Bash",)
    tells_subagents = True
    read_tools = ("Read",)
    other_tools = ("PowerShell",)

    session_variable = server_variable = "CLAUDE_CODE_SESSION_ID"
    shell_marks = ("CLAUDECODE",)
    pid_variable = "CLAUDE_PID"
    processes = ("claude",)
    clear_renames = True

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import JsonFile, server
        from dibs.setup.targets import Instead

        memory = memory_of(top)
        return [
            JsonFile(f"{top}/.mcp.json", [server("mcpServers", type="stdio")]),
            JsonFile(f"{top}/.claude/settings.json", self.hooks()),
            *([Instead(memory)] if memory else []),
        ]

    def hooks(self) -> list[Part]:
        from dibs.setup.parts import Hook, groups, line, shell

        # A command line, not a program with `args`: Copilot ignores those, and if the program is
        # missing, every event would be an error.
        waiting = {"type": "command", "command": line(self, "wake"), "asyncRewake": True}
        item = {"hooks": [waiting | {"timeout": WAITS_S}]}
        return [*groups(self, shell(self), "hooks"), Hook(("hooks", "Stop"), item)]

    def read(self, payload: Payload, environment: Environment) -> Occasion:
        if "hookEventName" in payload or "COPILOT_PROJECT_DIR" in environment:
            top = environment.get("COPILOT_PROJECT_DIR") or payload.text("cwd")
            if os.path.exists(f"{top}/.github/hooks/dibs.json"):
                return Occasion("copilot", OTHER)  # it also calls dibs for that one
            return client_of("copilot").read(payload, environment)
        if "DEVIN_PROJECT_DIR" in environment and "cwd" not in payload:
            return client_of("devin").read(payload, environment)
        return super().read(payload, environment)

    def can_wake(self, environment: Environment) -> bool:
        # Versions that do not support such a hook, and other clients, would wait for its end.
        # With --print, nobody is left to be woken.
        return environment.get("CLAUDE_CODE_SESSION_ATTENDED") == "1"

    def write(self, occasion: Occasion, answer: Answer) -> str:
        if occasion.client != self.name:
            return client_of(occasion.client).write(occasion, answer)
        return super().write(occasion, answer)

    def unattended(self, shell: bool) -> Unattended:
        # Whatever needs the user's approval is refused. The last line says what it cost.
        words = ["claude", "--print", "--verbose", "--output-format", "stream-json"]
        words += ["--permission-mode", "acceptEdits"]
        tools = "Edit,Write,Read,mcp__dibs"
        if shell:
            words += [f"--allowedTools={tools},Bash", "--"]
            return Unattended(words, "it edits files, and runs any command with your rights")
        # Accepting edits would also accept commands such as touch and rm.
        words += [f"--allowedTools={tools}", "--disallowedTools=Bash", "--"]
        return Unattended(words, "it edits files below its folder; it has no shell")

    def metering(self, url: str, token: str) -> dict[str, str]:
        # For metrics only: other programs that it runs with these variables have their own data.
        return {
            "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{url}/v1/metrics",
            "OTEL_EXPORTER_OTLP_METRICS_HEADERS": f"Authorization=Bearer%20{token}",
            "OTEL_METRIC_EXPORT_INTERVAL": "10000",
        }


def memory_of(top: str) -> str | None:
    """The file that Claude Code reads instead of AGENTS.md, if there is one."""
    for name in ("CLAUDE.md", ".claude/CLAUDE.md"):
        path = f"{top}/{name}"
        if os.path.isfile(path):
            same = os.path.realpath(path) == os.path.realpath(f"{top}/AGENTS.md")
            return None if same else path
    return None


CLIENT = Claude()
