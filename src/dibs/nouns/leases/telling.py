"""What those are told to whose leases something was done."""

from __future__ import annotations

from dibs.nouns.messages.operations import post
from dibs.records import held_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Write

MENTIONED = 3
"""How many names the message to somebody who has lost leases spells out."""


def tell_of_loss(tx: Write, scope: Scope, rows: list[Row], reason: str) -> None:
    """Send each of those who have lost leases one message."""
    lost: dict[str, list[str]] = {}
    for row in rows:
        lost.setdefault(row["agent"], []).append(row["resource"])
    for agent, names in lost.items():
        body = f"your {'lease' if len(names) == 1 else 'leases'} on {listed(names)} "
        body += "was taken away" if len(names) == 1 else "were taken away"
        post(tx, scope, f"{body}: {reason}" if reason else body, to=agent)


def tell_of_gift(tx: Write, scope: Scope, to: str, rows: list[Row], note: str) -> None:
    """Send the agent that was given leases one message."""
    names = [row["resource"] for row in rows]
    body = f"{listed(names)} {'is' if len(names) == 1 else 'are'} yours now"
    post(tx, scope, f"{body}: {note}" if note else body, to=to)


def listed(names: list[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - MENTIONED} more" if len(names) > MENTIONED else ""
    return ", ".join(names[:MENTIONED]) + more


def tell_of_intrusion(tx: Write, scope: Scope, row: Row, by: Sequence[str], doing: str) -> None:
    """Tell the holder of a file and those who may have changed it."""
    name, me = row["resource"], scope.caller.agent
    whom = " or ".join(by) or "somebody whom dibs does not know"
    how = f" ({doing})" if doing else ""
    told = {
        row["agent"]: f"{name}, which you hold, was changed by {whom}{how}; "
        f"what is kept of it comes back with: dibs recover {name}"
    }
    for agent in by:
        told[agent] = (
            f"{held_by(name, row['agent'], row['note'])}, and was changed while you worked{how}; "
            f"if that was you, tell them, and undo it: dibs recover {name}"
        )
    for agent, body in told.items():
        if agent != me:
            post(tx, scope, body, kind="report", to=agent)
