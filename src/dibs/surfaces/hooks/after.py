"""After a tool, and before one: are the leased files what their holders left?

Each lease says what was in its file when dibs last saw it. A file that differs was changed by
its holder, or by somebody else. Who had a tool under way that may write decides:

    only the holder:            its own work; the lease learns the new content
    the holder edits that file: left to the holder's own hook, which follows, and looks whether
                                what it has put there is there
    others:                     an intrusion; the holder and they are told, named, once
    nobody that dibs sees:      the same, without a name: an editor, a person, a script; but
                                an agent that is alone here is not bothered with it

An edit tool changes what it names, so before and after one only what its session holds is
compared. A command may have changed any file: then those of everybody are.

What the holder had is kept before anybody is told, so that `dibs recover` brings it back.

After a tool what was leased for it ends (`endings`), but for the files that it has changed. At the
end of a session, everything is free.
"""

from __future__ import annotations

import os

from dibs.errors import DibsError, NotFoundError, StaleError, UnavailableError
from dibs.records import NAME_SHOWN, Lease, called, held_by, quoted
from dibs.surfaces.hooks.case import Case, formatting, hooked, is_in, resting
from dibs.surfaces.hooks.contents import read_file
from dibs.surfaces.hooks.notes import Flight, Stagings, notes_in, read_note, stir
from dibs.surroundings.wording import argument, told

UNDOING = "dibs recover"


def after(case: Case) -> list[str]:
    """Note what the tool has done; what the agent has to be told."""
    from dibs.surfaces.hooks.endings import drop, keep_changed, release

    occasion = case.occasion
    for path in occasion.reads:
        if file := file_of(case, path):
            case.read(file, occasion.shown, occasion.lines)
    never = case.flights.never_run(occasion)
    told = sweep(case) if never or occasion.edits or occasion.command else []
    drop(case, never)
    if occasion.edits or occasion.command:
        for edit in occasion.edits:
            file = file_of(case, edit.path)
            if file and file not in case.intruded:
                case.made(file)
        if occasion.command:
            see_index(case)
        flight = case.flights.of(occasion)
        if flight is not None:
            if occasion.command:
                from dibs.surfaces.hooks import losses

                losses.look(case, flight)
            refresh_reads(case, flight)
            release(case, flight.brief, flight)
        keep_changed(case, flight)
        case.flights.end(occasion)
    return told


def file_of(case: Case, path: str) -> str:
    """Where a path of the client's is on disk, "" if it is no file of this space."""
    resource = case.resource(path)
    if resource is None or not resource.file or os.path.isdir(resource.file):
        return ""
    return resource.file


def leave(case: Case) -> None:
    """The session is over: everything it holds is free."""
    from dibs.surfaces.hooks.briefing import Briefing

    case.flights.end()
    stir(case.own, case.session)
    case.reads.forget()
    case.claims.forget_all()
    case.own.remove(resting(case.session))
    case.own.remove(formatting(case.session))
    Briefing(case).forget()
    case.own.remove(hooked(case.session))
    # The subagents of which no end was told: one that is being noted has a dot in its name.
    for note in notes_in(case.own, "hooks/sessions", whole=True) if case.who.client else ():
        client = read_note(case.own, note) or ""  # none if another session ends this moment
        if client.startswith(f"{case.who.client}:"):
            case.space.join(case.agent.name, client=client, shell=True).agents.leave()
            case.own.remove(note)
    if not case.who.token:  # else it is the session of `dibs run`, which ends by itself
        case.agent.agents.leave()


def see_index(case: Case) -> None:
    """Note who has staged what; without git, nobody has."""
    try:
        Stagings(case.place).look()
    except UnavailableError as error:
        from dibs.surroundings import failures

        failures.record(case.store_dir, f"who staged what: {error.message}")


def sweep(case: Case) -> list[str]:
    """Compare the leased files of this checkout that may have changed; what this agent is told."""
    if only_edits(case):
        own = case.leased_files(own=True)
        named = {name for flight in case.flights.own() for name in flight.edits}
        # What it has named and holds no more may be another's by now.
        if named <= {lease.resource for lease, _ in own}:
            found = [check(case, lease, file) for lease, file in own]
            return [line for told in found for line in told or ()]
    from dibs.surfaces.hooks.swept import Swept, seen

    told: list[str] = []
    swept = Swept(case.own, case.checkout, case.kept.cut_at())
    stands = swept.stands(case.agent, case.session)
    for lease, file in case.leased_files(own=stands, swept=swept):
        before, is_own = seen(file), lease.session == case.session
        said = check(case, lease, file)
        if said is None and not is_own:
            swept.note(lease, file, before)
        elif said is not None:
            swept.is_complete &= is_own
            told += said
    if not stands:
        swept.keep()
    return told


def only_edits(case: Case) -> bool:
    """Whether this is about an edit tool, and no command of the session is left to look at."""
    if case.occasion.command or not case.occasion.edits:
        return False
    return not any(flight.command for flight in case.flights.own())


def check(case: Case, lease: Lease, file: str) -> list[str] | None:
    """What this agent has to be told of a leased file; None if it is what its lease says."""
    try:
        if case.content_hash(file) != lease.content_hash:
            return look(case, lease, file)
        keep_known(case, lease, file)
    except (DibsError, OSError) as error:
        # One odd file must not keep the hooks from looking at all the others.
        from dibs.surroundings import failures

        failures.record(case.store_dir, f"sweep of {lease.resource}: {error}")
        return []
    return None


def keep_known(case: Case, lease: Lease, file: str) -> None:
    """Keep what a holder has in a file, unless that is kept."""
    if lease.content_hash is not None and not case.kept.has(lease.content_hash):
        case.kept.keep(file, lease.agent)


def look(case: Case, lease: Lease, file: str) -> list[str]:
    """A leased file is not what its lease says; what this agent has to be told."""
    found = case.content_hash(file)
    flights = case.flights.under_way()
    suspects = suspected(flights, lease)
    if lease.session == case.session:
        return own_file(case, lease, file, found, suspects)
    holders = [one for one in suspects if one.session == lease.session]
    put = [text for one in holders for text in one.edits.get(lease.resource, [])]
    if is_holders(suspects, lease) and holds(file, put):
        return defer(case, lease, flights, found)
    if case.is_formatted(file, lease.session):
        return []  # the holder's own formatter, which its next hook will see
    others = [one for one in flights if one.session != lease.session]
    accused = [one for one in others if one in suspects] or others
    with_hooks = case.is_hooked(lease.session)
    if not with_hooks and not any(one.names(lease.resource) for one in accused):
        return []  # a holder without hooks may have done it itself
    return report(case, lease, file, {one.agent: one.doing for one in accused}, not holders)


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
    notes = case.flights.suspects(case.occasion)
    put = [
        text
        for edit in case.occasion.edits
        if (resource := case.resource(edit.path)) and resource.text == lease.resource
        for text in edit.texts
    ]
    if not holds(file, put):
        return {agent: doing for agent, doing, _ in notes} | others
    if case.occasion.command:
        return {}
    return {agent: doing for agent, doing, seen in notes if seen != str(found)}


def holds(file: str, texts: list[str]) -> bool:
    """Whether a file holds all of these texts, which were put there."""
    content = read_file(file) if texts else b""
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
    if case.made(file) == found:  # else it changes this very moment: the next look will tell
        case.see(lease)
        case.claims.edited(lease)
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
        case.claims.edited(lease)
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
    if any(one.session != case.session for one in case.flights.under_way()):
        return
    for known in changed:
        if case.content_hash(known.file) == known.content_hash:
            case.reads.note(known.file, known.content_hash)
        else:
            case.made(known.file)


def intruded(lease: Lease, by: list[str], doing: str) -> str:
    whom = " or ".join(called(name, True) for name in by) or "somebody whom dibs does not know"
    how = f" ({quoted(doing, NAME_SHOWN)})" if doing else ""
    return told(
        "a file that you hold was changed by somebody else. What you had is kept: "
        f"`dibs recover {argument(lease.resource)}` brings it back. Read the file before you go "
        "on.",
        f"{called(lease.resource, True)}, which you hold, was changed by {whom}{how}",
    )


def intruder(lease: Lease) -> str:
    return told(
        "a file of another agent changed while your command ran. They have been told. If it was "
        f"you, undo it with `dibs recover {argument(lease.resource)}`, and wait for the file "
        "before you edit it.",
        held_by(lease.resource, lease.agent, quote=True),
    )
