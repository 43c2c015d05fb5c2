"""Many shells at once: exactly one wins. Each `dibs` is a process of its own."""

from __future__ import annotations

import json

import pytest

from tests.surfaces.shell import Shell, finish

SHELLS = 10
TASKS = 16
RACE_S = 110
WAIT_FOR_THE_SIGNAL = "while [ ! -e go ]; do sleep 0.01; done"


def race(shell: Shell, scripts: list[str]) -> list[str]:
    """Start all shells, let them go at one moment, and return what each printed."""
    running = [shell.spawn(["sh", "-c", f"{WAIT_FOR_THE_SIGNAL}; {text}"]) for text in scripts]
    (shell.folder / "go").touch()
    answers = [finish(process, RACE_S) for process in running]
    for answer in answers:
        assert "Traceback" not in answer.err, answer
    return [answer.out for answer in answers]


def test_ten_shells_race_for_one_file_and_one_wins(on_each: Shell) -> None:
    scripts = [
        f"dibs claim src/a.py --as agent{number} > /dev/null; echo $?" for number in range(SHELLS)
    ]
    codes = sorted(int(said) for said in race(on_each, scripts))
    assert codes == [0] + [1] * (SHELLS - 1)
    (lease,) = on_each.json("leases")
    assert lease["resource"] == "src/a.py"


def winners(shell: Shell, shells: int, tasks: int) -> dict[str, list[str]]:
    """Each shell claims every task once, each in another order; who won which?"""
    scripts = []
    for number in range(shells):
        order = [f"task-{(number + step) % tasks}" for step in range(tasks)]
        scripts.append(
            f"for task in {' '.join(order)}; do "
            f"dibs work claim $task --as agent{number} --json; echo code $?; done"
        )
    won: dict[str, list[str]] = {}
    for number, said in enumerate(race(shell, scripts)):
        lines = said.splitlines()
        for answer, code in zip(lines[::2], lines[1::2], strict=True):
            found = json.loads(answer)
            if code == "code 0":
                won.setdefault(found["id"], []).append(f"agent{number}")
            else:
                assert (code, found["error"]) == ("code 1", "held")
    return won


def check_winners(shell: Shell, shells: int, tasks: int) -> None:
    won = winners(shell, shells, tasks)
    assert len(won) == tasks
    for task in shell.json("work", "list"):
        assert won[task["id"]] == [task["agent"]]


def test_eight_shells_claim_eight_tasks_and_each_has_one_winner(shell: Shell) -> None:
    check_winners(shell, 8, 8)


@pytest.mark.stress
def test_sixteen_shells_claim_sixteen_tasks_and_each_has_one_winner(shell: Shell) -> None:
    check_winners(shell, 16, TASKS)


def test_eight_shells_claim_eight_tasks_on_postgresql_and_each_has_one_winner(
    shell: Shell, postgres_url: str, space_name: str
) -> None:
    # Its driver takes several times as long to load as a command runs, so that the full
    # size is a stress test.
    check_winners(shell.with_(DIBS_URL=postgres_url, DIBS_SPACE=space_name), 8, 8)


@pytest.mark.stress
def test_sixteen_shells_claim_sixteen_tasks_on_postgresql(
    shell: Shell, postgres_url: str, space_name: str
) -> None:
    check_winners(shell.with_(DIBS_URL=postgres_url, DIBS_SPACE=space_name), 16, TASKS)
