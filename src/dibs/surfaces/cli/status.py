"""`dibs status`: who has these paths, or everything that a turn needs, on one screen."""

from __future__ import annotations

from dibs.operation import EVERYBODY
from dibs.surroundings.wording import ago, note, paint, print_json, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.records import Overview
    from dibs.surroundings.commands import Globals

BY = EVERYBODY


def main(call: Globals, *resources: str) -> int:
    """Say who has these paths; without any, show everything that a turn needs.

    resources: what to look at
    example: src/a.py
    """
    with call.open() as space:
        handle = call.look(space)
        if resources:
            states = handle.leases.status(*resources)
        else:
            found = handle.agents.overview(agent=call.name(), limit=1000)
            board = as_json(found, named=call.name() is not None or bool(handle.scope.session))
    if call.json:
        from dibs.records import plain

        print_json(plain(states if resources else board))
    elif resources:
        from dibs.surfaces.cli.show import availabilities

        availabilities(states)
    else:
        draw(board)
    return 0


def as_json(found: Overview, named: bool) -> dict[str, Any]:
    """Who is here, what is held, what is worked on, and what waits to be read."""
    board: dict[str, Any] = {
        "space": found.space,
        "agents": found.agents,
        "leases": found.leases,
        "waiting": found.waiting,
        "tasks": [task for task in found.tasks if task.state == "claimed"],
        "available": found.counts.get("available", 0),
    }
    return board | ({"unread": found.unread} if named else {})


def draw(board: dict[str, Any]) -> None:
    from dibs.surfaces.cli import show

    if not board["agents"] and not board["leases"]:
        note("nobody is here and nothing is held")
        note("next: dibs claim PATH --as NAME")
    for title, key, listed in (
        ("agents", "agents", show.presences),
        ("leases", "leases", show.leases),
        ("tasks", "tasks", show.tasks),
    ):
        if board[key]:
            say(paint("bold", title))
            listed(board[key])
    for one in board["waiting"]:
        say(f"{one.agent} waits for {one.resource} since {ago(one.since_at)}")
    if number := board["available"]:
        say(f"{number} {'task is' if number == 1 else 'tasks are'} available: dibs work next")
    if number := board.get("unread"):
        say(f"{number} unread {'message' if number == 1 else 'messages'}: dibs inbox")
