"""What a client's payload holds, taken with care: what is missing or of another type is absent."""

from __future__ import annotations

import json

from dibs.clients.occasion import Edit
from dibs.digest import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PATHS = ("file_path", "filePath", "notebook_path", "path", "target_file")
"""What clients call the file a tool works on."""
NEW = ("content", "new_string", "newString")
"""What they call the text that a tool puts into a file."""
SEVERAL = ("files", "edits", "replacements")
"""What they call a list of files, or of changes that name a file each."""


def text(payload: dict[str, Any], *names: str) -> str:
    """The first of these fields that is a text, and not empty."""
    for name in names:
        found = payload.get(name)
        if isinstance(found, str) and found:
            return found
    return ""


def record(payload: dict[str, Any], name: str) -> dict[str, Any]:
    found = payload.get(name)
    return found if isinstance(found, dict) else {}


def files(tool_input: dict[str, Any]) -> tuple[str, ...]:
    """The files that the input of a tool names, each once."""
    return tuple(dict.fromkeys(_files(tool_input)))


def _files(tool_input: dict[str, Any]) -> Iterator[str]:
    if named := text(tool_input, *PATHS):
        yield named
    for name in SEVERAL:
        entries = tool_input.get(name)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, str):
                yield entry
            elif isinstance(entry, dict) and (named := text(entry, *PATHS)):
                yield named


def edited(tool: str, tool_input: dict[str, Any], kind: str = "write") -> tuple[Edit, ...]:
    """What an edit tool changes."""
    found = files(tool_input)
    if not found:
        # To go on would leave the file unguarded without a word.
        raise ValueError(f"the input of {tool} names no file")
    if len(found) > 1:
        return tuple(Edit(path, kind) for path in found)
    return (Edit(found[0], kind, tuple(_texts(tool_input))),)


def _texts(tool_input: dict[str, Any]) -> Iterator[str]:
    """What an edit tool puts into its file."""
    changes = tool_input.get("edits")
    for one in [tool_input, *(changes if isinstance(changes, list) else ())]:
        if isinstance(one, dict) and (found := text(one, *NEW)):
            yield found


def patched(tool: str, text: str, cwd: str) -> tuple[Edit, ...]:
    """What a patch changes."""
    from dibs.clients.patch import names

    found = names(text, cwd or ".")
    if not found:
        raise ValueError(f"the input of {tool} is no patch that names a file")
    return tuple(found)


def name_of_call(tool: str, tool_input: dict[str, Any]) -> str:
    """A name for this use of a tool, for clients that give none: the same before and after it."""
    said = json.dumps(tool_input, sort_keys=True)
    return f"{tool}:{sha256(said.encode()).digest()[:8].hex()}"
