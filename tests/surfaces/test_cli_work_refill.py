"""`dibs work refill`: a planner that brings new tasks when there are too few."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.surfaces.shell import Shell, alive, finish, until

REFILL = ("work", "refill", "--as", "lead", "--below", "2")


def planner(folder: Path, *lines: object, before: str = "") -> str:
    """A script that prints these lines, and says that it ran."""
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    script = folder / "plan.sh"
    script.write_text(f"#!/bin/sh\necho ran >> ran\n{before}\ncat <<'END'\n{text}\nEND\n")
    script.chmod(0o755)
    return "./plan.sh"


def runs(shell: Shell) -> int:
    file = shell.folder / "ran"
    return len(file.read_text().split()) if file.exists() else 0


def ids(shell: Shell) -> list[str]:
    return [task["id"] for task in shell.json("work", "list")]


def test_what_the_planner_prints_is_added_when_there_are_too_few(on_each: Shell) -> None:
    script = planner(
        on_each.folder,
        {"id": "a", "title": "A", "leases": ["src/a.py"]},
        {"id": "b", "after": ["a"]},
        before='echo "$DIBS_REFILL_AVAILABLE of $DIBS_REFILL_BELOW, $DIBS_REFILL_WANTED" > told',
    )
    answer = on_each(*REFILL, "--", script)
    assert answer.code == 0, answer
    assert "2 added, 0 already there, 0 wrong" in answer.err
    assert ids(on_each) == ["a", "b"]
    assert (on_each.folder / "told").read_text() == "0 of 2, 2\n"


def test_with_enough_tasks_the_planner_does_not_run(shell: Shell) -> None:
    for id in ("x", "y"):
        shell.as_("lead").ok("work", "add", id)
    answer = shell(*REFILL, "--", planner(shell.folder, {"id": "a"}))
    assert (answer.code, runs(shell)) == (0, 0), answer
    assert "enough tasks are available" in answer.err


def test_known_ids_are_skipped_wrong_lines_are_named_and_the_rest_is_added(shell: Shell) -> None:
    shell.as_("lead").ok("work", "add", "old")
    lines = [{"id": "old"}, "Here is my plan:", {"id": "new"}, [1], {"id": "bad", "colour": "red"}]
    answer = shell(*REFILL, "--", planner(shell.folder, *lines))
    assert answer.code == 1
    assert ids(shell) == ["old", "new"]
    assert "line 2: it is not JSON" in answer.err
    assert "line 4: a task must be an object, not list" in answer.err
    assert "line 5: work.add has no argument 'colour'" in answer.err
    assert "1 added, 1 already there, 3 wrong" in answer.err


def test_more_than_one_call_takes_is_added_too(shell: Shell) -> None:
    lines = [{"id": f"t{number}"} for number in range(2_500)]
    answer = shell(*REFILL, "--", planner(shell.folder, *lines))
    assert answer.code == 0, answer
    assert "2500 added" in answer.err


def test_a_planner_that_fails_adds_nothing_and_has_to_wait(shell: Shell) -> None:
    script = planner(shell.folder, {"id": "a"})
    answer = shell(*REFILL, "--", "sh", "-c", f"{script}; exit 9")
    assert answer.code == 9
    assert ids(shell) == []
    assert shell(*REFILL, "--", script).code == 75


def test_a_planner_that_brings_nothing_waits_longer_each_time_for_everybody(shell: Shell) -> None:
    script = planner(shell.folder)
    first = shell(*REFILL, "--", script)
    assert "the next run is possible in 10s" in first.err, first
    for name in ("lead", "another"):
        again = shell("work", "refill", "--as", name, "--below", "2", "--", script)
        assert again.code == 75
        assert "the next run is possible in" in again.err
    assert runs(shell) == 1
    # The pause has ended, but it is still remembered.
    value = json.dumps({"brought_nothing": 1})
    shell.as_("lead").ok("state", "set", "work", "refill", value, "--force", "--ttl", "30m")
    second = shell(*REFILL, "--", script)
    assert "the next run is possible in 20s" in second.err, second
    shell.as_("lead").ok("state", "set", "work", "refill", value, "--force", "--ttl", "30m")
    shell.ok(*REFILL, "--", planner(shell.folder, {"id": "a"}))
    assert shell.json("state", "list", "work") == []


def test_one_at_a_time_runs_the_planner(shell: Shell) -> None:
    script = planner(shell.folder, {"id": "a"}, {"id": "b"}, before="sleep 0.5")
    running = [
        shell.start(
            "work", "refill", "--as", f"p{n}", "--below", "2", "--wait", "30s", "--", script
        )
        for n in range(4)
    ]
    assert [finish(process).code for process in running] == [0, 0, 0, 0]
    assert runs(shell) == 1
    assert ids(shell) == ["a", "b"]


def test_a_loop_runs_the_planner_again_when_tasks_were_taken(on_each: Shell) -> None:
    script = on_each.folder / "plan.sh"
    script.write_text('#!/bin/sh\necho "{\\"id\\": \\"t$(date +%s%N)\\"}"\n')
    script.chmod(0o755)
    process = on_each.start("work", "refill", "--as", "lead", "--below", "1", "--loop", "--",
                            "./plan.sh")  # fmt: skip
    worker = on_each.as_("bob")
    for _ in range(3):
        worker.ok("work", "next", "--wait", "30s")
    until(lambda: len(ids(on_each)) == 4, "the task after the last that was taken")
    process.terminate()
    assert finish(process).code in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_a_signal_ends_the_planner_and_adds_nothing(shell: Shell) -> None:
    script = planner(shell.folder, {"id": "a"}, before="echo $$ > pid; sleep 1000")
    process = shell.start(*REFILL, "--loop", "--", script)
    pid = until(lambda: (shell.folder / "pid").exists() and (shell.folder / "pid").read_text(),
                "the planner")  # fmt: skip
    process.terminate()
    assert finish(process).code == 128 + signal.SIGTERM
    assert not alive(int(pid))
    assert (ids(shell), shell.json("leases")) == ([], [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("work", "refill", "--", "true"), "--below is missing"),
        ((*REFILL, "--"), "no command was given"),
        (("work", "refill", "--below", "0", "--", "true"), "--below is 0"),
    ],
)
def test_a_refill_that_makes_no_sense_is_refused(
    shell: Shell, words: tuple[str, ...], said: str
) -> None:
    answer = shell(*words)
    assert answer.code == 2
    assert said in answer.err
