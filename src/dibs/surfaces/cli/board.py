"""`dibs status`: everything a turn needs, on one screen."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.dibs import Dibs
    from dibs.surroundings.commands import Globals


def main(globals_: Globals) -> int:
    with globals_.open() as space:
        handle = globals_.join(space) if globals_.who() else space
        board = gather(handle)
    if globals_.json:
        from dibs.records import plain
        from dibs.surroundings.wording import print_json

        print_json(plain(board))
    else:
        draw(board)
    return 0


def gather(space: Dibs) -> dict[str, Any]:
    """Who is here, what is held, what is worked on, and what waits to be read."""
    board: dict[str, Any] = {
        "space": space.space,
        "agents": space.agents.list(),
        "leases": space.leases.list(),
        "waiting": space.leases.waiting(),
        "tasks": space.work.list(state="claimed"),
        "available": len(space.work.list(state="available", limit=1000)),
    }
    if space.scope.session:
        board["unread"] = len(space.messages.inbox(peek=True))
    return board


def draw(board: dict[str, Any]) -> None:
    from dibs.surfaces.cli import show
    from dibs.surroundings.wording import ago, note, paint, say

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
