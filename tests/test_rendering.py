"""Answers as YAML, CSV and Markdown: read back, they are the same data, and nothing more."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.records import is_hidden
from dibs.surroundings.rendering import Rows, yaml

HOSTILE = [
    "=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\n=1", "＝1", "a,b", 'a"b', "a\nb", "a|b",  # noqa: RUF001
    "`a`", "``", "`", "[x](http://e)", "<script>", "@alice", "#12", "www.e.com", "*a*", "__a__",
    "_a_", "a\\", "\\|", "---", "...", "- a", "a: b", "a #b", "null", "~", "yes", "True", "1e5",
    "0x1f", "2026-11-16", "", " ", "{}", "[]", "!tag", "&a", "*a", "%x", "\x1b[31m", "\u202e",
    "\x85", "\u2028", "\U000e0041", "\ufeff", "é", "日本", "a b", "snake_case", "'", "| a |", "`|`",
]  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(HOSTILE)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


# YAML


class Parser:
    """A strict reader of the part of YAML 1.2 that is written here: blocks, and scalars in a line.

    Whatever else YAML could mean by a character is refused: a plain scalar is a word.
    """

    WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
    NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")

    def __init__(self, text: str) -> None:
        assert text.endswith("\n")
        assert "\t" not in text
        first, *self.lines = text[:-1].split("\n")
        self.alone = first.removeprefix("---").removeprefix(" ")
        assert first.startswith("---")

    def document(self) -> Any:
        if self.alone:
            assert not self.lines
            return self.scalar(self.alone)
        found = self.block(0)
        assert not self.lines
        return found

    def indent(self) -> int:
        return len(self.lines[0]) - len(self.lines[0].lstrip(" ")) if self.lines else -1

    def block(self, depth: int) -> Any:
        assert self.indent() == depth
        return self.sequence(depth) if self.lines[0][depth:].startswith("- ") else self.map(depth)

    def sequence(self, depth: int) -> list[Any]:
        found = []
        while self.indent() == depth:
            line = self.lines[0]
            assert line[depth : depth + 2] == "- "
            rest = line[depth + 2 :]
            if rest.startswith("- ") or self.key(rest) is not None:
                self.lines[0] = " " * (depth + 2) + rest
                found.append(self.block(depth + 2))
            else:
                self.lines.pop(0)
                found.append(self.scalar(rest))
        return found

    def key(self, text: str) -> tuple[str, str] | None:
        """The key that a line begins with, and what follows its colon."""
        if text.startswith('"'):
            end = re.match(r'"(?:[^"\\]|\\.)*"', text)
            assert end, text
            name, rest = self.scalar(end[0]), text[end.end() :]
        else:
            word, colon, rest = text.partition(":")
            if not colon or not self.WORD.fullmatch(word):
                return None
            name, rest = self.scalar(word), ":" + rest
        if not rest.startswith(":"):
            return None
        assert rest == ":" or rest.startswith(": "), text
        assert isinstance(name, str)
        return name, rest[2:]

    def map(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.indent() == depth:
            key = self.key(self.lines.pop(0)[depth:])
            assert key is not None
            name, rest = key
            assert name not in found
            found[name] = self.scalar(rest) if rest else self.block(depth + 2)
        return found

    def scalar(self, text: str) -> Any:
        if text in ("null", "true", "false", "{}", "[]") or self.NUMBER.fullmatch(text):
            return json.loads(text)
        if self.WORD.fullmatch(text):
            assert text.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
            return text
        assert re.fullmatch(r'"(?:[^"\\]|\\(?:["\\bfnrt]|u[0-9a-f]{4}|U[0-9a-f]{8}))*"', text), text
        assert not any(map(is_hidden, text)), ascii(text)
        # The one escape that JSON does not have; and it has no other way to write these.
        plain = re.sub(r"\\U([0-9a-f]{8})", lambda found: chr(int(found[1], 16)), text)
        return json.loads(plain)


@given(VALUES, st.booleans())
def test_what_is_written_as_yaml_is_read_as_the_same(value, ascii):
    text = yaml(value, (), ascii)
    assert Parser(text).document() == value
    assert not ascii or text.isascii()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_text_in_yaml(text):
    for value in (text, [text], {text: text}, [{text: [text]}]):
        assert Parser(yaml(value, (), False)).document() == value


# CSV


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), strict=True))


@given(st.lists(st.fixed_dictionaries({"a": TEXT, "b": SCALARS, "c": VALUES}), min_size=1))
def test_what_is_written_as_csv_is_read_as_rows_and_no_cell_is_a_formula(rows):
    for row, found in zip(rows, read_csv(Rows("csv").text(rows, (), False)), strict=True):
        assert found.keys() == row.keys()
        for name, cell in found.items():
            assert not any(map(is_hidden, cell.replace("\n", "")))
            if isinstance(row[name], str):
                assert not cell.lstrip().startswith(("=", "+", "-", "@"))
                if not any(map(is_hidden, row[name])) and not cell.startswith("'"):
                    assert cell == row[name]
            elif isinstance(row[name], (dict, list)) and not any(map(is_hidden, cell)):
                assert "\\u{" in cell or json.loads(cell) == row[name]
            else:
                assert cell == ("" if row[name] is None else json.dumps(row[name])) or "\\u" in cell


def test_a_negative_number_stays_a_number_and_a_text_like_it_does_not():
    [row] = read_csv(Rows("csv").text([{"a": -5, "b": "-5"}], (), False))
    assert row == {"a": "-5", "b": "'-5"}


def test_a_head_cannot_be_a_formula_either():
    assert Rows("csv").text({"=1": 1}, (), False) == "'=1\n1\n"


def test_a_stream_has_one_head_and_an_empty_answer_has_it_too():
    rows = Rows("csv")
    assert rows.text({"a": 1, "b": [1]}, (), False) == "a,b\n1,[1]\n"
    assert rows.text({"b": None, "c": 5}, (), False) == ",\n"
    assert Rows("csv").text([], ("a", "b"), False) == "a,b\n"
    assert Rows("markdown").text([], ("a", "b"), False) == "| a | b |\n| --- | --- |\n"
    assert Rows("csv").text(None, (), False) == ""
    assert Rows("csv").text(["x", 5], (), False) == "value\nx\n5\n"


# Markdown


def cells(line: str) -> list[str]:
    """The cells of a row of a table, as a reader of GitHub's Markdown divides them."""
    assert line.startswith("| ")
    assert line.endswith(" |")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@given(st.lists(TEXT, min_size=1, max_size=5))
def test_a_cell_of_a_table_is_words_or_code(texts):
    head, marks, line, *rest = (
        Rows("markdown").text([dict(enumerate(texts))], (), False).split("\n")
    )
    assert rest == [""]
    assert len(cells(head)) == len(cells(marks)) == len(cells(line)) == len(texts)
    for cell in cells(line):
        assert not any(map(is_hidden, cell))
        if cell and not all(char.isalnum() or char in " _" for char in cell):
            ticks = re.match("`+", cell)
            assert ticks, cell
            inside = cell[len(ticks[0]) : -len(ticks[0])]
            assert cell.endswith(ticks[0])
            assert not re.search(rf"(?<!`){ticks[0]}(?!`)", inside)


@pytest.mark.parametrize("text", ["@alice", "<img src=x>", "[a](b)", "#12", "www.e.com", "__a__"])
def test_nothing_in_a_table_is_markup(text):
    assert cells(Rows("markdown").text([{"a": text}], (), False).split("\n")[2]) == [f"`{text}`"]
