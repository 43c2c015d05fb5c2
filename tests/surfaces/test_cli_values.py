"""What a person means by what they type: files, the standard input, commas, names and times."""

from __future__ import annotations

import subprocess

import pytest

from tests.surfaces.shell import Answer, Shell, finish


@pytest.fixture
def alice(shell: Shell) -> Shell:
    return shell.as_("alice")


def give(shell: Shell, *words: str, text: str) -> Answer:
    return finish(shell.start(*words, stdin=subprocess.PIPE), given=text)


# Files and the standard input.


def test_a_value_comes_from_a_file(alice: Shell) -> None:
    (alice.folder / "file.json").write_text('{"left": 10}\n')
    (alice.folder / "file.txt").write_text("plain\ntext\n")
    assert alice.json("work", "add", "t", "--payload", "@file.json")["payload"] == {"left": 10}
    assert alice.json("state", "set", "n", "k", "@file.txt")["value"] == "plain\ntext"
    alice.ok("work", "claim", "t")
    done = alice.json("work", "complete", "t", "--result", "@file.json")
    assert done["result"] == {"left": 10}


def test_a_file_that_is_not_there_is_refused(alice: Shell) -> None:
    answer = alice("work", "add", "t", "--payload", "@file.json")
    assert answer.code == 2
    assert "No such file" in answer.err and "write @@file.json" in answer.err
    assert alice.json("work", "list") == []
    assert alice.json("state", "set", "n", "k", "@@alice")["value"] == "@alice"
    (alice.folder / "binary").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in alice("state", "set", "n", "k", "@binary").err


def test_a_value_comes_from_the_standard_input(alice: Shell) -> None:
    assert give(alice, "state", "set", "n", "k", "-", text="[1, 2]\n").code == 0
    assert alice.json("state", "get", "n", "k")["value"] == [1, 2]
    assert give(alice, "work", "add", "t", "--payload", "-", text='{"a": 1}').code == 0
    assert alice.json("work", "list")[0]["payload"] == {"a": 1}
    assert give(alice, "send", "-", "--to", "alice", text="two\nlines\n").code == 0
    assert give(alice, "announce", "-", text="done").code == 0
    assert alice.json("inbox")[0]["body"] == "two\nlines"
    alice.ok("work", "claim", "t")
    assert give(alice, "work", "complete", "t", "--announce", "-", text="t is done").code == 0
    said = alice.json("messages", "history")
    assert {one["body"] for one in said} == {"two\nlines", "done", "t is done"}


def test_a_value_that_is_nearly_json_is_kept_as_text_and_mentioned(alice: Shell) -> None:
    answer = alice("work", "add", "t", "--payload", '{"a": 1')
    assert answer.code == 0 and "--payload begins like JSON, but is not JSON" in answer.err
    assert alice.json("work", "show", "t")["payload"] == '{"a": 1'
    assert "VALUE begins like" in alice("state", "set", "n", "k", '["a",]').err
    assert alice("state", "set", "n", "other", "plain").err.count("\n") == 1


def test_an_empty_standard_input_is_mentioned(alice: Shell) -> None:
    answer = give(alice, "state", "set", "n", "k", "-", text="")
    assert answer.code == 0 and "VALUE is empty: the standard input had no text" in answer.err


def test_a_value_that_is_nested_too_deep_is_refused(alice: Shell) -> None:
    answer = alice("state", "set", "n", "k", "[" * 100_000)
    assert answer.code == 2 and "Traceback" not in answer.err


def test_the_body_of_a_message_may_begin_with_a_name(alice: Shell) -> None:
    assert alice.json("send", "@bob look at this")["body"] == "@bob look at this"


# Commas.


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("a.txt,b.txt", "a.txt b.txt"),
        ("src/*.py,docs/*.md", "src/*.py docs/*.md"),
        ("db:a,db:b", "db:a db:b"),
        ("a.txt, b.txt", "a.txt b.txt"),
    ],
)
def test_a_comma_between_resources_is_refused(alice: Shell, typed: str, meant: str) -> None:
    for words in (["claim", typed], ["work", "add", "t", "--lease", typed]):
        answer = alice(*words)
        assert answer.code == 2 and f"write: {meant}" in answer.err.replace('"', "")
    assert alice.json("leases") == [] and alice.json("work", "list") == []


def test_a_file_with_a_comma_in_its_name_can_be_claimed(alice: Shell) -> None:
    (alice.folder / "a,b").write_text("")
    alice.ok("claim", "a,b")
    alice.ok("claim", "path:new,file")
    alice.ok("claim", "note:one, two and three")
    assert len(alice.json("leases")) == 3


def test_tags_and_labels_are_separated_by_commas(alice: Shell) -> None:
    task = alice.json("work", "add", "t", "--tag", "gpu,linux", "--tag", "fast", "--label", "a, b")
    assert sorted(task["tags"]) == ["fast", "gpu", "linux"] and task["labels"] == ["a", "b"]
    assert alice.json("work", "next", "--tag", "gpu,linux,fast")["id"] == "t"


# Names, and what is not there.


def test_a_message_to_somebody_unknown_says_so(alice: Shell) -> None:
    alice.ok("claim", "src/a.py")
    answer = alice("send", "hello", "--to", "alise")
    assert answer.code == 0
    assert "nobody called alise has been here yet" in answer.err
    assert "did you mean alice?" in answer.err
    assert alice.as_("alise").json("inbox")[0]["body"] == "hello"
    assert "has been here" not in alice("send", "hello", "--to", "alise").err


def test_a_dependency_that_nobody_has_added_is_mentioned(alice: Shell) -> None:
    alice.ok("work", "add", "fix-login")
    answer = alice("work", "add", "deploy", "--after", "fix-logn", "--json")
    assert answer.code == 0 and answer.json["after"] == ["fix-logn"]
    assert "nobody has added fix-logn yet" in answer.err
    assert "did you mean fix-login?" in answer.err
    assert "--after once for each" in alice("work", "edit", "deploy", "--after", "a,b").err
    assert alice("work", "edit", "deploy", "--after", "fix-login").err == ""
    lines = '{"id": "one"}\n{"id": "two", "after": ["one", "fix-login"]}\n'
    assert alice.sh(f"printf '{lines}' | dibs work add --many").err == ""
    lines = '{"id": "three", "after": ["nothing"]}\n'
    assert (
        "nobody has added nothing yet" in alice.sh(f"printf '{lines}' | dibs work add --many").err
    )


def test_a_title_in_place_of_an_id_is_mentioned(alice: Shell) -> None:
    answer = alice("work", "add", "Fix the login")
    assert answer.code == 0
    assert '"Fix the login" is the id of the task; its title is what --title says' in answer.err
    assert alice("work", "add", "fix the docs", "--title", "Fix the docs").err == ""
    assert alice("work", "add", "fix-docs").err == ""


def test_an_entry_that_is_not_there_is_no_success(alice: Shell) -> None:
    answer = alice("state", "get", "n", "k")
    assert answer.code == 1 and "nothing there" in answer.err
    assert alice("--json", "state", "get", "n", "k").out == "null\n"


def test_a_kind_of_event_that_there_is_not_is_refused(alice: Shell) -> None:
    answer = alice("log", "--kind", "leese")
    assert answer.code == 2 and "lease.claimed" in answer.err


def test_what_you_hold_is_said_to_be_yours(alice: Shell) -> None:
    alice.ok("claim", "src")
    assert "held by you, 29m left" in alice.ok("status", "src").out
    assert "held by you" in alice.ok("status", "src/a.py").out
    assert alice.json("status", "src/a.py")[0]["yours_in_ms"] > 1_000_000
    assert "free" in alice.ok("status", "docs").out
    assert "alice holds src" in alice.as_("bob").ok("status", "src").out


def test_next_says_why_nothing_fits(alice: Shell) -> None:
    alice.ok("work", "add", "t", "--tag", "gpu")
    assert "(tags: gpu)" in alice("work", "next").err
    alice.ok("work", "next", "--tag", "gpu")
    assert "alice" in alice.as_("bob")("work", "next", "--tag", "gpu").err


# Times.


def test_a_shorter_time_to_live_says_that_the_longer_one_stays(alice: Shell) -> None:
    assert "stays yours" not in alice("claim", "src/a.py", "--ttl", "10m").err
    for verb in ("claim", "renew"):
        answer = alice(verb, "src/a.py", "--ttl", "1m")
        left = alice.json("leases")[0]["expires_in_ms"]
        assert ("src/a.py stays yours for" in answer.err) == (left > 60_000)
    assert "stays yours" not in alice("claim", "src/a.py", "--ttl", "20m").err
