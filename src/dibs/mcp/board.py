"""Everything a turn needs in one answer, and the answer for one resource.

It is read by a model at every turn, so it is bounded: the first few of everything, and how
many more there are.
"""

from __future__ import annotations

from dibs.errors import NotYoursError
from dibs.mcp.calling import cut, in_the_way, moment, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.dibs import Agent
    from dibs.mcp.callers import Holdings
    from dibs.records import Lease, Presence, Task

    Answer = dict[str, Any]

SHOWN = 20
COUNTED = 1000
SOON_MS = 300_000
"""What ends sooner than this needs attention."""


def board(agent: Agent, holdings: Holdings | None = None) -> Answer:
    """Who is here, what is held and by whom, own tasks, unread messages, what is urgent.

    holdings: what the agent was told that it holds; what it has lost since is said once
    """
    presences = agent.agents.list()
    own = [presence for presence in presences if presence.agent == agent.name]
    if not any(session.id == agent.session for one in own for session in one.sessions):
        raise NotYoursError("your session has ended", session=agent.session)
    leases = agent.leases.list()
    mine = [lease for lease in leases if lease.session == agent.session]
    others = [lease for lease in leases if lease.session != agent.session]
    tasks = [
        task
        for task in agent.work.list(state="claimed", agent=agent.name)
        if task.session == agent.session and task.due_in_ms
    ]
    answer: Answer = {"status": "ok", "you": agent.name}
    answer["agents"] = [seen(presence) for presence in presences]
    answer["leases"] = [own_lease(lease) for lease in mine]
    answer["held_by_others"] = [other_lease(lease) for lease in others]
    answer["tasks"] = [own_task(task) for task in tasks]
    answer["work_available"] = len(agent.work.list(state="available", limit=COUNTED))
    answer["messages"] = [
        {"id": one.id, "from": one.sender, "at": moment(one.sent_at), "body": cut(one.body)}
        for one in agent.messages.inbox(peek=True, limit=SHOWN)
    ]
    urgent = lost(holdings, mine, tasks) if holdings else []
    unread = own[0].unread
    answer["attention"] = urgent + attention(agent, mine, tasks, unread)
    return shortened(answer, {"messages": unread - SHOWN} if unread > SHOWN else {})


def lost(holdings: Holdings, mine: list[Lease], tasks: list[Task]) -> list[Answer]:
    """What the agent believes that it holds, and does not hold any more."""
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


def attention(agent: Agent, mine: list[Lease], tasks: list[Task], unread: int) -> list[Answer]:
    """What the agent should act on, most urgent first."""
    held = {lease.resource for lease in mine}
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
        {"what": "waited_for", "resource": cut(ticket.resource), "by": ticket.agent}
        for ticket in agent.leases.waiting()
        if ticket.session != agent.session and wanted(agent, ticket.resource, held)
    ]
    if unread:
        urgent.append({"what": "unread_messages", "number": unread})
    urgent += [
        {"what": "task_dead", "id": task.id, "reason": cut(task.reason)}
        for task in agent.work.list(state="dead", limit=5)
    ]
    return urgent


def seen(presence: Presence) -> Answer:
    doing = presence.sessions[-1].status
    answer: Answer = {
        "name": presence.agent,
        "leases": presence.leases,
        "tasks": presence.tasks,
    }
    return answer | ({"doing": cut(doing)} if doing else {})


def wanted(agent: Agent, resource: str, held: set[str]) -> bool:
    from dibs.names.paths import resources_overlap

    place = agent.scope.place
    return any(resources_overlap(place.resource(resource), place.resource(mine)) for mine in held)


def own_lease(lease: Lease) -> Answer:
    return {
        "resource": lease.resource,
        "epoch": lease.epoch,
        "expires_in_s": seconds(lease.expires_in_ms),
    }


def other_lease(lease: Lease) -> Answer:
    return {
        "resource": cut(lease.resource),
        "held_by": lease.agent,
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
        mine = {lease.resource for lease in agent.leases.list(session=agent.session)}
        return {
            "status": "available",
            "resource": state.resource,
            "yours": state.resource in mine,
        }
    return {"status": "claimed", "resource": state.resource, **in_the_way(agent, state.blockers)}
