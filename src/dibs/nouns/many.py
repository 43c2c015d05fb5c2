"""Many calls of one operation in one transaction.

Promised: the result of an item is what a call of that operation would have returned after the
items before it: its record or its refusal, its own event and seq, its own idempotency key. By
default it is all or nothing: the first refusal becomes the refusal of the whole call, and says
which item it was. With `each`, every item is done or refused independently, and the answer has a
record or an error for each, in order. If the store fails, the whole call fails and nothing is
done.

Everything the items need from the store is read at once, before the first of them: on a remote
database, a batch takes as many round trips as one call.
"""

from __future__ import annotations

from dibs.errors import DibsError, UnavailableError
from dibs.operation import OPERATIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from dibs.space.scope import Noun, Scope
    from dibs.storage.driver import Row

    Item = dict[str, Any] | DibsError
    """The arguments of a call, or what is wrong with them."""


def many(
    noun: Noun,
    name: str,
    items: Sequence[Item],
    each: bool,
    know: Callable[[list[dict[str, Any]]], Any],
) -> tuple[Any, ...]:
    """The result of each item.

    know: reads what all of these calls need, for `noun.known`
    """
    tx, scope, operation = noun.tx, noun.scope, OPERATIONS[name]
    calls = sound(items)
    keys = keys_of(calls)
    firsts: dict[str, Row] = {}
    if keys:
        (answered,) = tx.ask([scope.asked_before(*keys)])
        firsts = {row["key"]: row for row in answered}
    noun.known = know(calls)
    made: list[Any] = []
    for place, item in enumerate(items):
        try:
            if isinstance(item, DibsError):
                raise item
            key = item.get("idempotency_key")
            if key is None:
                made.append(operation.method(noun, **item))
            else:
                do = lambda item=item: operation.method(noun, **item)  # noqa: E731
                made.append(scope.once(tx, name, key, ([], item), do, firsts))
        except UnavailableError:
            raise
        except DibsError as error:
            if not each:
                raise error.of_item(place, len(items)) from None
            made.append(error)
    if tx.next_seq == tx.seq:
        tx.discard()
    return tuple(made)


def ahead(scope: Scope, items: Sequence[Item], asks: Callable[..., list[Any]]) -> list[Any]:
    """The first queries of `many`: the keys, then what the calls need."""
    calls = sound(items)
    keys = keys_of(calls)
    return [*([scope.asked_before(*keys)] if keys else []), *asks(calls)]


def sound(items: Sequence[Item]) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)]


def keys_of(calls: list[dict[str, Any]]) -> list[str]:
    return [call["idempotency_key"] for call in calls if call.get("idempotency_key") is not None]
