"""What `dibs init` writes into the files of others, and how it is taken out again.

Every change is a set of insertions into a text (`files`), so nothing of the user's can be lost.
What was inserted where is noted (`steps`), and taking it out is cutting the same characters
again. Where the note is gone, or the file has changed since, our parts are recognised by what
they say (`targets`, `parts`).

This module says which files a run is about, and what is done to them, in order.
"""

from __future__ import annotations

import os

from dibs.clients import client_of, every_client
from dibs.errors import InvalidError
from dibs.setup import files, githooks, steps
from dibs.setup.files import Draft, Refusal
from dibs.setup.steps import CREATED, REMOVED, UNCHANGED, UPDATED, InitRecord, Note, Step
from dibs.setup.targets import Block, Line, Settings, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.clients import Client
    from dibs.names.paths import Place

CONFIG = """\
# Settings of dibs for this repository. Each line shows its default; commit this file to share it.

# What happens to an edit when dibs itself fails: "open" lets it through, "closed" stops it.
# policy = "open"

# What a file held in another worktree means: "warn", "block" or "off".
# worktrees = "warn"

# How long an edited file stays claimed without activity.
# ttl = "30m"

# Paths and globs that hooks and commits pass over.
# ignored = []

# Paths and globs that only people may change.
# protected = []
"""


class Ignore(Line):
    """The `.gitignore` of `.dibs`: everything but the settings, which a team shares."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "!config.toml")

    def add(self, draft: Draft) -> list[str]:
        if not draft.text:
            draft.insert(0, "*\n")
        return super().add(draft)


class Setup:
    """One checkout, and what dibs writes into it.

    named: the clients that were asked for; with none, those that are used here
    """

    def __init__(self, place: Place, named: list[str], home: str) -> None:
        self.place = place
        self.record = InitRecord(place.root, place.store_dir)
        self.named = list(dict.fromkeys(named))
        self.home = home
        self.skipped: list[str] = []
        self._of_repository: list[Target] = []

    def check_place(self) -> None:
        if self.place.checkout.kind == "none":
            raise InvalidError(
                "this is not a repository", next="git init first, or mkdir .dibs to do without git"
            )
        asked = ("rev-parse", "--is-bare-repository")
        if self.has_git and githooks.git(self.place.top, *asked) == "true":
            raise InvalidError(
                "there is no checkout here, only the repository", next="cd into a worktree of it"
            )

    @property
    def has_git(self) -> bool:
        return self.place.checkout.kind == "repository"

    def label(self, path: str) -> str:
        """A file as the user would name it: from the top of the checkout."""
        below = os.path.relpath(path, self.place.top)
        return path if below.startswith("..") else below

    def used(self) -> list[str]:
        """The clients to set up."""
        return self.named or [one.name for one in every_client() if self.is_used(one)]

    def is_used(self, client: Client) -> bool:
        from shutil import which

        return (
            any(which(command) for command in client.commands)
            or any(os.path.exists(os.path.join(self.home, name)) for name in client.home)
            or any(os.path.exists(os.path.join(self.place.top, name)) for name in client.traces)
        )

    def set_up(self) -> list[str]:
        """The clients that were set up here before, as far as can be told."""
        if self.named or self.record.clients:
            return self.named or self.record.clients
        return [name for name in known() if any(map(self.has_ours, self.of_clients([name])))]

    def drift(self) -> list[Step]:
        """The files that are not as they would be written, each with why and what to do."""
        wrong = [step for step in self.plan(self.set_up()) if step.changes or step.fault]
        for step in wrong:
            if step.changes:
                step.why = "missing" if step.before is None else "not as dibs init writes it"
                step.next = "dibs init"
        return wrong

    def has_ours(self, target: Target) -> bool:
        try:
            text = files.read(target.path)
            return text is not None and steps.own(target, text, None)[0] != text
        except Refusal:
            return False

    def of_clients(self, names: Iterable[str]) -> list[Target]:
        return [target for name in names for target in client_of(name).targets(self.place.top)]

    def of_repository(self) -> list[Target]:
        """What every client needs."""
        if self._of_repository:
            return self._of_repository
        store = self.place.store_dir
        self._of_repository = [
            Block(os.path.join(self.place.top, "AGENTS.md")),
            Ignore(os.path.join(store, ".gitignore")),
            Settings(os.path.join(store, "config.toml"), CONFIG),
        ]
        if self.has_git:
            for hooks in githooks.of(self.place):
                self._of_repository += hooks.targets
                self.skipped += [hooks.why] if hooks.why else []
        return self._of_repository

    def targets(self, names: list[str]) -> list[Target]:
        return [*self.of_clients(names), *self.of_repository()]

    def plan(self, names: list[str]) -> list[Step]:
        """What is to be done for these clients and for the repository."""
        return [steps.plan_init(target, self.record) for target in self.targets(names)]

    def init(self, names: list[str]) -> list[Step]:
        from dibs.dibs import own_store

        targets, theirs, done = self.targets(names), self.said_before(names), []
        had_ignore = os.path.exists(os.path.join(self.place.store_dir, ".gitignore"))
        own_store(self.place)
        for target in targets:
            # One after the other: two names may lead to one file.
            step = steps.plan_init(target, self.record)
            steps.do(step, self.record, self.place.top)
            done.append(step)
            if step.state == UNCHANGED and step.path in theirs:
                self.record.put(step.path, Note(False, [], []))
            if isinstance(step.target, Ignore):
                self.record.drop(step.path)  # the store needs it as long as there is a store
                step.state = step.state if had_ignore or step.fault else CREATED
        self.record.clients = [name for name in known() if name in (*self.record.clients, *names)]
        self.record.save()
        return done

    def said_before(self, names: list[str]) -> set[str]:
        """The files of clients that dibs has not been in: what they say already is the user's."""
        before = self.record.clients
        if not self.record.notes and any(map(self.has_ours, self.of_repository())):
            before = known()  # the notes are lost, or came by git to another machine
        new = [name for name in names if name not in before]
        paths = {target.path for target in self.of_clients(new)}
        return {path for path in paths if self.record.get(path) is None}

    def plan_remove(self) -> list[Step]:
        targets = self.of_clients(self.named or known())
        if not self.named:
            targets += [one for one in self.of_repository() if not isinstance(one, Ignore)]
        return [steps.plan_remove(target, self.record) for target in targets]

    def remove(self, planned: list[Step]) -> list[Step]:
        for step in planned:
            steps.do(step, self.record, self.place.top)
            if not step.fault:
                self.record.drop(step.path)
        self.record.clients = [name for name in self.record.clients if name not in self.named]
        if not self.named:
            self.record.clients = []
        self.record.save()
        return [] if self.named else self.remove_store()

    def remove_store(self) -> list[Step]:
        """Remove `.dibs` if nothing but its `.gitignore` is left; else git keeps ignoring it."""
        target = Ignore(os.path.join(self.place.store_dir, ".gitignore"))
        step = Step(target, UNCHANGED)
        try:
            text = files.read(target.path)
            if text is None:
                return []
            if os.listdir(self.place.store_dir) == [".gitignore"] and text in ("*\n", ignored()):
                os.unlink(target.path)
                os.rmdir(self.place.store_dir)
                step.state = REMOVED
            elif "config.toml" not in os.listdir(self.place.store_dir):
                clean = target.strip(text, None)
                if clean != text:
                    files.write(target.path, clean, target.mode)
                    step.state = UPDATED
        except Refusal as refusal:
            step.refuse(refusal)
        return [step]


def known() -> list[str]:
    return [client.name for client in every_client()]


def ignored() -> str:
    draft = Draft("")
    Ignore("").add(draft)
    return draft.text
