"""Commands that wait: they wake at once, answer Ctrl-C at once, and leave nothing behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.storage.waiting import PATIENCE_S
from tests.surfaces.shell import Shell, finish, until

ROUNDS = 5
WAITING = [
    ("claim", "src/a.py", "--wait", "1h"),
    ("wait", "src/a.py", "--timeout", "1h"),
    ("work", "next", "--wait", "1h"),
    ("inbox", "--wait", "1h"),
    ("state", "watch", "budget", "total", "--wait", "1h"),
    ("events", "watch", "1000000", "--wait", "1h"),
    ("log", "--follow"),
]


def test_a_waiting_claim_wakes_by_the_bell_and_not_by_the_slow_look(on_each: Shell) -> None:
    alice, bob = on_each.as_("alice"), on_each.as_("bob")
    taken = []
    for _ in range(ROUNDS):
        alice.ok("claim", "src/a.py")
        waiting = bob.start("claim", "src/a.py", "--wait", "60s", "--json")
        alice.waits()
        until_asleep()
        releasing = alice.start("release", "src/a.py")
        assert waiting.stdout is not None
        (lease,) = json.loads(waiting.stdout.readline())["leases"]
        taken.append(time.time() - lease["granted_at"] / 1000)
        assert lease["agent"] == "bob"
        assert [finish(releasing).code, finish(waiting).code] == [0, 0]
        bob.ok("release", "src/a.py")
    # By looking every half second it would take a quarter of a second, at the median.
    assert statistics.median(taken) < PATIENCE_S / 2, taken


def until_asleep() -> None:
    """The ticket is in the table a moment before its owner sleeps."""
    time.sleep(0.05)


def test_a_waiting_command_sees_what_it_waits_for(shell: Shell) -> None:
    alice, bob = shell.as_("alice"), shell.as_("bob")
    alice.ok("claim", "src/a.py")
    alice.ok("state", "set", "budget", "total", "1")
    bob.ok("inbox")
    waiting = {words[0]: bob.start(*words, "--json") for words in WAITING[1:5]}
    time.sleep(0.3)
    assert [process.poll() for process in waiting.values()] == [None] * 4
    alice.ok("release", "src/a.py")
    alice.ok("work", "add", "one")
    alice.ok("send", "hello", "--to", "bob")
    alice.ok("state", "set", "budget", "total", "2", "--expected-version", "1")
    said = {name: finish(process) for name, process in waiting.items()}
    assert {answer.code for answer in said.values()} == {0}
    assert said["wait"].json[0]["free"] is True
    assert said["work"].json["id"] == "one"
    assert said["inbox"].json[0]["body"] == "hello"
    assert said["state"].json["value"] == 2


@pytest.mark.parametrize("words", WAITING, ids=lambda words: "-".join(words[:2]))
def test_a_waiting_command_answers_ctrl_c_at_once(shell: Shell, words: tuple[str, ...]) -> None:
    alice, bob = shell.as_("alice"), shell.as_("bob")
    alice.ok("claim", "src/a.py")
    process = bob.start(*words)
    if words[0] == "claim":
        alice.waits()
    else:
        until(lambda: sleeps(process.pid), "the command asleep")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    answer = finish(process)
    assert time.monotonic() - began < 1
    assert answer.code == 130
    assert answer.err == ""
    assert alice.json("leases", "waiting") == []


def sleeps(pid: int) -> bool:
    """Whether the process listens for the bell and sleeps."""
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "S" and any("inotify" in target for target in open_files(pid))


def open_files(pid: int) -> Iterator[str]:
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            yield os.readlink(handle)
        except FileNotFoundError:
            continue  # closed between the two looks


def test_an_interrupted_claim_leaves_no_row_behind(on_each: Shell) -> None:
    alice, bob = on_each.as_("alice"), on_each.as_("bob")
    alice.ok("claim", "src/a.py")
    process = bob.start("claim", "src/a.py", "--wait", "1h")
    alice.waits()
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130
    alice.waits(0)
    alice.ok("release", "src/a.py")
    # Nothing is handed to somebody who is not there any more.
    assert alice.json("leases") == []


def test_a_claim_that_waited_in_vain_says_for_whom(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py", "--note", "fix the parser")
    answer = shell.as_("bob")("claim", "src/a.py", "--wait", "200ms")
    assert answer.code == 1
    assert "did not become free within 0.2 s" in answer.err
    assert 'alice holds src/a.py "fix the parser"' in answer.err
    assert shell.json("leases", "waiting") == []


def test_a_wait_that_would_close_a_cycle_is_refused(shell: Shell) -> None:
    alice, bob = shell.as_("alice"), shell.as_("bob")
    alice.ok("claim", "src/a.py")
    bob.ok("claim", "src/b.py")
    waiting = alice.start("claim", "src/b.py", "--wait", "1h")
    bob.waits()
    answer = bob("claim", "src/a.py", "--wait", "1h", "--json")
    assert answer.code == 1
    assert answer.json["error"] == "deadlock"
    waiting.send_signal(signal.SIGINT)
    assert finish(waiting).code == 130


def test_the_log_is_followed_while_it_grows(on_each: Shell) -> None:
    alice = on_each.as_("alice")
    alice.ok("claim", "src/a.py")
    following = on_each.start("log", "--follow", "--json", "--kind", "lease")
    assert following.stdout is not None
    assert json.loads(following.stdout.readline())["kind"] == "lease.claimed"
    alice.ok("release", "src/a.py")
    event = json.loads(following.stdout.readline())
    assert (event["kind"], event["subject"]) == ("lease.released", "src/a.py")
    following.send_signal(signal.SIGINT)
    assert finish(following).code == 130


@pytest.mark.parametrize(
    "words",
    [
        ("claim", "src/a.py", "--wait", "1h"),
        ("wait", "src/a.py", "--timeout", "1h"),
        ("run", "--as", "bob", "--claim", "src/a.py", "--", "true"),
    ],
    ids=lambda words: words[0],
)
def test_whoever_waits_is_told_who_is_in_the_way(on_each: Shell, words: tuple[str, ...]) -> None:
    alice, bob = on_each.as_("alice"), on_each.as_("bob")
    alice.ok("claim", "src/a.py", "--note", "fix the parser")
    ours, theirs = pty.openpty()  # elsewhere it takes longer
    try:
        waiting = bob.start(*words, stderr=theirs)
        said = os.read(ours, 1000).decode()
        assert said.startswith('waiting: alice holds src/a.py "fix the parser", ')
        alice.ok("release", "src/a.py")
        assert finish(waiting).code == 0
    finally:
        os.close(ours)
        os.close(theirs)
