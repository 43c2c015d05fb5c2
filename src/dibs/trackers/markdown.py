"""Checklists in Markdown: an item is a task, and items nested in it must be done before it.

    - [ ] Ship the login (labels: web, urgent)
      - [x] Draw the form
      - [ ] Check the password (id: check) (after: draw-the-form)

At its end, an item may give `id`, `after`, `labels`, `tags`, `leases`, `kind`, `priority`, `parent`
and `assignee`. Without an `id`, the id is made from the words of the title, so a new title makes a
new task. Items in fenced code blocks are ignored.
"""

from __future__ import annotations

import re

from dibs.trackers.fields import (
    CANCELLED,
    COMPLETED,
    OPEN,
    PARTS,
    line_of,
    names_of,
    state_of,
    wrong,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dibs.records import Task
    from dibs.trackers.fields import Item, Parsed

ITEM = re.compile(r"(?P<indent>[ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]+\[(?P<box>[ xX~-])\](?:[ \t]+|$)")
FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
SAID = re.compile(
    r"[ \t]*(?<!\\)\((id|after|labels|tags|leases|kind|priority|parent|assignee): "
    r"((?:\\.|[^()\\])*)\)[ \t]*$"
)
ESCAPED = re.compile(r"\\([\\(),])")
ENOUGH = 60
"""How long an id made of words may be."""
BOXES = {OPEN: " ", COMPLETED: "x", CANCELLED: "-"}
RESULT = "Result: "


class Line:
    """An item of a checklist.

    number: its line, counted from 0
    above: the item that it is nested in
    """

    def __init__(self, number: int, text: str, above: Line | None) -> None:
        match = ITEM.match(text)
        assert match is not None
        self.number, self.above = number, above
        self.head, self.box = text[: match.end("indent")], match["box"]
        self.depth = len(match["indent"].expandtabs(4))
        self.bullet = text[match.end("indent") : match.start("box") - 1]
        self.said: dict[str, str] = {}
        rest = text[match.end() :].rstrip()
        while (said := SAID.search(rest)) is not None:
            self.said.setdefault(said[1], said[2])
            rest = rest[: said.start()]
        self.title = line_of(unescaped(rest))
        self.id = unescaped(self.said.get("id", "")).strip()
        self.under: list[Line] = []

    def text(self) -> str:
        """The line with its current values."""
        said = "".join(f" ({name}: {value})" for name, value in self.said.items() if value)
        box = self.box
        return f"{self.head}{self.bullet}[{box}] {title_text(self.title)}{said}".rstrip()


def lines_of(text: str) -> list[Line]:
    """The items of a text, each with its id."""
    found: list[Line] = []
    stack: list[Line] = []
    used: dict[str, int] = {}
    fence = ""
    for number, line in enumerate(text.split("\n")):
        if mark := FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
            continue
        if fence or ITEM.match(line) is None:
            if line.startswith("#"):
                stack = []  # a heading ends the list
            continue
        made = Line(number, line.rstrip("\r"), None)
        while stack and stack[-1].depth >= made.depth:
            stack.pop()
        if stack:
            made.above = stack[-1]
            stack[-1].under.append(made)
        if not made.id:
            word = slug(made.title)
            used[word] = used.get(word, 0) + 1
            made.id = word if used[word] == 1 else f"{word}-{used[word]}"
        stack.append(made)
        found.append(made)
    return found


def slug(title: str) -> str:
    words = re.findall(r"[^\W_]+", title.lower())
    return "-".join(words)[:ENOUGH].strip("-") or "task"


def parse(text: str, prefix: str = "") -> Parsed:
    lines = lines_of(text)
    ids = {line.id for line in lines}
    for line in lines:
        if not line.title and "id" not in line.said:
            yield (f"line {line.number + 1}", wrong("this item has no text", "say what to do"))
            continue
        item = item_of(line)
        # A dependency may also be named by its title.
        item["after"] = [
            slug(need) if need not in ids and slug(need) in ids else need for need in item["after"]
        ]
        yield f"line {line.number + 1}", item


def item_of(line: Line) -> Item:
    item: Item = {"id": line.id, "title": line.title, "state": state_of(line.box)}
    item |= {"labels": [], "after": []}
    for name, value in line.said.items():
        if name in PARTS:
            item[name] = listed(value)
        elif name == "priority":
            item[name] = int(value) if re.fullmatch(r"-?\d{1,9}", value.strip()) else value
        elif name in ("kind", "parent"):
            item[name] = unescaped(value)
    item["labels"] = names_of(item["labels"])
    if line.above is not None:
        item.setdefault("parent", line.above.id)
    if line.under:
        item["after"] = [*dict.fromkeys([*item["after"], *(one.id for one in line.under)])]
    if "assignee" in line.said:
        item["payload"] = {"assignee": unescaped(line.said["assignee"])}
    return item


def listed(value: str) -> list[str]:
    """The parts of a value between commas that are not escaped."""
    parts = re.findall(r"(?:\\.|[^\\,])+", value)
    return [text for part in parts if (text := unescaped(part).strip())]


def unescaped(text: str) -> str:
    return ESCAPED.sub(r"\1", text)


def escaped(text: str) -> str:
    return re.sub(r"[\\(),]", r"\\\g<0>", text)


def title_text(title: str) -> str:
    """A title whose end cannot be mistaken for the item's fields."""
    kept = re.sub(r"\\(?=[\\(),]|$)", r"\\\\", title)
    return re.sub(r"\((?=[a-z]+: )", r"\\(", kept)


def joined(values: Iterable[str]) -> str:
    return ", ".join(map(escaped, values))


def write(tasks: Iterable[Task]) -> Iterator[str]:
    """A flat list, in the order of the tasks; parents are named in words."""
    for task in tasks:
        said = {
            "id": escaped(task.id),
            "after": joined(task.after),
            "labels": joined(task.labels),
            "tags": joined(task.tags),
            "leases": joined(task.declared),
            "kind": escaped(task.kind),
            "priority": str(task.priority or ""),
            "parent": escaped(task.parent or ""),
        }
        told = "".join(f" ({name}: {value})" for name, value in said.items() if value)
        box = BOXES[state_of(task.state)]
        yield f"- [{box}] {title_text(task.title)}".rstrip() + f"{told}\n"
