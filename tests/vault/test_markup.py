"""Words of others in a note: nothing of them is interpreted, and nothing of them is lost."""

from __future__ import annotations

import ast
import html
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.records import is_hidden
from dibs.vault.markup import JSON_LIMIT, fenced, inline, label, quoted_lines, yaml

HOSTILE = [
    "<script>alert(1)</script>",
    "<% tp.system.prompt() %>",
    "![[secrets]]",
    "[[nowhere|x]]",
    "%% hidden %%",
    "```\nout\n```",
    "~~~\nout\n~~~",
    "> [!danger] callout",
    "`= this.file.name`",
    "`$= dv.pages()`",
    "{{date}}",
    "key:: value",
    "[key:: value]",
    "# heading",
    "1. one",
    "- item",
    "    code",
    "***",
    "---",
    "a | b",
    "#tag and ==mark== and $x$ and ^[note] and ^block",
    "[text](javascript:alert(1))",
    "[ref]: <http://example.org>",
    "http://example.org www.example.org",
    "&lt; &amp;",
    "\\",
    "line\\\nline",
    "a\u202eb\u200bc",
]
LIVE = re.compile(r"[<>`\[\]%$^|~*_={}#!@]|::|://")
"""What Markdown, HTML, Obsidian or one of its plugins might act on."""
text = st.text(alphabet=st.characters(codec="utf-8"), max_size=60) | st.sampled_from(HOSTILE)


def is_inert(line: str) -> bool:
    """Whether a line of a note has only text and character references in it."""
    rest = re.sub(r"&#\d+;", "", line)
    return LIVE.search(rest) is None and not any(map(is_hidden, rest))


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_words_are_text(words: str) -> None:
    assert is_inert(inline(words)), inline(words)


@given(text)
def test_words_within_a_line_are_text_and_stay_the_same(words: str) -> None:
    made = inline(words)
    assert is_inert(made) and "\n" not in made
    if not any(is_hidden(one) for one in words) and "\\" not in words:
        assert html.unescape(made) == words


@given(text)
def test_a_quotation_has_one_line_for_each_and_none_begins_a_block(words: str) -> None:
    lines = quoted_lines(words)
    assert len(lines) == words.count("\n") + 1
    for line in lines:
        assert line == ">" or re.match(r"> ([^\W\d_]|&#)", line), line
        assert is_inert(line[1:].removesuffix("\\").removesuffix("&#92;")), line


def test_long_words_are_cut_and_that_is_said() -> None:
    assert len(inline("x" * 5000)) == 300
    assert quoted_lines("x" * 50_000)[-1].startswith("Cut after")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_a_block_of_json_cannot_be_left_and_is_the_same_value(value: Any) -> None:
    first, *lines, last = fenced(value)
    assert (first, last) == ("```json", "```")
    inside = "\n".join(lines)
    assert "`" not in inside and "~" not in inside and "<" not in inside
    assert "[[" not in inside and "%" not in inside and "{{" not in inside
    assert not any(is_hidden(one) for one in inside if one != "\n")
    assert json.loads(inside) == value


def test_a_value_that_is_too_large_is_cut() -> None:
    for value in (["x" * 100] * 1000, "x" * 50_000, {"x": "`" * 50_000}):
        lines = fenced(value)
        assert lines[-1].startswith("Cut after") and lines[-3] == "```"
        assert len("\n".join(lines)) < 2 * JSON_LIMIT


@given(text)
def test_a_name_can_be_read_back_from_the_front_matter(name: str) -> None:
    made = yaml(name)
    assert "\n" not in made and "[" not in made and not any(map(is_hidden, made))
    assert ast.literal_eval(made) == name


@given(text)
def test_the_text_of_a_link_cannot_end_it(name: str) -> None:
    made = label(name)
    assert not re.search(r"[\[\]|<>`*\\%$&{}~^]|::", made) and not any(map(is_hidden, made))
    assert len(made) <= 80
