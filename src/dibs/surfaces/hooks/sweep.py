"""After a tool, and before one: are the leased files what their holders left?

Each lease says what was in its file when dibs last saw it. A file that differs was changed by
its holder, or by somebody else. Who had a tool under way that may write decides:

    only the holder:            its own work; the lease learns the new content
    the holder edits that file: left to the holder's own hook, which follows, and looks whether
                                what it has put there is there
    others:                     an intrusion; the holder and they are told, named, once
    nobody that dibs sees:      the same, without a name: an editor, a person, a script; but
                                an agent that is alone here is not bothered with it

What the holder had is kept before anybody is told, so that `dibs recover` brings it back.
"""

from __future__ import annotations

import os

from dibs.errors import DibsError, NotFoundError, StaleError
from dibs.nouns.paths import content_hash
from dibs.surfaces.hooks import failures
from dibs.surfaces.hooks.case import hooked, is_in
from dibs.surfaces.hooks.words import intruded, intruder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.records import Lease
    from dibs.surfaces.hooks.case import Case
    from dibs.surfaces.hooks.flights import Flight


def sweep(case: Case) -> list[str]:
    """Compare every leased file of this checkout; what this agent has to be told."""
    told: list[str] = []
    for lease, file in case.leased_files():
        try:
            told += look(case, lease, file)
        except (DibsError, OSError) as error:
            # One odd file must not keep the hooks from looking at all the others.
            failures.record(case.store_dir, f"sweep of {lease.resource}: {error}")
    return told


def look(case: Case, lease: Lease, file: str) -> list[str]:
    """Compare one leased file; what this agent has to be told."""
    found = content_hash(file)
    if found == lease.content_hash:
        if found is not None and not case.kept.has(found):
            case.kept.keep(file, lease.agent)
        return []
    flights = case.flights.under_way(case.session)
    suspects = suspected(flights, lease)
    if lease.session == case.session:
        return own_file(case, lease, file, suspects)
    if is_holders(suspects, lease) and may_be_done(suspects, lease, file):
        return defer(case, lease, flights)
    others = writing(suspects, lease) or writing(flights, lease)
    if not named(others, lease) and not os.path.exists(hooked(case.store_dir, lease.session)):
        return []  # a holder without hooks may have done it itself
    return report(case, lease, file, {flight.agent: flight.doing for flight in others})


def named(flights: list[Flight], lease: Lease) -> bool:
    """Whether somebody said that they would change the file."""
    return any(flight.names(lease.resource) for flight in flights)


def writing(flights: list[Flight], lease: Lease) -> list[Flight]:
    return [flight for flight in flights if flight.session != lease.session]


def may_be_done(suspects: list[Flight], lease: Lease, file: str) -> bool:
    """Whether the holder's edit may have made this: what it puts into the file is there."""
    texts = [
        text
        for flight in suspects
        if flight.session == lease.session
        for text in flight.edits.get(lease.resource, [])
    ]
    return holds(file, texts)


def own_file(case: Case, lease: Lease, file: str, suspects: list[Flight]) -> list[str]:
    """A file of this session has changed: by itself, or by somebody else."""
    others = {one.agent: one.doing for one in suspects if one.session != case.session}
    if is_holders(suspects, lease):
        meanwhile = case.flights.suspects(case.occasion, case.session) | others
        if not meanwhile or has_own(case, lease.resource, file):
            settle(case, lease.resource, file)
            return []
        return report(case, lease, file, meanwhile)
    if not suspects and case.is_alone():
        settle(case, lease.resource, file)
        return []
    return report(case, lease, file, others)


def has_own(case: Case, name: str, file: str) -> bool:
    """Whether what this session's edit put into the file is there."""
    texts = [
        text
        for edit in case.occasion.edits
        if (resource := case.resource(edit.path)) and resource.text == name
        for text in edit.texts
    ]
    return holds(file, texts)


def holds(file: str, texts: list[str]) -> bool:
    """Whether a file holds all of these texts."""
    if not texts:
        return True
    try:
        with open(file, "rb") as source:
            content = source.read()
    except OSError:
        return False
    return all(is_in(text, content) for text in texts)


def defer(case: Case, lease: Lease, flights: list[Flight]) -> list[str]:
    """Leave it to the holder's own hook, and let it know who else was writing."""
    mine = next((one for one in flights if one.session == case.session and one.command), None)
    if mine is None:
        return []
    for flight in flights:
        if flight.session == lease.session and lease.resource in flight.edits:
            case.flights.suspect(flight, mine)
            return [intruder(lease)] if mine.names(lease.resource) else []
    return []


def suspected(flights: list[Flight], lease: Lease) -> list[Flight]:
    """Who may have changed the file: those who name it, else all who may be writing."""
    return [flight for flight in flights if flight.names(lease.resource)] or flights


def is_holders(suspects: list[Flight], lease: Lease) -> bool:
    """Whether the change is the holder's own, or will be looked at by the holder's hook."""
    holders = [one for one in suspects if one.session == lease.session]
    editing = any(lease.resource in one.edits for one in holders)
    return editing or (bool(holders) and len(holders) == len(suspects))


def settle(case: Case, name: str, file: str) -> None:
    """Note that a change is this session's own."""
    case.made(file)
    try:
        case.agent.leases.see(name)
    except (NotFoundError, StaleError):
        pass  # the lease has lapsed meanwhile, and says nothing any more


def report(case: Case, lease: Lease, file: str, by: dict[str, str]) -> list[str]:
    """Tell the holder and those who may have done it, once; what this agent has to be told.

    by: those who may have done it, each with what it was doing
    """
    doing = next(iter(by.values())) if len(by) == 1 else ""
    case.kept.keep(file, next(iter(by)) if len(by) == 1 else "?", foreign=True)
    case.intruded.add(file)
    try:
        case.agent.leases.report(lease.resource, was=lease.content_hash, by=list(by), doing=doing)
    except (NotFoundError, StaleError):
        return []  # somebody else has told it this moment, or the holder has let go
    if lease.session == case.session:
        return [intruded(lease, list(by), doing)]
    return [intruder(lease)] if case.agent.name in by else []


def refresh_reads(case: Case, flight: Flight) -> None:
    """Files that this session has read and its own command has changed are known to it.

    Not if they had changed before the command began, or if anybody else was writing meanwhile:
    then it may have been theirs.
    """
    theirs = {*flight.stale, *case.intruded}
    changed = [known for known in case.reads.changed() if known.file not in theirs]
    if not changed:
        return
    others = case.flights.under_way(case.session)
    if any(one.session != case.session for one in others):
        return
    for known in changed:
        if content_hash(known.file) == known.content_hash:
            case.reads.note(known.file, known.content_hash)
        else:
            case.made(known.file)
