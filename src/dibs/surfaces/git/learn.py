"""After a checkout, a merge or a rewrite: git itself has changed files.

What git did to files that its caller holds is the caller's own work, and noted as such. What it
did to files that others hold is an intrusion, which the sweep reports. What sessions have read
stays as it is: the file did change under its readers.
"""

from __future__ import annotations

from dibs.errors import NotFoundError, StaleError
from dibs.nouns.paths import content_hash
from dibs.surfaces.cli.show import note
from dibs.surfaces.git import made, staged
from dibs.surfaces.hooks.sweep import sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.git.committer import Committer


def after(by: Committer) -> int:
    """Learn the contents that files have now, and say what git did to those of others."""
    for lease, file in by.leased_files():
        if lease.session == by.session and content_hash(file) != lease.content_hash:
            try:
                by.agent.leases.see(lease.resource)
            except (NotFoundError, StaleError):
                pass  # it has lapsed this moment
    for line in sweep(by):
        note(line)
    staged.refresh(by.place)
    return 0


def rewritten(by: Committer, pairs: str) -> None:
    """Commits that a rebase has made anew are still by those who made them first."""
    makers = made.makers(by.place)
    words = [line.split() for line in pairs.splitlines() if line]
    made.note(by.place, [(new, makers[old]) for old, new, *_ in words if old in makers])
