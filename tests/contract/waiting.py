"""Waiting in tests: a clock that can be held, and calls that wait in the background."""

from __future__ import annotations

import contextvars
import mmap
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

import dibs
from dibs.surfaces.http.waits import LoopSleeper
from tests.clock import ManualClock

if TYPE_CHECKING:
    from dibs.storage.clock import Sleeper

PATIENCE_S = 30.0
"""How long a test waits, in real time, for another thread before it gives up."""


class ContractClock(ManualClock):
    """Whoever waits moves it, unless it is held: then waiters really sleep until a bell rings.

    A held clock keeps a waiter in its queue for as long as the test likes, and nobody's time
    runs out meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held = False

    def sleep(self, listener: Sleeper, seconds: float) -> None:
        if self.held:
            listener.wait(seconds)
        else:
            super().sleep(listener, seconds)


class SharedClock(ContractClock):
    """The same clock in the test and in its daemon, by way of a file that both have mapped.

    In the daemon only threads that wait for a caller move it; its other threads really sleep.
    """

    def __init__(self, file: str) -> None:
        with open(file, "a+b") as shared:
            shared.truncate(24)
            self._shared = memoryview(mmap.mmap(shared.fileno(), 24)).cast("q")
        if not self._shared[0]:
            super().__init__()

    @property
    def _now(self) -> int:
        return self._shared[0]

    @_now.setter
    def _now(self, now: int) -> None:
        self._shared[0] = now

    @property
    def wall_offset(self) -> int:
        return self._shared[1]

    @wall_offset.setter
    def wall_offset(self, offset: int) -> None:
        self._shared[1] = offset

    @property
    def held(self) -> bool:
        return bool(self._shared[2])

    @held.setter
    def held(self, held: bool) -> None:
        self._shared[2] = held

    def sleep(self, listener: Sleeper, seconds: float) -> None:
        if threading.current_thread().name == "dibs-wait" or isinstance(listener, LoopSleeper):
            super().sleep(listener, seconds)
        else:
            listener.wait(seconds)


class InterruptedClock(ContractClock):
    """Ctrl-C comes at the moment somebody begins to wait."""

    def sleep(self, listener: Sleeper, seconds: float) -> None:
        raise KeyboardInterrupt


class FrozenClock(ContractClock):
    """Its waiter is frozen in the middle of a wait until the test thaws it."""

    def __init__(self, source: ManualClock, error: type[BaseException] | None = None) -> None:
        super().__init__()
        self._source = source
        self._error = error
        self.frozen = threading.Event()
        self.thawed = threading.Event()

    def now(self) -> int:
        return self._source.now()

    def wall(self) -> int:
        return self._source.wall()

    def sleep(self, listener: Sleeper, seconds: float) -> None:
        self.frozen.set()
        assert self.thawed.wait(PATIENCE_S)
        if self._error is not None:
            raise self._error


class Background:
    """Calls in threads of their own, on a clock that is held while they wait."""

    def __init__(self, clock: ContractClock) -> None:
        self._clock = clock
        self._futures: list[Future[Any]] = []

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        self._clock.held = True
        future: Future[Any] = Future()
        # The thread sees the context of the test, as a thread of the async face does.
        context = contextvars.copy_context()

        def run() -> None:
            try:
                future.set_result(context.run(function, *args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        self._futures.append(future)
        return future

    def queued(self, agent: dibs.Agent, *resources: str, **options: Any) -> Future[Any]:
        """Claim in the background, and come back when the claim is in the queue."""
        before = agent.events.last()
        options = {"wait_s": 86_400, **options}
        future = self(agent.leases.claim, *resources, **options)
        self.until(
            lambda: agent.events.since(before, kind="lease.queued", agent=agent.name), future
        )
        return future

    def until(self, condition: Callable[[], object], future: Future[Any]) -> None:
        """Wait for something that the call in the background is about to do."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "it did not come about"
            if wait([future], timeout=0.002).done and not condition():
                raise AssertionError(f"the call has ended already: {future.result()}")

    def close(self) -> None:
        if any(not future.done() for future in self._futures):
            self._clock.advance(400 * 86_400)  # the time of every wait is over
            self._clock.held = False
        assert not wait(self._futures, timeout=PATIENCE_S).not_done, "a thread still waits"


def eventually(condition: Callable[[], object]) -> None:
    """Wait for something that a thread is about to do by itself."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


def result(future: Future[Any]) -> Any:
    return future.result(PATIENCE_S)
