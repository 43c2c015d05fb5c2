"""The threads that run operations for the event loop.

All writes go through one thread. It is given as many as have come while it was busy, runs them in
one transaction, each in a savepoint of its own, and they are answered after the common commit.
Reads have a thread of their own. A call that waits has one for as long as it waits, except for
claims: hundreds may want the same, so those are queued with the other writes, and the loop waits.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from dibs.aio import in_thread, unless_cancelled
from dibs.errors import BusyError, CancelledError, DibsError
from dibs.nouns.leases.own import HELP_MS
from dibs.nouns.leases.queue import Queued
from dibs.storage.group import Group, GroupingDriver
from dibs.storage.store import NOW_MS
from dibs.storage.waiting import Cancel, HubListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dibs.nouns.leases.queue import Ticket
    from dibs.records import Grant
    from dibs.storage.clock import Clock
    from dibs.storage.store import Store

    Job = Callable[[], Any]

GROUP_LIMIT = 128
READS_LIMIT = 16
"""Fewer reads at once than writes: what they have read is kept until all of them are done."""
WAITS_LIMIT = 4_000
STAND_STILL_S = 0.005
READY_S = 0.8
"""Whoever asks whether we are ready often waits for a second only."""
TRY_EVERY_S = 0.2


class Pending:
    """A job, and what came of it."""

    __slots__ = ("error", "job", "result", "weight")

    def __init__(self, job: Job, weight: int) -> None:
        self.job = job
        self.weight = weight
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

    def __init__(self, job: Job, weight: int, future: asyncio.Future[Any]) -> None:
        super().__init__(job, weight)
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
        """A thread that is given so many jobs at once, or one that is as many by itself."""
        self._loop = loop
        self._at_once = at_once
        self._come: list[Pending] = []
        """What waits until the thread is back."""
        self._busy = False
        self._queue: SimpleQueue[list[Pending] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, job: Job, weight: int = 1) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self.put(Awaited(job, weight, future))
        return future

    def put(self, pending: Pending) -> None:
        if not self._come and not self._busy:
            self._loop.call_soon(self._hand_over)
        self._come.append(pending)

    async def stop(self) -> None:
        """Finish what has come, and end."""
        while self._come or self._busy:
            await asyncio.sleep(0.001)
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _hand_over(self) -> None:
        """Give the thread all that has come by now, at once."""
        number, left = 0, self._at_once
        while number < len(self._come) and (left >= self._come[number].weight or not number):
            left -= self._come[number].weight
            number += 1
        jobs, self._come = self._come[:number], self._come[number:]
        self._busy = True
        self._queue.put(jobs)

    def _back(self, jobs: list[Pending]) -> None:
        """Answer, and only then go on with what has come meanwhile."""
        for pending in jobs:
            pending.settle()
            pending.result = None  # an answer and what it was made of need not be kept together
        self._busy = False
        if self._come:
            self._loop.call_soon(self._hand_over)

    def _run(self) -> None:
        while (jobs := self._queue.get()) is not None:
            self._serve(jobs)
            self._loop.call_soon_threadsafe(self._back, jobs)

    def _serve(self, jobs: list[Pending]) -> None:
        for pending in jobs:
            pending.run()


class Writer(Worker):
    """The thread that makes all writes, and commits many of them at once.

    While it runs its jobs, the loop stands still, for a while at most: both want the interpreter,
    and would take it from each other at every statement. The commit waits for the disk, and the
    loop goes on.
    """

    def __init__(self, driver: GroupingDriver, loop: asyncio.AbstractEventLoop) -> None:
        self._driver = driver
        self.groups = 0
        self.writes = 0
        self.undone: Job = lambda: None
        """Called before the next write, when what was written is undone."""
        # A database elsewhere is waited for without the interpreter.
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
            with Group(self._driver):
                for pending in jobs:
                    pending.run()
                self._ran.release()
        except Exception as error:
            # Whatever they did is undone, so none of them may hear that it was done.
            self.undone()
            for pending in jobs:
                if isinstance(pending.result, Queued):
                    pending.result.ticket.let_go()
                if pending.error is None:
                    pending.error = error


class Readiness:
    """Whether a write can be made now: one is tried, and undone, for all who ask meanwhile."""

    def __init__(self, writer: Writer, store: Store) -> None:
        self._writer = writer
        self._store = store
        self._trying: asyncio.Future[Any] | None = None
        self._begun = 0.0

    def _try(self) -> None:
        with self._store.write(None) as tx:
            tx.discard()

    async def cause(self) -> DibsError | None:
        """Why none can be made, within a moment, however long it takes to find out."""
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
            return None  # another process of this machine has the turn, which is no failure
        if error is not None and not isinstance(error, DibsError):
            raise error
        return error


class Bell:
    """What the loop waits with, and what ends the wait."""

    _seconds = 0.0

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self.called = False

    def __call__(self) -> None:
        """End the wait."""
        self.called = True
        self._rung.set()

    def hear(self, listener: HubListener) -> None:
        def ring() -> None:
            self._loop.call_soon_threadsafe(self._rung.set)

        listener.told = ring
        if listener.wait(0):  # it rang before we could hear it
            self._rung.set()

    def wait(self, seconds: float) -> bool:
        """Note for how long the clock would have us sleep."""
        self._seconds = seconds
        return self._rung.is_set()

    async def sleep(self, clock: Clock, seconds: float) -> None:
        """Let time pass until it is rung, at most so many seconds."""
        clock.sleep(self, seconds)
        timer = self._loop.call_later(self._seconds, self._rung.set)
        await self._rung.wait()
        timer.cancel()
        self._rung.clear()


class Waits:
    """Calls that wait, all of them cancelled at the end."""

    def __init__(self, driver: GroupingDriver, writer: Writer, reader: Worker) -> None:
        self._crowd = driver.crowd
        self._writer, self._reader = writer, reader
        self._running: set[Cancel | Bell] = set()
        self._called: dict[tuple[int, str], Cancel | Bell] = {}

    @property
    def number(self) -> int:
        return len(self._running)

    def cancel(self, call: tuple[int, str]) -> bool:
        """End the wait of that name, if there is one; its caller is told what came of it."""
        found = self._called.get(call)
        if found is not None:
            found()
        return found is not None

    def check(self) -> None:
        """Refuse one more if there are too many."""
        if len(self._running) >= WAITS_LIMIT:
            raise BusyError(f"{WAITS_LIMIT:,} calls are waiting already", next="try again later")

    @contextmanager
    def _under_way(self, cancel: Cancel | Bell, call: tuple[int, str] | None) -> Iterator[None]:
        self._running.add(cancel)
        if call is not None:
            self._called[call] = cancel
        try:
            yield
        finally:
            self._running.discard(cancel)
            if call is not None:
                self._called.pop(call, None)

    async def do(self, job: Job, call: tuple[int, str] | None = None) -> Any:
        """Run a job that may wait in a thread; if the caller is cancelled, so is the wait."""
        self.check()
        cancel = Cancel()

        def work() -> Any:
            self._crowd.add(threading.get_ident())
            try:
                return job()
            finally:
                self._crowd.discard(threading.get_ident())

        with self._under_way(cancel, call):
            return await in_thread(work, cancel)

    async def stand(
        self, claim: asyncio.Future[Any], bell: Bell, call: tuple[int, str] | None
    ) -> Grant:
        """Await a claim that the writer makes, and what its ticket is served if it gets one."""

        async def stand() -> Grant:
            found: Grant | Queued = await claim
            return await self._collect(found.ticket, bell) if isinstance(found, Queued) else found

        with self._under_way(bell, call):
            return await unless_cancelled(asyncio.ensure_future(stand()), bell)

    async def _collect(self, ticket: Ticket, bell: Bell) -> Grant:
        """What `Ticket.collect` does, without a thread that sleeps."""
        try:
            listener = ticket.listener
            assert isinstance(listener, HubListener)
            bell.hear(listener)
            missed = listener.leads
            while True:
                due_in_ms = None
                if missed:
                    grant: Grant | None
                    grant, due_in_ms, more = await self._reader.do(ticket.look)
                    try:
                        grant = (more and await self._writer.do(more)) or grant
                    except BusyError:
                        if grant is not None:
                            raise
                        due_in_ms = HELP_MS
                    if grant is not None:
                        return grant
                missed = True
                if bell.called:
                    raise CancelledError("the wait was cancelled")
                left_s = ticket.left_s
                if not left_s:
                    raise await self._reader.do(ticket.too_late)
                if due_in_ms is not None and (due_in_ms <= NOW_MS or listener.leads):
                    left_s = min(left_s, max(due_in_ms, 1) / 1000)
                clock = ticket.scope.store.clock
                await bell.sleep(clock, min(left_s, listener.patience_s))
        except BaseException:
            await self._writer.do(ticket.withdraw)
            raise
        finally:
            ticket.let_go()

    def stop(self) -> None:
        for cancel in list(self._running):
            cancel()
