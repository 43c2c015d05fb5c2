"""How values are written: the text that is stored is the one that `json` would write."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dibs
from dibs.records import NAMES_KEPT, Outcome, fields_of, plain, read_json, to_long_text, to_text

SRC = Path(dibs.__file__).parent.parent


class Level(enum.IntEnum):
    HIGH = 3


class Text(str):
    def __format__(self, how: str) -> str:
        return "something else"


characters = st.characters() | st.sampled_from('"\\/\b\f\n\r\t\0\x1f\x7f\x80\u2028\ud800\U0001f600')
texts = st.text(characters)
odd = st.sampled_from([Level.HIGH, Text("a"), Text('"'), OrderedDict(b=1, a=2)])
leaves = st.none() | st.booleans() | st.integers() | st.floats() | texts | odd
keys = texts | st.sampled_from(["epoch", "ttl_ms", "größe", "two words", Text("k")])


def within(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    numbered = st.dictionaries(st.integers() | st.booleans(), inner, max_size=3)
    return (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | numbered
    )


def by_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@given(st.recursive(leaves, within))
@example({"b": 1, "a": [True, None, -0.0, 1e400, float("nan")], "": {"é": "\x00"}})
@example({1: "a", 2: "b"})
def test_the_text_is_that_of_json_to_the_byte(value: Any) -> None:
    assert to_text(value) == to_long_text(value) == by_json(value)


@given(texts)
def test_every_text_is_spelled_as_json_spells_it(text: str) -> None:
    assert to_text(text) == by_json(text)


def test_every_character_is_spelled_as_json_spells_it() -> None:
    text = "".join(map(chr, range(sys.maxunicode + 1)))
    assert to_text(text) == by_json(text)
    assert to_text({text: text}) == by_json({text: text})


def test_more_keys_than_are_kept_are_written_as_well() -> None:
    value = {f'"{number}"': number for number in range(2 * NAMES_KEPT)}
    assert to_text(value) == by_json(value)


@pytest.mark.parametrize("value", [{"a": object()}, [{1, 2}], {1: "a", "b": 2}, {(1, 2): 3}])
def test_what_json_cannot_write_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        by_json(value)
    with pytest.raises(TypeError):
        to_text(value)


def test_a_number_of_too_many_digits_is_refused_alike() -> None:
    with pytest.raises(ValueError, match="limit"):
        to_text({"a": 10**5000})


def test_a_record_is_written_by_its_fields() -> None:
    record = Outcome(
        resource="a", outcome="moved", moved_to=None, agent="bob", epoch=3, released_at=4
    )
    assert to_text([record]) == to_long_text([record]) == by_json([plain(record)])
    assert json.loads(json.dumps(record, default=fields_of)) == plain(record)


def test_what_an_event_says_is_written_without_json() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(SRC)!r}); from dibs.records import to_text;"
        "to_text({'epoch': 1, 'mode': 'shared', 'task': None, 'tags': ['a'], 'ttl_s': 1.5});"
        "print('_json' in sys.modules); to_text({1: 2});"
        "print('_json' in sys.modules, 'json' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True", "False"]


SPELLED = '{"a": 1, "a": 2}| [1 ,2] |[1] x||nul|1e999|NaN|\ufeff1|"\\ud800"|"a\nb"|-|{|{"a":}'
SPELLINGS = st.sampled_from([*SPELLED.split("|"), "[" * 2_000, "1" * 5_000])


@given(st.recursive(leaves, within).map(by_json) | SPELLINGS | texts)
@example('{"cwd": "/x", "tool_input": {"file_path": "a.py"}}')
def test_a_text_is_read_as_json_reads_it(text: str) -> None:
    try:
        expected = json.loads(text)
    except (ValueError, RecursionError) as error:
        with pytest.raises(type(error) if isinstance(error, RecursionError) else ValueError):
            read_json(text)
    else:
        assert repr(read_json(text)) == repr(expected)


@pytest.mark.parametrize("text", ["{", "", '{"a"', "[1] x", '"\\x"', "\x00"])
def test_what_is_no_json_is_an_error_of_its_own_also_where_json_is_not_loaded(text: str) -> None:
    code = (
        "import sys; from dibs.records import read_json; assert 'json' not in sys.modules\n"
        f"try: read_json({text!r})\nexcept ValueError as error: print(type(error).__name__)"
    )
    words = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(SRC)!r}); {code}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "JSONDecodeError\n"
