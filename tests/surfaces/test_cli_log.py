"""`dibs log` as people and programs read it: real processes, in time zones of their own."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dibs
from tests.clock import ManualClock
from tests.surfaces.daemon import serving
from tests.surfaces.shell import Shell

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def past(shell: Shell) -> Shell:
    """A repository with a past: an event each hour, from noon of 16 November 2026 (UTC) on."""
    clock = ManualClock(round(NOON.timestamp() * 1000))
    with (
        dibs.open(start=str(shell.folder), user_dir=shell.user_dir, clock=clock) as space,
        space.join("alice") as alice,
    ):
        for hour in range(48):
            alice.state.set("hours", f"h{hour}", hour)
            clock.advance(3600)
    return shell


def hours(shell: Shell, *words: str) -> list[int]:
    said = shell.ok("log", "--kind", "entry", "--json", *words)
    return [int(json.loads(line)["subject"][7:]) for line in said.out.splitlines()]


def test_a_log_has_the_date_and_the_zone_of_whoever_reads_it(past: Shell) -> None:
    lines = past.with_(TZ="UTC").ok("log", "--kind", "entry").out.splitlines()
    assert len(lines) == 48
    assert re.match(r" +\d+  2026-11-16 12:00:00 \+00:00  alice +entry.set +hours/h0 ", lines[0])
    [line] = past.with_(TZ="Asia/Kolkata").ok("log", "--kind=entry", "--last", "1").out.splitlines()
    assert "2026-11-18 16:30:00 +05:30" in line
    [line] = (
        past.with_(TZ="America/New_York").ok("log", "--kind=entry", "--last=1").out.splitlines()
    )
    assert "2026-11-18 06:00:00 -05:00" in line


def test_a_log_without_a_match_says_so_and_where_the_journal_ends(past: Shell) -> None:
    """A mistyped name, a time to come, or the wrong order of two: all are answered with nothing."""
    for words in (["--agent", "bod"], ["--since", "2030-01-01"], ["--since=50", "--until=3"]):
        for format in ("text", "json", "csv"):
            answer = past.ok("log", *words, "--format", format)
            assert answer.out == ""
            assert answer.err.startswith("no event matches; the last of all is "), words
    assert past.with_(DIBS_SPACE="empty").ok("log").err == "nothing has happened yet\n"


def test_what_a_log_shows_can_be_given_back(past: Shell) -> None:
    for zone in ("UTC", "Europe/Berlin", "America/New_York"):
        shell = past.with_(TZ=zone)
        lines = shell.ok("log", "--kind", "entry").out.splitlines()
        shown = " ".join(lines[7].split()[1:4])
        assert hours(shell, "--since", shown)[0] == 7
        assert hours(shell, "--until", shown)[-1] == 7
        assert hours(shell, "--since", shown, "--until", shown) == [7]
        event = json.loads(shell.ok("log", "--json", "--since", shown).out.splitlines()[0])
        assert hours(shell, "--since", event["time"], "--until", event["time"]) == [7]
        assert datetime.fromisoformat(event["time"]).timestamp() * 1000 == event["at"]


def test_days_and_times_are_those_of_the_caller(past: Shell) -> None:
    utc, tokyo = past.with_(TZ="UTC"), past.with_(TZ="Asia/Tokyo")
    assert hours(utc, "--since", "2026-11-17", "--until", "2026-11-17") == list(range(12, 36))
    assert hours(tokyo, "--since", "2026-11-17", "--until", "2026-11-17") == list(range(3, 27))
    assert hours(tokyo, "--since=2026-11-17T00:00Z", "--until=2026-11-17T02:00Z") == [12, 13, 14]
    assert hours(utc, "--since", "2026-11-16 12:30", "--until", "2026-11-16T14:00:00") == [1, 2]
    assert hours(utc, "--until", "2026-11-15") == []


def test_a_daemon_in_another_zone_is_told_the_caller_s_moment(past: Shell) -> None:
    with serving(past.with_(TZ="America/New_York")) as daemon:
        tokyo = past.with_(TZ="Asia/Tokyo", DIBS_URL=daemon.url)
        assert hours(tokyo, "--since", "2026-11-17", "--until", "2026-11-17") == list(range(3, 27))
        assert len(tokyo.json("events", "latest", "--since", "2026-11-18", "--kind", "entry")) == 21
        [event, *_] = daemon.client()("events.since", seq="2026-11-17", kind="entry")
        assert event["subject"] == "hours/h17"  # nobody else's zone is known there


def test_a_length_of_time_is_that_long_ago(shell: Shell) -> None:
    real = ManualClock(round((datetime.now(UTC) - timedelta(hours=5)).timestamp() * 1000))
    with (
        dibs.open(start=str(shell.folder), user_dir=shell.user_dir, clock=real) as space,
        space.join("alice") as alice,
    ):
        for hour in range(5):
            alice.state.set("hours", f"h{hour}", hour)
            real.advance(3600)
    assert hours(shell, "--since", "90m") == [4]
    assert hours(shell, "--since", "3h30m", "--until", "1h30m") == [2, 3]
    assert hours(shell, "--since", "1w") == [0, 1, 2, 3, 4]
    assert hours(shell, "--since", "now") == []


def test_the_last_are_the_newest_in_order_and_what_is_cut_is_said(past: Shell) -> None:
    said = past.ok("log", "--kind", "entry", "--last", "3")
    assert [line.split()[6] for line in said.out.splitlines()] == [
        "hours/h45",
        "hours/h46",
        "hours/h47",
    ]
    until = re.search(r"the last 3; there are more: --last 30, or --until (\d+) ", said.err)
    assert until
    assert hours(past, "--last", "3", "--until", until[1]) == [42, 43, 44]
    seq = str(json.loads(past.ok("log", "--last=1", "--json").out)["seq"] - 10)
    assert hours(past, "--since", seq, "--last", "2") == [46, 47]
    said = past.ok("log", "--kind", "entry", "--last", "48")
    assert not said.err
    refused = past("log", "--limit", "3")
    assert (refused.code, "use --last" in refused.err) == (2, True)


def test_a_log_says_what_for_why_and_what_came_of_it(shell: Shell) -> None:
    alice, bob = shell.as_("alice"), shell.as_("bob")
    alice.ok("work", "add", "fix", "--title", "Fix the parser")
    alice.ok("work", "claim", "fix", "--lease", "src/a.py")
    waits = bob.start("claim", "src/a.py", "--note", "me too", "--wait", "60s")
    while not shell.ok("log", "--kind", "lease.queued").out:
        assert waits.poll() is None
    alice.ok("work", "complete", "fix", "--result", '{"pr": 12}')
    waits.communicate()
    bob.ok("work", "claim", "other")
    bob.ok("work", "fail", "other", "--reason", "no disk")
    text = shell.ok("log").out
    for line in (
        r'task.added +fix  "Fix the parser"',
        r'lease.claimed +src/a.py  "Fix the parser"  for fix',
        r'lease.queued +src/a.py  "me too"  behind alice',
        r'task.completed +fix  result "{\\"pr\\": 12}"',
        r"lease.released +src/a.py  for fix",
        r'lease.claimed +src/a.py  "me too"  waited \d+s',
        r'task.failed +other  because "no disk"',
    ):
        assert re.search(line, text), (line, text)
    of_task = shell.ok("log", "--task", "fix").out
    assert [line.split()[5] for line in of_task.splitlines()] == [
        "task.added",
        "task.claimed",
        "lease.claimed",
        "task.completed",
        "lease.released",
    ]
    assert "src/a.py" in shell.ok("log", "--path", "src").out
    assert not shell.ok("log", "--path", "docs").out
    (shell.folder / "src").mkdir(exist_ok=True)
    inside = shell.at(shell.folder / "src")
    assert inside.ok("log", "--path", "a.py").out == shell.ok("log", "--path", "src/a.py").out


def test_words_of_agents_cannot_forge_a_line(shell: Shell) -> None:
    alice = shell.as_("alice")
    alice.ok("work", "add", "t")
    alice.ok("work", "claim", "t")
    alice.ok("work", "fail", "t", "--reason", "x\n     9  2026-11-18 boss task.completed t")
    lines = shell.ok("log").out.splitlines()
    assert len(lines) == 4
    assert "\\n" in lines[-1]


def test_an_unknown_kind_is_refused_with_those_that_there_are(on_each: Shell) -> None:
    refused = on_each("log", "--kind", "lease.claim")
    assert refused.code == 2
    assert "did you mean lease.claimed?" in refused.err
    assert "task.completed" in refused.err
    refused = on_each("events", "latest", "--kind", "leases", "--json")
    assert refused.code == 2
    assert "lease.claimed" in refused.json["details"]["kinds"]


@pytest.mark.parametrize("wrong", ["soon", "5", "2026-13-01"])
def test_a_wrong_time_is_refused_with_what_is_accepted(shell: Shell, wrong: str) -> None:
    refused = shell("log", "--since", f"{wrong}x")
    assert refused.code == 2
    assert "1h30m" in refused.err
    assert shell("log", "--follow", "--until", "now").code == 2


def heard(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_a_follower_hears_only_what_it_asked_for(on_each: Shell) -> None:
    alice = on_each.as_("alice")
    alice.ok("claim", "src/a.py")
    for filters, subject in (
        (("--path", "src/*.py"), "src/b.py"),
        (("--task", "t"), "t"),
        (("--since", "1h", "--kind", "task", "--agent", "alice"), "t"),
    ):
        follower = on_each.start("log", "--follow", "--json", *filters)
        if filters[0] == "--path":
            assert heard(follower)["subject"] == "src/a.py"
        alice.ok("claim", f"docs/{len(filters)}.md")
        alice.ok("claim", "src/b.py") if filters[0] == "--path" else alice("work", "add", "t")
        assert heard(follower)["subject"] == subject
        follower.terminate()
        follower.communicate()


def test_a_follower_ends_when_nobody_reads_it_any_more(on_each: Shell) -> None:
    on_each.as_("alice").ok("claim", "src/a.py")
    with on_each.start("log", "--follow", "--json") as follower:
        assert heard(follower)
        assert follower.stdout is not None
        follower.stdout.close()
        assert follower.wait(timeout=10) == 0


# Formats


def test_a_log_in_every_format_is_the_same_log(past: Shell) -> None:
    asked = ("log", "--kind", "entry", "--last", "2")
    events = [json.loads(line) for line in past.ok(*asked, "--format", "json").out.splitlines()]
    rows = list(csv.DictReader(io.StringIO(past.ok(*asked, "--format", "csv").out)))
    assert [int(row["seq"]) for row in rows] == [event["seq"] for event in events]
    assert [row["time"] for row in rows] == [event["time"] for event in events]
    assert [json.loads(row["data"]) for row in rows] == [event["data"] for event in events]
    table = past.ok(*asked, "--format=markdown").out.splitlines()
    assert len(table) == 4
    assert table[2].startswith(f"| {events[0]['seq']} | `2026-11-18")
    assert past.ok(*asked, "--format", "yaml").out.count("---\n") == 2
    assert past.ok(*asked, "--format", "text").out == past.ok(*asked).out
    assert past.ok("--format", "json", *asked).out == past.ok("--json", *asked).out


def test_every_answer_has_every_format(shell: Shell) -> None:
    alice = shell.as_("alice")
    alice.ok("claim", "src/a.py", "--note", "=cmd|' /C calc'!A0")
    [row] = csv.DictReader(io.StringIO(shell.ok("leases", "--format", "csv").out))
    assert (row["resource"], row["note"]) == ("src/a.py", "'=cmd|' /C calc'!A0")
    assert shell.ok("work", "list", "--format", "csv").out.startswith("id,state,title,")
    assert "`=cmd\\|' /C calc'!A0`" in shell.ok("leases", "--format", "markdown").out
    assert 'note: "=cmd' in shell.ok("status", "--format", "yaml").out
    assert shell.ok("events", "last", "--format", "csv").out == "value\n2\n"
    # A command that writes in formats of its own keeps them.
    assert shell.ok("work", "export", "--format", "jsonl").code == 0
    # What is wrong is found before anything is done.
    assert alice("release", "src/a.py", "--format", "xml").code == 2
    assert len(shell.json("leases")) == 1
    assert alice("release", "src/a.py", "--format").code == 2
    # A refusal is not a part of the data.
    refused = shell.as_("bob")("claim", "src/a.py", "--format", "csv")
    assert (refused.code, refused.out) == (1, "")
    assert "alice" in refused.err
    # What belongs to another command is left to it.
    said = alice.ok("run", "--", "echo", "--format", "csv")
    assert "--format csv" in said.out
