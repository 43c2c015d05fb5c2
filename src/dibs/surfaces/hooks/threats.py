"""Where a command could destroy something, judged by its text and by who else works there.

Its edits show whether a command removes or rewrites more than single files. Its words show what it
asks git to do. Whether a script destroys something cannot be seen. So while others are here, or
have left something uncommitted, every command counts unless it certainly only reads.
"""

from __future__ import annotations

import os
import re

from dibs.names.checkouts import back_link, git_directory, index_around
from dibs.surfaces.hooks.notes import mentions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.hooks.case import Case
    from dibs.surroundings.occasion import Edit

DESTROYING = frozenset(
    "am apply branch checkout checkout-index cherry-pick clean filter-branch gc merge prune pull"
    " read-tree rebase reflog reset restore revert rm stash submodule switch tag update-ref"
    " worktree".split()
)
"""The git commands that may remove uncommitted work, or commits."""
ANY = ""
"""Instead of a path: the whole checkout."""


def threatened(case: Case, edits: list[Edit]) -> dict[str, list[str]]:
    """The checkouts that a command could destroy something in, each with the paths there."""
    command, told = case.occasion.command, tells_git(case.occasion.command)
    found: dict[str, list[str]] = {}
    removed = [case.place.top] if "clean" in told else []
    for edit in edits:
        path = edit.path
        if not os.path.lexists(path) and (wild := re.search(r"[*?[]", path)):
            path = os.path.dirname(path[: wild.start()] + "-")
        # Single files are kept when their edit is checked.
        if edit.kind != "write" or os.path.isdir(path):
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            removed.append(path)
            add(found, case, path, ANY if edit.kind == "tree" else path)
    if os.path.lexists(f"{case.place.top}/.git") and (told or others_work(case)):
        found[case.place.top] = [ANY]
    for top in checkouts(case):
        below = any(f"{top}/".startswith(f"{one}/") for one in removed)
        named = top != case.place.top and mentions(command, os.path.basename(top))
        if below or named:
            found[top] = [ANY]
    return found


def others_work(case: Case) -> bool:
    """Whether another agent is here, or has left something uncommitted."""
    return bool(case.kept.authors(case.place.top) - {case.agent.name}) or not case.is_alone()


def add(found: dict[str, list[str]], case: Case, path: str, part: str) -> None:
    """Add a path to the threatened ones, if it is in this space."""
    there = path
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    around = index_around(there)
    if around and case.resource(there) is not None:
        found.setdefault(around[0], []).append(part)


def tells_git(command: str) -> set[str]:
    """The words with which a command could make git destroy something."""
    words = set(re.findall(r"[\w-]+", command))
    return words & DESTROYING if "git" in words else set()


def checkouts(case: Case) -> list[str]:
    """All working trees of this space, as its repository lists them."""
    if case.place.checkout.kind != "repository":
        return []
    folder = f"{git_directory(case.place.root)}/worktrees"
    try:
        linked = [back_link(f"{folder}/{name}") for name in os.listdir(folder)]
    except OSError:
        linked = []  # there are none
    found = dict.fromkeys([case.place.root, case.place.top, *linked])
    return [top for top in found if top and os.path.lexists(f"{top}/.git")]
