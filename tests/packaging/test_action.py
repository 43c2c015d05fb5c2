"""The GitHub Action: both of its scripts, run as a runner runs them, against a real daemon."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import dibs
from tests.packaging.conftest import ROOT
from tests.stress.test_daemon import served

pytestmark = pytest.mark.packaging

ACTION = ROOT / "action"


class Runner:
    """What GitHub's runner does for one job: inputs and state by environment, answers by files."""

    def __init__(self, folder: Path, job: str, **inputs: str) -> None:
        self._files = {name: folder / f"{job}-{name}" for name in ("GITHUB_STATE", "GITHUB_OUTPUT")}
        for file in self._files.values():
            file.touch()
        defaults = re.findall(r"^  (\w+):\n    description: .*\n    default: (.*)$", text(), re.M)
        self._environment = {
            "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "GITHUB_RUN_ID": "17",
            "GITHUB_JOB": job,
            **{name: str(file) for name, file in self._files.items()},
            **{f"INPUT_{name.upper()}": value for name, value in (*defaults, *inputs.items())},
        }

    def step(self, script: str) -> subprocess.CompletedProcess[str]:
        state = {f"STATE_{name}": value for name, value in self._said("GITHUB_STATE").items()}
        return subprocess.run(
            ["node", str(ACTION / script)],
            env=self._environment | state, text=True, capture_output=True, timeout=60, check=False,
        )  # fmt: skip

    @property
    def outputs(self) -> dict[str, str]:
        return self._said("GITHUB_OUTPUT")

    def _said(self, name: str) -> dict[str, str]:
        lines = self._files[name].read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)


def text() -> str:
    return (ACTION / "action.yml").read_text()


def test_a_job_holds_the_lease_until_it_has_ended(
    sqlite_url: str, space_name: str, tmp_path: Path
) -> None:
    with (
        served(sqlite_url, space_name, tmp_path) as daemon,
        dibs.open(daemon.url, token=daemon.token) as opened,
        opened.join("person") as person,
    ):
        secret = person.agents.add_token("ci", scope="agent").secret
        store = {"url": daemon.url, "token": secret, "resource": "deploy:prod\n\ndb:main\n"}
        first = Runner(tmp_path, "first", **store)
        second = Runner(tmp_path, "second", **store, wait="0s")

        done = first.step("claim.js")
        assert done.returncode == 0, done.stdout + done.stderr
        held = opened.leases.list()
        assert {lease.resource for lease in held} == {"deploy:prod", "db:main"}
        assert {lease.agent for lease in held} == {"ci/17-1-first"}
        assert first.outputs["epoch"] == str(held[0].epoch)
        assert secret not in done.stdout + done.stderr

        refused = second.step("claim.js")
        assert refused.returncode == 1
        assert refused.stdout.startswith("::error::") and "ci/17-1-first" in refused.stdout
        assert second.step("release.js").returncode == 0
        assert len(opened.leases.list()) == 2, "who was refused has released another's lease"

        assert first.step("release.js").returncode == 0
        assert opened.leases.list() == ()
        assert second.step("claim.js").returncode == 0


def test_words_of_others_begin_no_command_of_the_runner(
    sqlite_url: str, space_name: str, tmp_path: Path
) -> None:
    with (
        served(sqlite_url, space_name, tmp_path) as daemon,
        dibs.open(daemon.url, token=daemon.token) as opened,
        opened.join("eve") as eve,
    ):
        eve.leases.claim("deploy:prod", note="100% ::set-env name=PATH::/tmp")
        store = {"url": daemon.url, "token": daemon.token, "resource": "deploy:prod"}
        refused = Runner(tmp_path, "job", **store, wait="0s").step("claim.js")
    assert refused.returncode == 1
    lines = refused.stdout.splitlines()
    # The refusal has several lines, and a runner reads each as a command of its own.
    assert len(lines) == 1 and "%0A" in lines[0] and "100%25" in lines[0], lines


def test_a_runner_without_dibs_installs_the_release_of_the_action(tmp_path: Path) -> None:
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    # It makes the environment with a copy of itself, and says what it is asked to install.
    python.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
        '[ "$2" = venv ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"\nexit 0\n'
    )
    python.chmod(0o755)
    node = shutil.which("node")
    assert node
    environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "RUNNER_TEMP": str(tmp_path)}
    program = f"console.log(require('{ACTION}/dibs.js').installed())"
    done = subprocess.run(
        [node, "-e", program], env=environment, text=True, capture_output=True, check=True
    )
    assert done.stdout == f"{tmp_path}/dibs-venv/bin/dibs\n"
    assert (tmp_path / "asked").read_text().splitlines()[-1].endswith(f" {ROOT}[postgres]")


def test_the_key_of_a_space_is_passed_on(tmp_path: Path) -> None:
    program = tmp_path / "dibs"
    program.write_text('#!/bin/sh\necho "$DIBS_KEY $DIBS_URL"\n')
    program.chmod(0o755)
    script = f"console.log(require('{ACTION}/dibs.js').dibs('{program}', [], 'ci').stdout)"
    environment = {**os.environ, "INPUT_KEY": "ab" * 32, "INPUT_URL": "postgresql://db/dibs"}
    done = subprocess.run(
        ["node", "-e", script], env=environment, text=True, capture_output=True, check=True
    )
    assert done.stdout.split() == ["ab" * 32, "postgresql://db/dibs"]


def test_what_the_action_names_is_there() -> None:
    for name in re.findall(r"(?:main|post): (\S+\.js)", text()):
        assert (ACTION / name).is_file()
