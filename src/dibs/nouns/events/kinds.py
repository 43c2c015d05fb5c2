"""The kinds of events: those named by the markers of operations, and a few others."""

from __future__ import annotations

from dibs.arguments import FILTER, Kind, shown
from dibs.errors import InvalidError
from dibs.operation import NOUNS, OPERATIONS

TOPICS = ("session", "lease", "task", "message", "entry", "token", "space")
BESIDES = (
    "lease.expired",
    "lease.freed",
    "message.forged",
    "session.died",
    "session.joined",
    "session.used",
    "space.noted",
    "space.restored",
    "task.available",
    "task.freed",
)
"""Events that no operation writes as its own: what happened to other sessions and the store."""


def kinds() -> list[str]:
    """All kinds of events, by name."""
    for noun in NOUNS:
        __import__(f"dibs.nouns.{noun}.operations")
    written = {kind for operation in OPERATIONS.values() for kind in operation.events}
    return sorted(written.union(BESIDES))


class EventKind(Kind):
    """A kind of event, such as lease.claimed, or lease for all lease events."""

    json = "string"

    def check(self, what: str, value: object) -> str:
        kind = FILTER.check(what, value)
        if kind in TOPICS or kind in (known := kinds()):
            return kind
        from difflib import get_close_matches  # late: only a wrong kind needs it

        close = get_close_matches(kind[:100], [*TOPICS, *known], 1, 0.5)
        meant = f"did you mean {close[0]}? " if close else ""
        raise InvalidError(
            f"{what} is {shown(kind)}, which is not a kind of event",
            next=f"{meant}the kinds are {', '.join(known)}; for all events of a noun, give one of "
            f"{', '.join(TOPICS)}",
            kinds=known,
        )
