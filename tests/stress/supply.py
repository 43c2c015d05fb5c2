"""The workers of the supply tests: they take what fits, and say when nothing did."""

from __future__ import annotations

import random
import time
from typing import Any

from dibs.errors import AllDoneError, LaterError
from tests.stress.procs import Log
from tests.stress.races import join

WORK_S = 0.004
PATIENCE_S = 5.0


def by_next(config: dict[str, Any], log: Log) -> None:
    """Work on one task after the other until all are done."""
    agent, chance, wait_s = join(config, log), random.Random(config["seed"]), 0.0
    while True:
        try:
            task = agent.work.next(wait_s=wait_s)
        except LaterError as later:
            log.write(says="idle", seq=later.details["seq"])
            wait_s = PATIENCE_S
            continue
        except AllDoneError:
            return
        wait_s = 0.0
        time.sleep(chance.random() * WORK_S)
        agent.work.complete(task.id, epoch=task.epoch)
        log.write(says="done", id=task.id)


def waits(config: dict[str, Any], log: Log) -> None:
    """Wait for one task after the other, and say when it was heard of."""
    agent = join(config, log)
    for id in config["ids"]:
        log.write(says="waits", id=id)
        agent.work.wait(id, wait_s=60)
        log.write(says="woken", id=id, ns=time.monotonic_ns())
