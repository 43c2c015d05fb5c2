"""`dibs status` shows the present; `dibs gc` removes old records, step by step."""

from __future__ import annotations

from dibs.arguments import DELAY_MAX_S, LIST_LIMIT, Seconds, milliseconds
from dibs.operation import EVERYBODY, PEOPLE
from dibs.records import Overview, called, plain
from dibs.surfaces.cli import show
from dibs.surroundings.wording import note, paint, print_json, say, since

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.surroundings.commands import Globals

BY = {"status": EVERYBODY, "gc": PEOPLE}
DESTRUCTIVE = ("gc",)
KINDS = {"keep_s": Seconds(0, 10 * DELAY_MAX_S)}

REST = {
    "leases": "dibs leases --agent NAME lists those of one agent, dibs status PATH shows one",
    "waits": "dibs contention shows who waits for whom",
    "tasks": "dibs work list --state claimed --all lists them all",
}
"""How to see the rest of a list that is cut."""


def status(call: Globals, *resources: str) -> int:
    """Show who holds these paths; without paths, who is here and what is going on.

    resources: what to look at
    example: src/a.py
    """
    with call.open() as space:
        handle = call.look(space)
        if resources:
            states = handle.leases.status(*resources)
        else:
            found = handle.agents.overview(agent=call.name(), limit=LIST_LIMIT)
            board = as_json(found, named=call.name() is not None or bool(handle.scope.session))
    if call.json:
        print_json(plain(states if resources else board))
    elif resources:
        show.availabilities(states)
    else:
        draw_status(board)
    return 0


def as_json(found: Overview, named: bool) -> dict[str, Any]:
    """Agents, leases, tasks in progress, and unread messages; cut: the lists that are not whole"""
    claimed = [task for task in found.tasks if task.state == "claimed"]
    lists = {"leases": found.leases, "waits": found.waiting, "tasks": claimed}
    board: dict[str, Any] = {
        "space": found.space,
        "agents": found.agents,
        "leases": found.leases,
        "waiting": found.waiting,
        "tasks": claimed,
        "available": found.counts.get("available", 0),
        "trains": found.trains,
        "asks": [one for one in found.attention if one.what in ("asks", "not_landed")],
        "cut": [name for name, listed in lists.items() if len(listed) >= LIST_LIMIT],
    }
    return board | ({"unread": found.unread} if named else {})


def draw_status(board: dict[str, Any]) -> None:
    if not board["agents"] and not board["leases"]:
        note("nobody is here and nothing is held")
        note("next: dibs claim PATH --as NAME")
    for title, kind in (("agents", "Presence"), ("leases", "Lease"), ("tasks", "Task")):
        if board[title]:
            say(paint("bold", title))
            show.show_all(kind, board[title])
    if board["trains"]:
        say(paint("bold", "trains"))
        for line in show.train_lines(board["trains"]):
            say(line)
    for one in board["asks"]:
        say(show.urgent(one))
    for one in board["waiting"]:
        who, what = called(one.agent), called(one.resource)
        say(f"{who} waits for {what}, {since(one.since_at)} so far")
    for name in board["cut"]:
        note(f"only the first {LIST_LIMIT:,} {name} are shown; {REST[name]}")
    if number := board["available"]:
        say(f"{number} {'task is' if number == 1 else 'tasks are'} available: dibs work next")
    if number := board.get("unread"):
        say(f"{number} unread {'message' if number == 1 else 'messages'}: dibs inbox")


def gc(call: Globals, *, keep_s: float | None = None) -> int:
    """Remove old records of what has ended, and free what dead sessions hold.

    It works in short steps, so that others can write in between. If you interrupt it, the records
    removed so far stay removed, and nothing else has changed.

    keep_s: how much of the past to keep; by default the setting keep, or 30 days
    example: --keep 30d
    """
    from dibs.nouns.events.pruning import Pruning, prune
    from dibs.operation import OPERATIONS
    from dibs.surfaces.cli.main import acting, answer

    def tell(pruning: Pruning) -> None:
        note(f"{pruning.removed['events']:,} events removed so far, up to {pruning.upto}")

    with call.open() as space:
        __import__("dibs.nouns.events.operations")
        operation = OPERATIONS["events.prune"]
        handle = acting(call, operation, space)
        if handle.scope.daemon is None:
            keep_ms = None if keep_s is None else milliseconds(keep_s)
            found = prune(handle.scope, keep_ms, tell=tell)
        else:
            found = handle.events.prune(keep_s=keep_s)
        answer(call, operation, found)
    return 0
