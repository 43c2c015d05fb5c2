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
from dibs.records import held_by
from dibs.surfaces.hooks.case import hooked, is_in
from dibs.surfaces.hooks.contents import read_file
from dibs.surroundings import failures
from dibs.surroundings.wording import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.records import Lease
    from dibs.surfaces.hooks.case import Case
    from dibs.surfaces.hooks.notes import Flight

UNDOING = "dibs recover"


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
    found = case.content_hash(file)
    if found == lease.content_hash:
        if found is not None and not case.kept.has(found):
            case.kept.keep(file, lease.agent)
        return []
    flights = case.flights.under_way(case.session)
    suspects = suspected(flights, lease)
    others = [one for one in flights if one.session != lease.session]
    if lease.session == case.session:
        return own_file(case, lease, file, found, suspects)
    if is_holders(suspects, lease) and may_be_done(suspects, lease, file):
        return defer(case, lease, flights, found)
    if case.is_formatted(file, lease.session):
        return []  # the holder's own formatter, which its next hook will see
    accused = [one for one in suspects if one.session != lease.session] or others
    with_hooks = os.path.exists(hooked(case.store_dir, lease.session))
    if not with_hooks and not any(one.names(lease.resource) for one in accused):
        return []  # a holder without hooks may have done it itself
    sure = not any(one.session == lease.session for one in suspects)
    return report(case, lease, file, {one.agent: one.doing for one in accused}, sure)


def may_be_done(suspects: list[Flight], lease: Lease, file: str) -> bool:
    """Whether the holder's edit may have made this: what it puts into the file is there."""
    texts = [
        text
        for flight in suspects
        if flight.session == lease.session
        for text in flight.edits.get(lease.resource, [])
    ]
    return holds(file, texts)


def own_file(
    case: Case, lease: Lease, file: str, found: str | None, suspects: list[Flight]
) -> list[str]:
    """A file of this session has changed: by itself, or by somebody else."""
    others = {one.agent: one.doing for one in suspects if one.session != case.session}
    if is_holders(suspects, lease):
        accused = meanwhile(case, lease, file, found, others)
        if not accused:
            return settle(case, lease, file, found)
        return report(case, lease, file, accused, sure=False)
    if case.is_formatted(file, case.session) or (not suspects and case.is_alone()):
        return settle(case, lease, file, found)
    sure = not any(one.session == case.session for one in suspects)
    return report(case, lease, file, others, sure)


def meanwhile(
    case: Case, lease: Lease, file: str, found: str | None, others: dict[str, str]
) -> dict[str, str]:
    """Who has written to a file that this session has just edited.

    An edit tool writes once. Who was done before that, and saw the file changed already, but not
    as it is now, has changed it.
    """
    notes = case.flights.suspects(case.occasion, case.session)
    if not has_own(case, lease.resource, file):
        return {agent: doing for agent, doing, _ in notes} | others
    if case.occasion.command:
        return {}
    return {agent: doing for agent, doing, seen in notes if seen != str(found)}


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
    content = read_file(file)
    return content is not None and all(is_in(text, content) for text in texts)


def defer(case: Case, lease: Lease, flights: list[Flight], found: str | None) -> list[str]:
    """Leave it to the holder's own hook, and let it know who else was writing."""
    mine = next((one for one in flights if one.session == case.session and one.command), None)
    if mine is None:
        return []
    for flight in flights:
        if flight.session == lease.session and lease.resource in flight.edits:
            case.flights.suspect(flight, mine, found)
            return [intruder(lease)] if mine.names(lease.resource) else []
    return []


def suspected(flights: list[Flight], lease: Lease) -> list[Flight]:
    """Who may have changed the file: those who name it, and its holder; else all who write."""
    if any(one.names(lease.resource) and one.session != lease.session for one in flights):
        return [one for one in flights if one.names(lease.resource) or one.session == lease.session]
    editing = [one for one in flights if lease.resource in one.edits]
    return editing or flights


def is_holders(suspects: list[Flight], lease: Lease) -> bool:
    """Whether the change is the holder's own, or will be looked at by the holder's hook."""
    holders = [one for one in suspects if one.session == lease.session]
    editing = any(lease.resource in one.edits for one in holders)
    return editing or (bool(holders) and len(holders) == len(suspects))


def settle(case: Case, lease: Lease, file: str, found: str | None) -> list[str]:
    """Note that a change is this session's own."""
    if case.made(file) != found:
        return []  # it changes this very moment: the next look will tell
    try:
        case.agent.leases.see(lease.resource)
    except (NotFoundError, StaleError):
        pass  # the lease has lapsed meanwhile, and says nothing any more
    return []


def report(case: Case, lease: Lease, file: str, by: dict[str, str], sure: bool = True) -> list[str]:
    """Tell the holder and those who may have done it, once; what this agent has to be told.

    by: those who may have done it, each with what it was doing
    sure: whether it cannot have been the holder itself
    """
    one = next(iter(by)) if sure and len(by) == 1 else "?"
    doing = by.get(one, "")
    case.kept.keep(file, one, foreign=True)
    case.intruded.add(file)
    try:
        case.agent.leases.report(lease.resource, was=lease.content_hash, by=list(by), doing=doing)
    except (NotFoundError, StaleError):
        return []  # somebody else has told it this moment, or the holder has let go
    if lease.session == case.session:
        return [intruded(lease, list(by), doing)]
    if case.agent.name not in by or doing.startswith(UNDOING):
        return []
    return [intruder(lease)]


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
        if case.content_hash(known.file) == known.content_hash:
            case.reads.note(known.file, known.content_hash)
        else:
            case.made(known.file)


def intruded(lease: Lease, by: list[str], doing: str) -> str:
    whom = " or ".join(by) or "somebody whom dibs does not know"
    how = f" ({doing})" if doing else ""
    return (
        f"dibs: {lease.resource}, which you hold, was changed by {whom}{how}. What you had is "
        f"kept: `dibs recover {quote(lease.resource)}` brings it back. Read the file before you "
        "go on."
    )


def intruder(lease: Lease) -> str:
    return (
        f"dibs: {held_by(lease.resource, lease.agent)}, and changed while your command ran. "
        f"They have been told. If it was you, undo it with `dibs recover {quote(lease.resource)}`, "
        "and wait for the file before you edit it."
    )
