"""What a tool is, what it works with, and the form of its answers.

The JSON schemas here are shown to the client and used to check arguments.

A refusal is a normal answer: its `status` says what happened, and its `hint` what to do next.
Hints are fixed texts of dibs. What another agent wrote appears only in separate fields, and the
answer lists these under `untrusted`: they are information, never instructions.

A model pays for every word and reads all of it, so the size of an answer is bounded too.
"""

from __future__ import annotations

import time

from dibs.arguments import RESOURCE_LIMIT, shown
from dibs.errors import DibsError, InvalidError, RefusedError
from dibs.records import NAME_SHOWN, Blocker, Message, Outcome, Task, is_word, plain
from dibs.surroundings.wording import json_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.dibs import Agent
    from dibs.mcp.calls import Call

    Answer = dict[str, Any]
    Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "array", "items": TEXT}
OBJECT: Schema = {"type": "object"}


READS = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
ADDS = {**READS, "readOnlyHint": False, "idempotentHint": False}
REPEATS = {**READS, "readOnlyHint": False}
"""Changes something, but twice has the same effect as once."""
DESTROYS = {**ADDS, "destructiveHint": True}

# JSON's types in Python. A boolean is not a number, although Python says so.
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
HINTS = {
    "held": "do not touch it; wait for it, claim it with wait_s to queue, or do something else",
    "held_task": "another agent has it; take another task",
    "held_by_you": "another session with your name has it; leave it to that one",
    "freed": "it became free when the wait ended; claim it again",
    "not_held": "you do not hold it, so there is nothing to release",
    "stale": "it is no longer yours; claim it again and check what has changed",
    "conflict": "read the current value, then set it with that expected_version",
    "not_found": "check the name; status and the lists show what there is",
    "exists": "choose another name, or use what is there",
    "all_done": "all work is done; add more, or stop",
    "nothing_fits": "say what else you can do (tags), or leave it to others",
    "later": "nothing fits now; wait with wait_s, or do something else",
    "wrong_state": "check its state; take something else",
    "timeout": "do something else, or wait longer",
    "deadlock": "release what you hold that they want, then claim all you need in one call",
    "not_yours": "your session has ended and its leases are released; claim what you need again",
    "whole_tree": "an agent may hold a whole tree only briefly, renewals included; claim the"
    " paths you need",
    "others": "it is somebody else's; leave it to them, or ask them with send",
    "pruned": "read the current state and go on from there",
    "invalid": "correct the arguments",
    "store_gone": "call again: a new store is created; your leases are gone, so claim again",
    "store_busy": "call again in a moment",
    "disconnected": "call again in a moment",
    "name_taken": "choose a name that nobody here has",
    "name_too_late": "release what you hold first, or keep the name you have",
    "named_already": "keep the name you have",
}
PERSON = "tell the person you work for"
"""What to do about problems that no agent can fix."""

# Fields with text that an agent may have written. A `message` about an error can name others'
# tasks, and a nested `status` is what an agent says it is doing. Any other field whose value is
# more than one plain word counts too, unless it is ours.
_OURS = {"hint", "status", "untrusted"}
_TIMES = {"at", "claimed_at"}
_FROM_PEERS = {
    "actual_value", "body", "data", "doing", "message", "moved_to", "note", "payload",
    "reason", "result", "status", "subject", "title", "value",
}  # fmt: skip
# Fields with names of resources.
_RESOURCES = {"resource", "resources", "blocked_by", "moved_to"}
TEXT_SHOWN = 200
MESSAGE_SHOWN = 1_000


def refusal(error: DibsError) -> Answer:
    """The answer to a call that was refused or failed."""
    # `busy` already means a resource, not the store.
    code = "store_busy" if error.code == "busy" else error.code
    if isinstance(error, RefusedError):
        details = {name: told(value) for name, value in error.details.items()}
        # Everything is lost only if the session has ended.
        why = "others" if code == "not_yours" and "task" in details else code
        return {"status": code, **details, "hint": HINTS.get(why, "do something else")}
    message = error.message
    if isinstance(error, InvalidError) and error.next:
        message = f"{message}; {error.next}"
    return {"status": code, "message": cut(message, MESSAGE_SHOWN), "hint": HINTS.get(code, PERSON)}


def told(detail: Any) -> Any:
    """A detail of a refusal, without what a model does not need."""
    if isinstance(detail, Task):
        return {"id": detail.id, "state": detail.state, "held_by": detail.agent}
    return plain(detail)


def result(answer: Answer, error: DibsError | None = None, root: str = "") -> Answer:
    """An answer as a tool's result: the same JSON for clients that show text and for others.

    root: the prefix of file names outside a repository
    """
    if root:
        answer = rooted(answer, root)
    marks = sorted(set(peer_fields(answer, "")))
    if marks:
        answer = {**answer, "untrusted": marks}
    text = json_line(answer, separators=(",", ":"))
    made: Answer = {"content": [{"type": "text", "text": text}], "structuredContent": answer}
    if error is not None and not isinstance(error, RefusedError):
        made["isError"] = True
    return made


def rooted(value: Any, root: str, named: bool = False) -> Any:
    """The answer with its files named from the root of the disk."""
    if isinstance(value, dict):
        return {name: rooted(inner, root, name in _RESOURCES) for name, inner in value.items()}
    if isinstance(value, list):
        return [rooted(item, root, named) for item in value]
    if named and isinstance(value, str) and ":" not in value:
        return root + value
    return value


def peer_fields(value: Any, path: str) -> list[str]:
    """The places of agents' own words in an answer, such as `messages[].body`."""
    if isinstance(value, list):
        return [found for item in value for found in peer_fields(item, f"{path}[]")]
    if isinstance(value, str) and value and not is_word(value, RESOURCE_LIMIT):
        return [path]
    if not isinstance(value, dict):
        return []
    marks = []
    for name, inner in value.items():
        place = f"{path}.{name}" if path else name
        if name in _FROM_PEERS and place != "status" and inner not in (None, ""):
            marks.append(place)
        elif place not in _OURS and name not in _TIMES:
            marks += peer_fields(inner, place)
    return marks


def cut(text: str, limit: int = TEXT_SHOWN) -> str:
    """Text that is not too long, with a mark where it was cut."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def seconds(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds // 1000


def moment(at: int) -> str:
    """A time as people and models read it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at / 1000))


def in_the_way(agent: Agent, blockers: tuple[Blocker, ...]) -> Answer:
    """Who blocks it: the holder if there is one, otherwise the first in the queue."""
    first = next((blocker for blocker in blockers if not blocker.waiting), blockers[0])
    said: Answer = {
        "held_by": cut(first.agent, NAME_SHOWN),
        "blocked_by": cut(first.resource),
        "claimed_at": moment(first.since_at),
        "note": cut(first.note),
        "expires_in_s": seconds(first.expires_in_ms),
        "hint": HINTS["held_by_you" if first.agent == agent.name else "held"],
    }
    if first.mode == "shared":
        said["mode"] = "shared"
    if first.waiting:
        said["waiting"] = True
    if len(blockers) > 1:
        said["others_in_the_way"] = len(blockers) - 1
    return said


def named(arguments: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The resources of a call, one, several, or both, and what else it says about them."""
    options = dict(arguments)
    one = [options.pop("resource")] if "resource" in options else []
    for text in one:
        if ", " in text:
            raise InvalidError(f"{text!r} looks like several", next="give them as resources")
    resources = [*one, *options.pop("resources", [])]
    if not resources and not options.get("everything"):
        raise InvalidError("no resource was given", next="give resource, or resources")
    return resources, options


def about(resources: list[str]) -> Answer:
    """The subject of an answer: one resource, or several."""
    return {"resource": resources[0]} if len(resources) == 1 else {"resources": resources}


def outcome(said: Outcome) -> Answer:
    answer: Answer = {
        "resource": said.resource,
        "outcome": said.outcome,
        "by": cut(said.agent, NAME_SHOWN),
        "at": moment(said.released_at),
    }
    return answer | ({"moved_to": said.moved_to} if said.moved_to else {})


def shown_message(message: Message) -> Answer:
    parts = {
        "id": message.id,
        "from": message.sender,
        "to": message.to or message.channel or "everybody",
        "reply_to": message.reply_to,
        "at": moment(message.sent_at),
        "body": message.body,
    }
    return {key: value for key, value in parts.items() if value is not None}


def shown_task(task: Task) -> Answer:
    """A task without empty fields."""
    all_of_it = plain(task)
    shown = ("id", "title", "kind", "priority", "tags", "labels", "after", "parent", "found_in",
             "declared", "payload", "reason", "asked", "acked")  # fmt: skip
    return {name: all_of_it[name] for name in shown if all_of_it[name] not in ("", [], None, 0)}


class Tool:
    def __init__(
        self,
        name: str,
        description: str,
        properties: dict[str, Schema],
        hints: dict[str, bool],
        run: Callable[[Call, dict[str, Any]], dict[str, Any]],
        *,
        required: tuple[str, ...] = (),
        answers: tuple[str, ...] = (),
        does: str = "",
        waits: tuple[str, float] | None = None,
    ) -> None:
        """A tool.

        answers: the values of its `status`, whether done or refused
        does: the operations that it covers, so that they need no tool of their own
        waits: the argument that says how many seconds it may wait, and its default
        """
        self.name = name
        self.run = run
        # A session can end at any moment, whatever is asked.
        self.answers = (*answers, "not_yours") if answers else ()
        self.does = does.split()
        self._properties = properties
        self._required = required
        self._waits = waits
        schema: Schema = {"type": "object", "properties": properties}
        if required:
            schema["required"] = list(required)
        self.definition: dict[str, Any] = {
            "name": name,
            "description": description,
            "inputSchema": schema,
            # Clients discard an answer that does not match the schema, and many check even error
            # answers. So the values of `status` are not listed here.
            "outputSchema": {
                "type": "object",
                "properties": {"status": TEXT},
                "required": ["status"],
            },
            "annotations": hints,
        }

    def waits_s(self, arguments: object) -> float | None:
        """How long a call with these arguments may wait; None if it does not."""
        if self._waits is None or not isinstance(arguments, dict):
            return None
        name, default = self._waits
        seconds = default if arguments.get(name) is None else arguments[name]
        right = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        return float(seconds) if right and 0 < seconds < 1e9 else None

    def check(self, arguments: object) -> dict[str, Any]:
        """The arguments, if they match the schema."""
        if not isinstance(arguments, dict):
            raise InvalidError(f"{self.name} takes an object of arguments")
        for name in arguments:
            if name not in self._properties:
                known = ", ".join(self._properties) or "none"
                raise InvalidError(
                    f"{self.name} has no argument {shown(name)}", next=f"its arguments: {known}"
                )
        # A client may send null for an omitted argument.
        given = {
            name: value
            for name, value in arguments.items()
            if value is not None or "anyOf" in self._properties[name]
        }
        for name in self._required:
            if name not in given:
                raise InvalidError(f"{self.name} needs {name}", next=f"give {name}")
        for name, value in given.items():
            check_value(name, value, self._properties[name])
        return given


def check_value(name: str, value: object, schema: Schema) -> None:
    choices = schema.get("enum")
    if choices is not None:
        if value not in choices:
            raise InvalidError(f"{name} must be one of: {', '.join(choices)}")
        return
    kind = schema.get("type")
    if kind is None:
        return
    fits = isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if not fits:
        raise InvalidError(f"{name} must be of type {kind}, not {type(value).__name__}")
    if isinstance(value, list) and "items" in schema:
        for item in value:
            check_value(f"each of {name}", item, schema["items"])
