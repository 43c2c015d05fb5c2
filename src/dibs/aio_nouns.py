"""The nouns for asynchronous code: one coroutine for each operation in the registry.

`aio_nouns.pyi` tells type checkers what is made here. `make docs` writes it from the same registry.

A cancelled call leaves no lease and no claim: what it was granted is given back, but nothing that
the session held before. A call with an idempotency key of the caller's own is the exception: asked
again with that key, it answers with the same grant, which must then still be held.
"""

from __future__ import annotations

from typing import Any

from dibs.aio import call, call_or_undo
from dibs.dibs import operations
from dibs.errors import DibsError
from dibs.operation import NOUNS, Operation
from dibs.records import Grant, Task


class AsyncNoun:
    """One of the six nouns. `sync` is the noun behind it."""

    def __init__(self, sync: Any) -> None:
        self.sync = sync

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"


def awaited(entry: Operation) -> Any:
    """The operation as a coroutine function."""

    async def operate(self: AsyncNoun, /, *args: Any, **kwargs: Any) -> Any:
        method = getattr(self.sync, entry.verb)
        if not entry.grants or kwargs.get("idempotency_key") is not None:
            return await call(method, *args, **kwargs)
        before: list[str] = []

        def grant() -> Any:
            if entry.name == "work.claim":
                before.extend(own_task(self.sync, *args, **kwargs))
            return method(*args, **kwargs)

        return await call_or_undo(grant, lambda granted: give_back(self.sync, granted, before))

    operate.__name__, operate.__qualname__ = entry.verb, f"Async{entry.method.__qualname__}"
    operate.__doc__, operate.__wrapped__ = entry.method.__doc__, entry.method  # type: ignore[attr-defined]
    return operate


def own_task(work: Any, id: str = "", *_: Any, **__: Any) -> list[str]:
    """The task that is about to be claimed, if this session has claimed it already."""
    try:
        task = work.show(id)
    except DibsError:
        return []
    return [task.id] if task.state == "claimed" and task.session == work.scope.session else []


def give_back(noun: Any, granted: Grant | Task | tuple[Task, ...], before: list[str]) -> None:
    """Undo a grant.

    before: the tasks that were claimed before it
    """
    if isinstance(granted, Grant):
        new = [lease for lease in granted.leases if lease.resource not in granted.kept]
        for epoch in {lease.epoch for lease in new}:
            noun.release(epoch=epoch)
        return
    for task in granted if isinstance(granted, tuple) else (granted,):
        if task.id not in before:
            noun.abandon(task.id, reason="the call was cancelled", epoch=task.epoch)


def noun_class(noun: str) -> type[AsyncNoun]:
    entries = [entry for entry in operations().values() if entry.noun == noun]
    body: dict[str, Any] = {entry.verb: awaited(entry) for entry in entries}
    body |= {"__doc__": f"The operations of `{noun}`, awaited.", "__module__": __name__}
    return type(f"Async{noun.capitalize()}", (AsyncNoun,), body)


globals().update({f"Async{noun.capitalize()}": noun_class(noun) for noun in NOUNS})
