"""What arguments must be like, in the words of JSON Schema.

The core checks its arguments itself and says what is wrong; this page tells a caller before. A
test sends what it allows and what it forbids, and finds where the two differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dibs.names.paths import MAX_TEXT
from dibs.nouns.agents.operations import SCOPES
from dibs.nouns.leases.operations import CLAIM_LIMIT, MODES, OUTCOMES
from dibs.nouns.work.operations import PRIORITY, STATES
from dibs.operation import (
    BODY_LIMIT,
    DELAY_MAX_S,
    LIST_LIMIT,
    NAME_LIMIT,
    NEWEST,
    TEXT_LIMIT,
    TTL_MAX_S,
    TTL_MIN_S,
    VALUE_LIMIT,
    WAIT_MAX_S,
)

if TYPE_CHECKING:
    from dibs.operation import Argument, Operation

    Schema = dict[str, Any]

CONTROL = r"\x00-\x1f\x7f-\x9f"
LINE = rf"^[^{CONTROL}]*$"
LINES = r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$"
NAME = rf"^[^\s{CONTROL}]([^{CONTROL}]*[^\s{CONTROL}])?$"
AGENT = rf"^[^\s,/{CONTROL}]+(/[^\s,/{CONTROL}]+)*$"
SAYS_SOMETHING = (
    r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x08\x0b-\x1f\x7f-\x9f]*$"
)
HAS_A_WORD = rf"^[^{CONTROL}]*[a-z0-9][^{CONTROL}]*$"


def text(pattern: str, limit: int = TEXT_LIMIT) -> Schema:
    return {"pattern": pattern, "maxLength": limit}


def whole(low: int, high: int = NEWEST) -> Schema:
    return {"minimum": low, "maximum": high}


def seconds(low: float, high: float) -> Schema:
    return {"minimum": low, "maximum": high}


A_NAME = text(NAME, NAME_LIMIT)
A_RESOURCE = text(NAME, MAX_TEXT)
AN_AGENT = text(AGENT, NAME_LIMIT)
PROCESS = text(r"^([0-9]{1,9}|[0-9]+:[0-9]{1,9}:[0-9]*)$", NAME_LIMIT)
FILTER = text(LINE, VALUE_LIMIT)

# By name; what an operation has otherwise is below, under its own.
COMMON: dict[str, Schema] = {
    "after_version": whole(0),
    "announce": text(LINES, BODY_LIMIT),
    "before": whole(0),
    "by": AN_AGENT,
    "body": text(SAYS_SOMETHING, BODY_LIMIT),
    "doing": text(LINE),
    "delay_s": seconds(0, DELAY_MAX_S),
    "epoch": whole(1),
    "expected_version": whole(0),
    "expires_s": seconds(TTL_MIN_S, DELAY_MAX_S),
    "id": A_NAME,
    "idempotency_key": A_NAME,
    "ids": whole(0),
    "keep_s": seconds(0, DELAY_MAX_S * 10),
    "key": A_NAME,
    "kind": FILTER,
    "limit": whole(1, LIST_LIMIT),
    "max_attempts": whole(1, 1000),
    "mode": {"enum": list(MODES)},
    "moved_to": A_RESOURCE,
    "name": AN_AGENT,
    "namespace": A_NAME,
    "note": text(LINE),
    "outcome": {"enum": [*OUTCOMES, None]},
    "priority": whole(-PRIORITY, PRIORITY),
    "reason": text(LINES),
    "reply_to": whole(0),
    "scope": {"enum": list(SCOPES)},
    "seq": whole(0),
    "session": whole(0),
    "state": {"enum": [*STATES, None]},
    "status": text(LINE),
    "subject": FILTER,
    "tags": A_NAME,
    "text": text(HAS_A_WORD),
    "thread": whole(0),
    "title": text(LINE),
    "to": AN_AGENT,
    "ttl_s": seconds(TTL_MIN_S, TTL_MAX_S),
    "until": whole(0),
    "wait_s": seconds(0, WAIT_MAX_S),
    "agent": FILTER,
    "channel": A_NAME,
    "after": A_NAME,
    "leases": A_RESOURCE,
    "resource": A_RESOURCE,
    "resources": A_RESOURCE,
    "was": FILTER,
}
OWN: dict[str, Schema] = {
    "agents.revoke_token.id": whole(0),
    "messages.delivery.id": whole(0),
    "messages.history.channel": FILTER,
    "state.list.after": text(LINE),
    "state.set.ttl_s": seconds(0.001, TTL_MAX_S * 52),
    "work.add.kind": text(LINE, NAME_LIMIT),
    "work.list.after": whole(0),
}
SEVERAL = {"minItems": 1, "maxItems": CLAIM_LIMIT}
NEEDS_SOME = ("leases.claim", "leases.revoke", "leases.see", "leases.wait")


def bounded(operation: Operation, argument: Argument, found: Schema) -> Schema:
    """The schema of an argument's type, with what its values must be like."""
    limits = OWN.get(f"{operation.name}.{argument.name}", COMMON.get(argument.name))
    if found.get("type") == "array":
        items = {**found["items"], **(limits or {})}
        several = SEVERAL if operation.name in NEEDS_SOME and argument.many else {}
        return {**found, "items": items, **several}
    if limits is None:
        return found
    if "anyOf" in found:
        if "enum" in limits:
            return limits
        return {"anyOf": [{**found["anyOf"][0], **limits}, *found["anyOf"][1:]]}
    return {**found, **limits}
