"""What dibs asks of the system: both answers, from Linux and from what every system has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dibs import system
from dibs.errors import UnfitError
from dibs.system import linux, portable
from tests.not_linux import is_denied
from tests.surfaces.shell import Shell, alive, finish, scrubbed, until

ROOT = Path(__file__).parent.parent
BOTH = [portable] if is_denied() else [linux, portable]
SELECTION = {
    "tests/test_system.py": "denied",
    "tests/surfaces/test_cli_run.py": "kill_9 or passed_on",
    "tests/surfaces/test_hooks.py": "killed",
    "tests/contract/test_agents.py": "dead",
}
CALLS = ("/proc", "inotify_", "prctl", "eventfd", "pidfd", "sigtimedwait", "SOCK_CLOEXEC")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("module", BOTH)
def test_a_process_that_runs_has_begun_at_a_time_that_stays(
    module: ModuleType, child: subprocess.Popen[bytes]
) -> None:
    began = module.started(child.pid)
    assert began.isdigit()
    assert module.started(child.pid) == began


@pytest.mark.parametrize("module", BOTH)
def test_a_process_that_has_ended_does_not_run_though_nobody_has_waited_for_it(
    module: ModuleType, child: subprocess.Popen[bytes]
) -> None:
    child.kill()
    until(lambda: not alive(child.pid), "its end")
    assert module.started(child.pid) is None
    child.wait()
    assert module.started(child.pid) is None


def test_what_ps_says_of_a_process_holds_for_a_moment_and_not_beyond_its_end(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, now, ps = [], [1_000.0], portable._ps

    def counted(*words: str) -> list[str]:
        asked.append(words)
        return ps(*words)

    monkeypatch.setattr(portable, "_ps", counted)
    monkeypatch.setattr(portable, "monotonic", lambda: now[0])
    began = portable.started(child.pid)
    assert [portable.started(child.pid) for _ in range(5)] == [began] * 5
    assert len(asked) == 1
    now[0] += portable.FRESH_S
    assert portable.started(child.pid) == began
    assert len(asked) == 2
    child.kill()
    child.wait()
    assert portable.started(child.pid) is None


def test_a_process_is_known_by_its_name_until_it_ends(child: subprocess.Popen[bytes]) -> None:
    name = system.process_name(child.pid)
    assert system.is_process_name(name)
    assert system.runs(name)
    numbering, pid, began = name.split(":")
    assert not system.runs(f"{numbering}:{pid}:{int(began) - 100}")  # an earlier one of its number
    child.kill()
    child.wait()
    assert not system.runs(name)


def test_a_process_of_another_machine_may_run(child: subprocess.Popen[bytes]) -> None:
    numbering, pid, _ = system.process_name(child.pid).split(":")
    assert system.runs(f"{int(numbering) + 1}:{pid}:1")
    assert system.runs("17")


def test_a_process_keeps_its_name_when_the_machine_gets_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if len(system.machine_id()) != 32:
        pytest.skip("this machine has no id but its name")
    before, names = system.process_name(os.getpid()), os.uname()
    monkeypatch.setattr(
        os, "uname", lambda: os.uname_result((names[0], "renamed.local", *names[2:]))
    )
    assert system.process_name(os.getpid()) == before


@pytest.mark.parametrize("module", BOTH)
def test_the_processes_above_are_found(module: ModuleType) -> None:
    code = f"from {module.__name__} import ancestors; print(*(pid for pid, _ in ancestors()))"
    words = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, code]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        found = shell.stdout.read().split()
    assert found[:2] == [str(shell.pid), str(os.getpid())]


@pytest.mark.parametrize("module", BOTH)
def test_the_command_line_of_a_process_is_found(
    module: ModuleType, child: subprocess.Popen[bytes]
) -> None:
    until(lambda: "1000" in module.words(child.pid), "the words of its program")
    child.kill()
    child.wait()
    assert not any(module.words(child.pid))


TIED = """
import os, subprocess, sys
from {module} import Tether
tether = Tether()
child = subprocess.Popen(["sleep", "1000"], preexec_fn=tether.tie)
print(child.pid, flush=True)
if sys.stdin.readline() == "cut\\n":
    child.kill()
    child.wait()
    tether.cut()
    print("cut", flush=True)
"""


@pytest.mark.parametrize("module", BOTH)
def test_a_child_ends_with_its_parent_whatever_ends_that(module: ModuleType) -> None:
    words = [sys.executable, "-c", TIED.format(module=module.__name__)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
        until(lambda: not alive(pid), "the end of the child")


@pytest.mark.parametrize("module", BOTH)
def test_what_ends_the_child_ends_itself_when_it_is_not_needed_any_more(module: ModuleType) -> None:
    words = [sys.executable, "-c", TIED.format(module=module.__name__)]
    done = subprocess.run(words, input="cut\n", capture_output=True, text=True, check=True)
    assert done.stdout.endswith("cut\n"), done


def test_a_system_without_any_of_it_says_so() -> None:
    if is_denied():
        pytest.skip("here the C library has what macOS has")
    with pytest.raises(UnfitError, match="does not distinguish one boot from another"):
        portable.boot_id()
    assert portable.file_system("/") is None
    assert portable.machine_id() == os.uname().nodename


def test_only_the_two_modules_make_such_calls() -> None:
    source = ROOT / "src/dibs"
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if any(
            call in line.partition("#")[0]
            for line in path.read_text().splitlines()
            for call in CALLS
        )
    }
    assert found == {"system/__init__.py", "system/linux.py", "system/portable.py"}


def test_dibs_is_denied_what_only_linux_has(tmp_path: Path) -> None:
    """Under `--portable`: else it would prove nothing."""
    if not is_denied():
        pytest.skip("runs under --portable")
    assert system.Tether.__module__ == "dibs.system.portable"
    code = "from dibs import system; print(system.Tether.__module__)"
    shell = Shell(tmp_path, scrubbed(tmp_path))
    said = finish(shell.spawn([sys.executable, "-c", code]))
    assert said.out == "dibs.system.portable\n"


@pytest.mark.timeout(600)
def test_dibs_works_without_what_only_linux_has() -> None:
    """The short form; CONTRIBUTING.md has the command for the whole."""
    if is_denied():
        pytest.skip("this is the run within")
    some = " or ".join(SELECTION.values())
    kinds = f"({some}) and not postgres and not pgbouncer and not stress"
    words = ["--portable", "-q", "-p", "no:cacheprovider", "-k", kinds]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *SELECTION],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
