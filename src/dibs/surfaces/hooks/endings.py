"""When leases that hooks claimed end: with the tool, a commit or the turn, or for others.

`reasons` says what they were claimed for. This module says what happens to them: after a tool, if a
tool was not run, when a file has no uncommitted changes, and when another agent waits for a file
that nobody is working on.
"""

from __future__ import annotations

import os
from time import time

from dibs.errors import HeldError, NotFoundError, NotYoursError, StaleError, UnavailableError
from dibs.records import Lease, called
from dibs.surfaces.hooks.case import Case, hooked
from dibs.surfaces.hooks.notes import Flight, read_note
from dibs.surfaces.hooks.reasons import CHANGE, CHANGED, EDIT_S, IDLE_S, Claims, claim, purpose
from dibs.surroundings.wording import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from dibs.names.paths import Resource


def keep_changed(case: Case, flight: Flight | None) -> None:
    """Keep the files that a tool has changed, and release those that it has not.

    flight: what the tool said before it began, if that is still known
    """
    mine = {lease.resource: lease for lease in case.agent.leases.list(session=case.session)}
    named = {one.text: one for edit in case.occasion.edits if (one := case.resource(edit.path))}
    for name in flight.edits if flight else ():
        path = os.path.join(case.place.top, case.place.inside(name) or "")
        if name not in named and (found := case.resource(path)):
            named[name] = found
    changed, unchanged = [], []
    for name in named.keys() & mine.keys():
        known = case.claims.of(mine[name])
        if known is not None and known.how == CHANGE:
            unchanged.append(name)
        elif known is not None and mine[name].ttl_ms < case.config.ttl_s * 1000:
            changed.append(name)
    release(case, unchanged, flight)
    renew_all(case, changed, case.config.ttl_s)
    if flight is None or flight.asked or flight.age_s > EDIT_S:
        lost = [one for name, one in named.items() if name not in mine]
        reclaim(case, lost, flight.since if flight else time() - EDIT_S)


def reclaim(case: Case, resources: list[Resource], since: float) -> None:
    """Claim what a tool changed after its lease had ended, since its user took long to allow it.

    If another agent holds it by now, both have been told already, as for any change under a lease.

    since: when the tool began
    """
    for one in resources:
        if not one.file or case.config.ignores(one) or case.config.appends(one):
            continue
        try:
            if os.stat(one.file).st_mtime >= since:
                claim(case, [one], case.config.ttl_s, purpose(case), {one.text: CHANGED})
        except (OSError, HeldError):
            continue


def renew(case: Case) -> list[str]:
    """Renew leases on files being worked on, and release idle ones that others wait for.

    Return what to tell the agent. A lease is renewed if less than half of its time is left. A file
    is being worked on if it was edited recently, or if the agent claimed it itself and is active.
    Reading a file or running tests does not count as work on it.
    """
    worked, idle = [], []
    for lease in case.agent.leases.list(session=case.session):
        known = case.claims.of(lease)
        if known is None or (known.how == CHANGED and known.idle_s < IDLE_S):
            worked.append(lease)
        elif known.how == CHANGED:
            idle.append(lease)
    if any(lease.expires_in_ms < lease.ttl_ms / 2 for lease in worked):
        renew_all(case, [lease.resource for lease in worked])
    return let_go(case, idle) if idle else []


def renew_all(case: Case, names: list[str], ttl_s: float | None = None) -> None:
    if names:
        try:
            case.agent.leases.renew(*names, ttl_s=ttl_s)
        except (NotFoundError, StaleError, NotYoursError):
            pass  # one of them has just been lost; the next briefing says so


def let_go(case: Case, idle: list[Lease]) -> list[str]:
    """Release the leases that others wait for; return what to tell the agent."""
    from dibs.surfaces.hooks.briefing import Briefing

    wanted = Briefing(case).wanted_names()
    states = case.agent.leases.status(*(lease.resource for lease in idle))
    names = [
        lease.resource
        for lease, state in zip(idle, states, strict=True)
        if lease.resource in wanted or any(one.waiting for one in state.blockers)
    ]
    return [
        told(
            f"another agent waits for a file that you have not edited for {IDLE_S // 60} minutes, "
            "so it was released. If you still need it, read it and edit it as usual: it is "
            "claimed for you again as soon as it is free.",
            called(name, True),
        )
        for name in release(case, names)
    ]


def drop(case: Case, flights: list[Flight]) -> None:
    """Release what was leased for tools that have not run, and forget these tools."""
    if not flights:
        return
    named = {name for flight in flights for name in (*flight.edits, *flight.brief)}
    for flight in flights:
        case.flights.end(flight)
    release(case, unused(case, named))


def unused(case: Case, named: set[str] | None = None) -> list[str]:
    """What hooks claimed for tools of this session, except files that the tools changed.

    named: only these
    """
    return [
        lease.resource
        for lease in case.agent.leases.list(session=case.session)
        if (named is None or lease.resource in named)
        and (claim := case.claims.of(lease)) is not None
        and claim.how != CHANGED
    ]


def free_clean(case: Case, sessions: Container[int]) -> None:
    """Release the files of these sessions that have no uncommitted changes.

    Only files that a hook claimed: what an agent claimed itself, it releases itself. Files that a
    tool is about to change stay leased.
    """
    top = case.place.top
    flying = case.flights.under_way()
    mine: dict[str, Lease] = {}
    for lease, file in case.leased_files():
        if lease.session not in sessions or not file.startswith(f"{top}/"):
            continue
        claim = Claims(case.store_dir, lease.session).of(lease)
        if claim is not None and is_done(case, lease, file, claim.how, flying):
            mine[file] = lease
    if not mine or case.place.checkout.kind != "repository":
        return
    from dibs.surroundings.git import elsewhere, git, names

    try:
        said = git(
            "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--",
            *mine, cwd=top, environment=elsewhere() | {"GIT_LITERAL_PATHSPECS": "1"},
        )  # fmt: skip
    except UnavailableError:
        return  # for example a file of a submodule: it stays leased
    dirty = {os.path.join(top, entry[3:]) for entry in names(said)}
    for file, lease in mine.items():
        if file not in dirty:
            release_for(case, lease)


def is_done(case: Case, lease: Lease, file: str, how: str, flights: list[Flight]) -> bool:
    """Whether a file was changed, and no tool except one that runs git is about to change it."""
    about = [one for one in flights if one.session == lease.session and lease.resource in one.edits]
    if any("git" not in one.command for one in about):
        return False
    return how == CHANGED or (how == CHANGE and case.content_hash(file) != lease.content_hash)


def release_for(case: Case, lease: Lease) -> None:
    """Release a lease in the session that holds it: this one, or another of this user's agents."""
    agent = case.agent
    if lease.session != case.session:
        client = read_note(case.own, hooked(lease.session))
        found = case.space.find(lease.agent, client=client) if client else None
        if found is None or found.session != lease.session:
            return  # it has just ended, or belongs to `dibs run`
        agent = found
    try:
        agent.leases.release(lease.resource)
    except (NotFoundError, NotYoursError, StaleError):
        pass  # it has just expired
    Claims(case.store_dir, lease.session).forget(lease.resource)


def release(case: Case, names: list[str], but: Flight | None = None) -> list[str]:
    """Release what hooks claimed, unless another tool of this session needs it; return what was.

    but: the tool that no longer needs it
    """
    if not names:
        return []
    needed = {
        name
        for flight in case.flights.under_way()
        if flight.session == case.session and (but is None or flight.name != but.name)
        for name in (*flight.brief, *flight.edits)
    }
    given = [name for name in names if name not in needed]
    # All at once, if they are all still held.
    for some in [given, *([name] for name in given)] if given else []:
        try:
            case.agent.leases.release(*some)
            if some is given:
                break
        except (NotFoundError, NotYoursError, StaleError):
            pass  # one has expired, or another hook of the same tool was faster
    for name in given:
        case.claims.forget(name)
    return given
