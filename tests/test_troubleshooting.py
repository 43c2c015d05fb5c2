"""Whoever looks for a message in docs/troubleshooting.md finds one that dibs really prints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
SECTIONS = [section.partition("\n")[::2] for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)]
MESSAGES = {
    heading: re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE) for heading, text in SECTIONS
}


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text in the source, with `…` for what is filled in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
            )


def plain(text: str) -> str:
    return re.sub("…[…]+", "…", text)


def words(message: str) -> str:
    """What a reader looks for, who sees a name where the page has `…`."""
    return re.sub(r"[^\w ]", "", message).strip().casefold()


@cache
def printable() -> str:
    files = (ROOT / "src/dibs").rglob("*.py")
    found = [text for file in files for text in texts(ast.parse(file.read_text(encoding="utf-8")))]
    found.append((ROOT / "src/dibs/storage/postgres_codes.txt").read_text(encoding="utf-8"))
    return "\n".join(map(plain, found))


@pytest.mark.parametrize("message", [one for found in MESSAGES.values() for one in found])
def test_a_message_of_the_page_is_one_that_dibs_prints(message: str) -> None:
    assert plain(message) in printable()


def test_messages_are_in_the_order_of_the_alphabet() -> None:
    assert sum(map(len, MESSAGES.values())) > 40
    for heading, found in MESSAGES.items():
        assert found == sorted(found, key=words), heading


def test_a_message_that_nobody_prints_is_noticed() -> None:
    assert "… is held by …" in printable()
    assert "… is held by the moon" not in printable()
