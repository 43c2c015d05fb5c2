"""A vault as Obsidian and a forge read it: notes, their front matter, and where links lead."""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

WIKI = re.compile(r"(!?)\[\[([^\]|]+)(?:\|([^\]]*))?\]\]")
DEFINED = re.compile(r"^\[([^\]]+)\]: <([^>]+)>$", re.MULTILINE)


def notes(vault: Path) -> dict[str, str]:
    """All notes by their paths, without the extension."""
    return {
        str(path.relative_to(vault))[: -len(".md")]: path.read_text(encoding="utf-8")
        for path in sorted(vault.rglob("*.md"))
    }


def fields(text: str) -> dict[str, Any]:
    """The front matter. It is YAML of a simple kind, whose values are literals of Python too."""
    assert text.startswith("---\n")
    head = text[4:].partition("\n---\n")[0]
    return {
        name: ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
        for name, _, value in (line.partition(": ") for line in head.split("\n"))
    }


def links(text: str) -> set[str]:
    """Where a note links to, by any means."""
    return {target for _, target, _ in WIKI.findall(text)}


def check(vault: Path) -> dict[str, str]:
    """Every link of every note leads to a note, in Obsidian and on a forge; nothing is embedded."""
    found = notes(vault)
    for path, text in found.items():
        defined = dict(DEFINED.findall(text))
        for embeds, target, label in WIKI.findall(text):
            assert not embeds, (path, target)
            assert target in found, (path, target)
            if target != path:
                spelled = f"{target}|{label}" if label else target
                led_to = posixpath.join(posixpath.dirname(path), defined[spelled])
                assert posixpath.normpath(led_to) == f"{target}.md", (path, spelled)
    return found
