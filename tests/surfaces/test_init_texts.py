"""The editors of `dibs init`: what they add is there, and what they cut out leaves no trace."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.setup import jsonc
from dibs.setup.files import BOM, Draft, Refusal, undo
from dibs.setup.parts import Hook, JsonFile, JsonMember, ListedName, TomlFile

SERVER = {"command": "dibs", "args": ["mcp"]}
HOOK = {"matcher": "Edit", "hooks": [{"type": "command", "command": "dibs hook x"}]}
OTHER = {"matcher": "Edit", "hooks": [{"type": "command", "command": "lint --hook dibs"}]}
NAMES = ["AGENTS.md", "OTHER.md"]
FILE = JsonFile(
    "settings.json",
    [
        JsonMember(("mcpServers", "dibs"), SERVER),
        ListedName(("context", "fileName"), "AGENTS.md", NAMES),
        Hook(("hooks", "Before"), HOOK),
        Hook(("hooks", "After"), HOOK),
    ],
)

keys = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | keys
plain = plain.filter(lambda value: value not in (float("inf"), float("-inf")))
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def settings(draw: st.DrawFn) -> dict[str, Any]:
    """The settings of a user who may already have some of what we add to."""
    own = draw(st.dictionaries(keys.map(lambda key: "u" + key), values, max_size=4))
    mine: dict[str, Any] = {}
    if draw(st.booleans()):
        mine["mcpServers"] = draw(st.dictionaries(st.sampled_from(["a", "b"]), values, max_size=2))
    if draw(st.booleans()):
        names: list[Any] = ["A.md", [], ["A.md"], ["A.md", "B"]]
        optional = {"fileName": st.sampled_from(names)}
        mine["context"] = draw(st.fixed_dictionaries({}, optional=optional))
    if draw(st.booleans()):
        items = st.lists(st.just(OTHER) | values, max_size=2)
        mine["hooks"] = draw(st.dictionaries(st.sampled_from(["Before", "Else"]), items))
    return dict(draw(st.permutations([*own.items(), *mine.items()])))


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, dict[str, Any], list[str]]:
    """A file that says these settings, in a style that somebody may have."""
    value = draw(settings())
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    comments: list[str] = []

    def space() -> str:
        kind = draw(st.sampled_from(["", "", " ", "\n", "\n  ", "\t", "//", "/*"]))
        if kind in ("//", "/*"):
            comments.append(f"remark {len(comments)} {{[,")
        if kind == "//":
            kind = f" // {comments[-1]}\n"
        elif kind == "/*":
            kind = f"/* {comments[-1]} */"
        return kind

    def write(part: Any) -> str:
        if isinstance(part, dict):
            inside = [f"{json.dumps(key)}{space()}:{space()}{write(one)}"
                      for key, one in part.items()]  # fmt: skip
        elif isinstance(part, list):
            inside = [write(one) for one in part]
        else:
            return json.dumps(part, ensure_ascii=draw(st.booleans()))
        pieces = [f"{space()}{one}{space()}" for one in inside]
        one_more: bool = draw(st.booleans())
        trailing = "," + space() if pieces and one_more else ""
        opening, closing = "{}" if isinstance(part, dict) else "[]"
        return opening + ",".join(pieces) + trailing + space() + closing

    text = space() + write(value) + draw(st.sampled_from(["", "\n", "\n\n"]))
    text = draw(st.sampled_from(["", BOM])) + text.replace("\n", newline)
    return text, value, comments


def merge(before: dict[str, Any]) -> dict[str, Any]:
    """What a file must say afterwards, worked out without any text."""
    after = json.loads(json.dumps(before))
    after.setdefault("mcpServers", {}).setdefault("dibs", SERVER)
    names = after.setdefault("context", {}).setdefault("fileName", NAMES)
    if "AGENTS.md" not in names:
        after["context"]["fileName"] = [*([names] if isinstance(names, str) else names),
                                        "AGENTS.md"]  # fmt: skip
    for event in ("Before", "After"):
        after.setdefault("hooks", {}).setdefault(event, []).append(HOOK)
    return after


def test_the_reader_reads_what_json_reads() -> None:
    text = '{"a": [1, -2.5e3, true, null, "\\u00e4\\n"], "b": {}}'
    assert jsonc.parse(text).value == json.loads(text)


@given(texts())
def test_a_text_says_what_it_said_and_what_we_add(case: tuple[str, dict[str, Any], list]) -> None:
    text, value, comments = case
    assert jsonc.parse(text).value == value
    draft = Draft(text)
    FILE.add(draft)
    assert jsonc.parse(draft.text).value == merge(value)
    assert FILE.present(draft.text)
    assert all(draft.text.count(comment) == text.count(comment) for comment in comments)
    if "\r\n" in text:
        assert "\n" not in draft.text.replace("\r\n", "")


@given(texts())
def test_what_was_noted_takes_it_out_to_the_byte(case: tuple[str, dict[str, Any], list]) -> None:
    text, _, _ = case
    draft = Draft(text)
    FILE.add(draft)
    assert undo(draft.text, draft.insertions) == text


@given(texts())
def test_what_is_recognised_is_taken_out_and_nothing_else(
    case: tuple[str, dict[str, Any], list],
) -> None:
    text, value, comments = case
    draft = Draft(text)
    parts = set(FILE.add(draft))
    left = FILE.strip(draft.text, parts)
    found = jsonc.parse(left).value
    if isinstance(value.get("context", {}).get("fileName"), str):
        found["context"]["fileName"] = found["context"]["fileName"][0]  # it stays a list
    assert found == value
    assert all(left.count(comment) == text.count(comment) for comment in comments)


@given(settings(), st.sampled_from([None, 1, 2, 4, "\t"]), st.booleans(), st.booleans())
def test_without_a_note_an_ordinary_file_comes_back_to_the_byte(
    value: dict[str, Any], indent: int | str | None, windows: bool, comma: bool
) -> None:
    for name in ("mcpServers", "hooks", "context"):
        if not value.get(name):
            value.pop(name, None)
    value.pop("context", None)  # a name among others: nobody can tell whose it is
    value.get("hooks", {}).pop("Before", None)
    value.get("hooks", {}) or value.pop("hooks", None)
    value = {"uu": 1} | value  # of a file that said nothing, nobody knows how
    text = json.dumps(value, indent=indent)
    if comma:
        text = re.sub(r"(\s*)\}$", r",\1}", text)
    if windows:
        text = text.replace("\n", "\r\n")
    draft = Draft(text)
    FILE.add(draft)
    assert FILE.strip(draft.text, None) == text


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ('{"a": 1,\n "a": 2}', 2, "twice"),
        ('{"hooks": []}', 1, '"hooks" is not an object'),
        ('{"mcpServers":\n\n "x"}', 3, '"mcpServers" is not an object'),
        ('{"hooks": {"Before":\n {}}}', 2, '"hooks.Before" is not a list'),
        ('{"context": {"fileName": 7}}', 1, "is not a list of names"),
        ("[1, 2]", 1, "the whole is not an object"),
        ('{"a": 1\n "b": 2}', 2, "comma"),
        ('{"a": 1', 1, "ends in the middle"),
        ('{"a": }', 1, "a value was expected"),
        ("{'a': 1}", 1, "double quotes"),
        ('{"a" 1}', 1, "colon"),
        ('{\n/* never ends }', 2, "no end"),
        ('{}\n{}', 2, "after the end"),
        ('{"a": "\\x"}', 1, "escape"),
        ("[" * 9999, 1, "deep"),
    ],
)  # fmt: skip
def test_what_cannot_be_merged_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(Refusal) as refused:
        FILE.add(Draft(text))
    assert (refused.value.line, why in refused.value.why) == (line, True), refused.value.why
    assert refused.value.next


@pytest.mark.parametrize("text", ["", "\n", BOM, "  \r\n", "// nothing yet", "/* a */\n"])
def test_a_file_that_says_nothing_is_an_empty_object(text: str) -> None:
    draft = Draft(text)
    FILE.add(draft)
    assert jsonc.parse(draft.text).value == merge({})
    assert undo(draft.text, draft.insertions) == text


# TOML

TABLE = TomlFile("config.toml", ("mcp_servers", "dibs"), {"command": '"dibs"', "args": '["mcp"]'})

bare = st.sampled_from(["a", "b-c", "d_1", '"e f"', "'g.h'"])
scalars = st.sampled_from(
    ["1", "1_000", "true", '"}"', "'# no'", "[1, 2]", "[\n 1, # one\n]", "1979-05-27", "inf", "nan",
     '"""\n[mcp_servers]\n"""', "{ }", "{ x = 1 }"]
)  # fmt: skip
FORMS = [
    "",
    "[mcp_servers]\n",
    '[mcp_servers.a]\ncommand = "x" # }\n',
    '[mcp_servers.a]\ncommand = "x"\n[other]\n',
    'mcp_servers = { a = { command = "x" } }\n',
    "mcp_servers = {}\n",
    'mcp_servers.a.command = "x"\n',
    '[mcp_servers]\na = { command = "x", env = { B = "}" } }\n',
    '["mcp_servers"."a"]\ncommand = "x"\n',
]


@st.composite
def toml_texts(draw: st.DrawFn) -> str:
    names = draw(st.lists(bare, unique=True, max_size=3))
    lines = [f"{name} = {draw(scalars)}{draw(st.sampled_from(['', ' # remark']))}\n"
             for name in names]  # fmt: skip
    form = draw(st.sampled_from(FORMS))
    tail = draw(st.sampled_from(["", "# the end\n", "[z]\ny = 2\n", "[[list]]\nx = 1\n"]))
    text = "".join(lines) + form + tail
    if draw(st.booleans()):
        text = text.removesuffix("\n")
    text = draw(st.sampled_from(["", BOM])) + text
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other) or one == other


@given(toml_texts())
def test_a_table_is_added_and_everything_else_stays(text: str) -> None:
    before = tomllib.loads(text.removeprefix(BOM))
    draft = Draft(text)
    TABLE.add(draft)
    after = tomllib.loads(draft.text.removeprefix(BOM))
    assert after["mcp_servers"].pop("dibs") == SERVER
    before.setdefault("mcp_servers", {})
    assert {k: repr(v) for k, v in after.items()} == {k: repr(v) for k, v in before.items()}
    assert undo(draft.text, draft.insertions) == text
    if "\r\n" in text:
        assert "\n" not in draft.text.replace("\r\n", "")


@given(toml_texts())
def test_a_table_is_recognised_and_taken_out(text: str) -> None:
    draft = Draft(text)
    TABLE.add(draft)
    left = TABLE.strip(draft.text, None)
    assert same(tomllib.loads(left.removeprefix(BOM)), tomllib.loads(text.removeprefix(BOM)))
    if text.endswith("\n") and "mcp_servers = {" not in text:
        assert left == text


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("a = 1\na = 2\n", 2, "overwrite"),
        ("a = \n", 1, "value"),
        ("[mcp_servers\n", 1, "expected"),
        ("mcp_servers = 1\n", None, "not a table"),
        ("[[mcp_servers]]\n", None, "not a table"),
    ],
)
def test_toml_that_cannot_be_merged_is_refused(text: str, line: int | None, why: str) -> None:
    with pytest.raises(Refusal) as refused:
        TABLE.add(Draft(text))
    assert (refused.value.line, why in refused.value.why) == (line, True), refused.value.why


def test_a_table_that_was_edited_is_left_alone() -> None:
    text = '[mcp_servers.dibs]\ncommand = "/opt/dibs"\nargs = ["mcp"]\n'
    assert TABLE.strip(text, None) == text


def test_a_table_written_in_another_way_is_refused_and_not_guessed() -> None:
    text = "[mcp_servers.dibs]\nargs = ['mcp']\ncommand = 'dibs'\n"
    with pytest.raises(Refusal, match="not written as dibs writes it"):
        TABLE.strip(text, None)
