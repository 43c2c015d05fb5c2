"""`dibs work import` and `export`: twice is once, the wrong ones are named, all others go in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.surfaces.shell import Shell, finish


def imported(shell: Shell, text: str, *words: str) -> dict[str, Any]:
    process = shell.start("--json", "work", "import", "-", *words, stdin=-1)
    answer: dict[str, Any] = finish(process, given=text).json
    return answer


def last_seq(shell: Shell) -> int:
    events = shell.json("events", "since", "--limit", "1000")
    return int(events[-1]["seq"])


ISSUES = [
    {
        "number": number,
        "title": f"Issue {number}",
        "state": "OPEN" if number % 3 else "CLOSED",
        "labels": [{"name": "bug"}],
        "url": f"https://github.com/o/r/issues/{number}",
    }
    for number in range(1, 8)
]


def test_a_second_import_changes_nothing(on_each: Shell) -> None:
    bob = on_each.as_("bob")
    first = imported(bob, json.dumps(ISSUES))
    assert first["format"] == "github"
    assert first["added"] == [f"github:o/r#{number}" for number in range(1, 8)]
    assert on_each.json("work", "show", "github:o/r#3")["state"] == "completed"
    before = last_seq(bob)
    again = imported(bob, json.dumps(ISSUES))
    assert (again["added"], again["changed"], again["kept"]) == ([], [], 7)
    assert last_seq(bob) == before
    changed = [{**ISSUES[0], "title": "Another name"}, *ISSUES[1:]]
    assert imported(bob, json.dumps(changed))["changed"] == ["github:o/r#1"]


def test_what_is_wrong_is_named_with_its_line_and_the_others_go_in(shell: Shell) -> None:
    lines = [
        '{"id": "a", "title": "one"}',
        "{nonsense",
        '{"title": "no id"}',
        '{"id": "b", "priority": "high"}',
        '{"id": "a", "title": "another"}',
        '{"id": "c", "after": ["c"]}',
        "7",
        '{"id": "d"}',
    ]
    file = shell.folder / "tasks.jsonl"
    file.write_text("\n".join(lines))
    answer = shell.as_("bob")("work", "import", "tasks.jsonl")
    assert answer.code == 1, answer
    named = [line.split(":")[1] for line in answer.err.splitlines() if ": line " in line]
    assert named == [f" line {line}" for line in (2, 3, 4, 5, 6, 7)], answer
    assert "2 added, 0 changed, 0 the same" in answer.err
    assert [task["id"] for task in shell.json("work", "list")] == ["a", "d"]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_table_is_read_however_its_cells_are_parted(shell: Shell, mark: str) -> None:
    rows = [["id", "title", "labels"], ["a", '"Two\r\nlines"', '"x;y"'], ["b", "One", ""]]
    text = "\ufeff" + "".join(mark.join(row) + "\r\n" for row in rows)
    assert imported(shell.as_("bob"), text)["added"] == ["a", "b"]
    assert [(task["title"], task["labels"]) for task in shell.json("work", "list")] == [
        ("Two lines", ["x", "y"]),
        ("One", []),
    ]


def test_an_item_without_words_is_named(shell: Shell) -> None:
    answer = imported(shell.as_("bob"), "- [ ] One\n- [ ]\n- [ ] (id: x)\n")
    assert answer["added"] == ["one", "x"]
    assert [one["place"] for one in answer["wrong"]] == ["line 2"]


def test_a_person_needs_no_name_and_a_dry_run_changes_nothing(shell: Shell) -> None:
    (shell.folder / "TODO.md").write_text("- [ ] One\n  - [ ] Two (leases: src/a.py)\n")
    answer = shell.ok("work", "import", "TODO.md", "--dry-run")
    assert "2 would be added" in answer.err
    assert shell.json("work", "list") == []
    shell.at(shell.folder / "src").ok("work", "import", "../TODO.md", "--prefix", "x-")
    one, two = shell.json("work", "list")
    assert (one["id"], one["after"], one["state"]) == ("x-one", ["x-two"], "blocked")
    assert (two["parent"], two["declared"]) == ("x-one", ["src/a.py"])


def test_what_was_exported_is_the_same_when_it_is_imported(shell: Shell) -> None:
    bob = shell.as_("bob")
    bob.ok("work", "add", "a", "--title", "One; two", "--label", "x,y", "--payload", '{"n": 1}')
    bob.ok("work", "add", "b", "--after", "a", "--tag", "go", "--priority", "3", "--parent", "a")
    bob.ok("work", "claim", "a")
    bob.ok("work", "complete", "a", "--result", '{"ok": true}')
    bob.ok("work", "land", "feature", "--commit", "1" * 40)  # which is left out
    for format in ("json", "jsonl", "csv"):
        text = shell.ok("work", "export", "--format", format).out
        again = imported(bob, text)
        assert (again["kept"], again["changed"], again["wrong"]) == (2, [], []), format


@pytest.mark.parametrize("text", ["", "nothing known", "\udcff"])
def test_a_text_of_no_known_format_is_refused(shell: Shell, text: str) -> None:
    (shell.folder / "file").write_bytes(text.encode("utf-8", "surrogateescape"))
    answer = shell("work", "import", "file")
    assert answer.code == 2, answer
    assert text or "the text is empty" in answer.err
    assert "\nnext: " in answer.err


def test_a_folder_of_a_stranger_makes_nothing_be_read_outside_it(shell: Shell) -> None:
    tasks = shell.folder / "backlog/tasks"
    tasks.mkdir(parents=True)
    secret = shell.folder.parent / "secret.md"
    secret.write_text("---\nid: S\ntitle: secret\n---\n")
    (tasks / "task-1.md").symlink_to(secret)
    (tasks / "task-2.md").write_text("---\nid: T\ntitle: 'fine'\n---\n")
    answer = shell("work", "import", ".")
    assert answer.code == 1, answer
    assert "tasks/task-1.md: it cannot be read" in answer.err
    assert [task["id"] for task in shell.json("work", "list")] == ["T"]


def test_thousands_of_issues_come_in_at_once(
    shell: Shell, record_property: Callable[[str, object], None]
) -> None:
    many = [
        {**ISSUES[0], "number": number, "url": f"https://github.com/o/r/issues/{number}"}
        for number in range(1, 10_001)
    ]
    (shell.folder / "issues.json").write_text(json.dumps(many))
    for done in ("added", "same"):
        start = time.monotonic()
        answer = shell.as_("bob").ok("work", "import", "issues.json")
        record_property(f"10,000 {done}, s", round(time.monotonic() - start, 2))
        assert f"10,000 {'the same' if done == 'same' else 'added'}" in answer.err
