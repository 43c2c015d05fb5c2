"""Work for agents elsewhere, with the Agent2Agent protocol (A2A 1.0) over JSON-RPC.

The space is one agent with one skill: it gets work done by whichever agent takes it. A message adds
a task; the journal shows the progress of the task. The card that says so can be read without a
token, as the protocol requires, and reveals nothing beyond the address.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, StreamingResponse

from dibs import __version__
from dibs.errors import (
    DibsError,
    ExistsError,
    InvalidError,
    NotFoundError,
    PrunedError,
    StateError,
    TooLargeError,
)
from dibs.mcp.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ProtocolError,
    is_id,
    parse,
)
from dibs.records import plain
from dibs.surfaces.http import a2a_tasks as tasks
from dibs.surfaces.http.access import Access, GuardError
from dibs.surfaces.http.api import to_body
from dibs.surfaces.http.app import PAGE_BYTES, Daemon
from dibs.surfaces.http.exchange import BY_NAME, enter, read_body, respond, stopping, unless_gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    Object = dict[str, Any]

PROTOCOL = "1.0"
NOT_FOUND, NOT_CANCELABLE, NO_PUSH, UNSUPPORTED, CONTENT_TYPE, VERSION_UNKNOWN = (
    -32001, -32002, -32003, -32004, -32005, -32009,
)  # fmt: skip
REASONS = {
    NOT_FOUND: "TASK_NOT_FOUND",
    NOT_CANCELABLE: "TASK_NOT_CANCELABLE",
    NO_PUSH: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    UNSUPPORTED: "UNSUPPORTED_OPERATION",
    CONTENT_TYPE: "CONTENT_TYPE_NOT_SUPPORTED",
    VERSION_UNKNOWN: "VERSION_NOT_SUPPORTED",
}
BREATH_S = 3.0
"""How often a comment is sent: a common client gives up a stream after five silent seconds."""
PAGE = 500
LISTED, LISTED_LIMIT = 50, 100
ANY_STATE = "TASK_STATE_UNSPECIFIED"
TOLD = (InvalidError, NotFoundError, tasks.NotTextError)
"""Errors within the protocol; a caller that is not let in, or must wait, gets an HTTP error."""
MODES = ["text/plain", "application/json"]


async def card(request: Request) -> JSONResponse:
    """What this agent is, and where to reach it."""
    daemon: Daemon = request.app.daemon
    scheme = "https" if daemon.sign_ins.secure else request.url.scheme
    told = {
        "name": "dibs",
        "description": "A list of work that several agents share: a message becomes a task, "
        "exactly one agent at a time works on it, and its result is kept.",
        "version": __version__,
        "supportedInterfaces": [
            {
                "url": f"{scheme}://{request.headers['host']}/a2a",
                "protocolBinding": "JSONRPC",
                "protocolVersion": PROTOCOL,
            }
        ],
        "capabilities": {"streaming": True, "pushNotifications": False},
        "securitySchemes": {
            "token": {
                "httpAuthSecurityScheme": {
                    "scheme": "Bearer",
                    "description": "a token of this daemon: dibs token add NAME",
                }
            }
        },
        "securityRequirements": [{"schemes": {"token": {"list": []}}}],
        "defaultInputModes": MODES,
        "defaultOutputModes": MODES,
        "skills": [
            {
                "id": "work",
                "name": "Get work done",
                "description": "Adds a task that any agent of this space can take. Its first "
                "line is the title; metadata.dibs may have kind, priority, tags and after.",
                "tags": ["work", "tasks", "queue"],
                "examples": ["Fix the login: it fails for names with a space."],
            }
        ],
    }
    return JSONResponse(told, headers={"cache-control": "no-cache"})


class A2aEndpoint:
    """`/a2a`, as an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        daemon, access = await enter(scope)
        if scope["method"] != "POST":
            raise GuardError(405, "method", "/a2a takes POST", "use POST")
        body, visit, id = (
            await read_body(receive, daemon.present, access),
            A2aVisit(daemon, access),
            None,
        )
        try:
            message = parse(body)
            id = id_of(message)
            method, params = read(message, scope[BY_NAME].get("a2a-version", ""))
            if method in CALLS:
                with contextlib.suppress(ConnectionError), daemon.present.lasting(access):
                    answer = await unless_gone(CALLS[method](visit, params), receive)
                    await respond(send, 200, {"jsonrpc": "2.0", "id": id, "result": answer})
                return
            updates = await STREAMS[method](visit, params)
        except (ProtocolError, *TOLD) as error:
            await respond(send, 200, refusal(error, id))
            return
        lines = StreamingResponse(
            as_events(updates, id),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-content-type-options": "nosniff"},
        )
        with daemon.present.lasting(access):
            await lines(scope, receive, send)


@dataclass
class A2aVisit:
    """The methods of the protocol, for one caller."""

    daemon: Daemon
    access: Access

    async def operate(self, name: str, **given: Any) -> Object:
        route = self.daemon.operations[f"/v1/{name.replace('.', '/')}"]
        done: Object = plain(await self.daemon.call(route, self.access, given))
        return done

    async def add(self, params: Object) -> Object:
        """The task that a message asks for, which may already exist."""
        message = params.get("message")
        if isinstance(message, dict) and message.get("taskId"):
            task = await self.task(message["taskId"])
            raise ProtocolError(
                UNSUPPORTED, f"{task['id']} takes no more messages; send one without taskId"
            )
        asked = tasks.asked_for(message, self.access.agent)
        try:
            return await self.operate("work.add", **asked)
        except ExistsError as error:
            there: Object = plain(error.details["task"])
            if not tasks.same(asked, there):
                raise InvalidError("this messageId was used for another message") from None
            return there

    async def send_message(self, params: Object) -> Object:
        configuration = params.get("configuration") or {}
        if not isinstance(configuration, dict):
            raise InvalidError("configuration must be an object")
        history = length(configuration)
        place = await self.place()
        task = await self.add(params)
        if not configuration.get("returnImmediately"):
            async for _ in self.follow(task, place):
                pass
            task = await self.task(task["id"])
            if not tasks.is_over(task):
                raise stopping()
        return {"task": tasks.shown(task, history)}

    async def get_task(self, params: Object) -> Object:
        history = length(params)
        return tasks.shown(await self.task(params.get("id")), history)

    async def task(self, id: Any) -> Object:
        if not isinstance(id, str):
            raise InvalidError("the id of the task is missing")
        return await self.operate("work.show", id=id)

    async def open_task(self, params: Object, code: int) -> Object:
        """The task in question; code: the error if the task has ended."""
        task = await self.task(params.get("id"))
        if tasks.is_over(task):
            raise ProtocolError(code, f"{task['id']} has ended: it is {task['state']}")
        return task

    async def cancel_task(self, params: Object) -> Object:
        task = await self.open_task(params, NOT_CANCELABLE)
        try:
            return tasks.shown(await self.operate("work.cancel", id=task["id"]))
        except StateError as error:
            raise ProtocolError(NOT_CANCELABLE, error.message) from error

    async def list_tasks(self, params: Object) -> Object:
        """The latest changed come first; a page continues where the last one ended."""
        wanted = params.get("status") or ANY_STATE
        if wanted not in tasks.KNOWN:
            raise InvalidError(f"status must be one of: {', '.join(tasks.KNOWN)}")
        size = params.get("pageSize") or LISTED
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LISTED_LIMIT:
            raise InvalidError(f"pageSize must be between 1 and {LISTED_LIMIT}")
        after = params.get("statusTimestampAfter")
        since = None if after is None else tasks.read_moment(after)
        context, history = params.get("contextId"), length(params)
        before = cursor(params.get("pageToken") or "")

        def fits(task: Object) -> bool:
            return (
                wanted in (ANY_STATE, tasks.STATES[task["state"]])
                and (since is None or task["changed_at"] > since)
                and (not context or tasks.context_of(task) == context)
            )

        # A thread of its own: a long list must not keep other readers waiting.
        found = await self.daemon.waits.do(partial(self.places, fits))
        found.sort(reverse=True)
        left = [place for place in found if before is None or place[:2] < before]
        page: list[Object] = []
        room, last = PAGE_BYTES, None
        for changed_at, seq, id in left[:size]:
            if room < 0:
                break
            last = (changed_at, seq)
            with contextlib.suppress(NotFoundError):  # pruned meanwhile
                task = await self.task(id)
                page.append(tasks.shown(task, history, bool(params.get("includeArtifacts"))))
                room -= len(to_body(page[-1]))
        more = last is not None and left[-1][:2] != last
        return {
            "tasks": page,
            "nextPageToken": "{}.{}".format(*last) if last is not None and more else "",
            "pageSize": size,
            "totalSize": len(found),
        }

    def places(self, fits: Callable[[Object], bool]) -> list[tuple[int, int, str]]:
        """The matching tasks, and their places in the list."""
        found: list[tuple[int, int, str]] = []
        after, limit = 0, 1000
        while True:
            try:
                page = self.daemon.space.work.list(after=after, limit=limit)
            except TooLargeError as error:
                limit = error.details["limit"]
                continue
            found += [(*place_of(task), task["id"]) for task in plain(page) if fits(task)]
            if len(page) < limit:
                return found
            after, limit = page[-1].seq, 1000

    async def send_and_follow(self, params: Object) -> AsyncIterator[Object | None]:
        place = await self.place()
        return self.follow(await self.add(params), place)

    async def subscribe(self, params: Object) -> AsyncIterator[Object | None]:
        place = await self.place()
        return self.follow(await self.open_task(params, UNSUPPORTED), place)

    async def place(self) -> int:
        """Where the journal ends now."""
        last: int = await self.daemon.reader.do(self.daemon.space.events.last)
        return last

    async def follow(self, task: Object, seq: int) -> AsyncIterator[Object | None]:
        """A task, and what happens to it after a place in the journal, until it ends.

        None is a pause in which nothing happened.
        """
        daemon, journal, id = self.daemon, self.daemon.space.events, task["id"]
        yield {"task": tasks.shown(task)}
        over = tasks.is_over(task)
        while not daemon.stopping and not over:
            try:
                found = await daemon.reader.do(partial(journal.since, seq, limit=PAGE))
            except PrunedError as error:
                # The steps are no longer known, but the outcome is.
                seq, task = error.details["pruned_seq"], await self.task(id)
                over = tasks.is_over(task)
                yield tasks.update(task)
                continue
            for event in found:
                seq = event.seq
                if event.subject == id and event.kind in tasks.MOVES and not over:
                    over = tasks.MOVES[event.kind] in tasks.TERMINAL
                    task = await self.task(id) if over else task
                    for told in tasks.moved(task, event):
                        yield told
            if not over and len(found) < PAGE and not await daemon.moved(seq, BREATH_S):
                yield None


CALLS = {
    "SendMessage": A2aVisit.send_message,
    "GetTask": A2aVisit.get_task,
    "ListTasks": A2aVisit.list_tasks,
    "CancelTask": A2aVisit.cancel_task,
}
STREAMS = {"SendStreamingMessage": A2aVisit.send_and_follow, "SubscribeToTask": A2aVisit.subscribe}


def id_of(message: Any) -> int | str:
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, "this is not a JSON-RPC 2.0 request")
    id: Any = message.get("id")
    if not is_id(id):
        raise ProtocolError(INVALID_REQUEST, "id must be a string or a whole number")
    return id  # type: ignore[no-any-return]


def read(message: Object, version: str) -> tuple[str, Object]:
    """The method that a request is for, and its parameters."""
    method, params = message.get("method"), message.get("params", {})
    if not isinstance(method, str):
        raise ProtocolError(INVALID_REQUEST, "method must be a string")
    if version.split(".")[:2] != PROTOCOL.split("."):
        said = version or "0.3 (assumed, since A2A-Version is missing)"
        raise ProtocolError(VERSION_UNKNOWN, f"version {said} is not supported; use {PROTOCOL}")
    if "PushNotification" in method:
        raise ProtocolError(NO_PUSH, "push notifications are not supported; subscribe to the task")
    if method == "GetExtendedAgentCard":
        raise ProtocolError(UNSUPPORTED, "there is no extended card")
    if method not in CALLS and method not in STREAMS:
        raise ProtocolError(METHOD_NOT_FOUND, f"there is no method {method!r}")
    if not isinstance(params, dict):
        raise ProtocolError(INVALID_PARAMS, "params must be an object")
    return method, params


def refusal(error: Exception, id: int | str | None) -> Object:
    """An error in the protocol's format."""
    if not isinstance(error, ProtocolError):
        codes: dict[type, int] = {NotFoundError: NOT_FOUND, tasks.NotTextError: CONTENT_TYPE}
        error = ProtocolError(codes.get(type(error), INVALID_PARAMS), str(error))
    if error.code in REASONS:
        error.data = [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": REASONS[error.code],
                "domain": "a2a-protocol.org",
            }
        ]
    return error.to_json(id)


async def as_events(updates: AsyncIterator[Object | None], id: int | str) -> AsyncIterator[bytes]:
    """Updates as server-sent events, each of them an answer to the same request."""
    try:
        async for told in updates:
            answer = {"jsonrpc": "2.0", "id": id, "result": told}
            yield b": still here\n\n" if told is None else b"data: " + to_body(answer) + b"\n\n"
    except DibsError as error:
        # The task has been pruned, or the store is gone.
        yield b"data: " + to_body(ProtocolError(INTERNAL_ERROR, str(error)).to_json(id)) + b"\n\n"


def length(params: Object) -> int | None:
    """How many messages of a task's history to include; None for all."""
    wanted = params.get("historyLength")
    if wanted is not None and (not isinstance(wanted, int) or wanted < 0):
        raise InvalidError("historyLength must be a whole number, 0 or more")
    return wanted


def place_of(task: Object) -> tuple[int, int]:
    return task["changed_at"], task["seq"]


def cursor(token: Any) -> tuple[int, int] | None:
    """The place that a page ended at; None for the beginning."""
    if token == "":
        return None
    at, _, seq = token.partition(".") if isinstance(token, str) else ("", "", "")
    if not (at.isdecimal() and seq.isdecimal() and token.isascii() and len(token) < 40):
        raise InvalidError("pageToken must be the nextPageToken of an earlier page")
    return int(at), int(seq)
