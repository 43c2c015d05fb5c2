"""Before and after a tool: do the leased files still contain what their holders left?

Each lease records what its file contained when dibs last saw it. If the file differs, its holder
or somebody else changed it. Which tools that may write were running decides who:

    only the holder's:          its own work; the lease records the new content
    the holder edits that file: left to the holder's own hook, which runs next and checks
                                that the file contains what the holder wrote
    those of others:            an intrusion; the holder and the others are told once, by name
    none that dibs can see:     the same, without a name: an editor, a person or a script. An
                                agent that is alone here is not told

An edit tool changes only what it names, so before and after one, only the files that its session
holds are compared. A command may have changed any file, so all leased files are compared.

The holder's version is kept before anybody is told, so that `dibs recover` can bring it back.

After a tool, the leases that were taken for it end (`endings`), except for files that it changed.
At the end of a session, all its leases end.
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
    """Note what the tool did; return what to tell the agent."""
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
    """Where a client's path is on disk; "" if it is not a file of this space."""
    resource = case.resource(path)
    if resource is None or not resource.file or os.path.isdir(resource.file):
        return ""
    return resource.file


def leave(case: Case) -> None:
    """Release everything that the session holds, since it has ended."""
    from dibs.surfaces.hooks.briefing import Briefing

    case.flights.end()
    stir(case.own, case.session)
    case.reads.forget()
    case.claims.forget_all()
    case.own.remove(resting(case.session))
    case.own.remove(formatting(case.session))
    Briefing(case).forget()
    case.own.remove(hooked(case.session))
    # Subagents whose end was not reported. A note that is being written has a dot in its name.
    for note in notes_in(case.own, "hooks/sessions", whole=True) if case.who.client else ():
        client = read_note(case.own, note) or ""  # gone if another session ends at the same time
        if client.startswith(f"{case.who.client}:"):
            case.space.join(case.agent.name, client=client, shell=True).agents.leave()
            case.own.remove(note)
    if not case.who.token:  # otherwise the session belongs to `dibs run`, which ends it
        case.agent.agents.leave()


def see_index(case: Case) -> None:
    """Note who staged what; without git, nobody did."""
    try:
        Stagings(case.place).look()
    except UnavailableError as error:
        from dibs.surroundings import failures

        failures.record(case.store_dir, f"who staged what: {error.message}")


def sweep(case: Case) -> list[str]:
    """Compare the leased files here that may have changed; return what to tell this agent."""
    if only_edits(case):
        own = case.leased_files(own=True)
        named = {name for flight in case.flights.own() for name in flight.edits}
        # What it named but no longer holds may belong to another agent by now.
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
    """Whether this is an edit tool and no command of the session is still to be checked."""
    if case.occasion.command or not case.occasion.edits:
        return False
    return not any(flight.command for flight in case.flights.own())


def check(case: Case, lease: Lease, file: str) -> list[str] | None:
    """What to tell this agent about a leased file; None if the file matches its lease."""
    try:
        if case.content_hash(file) != lease.content_hash:
            return look(case, lease, file)
        keep_known(case, lease, file)
    except (DibsError, OSError) as error:
        # One odd file must not stop the hooks from checking all the others.
        from dibs.surroundings import failures

        failures.record(case.store_dir, f"sweep of {lease.resource}: {error}")
        return []
    return None


def keep_known(case: Case, lease: Lease, file: str) -> None:
    """Keep the holder's version of a file, unless it is kept already."""
    if lease.content_hash is not None and not case.kept.has(lease.content_hash):
        case.kept.keep(file, lease.agent)


def look(case: Case, lease: Lease, file: str) -> list[str]:
    """Handle a leased file that does not match its lease; return what to tell this agent."""
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
        return []  # the holder's own formatter; the holder's next hook will notice
    others = [one for one in flights if one.session != lease.session]
    accused = [one for one in others if one in suspects] or others
    with_hooks = case.is_hooked(lease.session)
    if not with_hooks and not any(one.names(lease.resource) for one in accused):
        return []  # a holder without hooks may have changed it itself
    return report(case, lease, file, {one.agent: one.doing for one in accused}, not holders)


def own_file(
    case: Case, lease: Lease, file: str, found: str | None, suspects: list[Flight]
) -> list[str]:
    """Handle a change to a file of this session, by the session or by somebody else."""
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
    """Who else wrote to a file that this session has just edited.

    An edit tool writes once. A tool that ended before that write changed the file if it saw the
    file already changed, but not as it is now.
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
    """Whether a file contains all of these texts, which were written to it."""
    content = read_file(file) if texts else b""
    return content is not None and all(is_in(text, content) for text in texts)


def defer(case: Case, lease: Lease, flights: list[Flight], found: str | None) -> list[str]:
    """Leave it to the holder's own hook, and note who else was writing."""
    mine = next((one for one in flights if one.session == case.session and one.command), None)
    if mine is None:
        return []
    for flight in flights:
        if flight.session == lease.session and lease.resource in flight.edits:
            case.flights.suspect(flight, mine, found)
            return [intruder(lease)] if mine.names(lease.resource) else []
    return []


def suspected(flights: list[Flight], lease: Lease) -> list[Flight]:
    """Who may have changed the file: tools that name it and its holder; otherwise all writers."""
    if any(one.names(lease.resource) and one.session != lease.session for one in flights):
        return [one for one in flights if one.names(lease.resource) or one.session == lease.session]
    editing = [one for one in flights if lease.resource in one.edits]
    return editing or flights


def is_holders(suspects: list[Flight], lease: Lease) -> bool:
    """Whether the change is the holder's own, or the holder's hook will check it."""
    holders = [one for one in suspects if one.session == lease.session]
    editing = any(lease.resource in one.edits for one in holders)
    return editing or (bool(holders) and len(holders) == len(suspects))


def settle(case: Case, lease: Lease, file: str, found: str | None) -> list[str]:
    """Note that this session made a change."""
    if case.made(file) == found:  # otherwise it is changing right now; the next check will tell
        case.see(lease)
        case.claims.edited(lease)
    return []


def report(case: Case, lease: Lease, file: str, by: dict[str, str], sure: bool = True) -> list[str]:
    """Tell the holder and the suspects once; return what to tell this agent.

    by: the agents that may have done it, each with what it was doing
    sure: whether it was certainly not the holder itself
    """
    one = next(iter(by)) if sure and len(by) == 1 else "?"
    doing = by.get(one, "")
    case.kept.keep(file, one, foreign=True)
    case.intruded.add(file)
    try:
        case.agent.leases.report(lease.resource, was=lease.content_hash, by=list(by), doing=doing)
    except (NotFoundError, StaleError):
        return []  # somebody else has just reported it, or the holder has released the file
    if lease.session == case.session:
        case.claims.edited(lease)
        return [intruded(lease, list(by), doing)]
    if case.agent.name not in by or doing.startswith(UNDOING):
        return []
    return [intruder(lease)]


def refresh_reads(case: Case, flight: Flight) -> None:
    """Count files that this session read and its own command then changed as known to it.

    Not if they had changed before the command began, or if somebody else was writing at the same
    time: then the change may be theirs.
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
    whom = " or ".join(called(name, True) for name in by) or "somebody unknown to dibs"
    how = f" ({quoted(doing, NAME_SHOWN)})" if doing else ""
    return told(
        "somebody else changed a file that you hold. Your version is kept: "
        f"`dibs recover {argument(lease.resource)}` brings it back. Read the file before you go "
        "on.",
        f"{called(lease.resource, True)}, which you hold, was changed by {whom}{how}",
    )


def intruder(lease: Lease) -> str:
    return told(
        "a file that another agent holds changed while your command ran. They have been told. "
        f"If it was you, undo it with `dibs recover {argument(lease.resource)}`, and wait for the "
        "file before you edit it.",
        held_by(lease.resource, lease.agent, quote=True),
    )
