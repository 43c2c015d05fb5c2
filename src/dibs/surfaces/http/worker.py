"""The threads that run operations for the event loop.

All writes go through one thread. It takes all that have arrived while it was busy, and runs them in
one transaction, each in its own savepoint. They are answered after the common commit. Reads have
their own thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from dibs.errors import BusyError, DibsError
from dibs.nouns.leases.queue import Queued
from dibs.storage.group import Group, GroupingDriver

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.storage.store import Store

    Job = Callable[[], Any]

GROUP_LIMIT = 128
CROWDS_LIMIT = 4
"""How many crowds are served at once, with one call each: others must wait for these calls."""
READS_LIMIT = 16
"""Fewer reads at once than writes: their results are kept until all of them are done."""
STAND_STILL_S = 0.005
READY_S = 0.8
"""Readiness probes often wait for one second only."""
TRY_EVERY_S = 0.2


class Pending:
    """A job and its result."""

    __slots__ = ("crowd", "error", "job", "result", "weight")

    def __init__(self, job: Job, weight: int, crowd: str = "") -> None:
        """A job with a weight.

        crowd: a name for all jobs that may wait for the same thing; it queues behind them
        """
        self.job = job
        self.weight = weight
        self.crowd = crowd
        self.result: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.result = self.job()
        except Exception as error:
            self.error = error

    def settle(self) -> None:
        """Called in the loop once it is done."""
        raise NotImplementedError


class Awaited(Pending):
    """A job that somebody awaits."""

    __slots__ = ("future",)

    def __init__(self, job: Job, weight: int, crowd: str, future: asyncio.Future[Any]) -> None:
        super().__init__(job, weight, crowd)
        self.future = future

    def settle(self) -> None:
        if self.future.cancelled():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Worker:
    """One thread that runs jobs in the order they came."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, at_once: int) -> None:
        """A thread that takes jobs up to a total weight at once, or one heavier job alone."""
        self._loop = loop
        self._at_once = at_once
        self._come: list[Pending] = []
        """Jobs that wait until the thread is free."""
        self._crowds: dict[str, deque[Pending]] = {}
        """The same for jobs that may come by the hundred, by what they may wait for."""
        self._crowds_next = False
        self._kept = False
        """Whether another process held the turn during the last jobs: then all that have arrived
        wait for it together."""
        self._busy = False
        self._queue: SimpleQueue[list[Pending] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, job: Job, weight: int = 1, crowd: str = "") -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self.put(Awaited(job, weight, crowd, future))
        return future

    def put(self, pending: Pending) -> None:
        if not self._come and not self._crowds and not self._busy:
            self._loop.call_soon(self._hand_over)
        if pending.crowd:
            self._crowds.setdefault(pending.crowd, deque()).append(pending)
        else:
            self._come.append(pending)

    async def stop(self) -> None:
        """Finish what has arrived, and end."""
        while self._come or self._crowds or self._busy:
            await asyncio.sleep(0.001)
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _hand_over(self) -> None:
        """Give the thread everything that has arrived, alternating with one job of each crowd."""
        self._busy = True
        if self._kept:
            self._queue.put([*self._all(), *self._few(self._at_once)])
            return
        self._crowds_next = bool(self._crowds) and (self._crowds_next or not self._come)
        few = min(len(self._crowds), CROWDS_LIMIT)
        self._queue.put(self._few(few) if self._crowds_next else self._all())
        self._crowds_next = not self._crowds_next

    def _few(self, enough: int) -> list[Pending]:
        """The first of each crowd, then the second, until there are enough."""
        jobs: list[Pending] = []
        while self._crowds and len(jobs) < enough:
            what = next(iter(self._crowds))
            crowd = self._crowds.pop(what)
            jobs.append(crowd.popleft())
            if crowd:
                self._crowds[what] = crowd
        return jobs

    def _all(self) -> list[Pending]:
        """What has arrived, as much as one turn can do."""
        number, left = 0, self._at_once
        while number < len(self._come) and (left >= self._come[number].weight or not number):
            left -= self._come[number].weight
            number += 1
        jobs, self._come = self._come[:number], self._come[number:]
        return jobs

    def _back(self, jobs: list[Pending]) -> None:
        """Answer, and only then continue with what has arrived meanwhile."""
        for pending in jobs:
            pending.settle()
            pending.result = None  # the answer is kept, so its source need not be
        self._busy = False
        if self._come or self._crowds:
            self._loop.call_soon(self._hand_over)

    def _run(self) -> None:
        while (jobs := self._queue.get()) is not None:
            self._serve(jobs)
            self._loop.call_soon_threadsafe(self._back, jobs)

    def _serve(self, jobs: list[Pending]) -> None:
        for pending in jobs:
            pending.run()


class Writer(Worker):
    """The thread that does all writes, and commits many of them at once.

    While it runs its jobs, the loop pauses for a limited time: both need the interpreter, and would
    take it from each other at every statement. During the commit, which waits for the disk, the
    loop continues.
    """

    def __init__(self, driver: GroupingDriver, loop: asyncio.AbstractEventLoop) -> None:
        self._driver = driver
        self.groups = 0
        self.writes = 0
        self.undone: Job = lambda: None
        """Called before the next write if what was written is undone."""
        # Waiting for a database elsewhere does not need the interpreter.
        self._stand_still_s = STAND_STILL_S if driver.liveness is not None else 0.0
        self._ran = threading.Lock()
        super().__init__("dibs-writer", loop, GROUP_LIMIT)

    def _hand_over(self) -> None:
        self._ran = ran = threading.Lock()
        ran.acquire()
        super()._hand_over()
        ran.acquire(timeout=self._stand_still_s)

    def _serve(self, jobs: list[Pending]) -> None:
        self.groups += 1
        self.writes += len(jobs)
        try:
            with Group(self._driver) as group:
                for pending in jobs:
                    pending.run()
                self._ran.release()
                self._kept = group.kept is not None
        except Exception as error:
            # All writes are undone, so no caller may be told that it succeeded.
            self.undone()
            for pending in jobs:
                if isinstance(pending.result, Queued):
                    pending.result.ticket.let_go()
                if pending.error is None:
                    pending.error = error


class Readiness:
    """Whether the store can be written: one write is tried and undone, for all who ask."""

    def __init__(self, writer: Writer, store: Store) -> None:
        self._writer = writer
        self._store = store
        self._trying: asyncio.Future[Any] | None = None
        self._begun = 0.0

    def _try(self) -> None:
        with self._store.write(None) as tx:
            tx.discard()

    async def cause(self) -> DibsError | None:
        """Why it cannot be written; the answer comes quickly, however long the check takes."""
        now = asyncio.get_running_loop().time()
        trying = self._trying
        if trying is None or (trying.done() and now - self._begun > TRY_EVERY_S):
            self._begun, self._trying = now, self._writer.do(self._try)
            trying = self._trying
        await asyncio.wait([trying], timeout=READY_S)
        error: BaseException | None
        if trying.done():
            error = trying.exception()
        else:
            error = BusyError("the writer has not answered yet", next="try again", cause="writer")
        if isinstance(error, BusyError) and self._store.liveness is not None:
            return None  # another process on this machine has the turn, which is no failure
        if error is not None and not isinstance(error, DibsError):
            raise error
        return error
