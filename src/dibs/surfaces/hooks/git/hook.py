"""`dibs hook git NAME ARGS…`: what git calls, each hook in a process of its own.

Git runs a hook at the top of its working tree, with its own environment. If dibs itself fails,
the policy of the repository decides; by default the commit goes on, with a line on standard
error, and the failure is written down for `dibs doctor`.
"""

from __future__ import annotations

import os
import sys

from dibs.errors import DibsError, NotYoursError
from dibs.surroundings.git import COMMIT, HOOKS, LEARN, STOPPING
from dibs.surroundings.wording import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Dibs
    from dibs.surfaces.hooks.git.committer import Committer
    from dibs.surroundings.commands import Globals


def run(globals_: Globals, name: str, words: list[str]) -> int:
    """Answer to git: 0 to go on, 1 to stop."""
    given = sys.stdin.read() if name in ("pre-push", "post-rewrite") else ""
    # In the midst of a rebase, one hook follows for all its commits.
    if name not in HOOKS or (name == "post-commit" and is_rebasing()):
        return 0
    try:
        with globals_.open() as space:
            if name in LEARN and not space.leases.list(limit=1):
                return 0  # nobody can be in the way; most checkouts are of this kind
            return answer(space, name, words, given)
    except Exception as error:
        return failed(name, error)


def is_rebasing() -> bool:
    directory = os.environ.get("GIT_DIR", ".git")
    return any(os.path.isdir(f"{directory}/{name}") for name in ("rebase-merge", "rebase-apply"))


def answer(space: Dibs, name: str, words: list[str], given: str) -> int:
    from dibs.surfaces.hooks.git import commit, learn, push
    from dibs.surfaces.hooks.git.committer import Committer

    by = Committer(space)
    if name in COMMIT:
        return commit.before(by, merges=name == "pre-merge-commit")
    if name == "prepare-commit-msg":
        return commit.again(by)
    try:
        if name == "post-commit":
            return commit.after(by)
        if name == "pre-push":
            return push.before(by, given)
        if name == "post-rewrite" and words[:1] == ["rebase"]:
            learn.rewritten(by, given)
        return learn.after(by, learn.heads(name, words))
    finally:
        if by.is_person:
            leave(by)


def leave(by: Committer) -> None:
    """A person was here for this one hook."""
    try:
        by.agent.agents.leave()
    except NotYoursError:
        pass  # the commit is over, and with it the session


def failed(name: str, error: Exception) -> int:
    """Write the failure down, and let the policy decide whether git goes on."""
    from dibs.surfaces.hooks.failures import record
    from dibs.surfaces.hooks.hook import surroundings

    what = error.message if isinstance(error, DibsError) else f"{type(error).__name__}: {error}"
    folder, policy = surroundings(None)
    record(folder, f"hook git {name}: {what}")
    note(f"dibs: the hook {name} failed: {what} (see: dibs doctor)")
    stops = policy == "closed" and name in STOPPING
    if stops:
        note("next: the policy here is closed, so git stops; a person may go on with --no-verify")
    return int(stops)
