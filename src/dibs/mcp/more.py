"""The tools beyond the ten: versioned state with its own answers, and every other operation.

An operation that agents may call, and that no other tool covers, is a tool named by its noun and
verb: `work.list` is `work_list`. Its arguments and their help are those of the library, and its
answer is what the library returns.
"""

from __future__ import annotations

from dibs.dibs import operations
from dibs.errors import ConflictError
from dibs.mcp.standard import STANDARD, claimed
from dibs.mcp.tool import ADDS, DESTROYS, FLAG, HINTS, INTEGER, NUMBER, READS, TEXT, Tool, moment
from dibs.operation import AGENT, NOUNS, Operation
from dibs.records import Entry, Task, plain
from dibs.surroundings.schemas import ANYTHING, of_type_only

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.mcp.calls import Call

    Answer = dict[str, Any]

WATCH_S = 30


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


def get(call: Call, arguments: dict[str, Any]) -> Answer:
    entry = call.agent.state.get(**arguments)
    if entry is None:
        return {"status": "not_found", **arguments, "hint": HINTS["not_found"]}
    return {"status": "ok", "namespace": entry.namespace, **told(entry)}


def set_(call: Call, arguments: dict[str, Any]) -> Answer:
    state, place = call.agent.state, (arguments["namespace"], arguments["key"])
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


def list_(call: Call, arguments: dict[str, Any]) -> Answer:
    return {"status": "ok", "entries": [*map(told, call.agent.state.list(**arguments))]}


def history(call: Call, arguments: dict[str, Any]) -> Answer:
    return {"status": "ok", "history": [*map(told, call.agent.state.history(**arguments))]}


def delete(call: Call, arguments: dict[str, Any]) -> Answer:
    try:
        entry = call.agent.state.delete(**arguments)
    except ConflictError as error:
        return conflict(error, arguments.get("expected_version"))
    return {"status": "deleted", "version": entry.version}


def clear_namespace(call: Call, arguments: dict[str, Any]) -> Answer:
    return {"status": "ok", "deleted": call.agent.state.clear(**arguments)}


def export(call: Call, arguments: dict[str, Any]) -> Answer:
    exported = call.agent.state.export(**arguments)
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


def watch(call: Call, arguments: dict[str, Any]) -> Answer:
    wait_s = arguments.pop("timeout_s", WATCH_S)
    entry = call.agent.state.watch(**arguments, wait_s=wait_s)
    if entry is None:
        return {"status": "timeout", "hint": HINTS["timeout"]}
    return {"status": "deleted" if entry.deleted else "ok", **told(entry)}


def work_next_many(call: Call, arguments: dict[str, Any]) -> Answer:
    work, found = call.agent.work, call.agent.work.next_many(**arguments)
    call.decide(lambda: [work.abandon(task.id, epoch=task.epoch) for task in found])
    return {"status": "claimed", "tasks": [claimed(call, task) for task in found]}


def work_complete_many(call: Call, arguments: dict[str, Any]) -> Answer:
    done = call.agent.work.complete_many(**arguments)
    call.holdings.tasks -= {one.id for one in done if isinstance(one, Task)}
    held = call.agent.leases.list(session=call.agent.session)
    call.holdings.leases &= {lease.resource for lease in held}
    return {"status": "ok", "result": plain(done)}


PLACE = {"namespace": TEXT, "key": TEXT}
STATE = [
    Tool("get", "Get an entry of versioned state.", PLACE, READS, get,
         required=("namespace", "key"), answers=("ok", "not_found"), does="state.get"),
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
        does="state.set",
    ),
    Tool("list", "List the entries of a namespace by key.",
         {"namespace": TEXT, "after": TEXT, "limit": INTEGER}, READS, list_,
         required=("namespace",), does="state.list"),
    Tool("history", "Show the versions of an entry, the newest first.",
         {**PLACE, "before": INTEGER, "limit": INTEGER}, READS, history,
         required=("namespace", "key"), does="state.history"),
    Tool("delete", "Delete an entry; its versions go on counting.",
         {**PLACE, "expected_version": INTEGER}, DESTROYS, delete, required=("namespace", "key"),
         does="state.delete"),
    Tool("clear_namespace", "Delete all entries of a namespace.", {"namespace": TEXT}, DESTROYS,
         clear_namespace, required=("namespace",), does="state.clear"),
    Tool("export", "Export a namespace: its records by key, each with its history.",
         {"namespace": TEXT}, READS, export, required=("namespace",), does="state.export"),
    Tool(
        "watch",
        "Wait until an entry changes, and return its new value.",
        {**PLACE, "after_version": INTEGER, "timeout_s": NUMBER},
        READS,
        watch,
        required=("namespace", "key"),
        answers=("ok", "deleted", "timeout"),
        does="state.watch",
        waits=("timeout_s", WATCH_S),
    ),
]  # fmt: skip


RUNS = {"work.next_many": work_next_many, "work.complete_many": work_complete_many}
"""Operations that change what a session is told to hold."""


def more() -> list[Tool]:
    """Every tool beyond the ten: what an agent may do and no other tool covers."""
    done = {name for tool in [*STANDARD, *STATE] for name in tool.does}
    rest = [
        entry for entry in operations().values() if AGENT in entry.by and entry.name not in done
    ]
    rest.sort(key=lambda entry: NOUNS.index(entry.noun))  # independent of the import order
    return [*STATE, *(from_operation(entry) for entry in rest)]


def from_operation(operation: Operation) -> Tool:
    arguments, many = operation.arguments(), operation.many

    def run(call: Call, given: dict[str, Any]) -> Answer:
        noun = getattr(call.agent, operation.noun)
        placed = given.pop(many.name, []) if many else []
        return {"status": "ok", "result": plain(getattr(noun, operation.verb)(*placed, **given))}

    waits = arguments.get("wait_s")
    hints = DESTROYS if operation.destructive else ADDS
    return Tool(
        f"{operation.noun}_{operation.verb}",
        operation.summary,
        {name: of_type_only(argument) for name, argument in arguments.items()},
        hints if operation.mutates else READS,
        RUNS.get(operation.name, run),
        required=tuple(
            name
            for name, argument in arguments.items()
            if argument.required or (argument.many and operation.at_least_one)
        ),
        waits=("wait_s", float(str(waits.default))) if waits else None,
    )
