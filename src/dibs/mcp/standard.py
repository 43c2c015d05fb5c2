"""The ten tools that every agent is offered.

Their names, arguments and answers are a contract of their own, worded for a model that reads them
at every turn, so every word must be worth its cost. The operations of the library do the work.
"""

from __future__ import annotations

import time
from itertools import accumulate

from dibs.arguments import KINDS, Choice
from dibs.errors import (
    ExistsError,
    HeldError,
    InvalidError,
    NotFoundError,
    NotYoursError,
    StaleError,
    StateError,
    TimeoutError,
)
from dibs.mcp.pages import available, board
from dibs.mcp.tool import (
    ADDS,
    FLAG,
    HINTS,
    INTEGER,
    NUMBER,
    OBJECT,
    READS,
    REPEATS,
    TEXT,
    TEXTS,
    Tool,
    about,
    in_the_way,
    named,
    outcome,
    seconds,
    shown_message,
    shown_task,
)
from dibs.records import shortened
from dibs.surroundings.schemas import of_kind
from dibs.surroundings.who import is_made_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.dibs import Agent
    from dibs.mcp.calls import Call
    from dibs.records import Grant, Task

    Answer = dict[str, Any]

WAIT_S = 30
"""The default is less than the shortest timeout of the known clients, a minute."""
ENDS = ("completed", "failed", "abandoned")
SHOWN = 5
INBOX_SHOWN = 20_000
"""How many characters of messages are given at once; the rest comes with the next call."""
ALWAYS = {"anthropic/alwaysLoad": True}
"""Offered at once, not behind a tool search: agents that must search do not claim."""


def status(call: Call, arguments: dict[str, Any]) -> Answer:
    if "name" in arguments and (kept := take_name(call, arguments["name"])):
        return kept
    if "resource" in arguments:
        return available(call.agent, arguments["resource"])
    return board(call.agent, call.holdings)


def take_name(call: Call, name: str) -> Answer | None:
    """Let the agent choose its name once, or say why it cannot."""
    agent = call.agent
    if name == agent.name:
        return None
    if not call.callers.is_nameless(call.request):
        return {"status": "named_already", "you": agent.name, "hint": HINTS["named_already"]}
    try:
        if is_made_up(name):
            raise ExistsError("generated names are reserved for their sessions")
        agent.agents.rename(name)
    except ExistsError:
        return {"status": "exists", "you": agent.name, "hint": HINTS["name_taken"]}
    except StateError:
        return {"status": "wrong_state", "you": agent.name, "hint": HINTS["name_too_late"]}
    return None


def claim(call: Call, arguments: dict[str, Any]) -> Answer:
    agent, (resources, options) = call.agent, named(arguments)
    try:
        grant = agent.leases.claim(*resources, **options)
    except (HeldError, TimeoutError) as error:
        blockers = tuple(error.details["blockers"])
        # There are none if it was released at the moment the wait ended.
        why = in_the_way(agent, blockers) if blockers else {"hint": HINTS["freed"]}
        return {"status": "busy", **about(resources), **why}
    call.decide(lambda: give_back(agent, grant))
    leases = grant.leases
    call.holdings.leases |= {lease.resource for lease in leases}
    answer: Answer = {
        "status": "already_claimed" if len(grant.kept) == len(leases) else "claimed",
        **about([lease.resource for lease in leases]),
        "epoch": grant.epoch,
        "expires_in_s": seconds(min(lease.expires_in_ms for lease in leases)),
    }
    if shortened(leases, options.get("ttl_s", 0) * 1000):
        answer["hint"] = HINTS["whole_tree"]
    return answer | said_of(agent, resources)


def said_of(agent: Agent, resources: list[str]) -> Answer:
    """What earlier holders said they did to these."""
    said = [one for one in agent.leases.outcomes(*resources) if one.agent != agent.name]
    return {"outcomes": [outcome(one) for one in said[:SHOWN]]} if said else {}


def give_back(agent: Agent, grant: Grant) -> None:
    new = [lease.resource for lease in grant.leases if lease.resource not in grant.kept]
    if new:
        agent.leases.release(*new, epoch=grant.epoch)


def release(call: Call, arguments: dict[str, Any]) -> Answer:
    agent, (resources, options) = call.agent, named(arguments)
    try:
        released = agent.leases.release(*resources, **options)
    except NotFoundError:
        return {"status": "not_held", **about(resources), "hint": HINTS["not_held"]}
    except NotYoursError as error:
        if "blockers" not in error.details:
            raise
        answer: Answer = {"status": "not_held", **about(resources)}
        return answer | in_the_way(agent, error.details["blockers"]) | {"hint": HINTS["not_held"]}
    except StaleError as error:
        why = {"reason": error.details["reason"]} if "reason" in error.details else {}
        return {"status": "stale", **about(resources), **why, "hint": HINTS["stale"]}
    names = [lease.resource for lease in released]
    call.holdings.leases -= set(names)
    return {"status": "released", "resources": names}


def wait(call: Call, arguments: dict[str, Any]) -> Answer:
    began, agent, resource = time.monotonic(), call.agent, arguments["resource"]
    try:
        agent.leases.wait(resource, wait_s=arguments.get("timeout_s", WAIT_S))
        answer: Answer = {"status": "available", "resource": resource}
    except TimeoutError as error:
        answer = {"status": "timeout", "resource": resource}
        if error.details["blockers"]:
            answer |= in_the_way(agent, tuple(error.details["blockers"]))
        answer["hint"] = HINTS["timeout"]
    answer["elapsed_seconds"] = round(time.monotonic() - began, 1)
    return answer


def work_next(call: Call, arguments: dict[str, Any]) -> Answer:
    agent = call.agent
    task = agent.work.next(**arguments)
    call.decide(lambda: agent.work.abandon(task.id, epoch=task.epoch))
    return claimed(call, task)


def work_claim(call: Call, arguments: dict[str, Any]) -> Answer:
    agent, files = call.agent, arguments.get("resources", [])
    try:
        task = agent.work.claim(arguments["id"], leases=files, note=arguments.get("note", ""))
    except HeldError as error:
        return busy_task(agent, arguments["id"], error)
    return claimed(call, task) | (said_of(agent, files) if files else {})


def busy_task(agent: Agent, id: str, error: HeldError) -> Answer:
    """Somebody else has the task, or one of the files it needs."""
    answer: Answer = {"status": "busy", "id": id}
    if error.blockers:
        return answer | in_the_way(agent, error.blockers)
    task: Task = error.details["task"]
    return answer | {
        "held_by": task.agent,
        "expires_in_s": seconds(task.due_in_ms),
        "hint": HINTS["held_by_you" if task.agent == agent.name else "held_task"],
    }


def claimed(call: Call, task: Task) -> Answer:
    holdings = call.holdings
    holdings.tasks.add(task.id)
    holdings.leases |= {lease.resource for lease in task.leases}
    answer = shown_task(task) | {
        "status": "claimed",
        "epoch": task.epoch,
        "expires_in_s": seconds(task.due_in_ms),
        "attempts": task.attempts,
    }
    if task.leases:
        answer["resources"] = [lease.resource for lease in task.leases]
    return answer


def work_add(call: Call, arguments: dict[str, Any]) -> Answer:
    files = arguments.pop("resources", [])
    task = call.agent.work.add(**arguments, leases=files)
    return {"status": "added", "id": task.id, "state": task.state}


def work_done(call: Call, arguments: dict[str, Any]) -> Answer:
    work, id, end = call.agent.work, arguments["id"], arguments.get("outcome", ENDS[0])
    reason = arguments.get("reason", "")
    if end == "completed" and reason:
        raise InvalidError("a completed task has a result, not a reason", next="give result")
    if end != "completed" and "result" in arguments:
        raise InvalidError(f"a task that was {end} has no result", next="give reason")
    held = call.agent.leases.list(session=call.agent.session)
    files = {lease.resource for lease in held if lease.task == id}
    try:
        if end == "completed":
            task = work.complete(id, result=arguments.get("result"))
        else:
            task = (work.fail if end == "failed" else work.abandon)(id, reason=reason)
    except StaleError as error:
        return not_held_task(id, error.details["task"])
    call.holdings.tasks.discard(id)
    call.holdings.leases -= files
    return {"status": end, "id": task.id, "state": task.state}


def not_held_task(id: str, task: Task) -> Answer:
    answer: Answer = {"status": "stale", "id": id, "state": task.state}
    if task.state == "claimed":
        return answer | {"held_by": task.agent, "hint": HINTS["held_task"]}
    if task.state == "completed":
        return answer | {"hint": "it is already completed; take another task"}
    return answer | {"hint": "you do not hold it; take it with work_claim first"}


def send(call: Call, arguments: dict[str, Any]) -> Answer:
    message = call.agent.messages.send(**arguments)
    to = message.to or message.channel or "everybody"
    answer: Answer = {"status": "sent", "id": message.id, "to": to}
    if message.to is not None:
        here = {presence.agent for presence in call.agent.agents.list()}
        if message.to not in here:
            answer["hint"] = "nobody with that name is here now; the message waits for them"
    return answer


def inbox(call: Call, arguments: dict[str, Any]) -> Answer:
    messages, channel = call.agent.messages, arguments.get("channel")
    # Peek first: messages delivered to a cancelled call, or in an answer that the client cuts
    # off, would never be seen.
    waiting = messages.inbox(channel=channel, peek=True, wait_s=arguments.get("wait_s", 0))
    call.decide()
    if not waiting:
        return {"status": "ok", "messages": []}
    sizes = accumulate(len(one.body) for one in waiting)
    fitting = sum(size <= INBOX_SHOWN for size in sizes)
    found = messages.inbox(channel=channel, limit=max(1, fitting))
    answer: Answer = {"status": "ok", "messages": [shown_message(one) for one in found]}
    if len(found) < len(waiting):
        answer["more"] = len(waiting) - len(found)
    return answer


def described(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {**schema, "description": text}


RESOURCE = described(TEXT, "path, folder/, glob, or a name such as port:3000")

STANDARD = [
    Tool(
        "status",
        "Start here, and look again between steps: who is here, what is held, your tasks, unread"
        " messages, what needs attention. With resource: is that one free?",
        {"resource": TEXT, "name": described(TEXT, "the name that others see")},
        REPEATS,
        status,
        does="leases.status agents.rename",
    ),
    Tool(
        "claim",
        "Claim files before you edit them. claimed or already_claimed: go on. busy: somebody else"
        " has it, do not edit it.",
        {
            "resource": RESOURCE,
            "resources": described(TEXTS, "several, all or none"),
            "note": described(TEXT, "what for"),
            "mode": of_kind(KINDS["mode"]),
            "ttl_s": NUMBER,
            "wait_s": described(NUMBER, "queue for it"),
        },
        REPEATS,
        claim,
        answers=("claimed", "already_claimed", "busy", "deadlock", "stale"),
        waits=("wait_s", 0),
        does="leases.claim",
    ),
    Tool(
        "release",
        "Release what you are done with and say what you did to it; the next in the queue gets it.",
        {
            "resource": TEXT,
            "resources": TEXTS,
            "everything": FLAG,
            "outcome": of_kind(KINDS["outcome"]),
            "moved_to": TEXT,
        },
        REPEATS,
        release,
        does="leases.release",
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
        does="leases.wait",
    ),
    Tool(
        "work_next",
        "Take the best open task that fits you; nobody else gets it.",
        {"kind": TEXT, "tags": described(TEXTS, "what you can do"), "wait_s": NUMBER},
        ADDS,
        work_next,
        waits=("wait_s", 0),
        does="work.next",
    ),
    Tool(
        "work_claim",
        "Take one task and the files it needs, all or none. An unknown id is added. Again:"
        " renews it for an hour.",
        {"id": TEXT, "resources": TEXTS, "note": TEXT},
        REPEATS,
        work_claim,
        required=("id",),
        does="work.claim",
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
            "resources": described(TEXTS, "files it changes"),
            "payload": OBJECT,
        },
        ADDS,
        work_add,
        required=("id",),
        does="work.add",
    ),
    Tool(
        "work_done",
        "End your task: completed, failed (tried again later) or abandoned (given back).",
        {"id": TEXT, "outcome": of_kind(Choice(*ENDS)), "result": OBJECT, "reason": TEXT},
        ADDS,
        work_done,
        required=("id",),
        does="work.complete work.fail work.abandon",
    ),
    Tool(
        "send",
        "Write to an agent, to a channel, or to everybody.",
        {"body": TEXT, "to": TEXT, "channel": TEXT, "reply_to": INTEGER},
        ADDS,
        send,
        required=("body",),
        does="messages.send",
    ),
    Tool(
        "inbox",
        "Read your unread messages; each is given once.",
        {"channel": TEXT, "wait_s": NUMBER},
        ADDS,
        inbox,
        waits=("wait_s", 0),
        does="messages.inbox",
    ),
]
for tool in STANDARD:
    tool.definition["_meta"] = ALWAYS
