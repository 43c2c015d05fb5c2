"""What `jq -r` prints of a JSON text that is known: plain paths, such as `.files[].name`."""

from __future__ import annotations

import json

from dibs.surfaces.hooks.shell.call import NAMES_LIMIT, ShellCall
from dibs.surfaces.hooks.shell.values import options, plain


def printed(call: ShellCall) -> str | None:
    found, names = options(call.args, "fL --from-file --indent --arg --argjson --slurpfile")
    raw = found.has("-r --raw-output -j --join-output")
    if not raw or len(names) not in (1, 2) or found.keys() - {"-r", "--raw-output", "-e", "-c"}:
        return None
    text = call.text(names[1]) if len(names) == 2 else call.stdin
    steps = _steps(plain(names[0] or ""))
    if text is None or steps is None:
        return None
    try:
        values = [json.loads(text)]
    except (ValueError, RecursionError):
        return None
    for step in steps:
        values = [inner for value in values for inner in _inside(value, step)]
        if len(values) > NAMES_LIMIT:
            return None
    if not all(isinstance(value, str | int) for value in values):
        return None
    return "".join(f"{value}\n" for value in values)


def _steps(path: str) -> list[str] | None:
    """Give the parts of a path, "" for `[]`; None if it is more than a path."""
    inner = path.replace(" | ", "").replace("|", "").replace("[]", ".[]").removeprefix(".")
    steps = ["" if step == "[]" else step for step in inner.split(".") if step]
    known = all(step == "" or step.replace("_", "").isalnum() for step in steps)
    return steps if path.startswith(".") and known else None


def _inside(value: object, step: str) -> list[object]:
    if step:
        return [value[step]] if isinstance(value, dict) and step in value else []
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else []
