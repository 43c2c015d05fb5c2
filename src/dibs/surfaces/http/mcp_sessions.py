"""On whose behalf a tool acts when it is called over HTTP, and what a client returns to.

The token says who: its name is the agent's name, and cannot be changed. What differs is the session
that holds leases:

- a client of a handshake era has one per MCP session. It ends when the client deletes it, soon
  after the client's stream has broken, and after a long silence;
- a client without sessions acts in the session it names (`_meta.sessionId`), which ends after a
  long silence, or otherwise in the agent's shell session, in which every lease lasts until it
  expires.

All of these are kept alive with beats, not by this process, so they can continue at another daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dibs.dibs import Agent
from dibs.errors import DibsError, NotYoursError, RefusedError, UnavailableError
from dibs.mcp.callers import Callers, client_session, kind_of
from dibs.mcp.calls import McpConnection
from dibs.mcp.protocol import BATCHES, Request
from dibs.mcp.server import Server
from dibs.mcp.standard import STANDARD
from dibs.nouns.recovery import end_session
from dibs.space.scope import AGENTS, labelled, mint
from dibs.surfaces.http.access import Access, GuardError
from dibs.surfaces.http.present import LASTING_LIMIT, TooManyWaits

if TYPE_CHECKING:
    from dibs.surfaces.http.app import Daemon

SESSION = "mcp-session-id"
LABEL = "mcp:"
VERSION = "mcp-protocol-version"
IDLE_S = 1800.0
"""How long a silent session is kept: a model may be thinking, or running all tests."""
BEAT_S = IDLE_S / 6
TTL_S = IDLE_S + 2 * BEAT_S
GONE_S = 10.0
"""How long a client has to reconnect after its stream has broken."""
SESSIONS_LIMIT = 10_000
TOKEN_LIMIT = 1_000
"""How many sessions one token may have, unless it belongs to the daemon's own user."""
SILENCE: Any = {"method": ""}
"""Stands for a pause without messages."""
NEWS_LIMIT = 100
"""How much is kept for a client that does not listen. All of it only says: look again."""


@dataclass
class Kept:
    """A session that is kept alive for a client, as long as the client is active."""

    agent: Agent
    beaten: float
    heard: float = 0.0
    seen_at: int = 0
    """When the store last recorded our beat; another daemon's beat changes it."""


class TokenCallers(Callers):
    """The sessions of an agent that brings no session, or of one MCP session."""

    def __init__(self, daemon: Daemon, access: Access, label: str | None) -> None:
        super().__init__(lambda: daemon.space, {})
        self.space()
        self.access = access
        self._daemon = daemon
        self._label = label
        self._kept: dict[str, Kept] = {}

    def is_for(self, access: Access) -> bool:
        """Whether a request with this access may go on here."""
        return (self.access.agent, self.access.origin) == (access.agent, access.origin)

    def is_nameless(self, request: Request) -> bool:
        return False

    def agent(self, request: Request) -> Agent:
        """The session this request acts in."""
        label = client_session(kind_of(request.client), request, {})
        label = label or self._label
        if label is None or self.access.session is not None:
            return self._daemon.sessions.of(self.access)
        return self._keep(label).agent

    def settle(self) -> None:
        """Keep the session in the store, so that it can continue at any other daemon."""
        if self._label is not None and self.access.session is None:
            self._keep(self._label)

    @property
    def is_shared(self) -> bool:
        """Whether other daemons may serve the same space."""
        return self._daemon.space.scope.store.liveness is None

    def _keep(self, label: str) -> Kept:
        with self._lock:
            kept = self._kept.get(label)
            if kept is None:
                kept = self._kept[label] = Kept(self._sit(label), time.monotonic())
                if self.is_shared:
                    kept.seen_at = kept.agent.agents.beat().seen_at
            kept.heard = time.monotonic()
            return kept

    def _sit(self, label: str) -> Agent:
        scope, name = self._daemon.space.scope, self.access.agent
        origin = self.access.origin
        if owner(self._daemon, label, origin) not in (None, name):
            raise NotYoursError("the session in this call belongs to somebody else")
        how = partial(mint, client=label, ttl_s=TTL_S, remote=True, origin=origin)
        return Agent(scope.of(how(scope, name)))

    def forget(self, error: DibsError) -> None:
        """Let the next call begin a new session if this one has ended."""
        if isinstance(error, NotYoursError):
            self._daemon.sessions.forget(self.access)
            over = error.details.get("session")
            with self._lock:
                known = self._kept.items()
                self._kept = {label: kept for label, kept in known if kept.agent.session != over}

    def keep(self, heard: float = 0) -> None:
        """Beat for the sessions in use, and end those that were silent for long.

        heard: when the client was last seen, even without a request
        """
        with self._lock:
            known = list(self._kept.items())
        for label, kept in known:
            now, kept.heard = time.monotonic(), max(kept.heard, heard)
            if now - kept.heard > IDLE_S:
                self._leave(label)
            elif kept.heard > kept.beaten:
                kept.beaten = now
                try:
                    kept.seen_at = kept.agent.agents.beat().seen_at
                except UnavailableError:
                    continue  # the next beat comes before it expires
                except NotYoursError as error:
                    self.forget(error)

    def close(self, asked: bool = True) -> None:
        """End the sessions that are kept here, and release what they hold.

        asked: the client requested it; otherwise it is only missing here, and may be elsewhere
        """
        with self._lock:
            known = list(self._kept)
        for label in known:
            self._leave(label, asked)

    def _leave(self, label: str, asked: bool = False) -> None:
        with self._lock:
            kept = self._kept.pop(label, None)
        if kept is not None:
            try:
                if asked or not self.is_shared:
                    kept.agent.agents.leave()
                else:
                    leave_unless_elsewhere(kept)
            except (RefusedError, UnavailableError):
                return  # it has ended already, or will expire


def leave_unless_elsewhere(kept: Kept) -> None:
    """End a session if no other daemon has seen its client since we did."""
    scope = kept.agent.scope
    with scope.write() as tx:
        (row,) = tx.rows(AGENTS.one, session=scope.caller.session)
        if row["seen_at"] == kept.seen_at:
            end_session(tx, scope.keys, scope.caller.session, "left")
        else:
            tx.discard()


def owner(daemon: Daemon, label: str, origin: str) -> str | None:
    """The owner of the live session with this label, if there is one."""
    with daemon.space.scope.store.read() as tx:
        row = labelled(tx, "", label, origin)
    return None if row is None else str(row["agent"])


class Told:
    """Messages of threads, which the event loop passes on; None is the end."""

    def __init__(self, limit: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._limit = limit

    def put(self, message: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody listens
            self._loop.call_soon_threadsafe(self._add, message)

    def _add(self, message: Any) -> None:
        if not self._limit or self._queue.qsize() < self._limit:
            self._queue.put_nowait(message)

    async def next(self, gone: asyncio.Future[Any], seconds: float) -> Any:
        """The next message, SILENCE after a pause of this length; raises if the client is gone."""
        if not self._queue.empty():
            return self._queue.get_nowait()
        coming = asyncio.ensure_future(self._queue.get())
        await asyncio.wait([coming, gone], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if coming.done():
            return coming.result()
        coming.cancel()
        if gone.done():
            raise ConnectionError
        return SILENCE


class McpSession:
    """What a client of a handshake era returns to."""

    def __init__(self, callers: TokenCallers) -> None:
        self.callers = callers
        self.news = Told(NEWS_LIMIT)
        self.connection = McpConnection(Server(callers, STANDARD), self.news.put)
        self.heard = time.monotonic()
        self.exchanges = self.streams = 0
        self.ending: asyncio.TimerHandle | None = None

    def hear(self) -> None:
        """Note that the client is there."""
        self.heard = time.monotonic()
        if self.ending is not None:
            self.ending.cancel()
            self.ending = None


class McpSessions:
    """The sessions of all clients, and the callers of clients without sessions."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._sessions: dict[str, McpSession] = {}
        self._callers: dict[Access, TokenCallers] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """References to tasks, since the loop keeps none."""
        self.connections: set[McpConnection] = set()
        """The sessions with a call in progress."""
        daemon.at_hush.append(self.hush)
        daemon.at_cut.append(self.cut)
        self._keeping = asyncio.create_task(self._keep())

    def hush(self) -> None:
        """Answer waiting calls, since the daemon is stopping; their sessions continue."""
        self._keeping.cancel()
        for session in self._sessions.values():
            session.connection.close()
            session.news.put(None)
        for connection in list(self.connections):
            connection.close()

    def cut(self, tokens: set[int]) -> None:
        """End the sessions of these tokens; their calls are cancelled elsewhere."""
        for id, session in list(self._sessions.items()):
            if session.callers.access.token in tokens:
                self._end_soon(id)
        callers = self._callers.items()
        self._callers = {access: one for access, one in callers if access.token not in tokens}

    def _end_soon(self, id: str) -> None:
        self._ending.add(task := asyncio.ensure_future(self.end(id)))
        task.add_done_callback(self._ending.discard)

    async def _keep(self) -> None:
        """Beat for clients that are there, and forget the others."""
        while True:
            await asyncio.sleep(BEAT_S)
            for id, session in list(self._sessions.items()):
                if session.exchanges or session.streams:
                    session.heard = time.monotonic()
                if time.monotonic() - session.heard > IDLE_S:
                    await self.end(id)
                else:
                    await self.daemon.waits.do(partial(session.callers.keep, session.heard))
            for callers in list(self._callers.values()):
                await self.daemon.waits.do(callers.keep)

    def stateless(self, access: Access) -> Server:
        """The caller of a client without a session."""
        if access not in self._callers:
            if len(self._callers) >= SESSIONS_LIMIT:
                self._callers.clear()  # returning clients find the same sessions again
            self._callers[access] = TokenCallers(self.daemon, access, None)
        return Server(self._callers[access], STANDARD)

    def begin(self, access: Access, id: str) -> McpSession:
        limit = TOKEN_LIMIT if access.origin else SESSIONS_LIMIT
        if len(self._sessions) >= SESSIONS_LIMIT or len(self._of(access)) >= limit:
            raise GuardError(429, "too_many", "too many MCP sessions are open", "end some of them")
        session = self._sessions[id] = McpSession(TokenCallers(self.daemon, access, LABEL + id))
        return session

    def _of(self, access: Access) -> list[McpSession]:
        """The sessions of this token."""
        known = self._sessions.values()
        return [one for one in known if one.callers.access.token == access.token]

    def check_follower(self, access: Access, session: McpSession) -> None:
        """Refuse subscriptions in too many sessions: each one needs a thread."""
        following = [one for one in self._of(access) if one.connection.follower is not None]
        if access.origin and session not in following and len(following) >= LASTING_LIMIT:
            raise TooManyWaits()

    async def find(self, access: Access, headers: dict[str, str]) -> McpSession | None:
        """The session of a request, even if another daemon began it."""
        id = headers.get(SESSION, "")
        session = self._sessions.get(id)
        named = id.isascii() and id.isalnum() and len(id) <= 100
        look = partial(owner, self.daemon, LABEL + id, access.origin)
        if session is None and named and await self.daemon.reader.do(look) == access.agent:
            session = self._sessions.get(id) or self.begin(access, id)
            session.connection.version = headers.get(VERSION, BATCHES)
            await self.daemon.waits.do(session.callers.settle)
        if session is None or not session.callers.is_for(access):
            return None
        session.hear()
        return session

    async def settle(self, session: McpSession) -> None:
        """Tell other daemons about a new session, if there may be any."""
        if session.callers.is_shared:
            await self.daemon.waits.do(session.callers.settle)

    async def end(self, id: str, asked: bool = False) -> None:
        """End a session and release what it holds, unless its client is at another daemon.

        asked: the client requested it, so end it wherever it is
        """
        session = self._sessions.pop(id, None)
        if session is not None:
            session.hear()
            session.connection.close()
            session.news.put(None)
            await self.daemon.waits.do(partial(session.callers.close, asked))

    def miss(self, id: str, session: McpSession) -> None:
        """Handle a broken stream: end the session unless the client comes back."""

        def end() -> None:
            session.ending = None
            if session.exchanges:
                self.miss(id, session)
            else:
                self._end_soon(id)

        session.ending = asyncio.get_running_loop().call_later(GONE_S, end)
