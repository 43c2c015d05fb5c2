"""gptme. It has no hooks, and asks nobody when it works without a person."""

from __future__ import annotations

from dibs.clients import Client, Unattended


class Gptme(Client):
    title = "gptme"
    order = 11
    commands = ("gptme",)
    home = (".config/gptme",)
    traces = ("gptme.toml",)
    after = "gptme has no hooks: git checks its commits, and nothing checks its edits."

    def unattended(self, shell: bool) -> Unattended:
        tools = "read,save,append,patch"
        words = [
            "gptme",
            "--non-interactive",
            "--tools",
            f"{tools},shell" if shell else tools,
            "--",
        ]
        if shell:
            return Unattended(words, "it edits files, and runs any command with your rights")
        return Unattended(words, "it edits files, even outside its folder; it has no shell")


CLIENT = Gptme()
