"""The ten tools every agent is offered.

Their names, arguments and answers are a contract of their own, worded for a model that reads
them at every turn: few words, each of which earns its place. What they do is done by the
operations of the library.
"""

from __future__ import annotations

import time

from dibs.errors import ExistsError, HeldError, InvalidError, StateError, TimeoutError
from dibs.nouns.leases import MODES, OUTCOMES
from dibs.surfaces.mcp.board import available, board
from dibs.surfaces.mcp.calling import HINTS, in_the_way, moment, seconds
from dibs.surfaces.mcp.tool import (
    ADDS,
    FLAG,
    INTEGER,
    NUMBER,
    OBJECT,
    READS,
    REPEATS,
    TEXT,
    TEXTS,
    Tool,
    one_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.dibs import Agent
    from dibs.records import Grant, Message, Outcome, Task
    from dibs.surfaces.mcp.calling import Calling

    Answer = dict[str, Any]

WAIT_S = 30
"""By default less than the shortest patience of the known clients, a minute."""
ENDS = ("completed", "failed", "abandoned")
SHOWN = 5
ALWAYS = {"anthropic/alwaysLoad": True}
"""Offered at once, not behind a search for tools: who has to search does not claim."""


def named(arguments: dict[str, Any]) -> list[str]:
    """The resources a call is about: one, several, or both."""
    one = [arguments["resource"]] if "resource" in arguments else []
    return [*one, *arguments.get("resources", [])]


def require(resources: list[str]) -> list[str]:
    if not resources:
        raise InvalidError("nothing was named", next="give resource, or resources")
    return resources


def status(calling: Calling, arguments: dict[str, Any]) -> Answer:
    if "name" in arguments:
        taken = take_name(calling, arguments["name"])
        if taken is not None:
            return taken
    if "resource" in arguments:
        return available(calling.agent, arguments["resource"])
    return board(calling.agent, calling.lost())


def take_name(calling: Calling, name: str) -> Answer | None:
    """Let the agent choose its name, once; say why not if it cannot."""
    agent = calling.agent
    if name == agent.name:
        return None
    if not calling.nameless:
        return {"status": "named_already", "you": agent.name, "hint": "keep the name you have"}
    try:
        agent.agents.rename(name)
    except (ExistsError, StateError) as error:
        hint = "choose a name that nobody here bears, before you claim anything"
        return {"status": error.code, "you": agent.name, "hint": hint}
    return None


def claim(calling: Calling, arguments: dict[str, Any]) -> Answer:
    agent, resources = calling.agent, require(named(arguments))
    options = {
        key: arguments[key] for key in ("note", "mode", "ttl_s", "wait_s") if key in arguments
    }
    try:
        grant = agent.leases.claim(*resources, **options)
    except (HeldError, TimeoutError) as error:
        return {
            "status": "busy",
            "resource": ", ".join(resources),
            **in_the_way(tuple(error.details["blockers"])),
            "hint": HINTS["held"],
        }
    calling.decide_or(lambda: give_back(agent, grant))
    leases = grant.leases
    answer: Answer = {
        "status": "already_claimed" if len(grant.kept) == len(leases) else "claimed",
        "resource": ", ".join(lease.resource for lease in leases),
        "epoch": grant.epoch,
        "expires_in_s": seconds(min(lease.expires_in_ms for lease in leases)),
    }
    if len(leases) > 1:
        answer["resources"] = [lease.resource for lease in leases]
    return answer | said_of(agent, resources)


def said_of(agent: Agent, resources: list[str]) -> Answer:
    """What those who held these before said they had done to them."""
    said = agent.leases.outcomes(*resources)[:SHOWN]
    return {"outcomes": [outcome(one) for one in said]} if said else {}


def outcome(said: Outcome) -> Answer:
    answer: Answer = {
        "resource": said.resource,
        "outcome": said.outcome,
        "by": said.agent,
        "at": moment(said.released_at),
    }
    return answer | ({"moved_to": said.moved_to} if said.moved_to else {})


def give_back(agent: Agent, grant: Grant) -> None:
    new = [lease.resource for lease in grant.leases if lease.resource not in grant.kept]
    if new:
        agent.leases.release(*new, epoch=grant.epoch)


def release(calling: Calling, arguments: dict[str, Any]) -> Answer:
    agent, resources = calling.agent, named(arguments)
    everything = arguments.get("everything", False)
    released = agent.leases.release(
        *(resources if everything else require(resources)),
        everything=everything,
        outcome=arguments.get("outcome", "released"),
        moved_to=arguments.get("moved_to"),
    )
    return {"status": "released", "resources": [lease.resource for lease in released]}


def wait(calling: Calling, arguments: dict[str, Any]) -> Answer:
    began, resource = time.monotonic(), arguments["resource"]
    try:
        calling.agent.leases.wait(resource, wait_s=arguments.get("timeout_s", WAIT_S))
        answer: Answer = {"status": "available", "resource": resource}
    except TimeoutError as error:
        answer = {"status": "timeout", "resource": resource}
        answer |= in_the_way(tuple(error.details["blockers"])) if error.details["blockers"] else {}
        answer["hint"] = HINTS["timeout"]
    answer["elapsed_seconds"] = round(time.monotonic() - began, 1)
    return answer


def work_next(calling: Calling, arguments: dict[str, Any]) -> Answer:
    agent = calling.agent
    task = agent.work.next(**arguments)
    calling.decide_or(lambda: agent.work.abandon(task.id, epoch=task.epoch))
    return claimed(task)


def work_claim(calling: Calling, arguments: dict[str, Any]) -> Answer:
    agent, files = calling.agent, arguments.get("resources", [])
    try:
        task = agent.work.claim(arguments["id"], leases=files, note=arguments.get("note", ""))
    except HeldError as error:
        return busy_task(arguments["id"], error)
    return claimed(task) | (said_of(agent, files) if files else {})


def busy_task(id: str, error: HeldError) -> Answer:
    """Somebody else has the task, or one of the files it needs."""
    answer: Answer = {"status": "busy", "id": id, "hint": HINTS["held"]}
    if error.blockers:
        return answer | {"resource": error.blockers[0].resource} | in_the_way(error.blockers)
    task: Task = error.details["task"]
    return answer | {"held_by": task.agent, "expires_in_s": seconds(task.due_in_ms)}


def claimed(task: Task) -> Answer:
    answer = shown_task(task) | {
        "status": "claimed",
        "epoch": task.epoch,
        "expires_in_s": seconds(task.due_in_ms),
        "attempts": task.attempts,
    }
    if task.leases:
        answer["resources"] = [lease.resource for lease in task.leases]
    return answer


def shown_task(task: Task) -> Answer:
    """A task without what is empty."""
    told = {
        "id": task.id,
        "title": task.title,
        "kind": task.kind,
        "priority": task.priority,
        "tags": list(task.tags),
        "after": list(task.after),
        "payload": task.payload,
        "reason": task.reason,
    }
    return {key: value for key, value in told.items() if value not in ("", [], None, 0)}


def work_add(calling: Calling, arguments: dict[str, Any]) -> Answer:
    task = calling.agent.work.add(**arguments)
    return {"status": "added", "id": task.id, "state": task.state}


def work_done(calling: Calling, arguments: dict[str, Any]) -> Answer:
    work, id, end = calling.agent.work, arguments["id"], arguments.get("outcome", ENDS[0])
    reason = arguments.get("reason", "")
    if end == "completed":
        if reason:
            raise InvalidError("a completed task has a result, not a reason", next="give result")
        task = work.complete(id, result=arguments.get("result"))
    elif "result" in arguments:
        raise InvalidError(f"a task that was {end} has no result", next="give reason")
    else:
        task = work.fail(id, reason=reason) if end == "failed" else work.abandon(id, reason=reason)
    return {"status": end, "id": task.id, "state": task.state}


def send(calling: Calling, arguments: dict[str, Any]) -> Answer:
    message = calling.agent.messages.send(**arguments)
    to = message.to or message.channel or "everybody"
    answer: Answer = {"status": "sent", "id": message.id, "to": to}
    if message.to is not None:
        here = {presence.agent for presence in calling.agent.agents.list()}
        if message.to not in here:
            answer["hint"] = "nobody of that name is here now; it waits for them"
    return answer


def inbox(calling: Calling, arguments: dict[str, Any]) -> Answer:
    messages, channel = calling.agent.messages, arguments.get("channel")
    wait_s = arguments.get("wait_s", 0)
    if wait_s:
        # Looking first: what is given out to a call that was cancelled would never be seen.
        messages.inbox(channel=channel, peek=True, limit=1, wait_s=wait_s)
    calling.decide()
    found = messages.inbox(channel=channel)
    return {"status": "ok", "messages": [shown_message(one) for one in found]}


def shown_message(message: Message) -> Answer:
    told = {
        "id": message.id,
        "from": message.sender,
        "to": message.to or message.channel or "everybody",
        "reply_to": message.reply_to,
        "at": moment(message.sent_at),
        "body": message.body,
    }
    return {key: value for key, value in told.items() if value is not None}


def described(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {**schema, "description": text}


RESOURCE = described(TEXT, "path, folder/, glob, or a name such as port:3000")

STANDARD = [
    Tool(
        "status",
        "Start here, and look again between steps: who is here, what is held, your tasks, unread"
        " messages, what needs attention. With resource: is that one free?",
        {"resource": TEXT, "name": described(TEXT, "what others shall call you")},
        REPEATS,
        status,
        meta=ALWAYS,
    ),
    Tool(
        "claim",
        "Claim files before you edit them. claimed or already_claimed: go on. busy: somebody else"
        " has it, do not edit it.",
        {
            "resource": RESOURCE,
            "resources": described(TEXTS, "several, all or none"),
            "note": described(TEXT, "what for"),
            "mode": one_of(*MODES),
            "ttl_s": NUMBER,
            "wait_s": described(NUMBER, "queue for it"),
        },
        REPEATS,
        claim,
        answers=("claimed", "already_claimed", "busy", "deadlock", "stale"),
        waits=("wait_s", 0),
        meta=ALWAYS,
    ),
    Tool(
        "release",
        "Release what you are done with and say what you did to it; whoever waits gets it.",
        {
            "resource": TEXT,
            "resources": TEXTS,
            "everything": FLAG,
            "outcome": one_of(*OUTCOMES),
            "moved_to": TEXT,
        },
        REPEATS,
        release,
        meta=ALWAYS,
    ),
    Tool(
        "wait",
        "Wait until a resource is free. Does not claim it: claim with wait_s queues for it.",
        {"resource": TEXT, "timeout_s": NUMBER},
        READS,
        wait,
        required=("resource",),
        answers=("available", "timeout"),
        waits=("timeout_s", WAIT_S),
        meta=ALWAYS,
    ),
    Tool(
        "work_next",
        "Take the best open task that fits you; nobody else gets it.",
        {"kind": TEXT, "tags": described(TEXTS, "what you can do"), "wait_s": NUMBER},
        ADDS,
        work_next,
        waits=("wait_s", 0),
        meta=ALWAYS,
    ),
    Tool(
        "work_claim",
        "Take a certain task and the files it needs, all or none. An unknown id is added.",
        {"id": TEXT, "resources": TEXTS, "note": TEXT},
        REPEATS,
        work_claim,
        required=("id",),
        meta=ALWAYS,
    ),
    Tool(
        "work_add",
        "Add a task that any agent can take.",
        {
            "id": TEXT,
            "title": TEXT,
            "kind": TEXT,
            "priority": INTEGER,
            "tags": TEXTS,
            "after": described(TEXTS, "tasks to complete first"),
            "payload": OBJECT,
        },
        ADDS,
        work_add,
        required=("id",),
        meta=ALWAYS,
    ),
    Tool(
        "work_done",
        "End your task: completed, failed (tried again later) or abandoned (given back).",
        {"id": TEXT, "outcome": one_of(*ENDS), "result": OBJECT, "reason": TEXT},
        ADDS,
        work_done,
        required=("id",),
        meta=ALWAYS,
    ),
    Tool(
        "send",
        "Write to an agent, to a channel, or to everybody.",
        {"body": TEXT, "to": TEXT, "channel": TEXT, "reply_to": INTEGER},
        ADDS,
        send,
        required=("body",),
        meta=ALWAYS,
    ),
    Tool(
        "inbox",
        "Read your unread messages; each is given once.",
        {"channel": TEXT, "wait_s": NUMBER},
        ADDS,
        inbox,
        waits=("wait_s", 0),
        meta=ALWAYS,
    ),
]
