"""Codex. It edits with patches, reads through its shell, and reports nothing after a failed patch.

It ignores an answer that has an unknown field.
"""

from __future__ import annotations

from dibs.clients import Client, Unattended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.setup.targets import Target
    from dibs.surroundings.occasion import Environment


class Codex(Client):
    title = "Codex"
    order = 2
    commands = ("codex",)
    home = (".codex",)
    traces = (".codex",)
    after = (
        "Codex runs hooks only after you trust them: start codex here, trust the folder, "
        "and approve the hooks when it asks, or with /hooks."
    )

    events = (
        "SessionStart UserPromptSubmit PreToolUse PermissionRequest PostToolUse Interrupt"
        " Stop SubagentStop SessionEnd"
    ).split()
    patch_tools = {"apply_patch": "command"}
    shell_tools = ("Bash",)
    tells_subagents = True

    session_variable = "CODEX_SESSION_ID"
    shell_marks = ("CODEX_THREAD_ID", "CODEX_SANDBOX")
    processes = ("codex",)
    # Set by dibs for the process that waits beside it, which cannot find it among its parents.
    pid_variable = "DIBS_CODEX_PID"
    clear_replaces = True

    def targets(self, top: str) -> list[Target]:
        import json

        from dibs.setup.parts import JsonFile, TomlFile, groups, shell, tools_line

        former = {"command": '"dibs"', "args": '["mcp"]'}
        table = {"command": '"sh"', "args": json.dumps(["-c", tools_line()])}
        # It gives a hook at an end at most three seconds, and warns about more at every start.
        short = {"timeout": 3}
        hooks = groups(self, shell(self), "hooks", SessionEnd=short, Interrupt=short)
        return [
            TomlFile(f"{top}/.codex/config.toml", ("mcp_servers", "dibs"), table, former),
            JsonFile(f"{top}/.codex/hooks.json", hooks),
        ]

    def can_wake(self, environment: Environment) -> bool:
        return self.pid_variable in environment

    def wake_command(self, session: str, words: Sequence[str]) -> list[str]:
        if "exec" in words:
            return []  # nobody is left to be woken
        return ["codex", "queue", f"--thread={session}", "--message"]

    def subagent(self, session: str, environment: Environment) -> str:
        thread = environment.get("CODEX_THREAD_ID", "")
        return thread if thread != session else ""

    def unattended(self, shell: bool) -> Unattended:
        words = ["codex", "exec", "--json", "--sandbox", "workspace-write", "--"]
        if shell:
            words[3:5] = ["--sandbox", "danger-full-access"]
            return Unattended(words, "it edits files, and runs any command with your rights")
        return Unattended(
            words,
            "it edits files and runs commands in its own sandbox, without access to the network "
            "or to files outside its folder, including git's",
        )


CLIENT = Codex()
