"""What a command prints, and how one says it should be: quiet, in colour, cut, in a format."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re

import pytest

import dibs
from tests.surfaces.shell import Shell, finish

COLOUR = re.compile(r"\x1b\[\d+m")


# Quiet.


def test_quiet_leaves_the_words_out_and_the_data_and_errors_in(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    for flag in ("-q", "--quiet"):
        assert shell.ok("work", "list", flag).err == ""
        assert shell.ok(flag, "messages").err == ""
        assert "src/a.py" in shell.ok("leases", flag).out
        refused = shell.as_("bob")("claim", "src/a.py", flag)
        assert refused.code == 1
        assert "is held by alice" in refused.err and "next:" in refused.err
    assert shell.ok("work", "list").err == "no tasks\n"


# Colour.


def in_terminal(shell: Shell, *words: str, **variables: str) -> str:
    """What a terminal gets from a command."""
    ours, theirs = pty.openpty()
    environment = shell.environment | {"TERM": "xterm", **variables}
    process = shell.spawn(["dibs", *words], stdout=theirs, env=environment)
    os.close(theirs)
    finish(process)
    with os.fdopen(ours, "rb", 0) as terminal:
        try:
            return terminal.read(65_536).decode()
        except OSError:
            return ""  # it said nothing


def test_colour_is_for_terminals_unless_something_else_was_said(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    assert COLOUR.search(in_terminal(shell, "status"))
    assert not COLOUR.search(in_terminal(shell, "status", NO_COLOR="1"))
    assert not COLOUR.search(in_terminal(shell, "status", TERM="dumb"))
    assert not COLOUR.search(in_terminal(shell, "status", "--color", "never"))
    assert COLOUR.search(in_terminal(shell, "status", "--color=always", NO_COLOR="1"))
    assert not COLOUR.search(shell.ok("status").out)
    assert not COLOUR.search(shell.ok("status", "--color", "auto").out)
    assert COLOUR.search(shell.ok("status", "--color", "always").out)
    assert COLOUR.search(shell("claim", "src/a.py", "--color", "always", "--as", "bob").err)
    assert not COLOUR.search(shell.ok("status", "--color", "always", "--json").out)


# Formats.

READS = (
    "status", "leases", "leases waiting", "work list", "messages", "agents", "agents --everybody",
    "state namespaces", "log", "overview", "stats", "whoami", "version", "config list",
    "config get ttl", "doctor", "verify", "events latest", "token list", "work plan", "contention",
    "report", "report --by day",
    "candidates -- cl", "completion bash", "protocol", "land --queue", "swarm status", "overlap",
)  # fmt: skip


@pytest.mark.parametrize("line", READS)
def test_every_answer_can_be_had_in_every_format(shell: Shell, line: str) -> None:
    alice = shell.as_("alice")
    alice.ok("claim", "src/a.py", "--note", "why")
    alice.ok("work", "add", "one")
    words = line.split(" -- ")
    given = ["--", *words[1].split()] if len(words) > 1 else []
    for name in ("json", "yaml", "csv"):
        answer = alice(*words[0].split(), "--format", name, *given)
        assert answer.code == 0, answer
        if name == "json":
            for one in answer.out.splitlines():
                json.loads(one)
        elif name == "yaml":
            assert answer.out.startswith("---")
        elif answer.out:
            rows = list(csv.reader(io.StringIO(answer.out)))
            assert len({len(row) for row in rows}) == 1, answer


# Lists that were cut.


def test_a_list_that_was_cut_says_so_and_how_to_see_the_rest(shell: Shell) -> None:
    with (
        dibs.open(start=str(shell.folder), user_dir=shell.user_dir) as space,
        space.join("alice") as alice,
    ):
        for number in range(4):
            alice.work.add(f"task-{number}")
            alice.leases.claim(f"port:{number}")
            alice.messages.announce(f"hello {number}")
            alice.state.set("n", f"key-{number}", number)
            alice.state.set("n", "often", number, force=True)
        cut = {
            ("work", "list"): "--all or a higher --limit or --after ",
            ("leases",): "a higher --limit",
            ("messages",): "a higher --limit or --before ",
            ("messages", "search", "hello"): "a higher --limit",
            ("state", "list", "n"): "a higher --limit or --after key-1",
            ("state", "history", "n", "often"): "a higher --limit or --before 3",
            ("events", "latest"): "a higher --limit",
        }
        for words, how in cut.items():
            answer = shell.ok(*words, "--limit", "2")
            said = "the list ends at its limit of 2, and there may be more; for the rest: "
            assert f"{said}{how}" in answer.err, answer
            assert "the list ends" not in shell.ok(*words, "--limit", "100").err
            assert "the list ends" not in shell.ok("-q", *words, "--limit", "2").err
        page = shell.ok("work", "list", "--limit", "2").err.rpartition("--after ")[2].strip()
        rest = shell.json("work", "list", "--after", page)
        assert [task["id"] for task in rest] == ["task-2", "task-3"]
        page = shell.ok("messages", "--limit", "2").err.rpartition("--before ")[2].strip()
        rest = shell.json("messages", "--before", page)
        assert sorted(one["body"] for one in rest) == ["hello 0", "hello 1"]


# Who and how much.


def test_whoami_says_who_and_why(shell: Shell) -> None:
    nobody = shell.ok("whoami")
    assert "agent" not in nobody.out and "--as NAME" in nobody.err
    assert shell.json("whoami")["agent"] is None
    said = shell.as_("alice").json("whoami")
    assert (said["agent"], said["by"], said["session"]) == ("alice", "DIBS_AGENT", None)
    shell.as_("alice").ok("claim", "src/a.py")
    assert shell.as_("alice").json("whoami")["session"] > 0
    assert shell.as_("alice").json("whoami", "--as", "bob")["by"] == "--as"
    agent = shell.with_(CLAUDECODE="1", CLAUDE_CODE_SESSION_ID="s").json("whoami")
    assert (agent["party"], agent["by"]) == ("agent", "the session of claude")
    assert agent["agent"].startswith("claude-")
    assert said["party"] == "person"
    assert said["store"] == str(shell.folder / ".dibs/dibs.db")


def test_stats_counts_what_is_there(on_each: Shell) -> None:
    alice = on_each.as_("alice")
    alice.ok("claim", "src/a.py", "src/b.py")
    alice.ok("work", "add", "one")
    alice.ok("work", "claim", "two")
    alice.ok("state", "set", "n", "k", "1")
    found = on_each.json("stats")
    assert (found["agents"], found["leases"], found["namespaces"]) == (1, 2, 1)
    assert found["tasks"] == {"available": 1, "claimed": 1}
    assert found["seq"] == on_each.json("events", "last")
    assert "2 (1 available, 1 claimed)" in on_each.ok("stats").out


def test_the_version_is_one_word_however_it_is_asked_for(shell: Shell) -> None:
    said = {shell.ok(words).out for words in ("version", "--version", "-V")}
    assert said == {f"dibs {dibs.__version__}\n"}
