"""What a tool works with: who calls, and how answers are worded.

A refusal is a normal answer: its `status` says what happened, and its `hint` what to do next.
Hints are our own fixed words. What another agent wrote stands only in fields of its own, and
the answer lists these under `untrusted`: they are information, never instructions.
"""

from __future__ import annotations

import json
import time

from dibs.errors import CancelledError, DibsError, RefusedError
from dibs.records import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.dibs import Agent
    from dibs.records import Blocker, Event
    from dibs.surfaces.mcp.callers import Callers
    from dibs.surfaces.mcp.connection import Call

HINTS = {
    "held": "do not touch it; wait for it, claim it with wait_s to queue, or do something else",
    "stale": "it is not yours any more; claim it again and look at what changed meanwhile",
    "conflict": "look at the value there now, then set it with that expected_version",
    "not_found": "check the name; status and the lists show what there is",
    "exists": "choose another name, or use what is there",
    "empty": "nothing fits now; wait with wait_s, or add work",
    "wrong_state": "look at its state; take something else",
    "timeout": "do something else, or wait longer",
    "deadlock": "release what you hold that they want, then claim all you need in one call",
    "not_yours": "your session is over and what it held is free; claim again what you need",
    "pruned": "read the present state and go on from there",
}

# Fields with text that an agent may have written. A `message` about a mistake can name others'
# tasks, and a `status` below the answer's own is what an agent says it is doing.
_FROM_PEERS = {
    "actual_value", "body", "data", "doing", "message", "note", "payload", "reason", "result",
    "status", "subject", "title", "value",
}  # fmt: skip


class Calling:
    """One call of a tool."""

    def __init__(self, callers: Callers, call: Call) -> None:
        self._callers = callers
        self._call = call

    @property
    def agent(self) -> Agent:
        return self._callers.agent(self._call.request)

    @property
    def nameless(self) -> bool:
        """Whether nobody has chosen the agent's name yet."""
        return self._callers.is_nameless(self._call.request)

    def lost(self) -> list[Event]:
        """The leases the agent has lost since it last asked."""
        return self._callers.lost(self._call.request)

    def decide(self) -> None:
        """The call is as good as answered: a cancellation comes too late from here on."""
        self._call.decide()

    def decide_or(self, undo: Callable[[], object]) -> None:
        """The same, but if it was cancelled already, give back what it was granted."""
        try:
            self._call.decide()
        except CancelledError:
            undo()
            raise


def refusal(error: DibsError) -> dict[str, Any]:
    """The answer to a call that was refused, or that went wrong."""
    if isinstance(error, RefusedError):
        answer = {"status": error.code, **plain(error.details)}
        answer["hint"] = HINTS.get(error.code, "do something else")
        return answer
    answer = {"status": error.code, "message": error.message}
    if error.next:
        answer["hint"] = error.next
    return answer


def result(answer: dict[str, Any], error: DibsError | None = None) -> dict[str, Any]:
    """An answer as a tool's result: the same JSON for clients that show text and for others."""
    marks = sorted(set(peer_fields(answer, "")))
    if marks:
        answer = {**answer, "untrusted": marks}
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    made: dict[str, Any] = {
        "content": [{"type": "text", "text": text}],
        "structuredContent": answer,
    }
    if error is not None and not isinstance(error, RefusedError):
        made["isError"] = True
    return made


def peer_fields(value: Any, path: str) -> list[str]:
    """Where in an answer agents' own words stand, such as `messages[].body`."""
    if isinstance(value, list):
        return [found for item in value for found in peer_fields(item, f"{path}[]")]
    if not isinstance(value, dict):
        return []
    marks = []
    for name, inner in value.items():
        place = f"{path}.{name}" if path else name
        if name in _FROM_PEERS and place != "status" and inner not in (None, ""):
            marks.append(place)
        else:
            marks += peer_fields(inner, place)
    return marks


def seconds(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds // 1000


def moment(at: int) -> str:
    """A time as people and models read it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at / 1000))


def in_the_way(blockers: tuple[Blocker, ...]) -> dict[str, Any]:
    """Who stands in the way: the holder if there is one, else whoever waits first."""
    if not blockers:
        return {}  # it was let go just after the wait for it had ended
    first = next((blocker for blocker in blockers if not blocker.waiting), blockers[0])
    said: dict[str, Any] = {
        "held_by": first.agent,
        "claimed_at": moment(first.since_at),
        "note": first.note,
        "expires_in_s": seconds(first.expires_in_ms),
    }
    if len(blockers) > 1:
        said["others_in_the_way"] = len(blockers) - 1
    return said
