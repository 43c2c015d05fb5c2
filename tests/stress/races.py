"""The workers of the races: they all begin at the same moment, and each says what it won."""

from __future__ import annotations

import random
import time
from typing import Any

import dibs
from dibs.errors import EmptyError, HeldError, StateError
from tests.stress.procs import NS, Log, until, wait_at_gate

APART_NS = NS // 50


def join(config: dict[str, Any], log: Log) -> dibs.Agent:
    url, space = config["url"], config["space"]
    opened = dibs.open(url, space=space, user_dir=config["user_dir"])
    agent = opened.join(config["name"])
    log.write(says="ready", session=agent.session)
    until(int(wait_at_gate(config["start"])))
    return agent


def for_leases(config: dict[str, Any], log: Log) -> None:
    """Reach for each lease at its moment, and keep what was won."""
    agent = join(config, log)
    begin_ns = time.monotonic_ns()
    for number in range(config["races"]):
        until(begin_ns + number * APART_NS)
        try:
            epoch = agent.leases.claim(f"lock:{number}").epoch
        except HeldError as refusal:
            log.write(says="lost", key=number, to=refusal.blockers[0].session)
        else:
            log.write(says="won", key=number, epoch=epoch)
    log.write(says="over")
    wait_at_gate(config["end"])


def by_id(config: dict[str, Any], log: Log) -> None:
    """Reach for every task, each worker in an order of its own."""
    agent, ids = join(config, log), list(config["ids"])
    random.Random(config["seed"]).shuffle(ids)
    for id in ids:
        try:
            epoch = agent.work.claim(id).epoch
        except (HeldError, StateError):
            log.write(says="lost", key=id)
        else:
            log.write(says="won", key=id, epoch=epoch)
            agent.work.complete(id, epoch=epoch)


def by_next(config: dict[str, Any], log: Log) -> None:
    """Take the next task until there is none."""
    agent = join(config, log)
    while True:
        try:
            task = agent.work.next()
        except EmptyError:
            return
        log.write(says="won", key=task.id, epoch=task.epoch)
        agent.work.complete(task.id, epoch=task.epoch)
