"""The tools beyond the ten: versioned state with answers of its own, and every other operation.

An operation that no tool above covers, and that is not for people alone, is a tool by its noun
and verb, `work.list` is `work_list`: its arguments and their help are those of the library, its
answer is what the library returns.
"""

from __future__ import annotations

from dibs.dibs import NOUNS, operations
from dibs.errors import ConflictError
from dibs.mcp.calling import HINTS, moment
from dibs.mcp.tool import (
    ADDS,
    DESTROYS,
    FLAG,
    INTEGER,
    NUMBER,
    OBJECT,
    READS,
    TEXT,
    TEXTS,
    Tool,
)
from dibs.records import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.mcp.calling import Calling
    from dibs.operation import Argument, Operation
    from dibs.records import Entry

    Answer = dict[str, Any]

WATCH_S = 30
# What the ten and the state tools below do already.
COVERED = {
    "leases.claim", "leases.release", "leases.status", "leases.wait",
    "work.add", "work.claim", "work.next", "work.complete", "work.fail", "work.abandon",
    "messages.send", "messages.inbox", "agents.rename",
    "state.get", "state.set", "state.list", "state.history", "state.delete", "state.clear",
    "state.export", "state.watch",
}  # fmt: skip
DESTRUCTIVE = {"agents.leave", "work.cancel", "events.prune"}
# What only people do, since agents do not take things from each other and no model gets to see a
# secret; and what only hooks do, since a model does not know what is in a file.
NOT_OFFERED = {
    "leases.revoke", "work.revoke", "agents.add_token", "agents.tokens", "agents.revoke_token",
    "leases.see", "leases.report",
}  # fmt: skip
ANYTHING: dict[str, Any] = {
    "anyOf": [{"type": kind} for kind in ("object", "array", "string", "number", "boolean", "null")]
}


def told(entry: Entry) -> Answer:
    answer: Answer = {
        "key": entry.key,
        "version": entry.version,
        "value": entry.value,
        "updated_by": entry.author,
        "updated_at": moment(entry.set_at),
    }
    if entry.deleted:
        answer["deleted"] = True
    if entry.expires_in_ms is not None:
        answer["expires_in_s"] = entry.expires_in_ms // 1000
    return answer


def get(calling: Calling, arguments: dict[str, Any]) -> Answer:
    entry = calling.agent.state.get(**arguments)
    if entry is None:
        return {"status": "not_found", **arguments, "hint": HINTS["not_found"]}
    return {"status": "ok", "namespace": entry.namespace, **told(entry)}


def set_(calling: Calling, arguments: dict[str, Any]) -> Answer:
    state, place = calling.agent.state, (arguments["namespace"], arguments["key"])
    try:
        entry = state.set(**arguments)
    except ConflictError as error:
        return conflict(error, arguments.get("expected_version"))
    before = state.history(*place, before=entry.version, limit=1)
    previous = before[0].version if before and not before[0].deleted else 0
    return {"status": "ok", "version": entry.version, "previous_version": previous}


def conflict(error: ConflictError, expected: int | None) -> Answer:
    current = error.current
    return {
        "status": "conflict",
        "expected_version": expected or 0,
        "actual_version": current.version if current else 0,
        "actual_updated_by": current.author if current else None,
        "actual_updated_at": moment(current.set_at) if current else None,
        "actual_value": current.value if current else None,
        "hint": HINTS["conflict"],
    }


def list_(calling: Calling, arguments: dict[str, Any]) -> Answer:
    entries = calling.agent.state.list(**arguments)
    return {"status": "ok", "entries": [told(entry) for entry in entries]}


def history(calling: Calling, arguments: dict[str, Any]) -> Answer:
    versions = calling.agent.state.history(**arguments)
    return {"status": "ok", "history": [told(entry) for entry in versions]}


def delete(calling: Calling, arguments: dict[str, Any]) -> Answer:
    try:
        entry = calling.agent.state.delete(**arguments)
    except ConflictError as error:
        return conflict(error, arguments.get("expected_version"))
    return {"status": "deleted", "version": entry.version}


def clear_namespace(calling: Calling, arguments: dict[str, Any]) -> Answer:
    return {"status": "ok", "deleted": calling.agent.state.clear(**arguments)}


def export(calling: Calling, arguments: dict[str, Any]) -> Answer:
    exported = calling.agent.state.export(**arguments)
    versions: dict[str, list[Answer]] = {}
    for entry in exported.history:
        versions.setdefault(entry.key, []).append(told(entry))
    records = [
        {**told(entry), "history": versions.get(entry.key, [])} for entry in exported.entries
    ]
    return {
        "status": "ok",
        "namespace": exported.namespace,
        "records": records,
        "record_count": len(records),
        "history_count": sum(len(record["history"]) for record in records),
    }


def watch(calling: Calling, arguments: dict[str, Any]) -> Answer:
    wait_s = arguments.pop("timeout_s", WATCH_S)
    entry = calling.agent.state.watch(**arguments, wait_s=wait_s)
    if entry is None:
        return {"status": "timeout", "hint": HINTS["timeout"]}
    return {"status": "deleted" if entry.deleted else "ok", **told(entry)}


PLACE = {"namespace": TEXT, "key": TEXT}
STATE = [
    Tool("get", "Get an entry of versioned state.", PLACE, READS, get,
         required=("namespace", "key"), answers=("ok", "not_found")),
    Tool(
        "set",
        "Set an entry: create it, replace the version you saw, or force it.",
        {
            **PLACE,
            "value": ANYTHING,
            "expected_version": {**INTEGER, "description": "the version you saw; 0 for a new one"},
            "force": FLAG,
            "ttl_s": NUMBER,
        },
        DESTROYS,
        set_,
        required=("namespace", "key", "value"),
        answers=("ok", "conflict"),
    ),
    Tool("list", "List the entries of a namespace by key.",
         {"namespace": TEXT, "after": TEXT, "limit": INTEGER}, READS, list_,
         required=("namespace",)),
    Tool("history", "Show the versions of an entry, the newest first.",
         {**PLACE, "before": INTEGER, "limit": INTEGER}, READS, history,
         required=("namespace", "key")),
    Tool("delete", "Delete an entry; its version goes on counting.",
         {**PLACE, "expected_version": INTEGER}, DESTROYS, delete, required=("namespace", "key")),
    Tool("clear_namespace", "Delete all entries of a namespace.", {"namespace": TEXT}, DESTROYS,
         clear_namespace, required=("namespace",)),
    Tool("export", "Export a namespace: its records by key, each with its history.",
         {"namespace": TEXT}, READS, export, required=("namespace",)),
    Tool(
        "watch",
        "Wait until an entry changes, and give its new value.",
        {**PLACE, "after_version": INTEGER, "timeout_s": NUMBER},
        READS,
        watch,
        required=("namespace", "key"),
        answers=("ok", "deleted", "timeout"),
        waits=("timeout_s", WATCH_S),
    ),
]  # fmt: skip


def more() -> list[Tool]:
    """Every tool beyond the ten."""
    elsewhere = COVERED | NOT_OFFERED
    rest = [entry for entry in operations().values() if entry.name not in elsewhere]
    rest.sort(key=lambda entry: NOUNS.index(entry.noun))  # whichever was imported first
    return [*STATE, *(from_operation(entry) for entry in rest)]


def from_operation(operation: Operation) -> Tool:
    arguments = operation.arguments()
    many = next((argument.name for argument in arguments if argument.many), None)

    def run(calling: Calling, given: dict[str, Any]) -> Answer:
        noun = getattr(calling.agent, operation.noun)
        placed = given.pop(many, []) if many else []
        return {"status": "ok", "result": plain(getattr(noun, operation.verb)(*placed, **given))}

    waits = next((argument for argument in arguments if argument.name == "wait_s"), None)
    hints = DESTROYS if operation.name in DESTRUCTIVE else ADDS
    default = waits.default if waits else 0
    return Tool(
        f"{operation.noun}_{operation.verb}",
        operation.summary,
        {argument.name: schema(argument) for argument in arguments},
        hints if operation.mutates else READS,
        run,
        required=tuple(argument.name for argument in arguments if argument.required),
        waits=("wait_s", float(str(default))) if waits else None,
    )


def schema(argument: Argument) -> dict[str, Any]:
    """The JSON schema of an argument, from its type in the library."""
    kind = argument.type.removesuffix(" | None")
    known = {"str": TEXT, "int": INTEGER, "float": NUMBER, "bool": FLAG, "Sequence[str]": TEXTS}
    found = known.get(kind) or (OBJECT if kind.startswith("dict[") else ANYTHING)
    if argument.many:
        found = {"type": "array", "items": found}
    return {**found, "description": argument.help} if argument.help else found
