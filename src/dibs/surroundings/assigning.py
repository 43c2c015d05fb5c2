"""One setting changed in the text of a TOML file; comments and everything else stay as they are.

The result is read again: if it does not say exactly what it said before, but for that setting, the
file is written in a way that this does not understand, and a person has to edit it.
"""

from __future__ import annotations

from dibs.errors import InvalidError
from dibs.surroundings.settings import toml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def assign(text: str, setting: str, value: object) -> str:
    """The text with the setting at a value; None takes the setting out."""
    table, _, name = setting.rpartition(".")
    given = toml(text)
    wanted = changed(given, table, name, value)
    if wanted == given:
        return text
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    start, end = region(lines, table)
    new = [] if value is None else [f"{name} = {literal(value)}\n"]
    at = next((at for at in range(start, end) if is_about(lines[at], name)), None)
    if at is not None:
        lines[at : extent(lines, at, end)] = new
    elif table and start == end == len(lines) and f"[{table}]\n" not in lines:
        lines += [*(["\n"] if lines else []), f"[{table}]\n", *new]
    else:
        shown = (at for at in range(start, end) if is_about(lines[at].lstrip("# "), name))
        after = next(shown, None)
        while after is None and end > start and not lines[end - 1].strip():
            end -= 1
        place = end if after is None else after + 1
        lines[place:place] = new
    result = "".join(lines)
    try:
        if toml(result) == wanted:
            return result
    except ValueError:
        pass
    raise InvalidError(
        f"the file sets {setting} in a way that dibs cannot change", next="edit it by hand"
    )


def changed(given: dict[str, Any], table: str, name: str, value: object) -> dict[str, Any]:
    """What a file says with one setting changed."""
    inner = given.get(table, {}) if table else given
    inner = {key: old for key, old in inner.items() if key != name}
    if value is not None:
        inner[name] = value
    if not table:
        return inner
    return {**given, table: inner} if inner or table in given else given


def region(lines: list[str], table: str) -> tuple[int, int]:
    """The lines of a table, without its head; those before the first head for no table."""
    heads = [at for at, line in enumerate(lines) if line.startswith("[")]
    starts = [at for at in heads if lines[at].partition("#")[0].strip() == f"[{table}]"]
    if table and not starts:
        return len(lines), len(lines)
    start = starts[0] + 1 if table else 0
    return start, next((at for at in heads if at >= start), len(lines))


def is_about(line: str, name: str) -> bool:
    key, equals, _ = line.partition("=")
    return bool(equals) and key.strip() == name


def extent(lines: list[str], at: int, end: int) -> int:
    """Where the assignment ends that begins at a line: a list may have several."""
    for after in range(at + 1, end + 1):
        try:
            toml("".join(lines[at:after]))
        except ValueError:
            continue
        return after
    return at + 1


def literal(value: object) -> str:
    """A value as TOML has it; text without control characters is written there as in JSON."""
    import json

    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return json.dumps(value, ensure_ascii=False)
