"""The worked examples, run as a newcomer runs them, and the figures they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(script: str, tmp_path: Path) -> str:
    """Run a script with all its temporary files in one folder, and see that it leaves none."""
    temporary, here = tmp_path / "temporary", tmp_path / "here"
    temporary.mkdir()
    here.mkdir()
    done = subprocess.run(
        [sys.executable, EXAMPLES / script],
        cwd=here,
        env=os.environ | {"TMPDIR": str(temporary), "HOME": str(here), "PYTHONWARNINGS": "error"},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(temporary.iterdir()) == []
    assert list(here.iterdir()) == []
    return done.stdout


def halves(output: str) -> tuple[str, str]:
    without, found, with_dibs = output.partition("WITH DIBS")
    assert found
    return without, with_dibs


@pytest.fixture(scope="module")
def budget(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return halves(run("budget.py", tmp_path_factory.mktemp("budget")))


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return halves(run("orders.py", tmp_path_factory.mktemp("orders")))


def test_two_agents_overcommit_a_budget_without_dibs_and_spend_it_exactly_with_it(
    budget: tuple[str, str],
) -> None:
    without, with_dibs = budget
    assert "15,000 spent of 10,000" in without
    assert "10,000 spent of 10,000" in with_dibs


def test_the_budget_shows_who_was_refused_and_an_audit_trail_without_gaps(
    budget: tuple[str, str],
) -> None:
    _, with_dibs = budget
    trail = re.findall(
        r"^ +(\d+) +(\d+)  (\w+) +\d\d:\d\d:\d\d\.\d{3} +([\d,]+)$", with_dibs, re.MULTILINE
    )
    assert [(version, left) for _, version, _, left in trail] == [
        ("1", "10,000"),
        ("2", "2,500"),
        ("3", "0"),
    ]
    seqs = [int(seq) for seq, *_ in trail]
    assert seqs == sorted(set(seqs))
    lead, winner, loser = (who for _, _, who, _ in trail)
    assert lead == "lead"
    assert {winner, loser} == {"alice", "bob"}
    refusal = f"budget/q3 is at version 2, set by {winner}, but you expected version 1."
    assert re.search(rf"^  {loser} +was refused: {re.escape(refusal)}$", with_dibs, re.MULTILINE)
    assert with_dibs.count("was refused") == 1


def test_workers_ship_orders_twice_without_dibs_and_each_once_with_it(
    orders: tuple[str, str],
) -> None:
    without, with_dibs = orders
    counted = re.search(r"40 orders, (\d+) parcels.\n +(\d+) orders were shipped more", without)
    assert counted is not None
    parcels, several = map(int, counted.groups())
    assert parcels > 40
    assert 0 < several <= parcels - 40
    assert "40 orders, 40 shipments, 40 completions." in with_dibs
    assert " 0 orders were shipped more than once." in with_dibs


def test_the_order_of_the_killed_worker_is_shipped_by_another_at_a_higher_epoch(
    orders: tuple[str, str],
) -> None:
    _, with_dibs = orders
    journal = re.findall(
        r"seq +\d+  order-\d\d  (\w+) +(\w+)(?: +epoch (\d+))?$", with_dibs, re.MULTILINE
    )
    assert [what for what, _, _ in journal] == ["added", "claimed", "freed", "claimed", "completed"]
    _, killed, freed, taken, completed = journal
    assert killed[1] == freed[1] == "dave"
    assert taken[1] == completed[1] != "dave"
    assert killed[2] == freed[2]
    assert taken[2] == completed[2]
    assert int(taken[2]) > int(killed[2])
