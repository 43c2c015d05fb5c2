"""The file name of a note: safe on every disk, one for each name, and the same at each run."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.vault.names import stem

HOSTILE = [
    "../../x",
    "..",
    ".",
    "/etc/passwd",
    "CON",
    "con",
    "con.txt",
    "nul.tar.gz",
    "com1",
    "LPT9.x",
    ".git/hooks/x",
    ".obsidian",
    "a\nb",
    "a\x00b",
    "a\x1b[31m",
    "x" * 300,
    "x" * 299 + "y",
    "é" * 300,
    "Fix",
    "fix",
    "FIX",
    "caf\u00e9",
    "cafe\u0301",
    "]]|#^",
    "[[x]]",
    "~",
    "a~b",
    "README.md",
    "readme.md",
    "readme",
    "🎉",
    "🎊",
    "-rf",
    "a b",
    "a  b",
    "a ",
    "a.",
    "a/b",
    "a+b",
    "a:b",
    "a=b",
    "a#b",
    "a,b",
    "a\\b",
    "\u202egnp.exe",
    "\u017f",
    "s",
    "K",
    "\u212a",
    "k",
    "tasks/../../x",
    "%2e%2e%2f",
]
WINDOWS = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


def same_on_disk(name: str) -> str:
    """How the least careful disk sees a name."""
    return unicodedata.normalize("NFKC", name).casefold()


def is_safe(name: str) -> bool:
    return (
        re.fullmatch(r"[a-z0-9_][a-z0-9._+=,~-]*", name) is not None
        and len(f"{name}.md") <= 120
        and WINDOWS.match(f"{name}.md") is None
        and not name.endswith(".md")
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_gets_a_safe_file_name(name: str) -> None:
    assert is_safe(stem(name)), stem(name)


def test_no_two_hostile_names_share_a_file() -> None:
    assert len({same_on_disk(stem(name)) for name in HOSTILE}) == len(set(HOSTILE))


@given(st.text(min_size=1))
def test_any_name_gets_a_safe_file_name(name: str) -> None:
    assert is_safe(stem(name)), stem(name)


NEAR = st.text(alphabet="aAbB./:#+=,~-_ é\u0301", min_size=1, max_size=6)


@given(st.lists(NEAR, unique=True))
def test_names_that_are_nearly_the_same_get_different_files(names: list[str]) -> None:
    assert len({same_on_disk(stem(name)) for name in names}) == len(names)


def test_file_names_stay_what_they_are() -> None:
    """A vault outlives releases: a name that moved would leave its old note behind."""
    assert [
        stem(name) for name in ("fix-login", "src/a.py", "github:o/r#12", "README.md", "con")
    ] == [
        "fix-login",
        "src+a.py",
        "github=o+r,12",
        "readme.md~wm2wgbkrnawbtj4bv7v4",
        "_con~cfb5uk6fjrevys7ddu4g",
    ]
