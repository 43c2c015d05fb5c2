"""Sessions: how one ends, and how another process resumes it; `Scope.join` starts one."""

from __future__ import annotations

from dibs.arguments import check_text
from dibs.errors import NotYoursError
from dibs.records import Session
from dibs.space.scope import AGENTS, Scope, token_of
from dibs.storage.store import Caller, Read, Write
from dibs.system import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.space.signing import Keyring
    from dibs.storage.driver import Row


def part(scope: Scope) -> None:
    """End the caller's session, unless it is bound to another process that continues."""
    from dibs.nouns.recovery import end_session  # late, as below: readers do not need it

    session = scope.caller.session
    with scope.write() as tx:
        row = tx.rows(AGENTS.one, session=session)[0]
        if row["process"] is not None and runs(row["process"]):
            signature = tx.store.ledger.signed_session(row, None)
            tx.run(AGENTS.part, session=session, signature=signature)
        else:
            end_session(tx, scope.keys, session, "left")


def dead_sessions(scope: Scope) -> list[Session]:
    """The sessions whose process or token is gone, and that nobody has ended yet."""
    with scope.store.read() as tx:
        good = good_tokens(scope, tx)
        dead = (row for row in tx.rows(AGENTS.open) if is_cut(row, good) or is_dead(tx, row))
        return [session_record(tx, row) for row in dead]


def end_dead(scope: Scope) -> None:
    """Free what dead sessions hold, immediately."""
    from dibs.nouns.recovery import end_dead_sessions

    with scope.store.write(None) as tx:
        good, there = good_tokens(scope, tx), tx.rows(AGENTS.open)
        cut = end_cut(tx, scope.keys, [row for row in there if is_cut(row, good)])
        if not end_dead_sessions(tx, scope.keys, there) and not cut:
            tx.discard()


def end_cut(tx: Write, keys: Keyring, rows: list[Row]) -> bool:
    """End sessions whose token is no longer valid; return whether there were any."""
    from dibs.nouns.recovery import end_session

    for row in rows:
        end_session(tx, keys, row["id"], "revoked")
    return bool(rows)


def is_dead(tx: Read, row: Row) -> bool:
    return not tx.store.alive(row, tx.now)


def is_cut(row: Row, good: set[int]) -> bool:
    """Whether a session was joined with a token that is not among the valid ones."""
    token = token_of(row["label"])
    return token is not None and token not in good


def tokens_now(scope: Scope) -> set[int]:
    """The tokens that are valid now."""
    with scope.store.read() as tx:
        return good_tokens(scope, tx)


def good_tokens(scope: Scope, tx: Read) -> set[int]:
    rows = tx.rows(AGENTS.good_tokens, now=tx.now)
    return {row["id"] for row in rows if scope.keys.fits("token", row)}


def resume(scope: Scope, token: str) -> Caller:
    """Act in a session that another process keeps alive, by the token it was given."""
    number, _, _ = check_text("token", token).partition(".")
    row = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        with scope.store.read() as tx:
            row = tx.row(AGENTS.one, session=int(number))
    if row is None or not scope.keys.same_token(token, row):
        raise NotYoursError("this token belongs to no session here", next="join again")
    return Caller(row["agent"], row["id"], owned=False, nonce=row["nonce"])


def session_record(tx: Read, row: Row) -> Session:
    return Session.of(
        row,
        alive=tx.store.alive(row, tx.now),
        process_bound=bool(row["process_bound"]),
        expires_in_ms=None if row["deadline"] is None else max(0, row["deadline"] - tx.now),
    )
