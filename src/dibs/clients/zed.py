"""Zed. It has no hooks."""

from __future__ import annotations

from dibs.clients import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.setup.targets import Target


class Zed(Client):
    title = "Zed"
    order = 9
    commands = ("zed", "zeditor")
    home = (".config/zed",)
    traces = (".zed",)
    after = "Zed has no hooks: its agent must claim files itself, and git checks its commits."

    def targets(self, top: str) -> list[Target]:
        from dibs.setup.parts import JsonFile, server

        entry = server("context_servers", source="custom", env={})
        return [JsonFile(f"{top}/.zed/settings.json", [entry])]


CLIENT = Zed()
