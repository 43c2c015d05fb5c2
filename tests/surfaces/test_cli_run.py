"""`dibs run`: what it claims lives exactly as long as its command, whatever ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from tests.surfaces.shell import Shell, alive, finish, until

RUN = ("run", "--as", "ci")


def started(shell: Shell, *words: str) -> tuple[subprocess.Popen[str], int]:
    """A `dibs run` whose command is known to run, and that command's process id."""
    mark = shell.folder / "pid"
    mark.unlink(missing_ok=True)
    process = shell.start(*RUN, *words, "--", "sh", "-c", "echo $$ > pid; exec sleep 1000")
    pid = until(lambda: mark.exists() and mark.read_text().strip(), "the command's process")
    return process, int(pid)


def blocked_signals(pid: int) -> dict[int, int]:
    """The signals that each thread of a process has blocked, as bits."""
    said = subprocess.run(
        ["ps", "-L", "-o", "lwp=,blocked=", "-p", str(pid)], capture_output=True, check=True
    )
    lines = [line.split() for line in said.stdout.splitlines()]
    return {int(thread): int(mask, 16) for thread, mask in lines}


@pytest.mark.parametrize("code", [0, 1, 3, 75, 200])
def test_the_exit_code_is_the_commands_own(shell: Shell, code: int) -> None:
    assert shell(*RUN, "--", "sh", "-c", f"exit {code}").code == code


def test_a_command_that_a_signal_ended_is_told_as_shells_do(shell: Shell) -> None:
    assert shell(*RUN, "--", "sh", "-c", "kill -9 $$").code == 128 + signal.SIGKILL


def test_a_command_that_is_not_there_or_cannot_run_is_told_as_shells_do(shell: Shell) -> None:
    absent = shell(*RUN, "--", "no-such-command")
    assert (absent.code, absent.err) == (127, "dibs: no-such-command: not found\n")
    (shell.folder / "plain").write_text("not a program")
    assert shell(*RUN, "--", "./plain").code == 126


def test_input_and_output_are_the_commands_own(shell: Shell) -> None:
    answer = shell.sh("echo hello | dibs run --as ci -- sh -c 'cat; echo oops >&2'")
    assert (answer.out, answer.err) == ("hello\n", "oops\n")


def test_options_after_the_mark_belong_to_the_command(shell: Shell) -> None:
    answer = shell(*RUN, "--", "echo", "--json", "--help", "--as", "bob", "--")
    assert answer.out == "--json --help --as bob --\n"


def test_a_command_without_the_mark_before_it_is_refused(shell: Shell) -> None:
    answer = shell(*RUN, "echo", "hello")
    assert answer.code == 2
    assert "-- is missing before 'echo'" in answer.err


def test_what_the_command_claims_is_its_own_and_gone_afterwards(on_each: Shell) -> None:
    script = "dibs claim src/b.py --note inside && dibs leases --json && dibs agents --json"
    answer = on_each(*RUN, "--claim", "src/a.py", "--", "sh", "-c", script)
    assert answer.code == 0, answer
    _, leases, agents = answer.out.splitlines()
    assert leases.count('"agent": "ci"') == 2
    # One session: the command acts in the one that holds the claim.
    assert agents.count('"process_bound"') == 1
    assert on_each.json("leases") == []
    assert on_each.json("agents") == []


def test_the_command_is_told_the_epoch_of_its_lease(on_each: Shell) -> None:
    script = "echo $DIBS_EPOCH; dibs leases --json"
    answer = on_each(*RUN, "--claim", "deploy:prod", "--", "sh", "-c", script)
    told, leases = answer.out.splitlines()
    assert [lease["epoch"] for lease in json.loads(leases)] == [int(told)]


def test_the_note_says_what_is_run(shell: Shell) -> None:
    process, _ = started(shell, "--claim", "db:migrations")
    (lease,) = shell.json("leases")
    assert lease["note"].startswith("sh -c")
    process.kill()
    finish(process)


def test_a_script_of_several_lines_can_be_run(shell: Shell) -> None:
    answer = shell(*RUN, "--claim", "db", "--", "sh", "-c", "dibs leases --json\ntrue\t\n")
    assert answer.code == 0, answer
    assert answer.json[0]["note"] == "sh -c dibs leases --json true"


def test_a_store_named_by_a_relative_path_is_the_same_in_another_folder(shell: Shell) -> None:
    script = "cd src && dibs claim a.py"
    answer = shell(*RUN, "--store", "here.db", "--", "sh", "-c", script)
    assert answer.code == 0, answer
    assert not (shell.folder / "src/here.db").exists()


def test_a_run_in_the_queue_can_be_interrupted_and_terminated(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "db")
    for name, code in ((signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)):
        process = shell.start(*RUN, "--claim", "db", "--", "touch", "ran")
        shell.waits()
        process.send_signal(name)
        assert finish(process).code == code
        shell.waits(0)
    assert not (shell.folder / "ran").exists()


def test_every_thread_leaves_signals_to_the_one_that_looks_for_them(on_each: Shell) -> None:
    process, _ = started(on_each, "--claim", "src/a.py")
    blocked = blocked_signals(process.pid)
    del blocked[process.pid]
    assert blocked
    for mask in blocked.values():
        assert mask & 1 << signal.SIGTERM - 1
        assert mask & 1 << signal.SIGINT - 1
    process.terminate()
    assert finish(process).code == 128 + signal.SIGTERM


def test_two_runs_of_one_claim_take_turns(shell: Shell) -> None:
    script = "echo in >> turns; sleep 0.2; echo out >> turns"
    running = [
        shell.start("run", "--as", f"ci{number}", "--claim", "db", "--", "sh", "-c", script)
        for number in range(4)
    ]
    for process in running:
        answer = finish(process)
        assert answer.code == 0, answer
    assert (shell.folder / "turns").read_text().split() == ["in", "out"] * 4


def test_two_runs_that_share_run_together(shell: Shell) -> None:
    script = "touch here$0; while [ ! -e here1 ] || [ ! -e here2 ]; do sleep 0.01; done"
    running = [
        shell.start(*RUN, "--claim", "db", "--shared", "--", "sh", "-c", script, number)
        for number in ("1", "2")
    ]
    assert [finish(process).code for process in running] == [0, 0]


def test_a_run_that_waits_in_vain_does_not_start_its_command(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "db:migrations")
    answer = shell(*RUN, "--claim", "db:migrations", "--wait", "100ms", "--", "touch", "ran")
    assert answer.code == 1
    assert "alice" in answer.err
    assert not (shell.folder / "ran").exists()


def test_kill_9_of_a_run_frees_its_lease_within_a_second_and_ends_its_command(shell: Shell) -> None:
    process, command = started(shell, "--claim", "src/a.py", "--ttl", "1h")
    waiting = shell.as_("bob").start("claim", "src/a.py", "--wait", "1h")
    shell.waits()
    process.kill()
    killed = time.monotonic()
    answer = finish(waiting)
    taken = time.monotonic() - killed
    assert answer.code == 0, answer
    assert taken < 1
    until(lambda: not alive(command), "the end of the command", 1)
    finish(process)


def test_kill_9_of_a_run_frees_what_its_command_claimed(shell: Shell) -> None:
    script = "dibs claim src/b.py --ttl 1h; touch claimed; exec sleep 1000"
    process = shell.start(*RUN, "--", "sh", "-c", script)
    until((shell.folder / "claimed").exists, "the claim")
    process.kill()
    finish(process)
    assert shell.as_("bob")("claim", "src/b.py").code == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_a_signal_is_passed_on_to_the_command(shell: Shell, name: str) -> None:
    script = f"trap 'echo got it; exit 7' {name[3:]}; echo ready; while :; do sleep 0.01; done"
    process = shell.start(*RUN, "--claim", "src/a.py", "--", "bash", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    answer = finish(process)
    assert (answer.code, answer.out) == (7, "got it\n")
    assert shell.json("leases") == []


def test_a_command_can_be_interrupted_although_we_hold_signals_back(shell: Shell) -> None:
    process, command = started(shell)
    assert blocked_signals(command) == {command: 0}
    os.kill(command, signal.SIGINT)
    assert finish(process).code == 130


def test_a_lease_outlives_its_ttl_while_the_command_runs(shell: Shell) -> None:
    process, _ = started(shell, "--claim", "src/a.py", "--ttl", "1s")
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert [lease["agent"] for lease in shell.json("leases")] == ["ci"]
    process.terminate()
    assert finish(process).code == 128 + signal.SIGTERM


def test_a_lost_lease_is_told_and_the_command_goes_on(shell: Shell) -> None:
    # The command itself gives the lease away; its `dibs run` finds out at its next renewal.
    script = "dibs release src/a.py >&2; sleep 1.5; echo done"
    answer = shell(*RUN, "--claim", "src/a.py", "--ttl", "1s", "--", "sh", "-c", script)
    assert (answer.code, answer.out) == (0, "done\n")
    assert "the command is no longer protected" in answer.err
    assert "the command ran unprotected for a while" in answer.err


def test_a_lost_lease_ends_the_command_if_that_was_asked_for(shell: Shell) -> None:
    process, command = started(shell, "--claim", "src/a.py", "--ttl", "1s", "--on-loss", "kill")
    process.send_signal(signal.SIGSTOP)
    # Frozen for longer than the lease lasts: somebody else has it now.
    assert shell.as_("bob")("claim", "src/a.py", "--wait", "10s").code == 0
    assert alive(command)
    process.send_signal(signal.SIGCONT)
    answer = finish(process)
    assert answer.code == 1
    assert "ending the command" in answer.err
    assert not alive(command)
    assert [lease["agent"] for lease in shell.json("leases")] == ["bob"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--", "true"), "who are you?"),
        ((*RUN, "--"), "no command was given"),
        ((*RUN,), "no command was given"),
        ((*RUN, "--clam", "a", "--", "true"), "did you mean --claim?"),
        ((*RUN, "--claim"), "--claim needs a value"),
        ((*RUN, "--on-loss", "cry", "--", "true"), "it must be one of: warn, kill"),
        ((*RUN, "--ttl", "soon", "--", "true"), "not a time: 'soon'"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(
    shell: Shell, words: tuple[str, ...], said: str
) -> None:
    answer = shell(*words)
    assert answer.code == 2
    assert said in answer.err
