"""Globs: the exact overlap, held against a brute-force reading of the same rules."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dibs.names.globs import literal_base, overlap
from dibs.names.paths import is_glob

LETTERS = "ab."
NAMES = [
    name
    for size in (1, 2, 3, 4)
    for name in map("".join, itertools.product(LETTERS, repeat=size))
    if name not in (".", "..")
]
# Two components that each have at most two symbols other than `*` share a name of at most
# four characters or none at all, so the enumeration above is complete for them.
component = st.text(alphabet="ab.*?", min_size=1, max_size=4).filter(
    lambda text: text not in (".", "..") and len(text.replace("*", "")) <= 2
)
pattern = st.lists(component | st.just("**"), min_size=1, max_size=3).map("/".join)
literal = st.lists(st.sampled_from(NAMES[:30]), max_size=3).map("/".join)
either = st.one_of(st.tuples(pattern, st.just(True)), st.tuples(literal, st.just(False)))


def name_matches(name: str, component: str) -> bool:
    if not component:
        return not name
    if component[0] == "*":
        return name_matches(name, component[1:]) or (
            bool(name) and name_matches(name[1:], component)
        )
    return bool(name) and component[0] in (name[0], "?") and name_matches(name[1:], component[1:])


def brute(a: list[str], a_is_glob: bool, b: list[str], b_is_glob: bool) -> bool:
    """The definition, a component at a time; below an exhausted one everything is covered."""
    if not a or not b:
        return True
    if a_is_glob and a[0] == "**":
        return brute(a[1:], True, b, b_is_glob) or brute(a, True, b[1:], b_is_glob)
    if b_is_glob and b[0] == "**":
        return brute(b, True, a, a_is_glob)
    names = NAMES if a_is_glob and b_is_glob else [b[0] if a_is_glob else a[0]]
    return any(
        (name_matches(name, a[0]) if a_is_glob else name == a[0])
        and (name_matches(name, b[0]) if b_is_glob else name == b[0])
        for name in names
    ) and brute(a[1:], a_is_glob, b[1:], b_is_glob)


def parts(text: str) -> list[str]:
    return text.split("/") if text else []


@settings(max_examples=1_000, deadline=None)
@given(either, either)
@example(("?", True), (".*", True))
@example(("??", True), ("..*", True))
@example((".?", True), ("?.", True))
@example((".*", True), ("*.", True))
@example(("?", True), ("*?", True))
@example((".?", True), ("*?", True))
@example(("?.", True), ("?*", True))
@example(("**", True), ("", False))
def test_overlap_is_what_brute_force_says(a: tuple[str, bool], b: tuple[str, bool]) -> None:
    expected = brute(parts(a[0]), a[1], parts(b[0]), b[1])
    assert overlap(*a, *b) is expected
    assert overlap(*b, *a) is expected


def covers(shape: list[str], glob: bool, path: list[str]) -> bool:
    """Whether one concrete path is covered: by the words of the contract, without sharing code."""
    if not shape:
        return True
    if glob and shape[0] == "**":
        return any(covers(shape[1:], glob, path[i:]) for i in range(len(path) + 1))
    if not path:
        return False
    fits = name_matches(path[0], shape[0]) if glob else path[0] == shape[0]
    return fits and covers(shape[1:], glob, path[1:])


SMALL = [name for name in NAMES if len(name) <= 2]
PATHS = [list(path) for size in (0, 1, 2) for path in itertools.product(SMALL, repeat=size)]


@settings(max_examples=300, deadline=None)
@given(either, either)
def test_a_path_covered_by_both_is_never_missed(a: tuple[str, bool], b: tuple[str, bool]) -> None:
    if any(covers(parts(a[0]), a[1], path) and covers(parts(b[0]), b[1], path) for path in PATHS):
        assert overlap(*a, *b)


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="ab*?/", max_size=12), st.text(alphabet="ab*?/", max_size=12))
def test_overlap_is_symmetric_and_everything_overlaps_itself(a: str, b: str) -> None:
    a, b = ("/".join(filter(None, text.split("/"))) for text in (a, b))
    for a_glob, b_glob in itertools.product((True, False), repeat=2):
        assert overlap(a, a_glob, b, b_glob) is overlap(b, b_glob, a, a_glob)
        assert overlap(a, a_glob, a, a_glob)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("src/*.py", "src/a*", True),
        ("src/*.py", "src/*.ts", False),
        ("*.py", "*.pyc", False),
        ("src/**", "src", True),
        ("src/**/x.py", "src/x.py", True),
        ("src/**/x.py", "lib/**/x.py", False),
        ("**/test_*", "src/**/*_test", True),
        ("a**b", "axxb", True),
        ("a**b", "ax/xb", False),
        ("***", "a", True),
        ("*/b", "a", True),
        ("a/*/c", "a/b/d", False),
        ("pages/[id].*", "pages/i.tsx", False),
        ("pages/[id].*", "pages/[id].tsx", True),
        ("{a,b}*", "a", False),
        ("?", ".*", False),
        ("*", ".env", True),
    ],
)
def test_overlap_of_everyday_patterns(a: str, b: str, expected: bool) -> None:
    assert overlap(a, True, b, is_glob(b)) is expected


def test_wildcards_in_a_literal_path_are_letters() -> None:
    assert not overlap("odd*name", False, "oddXname", False)
    assert overlap("odd*name", False, "odd?name", True)
    assert not overlap("**", False, "a", False)
    assert overlap("**", False, "**", False)


def test_the_literal_base_ends_before_the_first_wildcard() -> None:
    assert literal_base("src/lib/*/x.py") == "src/lib"
    assert literal_base("src/l?b/x.py") == "src"
    assert literal_base("**") == ""
    assert literal_base("a/b") == "a/b"
    assert literal_base("/*") == ""


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("*a?" * 83 + "/" + "*a?" * 83, "?a*" * 83 + "/" + "?b*" * 83),
        ("/".join(["**", "a"] * 250), "/".join(["**", "b", "a"] * 160)),
        ("/".join(f"*{i}" for i in range(200)), "**/" + "/".join(f"{i}*" for i in range(200))),
        ("/".join(["**", "*?*a"] * 120), "/".join(["a"] * 2_000)),
    ],
)
def test_hostile_patterns_are_decided_quickly(a: str, b: str) -> None:
    began = time.process_time()
    overlap(a, True, b, is_glob(b))
    assert time.process_time() - began < 2
