"""`dibs merge`: one merge at a time in the whole space, first come, first served."""

from __future__ import annotations

import os

from dibs.errors import HeldError, InvalidError
from dibs.operation import EVERYBODY
from dibs.surfaces.hooks.commit import Committer, holders, is_here, named
from dibs.surroundings.git import elsewhere, git, names
from dibs.surroundings.running import QUEUE_S, perform
from dibs.surroundings.who import person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
SLOT = "git:merge"


def main(call: Globals, branch: str | None = None, *command: str, wait_s: float = QUEUE_S) -> int:
    """Wait for the merge slot, then run git merge BRANCH, or the command.

    The slot is the lease git:merge. The next in line begins when the merge has ended, in whatever
    worktree. The exit code is the command's own; 1 if the wait timed out.

    branch: what to merge
    command: what to run instead of git merge
    wait_s: how long to queue for it
    example: -- sh -c 'git merge feature && make test && git push'
    """
    if (branch is None) == (not command):
        raise InvalidError("name one branch, or a command after --", next="see: dibs merge --help")
    if branch is not None:
        command = ("git", "merge", "--no-edit", branch)
    if command[:2] == ("git", "merge"):
        refuse_held(call, command[-1])
    who = call.who()
    # The merge is the caller's, who may hold files already; only the slot is ours.
    name = (who and who.name) or person()
    return perform(call, name, command, [SLOT], wait_s, as_caller=True)


def refuse_held(call: Globals, branch: str) -> None:
    """Refuse to merge into files of this checkout that others hold."""
    with call.open() as space:
        by = Committer(space)
        os.chdir(by.place.top)  # where git names its paths from
        try:
            words = ("diff", "--name-only", "-z", f"HEAD...{branch}")
            said = git(*words, environment=elsewhere(), codes=(0, 128))
            resources = named(by, names(said))
            for path, others in holders(by, resources).items():
                if any(is_here(one, resources[path]) for one in others):
                    first = others[0]
                    raise HeldError(
                        f"the merge would change {path}, which {first.agent} holds here",
                        next=f"wait for it (dibs wait {path}), or merge in another worktree",
                        blockers=others,
                    )
        finally:
            if by.is_person:
                by.agent.agents.leave()
