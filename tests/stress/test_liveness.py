"""The dead do not block: within a second on one machine, within the session's TTL elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from tests.stress.clockwork import Child, Children, children, database, middle
from tests.stress.crew import hold_until_told, queue_up

TTL_S = 2.0


@pytest.fixture
def crew() -> Iterator[Children]:
    with children() as some:
        yield some


class Scene:
    """A holder and its waiters, each a process."""

    def __init__(self, url: str, space: str, folder: Path, crew: Children) -> None:
        self.address = url, space, str(folder / "user")
        self.crew = crew
        self.within_s = 1.0 if database(url) == "sqlite" else TTL_S + 1.0
        self.store = dibs.open(url, space=space, user_dir=self.address[2])

    def holder(self) -> Child:
        child = self.crew.start(hold_until_told, *self.address, TTL_S)
        assert child.hear() == "held"
        return child

    def waiter(self, name: str, what: str = "lease") -> Child:
        """Somebody who stands in the queue when this returns."""
        child = self.crew.start(queue_up, *self.address, name, what, TTL_S)
        assert child.hear() == "here"
        while what == "lease" and not self.in_queue(name):
            time.sleep(0.005)
        return child

    def in_queue(self, name: str) -> bool:
        (state,) = self.store.leases.status("port:1")
        return any(blocker.waiting and blocker.agent == name for blocker in state.blockers)


def end(child: Child, how: str) -> float:
    """End a process without a goodbye; return when that was done."""
    if how == "SIGKILL":
        child.kill()
    else:
        child.tell(how)
        child.end()
    return time.monotonic()


@pytest.fixture
def scene(url: str, space_name: str, tmp_path: Path, crew: Children) -> Iterator[Scene]:
    scene = Scene(url, space_name, tmp_path, crew)
    yield scene
    scene.store.close()


def test_a_killed_holder_frees_its_lease_to_the_waiter(scene: Scene):
    holder, waiter = scene.holder(), scene.waiter("waiter")
    ended = end(holder, "SIGKILL")
    assert waiter.hear() - ended < scene.within_s


@pytest.mark.parametrize("how", ["exit at once", "return"])
def test_a_process_that_ends_without_closing_frees_its_lease_to_the_waiter(
    sqlite_url: str, space_name: str, tmp_path: Path, crew: Children, how: str
):
    scene = Scene(sqlite_url, space_name, tmp_path, crew)
    holder, waiter = scene.holder(), scene.waiter("waiter")
    ended = end(holder, how)
    assert waiter.hear() - ended < scene.within_s
    scene.store.close()


def test_a_killed_claimer_frees_its_task_to_the_one_who_waits_for_work(scene: Scene):
    holder, waiter = scene.holder(), scene.waiter("waiter", "task")
    ended = end(holder, "SIGKILL")
    assert waiter.hear() - ended < scene.within_s


def test_a_dead_first_in_the_queue_does_not_keep_the_second_waiting(scene: Scene):
    holder, first, second = scene.holder(), scene.waiter("first"), scene.waiter("second")
    first.kill()
    ended = end(holder, "SIGKILL")
    assert second.hear() - ended < scene.within_s


def test_a_dead_first_in_the_queue_does_not_get_what_is_released(scene: Scene):
    with scene.store.join("alice", ttl_s=60) as alice:
        alice.leases.claim("port:1")
        first, second = scene.waiter("first"), scene.waiter("second")
        first.kill()
        alice.leases.release("port:1")
        released = time.monotonic()
        assert second.hear() - released < scene.within_s


def test_a_waiter_who_dies_after_it_was_served_does_not_keep_the_next_waiting(scene: Scene):
    holder, first, second = scene.holder(), scene.waiter("first"), scene.waiter("second")
    end(holder, "SIGKILL")
    first.hear()
    ended = end(first, "SIGKILL")
    assert second.hear() - ended < scene.within_s


@pytest.mark.stress
def test_twenty_killed_holders_free_what_they_held(
    url: str, space_name: str, tmp_path: Path, crew: Children
):
    times = []
    for number in range(20):
        scene = Scene(url, f"{space_name}-{number}", tmp_path, crew)
        holder, waiter = scene.holder(), scene.waiter("waiter")
        ended = end(holder, "SIGKILL")
        times.append(waiter.hear() - ended)
        waiter.kill()
        scene.store.close()
    print(
        f"\nliveness {database(url)}: 20 holders killed; the waiter had the lease after "
        f"{middle(times, 0.5):.2f} s (median), {max(times):.2f} s (worst)"
    )
    assert max(times) < scene.within_s
