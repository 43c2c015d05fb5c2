"""What every conformance test needs, and the short summary at the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.surfaces.shell import Shell, finish, scrubbed

# Without the SDK some tests here cannot even be imported. Only `make conformance` provides it.
collect_ignore_glob = [] if find_spec("mcp") else ["test_*.py"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = (tmp_path / "repository").resolve()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "a.py").write_text("a = 1\n")
    return folder


@pytest.fixture
def shell(repository: Path, tmp_path: Path) -> Shell:
    """Somebody at a prompt in that repository, with an environment in which nothing is set."""
    home = tmp_path / "home"
    home.mkdir()
    return Shell(repository, scrubbed(home))


@pytest.fixture
def serve(shell: Shell) -> Iterator[Callable[[str], str]]:
    """Start one more server behind HTTP, of that kind; gives its address."""
    environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-m", "tests.conformance.bridge"]
    started: list[subprocess.Popen[str]] = []

    def serve(kind: str) -> str:
        bridge = shell.with_(**environment).spawn([*command, kind], stdin=subprocess.PIPE)
        started.append(bridge)
        assert bridge.stdout is not None
        return bridge.stdout.readline().strip() or pytest.fail(repr(finish(bridge)))

    yield serve
    for ended in [finish(bridge) for bridge in started]:
        assert (ended.code, ended.err) == (0, ""), ended


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count by the part that each test says it belongs to, or give the figures it has."""
    parts: dict[str, dict[str, int]] = {}
    figures: dict[str, str] = {}
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            said = dict(report.user_properties)
            if "part" in said and (report.when == "call" or outcome == "error"):
                counts = parts.setdefault(said["part"], {})
                counts[outcome] = counts.get(outcome, 0) + 1
                figures[said["part"]] = said.get("figures", "")
    if parts:
        terminalreporter.section("conformance")
    for part, counts in sorted(parts.items()):
        told = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
        fine = counts.keys() == {"passed"} and figures[part]
        terminalreporter.write_line(f"{part:44} {figures[part] if fine else told}")
