"""Who runs git: an agent's sessions or a person, and the git process itself.

A client tells the commands of its subagents the same session as its own. So which of them runs
git is seen from the tools that are under way: those of this agent and its subagents that call
git now. Where hooks note no tools, it is the agent itself.
"""

from __future__ import annotations

import os

from dibs.clients.occasion import OTHER, Occasion
from dibs.storage.clock import process_name
from dibs.surfaces.hooks.case import Case
from dibs.surroundings.who import Who, ancestors, of_environment, person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Agent, Dibs


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
