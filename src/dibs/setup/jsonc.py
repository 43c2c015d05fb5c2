"""JSON with comments and trailing commas, read with the place of every element.

The text is never written anew: a member or an item is inserted beside what is there, in the
style of its surroundings, and is cut out again with the one comma that came with it.
"""

from __future__ import annotations

import json
import re

from dibs.setup.files import BOM, Draft, Refusal, cut, line_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

BLANK = " \t\r\n"
DEEPEST = 200
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
WORDS = {"true": True, "false": False, "null": None}


class Node:
    """A value and where it stands; an object or a list has elements."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.value: Any = None
        self.elements: list[Element] = []

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict)

    def member(self, key: str) -> Element | None:
        return next((element for element in self.elements if element.key == key), None)


class Element:
    """A member of an object or an item of a list, from its first character to its last."""

    def __init__(self, start: int, key: str | None, node: Node, before: int | None) -> None:
        self.start = start
        self.key = key
        self.node = node
        # Where the commas on its two sides are.
        self.before = before
        self.after: int | None = None

    @property
    def end(self) -> int:
        return self.node.end


def parse(text: str) -> Node:
    """Read a whole file; one that says nothing is an empty object."""
    reader = JsonReader(text)
    reader.blank()
    if reader.place == len(text):
        node = Node(len(text))
        node.value = {}
        return node
    node = reader.read(0)
    reader.blank()
    if reader.place < len(text):
        reader.fail("there is something after the end")
    return node


class JsonReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = len(BOM) if text.startswith(BOM) else 0

    def fail(self, why: str, place: int | None = None) -> NoReturn:
        line = line_of(self.text, self.place if place is None else place)
        raise Refusal(why, line, "mend the file, then run dibs init again")

    def blank(self) -> None:
        """Go on to what is neither space nor comment."""
        text = self.text
        while self.place < len(text):
            if text[self.place] in BLANK:
                self.place += 1
            elif text.startswith("//", self.place):
                end = text.find("\n", self.place)
                self.place = len(text) if end < 0 else end
            elif text.startswith("/*", self.place):
                end = text.find("*/", self.place + 2)
                if end < 0:
                    self.fail("a comment has no end")
                self.place = end + 2
            else:
                return

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
        elif number := NUMBER.match(self.text, self.place):
            node.value = json.loads(number[0])
            self.place = number.end()
        else:
            word = next((word for word in WORDS if self.text.startswith(word, self.place)), None)
            if word is None:
                self.fail("a value was expected")
            node.value = WORDS[word]
            self.place += len(word)
        node.end = self.place
        return node

    def string(self) -> str:
        found = STRING.match(self.text, self.place)
        if found is None:
            self.fail("a string was expected, in double quotes and on one line")
        try:
            value: str = json.loads(found[0])
        except ValueError:
            self.fail("a string has an escape that JSON does not know")
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
            element = self.element(node, is_object, comma, depth)
            node.elements.append(element)
            self.blank()
            comma = None
            if self.here() == ",":
                comma = element.after = self.place
                self.place += 1

    def element(self, node: Node, is_object: bool, comma: int | None, depth: int) -> Element:
        start, key = self.place, None
        if is_object:
            key = self.string()
            if key in node.value:
                self.fail(f"the key {json.dumps(key)} is there twice", start)
            self.blank()
            if self.here() != ":":
                self.fail("a colon is missing")
            self.place += 1
            self.blank()
        value = self.read(depth + 1)
        if key is None:
            node.value.append(value.value)
        else:
            node.value[key] = value.value
        return Element(start, key, value, comma)


def add(draft: Draft, node: Node, value: Any, key: str | None = None) -> None:
    """Insert a member (with a key) or an item (without) as the last of a node of this text."""
    text = draft.text
    if node.start == node.end:  # a file that says nothing
        gap = "\n" if text.strip(BLANK + BOM) and not text.endswith("\n") else ""
        draft.insert(len(text), f"{gap}{{\n  {written(value, key, '  ', '  ')}\n}}\n")
        return
    content = content_end(text, node)
    on_lines = "\n" in text[content : node.end - 1]
    last = node.elements[-1] if node.elements else None
    outer, unit = indent_at(text, node.start), unit_of(text)
    inner = indent_at(text, last.start) if last and starts_line(text, last.start) else outer + unit
    if on_lines:
        piece = "\n" + inner + written(value, key, inner, unit)
    elif last:
        piece = " " + inline(value, key)
    else:
        piece = f"\n{inner}{written(value, key, inner, unit)}\n{outer}"
    if last and last.after is not None:
        piece += ","
    if last is None and not on_lines:
        content = node.end - 1
    draft.insert(content, piece)
    if last and last.after is None:
        draft.insert(last.end, ",")


def take(text: str, element: Element) -> str:
    """Cut an element out, with one comma and the line it stood on."""
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


def collapse(text: str, node: Node) -> str:
    """Leave nothing between the brackets of an empty object or list."""
    inside = text[node.start + 1 : node.end - 1]
    return text if inside.strip(BLANK) else cut(text, [(node.start + 1, node.end - 1)])


def content_end(text: str, node: Node) -> int:
    """Where the last element, comma or comment of an object or a list ends."""
    reader = JsonReader(text)
    reader.place = end = node.start + 1
    if node.elements:
        last = node.elements[-1]
        reader.place = end = last.end if last.after is None else last.after + 1
    while reader.place < node.end - 1:
        if text[reader.place] in BLANK:
            reader.place += 1
            continue
        # Here begins a comment; a line comment ends before its line end.
        if text.startswith("//", reader.place):
            reader.place = text.find("\n", reader.place)
            end = reader.place - (1 if text[reader.place - 1] == "\r" else 0)
        else:
            reader.place = end = text.find("*/", reader.place + 2) + 2
    return end


def starts_line(text: str, place: int) -> bool:
    before = text[:place].rstrip(" \t")
    return before.endswith("\n")


def indent_at(text: str, place: int) -> str:
    """The white space that the line of this place begins with."""
    line = text[text.rfind("\n", 0, place) + 1 : place].lstrip(BOM)
    return line[: len(line) - len(line.lstrip(" \t"))]


def unit_of(text: str) -> str:
    """How much one level is indented: as the first indented line is."""
    found = re.search(r"\n([ \t]+)[\"{\[]", text)
    return found[1] if found else "  "


def written(value: Any, key: str | None, indent: str, unit: str) -> str:
    """A member or an item over several lines; a list of plain values stays on one."""
    head = "" if key is None else json.dumps(key) + ": "
    return head + spread(value, indent, unit)


def spread(value: Any, indent: str, unit: str) -> str:
    plain = isinstance(value, list) and not any(isinstance(part, dict | list) for part in value)
    if not value or plain or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    deeper = indent + unit
    if isinstance(value, dict):
        parts = [written(part, key, deeper, unit) for key, part in value.items()]
    else:
        parts = [spread(part, deeper, unit) for part in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = ",\n".join(deeper + part for part in parts)
    return f"{opening}\n{lines}\n{indent}{closing}"


def inline(value: Any, key: str | None) -> str:
    head = "" if key is None else json.dumps(key) + ": "
    return head + json.dumps(value, ensure_ascii=False)
