"""Tasks as the Agent2Agent protocol (A2A 1.0) sees them.

    blocked, available, failed (retried later)       submitted
    claimed                                          working
    completed                                        completed
    dead (no attempt is left)                        failed
    cancelled                                        canceled

A task that was added with A2A keeps its message in its payload, so every daemon can show it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dibs.errors import DibsError, InvalidError

if TYPE_CHECKING:
    from dibs.records import Event

    Object = dict[str, Any]

SUBMITTED, WORKING = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"
COMPLETED, FAILED, CANCELED = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED")
TERMINAL = (COMPLETED, FAILED, CANCELED)
STATES = {
    "blocked": SUBMITTED,
    "available": SUBMITTED,
    "failed": SUBMITTED,
    "claimed": WORKING,
    "completed": COMPLETED,
    "dead": FAILED,
    "cancelled": CANCELED,
}
# The state of a task after each event; a renewal changes nothing.
MOVES = {f"task.{state}": told for state, told in STATES.items()}
MOVES |= {f"task.{how}": SUBMITTED for how in ("abandoned", "freed", "reopened", "revoked")}
MOVES |= {f"task.{how}": SUBMITTED for how in ("handed_in", "returned", "asked", "acked")}
MOVES["task.refused"] = FAILED
KNOWN = (
    "TASK_STATE_UNSPECIFIED",
    *dict.fromkeys(STATES.values()),
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
)
"""The states that can be asked for, even if no task of ours is ever in them."""
OPTIONS = ("kind", "priority", "tags", "after")
TITLE_LIMIT = 200


class NotTextError(DibsError):
    """A part of a message that a task cannot store."""


def is_over(task: Object) -> bool:
    return STATES[task["state"]] in TERMINAL


def asked_for(message: Any, agent: str) -> Object:
    """The arguments of `work.add` for a message.

    The task's id is made from the sender and the message's id, so that a message that is sent
    twice adds one task.
    """
    if not isinstance(message, dict):
        raise InvalidError("params.message is missing")
    id, parts = message.get("messageId"), message.get("parts")
    if not isinstance(id, str) or not id:
        raise InvalidError("message.messageId is missing")
    if not isinstance(parts, list) or not parts:
        raise InvalidError("message.parts is missing")
    texts, data = [], []
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, dict) and "data" in part:
            data.append(part["data"])
        else:
            raise NotTextError("only text and data parts are supported")
    context = message.get("contextId") or uuid4().hex
    if not isinstance(context, str):
        raise InvalidError("message.contextId must be text")
    text = "\n".join(texts)
    payload: Object = {"text": text, "a2a": {"messageId": id, "contextId": context}}
    if data:
        payload["data"] = data
    return {
        "id": f"a2a:{agent}:{id}",
        "title": titled(text) or f"message {id}"[:TITLE_LIMIT],
        "payload": payload,
        **options(message.get("metadata")),
    }


def options(metadata: Any) -> Object:
    """What the sender says about the task itself, under `dibs` of the message's metadata."""
    given = metadata.get("dibs", {}) if isinstance(metadata, dict) else {}
    if not isinstance(given, dict) or not given.keys() <= set(OPTIONS):
        raise InvalidError(f"metadata.dibs may have: {', '.join(OPTIONS)}")
    # The protocol's own format has no whole numbers here.
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in given.items()
    }


def titled(text: str) -> str:
    """The first non-empty line of a text, cut to a title."""
    for line in text.splitlines():
        title = " ".join("".join(c if c.isprintable() else " " for c in line).split())
        if title:
            return title if len(title) <= TITLE_LIMIT else f"{title[: TITLE_LIMIT - 1]}…"
    return ""


def same(asked: Object, there: Object) -> bool:
    """Whether an existing task is the one that is requested again."""
    one, other = asked["payload"], there["payload"]
    return isinstance(other, dict) and all(
        one.get(part) == other.get(part) for part in ("text", "data")
    )


def origin(task: Object) -> Object:
    """The message that a task came with, if it was added with A2A."""
    payload = task["payload"]
    found = payload.get("a2a") if isinstance(payload, dict) else None
    return found if isinstance(found, dict) else {}


def context_of(task: Object) -> str:
    return str(origin(task).get("contextId") or task["id"])


def shown(task: Object, history: int | None = None, artifacts: bool = True) -> Object:
    """A task in the protocol's format."""
    told: Object = {
        "id": task["id"],
        "contextId": context_of(task),
        "status": status(task, STATES[task["state"]], task["changed_at"], task["reason"]),
        "metadata": {
            "dibs": {name: task[name] for name in ("state", "title", "agent", "attempts")}
        },
    }
    if artifacts:
        told["artifacts"] = results(task)
    if history != 0 and (begun := said(task)):
        told["history"] = [begun]
    return told


def status(task: Object, state: str, at: int, reason: str) -> Object:
    told: Object = {"state": state, "timestamp": moment(at)}
    if reason:
        told["message"] = message(task, f"{task['id']}:{at}", "ROLE_AGENT", [{"text": reason}])
    return told


def message(task: Object, id: str, role: str, parts: list[Object]) -> Object:
    about = {"contextId": context_of(task), "taskId": task["id"]}
    return {"messageId": id, **about, "role": role, "parts": parts}


def results(task: Object) -> list[Object]:
    result = task["result"]
    if result is None:
        return []
    part = {"text": result} if isinstance(result, str) else {"data": result}
    return [{"artifactId": "result", "name": "result", "parts": [part]}]


def said(task: Object) -> Object | None:
    """The message that added a task."""
    if "messageId" not in origin(task):
        return None
    payload = task["payload"]
    parts = [{"text": payload["text"]}] if payload.get("text") else []
    parts += [{"data": value} for value in payload.get("data", [])]
    return message(task, origin(task)["messageId"], "ROLE_USER", parts)


def moved(task: Object, event: Event) -> list[Object]:
    """An event as an update for those who follow a task."""
    data = event.data or {}
    reason = str(data.get("reason") or data.get("why") or "")
    told = update(task)["statusUpdate"]
    told["status"] = status(task, MOVES[event.kind], event.at, reason)
    told["metadata"]["dibs"] = {"event": event.kind, "agent": event.agent, "seq": event.seq}
    about = {"taskId": task["id"], "contextId": context_of(task)}
    artifacts = results(task) if event.kind == "task.completed" else []
    return [
        *({"artifactUpdate": {**about, "artifact": one, "lastChunk": True}} for one in artifacts),
        {"statusUpdate": told},
    ]


def update(task: Object) -> Object:
    """The state of a task, for those who follow it."""
    told = shown(task, history=0)
    return {
        "statusUpdate": {
            "taskId": told["id"],
            **{name: told[name] for name in ("contextId", "status", "metadata")},
        }
    }


def moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def read_moment(text: Any) -> int:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        raise InvalidError("statusTimestampAfter must be a time as in RFC 3339") from None
