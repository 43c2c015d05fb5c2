"""R14: contenders on one lease are served first come, first served, and only the one is woken."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dibs
from tests.stress.fairness import KEY
from tests.stress.procs import nursery, open_gate

CONTENDERS = 20


def test_twenty_contenders_are_served_in_the_order_they_came(
    url: str, space_name: str, tmp_path: Path
) -> None:
    # On a server a killed contender holds the queue up for seconds; that is for the full form.
    kills = 0 if url.startswith("postgresql") else 3
    contend(url, space_name, tmp_path, rounds=2, kills=kills, seed=1)


@pytest.mark.stress
def test_twenty_contenders_are_served_in_order_many_times(
    url: str, space_name: str, tmp_path: Path
) -> None:
    print("\n" + contend(url, space_name, tmp_path, rounds=50, kills=3, seed=2))


def contend(url: str, space_name: str, folder: Path, *, rounds: int, kills: int, seed: int) -> str:
    """Let all of them queue behind one holder, kill some of the waiters, and let go."""
    pick = random.Random(seed)
    where = {"url": url, "space": space_name, "user_dir": str(folder / "user")}
    start, end = folder / "start", folder / "end"
    with (
        dibs.open(url, space=space_name, user_dir=where["user_dir"]) as space,
        space.join("holder") as holder,
        nursery(folder / "logs") as place,
    ):
        first = holder.leases.claim(KEY, ttl_s=120)
        workers = [
            place.start(
                "fairness:contend",
                name=f"contender-{number}",
                rounds=rounds,
                hold_s=0.001,
                start=str(start),
                end=str(end),
                **where,
            )
            for number in range(CONTENDERS)
        ]
        for worker in workers:
            worker.wait_for("ready")
        open_gate(start)
        seen, queued = 0, 0
        while queued < CONTENDERS:
            events = space.events.watch(seen, kind="lease.queued", subject=KEY, wait_s=60)
            assert events, f"only {queued} queued"
            seen, queued = events[-1].seq, queued + len(events)
        for worker in (killed := pick.sample(workers, kills)):
            worker.kill()
        holder.leases.release(KEY, epoch=first.epoch)
        alive = [worker for worker in workers if worker not in killed]
        for worker in alive:
            worker.wait_for("over", seconds=600)
        open_gate(end)
        for worker in alive:
            worker.wait()
        journal = read_journal(space)
    served = [line for worker in alive for line in worker.log() if line["says"] == "served"]
    assert len(served) == len(alive) * rounds
    assert overtaken(journal) == []
    # Where nobody sees it die, the lease may still come to one that was killed in the queue.
    dead = {worker.log()[0]["session"] for worker in killed}
    granted = [event.session for event in journal if event.kind == "lease.claimed"]
    assert len([session for session in granted[1:] if session not in dead]) == len(served)
    # A waiter hears one bell, its own; one that is served before it sleeps hears none.
    herd = [line for line in served if line["wakes"] > 1]
    assert not herd, herd[:5]
    assert sum(line["wakes"] for line in served) > len(served) // 2
    worst = max(line["waited_s"] for line in served)
    database = "postgres" if url.startswith("postgresql") else "sqlite"
    return (
        f"R14 {database}: {CONTENDERS} contenders ({kills} killed in the queue), "
        f"{len(served):,} grants in strict order, 0 overtaken, "
        f"{sum(line['wakes'] for line in served):,} wake-ups, longest wait {worst:.2f} s"
    )


def read_journal(space: dibs.Dibs) -> list[dibs.Event]:
    journal: list[dibs.Event] = []
    while events := space.events.since(journal[-1].seq if journal else 0, subject=KEY):
        journal += events
    return journal


def overtaken(journal: Iterable[Any]) -> list[Any]:
    """Every grant, by the journal, that did not go to the head of the queue."""
    queue: list[int] = []
    wrong = []
    for event in journal:
        if event.kind == "lease.queued":
            queue.append(event.session)
        elif event.kind == "lease.unqueued":
            queue.remove(event.session)
        elif event.kind == "lease.claimed" and queue:
            if event.session != queue[0]:
                wrong.append(event)
            if event.session in queue:
                queue.remove(event.session)
    return wrong


def test_the_comparison_finds_one_who_overtakes() -> None:
    def happened(*events: tuple[str, int]) -> list[Any]:
        return [SimpleNamespace(kind=f"lease.{kind}", session=who) for kind, who in events]

    fair = happened(("claimed", 1), ("queued", 2), ("queued", 3), ("released", 1), ("claimed", 2))
    assert overtaken(fair) == []
    pushed = happened(("claimed", 1), ("queued", 2), ("queued", 3), ("released", 1), ("claimed", 3))
    assert overtaken(pushed) == pushed[-1:]
    newcomer = happened(("claimed", 1), ("queued", 2), ("released", 1), ("claimed", 4))
    assert overtaken(newcomer) == newcomer[-1:]
    after_death = happened(
        ("claimed", 1), ("queued", 2), ("queued", 3), ("unqueued", 2), ("claimed", 3)
    )
    assert overtaken(after_death) == []
