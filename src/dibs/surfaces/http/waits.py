"""Waiting calls, which the daemon cancels when it stops.

Each has a thread while it waits, except claims. Hundreds may want the same lease, so claims are
queued with the other writes, and the loop waits for their tickets.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dibs.aio import in_thread, unless_cancelled
from dibs.errors import BusyError, CancelledError
from dibs.nouns.leases.own import HELP_MS
from dibs.nouns.leases.queue import Queued
from dibs.storage.store import NOW_MS
from dibs.storage.waiting import Cancel, HubListener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.nouns.leases.queue import Ticket
    from dibs.records import Grant
    from dibs.storage.clock import Clock
    from dibs.storage.group import GroupingDriver
    from dibs.surfaces.http.worker import Job, Worker, Writer

WAITS_LIMIT = 4_000


class LoopSleeper:
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
        if listener.wait(0):  # it rang before we listened
            self._rung.set()

    def wait(self, seconds: float) -> bool:
        """Note how long to sleep according to the clock."""
        self._seconds = seconds
        return self._rung.is_set()

    async def sleep(self, clock: Clock, seconds: float) -> None:
        """Wait until it rings, at most so many seconds."""
        clock.sleep(self, seconds)
        timer = self._loop.call_later(self._seconds, self._rung.set)
        await self._rung.wait()
        timer.cancel()
        self._rung.clear()


class Waits:
    """Waiting calls, all cancelled at the end."""

    def __init__(self, driver: GroupingDriver, writer: Writer, reader: Worker) -> None:
        self._crowd = driver.crowd
        self._writer, self._reader = writer, reader
        self._running: set[Cancel | LoopSleeper] = set()
        self._called: dict[tuple[int, str], Cancel | LoopSleeper] = {}

    @property
    def number(self) -> int:
        return len(self._running)

    def cancel(self, call: tuple[int, str]) -> bool:
        """End the wait with that name, if there is one; its caller gets its answer."""
        found = self._called.get(call)
        if found is not None:
            found()
        return found is not None

    def check(self) -> None:
        """Refuse one more if there are too many."""
        if len(self._running) >= WAITS_LIMIT:
            raise BusyError(f"{WAITS_LIMIT:,} calls are already waiting", next="try again later")

    @contextmanager
    def _under_way(
        self, cancel: Cancel | LoopSleeper, call: tuple[int, str] | None
    ) -> Iterator[None]:
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
        self, claim: asyncio.Future[Any], sleeper: LoopSleeper, call: tuple[int, str] | None
    ) -> Grant:
        """Await a claim that the writer makes, and its ticket if it gets one."""

        async def stand() -> Grant:
            found: Grant | Queued = await claim
            return (
                await self._collect(found.ticket, sleeper) if isinstance(found, Queued) else found
            )

        with self._under_way(sleeper, call):
            return await unless_cancelled(asyncio.ensure_future(stand()), sleeper)

    async def _collect(self, ticket: Ticket, sleeper: LoopSleeper) -> Grant:
        """What `Ticket.collect` does, without a thread that sleeps."""
        try:
            listener = ticket.listener
            assert isinstance(listener, HubListener)
            sleeper.hear(listener)
            missed = listener.leads
            while True:
                due_in_ms = None
                if missed:
                    grant: Grant | None
                    grant, due_in_ms, more = ticket.brought() or await self._reader.do(ticket.look)
                    try:
                        grant = (more and await self._writer.do(more)) or grant
                    except BusyError:
                        if grant is not None:
                            raise
                        due_in_ms = HELP_MS
                    if grant is not None:
                        return grant
                missed = True
                if sleeper.called:
                    raise CancelledError("the wait was cancelled")
                left_s = ticket.left_s
                if not left_s:
                    raise await self._reader.do(ticket.too_late)
                if due_in_ms is not None and (due_in_ms <= NOW_MS or listener.leads):
                    left_s = min(left_s, max(due_in_ms, 1) / 1000)
                clock = ticket.scope.store.clock
                await sleeper.sleep(clock, min(left_s, listener.patience_s))
        except BaseException:
            await self._writer.do(ticket.withdraw)
            raise
        finally:
            ticket.let_go()

    def stop(self) -> None:
        for cancel in list(self._running):
            cancel()
