"""Sessions: how one begins, is found again and ends."""

from __future__ import annotations

import os

from dibs.arguments import (
    LINE,
    NAME_LIMIT,
    TTL,
    Whole,
    check_agent,
    check_name,
    check_text,
    milliseconds,
    shown,
)
from dibs.errors import InvalidError, NotYoursError
from dibs.nouns.recovery import end_dead_sessions, end_session
from dibs.records import Session
from dibs.space.scope import SHELL
from dibs.storage.clock import is_process_name, runs
from dibs.storage.queries import Queries
from dibs.storage.store import Caller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.space.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Read, Write

AGENTS = Queries("agents")
PID = Whole(0, 2**31)


def join(
    scope: Scope,
    name: str,
    status: str,
    shell: bool,
    client: str | None,
    ttl_s: float,
    process: str | None = None,
    remote: bool = False,
    host: str | None = None,
    pid: int | None = None,
) -> Caller:
    """Mint a session, or find the shell's or the client's; return who calls from now on.

    process: what `boot.process_name` calls the process that a shell session ends with
    remote: the caller is not this process, so that its session lives by beats, also where
        processes can be seen, and does not end with this one
    host, pid: which machine and process that is, as it says itself
    """
    check_agent("the agent's name", name)
    LINE.check("status", status)
    beat_ms = milliseconds(TTL.check("ttl_s", ttl_s))
    host = os.uname().nodename if host is None else check_text("host", host, NAME_LIMIT)
    pid = os.getpid() if pid is None else PID.check("pid", pid)
    if process is not None and not is_process_name(check_name("process", process)):
        raise InvalidError(f"{shown(process)} is not the name of a process")
    store, liveness = scope.store, scope.store.liveness
    bound = liveness is not None and not shell and not remote
    label = SHELL if shell else ""
    if client is not None:
        label = f"client:{check_name('client', client)}"
    with store.write(None) as tx:
        if label:
            query = AGENTS.labelled if client is None else AGENTS.of_client
            row = tx.row(query, agent=name, label=label)
            if row is not None and store.alive(row, tx.now):
                return find(tx, row, shell, bound, beat_ms, host, pid, process)
        end_dead_sessions(tx, scope.keys, tx.rows(AGENTS.open))
        ttl_ms = None if bound or shell else beat_ms
        session = tx.event("session.joined", name, {"status": status}, agent=name)
        if bound:
            tx.hold(session)
        tx.run(AGENTS.known, agent=name, seq=session, at=tx.wall)
        tx.run(
            AGENTS.join,
            id=session,
            agent=name,
            label=label,
            process_bound=int(bound),
            process=process,
            boot=store.driver.boot,
            host=host,
            pid=pid,
            status=status,
            joined_at=tx.wall,
            ttl_ms=ttl_ms,
            deadline=None if ttl_ms is None else tx.now + ttl_ms,
        )
    return Caller(name, session, owned=not shell)


def find(
    tx: Write,
    row: Row,
    shell: bool,
    bound: bool,
    beat_ms: int,
    host: str,
    pid: int,
    process: str | None,
) -> Caller:
    """Act in a session that is there, and keep it alive if nobody does yet.

    Where that is done by beats, everybody who stays beats: whoever did before may be dead.
    """
    bound_to = row["process"]
    gone = bound_to is None or not runs(row["host"], bound_to)
    if shell and process is not None and gone:
        tx.run(AGENTS.bind, session=row["id"], process=process, host=host)
        return Caller(row["agent"], row["id"], owned=False)
    if shell or (row["process_bound"] and tx.store.lock_held(row["id"])):
        tx.discard()
        return Caller(row["agent"], row["id"], owned=False)
    if bound:
        tx.hold(row["id"])
    ttl_ms = max(beat_ms, row["ttl_ms"] or 0)
    tx.run(
        AGENTS.keep,
        session=row["id"],
        process_bound=int(bound),
        host=host,
        pid=pid,
        ttl_ms=None if bound else ttl_ms,
        deadline=None if bound else tx.now + ttl_ms,
    )
    return Caller(row["agent"], row["id"], owned=bound or row["ttl_ms"] is None)


def part(scope: Scope) -> None:
    """End the caller's session, unless the process that it is bound to goes on without us."""
    session = scope.caller.session
    with scope.write() as tx:
        row = tx.rows(AGENTS.one, session=session)[0]
        if row["process"] is not None and runs(row["host"], row["process"]):
            tx.run(AGENTS.part, session=session)
        else:
            end_session(tx, scope.keys, session, "left")


def dead_sessions(scope: Scope) -> list[Session]:
    """The sessions whose process is gone, and whom nobody has missed yet."""
    with scope.store.read() as tx:
        records = [session_record(tx, row) for row in tx.rows(AGENTS.open)]
    return [record for record in records if not record.alive]


def end_dead(scope: Scope) -> None:
    """Free at once what dead sessions hold."""
    with scope.store.write(None) as tx:
        if not end_dead_sessions(tx, scope.keys, tx.rows(AGENTS.open)):
            tx.discard()


def resume(scope: Scope, token: str) -> Caller:
    """Act in a session that another process keeps alive, by the token it was given."""
    number, _, _ = check_text("token", token).partition(".")
    row = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        with scope.store.read() as tx:
            row = tx.row(AGENTS.one, session=int(number))
    if row is None or not scope.keys.same_token(token, row["id"]):
        raise NotYoursError("this is not the token of a session here", next="join again")
    return Caller(row["agent"], row["id"], owned=False)


def session_record(tx: Read, row: Row) -> Session:
    return Session.of(
        row,
        alive=tx.store.alive(row, tx.now),
        process_bound=bool(row["process_bound"]),
        expires_in_ms=None if row["deadline"] is None else max(0, row["deadline"] - tx.now),
    )
