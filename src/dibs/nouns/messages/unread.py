"""An agent's unread messages, read inside a transaction."""

from __future__ import annotations

from dibs.arguments import NEWEST
from dibs.records import Message
from dibs.storage.queries import Queries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.storage.driver import Row
    from dibs.storage.store import Read

MESSAGES = Queries("messages")


def unread_rows(
    tx: Read, agent: str, limit: int, until: int = NEWEST, after: int | None = None
) -> list[Row]:
    """An agent's unread messages; after: only later ones, by default after what it has read."""
    if after is None:
        cursor = tx.row(MESSAGES.cursor, agent=agent, channel="")
        after = 0 if cursor is None else cursor["seq"]
    came = tx.row(MESSAGES.since, agent=agent)
    return tx.rows(
        MESSAGES.unread,
        agent=agent,
        after=after,
        broadcasts_after=max(after, 0 if came is None else came["since_seq"]),
        until=until,
        limit=limit,
    )


def message_record(row: Row, acknowledged: bool) -> Message:
    return Message.of(row, to=row["recipient"], acknowledged=acknowledged)
