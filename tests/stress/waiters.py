"""The workers of R23: many who wait for one lease, and one agent who wants something else."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import dibs
from tests.stress.procs import Log, wait_at_gate

KEY = "lock:wanted"
OTHER = "lock:other"
STACK_BYTES = 256 * 1024
PAUSE_S = 0.005


def wait(config: dict[str, Any], log: Log) -> None:
    """Let many threads wait for the lease; each releases it as soon as it has it."""
    threading.stack_size(STACK_BYTES)
    opened = dibs.open(config["url"], space=config["space"], user_dir=config["user_dir"])
    number: int = config["waiters"]
    agents = [opened.join(f"{config['name']}-{one}", ttl_s=60) for one in range(number)]
    gate = threading.Event()

    def claim(agent: dibs.Agent) -> None:
        gate.wait()
        try:
            grant = agent.leases.claim(KEY, wait_s=config["wait_s"])
            agent.leases.release(KEY, epoch=grant.epoch)
        except dibs.DibsError as error:
            log.write(says="failed", error=repr(error))

    threads = [threading.Thread(target=claim, args=(agent,), daemon=True) for agent in agents]
    for thread in threads:
        thread.start()
    log.write(says="ready")
    wait_at_gate(config["start"])
    log.write(says="started", at=time.time(), cpu=time.process_time())
    gate.set()
    wait_at_gate(config["queued"])
    log.write(says="idle", cpu=time.process_time())
    time.sleep(config["idle_s"])
    log.write(says="idle", cpu=time.process_time())
    for thread in threads:
        thread.join()
    log.write(says="over", cpu=time.process_time())
    wait_at_gate(config["end"])


def claim_another(config: dict[str, Any], log: Log) -> None:
    """Claim and release something that nobody else wants, and say how long each claim took.

    Every second claim would wait, if it had to: it must not stand behind those who really do.
    """
    opened = dibs.open(config["url"], space=config["space"], user_dir=config["user_dir"])
    agent = opened.join("other")
    log.write(says="ready")
    for phase in config["phases"]:
        took: list[list[float]] = []
        wait_at_gate(phase["begin"])
        while not took or not Path(phase["end"]).exists():
            pair = []
            for wait_s in (0, 5):
                began = time.perf_counter()
                agent.leases.claim(OTHER, wait_s=wait_s)
                pair.append((time.perf_counter() - began) * 1000)
                agent.leases.release(OTHER)
                time.sleep(PAUSE_S)
            took.append(pair)
        log.write(says=phase["name"], took=took)
    wait_at_gate(config["end"])
