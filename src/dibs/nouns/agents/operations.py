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
more. A token that was revoked or has expired opens nothing from then on, and the sessions that
were joined with it end. Not promised: that a frozen process is noticed before its leases' time
is over.
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

PAGE = 1000
SECRET_PREFIX = "dibs_"
"""By this, people and scanners see what a leaked secret is for."""


class Agents(Noun):
    @writes(
        NotYoursError,
        by=EVERYBODY,
        events=("session.status",),
        example="--status 'running the tests'",
        ahead=lambda noun, **_: [(AGENTS.one, {"session": noun.scope.session})],
    )
    def beat(self, *, status: str | None = None) -> Session:
        """Show that this session is alive, and say what it is doing.

        status: a line about the present work, shown to the others
        """
        tx = self.tx
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

    @writes(NotYoursError, by=EVERYBODY, events=("session.left",), destructive=True)
    def leave(self) -> Session:
        """End this session, and free everything it holds."""
        from dibs.nouns.recovery import end_session  # not for those who only look

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
        """Take another name for this session, which must not hold anything now.

        name: a name that no agent here has now
        """
        tx = self.tx
        caller = self.scope.caller
        row = tx.rows(AGENTS.one, session=caller.session)[0]
        if name == caller.agent:
            tx.discard()
            return session_record(tx, row)
        if any(o["agent"] == name and tx.store.alive(o, tx.now) for o in tx.rows(AGENTS.open)):
            raise ExistsError(f"{called(name)} is somebody else here", next="choose another name")
        waits = any(
            ticket_alive(tx, ticket, ticket["number"])
            for ticket in tx.rows(LEASES.tickets_of_session, session=caller.session)
        )
        if waits or tx.rows(AGENTS.holds, session=caller.session, now=tx.now)[0]["number"]:
            raise StateError(
                f"{called(caller.agent)} holds something, or waits for it, under that name",
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

    @operation(by=EVERYBODY)
    def doing(self) -> str:
        """Say what this session is doing: its status, or else a task that it has claimed."""
        with self.scope.read() as tx:
            rows = tx.rows(AGENTS.doing, session=self.scope.session, now=tx.now)
        said: str = rows[0]["status"] or rows[0]["title"] or rows[0]["id"] or "" if rows else ""
        return said

    @operation(by=EVERYBODY, cli="agents", empty="nobody is here")
    def list(self, *, everybody: bool = False) -> tuple[Presence, ...]:
        """List who is here, what they are doing, and how much they hold.

        everybody: also those who have no session now
        """
        from dibs.nouns.agents.overview import presences  # joining does not need it

        with self.scope.read() as tx:
            return presences(tx, tx.rows(AGENTS.open), everybody)

    @operation(by=EVERYBODY, cli="overview", example="--json")
    def overview(self, *, agent: str | None = None, limit: int = 100) -> Overview:
        """Give the present as of one moment: who is here, what is held, what needs attention.

        agent: whose unread messages to show; by default the caller's
        limit: at most so many of each
        """
        from dibs.nouns.agents.overview import overview  # joining does not need it

        if agent is None and self.scope.session:
            agent = self.scope.caller.agent
        with self.scope.read() as tx:
            return overview(self.scope, tx, agent, limit)

    @operation(by=EVERYBODY, cli="verify", empty="every signature is right")
    def verify(self) -> tuple[Mismatch, ...]:
        """Check every signature, and list the rows that do not match theirs."""
        keys = self.scope.keys
        found = []
        with self.scope.read() as tx:
            for row in tx.rows(AGENTS.signed_leases):
                if not keys.fits("lease", row):
                    found.append(mismatch("lease", row["resource"], row["agent"], row))
            for row in tx.rows(AGENTS.signed_tasks):
                if not keys.fits("task", row):
                    found.append(mismatch("task", row["id"], row["agent"], row))
            for row in tx.rows(AGENTS.signed_tokens):
                if not keys.fits("token", row):
                    about = {"session": 0, "epoch": row["id"]}
                    found.append(mismatch("token", str(row["id"]), row["name"], about))
            after = 0
            while rows := tx.rows(AGENTS.signed_messages, after=after, limit=PAGE):
                after = rows[-1]["id"]
                for row in rows:
                    if not keys.fits("message", row):
                        found.append(mismatch("message", str(row["id"]), row["sender"], row))
        return tuple(found)

    # It takes no idempotency key: the answer that is kept for one would keep the secret too.
    @writes(
        by=PEOPLE,
        events=("token.added",),
        cli="token add",
        example="ci --scope agent --expires 30d",
    )
    def add_token(
        self, name: str, *, scope: str = "agent", expires_s: float | None = None
    ) -> NewToken:
        """Add an access token for the daemon; its secret is told this once.

        name: the agent that its bearer acts as
        scope: agent (as that name and its subagents), admin (as anybody), read (only look)
        expires_s: how long until it opens nothing any more; by default it never expires
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
        }
        tx.run(AGENTS.add_token, row | {"signature": self.scope.keys.token(row)})
        return NewToken(
            id=id, name=name, scope=scope, secret=secret, created_at=tx.wall, expires_at=expires_at
        )

    @operation(by=PEOPLE, cli="token list", empty="no tokens")
    def tokens(self) -> tuple[Token, ...]:
        """List the access tokens, without their secrets; those that are over too."""
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
        """Revoke an access token, and end the sessions that were joined with it.

        id: the token's number
        """
        tx = self.tx
        row = tx.row(AGENTS.one_token, id=id)
        if row is None:
            raise NotFoundError(f"there is no token {id}", next="list the tokens")
        if row["revoked_at"] is not None:
            tx.discard()
            return Token.of(row)
        tx.run(AGENTS.revoke_token, id=id, at=tx.wall)
        tx.event("token.revoked", row["name"], {"token": id})
        joined = [row for row in tx.rows(AGENTS.open) if token_of(row["label"]) == id]
        end_cut(tx, self.scope.keys, joined)
        return Token.of(row, revoked_at=tx.wall)


def who(scope: Scope, secret: str) -> Row | None:
    """The row of the token that this is the secret of, if it opens anything now."""
    digest = digest_of(secret)
    with scope.store.read() as tx:
        row = tx.row(AGENTS.token_of, digest=digest)
        # How long the search takes tells of a hash at most, and a hash opens nothing.
        good = row is not None and same(row["digest"], digest) and opens(scope, tx, row)
        return row if good else None


def still(scope: Scope, id: int) -> Row | None:
    """The row of a token, if it opens anything now."""
    with scope.store.read() as tx:
        row = tx.row(AGENTS.one_token, id=id)
        return row if opens(scope, tx, row) else None


def new_secret() -> str:
    from binascii import b2a_base64  # `secrets` and `base64` load far more

    text = b2a_base64(os.urandom(32), newline=False).rstrip(b"=").decode("ascii")
    return SECRET_PREFIX + text.replace("+", "-").replace("/", "_")


def digest_of(secret: str) -> str:
    # A secret is as random as the key of a cipher, so that nothing slower is needed.
    digest: str = sha256(secret.encode("utf-8", "replace")).hexdigest()
    return digest


def mismatch(noun: str, subject: str, agent: str, row: Row) -> Mismatch:
    return Mismatch(
        noun=noun,
        subject=subject,
        agent=agent,
        session=row["session"],
        epoch=row["epoch"] if noun != "message" else row["id"],
    )
