"""dibs for asynchronous callers: the same operations, each in a thread of its own.

    from dibs import aio

    async with aio.using(alice.lease("src/a.py", wait_s=60)) as lease:
        messages = await aio.call(alice.messages.inbox, wait_s=60)

The core is synchronous and written once; a wait in it costs a sleeping thread. Cancelling the
task ends a wait. `call` does not undo what was done before the cancellation; `using` does: what
it was granted at that very moment is given back.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from dibs.storage.waiting import CANCEL, Cancel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any, ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")


async def call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Await an operation. What was done before a cancellation stays done."""
    return await in_thread(lambda: function(*args, **kwargs), Cancel())


async def in_thread(job: Callable[[], T], cancel: Cancel) -> T:
    """Await a job that may wait, in a thread of its own; whoever is cancelled cancels the wait."""
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    context.run(CANCEL.set, cancel)
    done: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            result = context.run(job)
        except BaseException as error:
            loop.call_soon_threadsafe(done.set_exception, error)
        else:
            loop.call_soon_threadsafe(done.set_result, result)

    try:
        # Not the loop's own pool: a few waits would fill it, and everybody else would wait for it.
        threading.Thread(target=work, name="dibs-wait", daemon=True).start()
        return await unless_cancelled(done, cancel)
    finally:
        cancel.close()


async def unless_cancelled(done: asyncio.Future[T], cancel: Callable[[], None]) -> T:
    """Await something that is ended by a call; whoever is cancelled ends it, and sees its end."""
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancel()
        while not done.done():
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                continue  # once is enough: it is on its way out
        done.exception()
        raise


async def each(items: Iterator[T]) -> AsyncIterator[T]:
    """Go through what the library gives one by one: `async for task in aio.each(bob.tasks())`."""
    end = object()
    try:
        while (item := await call(next, items, end)) is not end:
            yield item  # type: ignore[misc]
    finally:
        if hasattr(items, "close"):
            await call(items.close)


class using(Generic[T]):
    """Enter and leave a `with` block of the library without blocking the loop."""

    def __init__(self, manager: AbstractContextManager[T]) -> None:
        self._manager = manager
        self._entered = False

    async def __aenter__(self) -> T:
        def enter() -> T:
            value = self._manager.__enter__()
            self._entered = True
            return value

        try:
            return await call(enter)
        except asyncio.CancelledError:
            if self._entered:
                await call(self._manager.__exit__, None, None, None)
            raise

    async def __aexit__(self, *raised: Any) -> None:
        await call(self._manager.__exit__, *raised)
