"""The workers of R1: they claim, complete, set and send until somebody kills them.

Each call is logged before it is made and after it was answered. What was answered with success
must stay in the store, whatever happened to the process that asked.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

import dibs
from dibs.errors import BusyError, RefusedError
from tests.stress.procs import Log, orphaned

LOCKS, COUNTERS = 12, 4
TTL_S = 3.0
"""Where nobody sees a process die, the next one waits this long; so it is short."""


class Logged:
    """Makes a call between two lines of the log; refusals are answers too."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._number = 0

    def __call__(self, op: str, key: str, call: Any, **about: Any) -> Any:
        self._number += 1
        number = self._number
        self._log.write(says="asks", n=number, op=op, key=key, at=time.monotonic_ns(), **about)
        try:
            answer = call()
        except (RefusedError, BusyError) as refusal:
            at = time.monotonic_ns()
            self._log.write(says="refused", n=number, at=at, code=refusal.code)
            return None
        self._log.write(says="done", n=number, at=time.monotonic_ns(), **kept(answer))
        return answer


def kept(answer: Any) -> dict[str, Any]:
    """What of an answer the store must still know later."""
    names = ("epoch", "version", "id", "state")
    return {name: getattr(answer, name) for name in names if hasattr(answer, name)}


def toil(config: dict[str, Any], log: Log) -> None:
    starter, pick = os.getppid(), random.Random(config["seed"])
    space = dibs.open(config["url"], space=config["space"], user_dir=config["user_dir"])
    agent = space.join(config["name"])
    log.write(says="joined", session=agent.session)
    logged = Logged(log)
    jobs = (hold, work, count, send)
    while not orphaned(starter):
        pick.choice(jobs)(agent, pick, logged, config["name"])


def hold(agent: dibs.Agent, pick: random.Random, logged: Logged, name: str) -> None:
    key = f"lock:{pick.randrange(LOCKS)}"
    grant = logged("claim", key, lambda: agent.leases.claim(key, ttl_s=TTL_S))
    if grant is not None:
        time.sleep(pick.random() * 0.004)
        epoch = grant.epoch
        logged("release", key, lambda: agent.leases.release(key, epoch=epoch), epoch=epoch)


def work(agent: dibs.Agent, pick: random.Random, logged: Logged, name: str) -> None:
    # Half of the tasks are wanted by everybody; new ones come up ten times a second.
    key = f"own:{name}:{pick.getrandbits(48)}"
    if pick.random() < 0.5:
        key = f"shared:{time.monotonic_ns() // 100_000_000}:{pick.randrange(4)}"
    task = logged("take", key, lambda: agent.work.claim(key, ttl_s=TTL_S))
    if task is not None:
        result = pick.getrandbits(48)
        logged(
            "complete",
            key,
            lambda: agent.work.complete(key, epoch=task.epoch, result=result),
            epoch=task.epoch,
            result=result,
        )


def count(agent: dibs.Agent, pick: random.Random, logged: Logged, name: str) -> None:
    key, value = f"counter:{pick.randrange(COUNTERS)}", pick.getrandbits(48)
    entry = agent.state.get("stress", key)
    version = 0 if entry is None else entry.version
    logged(
        "set",
        key,
        lambda: agent.state.set("stress", key, value, expected_version=version),
        value=value,
    )


def send(agent: dibs.Agent, pick: random.Random, logged: Logged, name: str) -> None:
    body = f"{name} {pick.getrandbits(64)}"
    logged("send", "news", lambda: agent.messages.send(body, channel="news"), body=body)


def contents(config: dict[str, Any], log: Log) -> None:
    """Say, in a process that has never written, what the store holds and whether it is whole."""
    with dibs.open(config["url"], space=config["space"], user_dir=config["user_dir"]) as space:
        if config["sqlite"]:
            connection = space.scope.store.driver.take()
            log.write(says="integrity", answer=connection.db.pragma("integrity_check"))
        log.write(says="mismatches", number=len(space.agents.verify()))
        seq = 0
        while events := space.events.since(seq):
            seq = events[-1].seq
            for event in events:
                log.write(
                    says="event",
                    kind=event.kind,
                    session=event.session,
                    subject=event.subject,
                    data=event.data,
                )
                if event.kind == "task.added":
                    task = space.work.show(event.subject)
                    log.write(says="task", id=task.id, state=task.state, result=task.result)
        for number in range(COUNTERS):
            key, newest = f"counter:{number}", 2**62
            while versions := space.state.history("stress", key, before=newest, limit=1000):
                newest = versions[-1].version
                for entry in versions:
                    log.write(says="version", key=key, version=entry.version, value=entry.value)
        oldest = 2**62
        while messages := space.messages.history(channel="news", before=oldest, limit=1000):
            oldest = messages[-1].id
            for message in messages:
                log.write(says="message", id=message.id, body=message.body)
