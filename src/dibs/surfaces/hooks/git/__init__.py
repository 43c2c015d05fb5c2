"""`dibs hook git NAME ARGS…`: what git calls, each hook in a process of its own.

Git runs a hook at the top of its working tree, with its own environment. If dibs itself fails,
the policy of the repository decides; by default the commit goes on, with a line on standard
error, and the failure is written down for `dibs doctor`.

After a checkout, a merge or a rewrite git itself has changed files. What it did to files that its
caller holds is the caller's own work, and noted as such. What it did to files that others hold is
an intrusion, and here it is sure who did it; whatever else has changed is left to the sweep. What
sessions have read stays as it is: the file did change under its readers.
"""

from __future__ import annotations

import os
import sys

from dibs.errors import NotFoundError, NotYoursError, StaleError
from dibs.surroundings.git import COMMIT, HOOKS, LEARN, STOPPING, code_and_output
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
    from dibs.surfaces.hooks.git import commit, push
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
            rewritten(by, given)
        return learn(by, heads(name, words))
    finally:
        if by.is_person:
            leave(by)


def heads(name: str, words: list[str]) -> tuple[str, ...]:
    """Between which commits git has changed the files here; none if it has changed no file."""
    if name == "post-checkout":
        return tuple(words[:2])
    return () if words[:1] == ["amend"] else ("ORIG_HEAD", "HEAD")


def learn(by: Committer, between: tuple[str, ...]) -> int:
    """Learn the contents that files have now, and say what git did to those of others."""
    from dibs.names.checkouts import content_hash
    from dibs.surfaces.hooks.git import staged
    from dibs.surfaces.hooks.sweep import report, sweep

    told = []
    for lease, file in by.leased_files():
        if content_hash(file) == lease.content_hash:
            continue
        if lease.session == by.session:
            try:
                by.agent.leases.see(lease.resource)
            except (NotFoundError, StaleError):
                pass  # it has lapsed this moment
        elif lease.session not in by.sessions and differs(file, between):
            told += report(by, lease, file, {by.name: "git"}, sure=True)
    for line in [*told, *sweep(by)]:
        note(line)
    staged.refresh(by.place)
    return 0


def differs(file: str, between: tuple[str, ...]) -> bool:
    """Whether a file is another in two commits; not if one of them is none, or has no such file."""
    words = ("--literal-pathspecs", "diff", "--quiet", "--no-ext-diff", *between, "--", file)
    return bool(between) and code_and_output(*words, codes=(0, 1, 128))[0] == 1


def rewritten(by: Committer, pairs: str) -> None:
    """Commits that a rebase has made anew are still by those who made them first."""
    from dibs.surfaces.hooks.git import push

    makers = push.makers(by.place)
    words = [line.split() for line in pairs.splitlines() if line]
    push.note_made(by.place, [(new, makers[old]) for old, new, *_ in words if old in makers])


def leave(by: Committer) -> None:
    """A person was here for this one hook."""
    try:
        by.agent.agents.leave()
    except NotYoursError:
        pass  # the commit is over, and with it the session


def failed(name: str, error: Exception) -> int:
    """Write the failure down, and let the policy decide whether git goes on."""
    from dibs.surroundings.failures import hook_failed

    what, policy = hook_failed(f"git {name}", error)
    note(f"dibs: the hook {name} failed: {what} (see: dibs doctor)")
    stops = policy == "closed" and name in STOPPING
    if stops:
        note("next: the policy here is closed, so git stops; a person may go on with --no-verify")
    return int(stops)
