"""Agents and their sessions: who is here.

An agent is a name; a session is one running instance of it. The store numbers the sessions, and
each lease and task belongs to one. A subagent (`alice/tests`) is an agent of its own. Two
instances of one agent are two sessions, and neither can act for the other.

A session is alive as long as its process is (on one machine, the kernel holds its lock), or as
long as it beats (across machines, and for callers of a daemon, which is not the process behind
the session). A *shell* session belongs to no process: it serves the separate commands that one
agent types, and lives until it leaves or the machine restarts; each lease it holds expires on
its own. A *client* session is found by the id that the agent's own program gives its session,
so that the program's server and hooks act as one. The first long-lived process keeps it alive,
and ends it when it leaves; where sessions beat, all long-lived processes beat for it.
Everything a session held is freed when it ends.

A session may take another name while it holds nothing. Its token stays valid; its other
processes learn the name at their next write. Messages that the old name has not read, and
idempotency keys used under it, stay with the old name.

A *token* lets its owner act through a daemon: as one agent, as any agent, or read-only. Its
secret is shown once, when it is added; the store keeps only a hash, so the secret cannot be
found in the tables, the journal or a backup.

Promised: a session's id is never reused, and a session that has ended can do nothing more. A
token that was revoked or has expired grants no access from then on, and the sessions that
joined with it end. Not promised: that a frozen process is noticed before its leases expire.
"""

from __future__ import annotations

import os

from dibs.arguments import NUMBER, milliseconds
from dibs.digest import same, sha256
from dibs.errors import ExistsError, NotFoundError, NotYoursError, StateError
from dibs.nouns.agents.sessions import end_cut, session_record
from dibs.nouns.leases.grants import LEASES, ticket_alive
from dibs.operation import EVERYBODY, PEOPLE, operation, writes
from dibs.records import Mismatch, NewToken, Overview, Presence, Session, Token, called
from dibs.space.scope import AGENTS, Noun, Scope, opens, token_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.storage.driver import Row

SECRET_PREFIX = "dibs_"
"""The prefix by which people and secret scanners recognise a leaked secret."""


class Agents(Noun):
    @writes(
        NotYoursError,
        by=EVERYBODY,
        events=("session.status",),
        example="--status 'running the tests'",
        ahead=lambda noun, **_: [(AGENTS.one, {"session": noun.scope.session})],
    )
    def beat(self, *, status: str | None = None) -> Session:
        """Report that this session is alive, and what it is doing.

        status: a line about the current work, shown to other agents
        """
        tx = self.tx
        session = self.scope.caller.session
        row = tx.rows(AGENTS.one, session=session)[0]
        deadline = None if row["ttl_ms"] is None else tx.now + row["ttl_ms"]
        sign = {"id": session, "nonce": row["nonce"], "seen_at": tx.wall, "deadline": deadline}
        sign |= {"signature": tx.store.ledger.session(sign)}
        tx.run(AGENTS.beat, sign | {"session": session, "status": status})
        if status is not None and status != row["status"]:
            tx.event("session.status", self.scope.caller.agent, {"status": status})
        row |= {
            "deadline": deadline,
            "seen_at": tx.wall,
            "status": row["status"] if status is None else status,
        }
        return session_record(tx, row)

    @writes(NotYoursError, by=EVERYBODY, events=("session.left",), destructive=True)
    def leave(self) -> Session:
        """End this session, and free everything it holds."""
        from dibs.nouns.recovery import end_session  # late: readers do not need it

        tx = self.tx
        session = self.scope.caller.session
        row = tx.rows(AGENTS.one, session=session)[0]
        end_session(tx, self.scope.keys, session, "left")
        return session_record(tx, row | {"ended_at": tx.wall})

    @writes(
        ExistsError,
        StateError,
        by=EVERYBODY,
        scope="admin",  # a token is for one name
        events=("session.renamed",),
        example="alice",
    )
    def rename(self, name: str) -> Session:
        """Rename this session, which must not hold anything.

        name: a name that no agent here uses now
        """
        tx = self.tx
        caller = self.scope.caller
        row = tx.rows(AGENTS.one, session=caller.session)[0]
        if name == caller.agent:
            tx.discard()
            return session_record(tx, row)
        if any(o["agent"] == name and tx.store.alive(o, tx.now) for o in tx.rows(AGENTS.open)):
            raise ExistsError(
                f"another agent here uses the name {called(name)}", next="choose another"
            )
        waits = any(
            ticket_alive(tx, ticket, ticket["number"])
            for ticket in tx.rows(LEASES.tickets_of_session, session=caller.session)
        )
        if waits or tx.rows(AGENTS.holds, session=caller.session, now=tx.now)[0]["number"]:
            raise StateError(
                f"{called(caller.agent)} holds or waits for something under that name",
                next="release it first, or keep the name",
            )
        tx.run(AGENTS.rename, session=caller.session, agent=name)
        seq = tx.event("session.renamed", name, {"was": caller.agent}, agent=name,
                       session=caller.session)  # fmt: skip
        tx.run(AGENTS.known, agent=name, seq=seq, at=tx.wall)
        # Within the turn, so that all threads of this session see the same name. If the commit
        # fails, the next write reads the name from the row.
        caller.agent = name
        return session_record(tx, row | {"agent": name})

    @operation(by=EVERYBODY)
    def doing(self) -> str:
        """Show what this session is doing: its status, or else a task that it has claimed."""
        with self.scope.read() as tx:
            rows = tx.rows(AGENTS.doing, session=self.scope.session, now=tx.now)
        said: str = rows[0]["status"] or rows[0]["title"] or rows[0]["id"] or "" if rows else ""
        return said

    @operation(by=EVERYBODY, cli="agents", empty="nobody is here")
    def list(self, *, everybody: bool = False) -> tuple[Presence, ...]:
        """List who is here, what they are doing, and how much they hold.

        everybody: include agents without a session
        """
        from dibs.nouns.agents.overview import presences  # joining does not need it

        with self.scope.read() as tx:
            return presences(tx, tx.rows(AGENTS.open), everybody)

    @operation(by=EVERYBODY, cli="overview", example="--json")
    def overview(self, *, agent: str | None = None, limit: int = 100) -> Overview:
        """Show the current state: who is here, what is held, and what needs attention.

        agent: whose unread messages to show; by default your own
        limit: the maximum number of each
        """
        from dibs.nouns.agents.overview import overview  # joining does not need it

        if agent is None and self.scope.session:
            agent = self.scope.caller.agent
        with self.scope.read() as tx:
            return overview(self.scope, tx, agent, limit)

    @operation(by=EVERYBODY, cli="verify", empty="no tampering found")
    def verify(self) -> tuple[Mismatch, ...]:
        """Check that nobody changed the store without dibs, and list the rows that were changed.

        Each row is listed with what happened to it: changed, removed, inserted, or replayed (an
        older row was put back). An event that follows a replaced one is unproven. The chain proves
        the journal, and the journal proves the rows.
        """
        from dibs.nouns.events.proof import verify  # late, since it is rarely used

        return verify(self.scope)

    # It takes no idempotency key: the answer kept for the key would contain the secret.
    @writes(
        by=PEOPLE,
        events=("token.added",),
        cli="token add",
        example="ci --scope agent --expires 30d",
    )
    def add_token(
        self, name: str, *, scope: str = "agent", expires_s: float | None = None
    ) -> NewToken:
        """Add an access token for the daemon; its secret is shown only once.

        name: the agent that the token acts as
        scope: agent (that name and its subagents), admin (any agent), read (read-only)
        expires_s: how long until it expires; by default it never expires
        """
        tx = self.tx
        left_ms = None if expires_s is None else milliseconds(expires_s)
        expires_at = None if left_ms is None else tx.wall + left_ms
        secret = new_secret()
        said = {"scope": scope, "expires_at": expires_at}
        id = tx.event("token.added", name, said, grows=True)
        row = {
            "id": id,
            "name": name,
            "scope": scope,
            "digest": digest_of(secret),
            "created_by": self.scope.caller.agent,
            "created_at": tx.wall,
            "expires_at": expires_at,
            "deadline": None if left_ms is None else tx.now + left_ms,
            "revoked_at": None,
        }
        tx.run(AGENTS.add_token, row | {"signature": self.scope.keys.token(row)})
        return NewToken(
            id=id, name=name, scope=scope, secret=secret, created_at=tx.wall, expires_at=expires_at
        )

    @operation(by=PEOPLE, cli="token list", empty="no tokens")
    def tokens(self) -> tuple[Token, ...]:
        """List the access tokens without their secrets, including expired and revoked ones."""
        with self.scope.read() as tx:
            return tuple(map(Token.of, tx.rows(AGENTS.tokens)))

    @writes(
        NotFoundError,
        by=PEOPLE,
        events=("token.revoked", "session.revoked"),
        destructive=True,
        cli="token revoke",
        example="17",
        kinds={"id": NUMBER},
    )
    def revoke_token(self, id: int) -> Token:
        """Revoke an access token, and end the sessions that joined with it.

        id: the token's number
        """
        tx = self.tx
        row = tx.row(AGENTS.one_token, id=id)
        if row is None:
            raise NotFoundError(f"there is no token {id}", next="list the tokens")
        if row["revoked_at"] is not None:
            tx.discard()
            return Token.of(row)
        # A forged token grants no access; it stays so that it can be seen.
        fits, row = self.scope.keys.fits("token", row), row | {"revoked_at": tx.wall}
        signature = self.scope.keys.token(row) if fits else row["signature"]
        tx.run(AGENTS.revoke_token, row | {"signature": signature})
        tx.event("token.revoked", row["name"], {"token": id})
        joined = [row for row in tx.rows(AGENTS.open) if token_of(row["label"]) == id]
        end_cut(tx, self.scope.keys, joined)
        return Token.of(row, revoked_at=tx.wall)


def who(scope: Scope, secret: str) -> Row | None:
    """The row of the token with this secret, if the token is valid now."""
    digest = digest_of(secret)
    with scope.store.read() as tx:
        row = tx.row(AGENTS.token_of, digest=digest)
        # The time the search takes can reveal only a hash, and a hash grants no access.
        good = row is not None and same(row["digest"], digest) and opens(scope, tx, row)
        return row if good else None


def still(scope: Scope, id: int) -> Row | None:
    """The row of a token, if it is valid now."""
    with scope.store.read() as tx:
        row = tx.row(AGENTS.one_token, id=id)
        return row if opens(scope, tx, row) else None


def new_secret() -> str:
    from binascii import b2a_base64  # `secrets` and `base64` load far more

    text = b2a_base64(os.urandom(32), newline=False).rstrip(b"=").decode("ascii")
    return SECRET_PREFIX + text.replace("+", "-").replace("/", "_")


def digest_of(secret: str) -> str:
    # A secret is as random as a cipher key, so no slow hash is needed.
    digest: str = sha256(secret.encode("utf-8", "replace")).hexdigest()
    return digest
