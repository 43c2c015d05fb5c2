"""The four pages a client can read and follow: board, leases, work, inbox.

They are read for the caller like a tool, and leave everything as it is: the inbox stays unread.
Who follows one is told that it changed, not how; several changes may be told as one.
"""

from __future__ import annotations

import time

from dibs.errors import CancelledError, PrunedError, UnavailableError
from dibs.mcp.board import board
from dibs.mcp.calling import result
from dibs.records import plain
from dibs.storage.waiting import CANCEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.dibs import Agent
    from dibs.mcp.callers import Callers
    from dibs.mcp.protocol import Request
    from dibs.records import Event

PAUSE_S = 0.1
"""At least so much between two announcements: a busy store must not drown its readers."""
WATCH_S = 3600.0
RETRY_S = 1.0


def leases(agent: Agent) -> dict[str, Any]:
    return {"leases": plain(agent.leases.list()), "waiting": plain(agent.leases.waiting())}


def work(agent: Agent) -> dict[str, Any]:
    states = ("claimed", "available", "blocked", "failed", "dead")
    return {state: plain(agent.work.list(state=state)) for state in states}


def inbox(agent: Agent) -> dict[str, Any]:
    return {"messages": plain(agent.messages.inbox(peek=True))}


PAGES: dict[str, tuple[str, Callable[[Agent], dict[str, Any]], tuple[str, ...]]] = {
    "dibs://board": (
        "Who is here, who holds what, your tasks and messages, what needs attention",
        board,
        ("session", "lease", "task", "message"),
    ),
    "dibs://leases": ("Every lease in force, and who waits", leases, ("lease", "session")),
    "dibs://work": ("Tasks by state", work, ("task", "session")),
    "dibs://inbox": ("Your unread messages", inbox, ("message",)),
}


def listed() -> list[dict[str, Any]]:
    return [
        {
            "uri": uri,
            "name": uri.partition("://")[2],
            "description": text,
            "mimeType": "application/json",
        }
        for uri, (text, _, _) in PAGES.items()
    ]


def read(agent: Agent, uri: str) -> dict[str, Any]:
    text: str = result(PAGES[uri][1](agent))["content"][0]["text"]
    return {"uri": uri, "mimeType": "application/json", "text": text}


def touched(event: Event, agent: Agent) -> set[str]:
    """The pages of this agent that an event changes."""
    topic = event.kind.partition(".")[0]
    pages = {uri for uri, (_, _, topics) in PAGES.items() if topic in topics}
    mine = event.subject in ("", agent.name) and event.kind != "message.acknowledged"
    if topic == "message" and not mine:
        return set()  # between others
    return pages


def follow(
    callers: Callers, request: Request, since: int, wanted: set[str], tell: Callable[[str], None]
) -> None:
    """Tell of every change to the pages wanted, until the wait is cancelled."""
    cancel = CANCEL.get()
    while True:
        # In a busy store the next look always finds something, and would not notice.
        if cancel is not None and cancel.called:
            raise CancelledError("nobody listens any more")
        try:
            agent = callers.agent(request)
            events = agent.events.watch(since, wait_s=WATCH_S)
            changed = {uri for event in events for uri in touched(event, agent)}
            since = events[-1].seq if events else since
        except PrunedError:
            since, changed = agent.events.last(), set(PAGES)
        except UnavailableError as error:
            # The store may be another one when it is back, with a counter of its own.
            callers.forget(error)
            since, changed = 0, set()
            time.sleep(RETRY_S)
        for uri in sorted(changed & wanted):
            tell(uri)
        time.sleep(PAUSE_S)
