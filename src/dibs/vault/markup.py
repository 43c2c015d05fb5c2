"""Agents' words as text that nothing interprets, and links that work in Obsidian and on forges.

Text goes through `inline` or `quoted_lines`, which write every character with a meaning in
Markdown, HTML or Obsidian as a character reference; JSON through `fenced`, whose strings escape
these characters so that no fence ends early; front matter through `front_matter`, whose strings are
double-quoted YAML. Control characters and invisible characters never pass.

A link is `[[tasks/fix-login]]`, or `[[files/src+a.py|src/a.py]]` if the name differs. At the end of
a note each link is defined once more (`[tasks/fix-login]: <../tasks/fix-login.md>`): Obsidian does
not show these lines, and a forge, which does not know `[[…]]`, follows them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache

from dibs.records import is_hidden, visible
from dibs.vault.names import DAYS, Ref, stem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TEXT_LIMIT, JSON_LIMIT, LABEL_LIMIT = 300, 20_000, 80
LATEST = 253_402_300_799
"""The last second that a date can name."""
SIGN = re.compile(r"[!#$%&*+<=>@\[\\\]^_`{|}~]|:(?=[:/])|(?<=:):|(?<=www)\.", re.IGNORECASE)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
IN_STRINGS = re.compile(r"[!$%&*<=>@\[\]`{|}~]|:(?=:)")
IN_YAML = re.compile(r"[\"\\\[\]<>`%$&{}]")
LABEL = re.compile(r"[^\w ./:@+,=()?!'#-]|:(?=:)|(?<![^\W_])_|_(?![^\W_])")


def inline(text: str, limit: int = TEXT_LIMIT) -> str:
    """Text within a line, cut."""
    text = " ".join(text.split("\n"))
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return SIGN.sub(reference, visible(text.expandtabs(4)))


def whole_line(text: str, limit: int) -> str:
    """A separate line, where a leading `1.` or `-` would make a list, and four spaces code."""
    text = inline(text, limit)
    return text if text[0].isalpha() or text[0] == "&" else reference(text) + text[1:]


def reference(found: re.Match[str] | str) -> str:
    return f"&#{ord(found[0])};"


def quoted_lines(text: str, limit: int = JSON_LIMIT) -> list[str]:
    """Text of several lines, as a quotation."""
    cut = text[:limit]
    lines = [f"> {whole_line(line, limit)}\\" if line.strip() else ">" for line in cut.split("\n")]
    lines[-1] = lines[-1].removesuffix("\\")
    return [*lines, "", f"Cut after {limit:,} characters."] if len(text) > limit else lines


def fenced(value: Any) -> list[str]:
    """A JSON value as a code block that no line in it can end."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    cut = text[:JSON_LIMIT] if len(text) > JSON_LIMIT else ""
    shown = cut.rpartition("\n")[0] if "\n" in cut else cut and '"…"'
    text = STRING.sub(lambda found: IN_STRINGS.sub(escape, found[0]), shown or text)
    text = "\n".join(
        "".join(escape(one) if is_hidden(one) else one for one in line) if not plain(line) else line
        for line in text.split("\n")
    )
    more = ["", f"Cut after {JSON_LIMIT:,} characters."] if cut else []
    return ["```json", text, "```", *more]


def plain(line: str) -> bool:
    return line.isascii() and line.isprintable()


def escape(found: re.Match[str] | str) -> str:
    code = ord(found[0])
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def front_matter(fields: Iterable[tuple[str, Any]]) -> list[str]:
    """The lines of front matter; a field without a value is left out."""
    return [f"{name}: {yaml(value)}" for name, value in fields if value not in (None, "", [])]


def yaml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Link):
        return f'"{value}"'
    if isinstance(value, str):
        plain = value.isascii() and value.isprintable() and IN_YAML.search(value) is None
        return f'"{value}"' if plain else '"' + "".join(map(in_yaml, value)) + '"'
    return f"[{', '.join(map(yaml, value))}]"


def in_yaml(one: str) -> str:
    if one in '"\\':
        return f"\\{one}"
    if IN_YAML.match(one) or is_hidden(one):
        code = ord(one)
        return f"\\x{code:02x}" if code < 256 else f"\\U{code:08x}"
    return one


class Link(str):
    """A link as it is written in a note."""

    __slots__ = ()


class Page:
    """A note that is being written: its lines, and what it links to."""

    def __init__(self, ref: Ref) -> None:
        self.ref = ref
        self.lines: list[str] = []
        self.links: dict[Ref, Link] = {}

    def link(self, ref: Ref) -> Link:
        if ref not in self.links:
            path = ref.path
            same = ref.name == path.rpartition("/")[2]
            self.links[ref] = Link(f"[[{path}]]" if same else f"[[{path}|{label(ref.name)}]]")
        return self.links[ref]

    def day(self, at: int) -> Link:
        return self.link(Ref(DAYS, date(at)))

    def add(self, *lines: str) -> None:
        self.lines += lines

    def section(self, title: str, lines: Sequence[str]) -> None:
        if lines:
            self.add("", f"## {title}", "", *lines)

    def text(self, fields: Sequence[tuple[str, Any]]) -> str:
        """The whole note without its digest, which is added when it is written."""
        up = "../" if self.ref.folder else ""
        inside = {ref: link for ref, link in self.links.items() if ref != self.ref}
        definitions = [f"{link[1:-1]}: <{up}{ref.path}.md>" for ref, link in inside.items()]
        body = [*self.lines, *(["", *definitions] if definitions else [])]
        return "\n".join(["---", *front_matter(fields), "---", "", *body, ""])


def label(name: str) -> str:
    """A name as link text, where nothing can be escaped: special characters become dots."""
    shown = LABEL.sub("·", visible(name).replace("\\u{", "u+").replace("}", " "))
    return f"{shown[: LABEL_LIMIT - 1]}…" if len(shown) > LABEL_LIMIT else shown


def aliases(name: str) -> list[str]:
    """Other names by which Obsidian can find a note."""
    return [] if stem(name) == name or label(name) != name else [name]


def date(at: int) -> str:
    return iso(at)[:10]


def clock(at: int) -> str:
    return iso(at)[11:-1]


def iso(at: int) -> str:
    """A time of the journal in UTC; an impossible one, from a wrong clock, is moved into range."""
    return of_second(min(max(at // 1000, 0), LATEST))


@lru_cache(10_000)
def of_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
