"""Texts without which a command changes nothing: `sed -i s/old/new/` in a file without `old`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.surfaces.hooks.shell import read
from dibs.surfaces.hooks.shell.call import DISK
from dibs.surfaces.hooks.shell.patterns import literals, sought


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("old_name", "old_name"), (r"\bget\(", "get("), (r"a\.b", "a.b"), ("ab*cde", "cde"),
        ("abc+d", "abc"), (r"port: \d+", "port: "), ("[abcdef]x", "x"), ("[^]]x", "x"),
        ("[[:space:]]x", "x"), ("one|two", "one two"), (r"\b(TAX|DEBUG)\b", "TAX DEBUG"),
        ("x(foo|bar)?yy", "yy"), ("x{2,3}yy", "yy"), ("(?:abc)d", "abc"), ("(?=abc)d", "d"),
        ("(?i)abc", ""), (r"\x41bc", ""), ("a$name", ""), (r"\s+", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_text_that_is_in_every_match_is_found(pattern: str, texts: str) -> None:
    assert literals(pattern) == (texts.split(" ") if texts != "port: " else [texts])


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("f(x)", "f(x)"), ("a+b", "a+b"), (r"\(abc\)*d", "d"), (r"abc\+d", "abc"), ("a|b", "a|b")],
)
def test_a_basic_expression_means_its_plain_signs(pattern: str, text: str) -> None:
    assert literals(pattern, basic=True) == [text]


PIECES = ["a", "b", "c", "ab", "*", "+", "?", "|", "(", ")", "(?:", "]", "^", "$", ".", "{2}",
          "\\.", "\\d", "\\(", "[^a]", "[ab]"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=9), st.text("abc.(1]", max_size=9))
def test_no_match_is_without_the_texts(pieces: list[str], content: str) -> None:
    pattern = "".join(pieces)
    try:
        found = re.search(pattern, content)
    except re.error:
        return
    if found:
        assert any(text in content for text in literals(pattern))


@pytest.mark.parametrize(
    ("script", "texts"),
    [
        ("s/old/new/g", "old"), (r"s/a\/b/c/", "a/b"), ("s#one#x#; s|two|x|", "one two"),
        ("/TODO/d", "TODO"), ("/one/d;/two/d", "one two"), ("/re/{n;s/x/y/}", "re"),
        ("1s/old/new/", "old"), ("/a/,/b/d", "a"), ("/end/a added\nmore", ""),
        ("/end/i first", "end"), ("1i first", ""), ("/x/!d", ""), ("$!N;s/a/b/", ""),
        ("s/a/b/;y/x/z/", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_script_of_sed_changes_only_files_with_these_texts(script: str, texts: str) -> None:
    assert sought([script], basic=True) == (
        (("only", "with", "", *texts.split()),) if texts else ()
    )


@pytest.mark.parametrize(
    ("command", "flags", "texts"),
    [
        ("sed -i -E 's/(one|two)/x/' c.py", "", "one two"),
        ("sed -i -e 's/one/x/I' -e s/two/y/ c.py", "i", "one two"),
        ("sed -n -i /one/p c.py", "", ""),
        ('sed -i "s/$x/y/" c.py', "", ""),
        ('X=one; sed -i "s/$X/y/" c.py', "", "one"),
        ("perl -pi -e 's/one/two/' c.py", "", "one"),
        ("perl -i -0pe 's{one}{two}g; s/two/x/' c.py", "", "one two"),
        ("perl -pi -e '/one/ and next; s/two/x/' c.py", "", ""),
        ("perl -i -ne 'print unless /one/' c.py", "", ""),
        ("perl -pi -e 's/one/two/ if $. > 3' c.py", "", ""),
        ("find . -name c.py -exec sed -i s/one/x/ {} +", "", "one"),
    ],
)
def test_an_editor_in_place_asks_what_is_in_the_file(
    tmp_path: Path, command: str, flags: str, texts: str
) -> None:
    (edit,) = read(command, str(tmp_path), DISK).edits
    assert edit.asks == ((("only", "with", flags, *texts.split()),) if texts else ())
