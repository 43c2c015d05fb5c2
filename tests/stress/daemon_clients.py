"""Processes that work through a daemon: plain HTTP, retries, and idempotency keys.

What they do and how they log it is as in kills.py, so that the same comparison judges it.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import time
from typing import Any

from tests.stress.kills import COUNTERS, LOCKS, TTL_S
from tests.stress.procs import Log, orphaned, wait_at_gate
from tests.surfaces.daemon import Client, Refusal

SESSION_TTL_S = 3_600.0
RETRIED = (OSError, http.client.HTTPException, json.JSONDecodeError)


class Persistent:
    """A client that asks again, with the same key, until it is answered."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._starter = os.getppid()
        self._config = config
        self._client = self._new("")
        self.tries = 0
        joined = self._until_answered("agents.join", {"ttl_s": SESSION_TTL_S})
        self.session: int = joined["session"]["id"]
        self._client.close()
        self._client = self._new(joined["token"])

    def _new(self, session: str) -> Client:
        address = self._config["host"], self._config["port"]
        return Client(address, self._config["token"], self._config["name"], session)

    def __call__(self, operation: str, **given: Any) -> Any:
        if operation != "state.get":
            given["idempotency_key"] = f"{self.session} {random.getrandbits(64):x}"
        return self._until_answered(operation, given)

    def _until_answered(self, operation: str, given: dict[str, Any]) -> Any:
        while not orphaned(self._starter):
            self.tries += 1
            try:
                return self._client(operation, **given)
            except Refusal as refusal:
                if refusal.status != 503:
                    raise
            except RETRIED:
                self._client.close()
            time.sleep(0.02)
        raise SystemExit("the nursery is gone")


class Logged:
    """Makes a call between two lines of the log; refusals are answers too."""

    def __init__(self, log: Log, call: Persistent) -> None:
        self._log = log
        self._call = call
        self._number = 0

    def __call__(self, op: str, key: str, operation: str, given: Any, **about: Any) -> Any:
        self._number += 1
        number = self._number
        self._log.write(says="asks", n=number, op=op, key=key, at=time.monotonic_ns(), **about)
        try:
            answer = self._call(operation, **given)
        except Refusal as refusal:
            at = time.monotonic_ns()
            self._log.write(says="refused", n=number, at=at, code=refusal.code)
            return None
        if op == "claim":
            answer = {"epoch": answer["leases"][0]["epoch"]}
        elif op == "release":
            answer = {}
        kept = {k: answer[k] for k in ("epoch", "version", "id", "state") if k in answer}
        self._log.write(says="done", n=number, at=time.monotonic_ns(), **kept)
        return answer


def toil(config: dict[str, Any], log: Log) -> None:
    starter, pick = os.getppid(), random.Random(config["seed"])
    call = Persistent(config)
    log.write(says="joined", session=call.session)
    logged = Logged(log, call)
    while not orphaned(starter) and not os.path.exists(config["over"]):
        pick.choice((hold, work, count, send))(call, pick, logged, config["name"])
    log.write(says="over", at=time.monotonic_ns(), tries=call.tries)


def hold(call: Persistent, pick: random.Random, logged: Logged, name: str) -> None:
    key = f"lock:{pick.randrange(LOCKS)}"
    grant = logged("claim", key, "leases.claim", {"resources": [key], "ttl_s": TTL_S})
    if grant is not None:
        epoch = grant["epoch"]
        given = {"resources": [key], "epoch": epoch}
        logged("release", key, "leases.release", given, epoch=epoch)


def work(call: Persistent, pick: random.Random, logged: Logged, name: str) -> None:
    # Half of the tasks are wanted by everybody; new ones come up ten times a second.
    key = f"own:{name}:{pick.getrandbits(48)}"
    if pick.random() < 0.5:
        key = f"shared:{time.monotonic_ns() // 100_000_000}:{pick.randrange(4)}"
    task = logged("take", key, "work.claim", {"id": key, "ttl_s": TTL_S})
    if task is not None:
        epoch, result = task["epoch"], pick.getrandbits(48)
        given = {"id": key, "epoch": epoch, "result": result}
        logged("complete", key, "work.complete", given, epoch=epoch, result=result)


def count(call: Persistent, pick: random.Random, logged: Logged, name: str) -> None:
    key, value = f"counter:{pick.randrange(COUNTERS)}", pick.getrandbits(48)
    entry = call("state.get", namespace="stress", key=key)
    version = 0 if entry is None else entry["version"]
    given = {"namespace": "stress", "key": key, "value": value, "expected_version": version}
    logged("set", key, "state.set", given, value=value)


def send(call: Persistent, pick: random.Random, logged: Logged, name: str) -> None:
    body = f"{name} {pick.getrandbits(64)}"
    logged("send", "news", "messages.send", {"body": body, "channel": "news"}, body=body)


def grab(config: dict[str, Any], log: Log) -> None:
    """Try to claim every one of the tasks, in an order of its own; say which were won."""
    pick, call = random.Random(config["seed"]), Persistent(config)
    tasks = [f"task:{number}" for number in range(config["tasks"])]
    pick.shuffle(tasks)
    log.write(says="ready")
    wait_at_gate(config["gate"])
    for task in tasks:
        try:
            won = call("work.claim", id=task, ttl_s=3_600)
        except Refusal as refusal:
            log.write(says="refused", task=task, code=refusal.code)
        else:
            log.write(says="won", task=task, epoch=won["epoch"])
    log.write(says="over")


def stall(config: dict[str, Any], log: Log) -> None:
    """Keep one request half sent and one stream unread, and work besides, until frozen."""
    starter, call = os.getppid(), Persistent(config)
    bare = [http.client.HTTPConnection(config["host"], config["port"]) for _ in range(2)]
    half, stream = bare
    half.putrequest("POST", "/v1/state/set")
    half.putheader("Authorization", f"Bearer {config['token']}")
    half.putheader("Content-Type", "application/json")
    half.putheader("Content-Length", "100")
    half.endheaders(b'{"namespace": ')
    stream.request(
        "GET", "/v1/events?since=0", headers={"Authorization": f"Bearer {config['token']}"}
    )
    call("leases.claim", resources=[f"stalled:{config['name']}"], ttl_s=3_600)
    number = 0
    while not orphaned(starter):
        number += 1
        call("state.set", namespace="stall", key=config["name"], value=number, force=True)
        log.write(says="working")
