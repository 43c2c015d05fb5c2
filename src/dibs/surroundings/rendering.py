"""Answers in the formats that other programs read: YAML, CSV and Markdown; JSON is in `wording`.

CSV and Markdown have rows. A list gives one row per item, anything else one row; nested values are
JSON in their cell. A stream of answers has one head.

Words of agents are data in all of them. In CSV, text that a spreadsheet would take for a formula
starts with an apostrophe. In Markdown, everything except plain words is code: no link, no HTML, no
mention. Invisible characters are always written as their numbers.
"""

from __future__ import annotations

import json

from dibs.records import is_hidden, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001 - a spreadsheet takes them too
WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
"""Words that are not text without quotation marks, in some version of YAML."""


def writer(format: str) -> Callable[[Any, Sequence[str], bool], str]:
    """The function that writes answers in a format."""
    return yaml if format == "yaml" else Rows(format).text


class Rows:
    """Answers printed as rows: the head comes first, and only once."""

    def __init__(self, format: str) -> None:
        self._line = csv_line if format == "csv" else markdown_line
        self._marks = format == "markdown"
        self._columns: list[str] = []

    def text(self, value: Any, columns: Sequence[str], ascii: bool) -> str:
        """The rows of an answer, with the head if there was none yet.

        columns: the columns of an answer without rows
        ascii: whether the output must be ASCII; the stream escapes everything else
        """
        rows = [row if isinstance(row, dict) else {"value": row} for row in as_list(value)]
        lines = []
        if not self._columns:
            self._columns = list(dict.fromkeys(name for row in rows for name in row)) or [*columns]
            if self._columns:
                lines.append(self._line(self._columns))
                if self._marks:
                    lines.append(f"|{' --- |' * len(self._columns)}\n")
        lines += [self._line([row.get(name) for name in self._columns]) for row in rows]
        return "".join(lines)


def as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def flat(value: Any) -> str:
    """The text of a cell."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "\n".join(map(visible, text.split("\n")))


def csv_line(cells: Sequence[Any]) -> str:
    return ",".join(map(csv_cell, cells)) + "\n"


def csv_cell(value: Any) -> str:
    text = flat(value)
    if isinstance(value, str) and text.lstrip().startswith(FORMULA):
        text = f"'{text}"
    if any(mark in text for mark in ',"\n') or text != text.strip():
        doubled = text.replace('"', '""')
        return f'"{doubled}"'
    return text


def markdown_line(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(map(markdown_cell, cells)) + " |\n"


def markdown_cell(value: Any) -> str:
    """Plain words as they are, and anything else as code, so that it is never markup."""
    text = flat(value).replace("\n", " ").strip()
    if not text or isinstance(value, (int, float)):
        return text
    if all(word.replace("_", "").isalnum() and "_" not in word[0] + word[-1]
           for word in text.split()):  # fmt: skip
        return text
    ticks = "`"
    while ticks in text:
        ticks += "`"
    edge = " " if text[0] == "`" or text[-1] == "`" else ""
    # In a table, a bar ends the cell even within code.
    return f"{ticks}{edge}{text}{edge}{ticks}".replace("|", "\\|")


def yaml(value: Any, columns: Sequence[str], ascii: bool) -> str:
    """A document that a YAML 1.2 parser reads as the same value."""
    if isinstance(value, (dict, list)) and value:
        return "".join(["---\n", *(f"{line}\n" for line in block(value, ascii))])
    return f"--- {scalar(value, ascii)}\n"


def block(value: dict[str, Any] | list[Any], ascii: bool) -> Iterator[str]:
    """The lines of an object or a list."""
    if isinstance(value, dict):
        for name, inner in value.items():
            key = scalar(str(name), ascii)
            if isinstance(inner, (dict, list)) and inner:
                yield f"{key}:"
                yield from (f"  {line}" for line in block(inner, ascii))
            else:
                yield f"{key}: {scalar(inner, ascii)}"
        return
    for inner in value:
        if isinstance(inner, (dict, list)) and inner:
            first, *rest = block(inner, ascii)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
        else:
            yield f"- {scalar(inner, ascii)}"


def scalar(value: Any, ascii: bool) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    plain = value.replace("_", "a")
    if plain.isascii() and plain.isalnum() and value[0].isalpha() and value.lower() not in WORDS:
        return value
    text = json.dumps(value, ensure_ascii=False)
    if text.isascii() and text.isprintable():
        return text
    return "".join(escaped(one) if is_hidden(one) or (ascii and one > "~") else one for one in text)


def escaped(one: str) -> str:
    code = ord(one)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
