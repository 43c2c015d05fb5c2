"""Mermaid: the tasks as a graph of their dependencies, for viewing."""

from __future__ import annotations

from dibs.trackers.fields import OPEN, line_of, state_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dibs.records import Task

CLASSES = """\
    classDef completed fill:#d8f0d8,stroke:#4a4
    classDef claimed fill:#dde8ff,stroke:#46a
    classDef blocked fill:#eee,stroke:#999
"""
ENOUGH = 60


def write(tasks: Iterable[Task]) -> Iterator[str]:
    """Nodes are numbered, so that names appear only as text."""
    yield "graph LR\n"
    numbers: dict[str, int] = {}

    def node(id: str) -> str:
        return f"t{numbers.setdefault(id, len(numbers))}"

    for task in tasks:
        here = node(task.id)
        yield f'    {here}["{shown(task.title or task.id)}"]\n'
        if task.state in ("claimed", "blocked"):
            yield f"    class {here} {task.state}\n"
        elif state_of(task.state) != OPEN:
            yield f"    class {here} completed\n"
        for need in task.after:
            yield f"    {node(need)} --> {here}\n"
        if task.parent:
            yield f"    {node(task.parent)} -.- {here}\n"
    yield CLASSES


def shown(text: str) -> str:
    """Text that cannot end a label: characters with a meaning in Mermaid become numbers."""
    cut = line_of(text)[:ENOUGH]
    return "".join(
        sign if sign.isalnum() or sign in " .,:/-_" else f"#{ord(sign)};" for sign in cut
    )
