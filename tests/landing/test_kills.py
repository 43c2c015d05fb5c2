"""A conductor that is killed at each of its steps, frozen, or raced by another."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

import dibs
from tests.landing.world import World

BAR = '[land]\nverify = "test ! -e bad.txt"\n'
BRANCHES = ("one", "bad", "two", "clash")


def world(folder: Path, store: dict[str, str] | None = None) -> World:
    made = World(folder, BAR, store)
    made.commit("one", {"one.txt": "1\n", "a.txt": "one\n"})
    made.commit("two", {"two/b.txt": "2\n"})
    made.commit("bad", {"bad.txt": "bad\n"})
    made.commit("clash", {"a.txt": "clash\n"})
    # Somebody works in the checkout meanwhile, and has staged a part of it.
    (made.path / "mine.txt").write_text("staged\n")
    made.git("add", "mine.txt")
    (made.path / "mine.txt").write_text("edited\n")
    return made


def develop(made: World, number: int) -> bool:
    """Somebody commits to the target, in its checkout."""
    (made.path / f"dev{number}.txt").write_text("dev\n")
    added = made.repository.run("add", f"dev{number}.txt")
    only = ("commit", "-q", "-m", "dev", "--", f"dev{number}.txt")
    done = made.repository.run(*only) if added.returncode == 0 else added
    if done.returncode:
        assert b"index.lock" in done.stderr, done.stderr
    return done.returncode == 0


def judge(made: World) -> None:
    """Each branch has landed once, or was reported; the target has always passed."""
    states = {branch: task["state"] for branch, task in made.landings().items()}
    assert states == {"one": "completed", "two": "completed", "bad": "dead", "clash": "dead"}
    merged = made.merges()
    assert sorted(merged) == sorted(made.repository.id(name) for name in ("one", "two"))
    for commit in made.git("rev-list", "--first-parent", "main").splitlines():
        assert "bad.txt" not in made.files(commit)
    assert {"one.txt", "two/b.txt"} <= made.files()
    for task in made.landings().values():
        if task["state"] == "completed":
            merge, commit = task["result"]["merge"], task["payload"]["commit"]
            assert made.git("rev-list", "--parents", "-1", merge).split()[2] == commit
            assert merge in made.git("rev-list", "--first-parent", "main").split()
    assert made.git("show", ":mine.txt").strip() == "staged"
    assert (made.path / "mine.txt").read_text() == "edited\n"
    made.assert_tidy("MM mine.txt")


def steps(folder: Path) -> int:
    made = world(folder)
    out, err = made.conductor(0, *BRANCHES).communicate(timeout=120)
    judge(made)
    assert out.strip().isdecimal(), err
    return int(out)


def free(made: World, store: dict[str, str]) -> None:
    """What a session that lives by its beats had: a person need not wait for its end."""
    with (
        dibs.open(
            store["DIBS_URL"], space=store["DIBS_SPACE"], start=made.path,
            user_dir=made.dibs.user_dir,
        ) as space,
        space.join("ann") as ann,
    ):  # fmt: skip
        ann.leases.revoke("land:main")
        for task in ann.work.list(state="claimed"):
            ann.work.revoke(task.id)


def kill_at(folder: Path, step: int | str, store: dict[str, str] | None = None) -> str:
    """Kill a conductor at a step, let somebody commit, and let another conductor go on."""
    made = world(folder, store)
    killed = made.conductor(step, *BRANCHES)
    out, err = killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL, err
    if store:
        free(made, store)
    committed = develop(made, 1)
    out2, err2 = made.conductor(0, *BRANCHES, name="bob").communicate(timeout=120)
    if not committed:
        assert develop(made, 1), "the lock of the dead conductor is still there"
    assert "dev1.txt" in made.files(), (out, out2, err2)
    judge(made)
    return out.strip()


def test_a_conductor_that_is_killed_now_and_then_loses_nothing(tmp_path: Path) -> None:
    count = steps(tmp_path / "count")
    assert count > 40
    for step in range(1, count + 1, 25):
        kill_at(tmp_path / str(step), step)


@pytest.mark.parametrize("step", ["after git update-ref", "before Work.fail"])
def test_on_postgresql_another_goes_on_where_a_conductor_was_killed(
    tmp_path: Path, postgres_url: str, space_name: str, step: str
) -> None:
    out = kill_at(tmp_path, step, {"DIBS_URL": postgres_url, "DIBS_SPACE": space_name})
    assert out == f"killed at {step}"


@pytest.mark.stress
def test_a_conductor_that_is_killed_at_any_step_loses_nothing(tmp_path: Path) -> None:
    count = steps(tmp_path / "count")
    for step in range(1, count + 1):
        print(f"{step} of {count}: {kill_at(tmp_path / str(step), step)}")


def test_two_conductors_and_a_developer_land_each_branch_once(tmp_path: Path) -> None:
    made = world(tmp_path)
    both = [made.conductor(0, *BRANCHES, name=name) for name in ("alice", "bob")]
    number = committed = 0
    while any(one.poll() is None for one in both):
        number += 1
        committed += develop(made, number)
        time.sleep(0.2)
    for one in both:
        one.communicate(timeout=120)
    made.git("add", "dev*.txt")
    made.repository.run("commit", "-q", "-m", "what could not be committed", "--", "dev*.txt")
    made.conductor(0, name="carol").communicate(timeout=120)
    judge(made)
    assert committed
    assert {f"dev{one + 1}.txt" for one in range(number)} <= made.files()


def test_a_frozen_conductor_that_wakes_up_does_no_harm(tmp_path: Path) -> None:
    slow = '[land]\nverify = "touch ../../../started; sleep 3; test ! -e bad.txt"\n'
    made = World(tmp_path, slow)
    made.commit("one", {"one.txt": "1\n"})
    made.commit("two", {"two.txt": "2\n"})
    frozen = made.conductor(0, "one")
    until = time.monotonic() + 60
    while not (made.path / "started").exists():
        assert time.monotonic() < until and frozen.poll() is None
        time.sleep(0.05)
    frozen.send_signal(signal.SIGSTOP)
    try:
        person = made.dibs
        held = person.json("leases", "list")
        person.ok("revoke", *[lease["resource"] for lease in held])
        person.ok("work", "revoke", next(iter(made.landings().values()))["id"])
        out, err = made.conductor(0, "two", name="bob").communicate(timeout=120)
    finally:
        frozen.send_signal(signal.SIGCONT)
    frozen.communicate(timeout=120)
    assert {task["state"] for task in made.landings().values()} == {"completed"}, (out, err)
    assert sorted(made.merges()) == sorted(made.repository.id(name) for name in ("one", "two"))
    (made.path / "started").unlink()
    made.assert_tidy()
