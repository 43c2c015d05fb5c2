"""dibs for asynchronous code: the same operations, awaited.

    from dibs import aio

    async with aio.open() as space, space.join("alice") as alice:
        async with alice.lease("src/a.py", wait_s=60) as lease:
            messages = await alice.messages.inbox(wait_s=60)

The core is synchronous and written once. Every call runs in a thread of its own, so nothing blocks
the loop: no wait, no write, no renewal.

Cancelling a task ends its wait and leaves its queue. If a lease or a task was granted at that very
moment, it is given back. Anything else that was done before the cancellation stays done.

`AsyncDibs` and `AsyncAgent` are made from `Dibs` and `Agent`, and their nouns from the registry of
operations. `call`, `using` and `each` do the same for the objects of the synchronous library.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from functools import wraps
from typing import TYPE_CHECKING, Generic, TypeVar

from dibs import dibs
from dibs.dibs import Agent, Dibs
from dibs.errors import DibsError
from dibs.operation import NOUNS
from dibs.storage.waiting import CANCEL, Cancel

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager
    from typing import Any, Concatenate, ParamSpec, Self

    from dibs.aio_nouns import (
        AsyncAgents,
        AsyncEvents,
        AsyncLeases,
        AsyncMessages,
        AsyncState,
        AsyncWork,
    )
    from dibs.keeping import Held, HeldLease, HeldTask
    from dibs.records import Grant, Task

    P = ParamSpec("P")
    S = TypeVar("S", bound=Dibs)
    R = TypeVar("R")

T = TypeVar("T")
A = TypeVar("A", bound="AsyncDibs")


async def call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Await a synchronous operation. What was done before a cancellation stays done."""
    return await in_thread(lambda: function(*args, **kwargs), Cancel())


async def call_or_undo(function: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Await a synchronous operation. If its caller is cancelled, undo what it has done."""
    done: list[T] = []

    def work() -> T:
        done.append(function())
        return done[0]

    try:
        return await call(work)
    except asyncio.CancelledError:
        for result in done:
            try:
                await call(undo, result)
            except DibsError:
                continue  # it was lost already, or the store is away and it expires
        raise


async def in_thread(job: Callable[[], T], cancel: Cancel) -> T:
    """Await a job that may wait, in its own thread. Cancelling the task cancels the wait."""
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
        # Not the loop's own pool: a few waits would fill it, and everything else would queue.
        threading.Thread(target=work, name="dibs-wait", daemon=True).start()
        return await unless_cancelled(done, cancel)
    finally:
        cancel.close()


async def unless_cancelled(done: asyncio.Future[T], cancel: Callable[[], None]) -> T:
    """Await a future. If the task is cancelled, call `cancel` and wait until the future is done."""
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancel()
        while not done.done():
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                continue  # it is being cancelled already
        done.exception()
        raise


class using(Generic[T]):
    """Enter and leave a `with` block of the library without blocking the loop."""

    def __init__(self, manager: AbstractContextManager[T]) -> None:
        self._manager = manager

    async def __aenter__(self) -> T:
        return await call_or_undo(self._manager.__enter__, self._leave)

    def _leave(self, _: T) -> None:
        # With an error: a block that never ran must not count as a success.
        self._manager.__exit__(asyncio.CancelledError, asyncio.CancelledError(), None)

    async def __aexit__(self, *raised: Any) -> None:
        await call(self._manager.__exit__, *raised)


class each(Generic[T]):
    """Iterate without blocking the loop: `async for task in aio.each(bob.tasks())`.

    An iterator that is dropped early is closed in a thread, so `break` needs no more than that.
    To wait until it is closed, use `contextlib.aclosing`.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._open = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        end = object()
        try:
            item = await call(next, self._items, end)
        except asyncio.CancelledError as cancelled:
            await call(self._throw, cancelled)
            raise
        except BaseException:
            self._open = False  # it has ended with this error
            raise
        if item is end:
            self._open = False
            raise StopAsyncIteration
        return item  # type: ignore[return-value]

    def _throw(self, error: BaseException) -> None:
        """Tell a generator that nobody takes what it has just given."""
        self._open = False
        if hasattr(self._items, "throw"):
            try:
                self._items.throw(error)
            except BaseException:
                return  # the same error, once the generator has cleaned up

    def _close(self) -> None:
        self._open = False
        if hasattr(self._items, "close"):
            self._items.close()

    async def aclose(self) -> None:
        """Close the iterator; for tasks, this fails the one that was left early."""
        await call(self._close)

    def __del__(self) -> None:
        if self._open:
            try:
                threading.Thread(target=self._close, name="dibs-close").start()
            except RuntimeError:
                return  # the interpreter is shutting down, and the session ends with it


def wrapping(
    method: Callable[Concatenate[S, P], R], wrap: Callable[[R], T]
) -> Callable[Concatenate[AsyncDibs, P], T]:
    """A method of the synchronous class that returns at once, with its answer wrapped."""

    @wraps(method)
    def wrapped(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return wrap(method(self.sync, *args, **kwargs))

    return wrapped  # type: ignore[return-value]


def opening(
    method: Callable[Concatenate[S, P], Agent],
) -> Callable[Concatenate[AsyncDibs, P], Opening[AsyncAgent]]:
    """A method of the synchronous class that begins a session."""

    @wraps(method)
    def opened(self: Any, *args: P.args, **kwargs: P.kwargs) -> Opening[AsyncAgent]:
        return Opening(lambda: AsyncAgent(method(self.sync, *args, **kwargs)))

    return opened  # type: ignore[return-value]


class Opening(Generic[A]):
    """A space or a session that is about to be opened: await it, or enter it with `async with`."""

    def __init__(self, make: Callable[[], A]) -> None:
        self._make = make

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise AttributeError(
                f"{name!r} is available once this is open: await it, or use `async with`"
            )

    async def _open(self) -> A:
        return await call_or_undo(self._make, lambda made: made.sync.close())

    def __await__(self) -> Generator[Any, None, A]:
        return self._open().__await__()

    async def __aenter__(self) -> A:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *raised: Any) -> None:
        await self._opened.__aexit__(*raised)


class AsyncDibs:
    """A `Dibs` for asynchronous code; `aio.open` makes one. `sync` is the `Dibs` behind it."""

    leases: AsyncLeases
    work: AsyncWork
    messages: AsyncMessages
    state: AsyncState
    agents: AsyncAgents
    events: AsyncEvents

    def __init__(self, sync: Dibs) -> None:
        self.sync = sync

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name not in NOUNS:
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            from dibs import aio_nouns

            noun = getattr(aio_nouns, f"Async{name.capitalize()}")(getattr(self.sync, name))
            setattr(self, name, noun)
            return noun

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *NOUNS})

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"

    @property
    def space(self) -> str:
        """The name of the space."""
        return self.sync.space

    join = opening(Dibs.join)
    resume = opening(Dibs.resume)

    async def find(self, name: str, *, client: str | None = None) -> AsyncAgent | None:
        """Act in the shell session of an agent, or in that of a client; None if there is none."""
        found = await call(self.sync.find, name, client=client)
        return None if found is None else AsyncAgent(found)

    async def backup(self, path: str) -> None:
        """Copy the store and its key to a new path, while others use the store."""
        await call(self.sync.backup, path)

    async def close(self) -> None:
        """Close the space, or end the session."""
        await call(self.sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await call(self.sync.__exit__, *raised)


class AsyncHeld:
    """Something that is renewed while an `async with` block runs."""

    def __init__(self, sync: Held) -> None:
        self._held = sync

    def __repr__(self) -> str:
        return f"<Async{repr(self._held)[1:]}"

    @property
    def lost(self) -> DibsError | None:
        """Why it was lost, or None. The clock decides even if the store does not answer."""
        return self._held.lost

    @property
    def left_s(self) -> float:
        """How many seconds nobody else can have it, even if the store stops answering."""
        return self._held.left_s

    async def check(self) -> None:
        """Renew it now, and raise if it was lost or may be lost."""
        await call(self._held.check)


class AsyncHeldLease(AsyncHeld):
    """Resources held for the length of an `async with` block."""

    def __init__(self, sync: HeldLease) -> None:
        super().__init__(sync)
        self.sync = sync

    @property
    def grant(self) -> Grant:
        """What was granted."""
        return self.sync.grant

    @property
    def epoch(self) -> int:
        """The fencing token. Pass it on to whatever this lease protects."""
        return self.sync.epoch

    async def __aenter__(self) -> Self:
        await using(self.sync).__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await using(self.sync).__aexit__(*raised)


class AsyncHeldTask(AsyncHeld):
    """A task held for the length of an `async with` block, and completed with `result`."""

    def __init__(self, sync: HeldTask) -> None:
        super().__init__(sync)
        self.sync = sync
        self.fail, self.abandon, self.hand_in = sync.fail, sync.abandon, sync.hand_in

    @property
    def task(self) -> Task:
        """The record of the task."""
        return self.sync.task

    @property
    def id(self) -> str:
        return self.sync.id

    @property
    def title(self) -> str:
        return self.sync.title

    @property
    def payload(self) -> Any:
        return self.sync.payload

    @property
    def result(self) -> Any:
        """What the task is completed with."""
        return self.sync.result

    @result.setter
    def result(self, value: Any) -> None:
        self.sync.result = value

    async def __aenter__(self) -> Self:
        await using(self.sync).__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await using(self.sync).__aexit__(*raised)


class AsyncTasks:
    """One task after another, as `AsyncAgent.tasks` gives them; see `each`."""

    def __init__(self, tasks: Iterator[HeldTask]) -> None:
        self._each = each(tasks)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncHeldTask:
        return AsyncHeldTask(await self._each.__anext__())

    async def aclose(self) -> None:
        """End the iteration; a task whose loop body was left early fails."""
        await self._each.aclose()


class AsyncAgent(AsyncDibs):
    """An `Agent` for asynchronous code; `join` makes one, and so does `AsyncAgent(agent)`."""

    sync: Agent

    def __init__(self, sync: Agent) -> None:
        super().__init__(sync)

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.sync.name

    @property
    def session(self) -> int:
        """The number of the session."""
        return self.sync.session

    @property
    def token(self) -> str:
        """What another process needs to act in this session. Keep it secret."""
        return self.sync.token

    subagent = opening(Agent.subagent)
    lease = wrapping(Agent.lease, AsyncHeldLease)
    next_task = wrapping(Agent.next_task, AsyncHeldTask)
    task = wrapping(Agent.task, AsyncHeldTask)
    tasks = wrapping(Agent.tasks, AsyncTasks)

    def leased(
        self, /, *resources: str, ttl_s: float = 60, **options: Any
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorate a function, so that each call of it holds resources; see `Agent.leased`."""
        return self.sync.leased(*resources, ttl_s=ttl_s, **options)


def _open(function: Callable[P, Dibs]) -> Callable[P, Opening[AsyncDibs]]:
    @wraps(function)
    def open(*args: P.args, **kwargs: P.kwargs) -> Opening[AsyncDibs]:
        def make() -> AsyncDibs:
            space = function(*args, **kwargs)
            try:
                space.space  # noqa: B018 - a daemon may have to be asked, which would block later
            except BaseException:
                space.close()
                raise
            return AsyncDibs(space)

        return Opening(make)

    return open


open = _open(dibs.open)
