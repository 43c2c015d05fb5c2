"""The workers of R3: holders that are frozen past their time, and those who take over.

A holder claims leases and tasks for one second, says so, and is frozen by the test while it
waits for its name to be called. When it is thawed it does not know that time has passed, and goes
on with the epochs it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dibs
from dibs.errors import RefusedError
from tests.stress.procs import Log, wait_at_gate

TTL_S = 1.0
SESSION_TTL_S = 3600.0
"""Long, so that no beat is under way when the process is frozen: that is another test."""


def join(config: dict[str, Any]) -> dibs.Agent:
    url, space = config["url"], config["space"]
    opened = dibs.open(url, space=space, user_dir=config["user_dir"])
    return opened.join(config["name"], ttl_s=SESSION_TTL_S)


def holder(config: dict[str, Any], log: Log) -> None:
    agent, gates = join(config), config["gates"]
    log.write(says="joined")
    for number in range(config["rounds"]):
        pairs = [f"{config['name']}:{number}:{pair}" for pair in range(config["pairs"])]
        wait_at_gate(f"{gates}/claim-{number}")
        leases = {name: agent.leases.claim(f"lock:{name}", ttl_s=TTL_S).epoch for name in pairs}
        tasks = {name: agent.work.claim(f"task:{name}", ttl_s=TTL_S).epoch for name in pairs}
        log.write(says="holding", leases=leases, tasks=tasks)
        wait_at_gate(f"{gates}/act-{number}")
        for name in pairs:
            tried, accepted = act_as_zombie(agent, name, leases[name], tasks[name])
            log.write(says="acted", name=name, tried=tried, accepted=accepted)
        log.write(says="round over")
    agent.close()


def act_as_zombie(
    agent: dibs.Agent, name: str, lease: int, task: int | None
) -> tuple[int, list[str]]:
    """Everything a holder may do with its epoch; return what the store let it do."""
    lock, id = f"lock:{name}", f"task:{name}"
    entry = {"namespace": "zombies", "key": name, "value": "written by a zombie", "force": True}
    attempts: dict[str, Callable[[], object]] = {
        "renew the lease": lambda: agent.leases.renew(lock, epoch=lease),
        "renew the lease without an epoch": lambda: agent.leases.renew(lock),
        "release the lease": lambda: agent.leases.release(lock, epoch=lease),
        "release the lease without an epoch": lambda: agent.leases.release(lock),
        "renew the task": lambda: agent.work.renew(id, epoch=task),
        "fail the task": lambda: agent.work.fail(id, epoch=task),
        "abandon the task": lambda: agent.work.abandon(id, epoch=task),
        "complete the task": lambda: agent.work.complete(id, epoch=task, result="zombie"),
        "complete without an epoch": lambda: agent.work.complete(id, result="zombie"),
        "write an entry with the task": lambda: agent.work.complete(id, epoch=task, entry=entry),
    }
    accepted = []
    for what, attempt in attempts.items():
        try:
            attempt()
        except RefusedError:
            continue
        accepted.append(what)
    return len(attempts), accepted


def taker(config: dict[str, Any], log: Log) -> None:
    """Take over everything that was held, keep half of it, and give the other half back."""
    agent = join(config)
    for name in config["names"]:
        lease = agent.leases.claim(f"lock:{name}", wait_s=5)
        task = agent.work.claim(f"task:{name}")
        log.write(says="took", name=name, lease=lease.epoch, task=task.epoch)
    for name in config["names"][::2]:
        agent.leases.release(f"lock:{name}")
        agent.work.abandon(f"task:{name}")
    log.write(says="done")
    wait_at_gate(config["until"])
    for name in config["names"][1::2]:
        agent.leases.release(f"lock:{name}")
        agent.work.complete(f"task:{name}", result="taker")
    agent.close()
