"""What is no Python: the workflows, the container file and the feature for dev containers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, Run

pytestmark = pytest.mark.packaging

TOOLS = ROOT / ".packaging/bin"
FEATURE = ROOT / "devcontainer/dibs"


def test_the_workflows_are_valid(run: Run) -> None:
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    assert workflows
    run(TOOLS / "actionlint", "-shellcheck", TOOLS / "shellcheck", *workflows)


def test_the_container_file_is_valid(run: Run) -> None:
    run(TOOLS / "hadolint", ROOT / "Containerfile")


def test_the_feature_installs_the_command(
    run: Run, distributions: dict[str, Path], tmp_path: Path
) -> None:
    run(TOOLS / "shellcheck", FEATURE / "install.sh")
    told = json.loads((FEATURE / "devcontainer-feature.json").read_text())
    assert told["id"] == FEATURE.name and set(told["options"]) == {"package"}
    chosen = {"PACKAGE": str(distributions["wheel"]), "DIBS_PREFIX": str(tmp_path / "usr")}
    asked = run(FEATURE / "install.sh", check=False, DIBS_PREFIX="/nowhere")
    assert asked.returncode == 1 and "set the option package" in asked.stderr
    for _ in range(2):  # a container that is built again runs it again
        assert run(FEATURE / "install.sh", **chosen).stdout.splitlines()[-1].startswith("dibs ")
    assert run(tmp_path / "usr/bin/dibs", "--version").stdout.startswith("dibs ")
    # As docs/how-to/containers.md says: the feature's folder, with a wheel in it.
    copied = shutil.copytree(FEATURE, tmp_path / "feature")
    shutil.copy(distributions["wheel"], copied)
    done = run(copied / "install.sh", DIBS_PREFIX=str(tmp_path / "other"))
    assert f"dibs: installing {copied}/" in done.stdout
