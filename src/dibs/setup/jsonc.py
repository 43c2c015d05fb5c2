"""JSON with comments and trailing commas, read with the place of every element.

The text is never rewritten: a member or an item is inserted beside what is there, in the style of
its surroundings, and is cut out again with the one comma that came with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from dibs.setup.files import BLANK, BOM, Draft, Refusal, cut, line_of

DEEPEST = 200
LONGEST_NUMBER = 400
LIMIT = 512 << 10
BLANKS = re.compile(r"([ \t\r\n]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
# A line comment ends before its line end.
COMMENT = re.compile(r"//.*?(?=\r?\n)|/\*.*?\*/", re.DOTALL)
SCALAR = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|true|false|null")
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')


class Node:
    """A value: the whole, a member of an object or an item of a list.

    start: its first character, or that of its key if it has one
    opens: the first character of the value itself
    elements: what an object or a list contains
    before, after: the places of the commas on both sides
    previous: the element before it
    """

    def __init__(self, opens: int, value: Any = None) -> None:
        self.start = self.opens = self.end = opens
        self.key: str | None = None
        self.value = value
        self.elements: list[Node] = []
        self.before: int | None = None
        self.after: int | None = None
        self.previous: Node | None = None

    def member(self, key: str) -> Node | None:
        return next((element for element in self.elements if element.key == key), None)

    def find(self, path: Sequence[str]) -> Node | None:
        """What is at the end of a path of keys."""
        node: Node | None = self
        for key in path:
            node = node and node.member(key)
        return node

    def value_at(self, path: Sequence[str]) -> Any:
        found = self.find(path)
        return found.value if found else None


def parse(text: str) -> Node:
    """Read a whole file; an empty one is an empty object."""
    if len(text) > LIMIT:
        raise Refusal(f"it is larger than {LIMIT >> 10} KiB", next="make it smaller")
    reader = JsonReader(text)
    reader.blank()
    if reader.place == len(text):
        return Node(len(text), {})
    node = reader.read(0)
    reader.blank()
    if reader.place < len(text):
        reader.fail("there is text after the end")
    return node


class JsonReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = len(BOM) if text.startswith(BOM) else 0

    def fail(self, why: str) -> NoReturn:
        line = line_of(self.text, self.place)
        raise Refusal(why, line, "fix the file, then run dibs init again")

    def blank(self) -> None:
        """Skip spaces and comments."""
        if found := BLANKS.match(self.text, self.place):
            self.place = found.end()
        if self.text.startswith("/*", self.place):
            self.fail("a comment has no end")

    def here(self) -> str:
        return self.text[self.place : self.place + 1]

    def read(self, depth: int) -> Node:
        if depth > DEEPEST:
            self.fail("it is nested too deeply")
        node = Node(self.place)
        char = self.here()
        if char in ("{", "["):
            self.collect(node, depth)
        elif char == '"':
            node.value = self.string()
        elif scalar := SCALAR.match(self.text, self.place):
            if len(scalar[0]) > LONGEST_NUMBER:
                self.fail("a number has too many digits")
            node.value = json.loads(scalar[0])
            self.place = scalar.end()
        else:
            self.fail("a value was expected")
        node.end = self.place
        return node

    def string(self) -> str:
        found = STRING.match(self.text, self.place)
        if found is None:
            self.fail("a string was expected, in double quotes and on one line")
        try:
            value: str = json.loads(found[0])
        except ValueError:
            self.fail("a string has an escape that JSON does not allow")
        self.place = found.end()
        return value

    def collect(self, node: Node, depth: int) -> None:
        """Read the elements of an object or a list."""
        is_object = self.here() == "{"
        node.value = {} if is_object else []
        self.place += 1
        comma = None
        while True:
            self.blank()
            if self.here() == ("}" if is_object else "]"):
                self.place += 1
                return
            if node.elements and comma is None:
                self.fail("a comma is missing" if self.here() else "it ends in the middle")
            start = self.place
            key = self.key(node) if is_object else None
            element = self.read(depth + 1)
            element.start, element.key, element.before = start, key, comma
            element.previous = node.elements[-1] if node.elements else None
            node.elements.append(element)
            if key is None:
                node.value.append(element.value)
            else:
                node.value[key] = element.value
            self.blank()
            comma = None
            if self.here() == ",":
                comma = element.after = self.place
                self.place += 1

    def key(self, node: Node) -> str:
        key = self.string()
        if key in node.value:
            self.fail(f"the key {json.dumps(key)} appears twice")
        self.blank()
        if self.here() != ":":
            self.fail("a colon is missing")
        self.place += 1
        self.blank()
        return key


def add(draft: Draft, node: Node, value: Any, key: str | None = None) -> None:
    """Insert a member (with a key) or an item (without) as the last of a node of this text."""
    text = draft.text
    head = "" if key is None else json.dumps(key) + ": "
    if node.opens == node.end:  # an empty file
        gap = "\n" if text.strip(BLANK + BOM) and not text.endswith("\n") else ""
        draft.insert(len(text), f"{gap}{{\n  {head}{spread(value, '  ', '  ')}\n}}\n")
        return
    content = content_end(text, node)
    on_lines = "\n" in text[content : node.end - 1]
    last = node.elements[-1] if node.elements else None
    outer, unit = indent_at(text, node.opens), unit_of(text)
    inner = indent_at(text, last.start) if last and starts_line(text, last.start) else outer + unit
    if last and not on_lines:
        piece = f" {head}{json.dumps(value, ensure_ascii=False)}"
    else:
        piece = f"\n{inner}{head}{spread(value, inner, unit)}"
    if last is None and not on_lines:
        piece += f"\n{outer}"
        content = node.end - 1
    if last and last.after is not None:
        piece += ","
    draft.insert(content, piece)
    if last and last.after is None:
        draft.insert(last.end, ",")


def take(text: str, element: Node) -> str:
    """Cut an element out, with one comma and its line; later elements first."""
    if element.after is None and element.previous is not None:
        element.previous.after = None  # that comma is removed
    comma = element.after if element.after is not None else element.before
    start, end = element.start, element.end
    rest = end + 1 if element.after == end else end
    line_start = len(text[:start].rstrip(" \t"))
    line_end = len(text) - len(text[rest:].lstrip(" \t\r"))
    if text[line_start - 1 : line_start] == "\n" and text[line_end : line_end + 1] in ("\n", ""):
        start = line_start - (2 if text[:line_start].endswith("\r\n") else 1)
        end = line_end - 1 if text[line_end - 1 : line_end] == "\r" else line_end
    elif element.before is not None and not starts_line(text, start):
        start = line_start
    elif element.after == end:
        end = len(text) - len(text[rest:].lstrip(" \t"))
    spans = [(start, end)]
    if comma is not None and not start <= comma < end:
        spans.append((comma, comma + 1))
    return cut(text, spans)


def content_end(text: str, node: Node) -> int:
    """Where the last element, comma or comment of an object or a list ends."""
    end = node.opens + 1
    if node.elements:
        last = node.elements[-1]
        end = last.end if last.after is None else last.after + 1
    for comment in COMMENT.finditer(text, end, node.end - 1):
        end = comment.end()
    return end


def starts_line(text: str, place: int) -> bool:
    return text[:place].rstrip(" \t").endswith("\n")


def indent_at(text: str, place: int) -> str:
    """The white space at the beginning of the line of this place."""
    line = text[text.rfind("\n", 0, place) + 1 : place].lstrip(BOM)
    return line[: len(line) - len(line.lstrip(" \t"))]


def unit_of(text: str) -> str:
    """The indentation of one level: that of the first indented line."""
    found = re.search(r"\n([ \t]+)[\"{\[]", text)
    return found[1] if found else "  "


def spread(value: Any, indent: str, unit: str) -> str:
    """A value over several lines; a list of plain values stays on one."""
    plain = isinstance(value, list) and not any(isinstance(part, dict | list) for part in value)
    if not value or plain or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    deeper = indent + unit
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {spread(part, deeper, unit)}" for key, part in value.items()]
    else:
        parts = [spread(part, deeper, unit) for part in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = ",\n".join(deeper + part for part in parts)
    return f"{opening}\n{lines}\n{indent}{closing}"
