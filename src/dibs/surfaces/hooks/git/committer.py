"""Who runs git, and who else holds the paths that git is about to record.

It is an agent's sessions or a person, and the git process itself. A client tells the commands of
its subagents the same session as its own. So which of them runs git is seen from the tools that
are under way: those of this agent and its subagents that call git now. Where hooks note no tools,
it is the agent itself.
"""

from __future__ import annotations

import os

from dibs.arguments import CLAIM_LIMIT
from dibs.errors import InvalidError
from dibs.storage.clock import process_name
from dibs.surfaces.hooks.case import Case
from dibs.surroundings.occasion import OTHER, Occasion
from dibs.surroundings.who import Who, ancestors, of_environment, person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.dibs import Agent, Dibs
    from dibs.names.paths import Resource
    from dibs.records import Blocker

SHARED = "shared"


class Committer(Case):
    """
    is_person: whether no agent runs git; then everybody who holds something is another
    sessions: those that it may be; a person's is that of this git process
    """

    has_hooks = False

    def __init__(self, space: Dibs) -> None:
        who = of_environment(os.environ)
        self.is_person = who is None
        super().__init__(space, who or of_git(person()), Occasion("git", OTHER))
        self.name = self.agent.name
        self.sessions = self._calling_git() or {self.session}

    def _calling_git(self) -> set[int]:
        return {
            flight.session
            for flight in self.flights.under_way(self.session)
            if "git" in flight.command
            and (flight.session == self.session or flight.agent.startswith(f"{self.name}/"))
        }

    def turn(self) -> Agent:
        """The session that holds the index for this commit, and ends with git at the latest."""
        return of_git(self.name).join(self.space)


def of_git(name: str) -> Who:
    process = process_name(git_process())
    return Who(name, f"git:{process}", process)


def git_process() -> int:
    """The nearest process above this one that is git: hook managers may stand in between.

    This very process, if somebody runs a hook by hand: then nothing outlasts it.
    """
    above = list(ancestors())
    if not above:
        return os.getppid()  # a system that does not tell
    return next((pid for pid, name in above if name == "git"), os.getpid())


def named(by: Committer, paths: Iterable[str]) -> dict[str, Resource]:
    """What paths of this working tree are called, without what nobody holds or is passed over."""
    found, top = {}, os.getcwd()  # where git runs its hooks
    for path in paths:
        try:
            resource = by.place.resource(f"path:{top}/{path}")
        except InvalidError:
            continue  # such as a file of the store, or a link that leads out
        if not by.config.ignores(resource):
            found[path] = resource
    return found


def holders(by: Committer, resources: dict[str, Resource]) -> dict[str, list[Blocker]]:
    """The paths that others hold, and all of them."""
    paths = list(resources)
    found: dict[str, list[Blocker]] = {}
    for start in range(0, len(paths), CLAIM_LIMIT):
        some = paths[start : start + CLAIM_LIMIT]
        # By its place on disk, since a name from the top means another file in a submodule.
        states = by.space.leases.status(*(f"path:{resources[path].file}" for path in some))
        for path, state in zip(some, states, strict=True):
            found[path] = [one for one in state.blockers if not one.waiting]
    others = {path: without_own(by, all_of_them) for path, all_of_them in found.items()}
    return {path: those for path, those in others.items() if those}


def without_own(by: Committer, blockers: list[Blocker]) -> list[Blocker]:
    # Those who share a file may all commit it.
    sharing = any(one.mode == SHARED and one.session in by.sessions for one in blockers)
    return [
        one
        for one in blockers
        if one.session not in by.sessions and not (sharing and one.mode == SHARED)
    ]


def is_here(blocker: Blocker, resource: Resource) -> bool:
    """Whether somebody holds a path in this checkout, and not in another worktree."""
    return blocker.checkout in (None, resource.checkout)
