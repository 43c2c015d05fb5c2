"""`dibs log`: the journal, and with `--follow` whatever is added to it."""

from __future__ import annotations

import sys

from dibs.surroundings.commands import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.operation import Operation
    from dibs.records import Event
    from dibs.surroundings.commands import Globals

PAGE = 1000


def main(globals_: Globals, operation: Operation, words: list[str]) -> int:
    _, named = parse(operation, words)
    follow = named.pop("follow", False)
    seq, limit = named.pop("seq", 0), named.pop("limit", None)
    with globals_.open() as space:
        while True:
            if follow:
                found = space.events.watch(seq, **named, wait_s=3600)
            else:
                found = space.events.since(seq, **named, limit=limit or PAGE)
            for event in found:
                write(globals_, event)
            sys.stdout.flush()
            if found:
                seq = found[-1].seq
            if not follow and (limit is not None or len(found) < PAGE):
                return 0


def write(globals_: Globals, event: Event) -> None:
    """A line each: as JSON too, so that a program can follow."""
    if globals_.json:
        from dibs.surroundings.wording import print_json

        print_json(event.to_json())
    else:
        from dibs.surfaces.cli.show import event_line
        from dibs.surroundings.wording import say

        say(event_line(event))
