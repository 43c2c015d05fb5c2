"""The workers of R14: contenders that queue for one lease, hold it for a moment, and queue again.

Each counts how often it was woken while it waited: a release that wakes those who get nothing
would show here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import dibs
from tests.stress.procs import Log, wait_at_gate

if TYPE_CHECKING:
    from dibs.storage.driver import Listener

KEY = "lock:wanted"
SESSION_TTL_S = 6.0
"""How long a killed contender can keep the others waiting, where nobody sees it die."""


class Counted:
    """A listener that counts how often a bell ended the sleep."""

    def __init__(self, listener: Listener, wakes: list[float]) -> None:
        self._listener = listener
        self._wakes = wakes
        self.patience_s = listener.patience_s

    @property
    def leads(self) -> bool:
        return self._listener.leads

    def wait(self, seconds: float) -> bool:
        rung = self._listener.wait(seconds)
        if rung:
            self._wakes.append(time.monotonic())
        return rung

    @property
    def given(self) -> Any:
        return self._listener.given

    def close(self) -> None:
        self._listener.close()


def contend(config: dict[str, Any], log: Log) -> None:
    url, space = config["url"], config["space"]
    opened = dibs.open(url, space=space, user_dir=config["user_dir"])
    agent = opened.join(config["name"], ttl_s=SESSION_TTL_S)
    driver: Any = opened.scope.store.driver
    wakes: list[float] = []

    def counted(listen: Any) -> Any:
        def count(topics: tuple[str, ...], cancel: Any) -> Counted | None:
            listener = listen(topics, cancel)
            return None if listener is None else Counted(listener, wakes)

        return count

    driver.listen, driver.listen_soon = counted(driver.listen), counted(driver.listen_soon)
    log.write(says="ready", session=agent.session)
    wait_at_gate(config["start"])
    for _ in range(config["rounds"]):
        wakes.clear()
        asked = time.monotonic()
        grant = agent.leases.claim(KEY, wait_s=120)
        waited = time.monotonic() - asked
        log.write(says="served", epoch=grant.epoch, wakes=len(wakes), waited_s=waited)
        time.sleep(config["hold_s"])
        agent.leases.release(KEY, epoch=grant.epoch)
    log.write(says="over")
    wait_at_gate(config["end"])
