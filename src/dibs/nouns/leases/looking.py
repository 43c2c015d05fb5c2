"""Whether something is free, who blocks it, and waits that would never end."""

from __future__ import annotations

from dibs.errors import DeadlockError, TimeoutError
from dibs.names.paths import ancestors, near
from dibs.nouns.leases import grants
from dibs.nouns.leases.grants import LEASES, Want
from dibs.records import Availability, called

SHOWN = 1_000
ALL = 1 << 20
FEW = 16
"""For up to this many leases, we check whether anybody waits for them."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.records import Blocker
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Read

    Taker = tuple[int, str | None, list[Row]]
    """A session, its checkout, and everything it waits for."""
    Taken = dict[str, list[Taker]]
    """Resources that only one can have: by key, who has it or is next."""


def states(scope: Scope, wants: list[Want], shown: int = SHOWN) -> tuple[Availability, ...]:
    """For each resource, whether it is free for the caller, and if not, who blocks it.

    shown: how many waiters to include
    """
    session = scope.session
    found = []
    with scope.read() as tx:
        for want in wants:
            rows = grants.standing(tx, grants.look(tx, want, session, None, shown)[1])
            found.append(
                Availability(
                    resource=want.resource.text,
                    free=not rows,
                    blockers=tuple(grants.blocker_record(row, tx.now) for row in rows),
                    yours_in_ms=held_by_caller_ms(tx, want, session) if session else None,
                )
            )
    return tuple(found)


def held_by_caller_ms(tx: Read, want: Want, session: int) -> int | None:
    """How much longer a session holds this resource, or a directory around it."""
    above = tx.rows(LEASES.above, ancestors=ancestors(want.resource.base), session=session)
    left = [
        row["deadline"] - tx.now
        for row in above
        if row["deadline"] > tx.now
        and (row["kind"] != "glob" or row["resource"] == want.resource.text)
    ]
    return max(left, default=None)


def too_late(scope: Scope, wants: list[Want], wait_s: float) -> TimeoutError:
    found = states(scope, wants, grants.AHEAD)  # hundreds may time out at once
    names = ", ".join(called(one.resource) for one in found)
    return TimeoutError(
        f"{names} did not become free within {wait_s:g} s",
        next="work on something else, or wait longer",
        blockers=[blocker for state in found for blocker in state.blockers],
    )


def line_of(wants: list[Want]) -> str:
    """What somebody waits for; the same name in another checkout is a different resource."""
    texts = [want.resource.text for want in wants]
    return " ".join(texts + [want.resource.checkout or "" for want in wants if want.here])


def unless_over(scope: Scope, wants: list[Want], wait_s: float, since: int) -> None:
    """Refuse if a wait that began then has timed out."""
    if scope.store.clock.now() - since >= wait_s * 1000:
        raise too_late(scope, wants, wait_s)


def waiters(tx: Read, limit: int) -> tuple[Blocker, ...]:
    """Who waits for what, in the order they came."""
    rows = grants.standing(tx, tx.rows(LEASES.queue, limit=limit))
    return tuple(grants.blocker_record(row, tx.now) for row in rows)


def refuse_deadlock(
    tx: Read, wants: list[Want], agent: str, session: int, number: int | None = None
) -> None:
    """Refuse a wait that would close a cycle of sessions waiting for each other.

    number: the ticket, if it exists already
    """
    if not _is_wanted(tx, session):
        return  # nobody waits for it, and the search would read the whole queue
    came: dict[int, tuple[int, dict[str, str]]] = {}
    looked: dict[tuple[str, str | None], tuple[int, list[Row]]] = {}
    front: list[tuple[int, str, Want, int | None]] = [
        (session, agent, want, number) for want in wants
    ]
    while front:
        met = set()
        for waiter, name, want, before in front:
            # Whoever blocks one blocks all behind it, and has been visited already.
            line = (want.resource.text, want.resource.checkout if want.here else None)
            until, rows = looked.get(line, (0, []))
            if (before or grants.LAST) > until:
                rows = grants.look(tx, want, 0, before, ALL)[1]
                if want.mode == grants.EXCLUSIVE:
                    own = [row for row in rows if row["session"] == session]
                    looked[line] = (before or grants.LAST, own)
            for row in rows:
                if not grants.stands_in(want, waiter, before, row):
                    continue
                holder = row["session"]
                step = {"agent": name, "wants": want.resource.text, "held_by": row["agent"]}
                if holder == session:
                    raise deadlock([*_way(came, waiter), step])
                if holder not in came:
                    came[holder] = (waiter, step)
                    met.add(holder)
        front = [
            (
                wait["session"],
                wait["agent"],
                Want(grants.resource_of(wait), wait["mode"], None, bool(wait["here"])),
                wait["number"],
            )
            for wait in tx.rows(LEASES.tickets_of_sessions, sessions=sorted(met))
        ]


def _is_wanted(tx: Read, session: int) -> bool:
    """Whether somebody may be waiting for a session."""
    tickets, held = tx.ask(grants.stakes(session))
    if tickets:
        return True
    if len(held) > FEW:
        return True
    asked = [near(row["base"]) | {"after": 0, "before": grants.LAST, "limit": 1} for row in held]
    tx.ahead(lambda: [(LEASES.queue_around, one) for one in asked])
    if any(tx.rows(LEASES.queue_around, **one) for one in asked):
        return True
    # By any name: a waiter may have named another hard link of the same file.
    files = [{"inode": row["inode"], "base": row["base"]} for row in held if row["inode"]]
    return any(row["waiting"] for one in files for row in tx.rows(LEASES.same_file, **one))


def _way(came: dict[int, tuple[int, dict[str, str]]], waiter: int) -> list[dict[str, str]]:
    """The steps that led from the asking session to this waiter."""
    steps = []
    while waiter in came:
        waiter, step = came[waiter]
        steps.append(step)
    return steps[::-1]


def deadlock(steps: list[dict[str, str]]) -> DeadlockError:
    parts = [[called(step[part]) for part in ("agent", "wants", "held_by")] for step in steps]
    told = "; ".join(
        f"{agent} waits for {wants}, held by {holder}" for agent, wants, holder in parts
    )
    return DeadlockError(
        f"waiting would never end: {told}",
        next="release what they want, then claim everything you need in one call",
        cycle=[*(step["agent"] for step in steps), steps[0]["agent"]],
        steps=steps,
    )


def takers(taken: Taken, row: Row) -> list[Taker]:
    """Who holds, or is about to hold, a resource exclusively."""
    found = taken.get(row["resource"], [])
    for base in ancestors(row["base"]):
        found = found + taken.get(base, [])
    return found


def is_taken(taken: Taken, row: Row) -> bool:
    """Whether a ticket cannot be served because somebody ahead of it has what it waits for."""
    return any(
        session != row["session"] and not (row["here"] and checkout not in (None, row["checkout"]))
        for session, checkout, _ in takers(taken, row)
    )
