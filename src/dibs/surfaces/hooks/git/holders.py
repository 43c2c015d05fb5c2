"""Who else holds the paths that git is about to record."""

from __future__ import annotations

import os

from dibs.arguments import CLAIM_LIMIT
from dibs.errors import InvalidError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.names.paths import Resource
    from dibs.records import Blocker
    from dibs.surfaces.hooks.git.committer import Committer

SHARED = "shared"


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
