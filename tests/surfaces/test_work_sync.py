"""`dibs work sync`: both sides are equal afterwards, whatever happens on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.surfaces.forge import TOKEN, Forge, running
from tests.surfaces.shell import Answer, Shell, finish

SOURCES = ["github:o/r", "gitea:o/r", "gitlab:o/r"]


@pytest.fixture
def forge() -> Iterator[Forge]:
    with running() as forge:
        yield forge


@pytest.fixture
def user(shell: Shell, forge: Forge) -> Shell:
    """A person with a token, for each kind of forge."""
    schemes = ("GITHUB", "GITEA", "GITLAB")
    tokens = {f"{one}_TOKEN": TOKEN for one in schemes}
    return shell.with_(**tokens, **{f"{one}_API_URL": forge.url for one in schemes})


def synced(user: Shell, source: str = "github:o/r", *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = user.json("work", "sync", source, *words)
    return answer


def task(user: Shell, id: str) -> dict[str, Any]:
    shown: dict[str, Any] = user.json("work", "show", id)
    return shown


def complete(user: Shell, id: str, result: str = '{"pr": 12}') -> None:
    bob = user.as_("bob")
    bob.ok("work", "claim", id)
    bob.ok("work", "complete", id, "--result", result)


@pytest.mark.parametrize("source", SOURCES)
def test_what_changes_on_one_side_changes_on_the_other(
    user: Shell, forge: Forge, source: str
) -> None:
    forge.add("Fix the login", labels=["bug", "⚠️ urgent"], body="It fails.")
    forge.add("Done long ago", state="closed", reason="completed")
    answer = synced(user, source)
    assert answer["added"] == [f"{source}#1", f"{source}#2"]
    assert task(user, f"{source}#1")["payload"]["body"] == "It fails."
    assert task(user, f"{source}#2")["state"] == "completed"

    forge.change(1, title="Fix the login at last")
    complete(user, f"{source}#1")
    answer = synced(user, source, "--assignee", "bot")
    assert answer["pushed"] == {f"{source}#1": ["assignee", "state"]}
    assert task(user, f"{source}#1")["title"] == "Fix the login at last"
    assert forge.issues[1]["state"] == "closed"
    assert forge.issues[1]["assignees"] == ["bot"]
    assert forge.issues[1]["labels"] == ["bug", "⚠️ urgent"]
    (comment,) = forge.comments[1]
    assert "Completed by bob" in comment
    assert '"pr": 12' in comment

    forge.change(2, state="open")
    synced(user, source)
    assert task(user, f"{source}#2")["state"] == "available"
    before = len(forge.requests)
    answer = synced(user, source)
    assert (answer["added"], answer["changed"], answer["pushed"]) == ([], [], {})
    assert [one.split()[0] for one in forge.requests[before:]] == ["GET"]


def test_all_pages_are_read_and_no_address_in_an_answer_is_followed(
    user: Shell, forge: Forge
) -> None:
    forge.page = 3
    for number in range(8):
        forge.add(f"Issue {number}")
    assert len(synced(user)["added"]) == 8


@pytest.mark.parametrize(("rule", "title"), [("theirs", "there"), ("ours", "here")])
def test_the_rule_decides_if_both_sides_changed(
    user: Shell, forge: Forge, rule: str, title: str
) -> None:
    forge.add("first")
    synced(user)
    user.as_("bob").ok("work", "put", "github:o/r#1", "--title", "here")
    forge.change(1, title="there")
    synced(user, "github:o/r", "--conflict", rule)
    assert (forge.issues[1]["title"], task(user, "github:o/r#1")["title"]) == (title, title)


def test_a_dry_run_changes_nothing_on_either_side(user: Shell, forge: Forge) -> None:
    forge.add("first")
    synced(user)
    complete(user, "github:o/r#1")
    forge.add("second")
    was = json.dumps(forge.issues)
    answer = synced(user, "github:o/r", "--dry-run")
    assert answer["added"] == ["github:o/r#2"]
    assert answer["pushed"] == {"github:o/r#1": ["state"]}
    assert json.dumps(forge.issues) == was
    assert user("work", "show", "github:o/r#2").code == 1


def test_a_task_that_somebody_works_on_is_not_taken_away(user: Shell, forge: Forge) -> None:
    forge.add("first")
    synced(user)
    user.as_("bob").ok("work", "claim", "github:o/r#1")
    forge.change(1, state="closed", reason="completed")
    for _ in range(2):
        assert synced(user)["left"] == ["github:o/r#1"]
    assert task(user, "github:o/r#1")["state"] == "claimed"
    assert forge.issues[1]["state"] == "closed"
    user.as_("bob").ok("work", "abandon", "github:o/r#1")
    assert synced(user)["left"] == []
    assert task(user, "github:o/r#1")["state"] == "completed"


def test_an_issue_that_was_claimed_before_it_was_seen_is_one_task(
    user: Shell, forge: Forge
) -> None:
    forge.add("first", labels=["bug"])
    user.as_("bob").ok("work", "claim", "github:o/r#1")
    synced(user)
    shown = task(user, "github:o/r#1")
    assert (shown["title"], shown["labels"], shown["state"]) == ("first", ["bug"], "claimed")
    assert (forge.issues[1]["title"], forge.issues[1]["state"]) == ("first", "open")


def test_a_limit_is_waited_for_if_it_is_short_and_said_if_it_is_long(
    user: Shell, forge: Forge
) -> None:
    forge.add("first")
    forge.failures = [(429, {"Retry-After": "1"}), (502, {})]
    assert synced(user)["added"] == ["github:o/r#1"]
    spent = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9999999999"}
    forge.failures = [(403, spent)]
    answer = user("work", "sync", "github:o/r")
    assert answer.code == 75, answer
    assert "accepts no more requests" in answer.err
    assert TOKEN not in answer.out + answer.err


@pytest.mark.parametrize(
    "raw",
    [b"", b"nonsense", b"{}", b"[1, null]", b'[{"number": "x"}]', b"[" * 100_000],
    ids=lambda raw: raw[:9].decode() or "nothing",
)
def test_whatever_a_server_answers_is_read_or_refused(
    user: Shell, forge: Forge, raw: bytes
) -> None:
    forge.raw = raw
    answer = user("work", "sync", "github:o/r")
    assert answer.code in (0, 1, 75), answer
    assert "bug" not in answer.err
    assert user.json("work", "list") == []


def test_a_token_goes_to_no_address_without_tls_but_of_this_machine(user: Shell) -> None:
    answer = user.with_(GITHUB_API_URL="http://example.org")("work", "sync", "github:o/r")
    assert answer.code == 2, answer
    assert "not the address" in answer.err


def ready(user: Shell, forge: Forge) -> None:
    """Something to do in each direction."""
    for title in ("closed here", "renamed there", "labelled here"):
        forge.add(title, labels=["a"])
    synced(user)
    complete(user, "github:o/r#1")
    forge.change(2, title="a new name")
    user.as_("bob").ok("work", "put", "github:o/r#3", "--label", "b", "--label", "c")
    forge.add("new there")


def equal(user: Shell, forge: Forge) -> None:
    """Both sides are, and nothing was done twice."""
    tasks = {one["id"]: one for one in user.json("work", "list")}
    assert len(tasks) == len(forge.issues) == 4
    for number, issue in forge.issues.items():
        here = tasks[f"github:o/r#{number}"]
        assert here["title"] == issue["title"]
        assert here["labels"] == issue["labels"]
        assert (here["state"] == "completed") == (issue["state"] == "closed")
    assert [len(said) for said in forge.comments.values()] == [1, 0, 0, 0]
    assert forge.issues[1]["state"] == "closed"
    assert forge.issues[3]["labels"] == ["b", "c"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_request_the_next_run_does_the_rest_and_nothing_twice(
    user: Shell, forge: Forge, when: str
) -> None:
    ready(user, forge)
    before = len(forge.requests)
    synced(user)
    requests = len(forge.requests) - before
    equal(user, forge)
    assert requests >= 5  # the list, the comments, the comment, and two changes
    for request in range(1, requests + 1):
        undone(user, forge)
        forge.hold()
        victim = user.start("work", "sync", "github:o/r")
        forge.kill(victim, request, when)
        finish(victim)
        assert victim.returncode == -9
        synced(user)
        equal(user, forge)


def undone(user: Shell, forge: Forge) -> None:
    """Everything is to be done once more."""
    forge.change(1, state="open")
    forge.change(3, labels=["a"])
    synced(user)
    for said in forge.comments.values():
        said.clear()
    complete(user, "github:o/r#1")
    forge.change(2, title=f"{forge.issues[2]['title']} again")
    user.as_("bob").ok("work", "put", "github:o/r#3", "--label", "b", "--label", "c")


CHECKLIST = """\
# To do

- [ ] Draw the form (labels: web)
- [ ] Check the password
Some words.
"""


def test_a_checklist_is_kept_equal_and_its_other_lines_stay(user: Shell) -> None:
    file = user.folder / "TODO.md"
    file.write_text(CHECKLIST)
    assert synced(user, "TODO.md")["added"] == ["draw-the-form", "check-the-password"]
    complete(user, "draw-the-form", '"drawn"')
    user.as_("bob").ok("work", "put", "check-the-password", "--title", "Check it (well)")
    synced(user, "TODO.md")
    text = file.read_text()
    assert "- [x] Draw the form (labels: web) (assignee: bob)\n  Result: Completed by bob." in text
    assert "- [ ] Check it (well) (id: check-the-password)\nSome words.\n" in text
    again = synced(user, "TODO.md")
    assert (again["added"], again["changed"], again["pushed"]) == ([], [], {})
    assert file.read_text() == text
    file.write_text(text.replace("[x]", "[ ]").replace("Check it", "Check all"))
    synced(user, "TODO.md")
    assert task(user, "draw-the-form")["state"] == "available"
    assert task(user, "check-the-password")["title"] == "Check all (well)"


def test_a_file_of_beads_is_kept_equal(user: Shell) -> None:
    file = user.folder / "issues.jsonl"
    records = [
        {"id": f"bd-{n}", "title": f"T{n}", "status": "open", "priority": 2, "issue_type": "task"}
        for n in (1, 2)
    ]
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
    synced(user, "issues.jsonl")
    complete(user, "bd-1", '"done"')
    synced(user, "issues.jsonl")
    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["status"], first["assignee"]) == ("closed", "bob")
    assert "done" in first["close_reason"]
    assert second == records[1]
    again = synced(user, "issues.jsonl")
    assert (again["changed"], again["pushed"]) == ([], {})


def test_a_file_of_another_system_keeps_its_mark_and_its_line_ends(user: Shell) -> None:
    todo, beads = user.folder / "TODO.md", user.folder / "issues.jsonl"
    todo.write_bytes("\ufeff- [ ] One\r\n- [ ] \r\n- [ ] Two\r\n".encode())
    record = {"id": "bd-1", "title": "T", "status": "open", "priority": 2, "issue_type": "task"}
    beads.write_bytes(f"\ufeff{json.dumps(record)}\r\n".encode())
    assert synced(user, "TODO.md")["added"] == ["one", "two"]
    assert synced(user, "issues.jsonl")["added"] == ["bd-1"]
    for id in ("one", "bd-1"):
        complete(user, id, '"done"')
    synced(user, "TODO.md")
    synced(user, "issues.jsonl")
    lines = todo.read_bytes().decode().split("\r\n")
    assert lines[0] == "\ufeff- [x] One (assignee: bob)"
    assert lines[2:] == ["- [ ] ", "- [ ] Two", ""]
    text = beads.read_bytes().decode()
    assert text.startswith("\ufeff{") and text.endswith("}\r\n")
    for source in ("TODO.md", "issues.jsonl"):
        again = synced(user, source)
        assert (again["added"], again["changed"], again["pushed"]) == ([], [], {})


def test_a_source_that_is_none_is_refused(user: Shell) -> None:
    refused: list[Answer] = [
        user("work", "sync", source)
        for source in ("github:../x", "github:o", "nothing.txt", "missing.md", "github:o/r?x=1")
    ]
    assert [answer.code for answer in refused] == [2, 2, 2, 1, 2], refused
