"""Formats: what a task says survives being written and read, and files of real tools are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dibs.arguments import check_json, check_name
from dibs.errors import InvalidError
from dibs.records import Task
from dibs.trackers.beads import KINDS
from dibs.trackers.fields import line_of, name_of, state_of
from dibs.trackers.formats import WRITERS, detect, read, read_folder
from dibs.trackers.markdown import slug

FIXTURES = Path(__file__).parent / "fixtures"

texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=40)
names = texts.map(name_of).filter(lambda name: bool(name) and check_name("name", name) == name)
lists = st.lists(names, max_size=4, unique=True).map(sorted).map(tuple)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
STATES = ("available", "blocked", "claimed", "completed", "failed", "dead", "cancelled")


def task(**fields: Any) -> Task:
    nothing: dict[str, Any] = {
        "title": "", "kind": "", "priority": 0, "tags": (), "after": (), "payload": None,
        "result": None, "reason": "", "attempts": 0, "max_attempts": 3, "author": "alice",
        "seq": 1, "added_at": 1_700_000_000_000, "changed_at": 1_700_000_000_000, "agent": None,
        "session": None, "epoch": None, "ttl_ms": None, "due_in_ms": None, "not_before": None,
    }  # fmt: skip
    known = {**nothing, **fields}
    return Task.of({name: known.get(name) for name in Task.__annotations__}, **known)


tasks = st.builds(
    task,
    id=names,
    state=st.sampled_from(STATES),
    title=texts.map(line_of),
    kind=names | st.just(""),
    priority=st.integers(-1_000_000, 1_000_000),
    tags=lists,
    after=lists,
    labels=lists,
    declared=lists,
    parent=names | st.none(),
    found_in=names | st.none(),
    with_children=st.booleans(),
    payload=values,
    result=values,
)
several = st.lists(tasks, max_size=4, unique_by=lambda one: one.id)
SAME = ("id", "title", "kind", "priority", "parent")


def told(one: Task, item: dict[str, Any], *fields: str) -> None:
    """The record says of the task what these fields say."""
    assert item["state"] == state_of(one.state)
    for field in fields:
        nothing: Any = {"priority": 0, "title": "", "kind": "", "with_children": False}.get(field)
        value = getattr(one, "declared" if field == "leases" else field)
        if isinstance(value, tuple):
            assert sorted(item.get(field, ())) == sorted(value), field
        else:
            assert item.get(field, nothing) == value, field


def read_back(written: list[Task], format: str) -> list[dict[str, Any]]:
    text = "".join(WRITERS[format](written))
    found, items = read(text, format)[1], []
    for place, item in found:
        assert not isinstance(item, InvalidError), (place, item)
        items.append(item)
    assert len(items) == len(written)
    return items


@pytest.mark.parametrize("format", ["json", "jsonl", "csv"])
@settings(max_examples=60, deadline=None)
@given(written=several)
def test_a_task_survives_as_data(format: str, written: list[Task]) -> None:
    for one, item in zip(written, read_back(written, format), strict=True):
        told(one, item, *SAME, "labels", "tags", "after", "leases", "found_in", "with_children")
        for field in ("payload", "result"):
            value = getattr(one, field)
            given_back = check_json(field, item.get(field), 2**20)
            assert given_back == check_json(field, value, 2**20)


@settings(max_examples=60, deadline=None)
@given(written=several)
def test_a_task_survives_as_an_item_of_a_checklist(written: list[Task]) -> None:
    # What is no id may be said as a person would: by words that make one.
    ids = {one.id for one in written}
    needs = [need for one in written for need in one.after if need not in ids]
    assume(ids.isdisjoint(map(slug, needs)))
    for one, item in zip(written, read_back(written, "markdown"), strict=True):
        told(one, item, *SAME, "labels", "tags", "after", "leases")


@settings(max_examples=60, deadline=None)
@given(written=several)
def test_a_task_survives_in_beads(written: list[Task]) -> None:
    for one, item in zip(written, read_back(written, "beads"), strict=True):
        ended = "completed" if state_of(one.state) != "open" else "open"
        assert item["state"] == ended
        assert item["id"] == one.id
        assert item["title"] == (one.title or one.id)
        assert item["kind"] == (one.kind if one.kind in KINDS else "task")
        assert item["priority"] == max(-2, min(2, one.priority))
        for field in ("labels", "after"):
            assert sorted(item[field]) == sorted(getattr(one, field))
        assert (item.get("parent"), item.get("found_in")) == (one.parent, one.found_in)


@settings(max_examples=60, deadline=None)
@given(written=several)
def test_what_is_written_is_recognised(written: list[Task]) -> None:
    if written:
        for format in ("json", "jsonl", "csv", "markdown", "beads"):
            assert detect("".join(WRITERS[format](written))) == format


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=200) | values.map(json.dumps))
def test_any_text_is_read_or_refused(text: str) -> None:
    for format in ("json", "csv", "markdown", "github", "gitlab", "beads", "taskmaster"):
        for _, item in read(text, format)[1]:
            assert isinstance(item, (dict, InvalidError))
    try:
        detect(text)
    except InvalidError:
        pass


ISSUES = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.integers(1, 10**9),
            "title": texts,
            "state": st.sampled_from(["open", "closed", "OPEN", "CLOSED"]),
            "labels": st.lists(st.builds(lambda name: {"name": name, "id": 1}, names), max_size=3),
            "assignees": st.lists(st.builds(lambda name: {"login": name}, names), max_size=2),
            "body": texts | st.none(),
        }
    ),
    max_size=5,
    unique_by=lambda one: one["number"],
)


@settings(max_examples=60, deadline=None)
@given(issues=ISSUES, pages=st.booleans())
def test_issues_of_github_are_read_alone_and_in_pages(issues: list[Any], pages: bool) -> None:
    for issue in issues:
        issue["html_url"] = f"https://github.com/o/r/issues/{issue['number']}"
    text = "".join(json.dumps([one]) for one in issues) if pages else json.dumps(issues)
    found = [item for _, item in read(text, "github")[1]]
    for issue, item in zip(issues, found, strict=True):
        assert isinstance(item, dict)
        assert item["id"] == f"github:o/r#{issue['number']}"
        assert item["title"] == line_of(issue["title"])
        assert item["state"] == ("open" if issue["state"].lower() == "open" else "completed")
        assert item["labels"] == sorted({label["name"] for label in issue["labels"]})


def items_of(found: Any) -> dict[str, dict[str, Any]]:
    return {item["id"]: item for _, item in found[1]}


def test_a_file_of_beads_is_read() -> None:
    text = (FIXTURES / "beads.jsonl").read_text()
    assert detect(text) == "beads"
    items = items_of(read(text))
    by_title = {item["title"]: item for item in items.values()}
    design, check = by_title["Design the login"], by_title["Check the password"]
    logged, epic = by_title["The password is logged"], by_title["Everything about the login"]
    assert (design["state"], design["result"], design["kind"]) == ("completed", "drawn", "feature")
    assert (design["priority"], design["labels"]) == (1, ["ui", "web"])
    assert (check["after"], check["parent"]) == ([design["id"]], epic["id"])
    assert check["payload"] == {"description": "With argon2.", "assignee": "alice"}
    assert (logged["found_in"], logged["state"]) == (check["id"], "open")


def test_a_file_of_task_master_is_read() -> None:
    text = (FIXTURES / "taskmaster.json").read_text()
    format, _ = read(text)
    assert format == "taskmaster"
    items = items_of(read(text))
    assert items["taskmaster:1"]["state"] == "completed"
    assert items["taskmaster:1"]["priority"] == 1
    assert items["taskmaster:2"]["after"] == ["taskmaster:1", "taskmaster:2.1", "taskmaster:2.2"]
    assert items["taskmaster:2.2"]["after"] == ["taskmaster:2.1"]
    assert items["taskmaster:2.2"]["parent"] == "taskmaster:2"


def test_a_folder_of_backlog_is_read() -> None:
    items = items_of(read_folder(str(FIXTURES)))
    long = "Design the login: form, 'quotes' & a title that is long enough for YAML to be folded"
    assert items["TASK-1"]["title"] == f"{long} over several lines of the file"
    assert (items["TASK-1"]["labels"], items["TASK-1"]["priority"]) == (["ui", "web"], 1)
    assert items["TASK-1"]["payload"]["assignees"] == ["@alice"]
    assert items["TASK-2"]["after"] == ["TASK-1"]
    assert items["TASK-2.1"]["parent"] == "TASK-2"
    assert (items["TASK-3"]["title"], items["TASK-3"]["state"]) == (
        '#42: "done" already',
        "completed",
    )


def test_a_checklist_says_what_comes_first() -> None:
    text = """\
# Login
- [ ] Ship the login (labels: web, urgent)
  - [x] Draw the form
  - [ ] Check the password (id: check) (after: Draw the form)
* [-] Never mind
```
- [ ] not an item
```
"""
    items = items_of(read(text))
    assert list(items) == ["ship-the-login", "draw-the-form", "check", "never-mind"]
    assert items["ship-the-login"]["after"] == ["draw-the-form", "check"]
    assert items["ship-the-login"]["labels"] == ["urgent", "web"]
    assert items["check"]["after"] == ["draw-the-form"]
    assert items["check"]["parent"] == "ship-the-login"
    assert [item["state"] for item in items.values()] == ["open", "completed", "open", "cancelled"]


def test_a_prefix_stands_before_ids_and_before_what_names_them() -> None:
    text = '{"id": "a", "after": ["b", "elsewhere"]}\n{"id": "b", "parent": "a"}\n'
    items = items_of(read(text, prefix="web-"))
    assert items["web-a"]["after"] == ["web-b", "elsewhere"]
    assert items["web-b"]["parent"] == "web-a"
    assert items_of(read('[{"number": 3, "title": "t"}]', prefix="github:o/r#")).keys() == {
        "github:o/r#3"
    }
