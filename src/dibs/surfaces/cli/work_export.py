"""`dibs work export`: all tasks, in a format that other tools read."""

from __future__ import annotations

import sys

from dibs.arguments import Choice
from dibs.nouns.work.landings import LANDING
from dibs.operation import EVERYBODY
from dibs.trackers.formats import WRITERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.dibs import Dibs
    from dibs.records import Task
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
KINDS = {"format": Choice(*WRITERS)}
PAGE = 1_000


def main(call: Globals, *, format: str = "jsonl") -> int:
    """Export all tasks to the standard output, in the order they were added.

    Output in json, jsonl or csv can be imported again. Landings are left out.

    format: the format to write
    example: --format markdown
    """
    with call.open() as space:
        for text in WRITERS[format](tasks(call.look(space))):
            sys.stdout.write(text)
    return 0


def tasks(space: Dibs) -> Iterator[Task]:
    """All tasks, a page at a time: there may be more than memory holds."""
    after = 0
    while page := space.work.list(after=after, limit=PAGE):
        yield from (task for task in page if task.kind != LANDING)
        after = page[-1].seq
