"""After a tool: what it changed is noted, leases last longer, and what was lent ends.

And after all of them, at the end of a session.
"""

from __future__ import annotations

import os

from dibs.errors import NotFoundError, NotYoursError, StaleError
from dibs.surfaces.hooks.briefing import Briefing
from dibs.surfaces.hooks.case import hooked
from dibs.surfaces.hooks.flights import remove
from dibs.surfaces.hooks.guard import BRIEF, release
from dibs.surfaces.hooks.sweep import refresh_reads, sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.hooks.case import Case


def after(case: Case) -> list[str]:
    """Note what the tool has done; what the agent has to be told."""
    occasion = case.occasion
    for path in occasion.reads:
        if file := file_of(case, path):
            case.read(file, occasion.shown, occasion.lines)
    told: list[str] = []
    if occasion.edits or occasion.command:
        told = sweep(case)
        for edit in occasion.edits:
            file = file_of(case, edit.path)
            if file and file not in case.intruded:
                case.made(file)
        if occasion.command:
            from dibs.surfaces.git import staged

            staged.look(case.place)
        flight = case.flights.of(occasion, case.session)
        if flight is not None:
            refresh_reads(case, flight)
            release(case, flight.brief, flight)
        case.flights.end(occasion, case.session)
    renew(case)
    return told


def file_of(case: Case, path: str) -> str:
    """Where a path of the client's is on disk, "" if it is no file of this space."""
    resource = case.resource(path)
    if resource is None or not resource.file or os.path.isdir(resource.file):
        return ""
    return resource.file


def renew(case: Case) -> None:
    """Activity renews: what has less than half of its time left lasts as long again."""
    mine = case.agent.leases.list(session=case.session)
    names = [lease.resource for lease in mine if lease.note != BRIEF]
    if any(lease.expires_in_ms < lease.ttl_ms / 2 for lease in mine if lease.note != BRIEF):
        try:
            case.agent.leases.renew(*names)
        except (NotFoundError, StaleError, NotYoursError):
            pass  # one of them was lost this moment, which the next briefing says


def leave(case: Case) -> None:
    """The session is over: everything it holds is free."""
    case.flights.end_all(case.session)
    case.reads.forget()
    Briefing(case).forget()
    remove(hooked(case.store_dir, case.session))
    if not case.who.token:  # else it is the session of `dibs run`, which ends by itself
        case.agent.agents.leave()
