"""Leases that change hands outside the queue, and what those are told whom it concerns."""

from __future__ import annotations

from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import LEASES, Want, grant_all, granted
from dibs.nouns.messages.operations import post
from dibs.nouns.recovery import clear
from dibs.records import held_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.records import Grant, Lease
    from dibs.space.scope import Scope
    from dibs.space.signing import Keyring
    from dibs.storage.driver import Row
    from dibs.storage.store import Write

MENTIONED = 3
"""How many names the message to somebody who has lost leases spells out."""


def transfer(tx: Write, keys: Keyring, row: Row, receiver: Row, note: str) -> Lease:
    """Make a lease another session's, without it being free in between."""
    want = Want(grants.resource_of(row), row["mode"], row["content_hash"])
    tx.run(LEASES.remove, base=row["base"], resource=row["resource"], session=row["session"])
    tx.event(
        "lease.transferred",
        row["resource"],
        {"to": receiver["agent"], "to_session": receiver["id"], "epoch": row["epoch"]},
    )
    return grants.grant(
        tx,
        keys,
        want,
        agent=receiver["agent"],
        session=receiver["id"],
        ttl_ms=row["ttl_ms"],
        note=note or row["note"],
        own=grants.look(tx, want, receiver["id"], None)[0],
    )


def take_away(
    tx: Write, scope: Scope, wants: list[Want], ttl_ms: int, note: str, reason: str
) -> Grant:
    """Grant all that is wanted to the caller; whoever holds something of it loses it."""
    in_the_way = grants.each_once(
        row for want in wants for row in grants.look(tx, want, scope.session, None)[1]
    )
    clear(tx, scope.keys, in_the_way)
    lost = [row for row in grants.standing(tx, in_the_way) if not row["waiting"]]
    grants.revoke(tx, lost, reason)
    leases = grant_all(tx, scope, wants, ttl_ms, note)
    tell_of_loss(tx, scope, lost, reason)
    grants.hand_over(tx, scope.keys, lost)
    return granted(leases, tx.seq)


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
