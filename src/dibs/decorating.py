"""Functions that hold something while they run."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any

from dibs.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")


def held_during(
    held: Callable[[], AbstractContextManager[Any]], function: Callable[P, T]
) -> Callable[P, T]:
    """The same function, with each call inside a `with` block of its own."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidError(
            f"{getattr(function, '__qualname__', 'this')} is a generator, which would run only "
            "after the lease has been released",
            next="use a `with` block inside the generator",
        )
    if is_async(function):

        @wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            from dibs.aio import using

            async with using(held()):
                return await function(*args, **kwargs)  # type: ignore[misc]

        return call_async  # type: ignore[return-value]

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with held():
            return function(*args, **kwargs)

    return call


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine; objects with an `async def __call__` count."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - its own code is what counts
    )
