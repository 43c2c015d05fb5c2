"""JSON, JSON lines and CSV: the fields of a task under their own or other common names.

JSON text is a sequence of values, on separate lines or not; an array counts as its items, so the
output of `gh api --paginate` is read like a file of lines. Other fields of a record are kept in its
payload, unless it has one. A cell of a table may contain several names separated by `;`, or JSON.
"""

from __future__ import annotations

import json
import re

from dibs.arguments import TEXT_LIMIT
from dibs.errors import InvalidError
from dibs.trackers.fields import OPEN, PARTS, line_of, state_of, wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from dibs.records import Task
    from dibs.trackers.fields import Item, Parsed

FIELDS = ("id", "title", "state", "kind", "priority", "labels", "tags", "after", "parent",
          "found_in", "with_children", "leases", "payload", "result")  # fmt: skip
ALIASES = {
    **dict.fromkeys(("name", "summary", "subject"), "title"),
    **dict.fromkeys(("depends_on", "dependencies", "blocked_by"), "after"),
    **dict.fromkeys(("status",), "state"),
    **dict.fromkeys(("label",), "labels"),
    **dict.fromkeys(("tag",), "tags"),
    **dict.fromkeys(("lease", "files", "declared"), "leases"),
    **dict.fromkeys(("type",), "kind"),
}
TOLD = {"agent", "author", "reason", "added_at", "changed_at"}
"""Additional fields of an export, which are not imported."""
VALUES = ("payload", "result")
"""The fields that may be any JSON."""
WRAPPERS = ("issues", "items", "tasks")
BLANK = re.compile(r"[\s,]*")


def values(text: str) -> Iterator[tuple[int, Any]]:
    """Each value of a JSON text with its line, arrays split into items; or what is wrong."""
    decoder = json.JSONDecoder(parse_constant=no_constant)
    end, line, counted, depth = 0, 1, 0, 0
    while True:
        end = BLANK.match(text, end).end()  # type: ignore[union-attr]
        line, counted = line + text.count("\n", counted, end), end
        if end == len(text):
            return
        if text[end] in "[]":
            depth += 1 if text[end] == "[" else -1
            end += 1
            continue
        try:
            value, end = decoder.raw_decode(text, end)
        except (ValueError, RecursionError):
            yield line, wrong("this is not JSON")
            # On separate lines, the next value can be found; in an array it cannot.
            end = text.find("\n", end) if depth == 0 else -1
            if end < 0:
                return
            continue
        yield line, value


def no_constant(name: str) -> None:
    raise ValueError(name)


def records(text: str) -> Iterator[tuple[str, Item | InvalidError]]:
    """The objects in a JSON text, each with its place."""
    for line, value in values(text):
        inner = next((value[name] for name in WRAPPERS if is_wrapper(value, name)), None)
        if inner is None:
            yield f"line {line}", object_or_wrong(value)
        else:
            for number, one in enumerate(inner, 1):
                yield f"item {number}", object_or_wrong(one)


def object_or_wrong(value: Any) -> Item | InvalidError:
    is_fit = isinstance(value, (dict, InvalidError))
    return value if is_fit else wrong("this is not an object")


def is_wrapper(value: object, name: str) -> bool:
    return isinstance(value, dict) and "id" not in value and isinstance(value.get(name), list)


def parse(text: str, prefix: str = "") -> Parsed:
    for place, record in records(text):
        yield place, task_of(record) if isinstance(record, dict) else record


def task_of(record: Item) -> Item | InvalidError:
    """The arguments of `work.put` in a record."""
    item: Item = {}
    rest: Item = {}
    for name, value in record.items():
        field = name if name in FIELDS else ALIASES.get(name.lower().replace(" ", "_"), "")
        if field and field not in item and value is not None:
            item[field] = value
        elif name not in TOLD and value is not None:
            rest[name] = value
    if isinstance(item.get("id"), int) and not isinstance(item["id"], bool):
        item["id"] = str(item["id"])
    if not item.get("id"):
        return wrong("it has no id", "give each record an id that stays the same")
    title = item.get("title")
    if isinstance(title, str) and not title.isprintable():
        item["title"] = line_of(title)
    for part in PARTS:
        if isinstance(item.get(part), list):
            item[part] = [str(one) if isinstance(one, int) else one for one in item[part]]
        elif isinstance(item.get(part), str):
            item[part] = [item[part]]
    item["state"] = state_of(item.get("state", OPEN))
    if rest and "payload" not in item:
        item["payload"] = rest
    return item


def exported(task: Task) -> Item:
    """A task in a form that can be imported again, with additional information."""
    item = {name: getattr(task, name) for name in FIELDS if name != "leases"}
    item["leases"] = task.declared
    item = {name: list(one) if isinstance(one, tuple) else one for name, one in item.items()}
    item |= {name: getattr(task, name) for name in sorted(TOLD)}
    return {name: one for name, one in item.items() if (one is not None if name in VALUES else one)}


def write(tasks: Iterable[Task]) -> Iterator[str]:
    """An array with a record on each line."""
    mark = "["
    for task in tasks:
        yield f"{mark}\n{json.dumps(exported(task), ensure_ascii=False)}"
        mark = ","
    yield "[]\n" if mark == "[" else "\n]\n"


def write_lines(tasks: Iterable[Task]) -> Iterator[str]:
    return (f"{json.dumps(exported(task), ensure_ascii=False)}\n" for task in tasks)


def parse_csv(text: str, prefix: str = "") -> Parsed:
    import csv
    import io

    text = text.removeprefix("\ufeff")
    first = text.partition("\n")[0]
    mark = max(",;\t", key=first.count)  # it depends on the author's locale
    rows = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
    header: list[str] | None = None
    before = 0
    try:
        for row in rows:
            place, before = f"line {before + 1}", rows.line_num
            if header is None:
                header = [cell.strip() for cell in row]
            elif len(row) > len(header):
                yield place, wrong(f"{len(row)} cells under {len(header)} headings")
            elif any(row):
                yield place, task_of_cells(dict(zip(header, row, strict=False)))
    except csv.Error as error:
        yield f"line {rows.line_num}", wrong(f"this is not CSV: {error}")


def task_of_cells(cells: dict[str, str]) -> Item | InvalidError:
    item = task_of({name: cell for name, cell in cells.items() if cell})
    if not isinstance(item, dict):
        return item
    try:
        for part in PARTS:
            if part in item:
                item[part] = parts_of(item[part][0])
        for name in VALUES:
            if isinstance(item.get(name), str):
                item[name] = json.loads(item[name], parse_constant=no_constant)
        if "priority" in item:
            item["priority"] = int(item["priority"])
    except (ValueError, RecursionError) as error:
        return wrong(f"a cell cannot be read: {error}"[:TEXT_LIMIT])
    if "with_children" in item:
        item["with_children"] = item["with_children"].lower() in ("true", "yes", "1")
    return item


def parts_of(cell: str) -> list[Any]:
    if cell.startswith("["):
        found = json.loads(cell)
        if isinstance(found, list):
            return found
    parts = cell.split(";" if ";" in cell else ",")
    return [part.strip() for part in parts if part.strip()]


def write_csv(tasks: Iterable[Task]) -> Iterator[str]:
    import csv
    import io

    page = io.StringIO(newline="")
    sheet = csv.DictWriter(page, [*FIELDS, *sorted(TOLD)], lineterminator="\n")
    sheet.writeheader()
    for task in tasks:
        sheet.writerow({name: cell_of(name, one) for name, one in exported(task).items()})
        yield page.getvalue()
        page.seek(0)
        page.truncate()
    yield page.getvalue()


def cell_of(name: str, value: Any) -> object:
    if name in VALUES:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        odd = any(part.startswith("[") or "," in part or ";" in part for part in value)
        return json.dumps(value, ensure_ascii=False) if odd else ";".join(value)
    return value
