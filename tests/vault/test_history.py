"""Over random histories: a vault that was kept up to date is the one that would be written now."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import dibs
from dibs.surfaces.cli.vault import bring_up_to_date
from dibs.vault.writing import Vault
from tests.vault.reading import check, notes

TASKS = ["a", "b", "C", "c", "github:o/r#1", "../x"]
FILES = ["src/a.py", "src/", "port:1", "Makefile"]


@contextmanager
def opened(folder: Path) -> Iterator[dibs.Dibs]:
    folder.mkdir(mode=0o700)
    with dibs.open(
        str(folder / "dibs.db"), space="main", user_dir=str(folder / "user"), start=str(folder)
    ) as space:
        yield space


def act(agent: dibs.Agent, dice: random.Random) -> None:
    """Something that an agent may do; what is refused is refused."""
    task, other, file = dice.choice(TASKS), dice.choice(TASKS), dice.choice(FILES)
    work = agent.work
    acts = [
        lambda: work.add(task, title=f"title {dice.random()}", leases=[file], after=[other]),
        lambda: work.add(task, parent=other, found_in=dice.choice(TASKS)),
        lambda: work.claim(task, leases=[file], note="<b>note</b>"),
        lambda: work.complete(task, result={"n": dice.randrange(9)}),
        lambda: work.fail(task, reason="because\n[[x]]"),
        lambda: work.abandon(task, reason="no time"),
        lambda: work.cancel(task),
        lambda: work.reopen(task),
        lambda: work.edit(task, after=[other], title="another"),
        lambda: work.edit(task, leases=[file], labels=["x"]),
        lambda: work.remove(task),
        lambda: work.ask(task, "may I?"),
        lambda: agent.leases.claim(file, note="mine"),
        lambda: agent.leases.release(file),
        lambda: agent.leases.release(everything=True),
        lambda: agent.messages.send("hello", to=dice.choice(["alice", "bob", "nobody"])),
        lambda: agent.messages.announce("all"),
        lambda: agent.messages.ack(*(one.id for one in agent.messages.inbox(limit=1))),
        lambda: agent.leases.transfer(file, to="bob"),
    ]
    try:
        dice.choice(acts)()
    except dibs.DibsError:
        pass


def write(space: dibs.Dibs, folder: Path) -> int:
    with Vault(str(folder)) as vault:
        bring_up_to_date(space, vault)
        assert not vault.take_kept()
        return vault.written


@pytest.mark.parametrize("seed", range(4))
def test_a_vault_that_is_kept_up_to_date_is_as_new(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    with opened(tmp_path / "store") as space:
        agents = [space.join(name) for name in ("alice", "bob", "crew/w1")]
        for step in range(20):
            for _ in range(dice.randrange(6)):
                act(dice.choice(agents), dice)
            write(space, tmp_path / "kept")
            kept = check(tmp_path / "kept")
            write(space, tmp_path / f"new{step}")
            new = notes(tmp_path / f"new{step}")
            # A note of what nobody names any more stays.
            assert {path: kept[path] for path in new} == new
            assert write(space, tmp_path / "kept") == 0


@pytest.mark.stress
def test_ten_thousand_tasks_are_written_in_time(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as space:
        agents = [space.join(f"agent{number}") for number in range(20)]
        for start in range(0, 10_000, 1_000):
            agents[0].work.add_many([
                {"id": f"task-{number}", "title": f"Task {number} of many",
                 "payload": {"number": number}, "leases": [f"src/m{number % 500}.py"],
                 "after": [f"task-{number - 1}"] if number % 10 else []}
                for number in range(start, start + 1_000)
            ])  # fmt: skip
        for number in range(2_000):
            agent = agents[number % 20]
            agent.work.complete(agent.work.next().id, result={"ok": True})
        first, again = timed(space, tmp_path / "vault"), timed(space, tmp_path / "vault")
        agents[3].work.claim("task-9990")
        after = timed(space, tmp_path / "vault")
        for what, found in {"first": first, "again": again, "after a claim": after}.items():
            print(f"\nvault of 10,000 tasks, {what}: {found}")
        assert first.notes > 10_000 and again.notes == 0 and after.notes < 10
        # In time of the processor: others share this machine.
        assert first.cpu_s < 20 and again.cpu_s < 1
        check(tmp_path / "vault")


class Timed(NamedTuple):
    notes: int
    seconds: float
    cpu_s: float


def timed(space: dibs.Dibs, folder: Path) -> Timed:
    began, cpu = time.monotonic(), time.process_time()
    number = write(space, folder)
    return Timed(number, round(time.monotonic() - began, 2), round(time.process_time() - cpu, 2))
