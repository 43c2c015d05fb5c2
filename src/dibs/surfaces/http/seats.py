"""Whom a tool acts for, when it is called over HTTP.

The token says who; that is the agent's name, and nobody takes another one. What differs is the
session that holds things:

- a client of a handshake era has one per MCP session. It ends when the client deletes it, soon
  after its stream has broken off, and after a long silence;
- a client without sessions acts in the session it names (`_meta.sessionId`), which ends after a
  long silence, or else in the agent's shell session, in which every lease lasts for its time.

All of these live by beats, not by this process: they go on where another daemon does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dibs.dibs import Agent
from dibs.errors import DibsError, NotYoursError, RefusedError, UnavailableError
from dibs.mcp.callers import Callers, client_session, kind_of
from dibs.nouns.agents import sessions

if TYPE_CHECKING:
    from dibs.mcp.protocol import Request
    from dibs.surfaces.http.access import Access
    from dibs.surfaces.http.app import Daemon

IDLE_S = 1800.0
"""So long a session is kept of which nothing is heard: a model may think, or run all tests."""
BEAT_S = IDLE_S / 6
TTL_S = IDLE_S + 2 * BEAT_S


class Kept:
    """A session that we keep alive for a client, as long as it is heard of."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.heard = self.beaten = time.monotonic()


class Seat(Callers):
    """The sessions of one agent that has none of its own, or of one MCP session."""

    def __init__(self, daemon: Daemon, access: Access, id: str | None) -> None:
        super().__init__(lambda: daemon.space, {})
        self.space()
        self.access = access
        self._daemon = daemon
        self._id = id
        self._kept: dict[str, Kept] = {}

    def is_nameless(self, request: Request) -> bool:
        return False

    def agent(self, request: Request) -> Agent:
        """The session this request acts in."""
        label = client_session(kind_of(request.client), request, {})
        label = label or (self._id and label_of(self._id))
        if label is None or self.access.session is not None:
            return self._daemon.sessions.of(self.access)
        with self._lock:
            kept = self._kept.get(label)
            if kept is None:
                kept = self._kept[label] = Kept(self._sit(label))
            kept.heard = time.monotonic()
            return kept.agent

    def _sit(self, label: str) -> Agent:
        scope, name = self._daemon.space.scope, self.access.agent
        if owner(self._daemon, label) not in (None, name):
            raise NotYoursError("the session that this call names is somebody else's")
        return Agent(scope.of(sessions.join(scope, name, "", False, label, TTL_S, remote=True)))

    def forget(self, error: DibsError) -> None:
        """Let the next call begin anew if the session is over."""
        if isinstance(error, NotYoursError):
            self._daemon.sessions.forget(self.access)
            with self._lock:
                for label, kept in list(self._kept.items()):
                    if kept.agent.session == error.details.get("session"):
                        del self._kept[label]

    def keep(self, heard: float = 0) -> None:
        """Beat for the sessions in use, and end those that nothing was heard of for long.

        heard: when the client was last there, also if it asked for nothing
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
                    kept.agent.agents.beat()
                except UnavailableError:
                    continue  # the next beat comes before the time is over
                except NotYoursError as error:
                    self.forget(error)

    def close(self) -> None:
        """End the sessions that are kept here; what they hold is free."""
        with self._lock:
            known = list(self._kept)
        for label in known:
            self._leave(label)

    def _leave(self, label: str) -> None:
        with self._lock:
            kept = self._kept.pop(label, None)
        if kept is not None:
            try:
                kept.agent.agents.leave()
            except (RefusedError, UnavailableError):
                return  # it is over already, or its time will be


def label_of(id: str) -> str:
    return f"mcp:{id}"


def owner(daemon: Daemon, label: str) -> str | None:
    """Whose session it is that has this label, if there is one and it lives."""
    store = daemon.space.scope.store
    with store.read() as tx:
        row = tx.row(sessions.AGENTS.of_client, label=f"client:{label}")
        return str(row["agent"]) if row is not None and store.alive(row, tx.now) else None
