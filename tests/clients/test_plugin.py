"""The plugin, as the real Claude Code sees it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.clients.client import BINARIES, ROOT, surroundings

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("part", [".", "plugins/dibs"])
def test_the_plugin_passes_the_strict_check_of_claude_code(part: str, tmp_path: Path) -> None:
    done = validate(ROOT / part, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_check_would_see_a_mistake(tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    (folder / ".claude-plugin").mkdir(parents=True)
    manifest = json.loads((ROOT / "plugins/dibs/.claude-plugin/plugin.json").read_text())
    (folder / ".claude-plugin/plugin.json").write_text(json.dumps(manifest | {"wrong": 1}))
    assert validate(folder, tmp_path).returncode == 1


def validate(folder: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    command = [str(BINARIES / "claude"), "plugin", "validate", "--strict", str(folder)]
    return subprocess.run(
        command, env=surroundings(tmp_path / "user", tmp_path / "repository"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
