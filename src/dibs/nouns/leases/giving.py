"""Leases that change hands outside the queue, and the messages about it."""

from __future__ import annotations

from dibs.errors import StateError
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import LEASES, Want, grant_all, granted
from dibs.nouns.leases.looking import refuse_deadlock
from dibs.nouns.leases.queue import serve_ticket
from dibs.nouns.messages.operations import post
from dibs.records import NAME_SHOWN, Grant, Lease, called, held_by, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.space.scope import Scope
    from dibs.space.signing import Keyring
    from dibs.storage.driver import Row
    from dibs.storage.store import Read, Write

MENTIONED = 3
"""How many names a message about lost leases lists."""


def transfer(tx: Write, keys: Keyring, row: Row, receiver: Row, note: str) -> Lease:
    """Give a lease to another session; it is never free in between."""
    want = Want(grants.resource_of(row), row["mode"], row["content_hash"])
    tx.run(LEASES.remove, base=row["base"], resource=row["resource"], session=row["session"])
    to = {"to": receiver["agent"], "to_session": receiver["id"]}
    tx.event("lease.transferred", row["resource"], {**to, "note": note, **grants.about(row)})
    own, in_the_way = grants.look(tx, want, receiver["id"], None)
    if own is not None:
        # Two leases become one: on all checkouts if they were on two, and exclusive if either was.
        # If others are in the way of the combined lease, nothing is given.
        merged = own["checkout"] != row["checkout"] or own["mode"] != row["mode"]
        holders = [other for other in in_the_way if not other["waiting"]]
        if merged and holders:
            raise grants.held(tx, holders)
        if own["checkout"] != row["checkout"]:
            want.resource.checkout = None
        if own["mode"] == grants.EXCLUSIVE:
            want.mode = grants.EXCLUSIVE
        tx.run(LEASES.remove, base=own["base"], resource=own["resource"], session=own["session"])
    return grants.grant(
        tx,
        keys,
        want,
        agent=receiver["agent"],
        session=receiver["id"],
        ttl_ms=row["ttl_ms"],
        note=note or row["note"],
    )


def receiver_of(tx: Read, scope: Scope, to: str) -> Row:
    """The session of an agent that receives leases, or a refusal if the agent is gone.

    It is the latest session kept by a live process. The session of the agent's commands outlives
    every process, so it counts only if no other session of the agent has lost its process.
    """
    rows = [row for row in tx.rows(LEASES.receivers, agent=to) if row["id"] != scope.session]
    bound = [row for row in rows if row["process_bound"] or row["process"] or row["deadline"]]
    there = [row for row in bound or rows if tx.store.alive(row, tx.now)]
    if there:
        return there[0]
    if to == scope.caller.agent and not rows:
        raise StateError(
            f"{called(to)} is this session itself", next="keep it, or name another agent"
        )
    raise StateError(f"{called(to)} has no session here now", next="list the agents, or release it")


def serve_receiver(tx: Write, keys: Keyring, receiver: Row) -> None:
    """Serve the waits of a receiver that end with what it was given.

    A gift may also close a cycle of waits, which nobody would notice: that is refused.
    """
    tickets: dict[int, list[Row]] = {}
    for ticket in tx.rows(LEASES.tickets_of_session, session=receiver["id"]):
        tickets.setdefault(ticket["number"], []).append(ticket)
    for number, rows in tickets.items():
        if not serve_ticket(tx, keys, number):
            wants = [
                Want(grants.resource_of(row), row["mode"], None, bool(row["here"])) for row in rows
            ]
            refuse_deadlock(tx, wants, receiver["agent"], receiver["id"], number)


def take_away(
    tx: Write, scope: Scope, wants: list[Want], ttl_ms: int, note: str, reason: str
) -> Grant:
    """Grant all that is wanted to the caller; current holders lose it."""
    rows = grants.each_once(
        row
        for want in wants
        for row in grants.look(tx, want, scope.session, None)[1]
        if not row["waiting"]
    )
    # Waiters are served last: expired leases are freed without a hand-over.
    lost = grants.standing(tx, rows)
    lapsed = [row for row in rows if row not in lost]
    grants.free(tx, lapsed, "expired")
    grants.revoke(tx, lost, reason)
    leases = grant_all(tx, scope, wants, ttl_ms, note)
    tell_of_loss(tx, scope, lost, reason)
    grants.hand_over(tx, scope.keys, rows)
    return granted(leases, tx.seq)


def tell_of_loss(tx: Write, scope: Scope, rows: list[Row], reason: str) -> None:
    """Send one message to each agent that lost leases."""
    lost: dict[str, list[str]] = {}
    for row in rows:
        lost.setdefault(row["agent"], []).append(row["resource"])
    for agent, names in lost.items():
        body = f"your {'lease' if len(names) == 1 else 'leases'} on {listed(names)} "
        body += "was taken away" if len(names) == 1 else "were taken away"
        post(tx, scope, f"{body}: {reason}" if reason else body, to=agent)


def tell_of_gift(tx: Write, scope: Scope, to: str, rows: list[Row], note: str) -> None:
    """Send one message to the agent that received leases."""
    names = [row["resource"] for row in rows]
    body = f"{listed(names)} {'is' if len(names) == 1 else 'are'} yours now"
    post(tx, scope, f"{body}: {note}" if note else body, to=to)


def listed(names: list[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - MENTIONED} more" if len(names) > MENTIONED else ""
    return ", ".join(map(called, names[:MENTIONED])) + more


def tell_of_intrusion(tx: Write, scope: Scope, row: Row, by: Sequence[str], doing: str) -> None:
    """Tell the holder of a file and the agents that may have changed it."""
    name, me = row["resource"], scope.caller.agent
    whom = " or ".join(map(called, by)) or "somebody unknown to dibs"
    how = f" ({quoted(doing, NAME_SHOWN)})" if doing else ""
    told = {
        row["agent"]: f"{called(name)}, which you hold, was changed by {whom}{how}; "
        f"restore the content that dibs kept with: dibs recover {called(name)}"
    }
    for agent in by:
        told[agent] = (
            f"{held_by(name, row['agent'], row['note'])}, and was changed while you worked{how}; "
            f"if you did that, tell them, and undo it with: dibs recover {called(name)}"
        )
    for agent, body in told.items():
        if agent != me:
            post(tx, scope, body, kind="report", to=agent)
