"""Who calls: the session that a tool acts in.

If the client names its own session, that one is used, so that its hooks, which know the same name,
act in the same session; otherwise this process is the session. No tool takes the caller as an
argument. A name that nobody chose is made from the session's name, so that two agents of one kind
never share an inbox.
"""

from __future__ import annotations

import os
from _thread import RLock

from dibs.clients import client_names, find_client
from dibs.errors import DibsError, NotYoursError, StoreGoneError, UnavailableError, UnfitError
from dibs.operation import AGENT
from dibs.storage.tracing import checked
from dibs.surroundings.who import spoken
from dibs.system import process_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dibs.dibs import Agent, Dibs
    from dibs.mcp.protocol import Request


class Callers:
    """The sessions of one server process, each joined when it is first needed."""

    def __init__(self, open: Callable[[], Dibs], environment: Mapping[str, str]) -> None:
        self._open = open
        self._environment = environment
        self._lock = RLock()
        self._space: Dibs | None = None
        self._agents: dict[str, Agent] = {}
        self._holdings: dict[int, Holdings] = {}
        self._own = f"{os.getpid()}:{os.urandom(8).hex()}"

    def space(self) -> Dibs:
        with self._lock:
            if self._space is None:
                self._space = self._open()
                scope, place = self._space.scope, self._space.scope.place
                scope.door = scope.door.to(AGENT)
                if place.checkout.kind == "repository":
                    # Names are shown relative to the top, and must mean the same when passed back.
                    place.start = place.top
            return self._space

    @property
    def root(self) -> str:
        """The prefix of file names outside a repository."""
        if self._space is None or self._space.scope.place.checkout.kind == "repository":
            return ""
        return self._space.scope.place.root.rstrip("/") + "/"

    def agent(self, request: Request) -> Agent:
        """The session this request acts in."""
        environment, kind = self._environment, kind_of(request.client)
        client = client_session(kind, request, environment)
        with self._lock:
            agent = self._agents.get(client or "")
            if agent is None:
                space = self.space()
                if token := environment.get("DIBS_SESSION"):
                    agent = self._resume(space, token)
                else:
                    name = environment.get("DIBS_AGENT") or self._made_up(kind, client)
                    agent = space.join(name, client=client)
                self._agents[client or ""] = agent
            return agent

    def trace(self, request: Request) -> str:
        """The trace of a request: its own, or that of the process that started this one."""
        said = checked(request.meta.get("traceparent"))
        return said or checked(self._environment.get("TRACEPARENT"))

    def _resume(self, space: Dibs, token: str) -> Agent:
        try:
            return space.resume(token)
        except NotYoursError as error:
            raise UnfitError("DIBS_SESSION is not the token of a session here") from error

    def is_nameless(self, request: Request) -> bool:
        """Whether nobody has chosen the caller's name yet."""
        kind = kind_of(request.client)
        client = client_session(kind, request, self._environment)
        return self.agent(request).name == self._made_up(kind, client)

    def _made_up(self, kind: str, client: str | None) -> str:
        owner = self.space().scope.owner
        return f"{owner}/" * bool(owner) + f"{kind}-{spoken(client or self._own)}"

    def holdings(self, request: Request) -> Holdings:
        """What the caller has been told that it holds."""
        return self._holdings.setdefault(self.agent(request).session, Holdings())

    def forget(self, error: DibsError) -> None:
        """Let the next call begin a new session if the session or the whole store is gone."""
        with self._lock:
            if isinstance(error, StoreGoneError):
                space, self._space = self._space, None
                self._agents.clear()
                self._holdings.clear()  # sessions of another store have other numbers
                if space is not None:
                    space.close()
            elif isinstance(error, NotYoursError) and "session" in error.details:
                over = error.details["session"]
                self._agents = {
                    key: agent for key, agent in self._agents.items() if agent.session != over
                }

    def close(self) -> None:
        """End the sessions, and release what they hold."""
        with self._lock:
            for agent in self._agents.values():
                try:
                    agent.close()
                except UnavailableError:
                    pass  # others notice by themselves that this process is gone
            self._agents.clear()
            if self._space is not None:
                self._space.close()


class Holdings:
    """What a session was told it holds, to notice what has expired or was lost to others."""

    def __init__(self) -> None:
        self.leases: set[str] = set()
        self.tasks: set[str] = set()

    def compare(self, leases: set[str], tasks: set[str]) -> tuple[set[str], set[str]]:
        """What is gone; from now on, the current leases count as told."""
        lost = self.leases - leases, self.tasks - tasks
        self.leases, self.tasks = leases, tasks
        return lost


def kind_of(client: str) -> str:
    """What people call the client: `claude` for `claude-code`, `codex` for `codex-mcp-client`."""
    word = "".join(sign if sign.isascii() and sign.isalnum() else " " for sign in client.lower())
    parts = word.split() or ["agent"]
    known = (name for name in client_names() if any(part.startswith(name) for part in parts))
    return next(known, parts[0][:20])


def client_session(kind: str, request: Request, environment: Mapping[str, str]) -> str | None:
    """The client's own name for its session, if it has one.

    A variable counts only if it belongs to the client that calls: an agent may have started another
    one, which inherits it.
    """
    said = request.meta.get("sessionId")
    if isinstance(said, str) and said.isprintable() and 0 < len(said.strip()) <= 100:
        return f"{kind}:{said.strip()}"
    client = find_client(kind)
    if client is None:
        return None
    session = environment.get(client.server_variable)
    if client.shell_variable in environment:
        # It names no session, but its hooks have the same process above them.
        session = process_name(os.getppid())
    return f"{kind}:{session}" if session else None
