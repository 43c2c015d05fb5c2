"""The daemon as an ASGI application: every operation of one space, and what surrounds them.

Most requests are operations, so these have a short path of their own; everything else goes through
Starlette's routing.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.routing import Router

from dibs.answers import SEE_OPENAPI
from dibs.arguments import check_text, shown
from dibs.errors import (
    CancelledError,
    DibsError,
    InvalidError,
    NotFoundError,
    NotYoursError,
    StoreGoneError,
    UnavailableError,
    UpgradedError,
)
from dibs.nouns import topics
from dibs.nouns.agents import sessions
from dibs.nouns.events import pruning
from dibs.nouns.leases.queue import Queued
from dibs.operation import AGENT
from dibs.space.scope import AGENTS, mint
from dibs.storage.group import GroupingDriver, Hub
from dibs.storage.store import TRACE
from dibs.storage.tracing import checked
from dibs.surfaces.http.access import (
    JSON,
    PROTOBUF,
    Access,
    Guard,
    GuardError,
    Rate,
    Sessions,
    SignIns,
    Tokens,
    fold,
    no_good,
    permit,
)
from dibs.surfaces.http.api import APART, JOIN, Route, read_object, routes
from dibs.surfaces.http.exchange import (
    BY_NAME,
    CONNECTION,
    confess,
    read_body,
    refuse,
    respond,
    stopping,
    unless_gone,
)
from dibs.surfaces.http.present import Present
from dibs.surfaces.http.waits import LoopSleeper, Waits
from dibs.surfaces.http.worker import READS_LIMIT, Readiness, Worker, Writer
from dibs.surroundings.wording import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from dibs.dibs import Dibs
    from dibs.storage.store import Caller
    from dibs.surfaces.http.exporting import Exporter

SWEEP_S = 0.5
TIDY_S = 60.0
CUT_S = 0.25
"""How soon a revocation is noticed; what it cuts off ends a moment later."""
STOP_LOOKS = 150
PAGES = ("/v1/events", "/v1/metrics")
"""What is below /v1 but is not an operation."""
KINDS = {"/v1/metrics": (JSON, PROTOBUF)}
"""The types of a body, where it may be more than JSON."""
PAGE_BYTES = 4 * 1024 * 1024
"""How much of a list one answer contains."""


class Daemon:
    """One space and the threads that serve it; created before the loop runs, started in it."""

    def __init__(self, space: Dibs, hosts: Iterable[str]) -> None:
        store = space.scope.store
        # Agents call it, whoever started it.
        space.scope.door = space.scope.door.to(AGENT)
        self.space = space
        self.driver = GroupingDriver(store.driver)
        self.hub = Hub(topics.NOUNS, topics.keys, topics.touched, self._moved)
        self.driver.listen = self.driver.listen_soon = self.hub.listen
        self.driver.room, self.driver.told = self.hub, self.hub.told
        store.driver = self.driver
        store.page_bytes = PAGE_BYTES
        self.guard = Guard(hosts)
        self.rate = Rate()
        self.sign_ins = SignIns()
        self.tokens = Tokens(space, self.sign_ins)
        self.sessions = Sessions(space)
        self.present = Present()
        self.operations = routes()
        self.stopping = False
        self.lost: Callable[[DibsError], None] = lambda error: None
        """Called when there is nothing left to serve: the store is gone, or cannot be used."""
        self.at_hush: list[Callable[[], None]] = []
        """Called when the daemon is stopping."""
        self.at_cut: list[Callable[[set[int]], None]] = []
        """Called with the tokens that are no longer valid."""
        self.exporter: Exporter | None = None
        """Sends telemetry, if that was requested."""
        self.calls: dict[tuple[str, int], int] = {}
        """How many calls there were, by path and HTTP status."""
        self._seq = 0
        self._news = asyncio.Event()
        self._untidy = asyncio.Event()
        store.tidy = None

    async def start(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self.hub.start(self.space.scope.store, self.driver.driver)
        self.writer = Writer(self.driver, loop)
        self.writer.undone = self.sessions.clear
        self.readiness = Readiness(self.writer, self.space.scope.store)
        self.reader = Worker("dibs-reader", loop, READS_LIMIT)
        self.waits = Waits(self.driver, self.writer, self.reader)
        store = self.space.scope.store
        store.tidy = lambda: loop.call_soon_threadsafe(self._untidy.set)
        beside = [self._sweep(), self._watch_tokens(), self._tidy()]
        if self.exporter is not None:
            beside.append(self.exporter.run())
        self._sweeping = asyncio.gather(*beside)

    async def _sweep(self) -> None:
        """Release what dead sessions hold, so that a thousand waiters need not check for them."""
        scope = self.space.scope
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.reader.do(scope.store.check)
                if await self.reader.do(lambda: sessions.dead_sessions(scope)):
                    await self.writer.do(lambda: sessions.end_dead(scope))
            except UnavailableError as error:
                # On a database server, the next connection may find the store again.
                gone = isinstance(error, StoreGoneError) and scope.boot
                if gone or isinstance(error, UpgradedError):
                    self.lost(error)
                    return
                continue  # the next caller is told

    async def _tidy(self) -> None:
        """Prune the store after many writes, and now and then, while serving calls."""
        scope, said = self.space.scope, ""
        while True:
            try:
                await asyncio.wait_for(self._untidy.wait(), TIDY_S)
            except TimeoutError:
                pass  # others may have written
            self._untidy.clear()
            try:
                while await self.waits.do(lambda: pruning.tidy(scope)):
                    await asyncio.sleep(pruning.PAUSE_S)
            except UnavailableError:
                continue  # the next caller is told
            if scope.store.not_pruned not in ("", said):
                note(f"nothing was pruned: {scope.store.not_pruned}")
            said = scope.store.not_pruned

    async def _watch_tokens(self) -> None:
        """Cut off callers whose token has been revoked or has expired."""
        scope, seen = self.space.scope, self.tokens.seen
        while True:
            await asyncio.sleep(CUT_S)
            if not (before := set(seen)):
                continue
            try:
                over = before - await self.reader.do(lambda: sessions.tokens_now(scope))
            except UnavailableError:
                continue  # nobody is let in meanwhile
            if over:
                self.tokens.cut(over)
                self.present.cut(over)
                for tell in self.at_cut:
                    tell(over)

    def hush(self) -> None:
        """Begin nothing more, and answer all waiting calls."""
        self.stopping = True
        self.space.scope.store.tidy = None
        self._sweeping.cancel()
        self._advance(self._seq)
        self.waits.stop()
        for tell in self.at_hush:
            tell()

    async def stop(self) -> None:
        """Store what was acknowledged, and close the store."""
        self.hush()
        for _ in range(STOP_LOOKS):  # a stuck call must not keep the process alive
            if not self.waits.number:
                break
            await asyncio.sleep(0.01)
        await self.writer.stop()
        await self.reader.stop()
        self.hub.stop()
        self.space.close()

    def count(self, path: str, status: int) -> None:
        key = (path if path in self.operations else "", status)
        self.calls[key] = self.calls.get(key, 0) + 1

    def _moved(self, seq: int) -> None:
        self._loop.call_soon_threadsafe(self._advance, seq)

    def _advance(self, seq: int) -> None:
        self._seq = max(seq, self._seq)  # two threads tell it
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def moved(self, seq: int, seconds: float) -> bool:
        """Wait until the journal has moved past a seq; return whether it has."""
        if self._seq > seq:
            return True
        try:
            return await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return False

    async def admit(self, headers: dict[str, str]) -> Access:
        """The caller of a request; refused above its rate."""
        if self.stopping:
            raise stopping()
        access = self.tokens.known(headers)
        if access is None:
            access = await self.reader.do(lambda: self.tokens.ask(headers))
        self.rate.take(access.name)
        self.present.enter(access.token)
        return access

    async def call(
        self,
        route: Route,
        access: Access,
        given: dict[str, Any],
        call: str | None = None,
        traceparent: str = "",
    ) -> Any:
        """Call an operation for a caller, in the appropriate thread.

        call: the caller's name for a wait, by which it can be cancelled
        traceparent: the trace of the call, as the caller gives it
        """
        worker, job = self.begin(route, access, given, traceparent)
        try:
            if worker is not None and route.waits(given):
                claim = worker.do(job, crowd=route.crowd(given))
                return await self.stand(claim, access, LoopSleeper(), call)
            if worker is not None:
                return await worker.do(job, route.weight(given))
            if access.in_session(route.operation) and not self.sessions.knows(access):
                # A shell session may have to be created together with other writes: in the thread
                # of a wait it would cost a sync of its own, and a waiting read blocks all reads.
                finder = self.reader if access.session else self.writer
                await finder.do(lambda: self.sessions.of(access))
            if not route.waits(given):
                return await self.reader.do(job)
            with self.present.lasting(access):
                return await self.waits.do(job, (access.token, call) if call else None)
        except CancelledError as error:
            if not self.stopping:
                raise
            raise stopping() from error
        except DibsError as error:
            self.heed(access, error)
            raise

    async def stand(
        self,
        claim: asyncio.Future[Any],
        access: Access,
        sleeper: LoopSleeper,
        call: str | None = None,
    ) -> Any:
        """Await a claim that may wait in a queue, until it is granted or ends."""
        try:
            with self.present.counted(access):
                return await self.waits.stand(
                    claim, sleeper, (access.token, call) if call else None
                )
        except CancelledError as error:
            if not self.stopping:
                raise
            raise stopping() from error

    def begin(
        self, route: Route, access: Access, given: dict[str, Any], traceparent: str = ""
    ) -> tuple[Worker | None, Callable[[], Any]]:
        """The thread for a call, and what makes it; no thread if it waits in one of its own."""
        operation = route.operation
        permit(operation.name, operation.scope, access)
        if self.stopping:  # perhaps since the body was read
            raise stopping()
        named = access.in_session(operation)
        trace = checked(traceparent) if operation.grants else ""

        def job() -> Any:
            agent = self.sessions.of(access) if named else self.space
            before = TRACE.set(trace) if trace else None
            try:
                return route.call(agent, given, access.party)
            except Queued as queued:
                return queued
            finally:
                if before is not None:
                    TRACE.reset(before)

        if route.waits(given):
            if not operation.queues:
                return None, job
            self.waits.check()
            self.present.check(access)
        if operation.mutates:
            return self.writer, job
        return self.reader if not named or self.sessions.knows(access) else None, job

    def heed(self, access: Access, error: Exception) -> None:
        """Forget sessions that a failed call shows to be invalid."""
        if isinstance(error, NotYoursError):
            self.sessions.forget(access)
        elif isinstance(error, UnavailableError):
            # A session that was joined in the same transaction may be undone with it.
            self.sessions.clear()

    async def join(self, access: Access, given: dict[str, Any]) -> Any:
        """Begin a session that must be kept alive with beats, since its process is elsewhere."""
        permit("agents.join", "agent", access)
        unknown = given.keys() - JOIN["properties"].keys()
        if unknown:
            raise InvalidError(f"agents.join has no argument {shown(min(unknown))}")
        for flag in ("shell", "alone"):
            if not isinstance(given.get(flag, False), bool):
                raise InvalidError(f"{flag} must be true or false")
        scope = self.space.scope

        def read() -> Any:
            with scope.store.read() as tx:
                row = tx.rows(AGENTS.one, session=caller.session)[0]
                return sessions.session_record(tx, row)

        joining = partial(mint, scope, access.agent, remote=True, origin=access.origin, **given)
        caller: Caller = await self.writer.do(joining)
        session = await self.reader.do(read)
        home = self.home
        if not home and access.repository:
            repository = check_text("Dibs-Repository", access.repository)
            home = await self.writer.do(partial(scope.store.belong, repository))
        token = scope.keys.session_token(caller.session, caller.nonce)
        self.sessions.remember(access, token, caller)
        return {
            "session": session, "token": token, "owned": caller.owned, "boot": scope.boot,
            "repository": home,
        }  # fmt: skip

    @property
    def home(self) -> str:
        """The repository whose paths have no label in this space; "" if that is open."""
        scope = self.space.scope
        return scope.store.home if scope.shared else scope.place.repository

    async def me(self, access: Access) -> Any:
        """Who the caller is here, and which space this is."""
        name, session = access.agent, None
        if access.session:
            agent = await self.reader.do(lambda: self.sessions.of(access))
            name, session = agent.name, agent.session
        return {
            "space": self.space.space, "agent": name, "session": session,
            "scope": access.scope, "boot": self.space.scope.boot,
            "repository": self.home,
        }  # fmt: skip


class App:
    """The ASGI application."""

    def __init__(self, daemon: Daemon, more: list[BaseRoute]) -> None:
        self.daemon = daemon
        self.rest = Router(more)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        if scope["type"] != "http":
            return
        try:
            path, method, pairs = scope["path"], scope["method"], scope["headers"]
            headers = {k.decode("latin-1"): v.decode("latin-1").strip(" \t") for k, v in pairs}
            if len(headers) < len(pairs):
                headers = fold(pairs)
            self.daemon.guard.check(method, headers, KINDS.get(path, (JSON,)))
            if not path.startswith("/v1/") or path in PAGES:
                scope["app"], scope[BY_NAME] = self, headers
                await self.rest(scope, receive, send)
                return
            try:
                answer = await self.operate(method, path, headers, receive)
            except asyncio.CancelledError:
                if not self.daemon.stopping or self.daemon.present.was_cut():
                    raise
                raise stopping() from None  # uvicorn no longer waits for this one
            self.daemon.count(path, 200)
            await respond(send, 200, answer)
        except DibsError as error:
            if "app" not in scope:  # only operations and early refusals are counted
                self.daemon.count(scope["path"], error.http_status)
            await refuse(send, error)
        except HTTPException as error:  # no such page, or not with that method
            status, hint = error.status_code, "look at /openapi.json"
            code = {404: "not_found", 405: "method"}.get(status, "invalid")
            await refuse(send, GuardError(status, code, error.detail, hint))
        except ConnectionError:
            return  # the client is gone
        except asyncio.CancelledError:
            if not self.daemon.present.was_cut():
                raise
            connection = scope.get(CONNECTION)
            if connection is None or connection.is_unanswered(scope):
                await refuse(send, no_good())
            else:
                connection.drop()
        except Exception as error:
            await refuse(send, confess(error))
        finally:
            self.daemon.present.leave()

    async def live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self.daemon.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.daemon.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def operate(
        self, method: str, path: str, headers: dict[str, str], receive: Receive
    ) -> Any:
        daemon = self.daemon
        if method != "POST":
            raise GuardError(405, "method", "operations are called with POST", "use POST")
        access = await daemon.admit(headers)
        route = daemon.operations.get(path)
        if route is None and path not in APART:
            raise NotFoundError(f"there is no {path}", next=SEE_OPENAPI)
        body = await read_body(receive, daemon.present, access)
        if path == "/v1/me":
            read_object(body)  # it takes no arguments, but the body must be an object
            return await daemon.me(access)
        if path == "/v1/cancel":
            name = read_object(body).get("call", "")
            if not isinstance(name, str):
                raise InvalidError("call must be text", next="send the value of Dibs-Call")
            return {"cancelled": daemon.waits.cancel((access.token, name))}
        if route is None:
            return await daemon.join(access, read_object(body))
        given = route.read(body)
        trace = headers.get("traceparent", "")
        if not route.waits(given):
            return await daemon.call(route, access, given, traceparent=trace)
        call = daemon.call(route, access, given, headers.get("dibs-call"), trace)
        return await unless_gone(call, receive)
