"""The known formats, and how to detect the format of a text."""

from __future__ import annotations

import re

from dibs.errors import InvalidError
from dibs.trackers import backlog, beads, github, gitlab, markdown, mermaid, plain, taskmaster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from dibs.records import Task
    from dibs.trackers.fields import Found, Parsed

READERS: dict[str, Callable[[str, str], Parsed]] = {
    "json": plain.parse,
    "jsonl": plain.parse,
    "csv": plain.parse_csv,
    "markdown": markdown.parse,
    "github": github.parse,
    "gitlab": gitlab.parse,
    "beads": beads.parse,
    "taskmaster": taskmaster.parse,
}
FOLDER = "backlog"
"""The one format that is a folder."""
WRITERS: dict[str, Callable[[Iterable[Task]], Iterator[str]]] = {
    "json": plain.write,
    "jsonl": plain.write_lines,
    "csv": plain.write_csv,
    "markdown": markdown.write,
    "beads": beads.write,
    "mermaid": mermaid.write,
}
PREFIXES = {"taskmaster": taskmaster.PREFIX}
"""The prefix of ids that mean nothing by themselves."""
BY_ADDRESS = ("github", "gitlab")
"""The formats in which the prefix names the repository."""


def read(text: str, format: str = "", prefix: str = "") -> tuple[str, list[Found]]:
    """The records of a text, and its format."""
    text = text.removeprefix("\ufeff")
    format = format or detect(text)
    found = list(READERS[format](text, prefix))
    return format, found if format in BY_ADDRESS else prefixed(
        found, prefix or PREFIXES.get(format, "")
    )


def read_folder(path: str, prefix: str = "") -> tuple[str, list[Found]]:
    return FOLDER, prefixed(list(backlog.parse_folder(path)), prefix)


def prefixed(found: list[Found], prefix: str) -> list[Found]:
    """The records with the prefix before their ids, wherever they are mentioned."""
    if not prefix:
        return found
    ids = {item["id"] for _, item in found if isinstance(item, dict)}

    def named(id: Any) -> Any:
        return f"{prefix}{id}" if isinstance(id, str) and id in ids else id

    for _, item in found:
        if isinstance(item, dict):
            for field in ("id", "parent", "found_in"):
                if field in item:
                    item[field] = named(item[field])
            if isinstance(item.get("after"), list):
                item["after"] = [named(id) for id in item["after"]]
    return found


def detect(text: str) -> str:
    """The format of a text, judged by its contents."""
    start = text.lstrip()
    if not start:
        raise InvalidError(
            "the text is empty", next="check the program that should write it, or give --format"
        )
    if start[:1] in ("{", "["):
        return detect_json(text)
    lines = text.split("\n")
    if any(markdown.ITEM.match(line) for line in lines):
        return "markdown"
    heading = {cell.strip().strip('"').lower() for cell in re.split("[,;\t]", lines[0])}
    if "id" in heading and len(heading) > 1:
        return "csv"
    raise InvalidError(
        "the format of the text is not known", next=f"give --format, one of: {', '.join(READERS)}"
    )


def detect_json(text: str) -> str:
    first = next((value for _, value in plain.values(text) if isinstance(value, dict)), {})
    if "id" not in first and taskmaster.lists_of(first):
        return "taskmaster"
    first = next((one for _, one in plain.records(text) if isinstance(one, dict)), {})
    if "iid" in first:
        return "gitlab"
    if "number" in first and ("id" not in first or "html_url" in first or "url" in first):
        return "github"
    if "issue_type" in first and "status" in first:
        return "beads"
    return "jsonl" if text.lstrip().startswith("{") else "json"
