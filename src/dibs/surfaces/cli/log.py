"""`dibs log`: the journal, and with `--follow` whatever is added to it."""

from __future__ import annotations

import sys

from dibs.operation import EVERYBODY
from dibs.surroundings.wording import print_json, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.records import Event
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
PAGE = 1000


def main(
    call: Globals,
    *,
    since: int = 0,
    kind: str | None = None,
    agent: str | None = None,
    subject: str | None = None,
    limit: int | None = None,
    follow: bool = False,
) -> int:
    """Give the events after a seq, in order.

    since: the last one you have seen; by default all that is kept
    kind: only this kind, such as lease.claimed, or lease for all of its kinds
    agent: only what this agent did
    subject: only what was done to this resource, task, entry or agent
    limit: at most so many
    follow: go on with what is added
    example: --kind lease --agent bob
    """
    with call.open() as space:
        while True:
            if follow:
                found = space.events.watch(
                    since, kind=kind, agent=agent, subject=subject, wait_s=3600
                )
            else:
                found = space.events.since(
                    since, kind=kind, agent=agent, subject=subject, limit=limit or PAGE
                )
            for event in found:
                write(call, event)
            sys.stdout.flush()
            if found:
                since = found[-1].seq
            if not follow and (limit is not None or len(found) < PAGE):
                return 0


def write(call: Globals, event: Event) -> None:
    """A line each: as JSON too, so that a program can follow."""
    if call.json:
        print_json(event.to_json())
    else:
        from dibs.surfaces.cli.show import event_line

        say(event_line(event))
