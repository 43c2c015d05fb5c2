"""Every way dibs says no: one class each, with a code that never changes.

A `RefusedError` means that somebody else won or the record is not in the state the caller
believed; nothing was changed. An `InvalidError` is a mistake in the call. An
`UnavailableError` is about the store itself, and `retry_after_ms` says whether asking
again can help. Each says what happened, why, and what to do next; `details` holds the
records behind the sentence, so a second call is not needed to find out more.
"""

from __future__ import annotations

import builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.records import Blocker, Entry


def one_line(text: str) -> str:
    """Put a message on one line, so that no name in it can start a line of its own."""
    if text.isascii() and text.isprintable():
        return text
    from dibs.records import visible

    return visible(text.replace("\n", "\\n"))


class DibsError(Exception):
    """The base of all errors that dibs raises on purpose."""

    code = "error"
    http_status = 500
    exit_code = 70

    def __init__(self, message: str, *, next: str | None = None, **details: Any) -> None:
        self.message = one_line(message)
        super().__init__(self.message)
        self.next = next and one_line(next)
        self.details = details

    def of_item(self, place: int, number: int) -> DibsError:
        """Turn the refusal of one item into the refusal of the whole call with many items."""
        self.message = f"item {place + 1} of {number}: {self.message}"
        self.args = (self.message,)
        self.details = {**self.details, "item": place}
        return self

    def to_json(self) -> dict[str, Any]:
        """The one shape in which every surface shows an error."""
        from dibs.records import plain

        return {
            "error": self.code,
            "message": self.message,
            "next": self.next,
            "details": plain(self.details),
        }


class RefusedError(DibsError):
    """Refused: somebody else won, or the record has moved on. Nothing was changed."""

    code = "refused"
    http_status = 409
    exit_code = 1


class HeldError(RefusedError):
    """Another live session holds it, or waits for it ahead of you."""

    code = "held"

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        return tuple(self.details["blockers"])


class StaleError(RefusedError):
    """The epoch you name has ended: it was released, expired, or granted again."""

    code = "stale"


class ConflictError(RefusedError):
    """The entry is not at the version you expected."""

    code = "conflict"

    @property
    def current(self) -> Entry | None:
        """The entry as it is now: value, version, author and time; None if there is none."""
        entry: Entry | None = self.details["current"]
        return entry


class NotFoundError(RefusedError):
    """There is no such record."""

    code = "not_found"
    http_status = 404


class ExistsError(RefusedError):
    """A record with that name already exists."""

    code = "exists"


class EmptyError(RefusedError):
    """No task that fits is available."""

    code = "empty"


class AllDoneError(EmptyError):
    """There is no task left to do."""

    code = "all_done"
    exit_code = 3


class NothingFitsError(EmptyError):
    """Tasks are left, but this worker can never take any of them."""

    code = "nothing_fits"
    exit_code = 4


class LaterError(EmptyError):
    """No task fits now; one may later, because tasks are claimed, pausing or blocked."""

    code = "later"
    exit_code = 5


class StateError(RefusedError):
    """The record is in a state that does not allow this."""

    code = "wrong_state"


class TimeoutError(RefusedError, builtins.TimeoutError):
    """The wait timed out. It is also the built-in `TimeoutError`."""

    code = "timeout"


class CancelledError(RefusedError):
    """The caller cancelled the wait."""

    code = "cancelled"


class DeadlockError(RefusedError):
    """Waiting for this would be a deadlock: a cycle of sessions that wait for each other."""

    code = "deadlock"

    @property
    def cycle(self) -> tuple[str, ...]:
        return tuple(self.details["cycle"])


class NotYoursError(RefusedError):
    """The caller is not who it claims to be, or has no session to act in."""

    code = "not_yours"
    http_status = 403


class PrunedError(RefusedError):
    """The events after this cursor have been pruned, and this reader has missed some of them."""

    code = "pruned"
    http_status = 410


class InvalidError(DibsError):
    """The call itself is wrong, no matter who holds what."""

    code = "invalid"
    http_status = 400
    exit_code = 2


class TooLargeError(InvalidError):
    """The call or its answer is larger than a daemon accepts or sends."""

    code = "too_large"
    http_status = 413


class UnavailableError(DibsError):
    """The store cannot answer."""

    code = "unavailable"
    http_status = 503
    exit_code = 75
    retry_after_ms: int | None = None


class BusyError(UnavailableError):
    """Another process has been writing to the store for too long."""

    code = "busy"
    retry_after_ms = 1_000


class DiskFullError(UnavailableError):
    """The disk is full."""

    code = "disk_full"


class SpaceFullError(UnavailableError):
    """The store is at its size limit. Releasing, completing, leaving and pruning still work."""

    code = "space_full"
    http_status = 507


class ReadOnlyError(UnavailableError):
    """The store cannot be written to."""

    code = "read_only"


class CorruptError(UnavailableError):
    """The database is damaged."""

    code = "corrupt"


UNREADABLE = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError
)  # fmt: skip
"""What reading a store can raise if something other than dibs has written to it. SQLite accepts
values of any type in every column, and JSON of any shape in a text."""


class StorageError(UnavailableError):
    """The disk or the operating system failed a read, a write, a sync or a lock."""

    code = "storage"


class DisconnectedError(UnavailableError):
    """The connection to the database server broke or could not be made."""

    code = "disconnected"
    retry_after_ms = 1_000


class StoreGoneError(UnavailableError):
    """The store's files were deleted or replaced while it was open."""

    code = "store_gone"


class UpgradedError(UnavailableError):
    """A newer dibs has upgraded the store while this process had it open."""

    code = "upgraded"


class ForkedError(UnavailableError):
    """This store was opened before a fork; the child must open its own."""

    code = "forked"


class ClosedError(UnavailableError):
    """This store has been closed."""

    code = "closed"


class UnfitError(UnavailableError):
    """The database at this address cannot serve as a dibs store; the message says why."""

    code = "unfit"


MESSAGE_LIMIT = 2_000
"""How many characters of an error from elsewhere are shown."""
DETAILS = {"blockers": "Blocker", "current": "Entry", "task": "Task"}
"""The details of an error that are records."""


def error_of(answer: dict[str, Any], other: type[DibsError] = DibsError) -> DibsError:
    """An error from its JSON.

    other: the class to use if this release does not know its code
    """
    from dibs import records

    code = records.visible(str(answer.get("error"))[:80])
    kind = known(DibsError).get(code)
    details = dict(answer.get("details") or {})
    for name, record in DETAILS.items():
        value = details.get(name)
        made: Any = getattr(records, record)
        if isinstance(value, list):
            details[name] = [made.from_json(item) for item in value]
        elif value is not None:
            details[name] = made.from_json(value)
    hint = answer.get("next")
    error = (kind or other)(
        str(answer["message"])[:MESSAGE_LIMIT], next=hint and str(hint)[:MESSAGE_LIMIT]
    )
    error.details = details
    if kind is None:
        error.code = code
    return error


def known(kind: type[DibsError]) -> dict[str, type[DibsError]]:
    """Every error by its code."""
    found = {kind.code: kind}
    for inner in kind.__subclasses__():
        found |= known(inner)
    return found
