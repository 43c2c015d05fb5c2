"""Before an edit: claim the files for this session, or say why the tool must not run.

Free or ours: go on. Held by another: denied, with who, what for, how long, and what to do
instead. Files stay leased until the session ends; a directory, a pattern or the whole tree is
leased for the one tool only. An edit that rests on a content which is no longer there is denied
once, with the difference.

All worktrees share one space, so that a file has one name in all of them. Where there are
several, a file is claimed for this checkout alone; if somebody holds it in another, the agent is
warned that its work will have to be merged.
"""

from __future__ import annotations

import os

from dibs.errors import HeldError, NotFoundError, NotYoursError, StaleError
from dibs.nouns.leases import CLAIM_LIMIT
from dibs.nouns.paths import content_hash
from dibs.surfaces.hooks.briefing import Briefing
from dibs.surfaces.hooks.occasion import Answer, Edit
from dibs.surfaces.hooks.sweep import sweep
from dibs.surfaces.hooks.words import difference, held, protected, stale, worktree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.nouns.paths import Resource
    from dibs.records import Blocker, Grant
    from dibs.surfaces.hooks.case import Case

TEXT_LIMIT = 100_000
"""A longer text is not noted on a tool that is under way."""


def before(case: Case, edits: list[Edit]) -> Answer:
    """Answer to a tool that may write, and leave word that it is under way."""
    found: dict[str, tuple[Edit, Resource]] = {}
    for edit in edits:
        if case.is_own(edit.path):
            return Answer(deny=f"{edit.path} belongs to dibs itself; leave it to the people here")
        path = case.place.top if edit.kind == "tree" else edit.path
        resource = case.resource(path)
        if resource is None or case.config.ignores(resource) or is_nothing(edit, resource):
            continue
        if case.config.protects(resource):
            return Answer(deny=protected(resource.text))
        found[resource.text] = (edit, resource)
    if len(found) > CLAIM_LIMIT and (top := case.resource(case.place.top)):
        found = {top.text: (Edit(case.place.top, "tree"), top)}
    if "git" in case.occasion.command:
        from dibs.surfaces.git import unhooked

        if reason := unhooked.refusal(case):
            return Answer(deny=reason)
    # Not every client shows what a hook says before a tool.
    briefing = Briefing(case)
    briefing.postpone(sweep(case))
    try:
        brief, warning = claim(case, [resource for _, resource in found.values()])
    except HeldError as error:
        return Answer(deny=held(error.details["blockers"]))
    for edit, resource in found.values():
        refusal = compare(case, resource) if is_file(resource) and edit.kind == "write" else ""
        if refusal:
            release(case, brief)
            return Answer(deny=refusal)
    begin(case, list(found.values()), brief)
    briefing.postpone([warning] if warning else [])
    return Answer()


def begin(case: Case, found: list[tuple[Edit, Resource]], brief: list[str]) -> None:
    """Leave word that the tool is under way."""
    files = {
        resource.text: [text for text in edit.texts if len(text) <= TEXT_LIMIT]
        for edit, resource in found
        if is_file(resource)
    }
    changed: list[str] = []
    if case.occasion.command:
        from dibs.surfaces.git import staged

        staged.look(case.place)
        changed = [known.file for known in case.reads.changed()]
    case.flights.begin(
        case.occasion, case.session, case.agent.name, case.who, files, brief, changed
    )


def is_nothing(edit: Edit, resource: Resource) -> bool:
    """Whether something is to be removed that is not there."""
    file = resource.file
    return edit.kind == "remove" and file is not None and not os.path.lexists(file)


def is_file(resource: Resource) -> bool:
    return resource.kind == "file" or bool(
        resource.kind == "dir" and resource.file and not os.path.isdir(resource.file)
    )


def claim(case: Case, resources: list[Resource]) -> tuple[list[str], str]:
    """Claim for this session: what ends with the tool, and what is to be known of other worktrees.

    A directory, a pattern or the tree is leased for the tool only, unless it was held before.
    """
    if not resources:
        return [], ""
    here = case.config.worktrees != "block" and several_checkouts(case)
    texts = [text_of(one) for one in resources]
    grant = take(case, texts, here)
    before = set(grant.kept) - lent(case)
    brief = {one.text for one in resources if not is_file(one)} - before
    if not here or case.config.worktrees == "off":
        return sorted(brief), ""
    found = [blocker for state in case.agent.leases.status(*texts) for blocker in state.blockers]
    return sorted(brief), worktree(found) if found else ""


def take(case: Case, texts: list[str], here: bool) -> Grant:
    """Claim; what the agent itself holds passes to the subagent that it has sent to work on it."""
    ttl_s = case.config.ttl_s
    try:
        return case.agent.leases.claim(*texts, ttl_s=ttl_s, here=here)
    except HeldError as error:
        if not case.occasion.subagent or not hand_down(case, error.details["blockers"]):
            raise
        return case.agent.leases.claim(*texts, ttl_s=ttl_s, here=here)


def hand_down(case: Case, blockers: list[Blocker]) -> bool:
    """Have the agent release what stands in the way of its subagent, if that is all there is."""
    from dibs.surfaces.hooks.who import of_client

    occasion = case.occasion
    parent = of_client(occasion.client, occasion.session, os.environ).join(case.space)
    if any(one.session != parent.session or one.waiting for one in blockers):
        return False
    names = {one.resource for one in blockers}
    for flight in case.flights.under_way(case.session):
        if flight.session == parent.session and names & {*flight.edits, *flight.brief}:
            return False  # the agent itself is at it
    try:
        parent.leases.release(*(one.resource for one in blockers))
    except (NotFoundError, StaleError):
        pass  # it has been released this moment
    return True


def text_of(resource: Resource) -> str:
    """By its place on disk: a name from the top may mean another worktree's file."""
    return f"path:{resource.file}" if resource.file else resource.text


def several_checkouts(case: Case) -> bool:
    """Whether the files of this space are in several places, here or on other machines."""
    place = case.place
    if place.top != place.root or case.space.scope.beats:
        return True
    try:
        return bool(os.listdir(os.path.join(place.root, ".git", "worktrees")))
    except OSError:
        return False


def compare(case: Case, resource: Resource) -> str:
    """Why an edit must wait: its file is not what the session has read. Said once."""
    file = resource.file or ""
    known, now = case.reads.known(file), content_hash(file)
    if known is None or now is None or known.content_hash == now or not is_others(case, file, now):
        case.kept.keep(file, case.agent.name)
        return ""
    then = case.kept.content(known.content_hash)
    case.read(file)
    return stale(resource.text, difference(then, case.kept.content(now)))


def is_others(case: Case, file: str, now: str) -> bool:
    """Whether somebody else made this content, as far as is known.

    An agent that is alone is not bothered with what its own formatter does.
    """
    makers = [one.agent for one in case.kept.versions(file) if one.content_hash == now]
    # The first: later ones have only held the file.
    return makers[-1] != case.agent.name if makers else not case.is_alone()


def lent(case: Case) -> set[str]:
    """What is leased only for tools of this session that are under way."""
    flights = case.flights.under_way(case.session)
    return {name for one in flights if one.session == case.session for name in one.brief}


def release(case: Case, names: list[str]) -> None:
    """Give back what was leased for one tool, unless another tool of this session needs it."""
    needed = lent(case) if names else set()
    for name in names:
        if name not in needed:
            try:
                case.agent.leases.release(name)
            except (NotFoundError, NotYoursError, StaleError):
                pass  # it has lapsed, or another hook of the same tool was faster
