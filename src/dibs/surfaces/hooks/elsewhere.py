"""Files of other repositories that a client edits on the way: they are guarded where they are.

A client works in one repository, whose hooks are called. What it edits in another one that uses
dibs is claimed there, and freed there when the client's session ends.
"""

from __future__ import annotations

import os

from dibs.digest import sha256
from dibs.errors import DibsError
from dibs.surroundings.occasion import AFTER, BEFORE, END, Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Dibs
    from dibs.surroundings.commands import Globals
    from dibs.surroundings.occasion import Edit, Occasion


class Elsewhere:
    """The repositories that an event concerns besides the one that the client works in."""

    def __init__(
        self, globals_: Globals, space: Dibs, occasion: Occasion, edits: list[Edit]
    ) -> None:
        self._globals = globals_
        self._occasion = occasion
        self._visited = Visited(space.scope.place.store_dir, occasion)
        self._found: dict[str, list[Edit]] = {}
        if globals_.store:
            return  # whoever names a store means that one
        for edit in edits:
            root = root_of(os.path.join(occasion.cwd or os.getcwd(), edit.path))
            if root and root != space.scope.place.root:
                self._found.setdefault(root, []).append(edit)

    def visit(self) -> Answer:
        """Do there what the event asks for; a refusal if one of them refuses it."""
        if self._occasion.event == END:
            self._found = {root: [] for root in self._visited.roots()}
        for root, edits in self._found.items():
            with self._globals.open(start=root) as space:
                if (answer := in_other(space, self._occasion, edits)).deny:
                    return answer
            if self._occasion.event == BEFORE:
                self._visited.add(root)
        return Answer()


def in_other(space: Dibs, occasion: Occasion, edits: list[Edit]) -> Answer:
    """What an event means in a repository that the client does not work in."""
    from dibs.surfaces.hooks.case import Case
    from dibs.surroundings import who

    case = Case(space, who.of_occasion(occasion, os.environ), occasion)
    if occasion.event == BEFORE:
        from dibs.surfaces.hooks.guard import before

        return before(case, edits)
    if occasion.event == AFTER:
        from dibs.surfaces.hooks.after import after
        from dibs.surfaces.hooks.briefing import Briefing

        Briefing(case).postpone(after(case))
    elif occasion.event == END:
        from dibs.surfaces.hooks.after import leave

        leave(case)
    return Answer()


class Visited:
    """In which other repositories a client's session has edited."""

    def __init__(self, store_dir: str, occasion: Occasion) -> None:
        word = sha256(f"{occasion.client}:{occasion.session}".encode()).hexdigest()[:20]
        self._file = os.path.join(store_dir, "hooks", f"visited-{word}")

    def roots(self) -> list[str]:
        try:
            with open(self._file, encoding="utf-8", errors="surrogateescape") as source:
                found = source.read().splitlines()
        except FileNotFoundError:
            return []
        os.unlink(self._file)
        return [root for root in dict.fromkeys(found) if os.path.isdir(f"{root}/.dibs")]

    def add(self, root: str) -> None:
        os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
        with open(self._file, "a", encoding="utf-8", errors="surrogateescape") as target:
            target.write(f"{root}\n")


def root_of(path: str) -> str:
    """The root of the repository that a path lies in, "" if dibs is not used there."""
    from dibs.names.checkouts import checkout_around

    try:
        root = checkout_around(os.path.realpath(path)).root
    except (DibsError, OSError, ValueError):
        return ""
    return root if os.path.isdir(os.path.join(root, ".dibs")) else ""
