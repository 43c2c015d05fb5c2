"""Backlog.md: a folder with a Markdown file for each task, its fields at the top.

The fields are YAML of the kind that Backlog.md writes: a word, a text in quotes, a text over
several lines, or a list. A file that is a link is not read: the folder comes with a repository.
"""

from __future__ import annotations

import json
import os
import re
import stat

from dibs.trackers.fields import COMPLETED, filled, line_of, names_of, state_of, wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from dibs.errors import InvalidError
    from dibs.trackers.fields import Item, Parsed

FOLDERS = ("tasks", "completed")
FILE_LIMIT = 1_048_576
PRIORITIES = {"high": 1, "medium": 0, "low": -1}
FIELD = re.compile(r"([A-Za-z_]\w*):(?:\s+(.*))?$")


def is_folder(path: str) -> bool:
    return os.path.isdir(path)


def folder_of(path: str) -> str:
    """The folder with the tasks: the given one, or `backlog` in it."""
    within = os.path.join(path, "backlog")
    return within if os.path.isdir(os.path.join(within, "tasks")) else path


def parse_folder(path: str) -> Parsed:
    top = folder_of(path)
    for folder in FOLDERS:
        for name in files_in(os.path.join(top, folder)):
            place = f"{folder}/{name}"
            text = read(os.path.join(top, folder, name))
            item = text if isinstance(text, Exception) else item_of(text)
            if isinstance(item, dict) and folder == "completed":
                item["state"] = COMPLETED
            yield place, item


def files_in(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".md"))
    except OSError:
        return []


def read(path: str) -> str | InvalidError:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return wrong(f"it cannot be read: {error.strerror}")
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return wrong("it is not a file")
        data = opened.read(FILE_LIMIT + 1)
    if len(data) > FILE_LIMIT:
        return wrong(f"it has more than {FILE_LIMIT:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return wrong("it is not UTF-8")


def item_of(text: str) -> Item | InvalidError:
    parts = re.split(r"^---[ \t]*\r?$", text, maxsplit=2, flags=re.MULTILINE)
    if len(parts) != 3 or parts[0].strip():
        return wrong("it does not begin with fields between two lines of ---")
    fields = dict(fields_of(parts[1].splitlines()))
    if not isinstance(fields.get("id"), str) or not fields["id"]:
        return wrong("it has no id")
    item: Item = {
        "id": fields["id"],
        "title": line_of(fields.get("title")),
        "state": state_of(fields.get("status", "")),
        "labels": names_of(fields.get("labels")),
        "priority": PRIORITIES.get(str(fields.get("priority", "")).lower(), 0),
        "after": listed(fields.get("dependencies")),
        "payload": filled(
            body=parts[2].strip(), assignees=[*listed(fields.get("assignee"))],
            milestone=fields.get("milestone"),
        ),
    }  # fmt: skip
    if isinstance(fields.get("parent_task_id"), str) and fields["parent_task_id"]:
        item["parent"] = fields["parent_task_id"]
    return item


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) and value else value if isinstance(value, list) else []


def fields_of(lines: list[str]) -> Iterator[tuple[str, Any]]:
    """The fields at the top of a file: texts, and lists of texts."""
    at = 0
    while at < len(lines):
        field = FIELD.match(lines[at])
        at += 1
        if field is None:
            continue
        name, value = field[1], (field[2] or "").strip()
        inner = []
        while at < len(lines) and (lines[at][:1] in (" ", "\t", "-") or not lines[at].strip()):
            inner.append(lines[at].strip())
            at += 1
        if value[:1] in (">", "|"):
            yield name, " ".join(line for line in inner if line)
        elif not value and any(line.startswith("- ") for line in inner):
            yield name, [scalar(line[2:]) for line in inner if line.startswith("- ")]
        elif value.startswith("["):
            whole = " ".join([value, *inner]).strip()
            yield name, [scalar(part) for part in commas(whole.strip("[]")) if part.strip()]
        else:
            yield name, scalar(" ".join([value, *(line for line in inner if line)]))


def commas(text: str) -> list[str]:
    """The parts of a list on one line; a comma in quotes does not separate."""
    return re.findall(r"""(?:"(?:\\.|[^"\\])*"|'(?:''|[^'])*'|[^,"']+)+""", text)


def scalar(text: str) -> str:
    text = text.strip()
    if text[:1] == "'" and text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if text[:1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text.strip('"')
    return text
