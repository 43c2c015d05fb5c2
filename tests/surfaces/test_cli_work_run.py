"""`dibs work run`: a command for each task, whatever becomes of it, of us or of the claim."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.shell import Shell, alive, finish, until

RUN = ("work", "run", "--as", "ci")
FOREVER = "echo $$ > pid; exec sleep 1000"


def add(shell: Shell, *ids: str, **more: Any) -> None:
    given = "\n".join(json.dumps({"id": id, **more}) for id in ids)
    process = shell.as_("lead").start("work", "add", "--many", stdin=subprocess.PIPE)
    answer = finish(process, given=given)
    assert answer.code == 0, answer


def task(shell: Shell, id: str) -> Any:
    return shell.json("work", "show", id)


def started(
    shell: Shell, *words: str, script: str = FOREVER, mark: str = "pid"
) -> tuple[subprocess.Popen[str], int]:
    """A `dibs work run` whose command is known to run, and that command's process id."""
    (shell.folder / mark).unlink(missing_ok=True)
    process = shell.start(*RUN, *words, "--", "bash", "-c", script)
    file = shell.folder / mark
    pid = until(lambda: file.exists() and file.read_text().strip(), "the command's process")
    return process, int(pid)


# What a command is given, and what it gives.


def test_the_command_finds_its_task_and_completes_it_with_its_last_json_line(
    on_each: Shell,
) -> None:
    add(on_each, "fix", title="Fix it", kind="bug", priority=3, payload={"url": "x"})
    script = (
        'echo "$DIBS_TASK_ID|$DIBS_TASK_TITLE|$DIBS_TASK_KIND|$DIBS_TASK_PRIORITY"; cat; '
        'echo \'{"no": 1}\'; echo \'{"pr": 12}\'; echo "not {json}"; dibs work renew fix >&2'
    )
    answer = on_each(*RUN, "--", "sh", "-c", script)
    assert answer.code == 0, answer
    first, second, *_ = answer.out.splitlines()
    assert first == "fix|Fix it|bug|3"
    assert json.loads(second) == {"url": "x"}
    done = task(on_each, "fix")
    assert (done["state"], done["result"], done["agent"]) == ("completed", {"pr": 12}, "ci")
    assert [one["agent"] for one in on_each.json("agents")] == ["lead"]


@pytest.mark.parametrize("payload", [None, "text\nof lines", 7, [1, {"a": "é"}], False, {}])
def test_any_payload_is_json_on_the_standard_input(shell: Shell, payload: Any) -> None:
    add(shell, "a", payload=payload)
    answer = shell(*RUN, "--", "sh", "-c", "cat > given")
    assert answer.code == 0, answer
    given = (shell.folder / "given").read_text()
    assert given == "" if payload is None else json.loads(given) == payload


def test_a_command_that_prints_no_json_completes_its_task_without_a_result(shell: Shell) -> None:
    add(shell, "a")
    assert (
        shell(*RUN, "--", "sh", "-c", "echo done; echo 5; echo '{broken'; echo '[NaN]'").code == 0
    )
    assert (task(shell, "a")["state"], task(shell, "a")["result"]) == ("completed", None)


def test_a_command_that_fails_fails_its_task_with_the_end_of_its_output(shell: Shell) -> None:
    add(shell, "a")
    script = "printf '\\033[31mred\\033[0m\\n'; echo '{\"a\": 1}'; echo why >&2; exit 4"
    answer = shell(*RUN, "--", "sh", "-c", script)
    assert answer.code == 4
    assert "a is failed, and is tried again in 10s" in answer.err
    failed = task(shell, "a")
    assert (failed["state"], failed["result"]) == ("failed", None)
    said = failed["reason"].removeprefix("exit code 4: ")
    assert sorted(said.split("\n")) == ["red", "why", '{"a": 1}']


def test_what_a_command_prints_is_passed_on_and_only_its_end_is_kept(shell: Shell) -> None:
    add(shell, "a")
    script = "head -c 300000000 /dev/zero | tr '\\0' 'x'; echo; echo '{\"n\": 1}'"
    process = shell.start(*RUN, "--", "sh", "-c", script, stdout=subprocess.DEVNULL)
    answer = finish(process, 60)
    assert answer.code == 0, answer
    assert task(shell, "a")["result"] == {"n": 1}


def test_a_command_may_close_its_input_and_leave_somebody_with_its_output(shell: Shell) -> None:
    add(shell, "a", payload="x" * 300_000)
    script = "exec <&-; sleep 1000 & echo $! > left; echo '{\"ok\": true}'"
    answer = shell(*RUN, "--", "sh", "-c", script)
    assert answer.code == 0, answer
    assert task(shell, "a")["result"] == {"ok": True}
    os.kill(int((shell.folder / "left").read_text()), signal.SIGKILL)


def test_json_gives_the_task_as_it_is_then_and_nothing_else(shell: Shell) -> None:
    add(shell, "a")
    answer = shell(*RUN, "--json", "--", "sh", "-c", "echo words; echo '{\"a\": 1}'")
    assert (answer.json["state"], answer.json["result"]) == ("completed", {"a": 1})
    assert "words" in answer.err


def test_what_the_command_claims_is_free_when_its_task_has_ended(shell: Shell) -> None:
    add(shell, "a", "b")
    script = "dibs claim src/a.py >&2 && dibs leases --json"
    answer = shell(*RUN, "--until-empty", "--", "sh", "-c", script)
    assert answer.code == 0, answer
    held = [json.loads(line) for line in answer.out.splitlines()]
    assert [len(leases) for leases in held] == [1, 1]
    assert held[0][0]["session"] != held[1][0]["session"]
    assert shell.json("leases") == []


# What goes wrong.


def test_a_command_that_cannot_be_run_gives_its_task_back_and_takes_no_other(shell: Shell) -> None:
    add(shell, "a", "b")
    answer = shell(*RUN, "--loop", "--", "./no-such")
    assert answer.code == 127
    assert [(one["state"], one["attempts"]) for one in shell.json("work", "list")] == [
        ("available", 0),
        ("available", 0),
    ]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_ends_the_command_and_gives_the_task_back_at_once(shell: Shell, name: str) -> None:
    add(shell, "a", "b")
    process, command = started(shell, "--loop")
    number = getattr(signal, name)
    process.send_signal(number)
    answer = finish(process)
    assert answer.code == 128 + number, answer
    assert not alive(command)
    given_back = task(shell, "a")
    assert (given_back["state"], given_back["attempts"]) == ("available", 0)
    assert name in given_back["reason"]
    assert task(shell, "b")["attempts"] == 0


def test_a_command_that_ignores_signals_and_all_it_has_started_ends_too(shell: Shell) -> None:
    add(shell, "a")
    script = "trap '' TERM; (trap '' TERM; echo $BASHPID > pid; sleep 1000) & wait; sleep 1000"
    process, grandchild = started(shell, script=script)
    process.terminate()
    answer = finish(process)
    assert answer.code == 128 + signal.SIGTERM
    assert not alive(grandchild)
    assert task(shell, "a")["state"] == "available"


def test_a_command_may_take_a_moment_to_end(shell: Shell) -> None:
    add(shell, "a")
    script = "trap 'echo saved > saved; exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done"
    process, _ = started(shell, script=script)
    process.terminate()
    assert finish(process).code == 128 + signal.SIGTERM
    assert (shell.folder / "saved").exists()
    assert task(shell, "a")["state"] == "available"


def test_kill_9_frees_the_task_and_ends_all_that_the_command_has_started(shell: Shell) -> None:
    add(shell, "a")
    process, grandchild = started(shell, script="(echo $BASHPID > pid; sleep 1000); true")
    waiting = shell.as_("bob").start("work", "next", "--wait", "60s", "--json")
    process.kill()
    answer = finish(waiting)
    assert (answer.code, answer.json["id"]) == (0, "a"), answer
    until(lambda: not alive(grandchild), "the end of what the command has started")
    finish(process)


def test_a_task_that_is_taken_away_ends_the_command_and_is_not_completed(shell: Shell) -> None:
    add(shell, "a")
    process, command = started(shell, "--ttl", "1s", script=f"trap '' TERM; {FOREVER}")
    shell.person("sam").ok("work", "revoke", "a")
    answer = finish(process)
    assert answer.code == 1, answer
    assert "nothing was completed" in answer.err
    assert not alive(command)
    assert task(shell, "a")["state"] == "available"


def test_a_worker_that_was_frozen_too_long_completes_nothing(shell: Shell) -> None:
    add(shell, "a")
    process, command = started(shell, "--ttl", "1s")
    process.send_signal(signal.SIGSTOP)
    # Frozen for longer than the claim lasts: somebody else has it now.
    assert shell.as_("bob")("work", "next", "--wait", "20s").code == 0
    process.send_signal(signal.SIGCONT)
    answer = finish(process)
    assert answer.code == 1, answer
    assert not alive(command)
    assert task(shell, "a")["agent"] == "bob"


def test_a_claim_outlives_its_ttl_while_the_command_runs(shell: Shell) -> None:
    add(shell, "a")
    answer = shell(*RUN, "--ttl", "1s", "--", "sleep", "2.5")
    assert answer.code == 0, answer
    assert task(shell, "a")["state"] == "completed"


# Which task, and for how long.


def test_without_a_task_it_is_refused_and_runs_nothing(shell: Shell) -> None:
    answer = shell(*RUN, "--", "touch", "ran")
    assert answer.code == 3  # all is done
    assert not (shell.folder / "ran").exists()


def test_only_tasks_of_its_kind_and_within_its_abilities_are_taken(shell: Shell) -> None:
    add(shell, "a", kind="docs")
    add(shell, "b", kind="code", tags=["python"])
    script = 'echo "$DIBS_TASK_ID"'
    answer = shell(*RUN, "--kind", "code", "--tag", "python", "--", "sh", "-c", script)
    assert (answer.code, answer.out) == (0, "b\n")


def test_a_loop_waits_for_the_next_task_and_a_signal_ends_it(on_each: Shell) -> None:
    process = on_each.start(*RUN, "--loop", "--", "sh", "-c", "touch done-$DIBS_TASK_ID")
    for id in ("a", "b"):
        add(on_each, id)
        until((on_each.folder / f"done-{id}").exists, f"the end of {id}")
    until(lambda: task(on_each, "b")["state"] == "completed", "the completion")
    process.terminate()
    assert finish(process).code in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_until_empty_waits_for_what_others_do_and_for_what_is_due(shell: Shell) -> None:
    add(shell, "theirs")
    shell.as_("bob").ok("work", "next")
    add(shell, "after", after=["theirs"])
    add(shell, "delayed", delay_s=2)
    process = shell.start(*RUN, "--until-empty", "--", "sh", "-c", "touch did-$DIBS_TASK_ID")
    until((shell.folder / "did-delayed").exists, "what was due later")
    assert process.poll() is None
    shell.as_("bob").ok("work", "complete", "theirs")
    answer = finish(process)
    assert answer.code == 0, answer
    assert (shell.folder / "did-after").exists()
    assert "all tasks are done: 3 completed" in answer.err


def test_until_empty_says_what_is_left_that_it_can_never_take(shell: Shell) -> None:
    add(shell, "a")
    add(shell, "b", tags=["gpu"])
    answer = shell(*RUN, "--until-empty", "--", "true")
    assert answer.code == 4, answer
    assert "gpu" in answer.err
    assert [one["state"] for one in shell.json("work", "list")] == ["completed", "available"]


def test_a_worker_without_a_name_is_a_part_of_whoever_started_it(shell: Shell) -> None:
    add(shell, "a")
    answer = shell("work", "run", "--", "sh", "-c", 'echo "$DIBS_AGENT"')
    assert answer.code == 0, answer
    name, _, part = answer.out.strip().partition("/")
    assert name
    assert part


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*RUN, "--"), "no command was given"),
        ((*RUN,), "no command was given"),
        ((*RUN, "echo"), "-- is missing before 'echo'"),
        ((*RUN, "--ttl", "0", "--", "true"), "--ttl is 0 s"),
        (("work", "rn", "--", "true"), "did you mean work run?"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(
    shell: Shell, words: tuple[str, ...], said: str
) -> None:
    answer = shell(*words)
    assert answer.code == 2
    assert said in answer.err


# Many of them.

AGENT = """\
#!/bin/bash
echo "$DIBS_TASK_ID $PPID" >> started
sleep 0.$((RANDOM % 3))
if [ "$DIBS_TASK_ID" = t7 ] && [ ! -e killed ]; then touch victim-$PPID; sleep 1000; fi
echo "$DIBS_TASK_ID" >> ended
echo "{\\"by\\": \\"$DIBS_AGENT\\"}"
"""


def supervisor() -> str:
    """The one line of the page."""
    text = (Path(__file__).parents[2] / "docs/work.md").read_text(encoding="utf-8")
    return text.partition("## A supervisor in one line\n")[2].partition("\n$ ")[2].splitlines()[0]


def test_five_shells_do_thirty_tasks_though_one_of_them_is_killed(shell: Shell) -> None:
    tasks: list[dict[str, Any]] = [
        {"id": f"t{n}", "title": f"Task {n}", "payload": {"n": n}} for n in range(30)
    ]
    (shell.folder / "issues.json").write_text(json.dumps(tasks))
    script = shell.folder / "agent.sh"
    script.write_text(AGENT)
    script.chmod(0o755)
    importing, _, running = supervisor().partition(" && ")
    line = f"{importing} && exec {running}"
    workers = [shell.spawn(["bash", "-c", line]) for _ in range(5)]
    (mark,) = until(lambda: list(shell.folder.glob("victim-*")), "the worker to kill")
    victim = next(one for one in workers if mark.name == f"victim-{one.pid}")
    (shell.folder / "killed").touch()
    os.killpg(victim.pid, signal.SIGKILL)
    codes = [finish(one).code for one in workers]
    assert sorted(codes) == [-signal.SIGKILL, 0, 0, 0, 0]
    done = shell.json("work", "list")
    assert {one["state"] for one in done} == {"completed"}
    assert len(done) == 30
    ended = (shell.folder / "ended").read_text().split()
    assert sorted(ended) == sorted(one["id"] for one in tasks)  # each was done once
    attempts = {one["id"]: one["attempts"] for one in done}
    assert [id for id, number in attempts.items() if number != 1] == ["t7"]
