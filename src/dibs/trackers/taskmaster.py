"""Task Master: `.taskmaster/tasks/tasks.json`, with or without tags.

Ids are numbers, so they get the prefix `taskmaster:`, and the name of the tag unless it is
`master`. Subtasks are parts of their task, and must be done before it.
"""

from __future__ import annotations

import json

from dibs.trackers.fields import filled, line_of, state_of, wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.trackers.fields import Item, Parsed

PREFIX = "taskmaster:"
PRIORITIES = {"critical": 2, "high": 1, "medium": 0, "low": -1}
TEXTS = ("description", "details", "testStrategy")


def parse(text: str, prefix: str = "") -> Parsed:
    try:
        lists = lists_of(json.loads(text))
    except (ValueError, RecursionError):
        yield "line 1", wrong("this is not JSON")
        return
    for tag, tasks in lists.items():
        own = "" if tag == "master" else f"{tag}:"
        for number, task in enumerate(tasks, 1):
            place = f"task {number} of {tag}"
            if not isinstance(task, dict) or not is_number(task.get("id")):
                yield place, wrong("it has no id")
                continue
            name = f"{own}{task['id']}"
            item = item_of(task, name, own, own)
            subtasks = task.get("subtasks")
            for part in subtasks if isinstance(subtasks, list) else []:
                if not isinstance(part, dict) or not is_number(part.get("id")):
                    yield place, wrong("a subtask of it has no id")
                    continue
                item["after"].append(f"{name}.{part['id']}")
                yield place, {**item_of(part, item["after"][-1], f"{name}.", own), "parent": name}
            yield place, item


def lists_of(value: Any) -> dict[str, list[Any]]:
    """The tasks of each tag."""
    if not isinstance(value, dict):
        return {}
    if isinstance(value.get("tasks"), list):
        return {"master": value["tasks"]}
    tags = {
        tag: one["tasks"] for tag, one in value.items() if isinstance(one, dict) and "tasks" in one
    }
    return {tag: tasks for tag, tasks in tags.items() if isinstance(tasks, list)}


def is_number(value: object) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and value.replace(".", "").isalnum()
    )


def item_of(task: Item, name: str, beside: str, own: str) -> Item:
    """
    beside: the prefix of tasks in the same list
    own: the prefix of whole tasks
    """
    needs = task.get("dependencies")
    item: Item = {
        "id": name,
        "title": line_of(task.get("title")),
        "state": state_of(task.get("status", "pending")),
        "priority": PRIORITIES.get(str(task.get("priority", "")).lower(), 0),
        "after": [
            f"{own if '.' in str(need) else beside}{need}"
            for need in (needs if isinstance(needs, list) else [])
            if is_number(need)
        ],
        "payload": filled(**{text: task.get(text) for text in TEXTS}),
    }
    return item
