"""What a claim costs among many leases, and `next` among many tasks."""

from __future__ import annotations

from collections.abc import Callable

import dibs
from bench.measure import in_turns

CHUNK, BATCH = 200, 1_000


def crowd(url: str, folder: str, name: str, leases: int, tasks: int) -> dibs.Agent:
    """An agent in a space that holds so many leases and available tasks of others."""
    space = dibs.open(url, space=name, durability="fast", start=folder, user_dir=folder + "/user")
    others, agent = space.join("others", ttl_s=86_400), space.join("bench", ttl_s=86_400)
    for first in range(0, leases, CHUNK):
        last = min(first + CHUNK, leases)
        others.leases.claim(
            *(f"{folder}/tree/{n % 97}/{n % 89}/f{n}.py" for n in range(first, last))
        )
    for first in range(0, tasks, BATCH):
        numbers = range(first, min(first + BATCH, tasks))
        others.work.add_many(
            [{"id": f"task-{n}", "title": f"number {n}", "priority": n % 5} for n in numbers]
        )
    return agent


def claims(
    url: str, folder: str, few: int, many: int, rounds: int, calls: int
) -> dict[str, list[float]]:
    """Seconds for a claim and its release among few and among many leases."""

    def side(number: int) -> Callable[[], None]:
        agent = crowd(url.format(number), folder, f"leases-{number}", number, 0)

        def pair() -> None:
            agent.leases.claim(f"{folder}/tree/11/12/new.py")
            agent.leases.release(f"{folder}/tree/11/12/new.py")

        return pair

    return in_turns({"few": side(few), "many": side(many)}, rounds, calls)


def nexts(
    url: str, folder: str, few: int, many: int, rounds: int, calls: int
) -> dict[str, list[float]]:
    """Seconds for `next` and giving the task back, among few and among many tasks."""

    def side(number: int) -> Callable[[], None]:
        agent = crowd(url.format(number), folder, f"tasks-{number}", 0, number)

        def pair() -> None:
            task = agent.work.next()
            agent.work.abandon(task.id, epoch=task.epoch)

        return pair

    return in_turns({"few": side(few), "many": side(many)}, rounds, calls)
