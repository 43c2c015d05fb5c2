"""Aider. It has no hooks, and runs git's hooks only if it is told to."""

from __future__ import annotations

from dibs.clients import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.setup.targets import Target


class Aider(Client):
    title = "Aider"
    order = 10
    commands = ("aider",)
    home = (".aider.conf.yml", ".aider")
    traces = (".aider.conf.yml", ".aider.chat.history.md")
    after = "Aider has no hooks: git checks its commits, and nothing checks its edits."

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.targets import YamlLine

        return [YamlLine(f"{top}/.aider.conf.yml", "git-commit-verify", "true")]


CLIENT = Aider()
