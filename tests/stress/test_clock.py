"""R5: a step of the wall clock, another time namespace and a reboot, for real processes.

The wall clock is shifted by a library loaded before all others into the processes under test, in
the middle of their run: nothing of dibs is replaced. The time namespace is the kernel's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dibs
from tests.stress.clockwork import Child, children, database
from tests.stress.crew import (
    after_the_reboot,
    before_the_reboot,
    hold_and_stay,
    take_over,
    try_to_open,
)

SOURCE = Path(__file__).with_name("shifted_clock.c")
STEPS_S = {"+61 min": 61 * 60, "−24 h": -24 * 3600}
TTL_S = 1.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the library is for Linux")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that shifts the wall clock of the process it is loaded into."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the clock with")
    target = tmp_path_factory.mktemp("clock") / "shifted_clock.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(SOURCE)], check=True
    )
    return str(target)


class Shift:
    """The wall clock of some processes, which can be stepped while they run."""

    def __init__(self, library: str, folder: Path, boot: str | None = None) -> None:
        self.file = folder / f"shift-{boot or 'wall'}"
        self.set(0)
        self.env = {"LD_PRELOAD": library, "SHIFT_FILE": str(self.file)}
        if boot is not None:
            boot_file = folder / f"boot-{boot}"
            boot_file.write_text(f"{boot}\n")
            self.env["SHIFT_BOOT"] = str(boot_file)

    def set(self, seconds: int) -> None:
        draft = self.file.with_suffix(".draft")
        draft.write_text(str(seconds))
        os.replace(draft, self.file)


class Takeover:
    """What one round of holding, stepping the clock and taking over came to."""

    def __init__(self, holder: Child, contender: Child, shift: Shift) -> None:
        self.holder, self.contender, self.shift = holder, contender, shift
        self.early = self.rounds = 0
        self.worst_ms = 0.0

    def run(self, resource: str, step_s: int, waits: bool) -> None:
        self.shift.set(0)
        self.holder.tell([resource, TTL_S])
        before, after, epoch, held_at = self.holder.hear()
        self.contender.tell([resource, waits])
        time.sleep(0.2)  # the step comes in the middle, while the other one already tries
        self.shift.set(step_s)
        won, new_epoch, won_at = self.contender.hear()
        self.rounds += 1
        self.early += won < before + TTL_S * 1e9
        self.worst_ms = max(self.worst_ms, (won - after) / 1e6 - TTL_S * 1000)
        assert new_epoch > epoch
        self.walls = held_at, won_at


def step_the_clock(url: str, space: str, folder: Path, library: str, rounds: int) -> None:
    shift = Shift(library, folder)
    user = str(folder / "user")
    with children() as crew:
        holder = crew.start(hold_and_stay, url, space, user, env=shift.env)
        contender = crew.start(take_over, url, space, user, env=shift.env)
        assert holder.hear() == contender.hear() == "here"
        takeover = Takeover(holder, contender, shift)
        for number in range(rounds):
            for place, (name, step_s) in enumerate(STEPS_S.items()):
                waits = (number + place) % 2 == 0
                takeover.run(f"port:{number}{step_s}", step_s, waits)
                if database(url) == "sqlite":
                    # Wall time is shown, so this proves that the step reached the store.
                    held_at, won_at = takeover.walls
                    assert abs((won_at - held_at) / 1000 - step_s) < 10, name
    print(
        f"\nR5 {database(url)}: {takeover.rounds} takeovers over steps of {', '.join(STEPS_S)}: "
        f"{takeover.early} early, worst expiry error {takeover.worst_ms:.0f} ms"
    )
    assert takeover.early == 0
    assert takeover.worst_ms <= 1000


def test_a_step_of_the_wall_clock_ends_no_lease_early_and_freezes_none(
    url: str, space_name: str, tmp_path: Path, library: str
):
    step_the_clock(url, space_name, tmp_path, library, rounds=1)


@pytest.mark.stress
def test_forty_steps_of_the_wall_clock_end_no_lease_early(
    url: str, space_name: str, tmp_path: Path, library: str
):
    step_the_clock(url, space_name, tmp_path, library, rounds=20)


def in_time_namespace(monotonic_s: int) -> list[str]:
    """The command that gives a process a monotonic clock of its own."""
    prefix = ["unshare", "--time", f"--monotonic={monotonic_s}", "--"]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare command")
    if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make a time namespace")
    return prefix


def test_a_process_of_another_time_namespace_is_refused(
    sqlite_url: str, space_name: str, tmp_path: Path
):
    prefix = in_time_namespace(1000)
    user = str(tmp_path / "user")
    with dibs.open(sqlite_url, space=space_name, user_dir=user) as store, children() as crew:
        grant = store.join("alice").leases.claim("port:1")
        stranger = crew.start(try_to_open, sqlite_url, space_name, user, prefix=prefix)
        code, message = stranger.hear()
        assert code == "unfit"
        assert "time namespace" in message
        neighbour = crew.start(try_to_open, sqlite_url, space_name, user)
        assert neighbour.hear() == ["opened", grant.epoch], "the refusal changed nothing"


def test_a_store_of_another_time_namespace_is_refused_too(
    sqlite_url: str, space_name: str, tmp_path: Path
):
    prefix = in_time_namespace(1000)
    user = str(tmp_path / "user")
    with children() as crew:
        first = crew.start(try_to_open, sqlite_url, space_name, user, prefix=prefix)
        assert first.hear() == ["opened", 0]
        second = crew.start(try_to_open, sqlite_url, space_name, user)
        assert second.hear()[0] == "unfit"


@pytest.mark.parametrize("clock", ["running", "restarted"])
def test_after_a_reboot_old_holders_are_dead_and_time_goes_on(
    sqlite_url: str, space_name: str, tmp_path: Path, library: str, clock: str
):
    # After a real reboot the monotonic clock starts again; a time namespace does the same.
    prefix = in_time_namespace(-int(time.monotonic()) + 60) if clock == "restarted" else []
    user = str(tmp_path / "user")
    boots = [Shift(library, tmp_path, f"boot-{name}") for name in "ab"]
    delay_s = 2.0
    with children() as crew:
        before = crew.start(
            before_the_reboot, sqlite_url, space_name, user, delay_s, env=boots[0].env
        )
        old_epochs, old_seq, asked_at = before.hear()
        before.kill()
        after = crew.start(
            after_the_reboot, sqlite_url, space_name, user, env=boots[1].env, prefix=prefix
        )
        new_epochs, new_seq = after.hear()
        early, task, got_at, _ = after.hear()
    assert min(new_epochs) > max(old_epochs) and new_seq > old_seq
    assert not early and task == "later"
    waited_s = got_at - asked_at
    print(f"\nR5 reboot, clock {clock}: a task delayed by {delay_s} s came after {waited_s:.2f} s")
    assert delay_s - 0.01 <= waited_s <= delay_s + 1


def test_a_reboot_with_a_wall_clock_set_back_makes_a_delay_no_shorter_and_no_day_longer(
    sqlite_url: str, space_name: str, tmp_path: Path, library: str
):
    user = str(tmp_path / "user")
    boots = [Shift(library, tmp_path, f"boot-{name}") for name in "ab"]
    boots[1].set(STEPS_S["−24 h"])
    delay_s = 1.5
    with children() as crew:
        before = crew.start(
            before_the_reboot, sqlite_url, space_name, user, delay_s, env=boots[0].env
        )
        before.hear()
        before.kill()
        after = crew.start(after_the_reboot, sqlite_url, space_name, user, env=boots[1].env)
        after.hear()
        early, task, _, waited_s = after.hear()
    assert not early and task == "later"
    assert waited_s <= delay_s + 1
