"""Everything a turn needs in one answer, and the answer for one resource.

It is read by a model at every turn, so it is bounded: the first few of everything, and how
many more there are.
"""

from __future__ import annotations

from dibs.surfaces.mcp.calling import in_the_way, moment, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.dibs import Agent
    from dibs.records import Event, Lease, Task

    Answer = dict[str, Any]

SHOWN = 20
SOON_MS = 300_000
"""What ends sooner than this needs attention."""


def board(agent: Agent, lost: Sequence[Event] = ()) -> Answer:
    """Who is here, what is held and by whom, own tasks, unread messages, what is urgent."""
    leases = agent.leases.list()
    mine = [lease for lease in leases if lease.session == agent.session]
    others = [lease for lease in leases if lease.session != agent.session]
    tasks = [
        task
        for task in agent.work.list(state="claimed", agent=agent.name)
        if task.session == agent.session
    ]
    messages = agent.messages.inbox(peek=True)
    answer: Answer = {"status": "ok", "you": agent.name}
    answer["agents"] = [
        {
            "name": presence.agent,
            "doing": presence.sessions[-1].status,
            "leases": presence.leases,
            "tasks": presence.tasks,
        }
        for presence in agent.agents.list()
    ]
    answer["leases"] = [own_lease(lease) for lease in mine]
    answer["held_by_others"] = [other_lease(lease) for lease in others]
    answer["tasks"] = [own_task(task) for task in tasks]
    answer["work_available"] = len(agent.work.list(state="available", limit=100))
    answer["messages"] = [
        {"id": one.id, "from": one.sender, "at": moment(one.sent_at), "body": one.body}
        for one in messages
    ]
    answer["attention"] = attention(agent, mine, tasks, len(messages), lost)
    return shortened(answer)


def shortened(answer: Answer) -> Answer:
    """The first of each list, and how many more there are."""
    more = {
        name: len(value) - SHOWN
        for name, value in answer.items()
        if isinstance(value, list) and len(value) > SHOWN
    }
    for name in more:
        answer[name] = answer[name][:SHOWN]
    return answer | ({"more": more} if more else {})


def attention(
    agent: Agent, mine: list[Lease], tasks: list[Task], unread: int, lost: Sequence[Event]
) -> list[Answer]:
    """What the agent should act on, most urgent first."""
    held = {lease.resource for lease in mine}
    urgent: list[Answer] = [
        {"what": "lease_lost", "resource": event.subject, "at": moment(event.at)}
        for event in lost
        if event.subject not in held
    ]
    urgent += [
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
        {"what": "waited_for", "resource": ticket.resource, "by": ticket.agent}
        for ticket in agent.leases.waiting()
        if ticket.session != agent.session and wanted(agent, ticket.resource, held)
    ]
    if unread:
        urgent.append({"what": "unread_messages", "number": unread})
    urgent += [
        {"what": "task_dead", "id": task.id, "reason": task.reason}
        for task in agent.work.list(state="dead", limit=5)
    ]
    return urgent


def wanted(agent: Agent, resource: str, held: set[str]) -> bool:
    from dibs.nouns.paths import resources_overlap

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
        "resource": lease.resource,
        "held_by": lease.agent,
        "note": lease.note,
        "expires_in_s": seconds(lease.expires_in_ms),
    }


def own_task(task: Task) -> Answer:
    return {"id": task.id, "title": task.title, "expires_in_s": seconds(task.due_in_ms)}


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
    return {"status": "claimed", "resource": state.resource, **in_the_way(state.blockers)}
