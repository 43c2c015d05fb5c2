"""After a checkout, a merge or a rewrite: git itself has changed files.

What git did to files that its caller holds is the caller's own work, and noted as such. What it
did to files that others hold is an intrusion, and here it is sure who did it; whatever else has
changed is left to the sweep. What sessions have read stays as it is: the file did change under
its readers.
"""

from __future__ import annotations

from dibs.errors import NotFoundError, StaleError
from dibs.names.paths import content_hash
from dibs.surfaces.hooks.git import push, staged
from dibs.surfaces.hooks.sweep import report, sweep
from dibs.surroundings.git import code_and_output
from dibs.surroundings.wording import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.hooks.git.committer import Committer


def heads(name: str, words: list[str]) -> tuple[str, ...]:
    """Between which commits git has changed the files here; none if it has changed no file."""
    if name == "post-checkout":
        return tuple(words[:2])
    return () if words[:1] == ["amend"] else ("ORIG_HEAD", "HEAD")


def after(by: Committer, between: tuple[str, ...]) -> int:
    """Learn the contents that files have now, and say what git did to those of others."""
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
    makers = push.makers(by.place)
    words = [line.split() for line in pairs.splitlines() if line]
    push.note_made(by.place, [(new, makers[old]) for old, new, *_ in words if old in makers])
