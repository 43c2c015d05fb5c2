"""The four pages that a client can read and follow: board, leases, work, inbox.

The board is also the answer of the tool `status`: everything a turn needs. A model reads it at
every turn, so it is bounded: the first few of everything, and how many more there are.

Pages are read for the caller, like a tool, and change nothing: the inbox stays unread. A client
that follows a page is told that it changed, not how; several changes may be reported as one.
"""

from __future__ import annotations

import time

from dibs.arguments import LIST_LIMIT
from dibs.errors import CancelledError, NotYoursError, PrunedError, UnavailableError
from dibs.mcp.tool import cut, in_the_way, moment, result, seconds
from dibs.records import NAME_SHOWN, Event, Lease, Overview, Presence, Task, plain
from dibs.storage.waiting import CANCEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.dibs import Agent
    from dibs.mcp.callers import Callers, Holdings
    from dibs.mcp.protocol import Request

    Answer = dict[str, Any]

SHOWN = 20
DEAD_SHOWN = 5
PAUSE_S = 0.1
"""The least time between two announcements: a busy store must not flood its readers."""
WATCH_S = 3600.0
RETRY_S = 1.0


def board(agent: Agent, holdings: Holdings | None = None) -> Answer:
    """Who is here, what is held and by whom, own tasks, unread messages, what is urgent.

    holdings: what the agent was told it holds; what it has lost since is said once
    """
    found, me = agent.agents.overview(limit=LIST_LIMIT), agent.session
    if not any(session.id == me for one in found.agents for session in one.sessions):
        raise NotYoursError("your session has ended", session=me)
    mine = [lease for lease in found.leases if lease.session == me]
    tasks = [
        task
        for task in found.tasks
        if task.state == "claimed" and task.session == me and task.due_in_ms
    ]
    urgent = lost(holdings, mine, tasks) if holdings else []
    answer: Answer = {
        "status": "ok",
        "you": agent.name,
        "agents": [seen(presence) for presence in found.agents],
        "leases": [own_lease(lease) for lease in mine],
        "held_by_others": [other_lease(one) for one in found.leases if one.session != me],
        "tasks": [own_task(task) for task in tasks],
        "work_available": found.counts.get("available", 0),
        "messages": [
            {
                "id": one.id,
                "from": cut(one.sender, NAME_SHOWN),
                "at": moment(one.sent_at),
                "body": cut(one.body),
            }
            for one in found.messages[:SHOWN]
        ],
        "attention": urgent + attention(found, me, mine, tasks),
    }
    return shortened(answer, {"messages": found.unread - SHOWN} if found.unread > SHOWN else {})


def lost(holdings: Holdings, mine: list[Lease], tasks: list[Task]) -> list[Answer]:
    """What the agent was told it holds, but holds no longer."""
    leases, ids = holdings.compare({lease.resource for lease in mine}, {task.id for task in tasks})
    return [
        *({"what": "lease_lost", "resource": resource} for resource in sorted(leases)),
        *({"what": "task_lost", "id": id} for id in sorted(ids)),
    ]


def shortened(answer: Answer, more: dict[str, int]) -> Answer:
    """The first of each list, and how many more there are."""
    for name, value in answer.items():
        if isinstance(value, list) and len(value) > SHOWN:
            more[name] = len(value) - SHOWN
            answer[name] = value[:SHOWN]
    return answer | ({"more": more} if more else {})


def attention(found: Overview, me: int, mine: list[Lease], tasks: list[Task]) -> list[Answer]:
    """What the agent should act on, most urgent first; me: its session"""
    from dibs.nouns.agents.overview import SOON_MS  # loaded only if a client asks

    urgent: list[Answer] = [
        {
            "what": "lease_ends_soon",
            "resource": lease.resource,
            "expires_in_s": seconds(lease.expires_in_ms),
        }
        for lease in mine
        if lease.expires_in_ms < SOON_MS
    ]
    urgent += [
        {"what": "task_ends_soon", "id": task.id, "expires_in_s": seconds(task.due_in_ms)}
        for task in tasks
        if task.due_in_ms is not None and task.due_in_ms < SOON_MS
    ]
    urgent += [
        {"what": "waited_for", "resource": cut(one.subject), "by": cut(one.agent or "", NAME_SHOWN)}
        for one in found.attention
        if one.what == "blocked" and me in {blocker.session for blocker in one.blockers}
    ]
    if found.unread:
        urgent.append({"what": "unread_messages", "number": found.unread})
    dead = [one for one in found.attention if one.what in ("dead", "not_landed")]
    return urgent + [
        {"what": "task_dead", "id": cut(one.subject, NAME_SHOWN), "reason": cut(one.says)}
        for one in dead[:DEAD_SHOWN]
    ]


def seen(presence: Presence) -> Answer:
    doing = presence.sessions[-1].status
    answer: Answer = {
        "name": cut(presence.agent, NAME_SHOWN),
        "leases": presence.leases,
        "tasks": presence.tasks,
    }
    return answer | ({"doing": cut(doing)} if doing else {})


def own_lease(lease: Lease) -> Answer:
    return {
        "resource": lease.resource,
        "epoch": lease.epoch,
        "expires_in_s": seconds(lease.expires_in_ms),
    }


def other_lease(lease: Lease) -> Answer:
    return {
        "resource": cut(lease.resource),
        "held_by": cut(lease.agent, NAME_SHOWN),
        "note": cut(lease.note),
        "expires_in_s": seconds(lease.expires_in_ms),
        **({"mode": lease.mode} if lease.mode == "shared" else {}),
    }


def own_task(task: Task) -> Answer:
    return {"id": task.id, "title": cut(task.title), "expires_in_s": seconds(task.due_in_ms)}


def available(agent: Agent, resource: str) -> Answer:
    """Whether one resource can be claimed."""
    (state,) = agent.leases.status(resource)
    if state.free:
        yours = state.yours_in_ms is not None
        return {"status": "available", "resource": state.resource, "yours": yours}
    return {"status": "claimed", "resource": state.resource, **in_the_way(agent, state.blockers)}


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
    """Report every change to the followed pages, until the wait is cancelled."""
    cancel = CANCEL.get()
    while True:
        # In a busy store the next look always finds something, and would not notice a cancellation.
        if cancel is not None and cancel.called:
            raise CancelledError("the listener is gone")
        try:
            agent = callers.agent(request)
            events = agent.events.watch(since, wait_s=WATCH_S)
            changed = {uri for event in events for uri in touched(event, agent)}
            since = events[-1].seq if events else since
        except PrunedError:
            since, changed = agent.events.last(), set(PAGES)
        except UnavailableError as error:
            # It may come back as another store, with its own counter.
            callers.forget(error)
            since, changed = 0, set()
            time.sleep(RETRY_S)
        for uri in sorted(changed & wanted):
            tell(uri)
        time.sleep(PAUSE_S)
