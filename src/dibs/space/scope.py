"""What every noun works with: the store, the keys, the place on disk, and who calls.

The caller is set when the scope is made; no operation takes it as an argument.
"""

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
from dibs.digest import sha256
from dibs.errors import UNREADABLE, InvalidError, NotYoursError
from dibs.operation import AGENT, OPERATIONS
from dibs.records import called, to_long_text
from dibs.storage.queries import Queries
from dibs.storage.store import Caller, Read, Store, Write, from_text
from dibs.system import is_process_name, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from dibs.names.paths import Place
    from dibs.space.signing import Keyring
    from dibs.storage.driver import Ahead, Row
    from dibs.storage.queries import Query

    F = TypeVar("F", bound=Callable[..., Any])
    T = TypeVar("T")

SPACE = Queries("space")
AGENTS = Queries("agents")
PID = Whole(0, 2**31)
SESSION_TTL_S = 30.0
"""How long a session lives without a beat, where processes are not visible."""
OWN_KEY = "dibs:"
"""The prefix of idempotency keys made by dibs clients, to repeat a call whose answer was lost."""
TREE_S = 3600.0
"""How long an agent may hold a whole tree, unless the settings say otherwise."""
SHELL, CLIENT, TOKEN = "shell", "client:", "token:"
"""The labels of the session that serves the commands an agent types, and of a client's own.

They are preceded by the origin: empty for this machine's user, `token:17:` for a caller that came
to a daemon with that token. Sessions of one origin are never found from another.
"""


class Door:
    """What a surface knows about its caller, determined when it is needed.

    party: which party calls; an agent, unless the surface knows better
    tree_s: for how long an agent may hold a whole tree
    """

    def __init__(
        self, party: Callable[[], str] = lambda: AGENT, tree_s: Callable[[], float] = lambda: TREE_S
    ) -> None:
        self.party = party
        self.tree_s = tree_s

    def to(self, party: str) -> Door:
        """The same for a known party."""
        return Door(lambda: party, self.tree_s)


class Scope:
    daemon: str | None = None
    """The address of the daemon through which this space is reached, if any."""
    door = Door()
    shared = False
    """Whether this is not the repository's own store, so that others may name theirs there."""

    def __init__(self, store: Store, keys: Keyring, place: Place, caller: Caller | None) -> None:
        self.store = store
        self.keys = keys
        self.place = place
        self._caller = caller

    def of(self, caller: Caller) -> Scope:
        """The same space for another caller."""
        return self._with(self.place, caller, self.door)

    def at(self, place: Place) -> Scope:
        """The same space and caller, with names resolved from another place."""
        return self._with(place, self._caller, self.door)

    def through(self, door: Door) -> Scope:
        """The same space and caller, through another door."""
        return self._with(self.place, self._caller, door)

    def _with(self, place: Place, caller: Caller | None, door: Door) -> Scope:
        made = Scope(self.store, self.keys, place, caller)
        made.door, made.shared = door, self.shared
        return made

    @property
    def owner(self) -> str:
        """The agent that the caller's token is for, if it is for one agent only."""
        return ""

    @property
    def party(self) -> str:
        """Which party calls: agent, person, admin or hook."""
        return self.door.party()

    def noun(self, name: str) -> Any:
        """One of the six nouns, imported at its first use: a command needs one or two."""
        module = __import__(f"dibs.nouns.{name}.operations", fromlist=[name])
        return getattr(module, name.capitalize())(self)

    def join(self, name: str, **how: Any) -> Scope:
        """The same space for an agent that joins it; how: the arguments of `Dibs.join`."""
        if self.shared and not self.place.home:
            self.place.share(self.store.belong(self.place.repository))
        found = self.found(name, how["client"], how["process"]) if how["shell"] else None
        return self.of(found or mint(self, name, **how))

    def found(
        self, name: str, client: str | None, process: str | None, origin: str = ""
    ) -> Caller | None:
        """The shell's or client's session, by a read: None if it must be created or changed.

        process: the process that it ends with, if any
        """
        with self.store.read() as tx:
            row = labelled(tx, name, client, origin)
        if row is None:
            return None
        bound = row["process"]
        if process is not None and (bound is None or not runs(bound)):
            return None
        return Caller(row["agent"], row["id"], owned=False, nonce=row["nonce"])

    def resume(self, token: str) -> Scope:
        """The same space for a session that another process keeps alive."""
        from dibs.nouns.agents import sessions

        return self.of(sessions.resume(self, token))

    @property
    def space(self) -> str:
        return self.store.name

    @property
    def described(self) -> str:
        """Which space this is and where, for `repr`: without credentials, and asking nobody."""
        return f"space={self.store.name!r} store={self.store.driver.address!r}"

    @property
    def token(self) -> str:
        """What another process needs to act in the caller's session."""
        return self.keys.session_token(self.caller.session, self.caller.nonce)

    @property
    def boot(self) -> str:
        """The boot whose clock decides when things expire; empty if a server's clock does."""
        return self.store.driver.boot

    @property
    def beats(self) -> bool:
        """Whether a session lives by beats, because its process is not visible."""
        return self.store.liveness is None

    def settled(self) -> Place:
        """Where the caller is, once it is known how its paths are named in this space."""
        return self.place

    def part(self) -> None:
        """End the caller's session, unless another process continues it."""
        from dibs.nouns.agents import sessions

        sessions.part(self)

    def let_go(self) -> None:
        """Stop keeping the caller's session alive from this process."""
        if self.store.liveness is not None:
            self.store.liveness.let_go(self.caller.session)

    def tidy(self) -> None:
        """Prune a little, if there is anything to prune."""
        from dibs.nouns.events import pruning  # late, since it is rarely due

        pruning.tidy(self)

    def blame(self, error: Exception) -> None:
        """Raise what to say if a call failed because something else changed the store."""
        from dibs.nouns.events import proof  # late, since it is rarely needed

        if self.daemon is None:
            proof.blame(self, error)

    def at_close(self, call: Callable[[], None]) -> None:
        """Register something to do before the space is closed."""
        self.store.at_close.append(call)

    def close(self) -> None:
        self.store.close()

    @property
    def caller(self) -> Caller:
        if self._caller is None:
            raise NotYoursError("this needs a session, and nobody has joined", next="join first")
        return self._caller

    @property
    def session(self) -> int:
        """The caller's session; 0 if nobody has joined."""
        return 0 if self._caller is None else self._caller.session

    def write(self, ahead: Ahead = None, wait_s: float = 0) -> Write:
        return self.store.write(self.caller, ahead, wait_s)

    def read(self, ahead: Ahead = None) -> Read:
        """A read for the caller, if it has joined; refused if its session is unknown."""
        return self.store.read(ahead, self._caller)

    def long_read(self, seconds: float) -> Read:
        """A read of everything that may take this long; the caller's session need not exist."""
        tx = self.store.read()
        tx.patience_s = seconds
        return tx

    def digest(self, name: str, request: object) -> str:
        """What distinguishes this call of an operation from others with the same key."""
        if OPERATIONS[name].grants:
            # A grant to one session must not be returned to another as its own.
            request = [self.session, request]
        try:
            text = to_long_text(request)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidError(f"an argument cannot be written as JSON: {error}") from None
        digest: str = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return digest

    def asked_before(self, *keys: str) -> tuple[Query, Row]:
        """The query for the answers to calls with these idempotency keys."""
        return SPACE.answered, {"agent": self.caller.agent, "keys": keys}

    def once(
        self,
        tx: Write,
        name: str,
        key: str | None,
        request: object,
        do: Callable[[], T],
        known: dict[str, Row] | None = None,
    ) -> T:
        """Do it, unless this key was used before; then return the first answer.

        known: the answers for the keys of all items, if this is one of many
        """
        if key is None:
            return do()
        operation = OPERATIONS[name]
        digest = self.digest(name, request)
        agent = self.caller.agent
        if known is None:
            first = tx.row(SPACE.answered, agent=agent, keys=(key,))
        else:
            first = known.get(key)
        if first is not None:
            if (first["operation"], first["request"]) != (operation.name, digest):
                raise InvalidError(
                    f"the idempotency key {key!r} was used for another call",
                    next="use a new key for each new call",
                )
            if known is None:
                tx.discard()
            answer: T = operation.load(from_text(first["answer"]))
            return answer
        result = do()
        said: Row = {"agent": agent, "key": key, "operation": operation.name, "request": digest}
        said |= {"answer": to_long_text(result), "at": tx.wall}
        tx.run(SPACE.remember, said)
        if known is not None:
            known[key] = said
        return result


class Noun:
    """One of the six nouns: operations on the scope, bound to one caller."""

    tx: Write
    """The transaction that a method marked with `@writes` runs in."""
    known: Any = None
    """What was read at once for all items, in a method that makes many calls."""

    def __init__(self, scope: Scope, tx: Write | None = None) -> None:
        self.scope = scope
        if tx is not None:
            self.tx = tx

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.scope.described}>"


def blaming(method: F) -> F:
    """Let a function fail as operations do if something else has changed the store."""

    def call(scope: Scope, *args: Any, **named: Any) -> Any:
        try:
            return method(scope, *args, **named)
        except UNREADABLE as error:
            scope.blame(error)
            raise

    return call  # type: ignore[return-value]


@blaming
def mint(
    scope: Scope,
    name: str,
    status: str = "",
    shell: bool = False,
    client: str | None = None,
    ttl_s: float = SESSION_TTL_S,
    process: str | None = None,
    remote: bool = False,
    host: str | None = None,
    pid: int | None = None,
    origin: str = "",
    alone: bool = False,
) -> Caller:
    """Create a session, or find the shell's or the client's; return the new caller.

    process: the name (`system.process_name`) of the process that a shell session ends with
    remote: the caller is not this process, so its session lives by beats even where processes
        are visible, and does not end with this one
    host, pid: the caller's machine and process, as it says itself
    origin: where the caller comes from, as a daemon knows it (`origin_of`)
    alone: only if no other live session has this name
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
    label = origin + SHELL if shell else origin
    if client is not None:
        label = origin + CLIENT + check_name("client", client)
    with store.write(None) as tx:
        if origin and not opens(scope, tx, tx.row(AGENTS.one_token, id=token_of(origin))):
            raise NotYoursError("this token was revoked or has expired", next="ask for a new one")
        if label != origin and (row := labelled(tx, name, client, origin)) is not None:
            return keep(tx, row, shell, bound, beat_ms, host, pid, process)
        there = tx.rows(AGENTS.open)
        if not all(store.alive(row, tx.now) for row in there):
            from dibs.nouns.recovery import end_dead_sessions  # late: rarely needed

            end_dead_sessions(tx, scope.keys, there)
        if alone and any(row["agent"] == name and store.alive(row, tx.now) for row in there):
            raise NotYoursError(
                f"another session already uses the name {called(name)}", next="omit --as"
            )
        ttl_ms, nonce = None if bound or shell else beat_ms, os.urandom(8).hex()
        session = tx.event("session.joined", name, {"status": status}, agent=name)
        if bound:
            tx.hold(session)
        tx.run(AGENTS.known, agent=name, seq=session, at=tx.wall)
        joined: Row = {
            "id": session,
            "agent": name,
            "label": label,
            "process_bound": int(bound),
            "process": process,
            "boot": store.driver.boot,
            "host": host,
            "pid": pid,
            "status": status,
            "joined_at": tx.wall,
            "seen_at": tx.wall,
            "ttl_ms": ttl_ms,
            "deadline": None if ttl_ms is None else tx.now + ttl_ms,
            "nonce": nonce,
        }
        tx.run(AGENTS.join, joined | {"signature": store.ledger.session(joined)})
    return Caller(name, session, owned=not shell, nonce=nonce)


def origin_of(token: int) -> str:
    """The prefix of the labels of sessions that joined with a token."""
    return f"{TOKEN}{token}:"


def token_of(label: str) -> int | None:
    """The token that a session with this label joined with; None for the machine's user."""
    return int(label.split(":", 2)[1]) if label.startswith(TOKEN) else None


def opens(scope: Scope, tx: Read, token: Row | None) -> bool:
    """Whether a token exists, was made by dibs, was not revoked, and has not expired."""
    if token is None or token["revoked_at"] is not None or not scope.keys.fits("token", token):
        return False
    return token["deadline"] is None or bool(token["deadline"] > tx.now)


def labelled(tx: Read, name: str, client: str | None, origin: str = "") -> Row | None:
    """The session of an agent's shell or client, if it exists and is alive."""
    if client is None:
        row = tx.row(AGENTS.labelled, agent=name, label=origin + SHELL)
    else:
        row = tx.row(AGENTS.of_client, label=origin + CLIENT + client)
    return row if row is not None and tx.store.alive(row, tx.now) else None


def keep(
    tx: Write,
    row: Row,
    shell: bool,
    bound: bool,
    beat_ms: int,
    host: str,
    pid: int,
    process: str | None,
) -> Caller:
    """Act in an existing session, and keep it alive if nobody does yet.

    With beats, every long-lived process beats: the one that did before may be dead.
    """
    bound_to = row["process"]
    gone = bound_to is None or not runs(bound_to)
    if shell and process is not None and gone:
        tx.run(AGENTS.bind, session=row["id"], process=process, host=host)
        return Caller(row["agent"], row["id"], owned=False, nonce=row["nonce"])
    if shell or (row["process_bound"] and tx.store.lock_held(row["id"])):
        tx.discard()
        return Caller(row["agent"], row["id"], owned=False, nonce=row["nonce"])
    if bound:
        tx.hold(row["id"])
    ttl_ms = max(beat_ms, row["ttl_ms"] or 0)
    deadline = None if bound else tx.now + ttl_ms
    tx.run(
        AGENTS.keep,
        session=row["id"],
        process_bound=int(bound),
        host=host,
        pid=pid,
        ttl_ms=None if bound else ttl_ms,
        deadline=deadline,
        signature=tx.store.ledger.signed_session(row, deadline),
    )
    owned = bound or row["ttl_ms"] is None
    return Caller(row["agent"], row["id"], owned=owned, nonce=row["nonce"])
