"""Every way dibs says no: one class each, with a code that never changes.

A `RefusedError` means that somebody else won or the record is not in the state the caller
believed; nothing was changed. An `InvalidError` is a mistake in the call. An
`UnavailableError` is about the store itself, and `retry_after_ms` says whether asking
again can help. Each says what happened, why, and what to do next; `details` holds the
records behind the sentence, so that nobody has to ask a second time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.records import Blocker, Entry


def one_line(text: str) -> str:
    """A sentence of ours, in which no name that others chose can begin another line."""
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
        """The same as the refusal of a whole call with many items, of which one is refused."""
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
    """The epoch you name is over: released, expired, or granted again."""

    code = "stale"


class ConflictError(RefusedError):
    """The entry is at another version than the one you expected."""

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
    """A record of that name is there already."""

    code = "exists"


class EmptyError(RefusedError):
    """No task is available that fits."""

    code = "empty"


class AllDoneError(EmptyError):
    """There is no task left to do."""

    code = "all_done"
    exit_code = 3


class NothingFitsError(EmptyError):
    """Tasks are left, but none that this worker could ever take."""

    code = "nothing_fits"
    exit_code = 4


class LaterError(EmptyError):
    """No task fits now, and one may later: they are claimed, pause, or wait for something."""

    code = "later"
    exit_code = 5


class StateError(RefusedError):
    """The record is in a state that does not allow this."""

    code = "wrong_state"


class TimeoutError(RefusedError):
    """The wait ended before it came about."""

    code = "timeout"


class CancelledError(RefusedError):
    """The caller gave up the wait."""

    code = "cancelled"


class DeadlockError(RefusedError):
    """To wait for this would close a circle of sessions that wait for each other."""

    code = "deadlock"

    @property
    def cycle(self) -> tuple[str, ...]:
        return tuple(self.details["cycle"])


class NotYoursError(RefusedError):
    """The caller is not who it says, or has no session to act in."""

    code = "not_yours"
    http_status = 403


class PrunedError(RefusedError):
    """The events after this cursor have been pruned; some were never seen by this reader."""

    code = "pruned"
    http_status = 410


class InvalidError(DibsError):
    """The call is wrong, whoever holds what."""

    code = "invalid"
    http_status = 400
    exit_code = 2


class TooLargeError(InvalidError):
    """The call or its answer has more bytes than a daemon takes or gives at once."""

    code = "too_large"
    http_status = 413


class UnavailableError(DibsError):
    """The store cannot answer."""

    code = "unavailable"
    http_status = 503
    exit_code = 75
    retry_after_ms: int | None = None


class BusyError(UnavailableError):
    """Another process keeps the store's turn for too long."""

    code = "busy"
    retry_after_ms = 1_000


class DiskFullError(UnavailableError):
    """The disk is full."""

    code = "disk_full"


class SpaceFullError(UnavailableError):
    """The store has reached its size limit. Releasing, completing, leaving and pruning go on."""

    code = "space_full"
    http_status = 507


class ReadOnlyError(UnavailableError):
    """The store cannot be written."""

    code = "read_only"


class CorruptError(UnavailableError):
    """The database is damaged."""

    code = "corrupt"


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
    """What is at this address cannot serve as a dibs store: it says why."""

    code = "unfit"


MESSAGE_LIMIT = 2_000
"""How much is shown of what somebody else's error says."""
DETAILS = {"blockers": "Blocker", "current": "Entry", "task": "Task"}
"""What the details of an error hold as records."""


def error_of(answer: dict[str, Any], other: type[DibsError] = DibsError) -> DibsError:
    """An error from its JSON.

    other: what it is if this release does not know its code
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
