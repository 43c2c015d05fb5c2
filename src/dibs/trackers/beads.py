"""Beads: the JSON lines that `bd export` writes, as in `.beads/issues.jsonl`.

Its priorities go from 0, the highest, to 4; the default, 2, is 0 here. What `blocks` an issue must
be done before it; `parent-child` and `discovered-from` say where it belongs.
"""

from __future__ import annotations

import json
from datetime import UTC

from dibs.trackers.fields import (
    COMPLETED,
    OPEN,
    filled,
    line_of,
    names_of,
    state_of,
    text_in,
    wrong,
)
from dibs.trackers.plain import records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dibs.errors import InvalidError
    from dibs.records import Task
    from dibs.trackers.fields import Item, Parsed

USUAL, LOWEST = 2, 4
LINKS = {"blocks": "after", "parent-child": "parent", "discovered-from": "found_in"}
TEXTS = ("description", "design", "acceptance_criteria", "notes")
KINDS = ("bug", "feature", "task", "epic", "chore")


def parse(text: str, prefix: str = "") -> Parsed:
    for place, record in records(text):
        if not isinstance(record, dict):
            yield place, record
        elif record.get("status") != "tombstone":  # a deleted issue
            yield place, issue_of(record)


def issue_of(record: Item) -> Item | InvalidError:
    if not isinstance(record.get("id"), str) or not record["id"]:
        return wrong("it has no id")
    priority = record.get("priority", USUAL)
    if isinstance(priority, bool) or not isinstance(priority, int):
        return wrong("its priority is not a number")
    item: Item = {
        "id": record["id"],
        "title": line_of(record.get("title")),
        "state": state_of(record.get("status", OPEN)),
        "labels": names_of(record.get("labels")),
        "kind": text_in(record, "issue_type"),
        "priority": USUAL - priority,
        "after": [],
        "payload": filled(
            **{name: record.get(name) for name in TEXTS}, assignee=record.get("assignee")
        ),
    }
    if item["state"] == COMPLETED and text_in(record, "close_reason"):
        item["result"] = record["close_reason"]
    links = record.get("dependencies")
    for link in links if isinstance(links, list) else []:
        field = LINKS.get(str(link.get("type", "blocks"))) if isinstance(link, dict) else None
        if field == "after":
            item["after"].append(link.get("depends_on_id"))
        elif field is not None:
            item[field] = link.get("depends_on_id")
    return item


def write(tasks: Iterable[Task]) -> Iterator[str]:
    return (f"{json.dumps(record_of(task), ensure_ascii=False)}\n" for task in tasks)


def record_of(task: Task) -> Item:
    """A task as `bd import` expects it."""
    ended = state_of(task.state) != OPEN
    payload = task.payload if isinstance(task.payload, dict) else {}
    found = {"after": task.after, "parent": task.parent, "found_in": task.found_in}
    links = [
        {
            "issue_id": task.id,
            "depends_on_id": other,
            "type": type,
            "created_at": moment(task.added_at),
        }
        for type, field in LINKS.items()
        for other in ([found[field]] if isinstance(found[field], str) else found[field] or ())
    ]
    texts = {name: text_in(payload, name) for name in TEXTS}
    texts["description"] = texts["description"] or text_in(payload, "body")
    return {
        "id": task.id,
        "title": task.title or task.id,
        "status": "closed" if ended else "in_progress" if task.state == "claimed" else "open",
        "priority": min(LOWEST, max(0, USUAL - task.priority)),
        "issue_type": task.kind if task.kind in KINDS else "task",
        "created_at": moment(task.added_at),
        "updated_at": moment(task.changed_at),
        **filled(
            **texts,
            assignee=task.agent or text_in(payload, "assignee"),
            labels=list(task.labels),
            closed_at=moment(task.changed_at) if ended else None,
            close_reason=words(task.result) or task.reason if ended else None,
            dependencies=links,
        ),
    }


def words(result: object) -> str:
    return result if isinstance(result, str) else json.dumps(result) if result is not None else ""


def moment(wall_ms: int) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
