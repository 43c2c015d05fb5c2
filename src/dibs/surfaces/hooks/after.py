"""After a tool: what it changed is noted, leases last longer, and what was lent ends.

And after all of them, at the end of a session.
"""

from __future__ import annotations

import os

from dibs.errors import NotFoundError, NotYoursError, StaleError, UnavailableError
from dibs.surfaces.hooks.before import BRIEF, EDITED, release, see_index
from dibs.surfaces.hooks.briefing import Briefing
from dibs.surfaces.hooks.case import hooked
from dibs.surfaces.hooks.notes import remove
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
            see_index(case)
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


def free_clean(case: Case) -> None:
    """At the end of a turn, release the files of which git has every change, or that have none.

    Only those that a hook has claimed: what the agent has claimed itself it releases itself.
    """
    top = case.place.top
    mine = {
        one.resource: file
        for one, file in case.leased_files()
        if one.session == case.session and one.note == EDITED and file.startswith(f"{top}/")
    }
    if not mine or case.place.checkout.kind != "repository":
        return
    from dibs.surroundings.git import elsewhere, git, names

    try:
        said = git(
            "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--",
            *mine.values(), cwd=top, environment=elsewhere() | {"GIT_LITERAL_PATHSPECS": "1"},
        )  # fmt: skip
    except UnavailableError:
        return  # such as for a file of a submodule: it stays leased
    dirty = {os.path.join(top, entry[3:]) for entry in names(said)}
    release(case, [name for name, file in mine.items() if file not in dirty])


def leave(case: Case) -> None:
    """The session is over: everything it holds is free."""
    case.flights.end_all(case.session)
    case.reads.forget()
    Briefing(case).forget()
    remove(hooked(case.store_dir, case.session))
    for client in subagents(case):
        case.space.join(case.agent.name, client=client, shell=True).agents.leave()
    if not case.who.token:  # else it is the session of `dibs run`, which ends by itself
        case.agent.agents.leave()


def subagents(case: Case) -> list[str]:
    """The subagents of this session of which no end was told, by what the client calls them."""
    folder = os.path.dirname(hooked(case.store_dir, case.session))
    found = []
    for name in os.listdir(folder) if case.who.client else ():
        if not name.isdecimal():
            continue  # it is being written
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as source:
                client = source.read()
        except FileNotFoundError:
            continue  # another session ends this moment
        if client.startswith(f"{case.who.client}:"):
            found.append(client)
            remove(os.path.join(folder, name))
    return found
