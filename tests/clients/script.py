"""What a scripted model does, step by step.

A script is a list of steps. Each becomes the client's own tool call, whatever that client calls
the tool, except `say`, which ends the turn. When a hook sends the model back after `say`, the
script goes on.

    [claim("a.py"), edit("a.py", "a = 1\n"), say("done").when(gate.is_set)]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Kind = Literal["say", "mcp", "find", "edit", "replace", "read", "shell", "call"]


def at_once() -> bool:
    return True


@dataclass(frozen=True)
class Step:
    kind: Kind
    fields: dict[str, Any] = field(default_factory=dict)
    condition: Callable[[], object] = at_once

    def when(self, condition: Callable[[], object]) -> Step:
        """Hold this step back until the condition is true, looked at every few milliseconds."""
        return replace(self, condition=condition)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


def say(text: str = "done") -> Step:
    return Step("say", {"text": text})


def mcp(name: str, /, **arguments: Any) -> Step:
    """Call a tool of the server `dibs`."""
    return Step("mcp", {"server": "dibs", "name": name, "arguments": arguments})


def claim(resource: str, **arguments: Any) -> Step:
    return mcp("claim", resource=resource, **arguments)


def find(query: str, limit: int = 50) -> Step:
    """Look for tools that were not offered at once. Only Codex has such a search."""
    return Step("find", {"query": query, "limit": limit})


def edit(path: str, content: str) -> Step:
    """Write the whole file."""
    return Step("edit", {"path": path, "content": content})


def change(path: str, old: str, new: str) -> Step:
    """Replace whole lines of a file."""
    return Step("replace", {"path": path, "old": old, "new": new})


def read(path: str) -> Step:
    return Step("read", {"path": path})


def shell(command: str) -> Step:
    return Step("shell", {"command": command})


def call(name: str, /, **arguments: Any) -> Step:
    """Call any tool, by the client's own name for it."""
    return Step("call", {"name": name, "arguments": arguments})


def part_to_play(name: str) -> str:
    """What a subagent is told, so that it follows the script of this name."""
    return f"Play the part of {name}."
