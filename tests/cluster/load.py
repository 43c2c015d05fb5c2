"""A client of the cluster: a process that plays on (history.py) whatever happens to the servers.

It opens the space once and never again, so it is dibs that has to find the new leader. What it
does is logged as in the stress tests, and judged by the same checker.

A call whose answer was lost is asked again with the same idempotency key until it is answered;
a client without keys leaves it open, and goes on when the store answers again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import dibs
from dibs.errors import DibsError, NotYoursError, RefusedError, StoreGoneError, UnavailableError
from tests.stress.history import Player, current, perform
from tests.stress.procs import Log

SESSION_TTL_S = 3600.0
PACE_S = 0.01
AGAIN_S = 0.05
LEDGER = "ledger"


class Client(Player):
    times = (3600,)

    def __init__(self, config: dict[str, Any], log: Log) -> None:
        self._keyed = config["keyed"]
        self._key = 0
        self._line = 0
        super().__init__(config, log)

    def _open(self, config: dict[str, Any]) -> dibs.Dibs:
        where = {"space": config["space"], "user_dir": config["user_dir"]}
        if config["token"]:
            where["token"] = config["token"]
        return dibs.open(config["url"], **where)

    def _join(self) -> None:
        self.held = {}
        while True:
            try:
                self.me = self.space.join(self.name, ttl_s=SESSION_TTL_S)
                break
            except UnavailableError as error:
                self._trouble(error)
        self.log.write(says="joined", session=self.me.session, token=self.me.token)

    def _trouble(self, error: DibsError) -> None:
        at = time.monotonic_ns()
        self.log.write(says="trouble", code=error.code, message=error.message, at=at)
        time.sleep(AGAIN_S)

    def _until_answered(self) -> None:
        while True:
            try:
                self.me.events.last()
                return
            except RefusedError as refusal:
                return self._end(refusal)
            except UnavailableError as error:
                self._trouble(error)

    def call(self, agent: dibs.Agent, op: str, key: str, **args: Any) -> dict[str, Any] | None:
        self.number += 1
        number, at = self.number, time.monotonic_ns()
        about = {"op": op, "key": key, "session": agent.session, "args": args}
        self.log.write(says="call", n=number, at=at, **about)
        self._key += 1
        keyed = {"idempotency_key": f"{self.name}-{self._key}"} if self._keyed else {}
        while True:
            try:
                answer = {"ok": True, **perform(agent, op, key, args, **keyed)}
                break
            except RefusedError as refusal:
                answer = {"ok": False, "code": refusal.code, **current(refusal)}
                self._remember_other(key, refusal)
                break
            except StoreGoneError as error:
                self._end(error)
                return None
            except UnavailableError as error:
                self._trouble(error)
                if not self._keyed:
                    self._until_answered()
                    return None
        self.log.write(says="answer", n=number, key=key, at=time.monotonic_ns(), **answer)
        if answer.get("code") == "not_yours" and agent is self.me:
            self._end(NotYoursError("the session has ended"))
        return answer

    def _end(self, error: DibsError) -> None:
        self.log.write(says="ended", message=error.message, at=time.monotonic_ns())
        self._join()

    def write_line(self) -> None:
        """Write an entry that nobody else writes; it must be there at the end."""
        self._line += 1
        key, asked = f"{self.name}-{self._line:06}", self._line
        keyed: dict[str, Any] = {"idempotency_key": f"line-{key}"} if self._keyed else {}
        while True:
            try:
                self.me.state.set(LEDGER, key, asked, expected_version=0, **keyed)
            except StoreGoneError as error:
                return self._end(error)
            except UnavailableError as error:
                self._trouble(error)
                if self._keyed:
                    continue
                return self._until_answered()
            except RefusedError as refusal:
                self.log.write(says="refused", key=key, code=refusal.code, message=refusal.message)
                return self._end(refusal)
            return self.log.write(says="wrote", key=key, value=asked, at=time.monotonic_ns())


def main() -> None:
    config = json.load(sys.stdin)
    client = Client(config, Log(config["log"]))
    client.log.write(says="ready")
    while not os.path.exists(config["end"]) and os.getppid() == config["starter"]:
        if client.pick.random() < 0.5:
            client.play()
        else:
            client.write_line()
        time.sleep(PACE_S)
    client.log.write(says="over")


if __name__ == "__main__":
    main()
