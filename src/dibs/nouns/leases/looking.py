"""Whether something is free, and who is in the way."""

from __future__ import annotations

from dibs.errors import TimeoutError
from dibs.nouns.leases import grants
from dibs.records import Availability, called

SHOWN = 1_000
"""How many who wait are told of."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.nouns.leases.grants import Want
    from dibs.records import Blocker
    from dibs.space.scope import Scope
    from dibs.storage.store import Read


def states(scope: Scope, wants: list[Want]) -> tuple[Availability, ...]:
    """Of each, whether it is free for the caller, and if not, who is in the way."""
    session = scope.session
    found = []
    with scope.read() as tx:
        for want in wants:
            rows = grants.standing(tx, grants.look(tx, want, session, None, SHOWN)[1])
            found.append(
                Availability(
                    resource=want.resource.text,
                    free=not rows,
                    blockers=tuple(grants.blocker_record(row, tx.now) for row in rows),
                )
            )
    return tuple(found)


def too_late(scope: Scope, wants: list[Want], wait_s: float) -> TimeoutError:
    found = states(scope, wants)
    names = ", ".join(called(one.resource) for one in found)
    return TimeoutError(
        f"{names} did not become free within {wait_s:g} s",
        next="work on something else, or wait longer",
        blockers=[blocker for state in found for blocker in state.blockers],
    )


def waiters(tx: Read, limit: int) -> tuple[Blocker, ...]:
    """Who waits for what, first come first."""
    rows = grants.standing(tx, tx.rows(grants.LEASES.queue, limit=limit))
    return tuple(grants.blocker_record(row, tx.now) for row in rows)
