"""Before a git command that could change any file: which files it would really change.

An agent that is alone leases the whole tree for the one command, which costs nothing. If others
hold or wait for something in the checkout, git is asked (`surroundings.changes`), and only what the
command would change is leased. So the command is denied if it would change a file that somebody
holds, and nobody begins to edit a file that it is about to change.

Most commands cannot harm what others have not committed: git refuses to overwrite it, and then
changes nothing. Such a command is allowed. A command is denied if it would remove that work
(`reset --hard`, `stash`, `clean`, `restore`), or change a held file that has no uncommitted
changes.

If a command changes very many files, those that nobody holds are not leased: a thousand leases
would cost more than they are worth for such a short time.
"""

from __future__ import annotations

import os

from dibs.errors import InvalidError
from dibs.names.checkouts import index_around
from dibs.names.paths import Resource, ancestors, resources_overlap
from dibs.surfaces.hooks.case import Case
from dibs.surfaces.hooks.chosen import ONLY, is_chosen
from dibs.surfaces.hooks.contents import read_file
from dibs.surroundings.changes import Asking
from dibs.surroundings.occasion import Edit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.records import Blocker, Lease

ASK_S = 1.0
"""How long git may take to say what a command would change."""
LEASED = 20
"""If more files change, only those that others hold are claimed."""
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


def narrowed(case: Case, edits: list[Edit], held: list[Lease | Blocker]) -> list[Edit]:
    """Replace an edit that may change any file by the files that git says would change.

    held: what others hold or wait for
    """
    if any(name in case.occasion.command for name in ELSEWHERE):
        return edits
    narrowing = Narrowing(case, held)
    return [found for at, edit in enumerate(edits) for found in narrowing.of(edit, at == 0)]


class Narrowing:
    def __init__(self, case: Case, held: list[Lease | Blocker]) -> None:
        self._case = case
        self._held = held
        mine = case.agent.leases.list(session=case.session)
        # What this session already holds needs no further lease.
        self._own = {one.resource for one in mine if one.mode == "exclusive"}
        self._checkouts: dict[str, tuple[Asking, Others] | None] = {}

    def of(self, edit: Edit, first: bool) -> list[Edit]:
        """What to lease for an edit, after asking git.

        first: whether nothing before it in the same command changes files
        """
        resource = self._case.resource(edit.path, pattern=True) if edit.asks else None
        if resource is None:
            return [edit]
        wild = resource.kind == "glob"
        found = self._checkout(edit, resource.checkout or "")
        if found is None:
            return [edit]
        asking, others = found
        if edit.asks[0][0] == "patch":
            return patched(edit, asking, others)
        if edit.asks[0][0] == "archive":
            return unpacked(edit, asking, others)
        path = (
            edit.path.replace("?", "*").partition("*")[0].rpartition("/")[0] if wild else edit.path
        )
        if all(word == ONLY for word, *_ in edit.asks):
            return others.narrowed(edit, resource, path)
        changed = asking.changed(edit.asks, path, below=edit.kind != "tree")
        if changed is None:
            return [edit]
        if wild:
            changed = {name for name in changed if self._is_in(resource, asking.top, name)}
        changed = {
            name
            for name in changed
            if is_chosen(edit.asks, os.path.join(asking.top, name), asking.top, path)
        }
        met = sorted(filter(others.meets, changed))
        # Others' work is still there when the command runs. Other uncommitted changes may have been
        # committed or stashed by then.
        settled = first and " commit" not in self._case.occasion.command
        counts = (lambda _: True) if settled else others.meets
        if met and asking.refuses(edit.asks, path, changed, counts):
            return []
        if edit.kind != "tree" and not wild and not os.path.isdir(path):
            return [Edit(edit.path, edit.kind)] if changed else []
        leased = changed if len(changed) <= LEASED else met[:LEASED]
        files = [os.path.join(asking.top, name) for name in sorted(leased)]
        return [Edit(file, "passing") for file in files if not self._is_own(file)]

    def _checkout(self, edit: Edit, checkout: str) -> tuple[Asking, Others] | None:
        """What to ask about the checkout of an edit; None if nobody else is there."""
        around = index_around(os.path.realpath(edit.path))
        if around is None:
            return None
        top = around[0]
        if top not in self._checkouts:
            blocks = self._case.config.worktrees == "block"
            held = [one for one in self._held if blocks or one.checkout in (None, checkout)]
            others = Others(self._case, top, held)
            self._checkouts[top] = (Asking(top, ASK_S, others.names), others) if held else None
        return self._checkouts[top]

    def _is_in(self, pattern: Resource, top: str, name: str) -> bool:
        resource = self._case.resource(os.path.join(top, name))
        return resource is not None and resources_overlap(resource, pattern)

    def _is_own(self, file: str) -> bool:
        resource = self._case.resource(file)
        return resource is not None and resource.text in self._own


class Others:
    """What others hold in one checkout.

    names: where to look for their work, as git names it; empty if it may be anywhere
    """

    def __init__(self, case: Case, top: str, held: list[Lease | Blocker]) -> None:
        self._case = case
        self._top = top
        self._held: list[Resource] = []
        self._new: list[Resource] = []
        for one in held:
            try:
                resource = case.place.resource(one.resource)
            except InvalidError:
                continue  # by now a link that leads out of the space
            self._held.append(resource)
            if resource.kind == "file" and getattr(one, "kind", "") == "dir":
                # It did not exist when it was claimed, so the store treats it as a directory.
                self._new.append(Resource(resource.text, "dir", resource.base))
        self._bases = {one.base for one in self._held}
        self._above = {up for base in self._bases for up in ancestors(base)}
        self._prefix = getattr(case.resource(top), "base", "")
        inside = [base.removeprefix(self._prefix).lstrip("/") for base in self._bases]
        known = all(inside) and not case.place.case_blind
        self.names = tuple(inside) if known else ()

    def narrowed(self, edit: Edit, resource: Resource, base: str) -> list[Edit]:
        """What to lease for an edit that leaves some files alone: everything, unless others hold
        some of the files; then only those of theirs that the edit would change."""
        theirs = [one for one in self._held if resources_overlap(one, resource)]
        if not theirs:
            # A new file is no reason to deny a pattern that cannot match it.
            unsure = any(resources_overlap(one, resource) for one in self._new)
            return [] if unsure else [Edit(edit.path, edit.kind)]
        files = [
            one.file
            for one in theirs
            if one.file
            and (
                one.kind == "glob"
                or os.path.isdir(one.file)
                or is_chosen(edit.asks, one.file, self._top, base)
            )
        ]
        return [Edit(file, edit.kind) for file in files[:LEASED]]

    def meets(self, name: str) -> bool:
        """Whether others hold a name, as git spells it."""
        key = f"{self._prefix}/{name}"
        near = key in self._above or not self._bases.isdisjoint(ancestors(key))
        if not near and key.isascii() and not self._case.place.case_blind:
            return False  # the usual case, found without looking at the disk
        resource = self._case.resource(os.path.join(self._top, name))
        return resource is not None and any(resources_overlap(resource, one) for one in self._held)


def patched(edit: Edit, asking: Asking, others: Others) -> list[Edit]:
    """What the patch in a file changes; if it cannot be read, changes are found afterwards."""
    from dibs.surroundings import patch

    _, file, strip, folder, *tried = edit.asks[0]
    content = read_file(file)
    if content is None:
        return []
    text = content.decode("utf-8", "surrogateescape")
    base = asking.top if "diff --git " in text else edit.path
    found = patch.names(text, os.path.join(base, folder), int(strip))
    met = any(others.meets(os.path.relpath(one.path, asking.top)) for one in found)
    if met and tried:
        options = (*tried, f"-p{strip}", *([f"--directory={folder}"] if folder else []))
        return found if asking.applies(file, edit.path, options) else []
    return found


def unpacked(edit: Edit, asking: Asking, others: Others) -> list[Edit]:
    """Which files of others an archive would overwrite; nobody holds the rest."""
    from dibs.surroundings.archive import members

    _, file, strip = edit.asks[0]
    found = {os.path.join(edit.path, name) for name in members(file, int(strip))}
    met = [one for one in found if others.meets(os.path.relpath(one, asking.top))]
    return [Edit(one) for one in sorted(met)[:LEASED]]
