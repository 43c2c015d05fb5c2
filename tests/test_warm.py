"""What is forked is like what is started cold: to the test, to dibs and to the system."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.surfaces.conftest import shell  # noqa: F401 - a fixture
from tests.surfaces.shell import DIBS, Answer, Shell, finish


@pytest.fixture(autouse=True)
def allowed() -> None:
    if not warm.Kitchen.allowed:
        pytest.skip("every process starts cold here: not on Linux, with --cold or with --portable")


def both(shell: Shell, *words: str) -> tuple[Answer, Answer]:  # noqa: F811
    """What a command says when it is forked, and when it is not."""
    forked = shell.start(*words)
    assert type(forked) is warm.Warm
    return finish(forked), finish(shell.spawn([DIBS, *words]))


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["help", "claim"],
        ["status"],
        ["release", "ü.py"],
        ["clam"],
        ["claim", "../x"],
    ],
    ids=str,
)
def test_a_forked_command_says_the_same(shell: Shell, words: list[str]) -> None:  # noqa: F811
    shell.as_("bob").ok("claim", "held.py")
    forked, cold = both(shell.as_("alice"), *words)
    assert (forked.code, forked.out, forked.err) == (cold.code, cold.out, cold.err)


SEEN = """
import os, sys
streams = [(s.encoding, s.errors, s.isatty()) for s in (sys.stdin, sys.stdout, sys.stderr)]
handles = sorted(int(n) for n in os.listdir("/proc/self/fd"))[:-1]
print(sys.argv, sorted(os.environ.items()), os.getcwd(), sys.path[0], streams, handles)
print(os.getppid(), os.getsid(0) == os.getpid(), __name__, sys.dont_write_bytecode, os.umask(0))
print(sys.stdin.read())
"""


def test_a_forked_script_sees_the_same(shell: Shell) -> None:  # noqa: F811
    seen = []
    for kind in (warm.Warm, subprocess.Popen):
        process = kind(
            [sys.executable, "-c", SEEN, "a", "\udcff"], cwd=shell.folder, env=shell.environment,
            stdin=-1, stdout=-1, stderr=-1, text=True, start_new_session=True, umask=0o27,
        )  # fmt: skip
        seen.append(finish(process, given="given ü"))
    assert seen[0].code == 0, seen[0]
    assert (seen[0].out, seen[0].err) == (seen[1].out, seen[1].err)
    assert str(os.getpid()) in seen[0].out


def test_a_forked_process_can_be_killed_and_waited_for(shell: Shell) -> None:  # noqa: F811
    process = shell.script("import sys; print('here', flush=True); sys.stdin.read()", stdin=-1)
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    assert os.getpgid(process.pid) == process.pid
    os.killpg(process.pid, signal.SIGTERM)
    assert finish(process).code == -signal.SIGTERM


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("raise SystemExit(7)", 7),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import atexit, os; atexit.register(os._exit, 8)", 8),
        ("import os, threading; threading.Timer(0.01, os._exit, [6]).start()", 6),
    ],
)
def test_a_forked_script_ends_as_it_would(shell: Shell, script: str, code: int) -> None:  # noqa: F811
    assert finish(shell.script(script)).code == code


@pytest.mark.parametrize(
    "options",
    [
        {"env": {"LANG": "C"}},
        {"env": {"LANG": "C.UTF-8", "LD_PRELOAD": "x.so"}},
        {"env": {"LANG": "C.UTF-8", "PYTHONHASHSEED": "1"}},
        {"env": {"LANG": "C.UTF-8", "PYTHONPATH": "/x"}},
        {"preexec_fn": print},
        {"pass_fds": [9]},
        {"cwd": Path("/nowhere")},
    ],
    ids=str,
)
def test_what_a_fork_could_not_do_is_started_cold(options: dict[str, object]) -> None:
    usual = {"env": {"LANG": "C.UTF-8"}, "cwd": Path("/")}
    assert warm.can_be_forked([DIBS, "status"], usual)
    assert not warm.can_be_forked([DIBS, "status"], usual | options)
    assert not warm.can_be_forked(["git", "status"], usual)
