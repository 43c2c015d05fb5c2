"""The requests in progress, by the token that let them in.

A request may last: a stream of events, a wait, a tool call. Its token is checked when it begins, so
it must be checked again later. When a token is revoked, by anybody and in any process, or expires,
each of its requests is cancelled. A request that was not answered yet is refused; the connection of
any other is cut.

The number of lasting requests of a token is limited, so that nobody can use up the threads and the
database turns that everybody shares.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dibs.surfaces.http.access import Access, GuardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Task = asyncio.Task[Any]

LASTING_LIMIT = 128
"""How many waits, streams and tool calls of one token may last at once.

The daemon's own user has no such limit: all agents of a machine may use that one token.
"""


UNFINISHED_LIMIT = 64 << 20
"""How many bytes of incomplete bodies one token may have at once."""


class Present:
    def __init__(self) -> None:
        self._tokens: dict[Task, int] = {}
        self._cut: set[Task] = set()
        self._lasting: dict[int, int] = {}
        self._unfinished: dict[int, dict[Task, int]] = {}

    def enter(self, token: int) -> None:
        """Note which token let in the request of this task."""
        task = asyncio.current_task()
        assert task is not None
        self._tokens[task] = token

    def leave(self) -> None:
        """Note that the request of this task is done."""
        task = asyncio.current_task()
        assert task is not None
        self._tokens.pop(task, None)
        self._cut.discard(task)

    def was_cut(self) -> bool:
        """Whether this task was cancelled because of its token."""
        return asyncio.current_task() in self._cut

    def cut(self, tokens: set[int]) -> None:
        for task, token in list(self._tokens.items()):
            if token in tokens:
                self._cut.add(task)
                task.cancel()

    @contextmanager
    def reading(self, access: Access) -> Iterator[Callable[[int], None]]:
        """A body that has not arrived completely; report how much of it has."""
        task = asyncio.current_task()
        assert task is not None
        bodies = self._unfinished.setdefault(access.token, {})

        def count(size: int) -> None:
            bodies[task] = size
            if sum(bodies.values()) > UNFINISHED_LIMIT:
                raise GuardError(
                    429,
                    "too_much",
                    f"{UNFINISHED_LIMIT >> 20} MiB of this token's requests are incomplete",
                    "send them one after the other",
                )

        try:
            yield count
        finally:
            bodies.pop(task, None)
            if not bodies:
                self._unfinished.pop(access.token, None)

    def check(self, access: Access) -> None:
        """Refuse a lasting request if the token has too many of them."""
        if self._lasting.get(access.token, 0) >= LASTING_LIMIT and access.origin:
            raise TooManyWaits()

    @contextmanager
    def lasting(self, access: Access) -> Iterator[None]:
        """A part of a request that may last; refused if the token has too many of them."""
        self.check(access)
        with self.counted(access):
            yield

    @contextmanager
    def counted(self, access: Access) -> Iterator[None]:
        """The same for a request that was already let in."""
        token = access.token
        self._lasting[token] = self._lasting.get(token, 0) + 1
        try:
            yield
        finally:
            self._lasting[token] -= 1
            if not self._lasting[token]:
                del self._lasting[token]


class TooManyWaits(GuardError):
    """Too many calls of a token are already waiting."""

    retry_after_ms = 1_000

    def __init__(self) -> None:
        super().__init__(
            429,
            "too_many_waits",
            f"{LASTING_LIMIT} calls of this token are already waiting",
            "wait for one of them to end, or use a token for each agent",
        )
