"""Agents and their sessions: who is here.

An agent is a name; a session is one running instance of it, minted by the store, and the
holder of everything. A subagent (`alice/tests`) is an agent of its own. Two instances of one
agent are two sessions, and neither can act for the other.

A session is alive as long as its process is (one machine: the kernel holds its lock), or as
long as it beats (many machines, and whoever calls through a daemon, which is not the process
behind its session). A *shell* session belongs to no process: it serves the
separate commands that one agent types, and lives until it leaves or the machine restarts; what it
holds ends with the time of each lease. A *client* session is found by what the agent's own
program calls its session, so that its server and its hooks act as one. The first process that
stays keeps it alive, and ends it when it leaves; where beats do that, all who stay beat.
Whatever a session held is free when it ends.

A session may take another name while it holds nothing. Its token stays; its other processes
learn the name at their next write. What the old name has not read yet, and the idempotency keys
used under it, stay with that name.

A *token* lets its bearer act through a daemon: as one agent, as anybody, or only look. Its
secret is told once, to whoever adds it; the store keeps what it hashes to, and nothing of it can
be found in the tables, the journal or a backup.

Promised: a session's id is never used again, and a session that has ended can do nothing
more. A token that is revoked or whose time is over opens nothing from then on. Not promised:
that a frozen process is noticed before its leases' time is over.
"""

from __future__ import annotations

import os

from dibs.errors import ExistsError, InvalidError, NotFoundError, NotYoursError, StateError
from dibs.nouns.digest import same, sha256
from dibs.nouns.grants import ticket_alive
from dibs.nouns.recovery import LEASES, end_dead_sessions, end_session
from dibs.nouns.scope import Noun
from dibs.operation import (
    DELAY_MAX_S,
    NAME_LIMIT,
    NEWEST,
    TTL_MAX_S,
    TTL_MIN_S,
    check_agent,
    check_choice,
    check_integer,
    check_name,
    check_seconds,
    check_text,
    operation,
    shown,
    writes,
)
from dibs.records import Mismatch, NewToken, Presence, Session, Token
from dibs.storage.boot import is_process_name, runs
from dibs.storage.queries import Queries
from dibs.storage.store import Caller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.nouns.scope import Scope
    from dibs.storage.driver import Row
    from dibs.storage.store import Read, Write

AGENTS = Queries("agents")
SESSION_TTL_S = 30.0
"""How long a session lives without a beat, where processes cannot be seen."""
SHELL = "shell"
PAGE = 1000
SCOPES = ("read", "agent", "admin")
SECRET_PREFIX = "dibs_"
"""By this, people and scanners see what a leaked secret is for."""


class Agents(Noun):
    @writes(NotYoursError, example="--status 'running the tests'")
    def beat(self, tx: Write, *, status: str | None = None) -> Session:
        """Show that this session is alive, and say what it is doing.

        status: a line about the present work, shown to the others
        """
        if status is not None:
            check_text("status", status)
        session = self.scope.caller.session
        row = tx.rows(AGENTS.one, session=session)[0]
        deadline = None if row["ttl_ms"] is None else tx.now + row["ttl_ms"]
        tx.run(AGENTS.beat, session=session, at=tx.wall, deadline=deadline, status=status)
        if status is not None and status != row["status"]:
            tx.event("session.status", self.scope.caller.agent, {"status": status})
        row |= {
            "deadline": deadline,
            "seen_at": tx.wall,
            "status": row["status"] if status is None else status,
        }
        return session_record(tx, row)

    @writes(NotYoursError)
    def leave(self, tx: Write) -> Session:
        """End this session, and free everything it holds."""
        session = self.scope.caller.session
        row = tx.rows(AGENTS.one, session=session)[0]
        end_session(tx, self.scope.keys, session, "left")
        return session_record(tx, row | {"ended_at": tx.wall})

    @writes(ExistsError, StateError, InvalidError, example="alice")
    def rename(self, tx: Write, name: str) -> Session:
        """Take another name for this session, which must not hold anything now.

        name: a name that no agent here bears now
        """
        check_agent("name", name)
        caller = self.scope.caller
        row = tx.rows(AGENTS.one, session=caller.session)[0]
        if name == caller.agent:
            tx.discard()
            return session_record(tx, row)
        if any(o["agent"] == name and tx.store.alive(o, tx.now) for o in tx.rows(AGENTS.open)):
            raise ExistsError(f"{name} is somebody else here", next="choose another name")
        waits = any(
            ticket_alive(tx, ticket, ticket["number"])
            for ticket in tx.rows(LEASES.tickets_of_session, session=caller.session)
        )
        if waits or tx.rows(AGENTS.holds, session=caller.session, now=tx.now)[0]["number"]:
            raise StateError(
                f"{caller.agent} holds something, or waits for it, under that name",
                next="release it first, or keep the name",
            )
        tx.run(AGENTS.rename, session=caller.session, agent=name)
        seq = tx.event("session.renamed", name, {"was": caller.agent}, agent=name,
                       session=caller.session)  # fmt: skip
        tx.run(AGENTS.known, agent=name, seq=seq, at=tx.wall)
        # Within the turn, so that no other thread of this session sees one name here and the
        # other there. Should the commit fail, the next write finds the name in the row.
        caller.agent = name
        return session_record(tx, row | {"agent": name})

    @operation(cli="agents")
    def list(self, *, everybody: bool = False) -> tuple[Presence, ...]:
        """List who is here, what they are doing, and how much they hold.

        everybody: also those who have no session now
        """
        from dibs.nouns.messages import unread_of  # joining does not need it

        with self.scope.store.read() as tx:
            leases = {
                row["session"]: row["number"]
                for row in tx.rows(AGENTS.leases_by_session, now=tx.now)
            }
            tasks = {
                row["session"]: row["number"]
                for row in tx.rows(AGENTS.tasks_by_session, now=tx.now)
            }
            sessions: dict[str, list[Session]] = {}
            for row in tx.rows(AGENTS.open):
                record = session_record(tx, row)
                if record.alive:
                    sessions.setdefault(row["agent"], []).append(record)
            return tuple(
                Presence(
                    agent=row["name"],
                    sessions=tuple(sessions.get(row["name"], ())),
                    leases=sum(leases.get(s.id, 0) for s in sessions.get(row["name"], ())),
                    tasks=sum(tasks.get(s.id, 0) for s in sessions.get(row["name"], ())),
                    unread=unread_of(tx, row["name"]),
                    first_seen_at=row["first_seen_at"],
                )
                for row in tx.rows(AGENTS.agents)
                if everybody or row["name"] in sessions
            )

    @operation(cli="verify")
    def verify(self) -> tuple[Mismatch, ...]:
        """Check every signature, and list the rows that do not match theirs."""
        keys = self.scope.keys
        found = []
        with self.scope.store.read() as tx:
            for row in tx.rows(AGENTS.signed_leases):
                if not keys.fits("lease", row):
                    found.append(mismatch("lease", row["resource"], row["agent"], row))
            for row in tx.rows(AGENTS.signed_tasks):
                if not keys.fits("task", row):
                    found.append(mismatch("task", row["id"], row["agent"], row))
            after = 0
            while rows := tx.rows(AGENTS.signed_messages, after=after, limit=PAGE):
                after = rows[-1]["id"]
                for row in rows:
                    if not keys.fits("message", row):
                        found.append(mismatch("message", str(row["id"]), row["sender"], row))
        return tuple(found)

    # It takes no idempotency key: the answer that is kept for one would keep the secret too.
    @writes(InvalidError, cli="token add", example="ci --scope agent --expires 30d")
    def add_token(
        self, tx: Write, name: str, *, scope: str = "agent", expires_s: float | None = None
    ) -> NewToken:
        """Add an access token for the daemon; its secret is told this once.

        name: the agent that its bearer acts as
        scope: agent (as that name and its subagents), admin (as anybody), read (only look)
        expires_s: seconds until it opens nothing any more; by default never
        """
        check_agent("name", name)
        check_choice("scope", scope, SCOPES)
        left_ms = None
        if expires_s is not None:
            left_ms = check_seconds("expires_s", expires_s, TTL_MIN_S, DELAY_MAX_S)
        expires_at = None if left_ms is None else tx.wall + left_ms
        secret = new_secret()
        id = tx.event("token.added", name, {"scope": scope, "expires_at": expires_at})
        tx.run(
            AGENTS.add_token,
            id=id,
            name=name,
            scope=scope,
            digest=digest_of(secret),
            agent=self.scope.caller.agent,
            at=tx.wall,
            expires_at=expires_at,
            deadline=None if left_ms is None else tx.now + left_ms,
        )
        return NewToken(
            id=id,
            name=name,
            scope=scope,
            secret=secret,
            created_at=tx.wall,
            expires_at=expires_at,
        )

    @operation(cli="token list")
    def tokens(self) -> tuple[Token, ...]:
        """List the access tokens, without their secrets; those that are over too."""
        with self.scope.store.read() as tx:
            return tuple(map(Token.of, tx.rows(AGENTS.tokens)))

    @writes(NotFoundError, cli="token revoke", example="17")
    def revoke_token(self, tx: Write, id: int) -> Token:
        """Revoke an access token; its secret opens nothing from now on.

        id: the token's number
        """
        row = tx.row(AGENTS.one_token, id=check_integer("id", id, 0, NEWEST))
        if row is None:
            raise NotFoundError(f"there is no token {id}", next="list the tokens")
        if row["revoked_at"] is not None:
            tx.discard()
            return Token.of(row)
        tx.run(AGENTS.revoke_token, id=id, at=tx.wall)
        tx.event("token.revoked", row["name"], {"token": id})
        return Token.of(row, revoked_at=tx.wall)


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
    check_text("status", status)
    beat_ms = check_seconds("ttl_s", ttl_s, TTL_MIN_S, TTL_MAX_S)
    host = os.uname().nodename if host is None else check_text("host", host, NAME_LIMIT)
    pid = os.getpid() if pid is None else check_integer("pid", pid, 0, 2**31)
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


def who(scope: Scope, secret: str) -> Row | None:
    """The row of the token that this is the secret of, if it opens anything now."""
    digest = digest_of(secret)
    with scope.store.read() as tx:
        row = tx.row(AGENTS.token_of, digest=digest)
        # How long the search takes tells of a hash at most, and a hash opens nothing.
        if row is None or not same(row["digest"], digest) or row["revoked_at"] is not None:
            return None
        return row if row["deadline"] is None or row["deadline"] > tx.now else None


def new_secret() -> str:
    from binascii import b2a_base64  # `secrets` and `base64` load far more

    text = b2a_base64(os.urandom(32), newline=False).rstrip(b"=").decode("ascii")
    return SECRET_PREFIX + text.replace("+", "-").replace("/", "_")


def digest_of(secret: str) -> str:
    # A secret is as random as the key of a cipher, so that nothing slower is needed.
    digest: str = sha256(secret.encode("utf-8", "replace")).hexdigest()
    return digest


def session_record(tx: Read, row: Row) -> Session:
    return Session.of(
        row,
        alive=tx.store.alive(row, tx.now),
        process_bound=bool(row["process_bound"]),
        expires_in_ms=None if row["deadline"] is None else max(0, row["deadline"] - tx.now),
    )


def mismatch(noun: str, subject: str, agent: str, row: Row) -> Mismatch:
    return Mismatch(
        noun=noun,
        subject=subject,
        agent=agent,
        session=row["session"],
        epoch=row["epoch"] if noun != "message" else row["id"],
    )
